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
};

/// Reads what toJson wrote (docs/trace-json.md) for launches of `plan`, whose kernels know what
/// they record. The error names `file` and the place.
llvm::Expected<Recorded> fromJson(llvm::StringRef text, llvm::StringRef file,
                                  const runtime::Plan &plan);

/// Consumers' stages (others' where they have no part) side by side, with the difference.
std::string comparison(const Recorded &measured, const Summary &predicted,
                       const runtime::Plan &plan);

} // namespace megalith::trace

#endif // MEGALITH_TOOLS_TRACE_IMPORT_H
