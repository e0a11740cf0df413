// Kernels of units.cuh.
#include "tests/gpu/calibrate/units.cuh"

MEGALITH_KERNEL(calibrate_signals) {
  megalith::calibrate::signals(args);
}

#define UNIT(NAME, ...)                                                                            \
  MEGALITH_KERNEL(calibrate_##NAME) {                                                              \
    megalith::calibrate::__VA_ARGS__::run(args);                                                   \
  }

UNIT(drain_16k, Drain<8, 2048>)
UNIT(drain_12k, Drain<6, 2048>)
UNIT(drain_8x768, Drain<8, 768>)
UNIT(drain_nvfp4, DrainNvfp4<4096>)
UNIT(norm_2048, NormUnit<2048>)
UNIT(norm_4096, NormUnit<4096>)
UNIT(topk_64, TopKUnit<64, 8>)
UNIT(topk_128, TopKUnit<128, 8>)
UNIT(topk_256, TopKUnit<256, 8>)
UNIT(topk_512, TopKUnit<512, 8>)
