// Faults found in one case of a proof, told once an op.
#pragma once

#include "ir/task/Task.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"

#include "llvm/ADT/DenseSet.h"

namespace megalith::verify {

class Faults {
public:
  /// A fault of `op` on an SM. Names the kernel, since an op does not: edges of all have one name.
  /// Only an op's first is told: 132 SMs repeat it.
  mlir::InFlightDiagnostic at(mlir::Operation *op, int64_t sm) {
    mlir::InFlightDiagnostic diagnostic = of(op);
    diagnostic << " on SM " << sm << ": ";
    return diagnostic;
  }
  /// A fault of a declaration, of all SMs together. Names it, since its line may not be at hand.
  mlir::InFlightDiagnostic among(mlir::Operation *declaration) {
    mlir::InFlightDiagnostic diagnostic = of(declaration);
    diagnostic << ": @" << mlir::cast<mlir::SymbolOpInterface>(declaration).getName() << ' ';
    return diagnostic;
  }
  bool any() const { return isAny; }

private:
  mlir::InFlightDiagnostic of(mlir::Operation *op) {
    isAny = true;
    mlir::InFlightDiagnostic diagnostic = op->emitOpError();
    diagnostic << "of @" << kernelOf(op).getSymName();
    if (!reported.insert(op).second)
      diagnostic.abandon();
    return diagnostic;
  }
  static task::KernelOp kernelOf(mlir::Operation *op) {
    auto kernel = mlir::dyn_cast<task::KernelOp>(op);
    return kernel ? kernel : op->getParentOfType<task::KernelOp>();
  }
  bool isAny = false;
  llvm::DenseSet<mlir::Operation *> reported;
};

} // namespace megalith::verify
