//===- Import.h - Timelines from files ---------------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_TRACE_IMPORT_H
#define MEGALITH_TOOLS_TRACE_IMPORT_H

#include "runtime/plan.h"
#include "runtime/trace.h"
#include "tools/trace/Summary.h"

#include "llvm/Support/Error.h"

namespace megalith::trace {

/// A timeline's records and what its file says in sum, of more launches than it has records of.
struct Recorded {
  runtime::Trace trace;
  struct Stage {
    std::string role, stage;
    double length = 0; ///< mean
  };
  struct Kernel {
    std::string kernel;
    double period = 0; ///< median; 0 where it is not told
    std::vector<Stage> stages;
  };
  std::vector<Kernel> kernels;
  bool isPredicted = false; ///< the file says that it is no measurement
  double pathPeriod = 0;    ///< of a launch, what the file's critical path adds up to; 0: none
};

/// Reads what toJson wrote (docs/trace-json.md) for launches of `plan`, whose kernels know what
/// they record. The error names `file` and the place.
llvm::Expected<Recorded> fromJson(llvm::StringRef text, llvm::StringRef file,
                                  const runtime::Plan &plan);

/// Consumers' stages (others' where they have no part) side by side, with the difference.
/// How far a prediction may be off, in percent of what was measured.
inline constexpr double kLaunchLimit = 10, kStageLimit = 25;
/// How far the segments of a critical path may be off the time between launches.
inline constexpr double kPathLimit = 3;

/// A prediction beside what was measured.
struct Comparison {
  std::string text;     ///< a table for each kernel
  int64_t compared = 0; ///< lines of it
  int64_t beyond = 0;   ///< of these, beyond the limits
};

/// Of the kernels that both have: a launch, and each stage by the role that computes.
Comparison comparison(const Recorded &measured, const Summary &predicted,
                      const runtime::Plan &plan);

} // namespace megalith::trace

#endif // MEGALITH_TOOLS_TRACE_IMPORT_H
