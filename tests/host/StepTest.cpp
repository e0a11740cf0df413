//===- StepTest.cpp - A step in one launch, against its launches ----------===//
//
// The kernel that loops over a step must leave the very bits that one launch a layer leaves, for
// the family in $MEGALITH_CONFIG, under several schedules, whatever the number of the first launch;
// and each turn of its loop what the reference says.
//
//===----------------------------------------------------------------------===//

#include "tests/host/Bench.h"
#include "tests/host/Cells.h"

#include "runtime/execute.h"

#include <catch2/catch.hpp>

#include <cstdlib>

using namespace megalith;
using namespace megalith::test;

namespace {

std::string configFile() {
  const char *name = std::getenv("MEGALITH_CONFIG");
  return name ? name : "qwen3-moe-small.test.json";
}

uint64_t seedsPerCell() {
  return std::getenv("MEGALITH_FULL") ? 100 : 3;
}

/// Launch numbers to start from: all sets of words, and across the wrap of what 32 bits count.
uint64_t launchBase(uint64_t seed) {
  return seed % 3 == 2 ? (uint64_t(1) << 32) - 3 : 5 * seed;
}

void runCells(int64_t rows, int64_t sms) {
  const check::SessionOptions room = {.maxPages = kMaxPages, .poolPages = kPoolPages};
  Bench layers(configFile(), rows, sms, room),
      step(configFile(), rows, sms, room, runtime::LaunchMode::Step);
  REQUIRE(step.subject->plan.loopingKernel());
  bool isFirst = true;
  for (const Cell &cell : cells(rows)) {
    INFO(configFile() << ", rows " << rows << ", " << sms << " SMs: " << cell.name);
    const check::Outcome expected = layers.run(cell.workload, 1);
    for (uint64_t seed = 1; seed <= seedsPerCell(); ++seed) {
      INFO("seed " << seed);
      CHECK(step.run(cell.workload, seed, launchBase(seed)) == expected);
    }
    if (!isFirst)
      continue;
    isFirst = false;
    check::Outcome turns;
    const check::Report report = step.compare(cell.workload, 1, &turns);
    INFO(report.table());
    CHECK(report.passes());
    CHECK(turns == expected);
  }
}

} // namespace

TEST_CASE("rows 1") {
  runCells(1, 4);
}
TEST_CASE("rows 4, on a number of SMs that nothing divides by") {
  runCells(4, 5);
}
TEST_CASE("more SMs than some stages need") {
  runCells(1, 11);
}

TEST_CASE("one layer's launch alone is a turn of the loop") {
  const check::Workload workload{.seed = 3, .sequences = {{.start = 130}}};
  Bench step(configFile(), 1, 4,
             {.maxPages = workload.maxPages(), .poolPages = workload.totalPages(), .layer = 1},
             runtime::LaunchMode::Step);
  const check::Report report = step.compare(workload, 1);
  INFO(report.table());
  CHECK(report.passes());
}
