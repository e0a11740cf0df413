// The hand-written kernels under NVRTC, from the embedded headers alone: no spills, registers
// within the budget, and every edge named in the PTX. Without NVRTC the cases only warn.
#include "codegen/headers.h"
#include "runtime/nvrtc.h"

#include "llvm/Support/Error.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

using namespace megalith;
using Catch::Matchers::Contains;

namespace {

std::string read(const std::string &path) {
  std::ifstream file(path);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Compiles for both targets and hands each result to `check`.
template <class Check>
void compile(const std::string &path, std::vector<std::string> defines, Check check) {
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  const std::string source = read(path);
  for (const char *target : {"sm_90a", "sm_100a"}) {
    INFO(path << " for " << target);
    auto compiled =
        nvrtc->compile(source, path, deviceHeaders(), target, {.ptx = true, .extra = defines});
    if (!compiled)
      FAIL(llvm::toString(compiled.takeError()));
    for (const auto &[name, resources] : compiled->resources) {
      INFO(name);
      CHECK(resources.spillBytes == 0);
      CHECK(resources.stackBytes == 0);
      CHECK(resources.registers <= 168); // 352 threads in 64 K registers, to the next 8
    }
    check(*compiled);
  }
}

int count(const std::string &text, const std::string &what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++n;
  return n;
}

} // namespace

TEST_CASE("the toy kernel compiles without spills and names its edges in the PTX") {
  for (const char *rows : {"-DM0_ROWS=1", "-DM0_ROWS=8"})
    compile("tests/codegen/m0_by_hand.cu", {rows}, [](const runtime::Compiled &compiled) {
      CHECK(compiled.resources.count("m0") == 1);
      // Loops may be unrolled, so at least as often as in the source.
      for (const char *mark :
           {"wait @x_full acquire.cta", "wait @w_full acquire.cta", "acquire @x_free acquire.cta",
            "release @w_free release.cta", "signal @p_full release.cta", "copy @w_full async.cta"})
        CHECK(count(compiled.ptx, std::string("// megalith ") + mark) >= 2);
      CHECK(count(compiled.ptx, "// megalith wait @h_words relaxed.gpu") == 1);
      CHECK(count(compiled.ptx, "// megalith signal @h_words relaxed.gpu") >= 1);
      CHECK_THAT(compiled.ptx, Contains("mma.sync.aligned.m16n8k16") && Contains("cp.async.bulk"));
    });
}

TEST_CASE("the mixture-of-experts kernels compile without spills") {
  compile("tests/codegen/moe_by_hand.cu", {"-DMOE_ROWS=8", "-DMOE_NAME=moe"},
          [](const runtime::Compiled &compiled) {
            CHECK(compiled.resources.size() == 2);
            CHECK_THAT(compiled.ptx, Contains("// megalith wait @resid_words relaxed.gpu"));
          });
}

TEST_CASE("the NVFP4 experts compile without spills, in few registers") {
  compile("tests/codegen/nvfp4_by_hand.cu", {}, [](const runtime::Compiled &compiled) {
    REQUIRE(compiled.resources.count("nvfp4_experts") == 1);
    CHECK(compiled.resources.at("nvfp4_experts").registers <= 96);
    // Four products of pairs a step: codes become operands nowhere else.
    CHECK(count(compiled.ptx, "mul.rn.bf16x2") == 4 * count(compiled.ptx, "mma.sync.aligned"));
  });
}
