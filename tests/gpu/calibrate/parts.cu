// Kernels of parts.cuh: the shapes of one and eight rows of a model with 128 experts and heads of
// 128 channels, 8 to a group.
#include "tests/gpu/calibrate/parts.cuh"

MEGALITH_KERNEL(calibrate_dense_rows1) {
  megalith::calibrate::DenseParts<128, 1, 2048, 128, 8>::run(args);
}
MEGALITH_KERNEL(calibrate_dense_rows2) {
  megalith::calibrate::DenseParts<128, 2, 2048, 128, 8>::run(args);
}
MEGALITH_KERNEL(calibrate_dense_rows4) {
  megalith::calibrate::DenseParts<128, 4, 2048, 128, 8>::run(args);
}
MEGALITH_KERNEL(calibrate_dense_rows8) {
  megalith::calibrate::DenseParts<128, 8, 2048, 128, 8>::run(args);
}
MEGALITH_KERNEL(calibrate_attention_rows1) {
  megalith::calibrate::AttentionParts<128, 1, 32, 4, 128, 4>::run(args);
}
MEGALITH_KERNEL(calibrate_attention_rows8) {
  megalith::calibrate::AttentionParts<128, 8, 32, 4, 128, 1>::run(args);
}
