// Kernels of sweep.cuh.
#include "tests/gpu/calibrate/sweep.cuh"

MEGALITH_KERNEL(calibrate_sweep_1536) {
  megalith::calibrate::Sweep<128, 384, 64, 16>::run(args);
}
