// Hops whose words are published in several copies, each for a part of the SMs.
#include "tests/gpu/calibrate/hop.cuh"

MEGALITH_KERNEL(calibrate_hop_4k_tight_x4) {
  megalith::calibrate::Hop<128, 1024, megalith::calibrate::Polling::tight, 4>::run(args);
}
MEGALITH_KERNEL(calibrate_hop_4k_tight_x16) {
  megalith::calibrate::Hop<128, 1024, megalith::calibrate::Polling::tight, 16>::run(args);
}
