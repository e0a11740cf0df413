//===- TraceTest.cpp - Records read back -----------------------------------===//
//
// Records of two SMs written here: clocks of different offsets, one about to wrap, whose rate moves
// from launch to launch; a global timer that ticks every 32 ns. Decoding must bring back the true
// times.
//
//===----------------------------------------------------------------------===//

#include "runtime/trace.h"

#include "tests/runtime/TinyPlan.h"

#include <catch2/catch.hpp>
#include <cstring>

using namespace megalith;
using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

constexpr double kTimerStep = 32;

/// On SM 1 only the first stage has work.
Plan tracedPlan() {
  Plan plan = tinyPlan();
  plan.sms = 2;
  plan.kernels[0].trace = KernelTrace{
      .stages = {{"first", 2, {{"producer", {}}, {"consumer", {"x_full"}}}},
                 {"second", 1, {{"producer", {}}, {"consumer", {"x_full"}}, {"epilogue", {}}}}},
      .hops = {{.edge = "words", .from = "first", .to = "second"}}};
  return plan;
}

/// What a machine of two SMs shows at a true time in ns.
struct Machine {
  uint32_t offsets[2] = {0xFFFFF000u, 12345u};
  uint32_t timerOffset = 0xFFFFFFE0u; ///< a multiple of its step

  static double clocksPerNs(double ns) { return ns < 90'000 ? 1.98 : 1.71; }
  uint32_t clock(uint32_t sm, double ns) const {
    const double changed = 90'000, before = std::min(ns, changed);
    return offsets[sm] + uint32_t(int64_t(before * 1.98 + (ns - before) * 1.71));
  }
  uint32_t timer(double ns) const {
    return timerOffset + uint32_t(int64_t(ns / kTimerStep)) * uint32_t(kTimerStep);
  }
};

/// A launch of 60 us that begins at `at`. CTA `sm` runs on the other SM if `swapped`.
LaunchRecord launchAt(const Machine &machine, int64_t index, uint64_t number, double at,
                      bool swapped) {
  const Plan plan = tracedPlan();
  LaunchRecord record{.launch = index, .number = number};
  record.bytes.assign(size_t(traceBytes(*plan.kernels[0].trace, 2)), 0xEE);
  for (uint32_t sm = 0; sm < 2; ++sm)
    for (int warp = 0; warp < kWarpsPerCta; ++warp) {
      const uint32_t on = swapped ? 1 - sm : sm;
      auto clock = [&](double ns) { return machine.clock(on, at + ns); };
      // Odd times, so that pairs fall anywhere between the timer's ticks.
      const double begin = sm * 7.3 + warp * 3.1, end = 60'000 + sm * 5.7 + warp * 4.3;
      TraceHead head = {.begin = clock(begin),
                        .begin_timer = machine.timer(at + begin),
                        .launch = uint32_t(number),
                        .sm = on,
                        .end = clock(end),
                        .end_timer = machine.timer(at + end)};
      TraceEntry entries[2];
      std::memset(entries, 0xEE, sizeof entries);
      const double rate = Machine::clocksPerNs(at);
      entries[0] = {.end = clock(20'000),
                    .ready = clock(5'000),
                    .first = clock(6'000),
                    .last = clock(19'900),
                    .waited = uint32_t(4'900 * rate),
                    .stalled = uint32_t(700 * rate)};
      // Left over from the stage before: no wait, no piece, no product of this one.
      if (sm < 1)
        entries[1] = {.end = clock(50'000),
                      .ready = entries[0].ready,
                      .first = 0,
                      .last = entries[0].last,
                      .waited = entries[0].waited,
                      .stalled = entries[0].stalled};
      unsigned char *to =
          record.bytes.data() + (sm * kWarpsPerCta + warp) * (sizeof head + sizeof entries);
      std::memcpy(to, &head, sizeof head);
      std::memcpy(to + sizeof head, entries, sizeof entries);
    }
  return record;
}

std::vector<LaunchRecord> twoLaunches(const Machine &machine) {
  return {launchAt(machine, 1, 8, 100'000.5, true), launchAt(machine, 0, 7, 1'000, false)};
}

} // namespace

TEST_CASE("times come back on one clock, whichever SM a CTA ran on") {
  const Machine machine;
  auto trace = decodeTrace(tracedPlan(), twoLaunches(machine));
  REQUIRE(bool(trace));
  CHECK(trace->timerStep == 32);
  CHECK(trace->alignmentError <= 16);
  CHECK(trace->largestError >= trace->alignmentError);
  REQUIRE(trace->launches.size() == 2);
  CHECK(trace->launches[0].launch == 0); // in order of time
  CHECK(trace->launches[1].number == 8);
  CHECK(trace->launches[0].clocksPerNs == Approx(1.98).epsilon(0.001));
  CHECK(trace->launches[1].clocksPerNs == Approx(1.71).epsilon(0.001));
  const double slack = 48; // offset, and what a rate that is off by a tick makes in 60 us
  for (size_t l = 0; l < 2; ++l) {
    const double at = l ? 99'000.5 : 0;             // since the first begin
    REQUIRE(trace->launches[l].warps.size() == 20); // pollers do nothing
    for (const WarpTrace &warp : trace->launches[l].warps) {
      INFO("launch " << l << ", SM " << warp.sm << ", warp " << warp.warp);
      CHECK(warp.begin == Approx(at + warp.sm * 7.3 + warp.warp * 3.1).margin(slack));
      CHECK(warp.end == Approx(at + 60'000 + warp.sm * 5.7 + warp.warp * 4.3).margin(slack));
      const llvm::StringRef role = roleOfWarp(warp.warp);
      REQUIRE(warp.stages.size() == size_t(role != "epilogue") + size_t(warp.sm == 0));
      for (const WarpStage &stage : warp.stages) {
        const bool isFirst = stage.stage == 0;
        const bool begins = isFirst || role == "epilogue";
        CHECK(stage.begin == Approx(begins ? warp.begin : at + 20'000).margin(slack));
        CHECK(stage.end == Approx(at + (isFirst ? 20'000 : 50'000)).margin(slack));
        if (role != "consumer" || !isFirst) {
          CHECK_FALSE(stage.first);
          CHECK_FALSE(stage.last);
        }
        if (role == "producer" || (role == "consumer" && !isFirst)) {
          CHECK_FALSE(stage.ready);
          CHECK(stage.waited == 0);
          CHECK(stage.stalled == 0);
        }
        if (role != "consumer" || !isFirst)
          continue;
        CHECK(stage.ready.value() == Approx(at + 5'000).margin(slack));
        CHECK(stage.first.value() == Approx(at + 6'000).margin(slack));
        CHECK(stage.last.value() == Approx(at + 19'900).margin(slack));
        CHECK(stage.waited == Approx(4'900).epsilon(0.002));
        CHECK(stage.stalled == Approx(700).epsilon(0.01));
      }
    }
  }
}

TEST_CASE("records that are none are refused by launch, SM and warp") {
  const Machine machine;
  auto message = [&](const Plan &plan, const std::vector<LaunchRecord> &records) {
    auto trace = decodeTrace(plan, records);
    REQUIRE_FALSE(bool(trace));
    return llvm::toString(trace.takeError());
  };
  auto records = twoLaunches(machine);
  auto old = records;
  old[0].bytes[size_t(kWarpsPerCta + 3) * (sizeof(TraceHead) + 2 * sizeof(TraceEntry)) +
               offsetof(TraceHead, launch)] = 6;
  CHECK_THAT(message(tracedPlan(), old), Contains("launch 1") && Contains("SM 1, warp 3") &&
                                             Contains("expected the record of launch number 8 but "
                                                      "got that of 6"));
  auto small = records;
  small[0].bytes.pop_back();
  CHECK_THAT(message(tracedPlan(), small), Contains("2111 bytes of records, expected 2112"));
  Plan plan = tracedPlan();
  plan.kernels[0].trace.reset();
  CHECK_THAT(message(plan, records), Contains("compile with --trace"));
}

TEST_CASE("a plan with records reads back as it was written") {
  const Plan plan = tracedPlan();
  auto read = parsePlan(toJson(plan));
  REQUIRE(bool(read));
  CHECK(*read == plan);
  Plan taken = plan;
  taken.kernels[0].slots[0].slot = kTraceBuffer;
  auto error = validate(taken);
  REQUIRE(bool(error));
  CHECK_THAT(llvm::toString(std::move(error)), Contains("records into slot 39"));
}
