//===- Regions.h - A role's regions as one C++ function ----------*- C++ -*-===//
#ifndef MEGALITH_CODEGEN_REGIONS_H
#define MEGALITH_CODEGEN_REGIONS_H

#include "codegen/Writer.h"
#include "ir/task/Task.h"

namespace megalith {

/// `MEGALITH_DEVICE void <role>(Cta &cta)`: the role's regions of all stages, in program order.
mlir::LogicalResult emitRole(task::KernelOp kernel, task::Role role, Writer &out);

/// `expr` in C++, dimension i read as dims[i]. Quotients are rounded to zero, which for trip counts
/// and places, negative only where nothing is left to do, is as good as rounding down.
std::string affineText(mlir::AffineExpr expr, llvm::ArrayRef<std::string> dims);

} // namespace megalith

#endif // MEGALITH_CODEGEN_REGIONS_H
