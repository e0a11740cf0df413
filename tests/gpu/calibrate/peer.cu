// Kernels of peer.cuh.
#include "tests/gpu/calibrate/peer.cuh"

MEGALITH_KERNEL(calibrate_peer_pair) {
  megalith::calibrate::peer_pair(args);
}
MEGALITH_KERNEL(calibrate_peer_hops) {
  megalith::calibrate::peer_hops(args);
}
