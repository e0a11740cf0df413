// The rectangles of one access in several loops, taken as one.
#pragma once

#include "passes/verify/Program.h"

namespace megalith::verify {

/// Made outside the loops; then enters them from the outermost to the innermost.
class Nest {
public:
  explicit Nest(const Access &access) : access(access) {}

  /// `dims`: the SM and the indices of loops outside the nest, then zeros. False if the loop's
  /// trips change with a loop of the nest.
  bool enter(const Program &program, const Valuation &valuation, const Loop &loop,
             const int64_t *dims);

  /// Whether a loop of the nest never runs.
  bool neverRuns() const { return isEmpty; }
  /// The union of the rectangles, if they are apart from each other, join to one rectangle, and are
  /// behind the same row of a table; else nothing. Empty if all are.
  std::optional<Rect> join(const int64_t *dims) const;
  /// A rectangle that holds them all, as tight as it can be told; nothing if it cannot be told.
  std::optional<Rect> hull(const int64_t *dims) const;

private:
  struct Entered {
    unsigned dim;
    int64_t trips; ///< more than one
  };
  bool usesNest(const Affine &expr) const {
    return llvm::any_of(nest, [&](const Entered &loop) { return expr.uses(loop.dim); });
  }
  bool isLinear() const;

  const Access &access;
  bool isEmpty = false; ///< no trips at all
  llvm::SmallVector<Entered, 4> nest;
};

} // namespace megalith::verify
