//===- Bench.h - Timing compiled plans at real size --------------*- C++ -*-===//
//
// Sets plans of one model up on a GPU with made-up weights and histories and times whole decode
// steps in the ways that launches can follow each other, together with the read ceiling of the same
// card in the same run. Every mode's logits must have the bits of the launch-by-launch run, and
// those of any other plan for the same rows.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_BENCH_BENCH_H
#define MEGALITH_TOOLS_BENCH_BENCH_H

#include "runtime/driver.h"
#include "tools/bench/Traffic.h"
#include "tools/bench/Workload.h"

#include "llvm/Support/Error.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace megalith::bench {

struct BenchOptions {
  std::vector<std::string> folders; ///< artifacts (megalith compile) of one model
  std::vector<int64_t> contexts;    ///< positions in the pages before the step
  int64_t steps = 30;               ///< timed, of each mode
  int64_t warmUp = 5;
  uint32_t seed = 1;
  uint64_t deadlineNs = 2'000'000'000; ///< of one wait in a kernel
  int ordinal = 0;                     ///< of the GPU
  /// Time steps that feed each other too, each one position further.
  bool feedback = false;
  bool trace = false; ///< read back what kernels compiled with --trace record
  /// Time rank 0 of plans of several ranks, alone (ExecuteOptions::mirror), for each of these extra
  /// nanoseconds that words of other ranks take. Empty: plans of one rank.
  std::vector<int64_t> hops;

  /// Positions behind a step's that steps which feed each other go on to.
  int64_t further() const { return feedback ? warmUp + steps : 0; }
  /// Of the longest sequence, new rows included.
  int64_t positions() const {
    return contexts.empty() ? 0
                            : *std::max_element(contexts.begin(), contexts.end()) + 1 + further();
  }
};

/// Microseconds.
struct Times {
  double median = 0, least = 0, p90 = 0;
};
Times summarise(std::vector<double> microseconds);

/// Launches of one kernel within steps whose launches do not overlap.
struct KernelTimes {
  std::string kernel;
  int64_t launches = 0; ///< in a step
  Times one;            ///< of a launch
  Traffic traffic;      ///< of all its launches in a step
};

/// Layers of one kernel in turn, nothing between them.
struct KindTimes {
  std::string kernel;
  Times one;       ///< of a launch
  Traffic traffic; ///< likewise, on average
};

/// One plan at one context.
struct Cell {
  Workload workload;
  int64_t ranks = 1, hopNs = 0; ///< ranks > 1: of rank 0, mirrored
  runtime::LaunchMode launch = runtime::LaunchMode::Fused;
  std::vector<int64_t> activeExperts; ///< by layer, as routed
  Traffic traffic;                    ///< of a step
  Times stream;   ///< a step; launches in a stream, each starting while the one before ends
  Times graph;    ///< the same as a CUDA graph
  Times separate; ///< a step; each launch starts when the one before is complete
  std::vector<KernelTimes> kernels;
  /// A layer's launch, or launches, with nothing but equal layers before and behind, in turn.
  std::optional<Times> rotating;
  Traffic rotatingTraffic; ///< of one such layer, on average
  /// The same of each kernel that computes several layers, where layers are of several kinds.
  std::vector<KindTimes> kinds;
  /// A step of a CUDA graph whose steps feed each other; and the tokens chosen, [step][sequence],
  /// of the warm-up first.
  std::optional<Times> feedback;
  std::vector<std::vector<int32_t>> tokens;
  int64_t finiteLogits = 0, logits = 0;
  /// With BenchOptions::trace, of a step whose launches follow each other in a stream: a table, and
  /// the files of megalith bench --trace and --perfetto.
  std::string traceTable, traceJson, perfetto;

  const Times &best() const { return graph.median < stream.median ? graph : stream; }
};

struct BenchResult {
  std::string model, target;
  int64_t sms = 0;
  runtime::DeviceInfo device;
  std::string nvrtc;
  int64_t steps = 0;
  double ceiling = 0;              ///< bytes per second, the best of both measurements
  std::vector<double> ceilingRuns; ///< medians at the start and at the end
  int64_t ceilingBytes = 0;        ///< of the memory that was read
  double setUpSeconds = 0;         ///< allocating and filling the weights
  int64_t weightBytes = 0;
  std::vector<Cell> cells;
};

/// Below this the card or its host was busy with something else: no figure of the run counts.
inline constexpr double kLeastCeiling = 4.5e12;
/// The read ceiling of an undisturbed H200.
inline constexpr double kUsualCeiling = 4.70e12;

/// Runs everything. `result` has what was measured until an error: a fault loses the GPU's context.
/// `report` is told about each finished cell and each stage.
llvm::Error run(const BenchOptions &options, BenchResult &result,
                const std::function<void(llvm::StringRef)> &progress);

} // namespace megalith::bench

#endif // MEGALITH_TOOLS_BENCH_BENCH_H
