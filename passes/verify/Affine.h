// Affine expressions over (SM, loop indices), made for being evaluated millions of times.
#pragma once

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"

#include "llvm/ADT/SmallVector.h"

namespace megalith::verify {

/// One result of a map. Values that 64 bits do not hold come out as the nearest that they do, which
/// no bound allows.
class Affine {
public:
  /// Dimensions from `depth` on read 0, as in task::evalAll.
  Affine(mlir::AffineExpr expr, unsigned depth);

  int64_t eval(const int64_t *dims) const {
    return terms.empty() && !tree ? constant : evalAt(dims);
  }
  /// Constant + Σ coefficient · dimension; else it has quotients or remainders.
  bool isLinear() const { return !tree; }
  /// Of a linear expression.
  int64_t coefficient(unsigned dim) const;
  /// Whether its value may change with a dimension, or with any in [begin, end).
  bool uses(unsigned dim) const { return usedDims >> std::min(dim, 63u) & 1; }
  bool usesAny(unsigned begin, unsigned end) const;

private:
  int64_t evalAt(const int64_t *dims) const;

  struct Term {
    unsigned dim;
    int64_t coefficient;
  };
  int64_t constant = 0;
  llvm::SmallVector<Term, 3> terms;
  mlir::AffineExpr tree; ///< null if linear
  unsigned depth;
  uint64_t usedDims = 0; ///< bit 63 stands for all from 63 on
};

/// The least of the expressions, never negative: trip counts and widths, as task::evalMin.
int64_t evalLeast(llvm::ArrayRef<Affine> exprs, const int64_t *dims);

/// A map's results.
llvm::SmallVector<Affine, 2> affinesOf(mlir::AffineMap map, unsigned depth);

} // namespace megalith::verify
