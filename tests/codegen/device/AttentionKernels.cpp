// The attention test kernels, compiled for the host platform like emitted sources.
#include "tests/codegen/device/AttentionKernel.h"

using namespace megalith;

MEGALITH_KERNEL(grouped8) {
  test::Grouped8::run(args);
}
MEGALITH_KERNEL(grouped4) {
  test::Grouped4::run(args);
}
MEGALITH_KERNEL(grouped4_one_row) {
  test::Grouped4OneRow::run(args);
}
MEGALITH_KERNEL(single) {
  test::Single::run(args);
}
MEGALITH_KERNEL(one_row) {
  test::OneRow::run(args);
}
MEGALITH_KERNEL(wide) {
  test::Wide::run(args);
}
MEGALITH_KERNEL(rounds) {
  test::Rounds::run(args);
}
MEGALITH_KERNEL(codes8) {
  test::Codes8::run(args);
}
MEGALITH_KERNEL(codes_one_row) {
  test::CodesOneRow::run(args);
}
MEGALITH_KERNEL(codes_few) {
  test::CodesFew::run(args);
}
MEGALITH_KERNEL(codes_wide) {
  test::CodesWide::run(args);
}
MEGALITH_KERNEL(codes_rounds) {
  test::CodesRounds::run(args);
}
