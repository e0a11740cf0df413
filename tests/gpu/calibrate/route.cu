// Routing to 8 of 128 experts on 128 SMs.
#include "tests/gpu/calibrate/route.cuh"

MEGALITH_KERNEL(calibrate_route) {
  megalith::calibrate::Route<128, 128, 8, false>::run(args);
}
MEGALITH_KERNEL(calibrate_route_tight) {
  megalith::calibrate::Route<128, 128, 8, true>::run(args);
}
