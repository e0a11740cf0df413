// Kernels of stream_rows.cuh.
#include "tests/gpu/calibrate/stream_rows.cuh"

MEGALITH_KERNEL(calibrate_stream_4096) {
  megalith::calibrate::StreamParts<128, 4096>::run(args);
}
MEGALITH_KERNEL(calibrate_stream_8192) {
  megalith::calibrate::StreamParts<128, 8192>::run(args);
}
