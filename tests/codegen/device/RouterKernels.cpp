// The router's test kernels, compiled for the host platform like emitted sources.
#include "tests/codegen/device/RouterKernel.h"

using namespace megalith;

MEGALITH_KERNEL(router_small) {
  test::Small::run(args);
}
MEGALITH_KERNEL(router_many) {
  test::Many::run(args);
}
MEGALITH_KERNEL(router_most) {
  test::Most::run(args);
}
MEGALITH_KERNEL(router_biased) {
  test::Biased::run(args);
}
MEGALITH_KERNEL(router_tiny1) {
  test::Tiny1::run(args);
}
MEGALITH_KERNEL(router_tiny2) {
  test::Tiny2::run(args);
}
MEGALITH_KERNEL(router_tiny3) {
  test::Tiny3::run(args);
}
MEGALITH_KERNEL(router_plain) {
  test::Plain::run(args);
}
MEGALITH_KERNEL(router_aside) {
  test::Aside::run(args);
}
