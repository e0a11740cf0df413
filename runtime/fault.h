//===- fault.h - Which missed deadline is the cause --------------*- C++ -*-===//
//
// Where a kernel is stuck, hundreds of warps miss their deadlines, nearly all because another warp
// is stuck. Each leaves its record (abi.h: FaultTable); the plan says of each edge who signals it,
// and for what that role waits before it does. So the wait is found that no other one explains.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_FAULT_H
#define MEGALITH_RUNTIME_FAULT_H

#include "runtime/abi.h"
#include "runtime/plan.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <optional>
#include <span>
#include <vector>

namespace megalith::runtime {

/// The records of a table that were written.
std::vector<FaultRecord> writtenRecords(const FaultTable *table);

/// A wait that is the cause, and how many more missed their deadline.
struct RootFault {
  FaultRecord record;
  int64_t others = 0;
};

/// The cause among `faults`; nothing if there are none. `kernelOf(launch)`: what the launch of this
/// number runs, or null. Of several causes, as in a circle of waits, words come before other edges
/// and the stream's edges last, then by number of edge and SM: words prove what was not stored,
/// while a ring stands still whenever those who empty it do.
std::optional<RootFault> rootOf(std::span<const FaultRecord> faults,
                                llvm::function_ref<const Kernel *(uint64_t launch)> kernelOf);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_FAULT_H
