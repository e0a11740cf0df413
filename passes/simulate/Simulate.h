//===- Simulate.h - What a plan's launches will take -------------*- C++ -*-===//
//
// Plays role regions by a target's costs: every warp of every SM steps through its role's code,
// waits for the edges that it waits for there, copies through one HBM, polls words that other SMs
// store. See README.md for what is modelled and what is not.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_SIMULATE_SIMULATE_H
#define MEGALITH_PASSES_SIMULATE_SIMULATE_H

#include "passes/simulate/Costs.h"
#include "passes/simulate/Workload.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace megalith::simulate {

// Times are nanoseconds from the first CTA's begin. As kernels record them
// (codegen/device/trace.cuh).

/// A warp's part of a stage.
struct WarpStage {
  int64_t stage = 0; ///< among the kernel's
  double begin = 0, end = 0;
  double waited = 0, stalled = 0;
  std::optional<double> ready, first, last;
};

struct WarpTimes {
  int64_t sm = 0, warp = 0; ///< 0 producer, 1 poller, 2..9 consumers, 10 epilogue
  double begin = 0, end = 0;
  std::vector<WarpStage> stages;
};

struct LaunchTimes {
  std::vector<WarpTimes> warps; ///< of roles that do something, by SM, then warp
  double begin = 0, end = 0;    ///< of its first and last CTA
  int64_t number = 0; ///< among those given; in a kernel that loops over a step's, among these
};

/// How long a step takes of whose launches in a loop only some were played: each of those left out
/// as long as the one before it, from begin to begin. `launches`: that the step has.
double stepTime(llvm::ArrayRef<LaunchTimes> played, int64_t launches);

struct Timeline {
  std::vector<LaunchTimes> launches;
  std::set<std::string> unknown;   ///< device functions without a cost, taken to take no time
  std::set<std::string> estimated; ///< those taken to cost what a like one does
  int64_t events = 0;
};

/// Kernels at role level, launched one after the other with programmatic overlap, the words that
/// the first takes from a launch before all there. One that loops over the launches of a step comes
/// alone; the first three of each row of like launches are played. The error names the SM, role and
/// op that waits for ever, or what does not fit.
llvm::Expected<Timeline> simulate(llvm::ArrayRef<task::KernelOp> launches, const Costs &costs,
                                  const StepShape &shape, Heat heat = kNear);

} // namespace megalith::simulate

#endif // MEGALITH_PASSES_SIMULATE_SIMULATE_H
