// Kernels of memory.cuh.
#include "tests/gpu/calibrate/memory.cuh"

MEGALITH_KERNEL(calibrate_fill) {
  megalith::calibrate::fill(args);
}
MEGALITH_KERNEL(calibrate_read) {
  megalith::calibrate::read(args);
}
MEGALITH_KERNEL(calibrate_restart) {
  megalith::calibrate::restart(args);
}
