// Kernels of machine.cuh. The larger piece of code is there to drive the smaller out of every
// cache.
#include "tests/gpu/calibrate/machine.cuh"

MEGALITH_KERNEL(calibrate_clocks) {
  megalith::calibrate::clocks(args);
}
MEGALITH_KERNEL(calibrate_code_64) {
  megalith::calibrate::straight<64>(args);
}
MEGALITH_KERNEL(calibrate_code_256) {
  megalith::calibrate::straight<256>(args);
}
