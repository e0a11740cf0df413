//===- HeldRanksTest.cpp - Pieces held before the column is there ---------===//
//
// Two ranks of one row, whose consumers hold pieces of o_proj and the unpooler and a decoded block
// of the experts' down projection: the bits of one rank, which holds nothing.
//
//===----------------------------------------------------------------------===//

#include "tests/host/StreamCells.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>

using namespace megalith;
using namespace megalith::test;

TEST_CASE("products of held pieces have the bits of others") {
  constexpr const char *kConfig = "muse-spark-held.test.json";
  constexpr int64_t kSms = 64;
  const models::Quantization quantization{.experts = true};
  const check::Workload step = streamStep(2, {{.start = 40}});
  const check::Outcome expected =
      Bench(kConfig, 1, kSms, roomFor({step}), runtime::LaunchMode::Fused, 1, quantization)
          .run(step, 1);
  Bench ranks(kConfig, 1, kSms, roomFor({step}), runtime::LaunchMode::Fused, 2, quantization);
  std::ifstream file(ranks.folder + "/sm_90a/rows1-tp2/kernels/full_nvfp4.cu");
  const std::string held{std::istreambuf_iterator<char>(file), {}};
  for (const char *call : {"hold_piece<o_proj, ring>", "hold_piece<unpooler, ring>",
                           "decode_block<expert_down, ring>"}) {
    INFO(call);
    CHECK(held.find(call) != std::string::npos);
  }
  for (uint64_t seed = 1; seed <= 3; ++seed)
    CHECK(ranks.run(step, seed) == expected);
}
