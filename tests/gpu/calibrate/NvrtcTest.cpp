//===- NvrtcTest.cpp - The calibration kernels under NVRTC ----------------===//
//
// From the embedded sources alone, for both targets: no spills, registers within the budget of 352
// threads. Without NVRTC the case only warns.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernel_cache.h"
#include "tools/calibrate/Session.h"

#include <catch2/catch.hpp>

using namespace megalith;

TEST_CASE("calibration kernels compile without spills", "[calibrate]") {
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  const auto &sources = calibrate::kernelSources();
  int files = 0;
  for (const auto &[name, text] : sources) {
    if (!name.ends_with(".cu"))
      continue;
    ++files;
    for (const char *target : {"sm_90a", "sm_100a"}) {
      auto compiled = runtime::compileCached(*nvrtc, text, name, sources, target);
      if (!compiled)
        FAIL(llvm::toString(compiled.takeError()));
      CHECK(compiled->resources.size() >= 1);
      for (const auto &[kernel, resources] : compiled->resources) {
        INFO(kernel << " for " << target << ": " << resources.registers << " registers");
        CHECK(kernel.starts_with("calibrate_"));
        CHECK(resources.spillBytes == 0);
        CHECK(resources.registers <= 168);
        // Code that is to drive other code out of caches must be as much as it says.
        if (name == "tests/gpu/calibrate/parts.cu")
          CHECK(resources.codeBytes > calibrate::kFarKb * 1024);
      }
    }
  }
  CHECK(files >= 8);
}
