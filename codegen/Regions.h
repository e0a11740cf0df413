//===- Regions.h - A role's regions as one C++ function ----------*- C++ -*-===//
#ifndef MEGALITH_CODEGEN_REGIONS_H
#define MEGALITH_CODEGEN_REGIONS_H

#include "codegen/Writer.h"
#include "ir/task/Task.h"

namespace megalith {

/// `MEGALITH_DEVICE void <role>(Cta &cta)`: the role's regions of all stages, in program order,
/// with the calls of codegen/device/trace.cuh between them if the kernel records.
mlir::LogicalResult emitRole(task::KernelOp kernel, task::Role role, Writer &out);

/// `expr` in C++, dimension i, never negative, read as dims[i]. Quotients are rounded down as the
/// proof rounds them: by floor_div where the dividend may be negative.
std::string affineText(mlir::AffineExpr expr, llvm::ArrayRef<std::string> dims);

} // namespace megalith

#endif // MEGALITH_CODEGEN_REGIONS_H
