//===- StreamTest.cpp - fp32 streams, windows and normed experts ----------===//
//
// The family whose layers differ from the matrix's (MatrixTest.cpp): an fp32 stream with gated
// residuals, windows kept in a ring of pages, gated attention, experts in a width of their own.
// Launch by launch against the reference and, under other schedules, in one go with the same bits:
// contexts within the window, across its edge, and where the ring comes round.
//
//===----------------------------------------------------------------------===//

#include "tests/host/StreamCells.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::test;

namespace {

constexpr int64_t kSms = 4;

/// Whole steps too: six layers make up to 4e-2 of the last bit of an fp32 stream, since one bf16
/// that is rounded the other way in an early layer goes through all behind it. So they are held to
/// twice what two evaluators differ by, over all workloads.
void run(int64_t rows, int64_t sms, const std::vector<check::Workload> &workloads) {
  check::SessionOptions options = roomFor(workloads);
  options.open = true;
  Bench bench(kStreamConfig, rows, sms, options);
  check::Report all;
  for (const check::Workload &each : workloads) {
    INFO("rows " << rows << ": " << each.str());
    check::Outcome first;
    const check::Report report = bench.compare(each, 1, &first);
    INFO(report.table());
    checkLaunches(report);
    all.launches.insert(all.launches.end(), report.launches.begin(), report.launches.end());
    // Another schedule, other sets of words, epochs across the wrap of 32 bits.
    CHECK(bench.run(each, 2, (uint64_t(1) << 32) - 3) == first);
  }
  INFO(all.table());
  CHECK(all.passes());
}

} // namespace

TEST_CASE("rows 1: across the window's edge, round the ring") {
  run(1, kSms,
      {streamStep(2, {{.start = kStreamWindow - 1}}), streamStep(3, {{.start = kStreamRing - 1}})});
}

// Of the unpooler an SM has sixteen strips here, which a slot has room for: consumers multiply both
// m-tiles at once.
TEST_CASE("rows 1: two m-tiles in one piece") {
  const check::Workload workload = streamStep(5, {{.start = 40}});
  Bench bench("muse-spark-tiny.test.json", 1, 2 * kSms, roomFor({workload}));
  check::Outcome first;
  const check::Report report = bench.compare(workload, 1, &first);
  INFO(report.table());
  CHECK(report.passes());
  CHECK(bench.run(workload, 2) == first);
}

// From 4 rows on those of the stream are dealt out: two SMs do a row together.
TEST_CASE("rows 4: several rows of a sequence round the ring; two sequences, a dead row") {
  run(4, 2 * kSms,
      {streamStep(8, {{.start = kStreamRing - 2, .rows = 4}}),
       streamStep(9, {{.start = 300, .rows = 2}, {.start = 5, .content = 1, .firstRow = 3}})});
}

// More rows than SMs; two column tiles. A row has the bits of any other bucket, whoever norms it.
TEST_CASE("rows 16: several rows an SM, and the bits of rows 1") {
  const check::Sequence subject = {.start = kStreamWindow - 1, .content = 7, .firstRow = 13};
  const check::Workload crowd = streamStep(4, {{.start = 30, .rows = 9}, subject});
  check::Sequence first = subject;
  first.firstRow = 0;
  const check::Workload alone = streamStep(4, {first});
  Bench bench(kStreamConfig, 16, kSms, roomFor({crowd}));
  check::Outcome outcome;
  const check::Report report = bench.compare(crowd, 1, &outcome);
  INFO(report.table());
  checkLaunches(report);
  Bench one(kStreamConfig, 1, kSms, roomFor({alone}));
  CHECK(outcome.sameRow(13, one.run(alone, 1), 0));
}
