//===- trace.cpp - What kernels recorded, read back -------------------------===//

#include "runtime/trace.h"

#include "runtime/error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

namespace megalith::runtime {

static int64_t warpBytes(const KernelTrace &trace) {
  return int64_t(sizeof(TraceHead) + trace.stages.size() * sizeof(TraceEntry));
}

int64_t traceBytes(const KernelTrace &trace, int64_t sms) {
  return sms * kWarpsPerCta * warpBytes(trace);
}

bool isRecorded(const Plan &plan, int64_t index) {
  return plan.kernel(plan.launches[size_t(index)].kernel)->trace.has_value();
}

llvm::StringRef roleOfWarp(int64_t warp) {
  if (warp < 2)
    return warp == 0 ? "producer" : "poller";
  return warp < kWarpsPerCta - 1 ? "consumer" : "epilogue";
}

namespace {

/// Signed distance of two counters that wrap.
double distance(uint32_t from, uint32_t to) {
  return double(int32_t(to - from));
}

struct RawWarp {
  int64_t sm, warp;
  TraceHead head;
  std::vector<TraceEntry> entries; ///< by stage
};

/// A clock and the global timer, at once.
struct Pair {
  uint32_t clock, timer;
};

/// When an SM's clock showed something, from pairs that are close to each other.
struct Anchor {
  std::vector<Pair> pairs;
  uint32_t clock = 0, timer = 0; ///< of the pair that lies furthest out
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity(); ///< bounds of when `clock` was

  /// `outward`: -1 takes the earliest pair, 1 the latest.
  void choose(int outward) {
    clock = pairs.front().clock;
    timer = pairs.front().timer;
    for (const Pair &pair : pairs)
      if (outward * distance(clock, pair.clock) > 0) {
        clock = pair.clock;
        timer = pair.timer;
      }
  }
  /// The timer showed t: it was [t, t + step).
  void bound(uint32_t zero, double step, double clocksPerNs) {
    for (const Pair &pair : pairs) {
      const double at = distance(zero, pair.timer) - distance(clock, pair.clock) / clocksPerNs;
      low = std::max(low, at);
      high = std::min(high, at + step);
    }
  }
  double time() const { return (low + high) / 2; }
  /// What pairs leave open or, where that is below zero, contradict.
  double error() const { return std::abs(high - low) / 2; }
};

/// An SM's clock in one launch: a line through an anchor at the begin and one at the end.
struct SmClock {
  Anchor begin, end;

  double timeOf(uint32_t clock, double clocksPerNs) const {
    const double length = distance(begin.clock, end.clock), ns = end.time() - begin.time();
    const double rate = length > 0 && ns > 0 ? ns / length : 1 / clocksPerNs;
    return begin.time() + distance(begin.clock, clock) * rate;
  }
};

/// One launch: its records, and how its SMs' clocks become time.
class RawLaunch {
public:
  RawLaunch(const Plan &plan, const LaunchRecord &record)
      : plan(plan), record(record),
        kernel(*plan.kernel(plan.launches[size_t(record.launch)].kernel)) {}

  llvm::Error read() {
    if (!kernel.trace)
      return problem("launch {0}: kernel {1} records nothing; compile with --trace", record.launch,
                     kernel.name);
    const int64_t bytes = traceBytes(*kernel.trace, plan.sms);
    if (int64_t(record.bytes.size()) != bytes)
      return problem("launch {0}: {1} bytes of records, expected {2}", record.launch,
                     record.bytes.size(), bytes);
    for (int64_t sm = 0; sm < plan.sms; ++sm)
      for (int64_t warp = 0; warp < kWarpsPerCta; ++warp)
        if (std::any_of(kernel.trace->stages.begin(), kernel.trace->stages.end(),
                        [&](const TraceStage &stage) { return stage.role(roleOfWarp(warp)); }))
          if (auto error = readWarp(sm, warp))
            return error;
    return llvm::Error::success();
  }

  /// `zero`: a timer that becomes time 0; `step`: the timer's.
  void align(uint32_t zero, double step, std::vector<double> &errors) {
    // Between pairs of one anchor all SMs' common rate will do.
    double clocksOn = 0, ns = 0;
    for (auto &[sm, clock] : clocks) {
      clock.begin.choose(-1);
      clock.end.choose(1);
      clocksOn += distance(clock.begin.clock, clock.end.clock);
      ns += distance(clock.begin.timer, clock.end.timer);
    }
    clocksPerNs = ns > 0 && clocksOn > 0 ? clocksOn / ns : 1;
    for (auto &[sm, clock] : clocks) {
      clock.begin.bound(zero, step, clocksPerNs);
      clock.end.bound(zero, step, clocksPerNs);
      errors.push_back(std::max(clock.begin.error(), clock.end.error()));
    }
  }

  double timeOf(uint32_t sm, uint32_t clock) const {
    return clocks.at(sm).timeOf(clock, clocksPerNs);
  }

  /// Times since `zero`.
  LaunchTrace timed(double zero) const {
    LaunchTrace out{.launch = record.launch, .number = record.number, .clocksPerNs = clocksPerNs};
    for (const RawWarp &warp : warps) {
      auto at = [&](uint32_t clock) { return timeOf(warp.head.sm, clock) - zero; };
      WarpTrace &to = out.warps.emplace_back(
          WarpTrace{warp.sm, warp.warp, at(warp.head.begin), at(warp.head.end), {}});
      double begin = to.begin;
      uint32_t waited = 0, stalled = 0;
      for (size_t i = 0; i < warp.entries.size(); ++i) {
        const TraceStage &stage = kernel.trace->stages[i];
        if (!stage.role(roleOfWarp(warp.warp)) || warp.sm >= stage.sms)
          continue;
        const TraceEntry &entry = warp.entries[i];
        WarpStage &part = to.stages.emplace_back();
        part.stage = int64_t(i);
        part.begin = begin;
        part.end = begin = at(entry.end);
        const llvm::StringRef role = roleOfWarp(warp.warp);
        // Registers keep what earlier stages left in them.
        auto within = [&](uint32_t clock) -> std::optional<double> {
          const double time = at(clock);
          return time >= part.begin && time <= part.end ? std::optional(time) : std::nullopt;
        };
        if (role == "consumer" || role == "epilogue")
          part.ready = within(entry.ready);
        if (role != "consumer")
          continue;
        if (entry.first)
          part.first = within(entry.first);
        part.last = within(entry.last);
        part.waited = double(entry.waited - waited) / clocksPerNs;
        part.stalled = double(entry.stalled - stalled) / clocksPerNs;
        waited = entry.waited;
        stalled = entry.stalled;
      }
    }
    return out;
  }

  std::vector<RawWarp> warps;
  std::map<uint32_t, SmClock> clocks; ///< by SM

private:
  llvm::Error readWarp(int64_t sm, int64_t warp) {
    RawWarp &raw = warps.emplace_back(RawWarp{sm, warp, {}, {}});
    const unsigned char *at =
        record.bytes.data() + (sm * kWarpsPerCta + warp) * warpBytes(*kernel.trace);
    std::memcpy(&raw.head, at, sizeof raw.head);
    raw.entries.resize(kernel.trace->stages.size());
    std::memcpy(raw.entries.data(), at + sizeof raw.head, raw.entries.size() * sizeof(TraceEntry));
    if (raw.head.launch != uint32_t(record.number))
      return problem("launch {0} (kernel {1}), SM {2}, warp {3}: expected the record of launch "
                     "number {4} but got that of {5}; did the launch run to its end?",
                     record.launch, kernel.name, sm, warp, record.number, raw.head.launch);
    SmClock &clock = clocks[raw.head.sm];
    clock.begin.pairs.push_back({raw.head.begin, raw.head.begin_timer});
    clock.end.pairs.push_back({raw.head.end, raw.head.end_timer});
    return llvm::Error::success();
  }

  const Plan &plan;
  const LaunchRecord &record;
  const Kernel &kernel;
  double clocksPerNs = 1;
};

} // namespace

llvm::Expected<Trace> decodeTrace(const Plan &plan, std::span<const LaunchRecord> records) {
  std::vector<RawLaunch> raw;
  for (const LaunchRecord &record : records)
    if (auto error = raw.emplace_back(plan, record).read())
      return error;
  Trace trace;
  // The timer's step divides all differences.
  uint32_t step = 0, zero = 0;
  if (!raw.empty() && !raw.front().warps.empty())
    zero = raw.front().warps.front().head.begin_timer;
  for (const RawLaunch &launch : raw)
    for (const RawWarp &warp : launch.warps)
      step = std::gcd(std::gcd(step, warp.head.begin_timer - zero), warp.head.end_timer - zero);
  trace.timerStep = step ? step : 1;
  std::vector<double> errors;
  double earliest = std::numeric_limits<double>::infinity();
  for (RawLaunch &launch : raw) {
    launch.align(zero, trace.timerStep, errors);
    for (const RawWarp &warp : launch.warps)
      earliest = std::min(earliest, launch.timeOf(warp.head.sm, warp.head.begin));
  }
  for (const RawLaunch &launch : raw)
    trace.launches.push_back(launch.timed(earliest));
  std::sort(errors.begin(), errors.end());
  if (!errors.empty()) {
    trace.alignmentError = errors[errors.size() / 2];
    trace.largestError = errors.back();
  }
  std::sort(trace.launches.begin(), trace.launches.end(),
            [](const LaunchTrace &a, const LaunchTrace &b) { return a.number < b.number; });
  return trace;
}

} // namespace megalith::runtime
