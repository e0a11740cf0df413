// Launches of 128 SMs that exchange 4 KB a hop.
#include "tests/gpu/calibrate/boundary.cuh"

MEGALITH_KERNEL(calibrate_boundary) {
  megalith::calibrate::Boundary<128, 1024>::run(args);
}
