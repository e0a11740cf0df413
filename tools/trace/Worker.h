//===- Worker.h - Who computes in a stage ------------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_TRACE_WORKER_H
#define MEGALITH_TOOLS_TRACE_WORKER_H

#include "runtime/plan.h"

namespace megalith::trace {

/// The role that computes in a stage: the first of consumer, epilogue, poller that takes part.
inline llvm::StringRef workerOf(const runtime::TraceStage &stage) {
  for (llvm::StringRef role : {"consumer", "epilogue", "poller"})
    if (stage.role(role))
      return role;
  return "producer";
}

} // namespace megalith::trace

#endif // MEGALITH_TOOLS_TRACE_WORKER_H
