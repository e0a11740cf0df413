// Mutants of a plan: one operator on one site of its role regions or declarations.
#pragma once

#include "ir/task/Task.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/ArrayRef.h"

#include <functional>
#include <string>
#include <vector>

namespace megalith::mutation {

/// What is done to the plan. Sites count ops of the module in walk order, so that a clone has the
/// same.
struct Mutation {
  std::string name; ///< of the operator: "drop wait", "shrink read", …
  std::string site; ///< the kernel and the op, for people
  size_t op;        ///< the op that is changed
  std::function<void(mlir::Operation *)> apply;
  /// Whether only what ops say to touch changes: no step, count, place or order.
  bool isFootprint = false;
};

/// Every operator on every site.
std::vector<Mutation> mutationsOf(mlir::ModuleOp plan);

/// A copy of the plan with the mutation; the kernel it concerns, null if it concerns the plan.
struct Mutant {
  mlir::OwningOpRef<mlir::ModuleOp> plan;
  task::KernelOp kernel;
};
Mutant mutate(mlir::ModuleOp plan, const Mutation &mutation);

/// A copy of the plan with several mutations, of ops of which none lies in another.
mlir::OwningOpRef<mlir::ModuleOp> mutateAll(mlir::ModuleOp plan,
                                            llvm::ArrayRef<const Mutation *> mutations);

} // namespace megalith::mutation
