//===- PlanBuilder.h - plan.json from kernels --------------------*- C++ -*-===//
//
// What the runtime must know to run emitted kernels: it stands in the kernels' declarations, but
// for a few facts of the model that role-level IR no longer holds.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_PLANBUILDER_H
#define MEGALITH_CODEGEN_PLANBUILDER_H

#include "ir/task/Task.h"
#include "runtime/plan.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace megalith {

/// Facts of the moe graph that plans need. Taken before it is converted to kernels.
struct ModelFacts {
  std::string model;  ///< for messages: the config's name
  int64_t layers = 1; ///< of the step
  /// Checkpoint name, with its placeholders -> shape of one tensor of that name, unsharded.
  std::map<std::string, std::vector<int64_t>> tensors;
};

/// One launch of a step.
struct LaunchRequest {
  std::string kernel;
  std::optional<int64_t> layer; ///< by default that of its place after the embed launch
};

/// The facts of a module that holds a moe.step and its moe.weights.
ModelFacts collectFacts(mlir::ModuleOp module, llvm::StringRef model);

/// The plan of one step over `kernels`, which are for one target, SM count and rows bucket.
/// `launches`: each launch in order. Declarations of the same name in several kernels are one
/// buffer or weight of the plan. Files are named "kernels/<kernel>.cu"; resources and cubins stay
/// empty. The error says what is missing or contradicts itself.
llvm::Expected<runtime::Plan> buildPlan(llvm::ArrayRef<task::KernelOp> kernels,
                                        llvm::ArrayRef<LaunchRequest> launches,
                                        const ModelFacts &facts);

/// How what `kernel`, one of a plan's, records is to be read, whether it does or not.
runtime::KernelTrace traceLayoutOf(llvm::ArrayRef<task::KernelOp> kernels, task::KernelOp kernel);

} // namespace megalith

#endif // MEGALITH_CODEGEN_PLANBUILDER_H
