// Kernels of pair.cuh.
#include "tests/gpu/calibrate/pair.cuh"

MEGALITH_KERNEL(calibrate_pair) {
  megalith::calibrate::pair(args);
}
MEGALITH_KERNEL(calibrate_reds) {
  megalith::calibrate::reds(args);
}
