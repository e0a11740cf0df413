//===- BenchTest.cpp - What megalith bench counts and says ----------------===//

#include "tools/bench/DeviceTools.h"
#include "tools/bench/Report.h"

#include "runtime/packing.h"

#include "llvm/Support/JSON.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

using namespace megalith;
using namespace megalith::bench;
using Catch::Matchers::Contains;

namespace {

/// Two layers of one dense and one expert weight, a table before and nothing behind.
runtime::Plan plan() {
  runtime::Plan plan = {.model = "m", .rows = 2, .layers = 2, .kvHeads = 2, .headDim = 16};
  plan.kernels = {{.name = "embed", .slots = {{.name = "table"}, {.name = "dense"}}},
                  {.name = "layer",
                   .slots = {{.name = "experts"},
                             {.name = "kv", .role = runtime::SlotRole::Kv},
                             {.name = "dense", .layerOffset = 1}}},
                  {.name = "last",
                   .slots = {{.name = "experts"}, {.name = "kv", .role = runtime::SlotRole::Kv}}}};
  plan.buffers = {{.name = "kv", .kind = runtime::BufferKind::Kv, .perLayer = true}};
  plan.weights = {
      {.name = "table", .form = runtime::WeightForm::Table, .n = 1000, .k = 32, .perLayer = false},
      // 200 columns are padded to 256 in memory, which nobody must read.
      {.name = "dense", .form = runtime::WeightForm::Strips, .n = 8, .k = 200},
      {.name = "experts",
       .form = runtime::WeightForm::GateUpStrips,
       .n = 4,
       .k = 128,
       .experts = 5}};
  plan.launches = {{"embed", 0}, {"layer", 0}, {"last", 1}};
  return plan;
}

} // namespace

TEST_CASE("bytes of a step: weights once, experts as routed, histories once") {
  const std::vector<int64_t> active = {3, 4};
  const Traffic layer = launchTraffic(plan(), 1, active, {2, 50});
  CHECK(layer.dense == 8 * 200 * 2);
  CHECK(layer.experts == 3 * 4 * 128 * 2);
  CHECK(layer.kv == 100 * 2 * 2 * 16 * 2);
  const Traffic embed = launchTraffic(plan(), 0, active, {2, 50});
  CHECK(embed.dense == 2 * 32 * 2 + 8 * 200 * 2); // two rows of the table
  CHECK(embed.kv == 0);
  const Traffic step = stepTraffic(plan(), active, {2, 50});
  CHECK(step.experts == 7 * 4 * 128 * 2);
  CHECK(step.total() ==
        embed.total() + layer.total() + launchTraffic(plan(), 2, active, {2, 50}).total());
}

TEST_CASE("bytes of a rank: its shares, and a part of what all have whole; of a window its last") {
  runtime::Plan one = plan();
  one.tp = 4;
  one.buffers[0].window = 30;
  one.weights[1].parts = {{.tensor = "t",
                           .shape = {32, 200},
                           .transforms = {{.kind = runtime::TransformKind::Shard, .count = 8}}}};
  const Traffic layer = launchTraffic(one, 1, std::vector<int64_t>{3, 4}, {2, 50});
  CHECK(layer.dense == 8 * 200 * 2);
  CHECK(layer.experts == 3 * 4 * 128 * 2 / 4);
  CHECK(layer.kv == 2 * 30 * 2 * 2 * 16 * 2);
  CHECK(launchTraffic(one, 1, std::vector<int64_t>{3, 4}, {2, 20}).kv == 2 * 20 * 2 * 2 * 16 * 2);
}

TEST_CASE("different experts of all rows; the lower index wins among equals") {
  CHECK(distinctExperts(std::vector<float>{1, 4, 3, 2}, 4, 2) == 2);
  CHECK(distinctExperts(std::vector<float>{1, 4, 3, 2, /*row*/ 9, 8, 1, 0}, 4, 2) == 3);
  CHECK(distinctExperts(std::vector<float>{5, 5, 5, 5, /*row*/ 7, 7, 7, 7}, 4, 2) == 2);
  CHECK(distinctExperts(std::vector<float>{NAN, 5, NAN, 6, /*row*/ NAN, 7, 7, NAN}, 4, 2) == 3);
}

TEST_CASE("experts by biased scores: sigmoid, then the bias") {
  const std::vector<float> logits = {3, 2, 1, 0, /*row*/ 0, 1, 2, 3};
  CHECK(distinctExperts(logits, 4, 2) == 4);
  CHECK(distinctExperts(logits, 4, 2, std::vector<float>{0, 0, 0, 0}) == 4);
  // Scores differ by at most one, so who is ahead by more is everybody's choice.
  CHECK(distinctExperts(logits, 4, 2, std::vector<float>{0, 1, 1, 0}) == 2);
  // A bias on logits would change nothing here; on scores of 0.95 and 0.88 it does.
  CHECK(distinctExperts(std::vector<float>{3, 2}, 2, 1, std::vector<float>{0, 0.1f}) == 1);
  CHECK(distinctExperts(std::vector<float>{3, 2, /*row*/ 3, -9}, 2, 1,
                        std::vector<float>{0, 0.1f}) == 2);
}

TEST_CASE("sequences keep the step's preconditions, with or without shared histories") {
  for (int64_t context : {0, 1, 63, 64, 129, 8192})
    for (int64_t rows : {1, 2, 8})
      for (int64_t lack : {0, 1, 100}) {
        const Workload all = {rows, context, rows};
        const Workload workload = fit(all, all.pages() - lack);
        if (workload.histories < 1)
          continue;
        CHECK(workload.pages() <= all.pages() - lack);
        CHECK((lack == 0) == (workload.histories == rows));
        const auto sequences = workload.sequences(1, 151936);
        auto step = runtime::buildStep(sequences, {.rows = rows,
                                                   .maxPages = workload.pagesPerSequence(),
                                                   .poolPages = workload.pages(),
                                                   .vocab = 151936});
        if (!step)
          FAIL(llvm::toString(step.takeError()));
        std::set<int32_t> pages;
        for (const runtime::StepSequence &sequence : sequences)
          pages.insert(sequence.pages.begin(), sequence.pages.end());
        CHECK(int64_t(pages.size()) == workload.pages());
      }
  CHECK(fit({.rows = 8, .context = 8192, .histories = 8}, 100).histories == 0);
}

TEST_CASE("medians") {
  const Times times = summarise({4, 1, 3, 2, 100});
  CHECK(times.median == 3);
  CHECK(times.least == 1);
  CHECK(times.p90 == 100);
  CHECK(summarise({1, 2}).median == 1.5);
}

TEST_CASE("table and JSON: rates of the faster mode, void runs marked, what broke named") {
  BenchResult result;
  result.model = "m";
  result.steps = 30;
  result.ceiling = 4.6e12;
  result.ceilingRuns = {4.5e12, 4.6e12};
  Cell cell;
  cell.workload = {2, 8192, 2};
  cell.activeExperts = {8, 10};
  cell.traffic = {.dense = 1'000'000'000, .experts = 1'000'000'000, .kv = 300'000'000};
  cell.stream.median = 1100;
  cell.graph.median = 1000;
  cell.separate.median = 2000;
  cell.logits = cell.finiteLogits = 10;
  result.cells = {cell};
  CHECK(voidReason(result).empty());
  CHECK_THAT(table(result), Contains("50.0 %") && Contains("2000.0") && Contains("2300"));
  CHECK_THAT(table(result), !Contains("VOID") && !Contains("finite"));

  auto parsed = llvm::json::parse(toJson(result, "launch 7 waited"));
  REQUIRE(bool(parsed));
  const llvm::json::Object &object = *parsed->getAsObject();
  CHECK(object.getString("error") == llvm::StringRef("launch 7 waited"));
  const llvm::json::Object &first = *(*object.getArray("cells"))[0].getAsObject();
  const llvm::json::Object &graph = *first.getObject("graph");
  CHECK(*graph.getNumber("tokens_per_s") == Approx(2000));
  CHECK(*graph.getNumber("share_of_ceiling") == Approx(0.5));
  CHECK(*graph.getNumber("share_of_4.70") == Approx(2.3 / 4.7));
  CHECK(*first.getObject("bytes")->getInteger("total") == 2'300'000'000);

  result.ceiling = 4.4e12;
  result.cells[0].finiteLogits = 7;
  CHECK_THAT(table(result), Contains("VOID") && Contains("3 of 10 logits are not finite"));
}

TEST_CASE("the benchmark's kernels compile where there is an NVRTC") {
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc) {
    WARN("skipped: " + llvm::toString(nvrtc.takeError()));
    return;
  }
  auto compiled = nvrtc->compile("#include \"tools/bench/device_tools.cuh\"\n", "device_tools.cu",
                                 deviceToolsHeaders(), "sm_90a");
  if (!compiled)
    FAIL(llvm::toString(compiled.takeError()));
  CHECK(compiled->resources.count("megalith_read"));
}
