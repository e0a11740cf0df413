// Faults found in one case of a proof, told once an op.
#pragma once

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"

#include "llvm/ADT/DenseSet.h"

namespace megalith::verify {

class Faults {
public:
  /// A fault of `op` on an SM. Only an op's first is told: 132 SMs repeat it.
  mlir::InFlightDiagnostic at(mlir::Operation *op, int64_t sm) {
    isAny = true;
    mlir::InFlightDiagnostic diagnostic = op->emitOpError();
    if (reported.insert(op).second)
      diagnostic << "on SM " << sm << ": ";
    else
      diagnostic.abandon();
    return diagnostic;
  }
  bool any() const { return isAny; }

private:
  bool isAny = false;
  llvm::DenseSet<mlir::Operation *> reported;
};

} // namespace megalith::verify
