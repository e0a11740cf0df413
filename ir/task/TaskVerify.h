// What verifiers of declarations and of steps share: the kernel that an op stands in, and its
// declarations by name.
#pragma once

#include "ir/task/Task.h"

namespace megalith::task::detail {

inline KernelOp kernelOf(mlir::Operation *op) {
  return op->getParentOfType<KernelOp>();
}

/// The declaration `ref` names in op's kernel; an error on `op` if there is none of that kind.
template <typename OpT>
OpT expectDecl(mlir::Operation *op, mlir::FlatSymbolRefAttr ref, llvm::StringRef what) {
  mlir::Operation *found = mlir::SymbolTable::lookupSymbolIn(kernelOf(op), ref);
  if (!found) {
    op->emitOpError() << "expected " << ref << " to be " << what
                      << " declared in this kernel, but nothing has that name";
    return {};
  }
  if (auto decl = llvm::dyn_cast<OpT>(found))
    return decl;
  op->emitOpError() << "expected " << ref << " to be " << what << ", but it is a "
                    << found->getName();
  return {};
}

} // namespace megalith::task::detail
