// The proof that a kernel at role level neither deadlocks nor races (docs/kernel-contract.md,
// DESIGN section 4).
#pragma once

#include "ir/task/Task.h"

#include "mlir/IR/BuiltinOps.h"

namespace megalith::verify {

/// Cases that are proved beside the largest, unless the caller wants another number.
inline constexpr int kRandomCases = 8;

/// Proves one kernel: arrivals of every edge, places in shared memory, then the largest case and
/// `randomCases` smaller ones. Reports every fault on the op it concerns.
mlir::LogicalResult verifyKernel(task::KernelOp kernel, int randomCases = kRandomCases);

/// What only holds over all kernels of a module, each of which is proved by itself: each declares
/// and re-arms every sentinel exchange of the plan, since sets are chosen by launch parity, and
/// what launches hand each other is written before it is read.
mlir::LogicalResult verifyTogether(mlir::ModuleOp module);

/// Proves every kernel of the module, and what only holds over all of them.
mlir::LogicalResult verifyPlan(mlir::ModuleOp module, int randomCases = kRandomCases);

} // namespace megalith::verify
