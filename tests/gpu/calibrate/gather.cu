// The merge hop of Qwen3-30B-A3B at one row, and half of it.
#include "tests/gpu/calibrate/gather.cuh"

MEGALITH_KERNEL(calibrate_gather_32x11) {
  megalith::calibrate::Gather<128, 32, 11>::run(args);
}
MEGALITH_KERNEL(calibrate_gather_32x6) {
  megalith::calibrate::Gather<128, 32, 6>::run(args);
}
