//===- DriverTest.cpp - Refusals before anything runs ---------------------===//

#include "runtime/driver.h"

#include <catch2/catch.hpp>
#include <dlfcn.h>

using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

const DeviceInfo kH200 = {.name = "NVIDIA H200",
                          .computeMajor = 9,
                          .computeMinor = 0,
                          .sms = 132,
                          .memoryBytes = int64_t(141) << 30,
                          .smemBytes = 232448,
                          .driverVersion = 13000,
                          .cooperative = true};

std::string refusal(llvm::StringRef target, int64_t sms, int64_t smem, int cuda,
                    DeviceInfo device = kH200) {
  auto error = checkDevice(device, target, sms, smem, cuda);
  REQUIRE(bool(error));
  return llvm::toString(std::move(error));
}

} // namespace

TEST_CASE("a plan for this device is accepted") {
  CHECK(!checkDevice(kH200, "sm_90a", 132, 232448, 13000));
  CHECK(!checkDevice(kH200, "sm_90", 4, 0, 0));
  DeviceInfo blackwell = kH200;
  blackwell.computeMajor = 10;
  CHECK(!checkDevice(blackwell, "sm_100a", 132, 0, 13000));
}

TEST_CASE("a plan for another device is refused with what to do") {
  CHECK_THAT(refusal("sm_100a", 132, 0, 13000), Contains("for sm_100a") && Contains("H200") &&
                                                    Contains("sm_90") && Contains("--target"));
  CHECK_THAT(refusal("sm_90a", 148, 0, 13000),
             Contains("needs 148 SMs") && Contains("has 132") && Contains("--sms 132"));
  CHECK_THAT(refusal("sm_90a", 132, 232449, 13000), Contains("232449 bytes of shared memory"));
  CHECK_THAT(refusal("gfx942", 1, 0, 0), Contains("target 'gfx942'"));
  DeviceInfo old = kH200;
  old.driverVersion = 12080;
  CHECK_THAT(refusal("sm_90a", 132, 0, 13000, old),
             Contains("CUDA 13.0") && Contains("CUDA 12.8") && Contains("newer driver"));
}

TEST_CASE("without a driver the error says so") {
  if (dlopen("libcuda.so.1", RTLD_NOW)) {
    WARN("skipped: this machine has a GPU driver");
    return;
  }
  auto driver = Driver::open();
  REQUIRE(!driver);
  CHECK_THAT(llvm::toString(driver.takeError()), Contains("no GPU driver") &&
                                                     Contains("libcuda.so.1") &&
                                                     Contains("megalith run --backend host"));
}
