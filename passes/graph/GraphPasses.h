// The first half of the pipeline: from a step of the moe dialect to kernels of sliced stages.
#pragma once

#include "ir/moe/Moe.h"
#include "ir/task/Task.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace megalith {

/// Attributes that moe-cut-launches leaves for moe-convert-to-task and for the plan.
inline constexpr llvm::StringLiteral kLaunchAttr = "megalith.launch"; ///< "embed", "layer", "last"
inline constexpr llvm::StringLiteral kNextAttr = "megalith.next";     ///< op of the next layer

#define GEN_PASS_DECL
#include "passes/graph/GraphPasses.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/graph/GraphPasses.h.inc"

} // namespace megalith
