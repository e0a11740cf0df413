//===- Summary.h - What a trace says, in numbers -----------------*- C++ -*-===//
//
// Where each role spends a launch, stage by stage; what an exchange costs (E) and how long the
// stream has no address to read (C), as docs/performance.md defines them.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_TRACE_SUMMARY_H
#define MEGALITH_TOOLS_TRACE_SUMMARY_H

#include "runtime/plan.h"
#include "runtime/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace megalith::trace {

/// Nanoseconds, like all times here.
struct Spread {
  int64_t count = 0;
  double p10 = 0, median = 0, p90 = 0;
};
Spread spreadOf(std::vector<double> values);

/// What one role does in one stage: of every launch and SM that takes part.
struct RoleStage {
  std::string role, stage;
  std::vector<std::string> waits;           ///< edges
  Spread begin, end;                        ///< since the launch's begin, the median of its warps'
  std::optional<Spread> ready, first, last; ///< WarpStage's, where the role tells
  double length = 0, waited = 0, stalled = 0; ///< means; the latter two consumers'
  double rest() const { return length - waited - stalled; }
};

/// An exchange, from the last product of the stage before, on whichever SM that was, to when all
/// warps of an SM had their first product of the stage after.
struct HopTimes {
  runtime::TraceHop hop;
  Spread all;   ///< E, for every launch and SM
  Spread words; ///< to the words' being there for the stage's workers: without norm and stream
};

struct KernelSummary {
  std::string kernel;
  int64_t launches = 0;
  Spread period; ///< from a launch's begin to that of the next, of the same kernel
  std::vector<RoleStage> roles;
  std::vector<HopTimes> hops;
  Spread exchange; ///< E of all hops that are not polled in pieces
  Spread chain;    ///< C: last product of the experts' down projection to the next launch's first
                   ///< expert byte
  Spread restart;  ///< of C: from the experts' choice to the first byte
};

struct Summary {
  std::vector<KernelSummary> kernels; ///< in the plan's order, those that have launches
};

Summary summarise(const runtime::Plan &plan, const runtime::Trace &trace);

/// All of it as tables, in microseconds. `bytes`: that a launch of the kernel that most launches
/// are of must read, for the stream's rate; 0: not known.
std::string table(const runtime::Trace &trace, const Summary &summary, int64_t bytes = 0);

} // namespace megalith::trace

#endif // MEGALITH_TOOLS_TRACE_SUMMARY_H
