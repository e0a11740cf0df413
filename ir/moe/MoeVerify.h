//===- MoeVerify.h - checks shared by the operations' verifiers -------------===//
//
// Each emits "expected A but got B" at the operation and returns failure.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_IR_MOE_MOEVERIFY_H
#define MEGALITH_IR_MOE_MOEVERIFY_H

#include "ir/moe/Moe.h"

#include <string>

namespace megalith::moe::detail {

/// "[1, 4096]"
std::string formatShape(llvm::ArrayRef<int64_t> shape);

/// `what` has exactly this shape. `what` reads as in "expected result q".
llvm::LogicalResult expectShape(mlir::Operation *op, llvm::StringRef what, mlir::Value value,
                                llvm::ArrayRef<int64_t> shape);
llvm::LogicalResult expectSameType(mlir::Operation *op, llvm::StringRef what, mlir::Value value,
                                   mlir::Type type);

/// Attributes: at least 1, at least 0; finite, and above zero.
llvm::LogicalResult expectPositive(mlir::Operation *op, llvm::StringRef name, int64_t value);
llvm::LogicalResult expectPositive(mlir::Operation *op, llvm::StringRef name, double value);
llvm::LogicalResult expectFinite(mlir::Operation *op, llvm::StringRef name, double value);
/// `divisor` > 0 divides `value`.
llvm::LogicalResult expectDivides(mlir::Operation *op, llvm::StringRef divisorName, int64_t divisor,
                                  llvm::StringRef valueName, int64_t value);
/// An optional attribute is there exactly when `wanted`; `when` says when that is.
llvm::LogicalResult expectPresence(mlir::Operation *op, llvm::StringRef name, bool present,
                                   bool wanted, llvm::StringRef when);

/// `ref`, where it is given, names a moe.weight whose local shape is `shape`.
llvm::LogicalResult expectWeight(mlir::Operation *op, mlir::SymbolTableCollection &symbols,
                                 mlir::FlatSymbolRefAttr ref, llvm::StringRef role,
                                 llvm::ArrayRef<int64_t> shape);

/// Columns, rows of a value that ODS has checked to be a static 2-D tensor.
inline int64_t rows(mlir::Value v) {
  return llvm::cast<mlir::RankedTensorType>(v.getType()).getDimSize(0);
}
inline int64_t columns(mlir::Value v) {
  return llvm::cast<mlir::RankedTensorType>(v.getType()).getDimSize(1);
}

} // namespace megalith::moe::detail

#endif // MEGALITH_IR_MOE_MOEVERIFY_H
