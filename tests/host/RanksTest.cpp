//===- RanksTest.cpp - Tensor parallelism on the host platform ------------===//
//
// A small model on 1, 2, 4 and 8 virtual ranks: launch by launch equal to the reference, and the
// bits of one rank, whatever the schedule, be every rank on a GPU of its own or all in one launch.
// $MEGALITH_FULL: all rows buckets, 8 ranks, all cells and 50 schedules of each.
//
//===----------------------------------------------------------------------===//

#include "tests/host/Bench.h"
#include "tests/host/Cells.h"

#include <catch2/catch.hpp>

#include <cstdlib>

using namespace megalith;
using namespace megalith::test;

namespace {

constexpr int64_t kSms = 3; // of a rank
constexpr const char *kConfig = "qwen3-moe-small.test.json";

bool isFull() {
  return std::getenv("MEGALITH_FULL") != nullptr;
}

uint64_t launchBase(uint64_t seed) {
  return seed % 4 == 3 ? (uint64_t(1) << 32) - 3 : 5 * seed;
}

/// All of them take minutes.
std::vector<Cell> someCells(int64_t rows) {
  std::vector<Cell> all = cells(rows);
  if (!isFull() && all.size() > 3)
    all.resize(3);
  return all;
}

check::SessionOptions room(bool together) {
  return {.maxPages = kMaxPages, .poolPages = kPoolPages, .ranks = {.together = together}};
}

/// Cells of `rows` on `tp` ranks against what one rank leaves.
void runRanks(int64_t rows, int64_t tp, const std::vector<check::Outcome> &expected) {
  for (bool together : {false, true}) {
    if (together && tp != 2 && !isFull())
      continue;
    Bench bench(kConfig, rows, kSms, room(together), runtime::LaunchMode::Fused, tp);
    const uint64_t seeds = isFull() ? 50 : 2;
    size_t index = 0;
    for (const Cell &cell : someCells(rows)) {
      INFO("rows " << rows << ", " << tp << " ranks " << (together ? "together: " : "apart: ")
                   << cell.name);
      for (uint64_t seed = 1; seed <= seeds; ++seed) {
        INFO("seed " << seed);
        if (seed == 1 && !together) {
          check::Outcome first;
          const check::Report report = bench.compare(cell.workload, seed, &first);
          INFO(report.table());
          CHECK(report.passes());
          CHECK(first == expected[index]);
        } else {
          CHECK(bench.run(cell.workload, seed, launchBase(seed)) == expected[index]);
        }
      }
      ++index;
    }
  }
}

void runRows(int64_t rows) {
  std::vector<check::Outcome> expected;
  {
    Bench one(kConfig, rows, kSms, room(false));
    for (const Cell &cell : someCells(rows))
      expected.push_back(one.run(cell.workload, 1));
  }
  for (int64_t tp : {2, 4, 8})
    if (isFull() || (rows == 1 ? tp < 8 : tp == 4))
      runRanks(rows, tp, expected);
}

} // namespace

TEST_CASE("rows 1: ranks leave the bits of one") {
  runRows(1);
}
TEST_CASE("rows 8: ranks leave the bits of one") {
  runRows(8);
}
TEST_CASE("rows 2 and 4: ranks leave the bits of one") {
  if (!isFull())
    return;
  runRows(2);
  runRows(4);
}
