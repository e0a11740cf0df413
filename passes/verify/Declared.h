// What a kernel declares of values that are known at run time only.
#pragma once

#include "ir/task/Task.h"

namespace megalith::verify {

/// Kind of a kernel written by hand for a test: what it declares of symbols and tables is taken for
/// granted. No plan launches one that has some.
inline constexpr llvm::StringLiteral kToy = "toy";

/// That ranges of symbols, the edges after which they are known, and sizes and axioms of tables are
/// those that follow from the shapes of the kernel's stages (passes/bounds/Bounds.h), and that
/// loops and accesses use those of their own stage. Reports what is not, on the declaration or the
/// step.
mlir::LogicalResult verifyDeclared(task::KernelOp kernel);

} // namespace megalith::verify
