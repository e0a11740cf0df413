//===- WideRowsTest.cpp - Activation rows that come in parts of K ---------===//
//
// A small model with many heads and wide experts: 16 rows of its attention output, and 16 of one
// expert's activations, are too wide to lie in shared memory whole, and a tile of attention has
// more query vectors than one round takes.
//
//===----------------------------------------------------------------------===//

#include "tests/host/Bench.h"

#include "llvm/Support/MemoryBuffer.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::test;

namespace {

constexpr char kConfig[] = "qwen3-moe-wide.test.json";

/// The emitted kernel of a layer.
std::string layerSource(const Bench &bench) {
  auto file = llvm::MemoryBuffer::getFile(bench.subject->folder + "/kernels/layer.cu");
  REQUIRE(file);
  return (*file)->getBuffer().str();
}

check::Workload workload() {
  return {.seed = 3,
          .steps = 2,
          .sequences = {{.start = 40, .rows = 9},
                        {.start = 130, .rows = 2, .content = 1},
                        {.start = 5, .content = 2},
                        {.start = 99, .content = 7}}};
}

} // namespace

TEST_CASE("rows too wide for shared memory come in parts of K") {
  // On three SMs 6 m-tiles each, more than registers have sums for: two groups; on six SMs 3.
  for (int64_t sms : {3, 6}) {
    INFO(sms << " SMs");
    Bench bench(kConfig, 16, sms);
    const std::string source = layerSource(bench);
    CHECK(source.find("poll_chunk_part<attn_words, o_proj::In, 2>(cta, k_part)") !=
          std::string::npos);
    CHECK(source.find("poll_expert_part<act_words, act_rows, 2>") != std::string::npos);
    CHECK((source.find("group * 3 + mtile") != std::string::npos) == (sms == 3));
    check::Outcome first;
    const check::Report report = bench.compare(workload(), 1, &first);
    INFO(report.table());
    CHECK(report.passes());
    for (uint64_t seed = 2; seed <= 3; ++seed)
      CHECK(bench.run(workload(), seed, 5 * seed) == first);
  }
}

TEST_CASE("a row's bits do not depend on whether its rows come in parts") {
  Bench wide(kConfig, 16, 3), narrow(kConfig, 2, 4);
  CHECK(layerSource(narrow).find("k_part") == std::string::npos);
  const check::Workload alone{.seed = 3, .steps = 2, .sequences = {{.start = 99, .content = 7}}};
  // Row 12 of the crowd is the same sequence.
  CHECK(wide.run(workload(), 1).sameRow(12, narrow.run(alone, 1), 0));
}
