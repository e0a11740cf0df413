//===- MatrixTest.cpp - Small models on the host platform -----------------===//
//
// Every rows bucket and kind of step (Cells.h) of the family in $MEGALITH_CONFIG, under several
// schedules of the adversarial machine: launch by launch equal to the reference, and in one go,
// with launches overlapping, the same bits whatever the schedule, the launch number and what the
// scratch held. $MEGALITH_FULL: 200 schedules a cell instead of 4.
//
//===----------------------------------------------------------------------===//

#include "tests/host/Bench.h"
#include "tests/host/Cells.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <iostream>

using namespace megalith;
using namespace megalith::test;

namespace {

constexpr int64_t kSms = 4;

std::string configFile() {
  const char *name = std::getenv("MEGALITH_CONFIG");
  return name ? name : "qwen3-moe-small.test.json";
}

uint64_t seedsPerCell() {
  return std::getenv("MEGALITH_FULL") ? 200 : 4;
}

check::SessionOptions roomForCells() {
  return {.maxPages = kMaxPages, .poolPages = kPoolPages};
}

/// Launch numbers to start from: all sets of words, and epochs across the wrap of 32 bits.
uint64_t launchBase(uint64_t seed) {
  return seed % 4 == 3 ? (uint64_t(1) << 32) - 3 : 5 * seed;
}

void runCells(int64_t rows) {
  Bench bench(configFile(), rows, kSms, roomForCells());
  check::Report all;
  uint64_t seeds = 0;
  for (const Cell &cell : cells(rows)) {
    INFO(configFile() << ", rows " << rows << ", " << kSms << " SMs: " << cell.name);
    check::Outcome first;
    for (uint64_t seed = 1; seed <= seedsPerCell(); ++seed, ++seeds) {
      INFO("seed " << seed);
      if (seed == 1) {
        const check::Report report = bench.compare(cell.workload, seed, &first);
        INFO(report.table());
        CHECK(report.passes());
        all.launches.insert(all.launches.end(), report.launches.begin(), report.launches.end());
      } else {
        CHECK(bench.run(cell.workload, seed, launchBase(seed)) == first);
      }
    }
  }
  const check::LaunchReport most = all.largest();
  std::cerr << configFile() << ", rows " << rows << ": " << seeds << " seeds, "
            << all.launches.size() << " launches compared; largest error of a layer "
            << *most.residual << ", of a step " << *most.whole << "; " << most.nearTies
            << " near tie(s)\n";
}

/// One sequence of context 100 and content 7, as the row `row`.
check::Sequence subject(int64_t row) {
  return {.start = 99, .content = 7, .firstRow = row};
}

} // namespace

TEST_CASE("rows 1") {
  runCells(1);
}
TEST_CASE("rows 2") {
  runCells(2);
}
TEST_CASE("rows 4") {
  runCells(4);
}
TEST_CASE("rows 8") {
  runCells(8);
}
TEST_CASE("rows 16, two column tiles") {
  runCells(16);
}

TEST_CASE("contexts of more than 512 positions, whose splits have several units") {
  const check::Workload workload{
      .seed = 8,
      .steps = 2,
      .sequences = {{.start = 700, .rows = 3}, {.start = 3000, .content = 1}}};
  Bench bench(configFile(), 4, kSms,
              {.maxPages = workload.maxPages(), .poolPages = workload.totalPages()});
  check::Outcome first;
  const check::Report report = bench.compare(workload, 1, &first);
  INFO(report.table());
  CHECK(report.passes());
  for (uint64_t seed = 2; seed <= 4; ++seed)
    CHECK(bench.run(workload, seed, launchBase(seed)) == first);
}

TEST_CASE("identical rows have identical bits") {
  Bench bench(configFile(), 4, kSms, roomForCells());
  check::Workload workload{.seed = 5, .steps = 2};
  for (int row = 0; row < 4; ++row)
    workload.sequences.push_back({.start = 70, .content = 1});
  const check::Outcome outcome = bench.run(workload, 1);
  for (int row = 1; row < 4; ++row)
    CHECK(outcome.sameRow(row, outcome, 0));
  workload.sequences[2].content = 2;
  CHECK_FALSE(bench.run(workload, 1).sameRow(2, outcome, 2));
}

TEST_CASE("a row's bits depend on neither bucket, other sequences nor the number of SMs") {
  check::Workload alone{.seed = 6, .steps = 2, .sequences = {subject(0)}};
  Bench one(configFile(), 1, kSms, roomForCells());
  const check::Outcome expected = one.run(alone, 1);
  SECTION("another number of SMs") {
    Bench other(configFile(), 1, 7, roomForCells());
    CHECK(other.run(alone, 1) == expected);
  }
  SECTION("other rows of a larger bucket") {
    Bench eight(configFile(), 8, kSms, roomForCells());
    for (int64_t row : {0, 5}) {
      alone.sequences = {subject(row)};
      CHECK(eight.run(alone, 1).sameRow(row, expected, 0));
    }
    check::Workload crowd = alone;
    crowd.sequences = {{.start = 3},
                       {.start = 130, .rows = 4, .content = 1},
                       subject(5),
                       {.start = 60, .content = 2}};
    CHECK(eight.run(crowd, 1).sameRow(5, expected, 0));
  }
  SECTION("both column tiles of a bucket of 16") {
    Bench sixteen(configFile(), 16, kSms, roomForCells());
    alone.sequences = {{.start = 3}, {.start = 130, .rows = 4, .content = 1}, subject(13)};
    CHECK(sixteen.run(alone, 1).sameRow(13, expected, 0));
    alone.sequences = {subject(2), {.start = 60, .rows = 10, .content = 2}};
    CHECK(sixteen.run(alone, 1).sameRow(2, expected, 0));
  }
}

TEST_CASE("a launch a stage leaves the bits of a launch a layer") {
  for (int64_t rows : {1, 4}) {
    Bench fused(configFile(), rows, kSms, roomForCells());
    Bench apart(configFile(), rows, kSms, roomForCells(), runtime::LaunchMode::PerStage);
    for (const Cell &cell : cells(rows)) {
      INFO(configFile() << ", rows " << rows << ": " << cell.name);
      const check::Outcome expected = fused.run(cell.workload, 1);
      check::Outcome first;
      const check::Report report = apart.compare(cell.workload, 1, &first);
      INFO(report.table());
      CHECK(report.passes());
      CHECK(first == expected);
      for (uint64_t seed = 2; seed <= seedsPerCell(); ++seed) {
        INFO("seed " << seed);
        CHECK(apart.run(cell.workload, seed, launchBase(seed)) == expected);
      }
    }
  }
}

TEST_CASE("formula faults are told") {
  using reference::Fault;
  Bench bench(configFile(), 2, kSms, roomForCells());
  const check::Workload workload{
      .seed = 9, .steps = 1, .sequences = {{.start = 130}, {.start = 20, .content = 1}}};
  CHECK(bench.compare(workload, 1).passes());
  int told = 0;
  for (Fault fault : reference::allFaults()) {
    // Neither family has windows or what comes behind GainNotCentred (MuseSparkTest plants those);
    // exact ties of logits do not occur here.
    if (fault == Fault::WindowOffByOne || fault == Fault::WindowTooLong ||
        fault == Fault::TiesToHigher || fault >= Fault::GainNotCentred)
      continue;
    if (fault == Fault::QkNormGainOmitted && configFile().starts_with("mixtral"))
      continue;
    INFO(faultName(fault));
    if (llvm::Error error = bench.session->plant(fault))
      FAIL(llvm::toString(std::move(error)));
    const check::Report report = bench.compare(workload, 1);
    CHECK_FALSE(report.passes());
    CHECK(report.largest().difference.find("launch") != std::string::npos);
    ++told;
  }
  CHECK(told >= 12);
}
