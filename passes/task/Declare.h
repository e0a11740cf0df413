//===- Declare.h - adding declarations to a kernel --------------------------===//
#ifndef MEGALITH_PASSES_TASK_DECLARE_H
#define MEGALITH_PASSES_TASK_DECLARE_H

#include "ir/task/Task.h"
#include "runtime/abi.h"

#include "mlir/IR/Builders.h"

namespace megalith::task {

/// A builder right before the kernel's first stage, where declarations end.
mlir::OpBuilder declarations(KernelOp kernel);

/// Declares an edge with the next free id. `counterSlot`: of a launches edge.
EdgeOp declareEdge(KernelOp kernel, llvm::StringRef name, EdgeKind kind, Role from,
                   mlir::ArrayAttr to, int64_t slots, int64_t arrivals,
                   std::optional<int64_t> counterSlot = std::nullopt);
EdgeOp declareEdge(KernelOp kernel, llvm::StringRef name, EdgeKind kind, Role from,
                   llvm::ArrayRef<Role> to, int64_t slots, int64_t arrivals,
                   std::optional<int64_t> counterSlot = std::nullopt);

/// The lowest slot of LaunchArgs::buffer that no buffer, weights or exchange has; none of
/// kMaxBuffers left: nothing.
std::optional<int64_t> freeSlot(KernelOp kernel);

} // namespace megalith::task

#endif // MEGALITH_PASSES_TASK_DECLARE_H
