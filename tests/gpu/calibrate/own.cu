// Partial results and heads of one row, and the router's logits, as Qwen3-30B-A3B exchanges them.
#include "tests/gpu/calibrate/own.cuh"

MEGALITH_KERNEL(calibrate_own_records_32x12) {
  megalith::calibrate::OwnRecords<128, 32, 12>::run(args);
}
MEGALITH_KERNEL(calibrate_own_records_32x3) {
  megalith::calibrate::OwnRecords<128, 32, 3>::run(args);
}
MEGALITH_KERNEL(calibrate_own_heads) {
  megalith::calibrate::OwnHeads<128, 4>::run(args);
}
MEGALITH_KERNEL(calibrate_own_rows1) {
  megalith::calibrate::OwnRows<128, 1, 128>::run(args);
}
MEGALITH_KERNEL(calibrate_own_rows2) {
  megalith::calibrate::OwnRows<128, 2, 128>::run(args);
}
MEGALITH_KERNEL(calibrate_own_rows4) {
  megalith::calibrate::OwnRows<128, 4, 128>::run(args);
}
MEGALITH_KERNEL(calibrate_own_rows8) {
  megalith::calibrate::OwnRows<128, 8, 128>::run(args);
}
