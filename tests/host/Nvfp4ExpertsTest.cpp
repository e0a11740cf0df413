//===- Nvfp4ExpertsTest.cpp - NVFP4 experts from the graph on -------------===//
//
// A small model whose experts are NVFP4, through all passes, the proof and the emitted source: on
// the host platform equal to the reference, launch by launch, and the same bits under every
// schedule.
//
//===----------------------------------------------------------------------===//

#include "tests/host/Bench.h"
#include "tests/host/Cells.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::test;

static void compare(int64_t rows, runtime::LaunchMode launch) {
  Bench bench("qwen3-moe-small.test.json", rows, 4,
              {.maxPages = kMaxPages, .poolPages = kPoolPages}, launch, /*tp=*/1,
              /*nvfp4Experts=*/true);
  REQUIRE(bench.subject->plan.weight("w_up")->form == runtime::WeightForm::GateUpNvfp4);
  REQUIRE(bench.subject->plan.weight("w_down")->form == runtime::WeightForm::Nvfp4);
  const Cell cell = cells(rows).front();
  INFO(cell.name);
  const check::Report report = bench.compare(cell.workload, 1);
  INFO(report.table());
  CHECK(report.passes());
  const check::Outcome first = bench.run(cell.workload, 2);
  for (uint64_t seed : {3, 4})
    CHECK(bench.run(cell.workload, seed) == first);
}

TEST_CASE("rows 1") {
  compare(1, runtime::LaunchMode::Fused);
}

TEST_CASE("rows 4, a launch a stage") {
  compare(4, runtime::LaunchMode::PerStage);
}
