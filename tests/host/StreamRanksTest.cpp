//===- StreamRanksTest.cpp - Ranks of the family with an fp32 stream ------===//
//
// Virtual ranks against one GPU: each launch within a layer's tolerance of the reference and the
// bits of one rank, whatever the schedule, across the window's edge and round the ring, with every
// rank on a GPU of its own and all in one launch. Ranks that divide the down projection by K
// or the one behind attention (experts nk, o-proj k) have bits of their own number, which no
// schedule changes.
//
// Compiling for the host takes most of the time, so a run takes one rows bucket, number of ranks
// and format of experts by the day, or by $MEGALITH_TURN; $MEGALITH_FULL: all, with 3 schedules a
// cell, or with $MEGALITH_CELL (0 to 29) one of them, so that they can be run side by side.
//
//===----------------------------------------------------------------------===//

#include "tests/host/StreamCells.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <optional>

using namespace megalith;
using namespace megalith::test;

namespace {

// Of a rank: three do not divide tiles of experts, which are dealt out over them where they are
// NVFP4.
constexpr int64_t kSms = 3;
constexpr int64_t kBuckets[] = {1, 2, 4, 8, 16};
constexpr int64_t kRanks[] = {2, 4, 8};

bool isFull() {
  return std::getenv("MEGALITH_FULL") != nullptr;
}

struct Cell {
  bool hasNvfp4;
  int64_t rows, ranks;
  int64_t number;
};

/// All cells, or the one that $MEGALITH_CELL asks for.
std::vector<Cell> fullCells() {
  const char *only = std::getenv("MEGALITH_CELL");
  std::vector<Cell> cells;
  int64_t number = 0;
  for (bool hasNvfp4 : {false, true})
    for (int64_t rows : kBuckets)
      for (int64_t ranks : kRanks) {
        const Cell cell{hasNvfp4, rows, ranks, number++};
        if (!only || std::to_string(cell.number) == only)
          cells.push_back(cell);
      }
  INFO("MEGALITH_CELL: expected 0 to " << number - 1 << " but got " << (only ? only : ""));
  REQUIRE(!cells.empty());
  return cells;
}

/// Which cells it is the turn of.
int64_t turn() {
  if (const char *given = std::getenv("MEGALITH_TURN"))
    return std::atoll(given);
  using Days = std::chrono::duration<int64_t, std::ratio<86400>>;
  return std::chrono::floor<Days>(std::chrono::system_clock::now()).time_since_epoch().count();
}

/// One new row at the window's edge or where the ring comes round; several rows of a sequence that
/// cross it; beside another sequence and a dead row.
std::vector<check::Workload> workloads(int64_t rows) {
  if (rows == 1)
    return {streamStep(2, {{.start = kStreamWindow - 1}}),
            streamStep(3, {{.start = kStreamRing - 1}})};
  if (rows == 2)
    return {streamStep(4, {{.start = kStreamWindow - 2, .rows = 2}}),
            streamStep(5, {{.start = kStreamRing - 1}, {.start = 17, .content = 1}})};
  return {
      streamStep(8, {{.start = kStreamRing - 2, .rows = rows}}),
      streamStep(9, {{.start = 300, .rows = 2}, {.start = 5, .content = 1, .firstRow = rows - 1}})};
}

void runRanks(int64_t rows, int64_t tp, const models::Quantization &quantization,
              const std::vector<check::Outcome> &expected) {
  const std::vector<check::Workload> steps = workloads(rows);
  for (bool together : {false, true}) {
    if (together && (tp != 2 || rows != 1) && !isFull())
      continue;
    check::SessionOptions options = roomFor(steps);
    options.ranks.together = together;
    Bench bench(kStreamConfig, rows, kSms, options, runtime::LaunchMode::Fused, tp, quantization);
    for (size_t i = 0; i < steps.size(); ++i) {
      INFO("rows " << rows << (quantization.experts ? ", NVFP4 experts, " : ", ") << tp << " ranks "
                   << (together ? "together: " : "apart: ") << steps[i].str());
      check::Outcome first;
      const check::Report report = bench.compare(steps[i], 1, &first);
      INFO(report.table());
      checkLaunches(report);
      CHECK(first == expected[i]);
      for (uint64_t seed = 2; seed <= (isFull() ? 3 : 2); ++seed)
        CHECK(bench.run(steps[i], seed, (uint64_t(1) << 32) - seed) == expected[i]);
    }
  }
}

/// Ranks that add parts of the experts' outputs, and of attention's with o-proj k, in their order.
void runParts(int64_t rows, int64_t tp, bool hasNvfp4, const std::string &output,
              const std::string &sums) {
  const models::Quantization quantization{.experts = hasNvfp4};
  const std::vector<check::Workload> steps = workloads(rows);
  std::vector<std::optional<check::Outcome>> expected(steps.size());
  for (bool together : {false, true}) {
    if (together && (tp != 2 || rows != 1) && !isFull())
      continue;
    check::SessionOptions options = roomFor(steps);
    options.ranks.together = together;
    Bench bench(kStreamConfig, rows, kSms, options, runtime::LaunchMode::Fused, tp, quantization,
                {.experts = "nk", .output = output, .sums = sums});
    for (size_t i = 0; i < steps.size(); ++i) {
      INFO("rows " << rows << (hasNvfp4 ? ", NVFP4 experts, " : ", ") << tp << " ranks "
                   << (together ? "together, " : "apart, ") << "o-proj " << output << ", " << sums
                   << ": " << steps[i].str());
      check::Outcome first;
      const check::Report report = bench.compare(steps[i], 1, &first);
      INFO(report.table());
      checkLaunches(report);
      if (!expected[i])
        expected[i] = first;
      CHECK(first == *expected[i]);
      for (uint64_t seed = 2; seed <= (isFull() ? 3 : 2); ++seed)
        CHECK(bench.run(steps[i], seed, (uint64_t(1) << 32) - seed) == *expected[i]);
    }
  }
}

void runRows(int64_t rows, int64_t ranks, bool hasNvfp4) {
  const models::Quantization quantization{.experts = hasNvfp4};
  const std::vector<check::Workload> steps = workloads(rows);
  std::vector<check::Outcome> expected;
  {
    Bench one(kStreamConfig, rows, kSms, roomFor(steps), runtime::LaunchMode::Fused, 1,
              quantization);
    for (const check::Workload &step : steps)
      expected.push_back(one.run(step, 1));
  }
  runRanks(rows, ranks, quantization, expected);
}

} // namespace

TEST_CASE("ranks of an fp32 stream leave the bits of one") {
  if (isFull()) {
    for (const Cell &cell : fullCells())
      runRows(cell.rows, cell.ranks, cell.hasNvfp4);
    return;
  }
  const int64_t at = turn(), rows = kBuckets[at % std::size(kBuckets)];
  const bool hasNvfp4 = at / int64_t(std::size(kBuckets)) % 2 == 0;
  WARN("turn " << at << ": rows " << rows << (hasNvfp4 ? ", NVFP4 experts" : ""));
  runRows(rows, kRanks[at % std::size(kRanks)], hasNvfp4);
}

TEST_CASE("ranks that divide the experts' K agree with the reference and with themselves") {
  if (isFull()) {
    for (const Cell &cell : fullCells()) {
      const bool isEven = cell.number % 2 == 0;
      runParts(cell.rows, cell.ranks, cell.hasNvfp4, isEven ? "k" : "n", "f32");
      if (cell.rows == 1)
        runParts(cell.rows, cell.ranks, cell.hasNvfp4, isEven ? "n" : "k", "bf16");
    }
    return;
  }
  const int64_t at = turn();
  const int64_t rows = kBuckets[(at + 1) % std::size(kBuckets)];
  // Many fibers take long: the largest cells are for --full.
  const int64_t tp = rows >= 8 ? 2 : kRanks[(at + 2) % std::size(kRanks)];
  runParts(rows, tp, at % 2 == 0, at % 4 < 2 ? "n" : "k", at % 7 < 5 ? "f32" : "bf16");
}

TEST_CASE("rank 0 of eight alone, mirrored, leaves the bits of eight ranks of the mirrored model") {
  const std::vector<check::Workload> steps = {streamStep(3, {{.start = kStreamRing - 1}})};
  check::SessionOptions options = roomFor(steps);
  options.mirrored = true;
  std::vector<check::Outcome> expected;
  {
    Bench eight(kStreamConfig, 1, kSms, options, runtime::LaunchMode::Fused, 8);
    for (const check::Workload &step : steps)
      expected.push_back(eight.run(step, 1));
  }
  options.ranks.mirror = true;
  Bench alone(kStreamConfig, 1, kSms, options, runtime::LaunchMode::Fused, 8);
  for (size_t i = 0; i < steps.size(); ++i) {
    INFO(steps[i].str());
    check::Outcome first;
    const check::Report report = alone.compare(steps[i], 1, &first);
    INFO(report.table());
    checkLaunches(report);
    CHECK(first == expected[i]);
    CHECK(alone.run(steps[i], 2, (uint64_t(1) << 32) - 3) == expected[i]);
  }
}
