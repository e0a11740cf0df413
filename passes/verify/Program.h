// What one role does on one SM: its role regions unrolled into steps, for one choice of every
// dynamic value.
#pragma once

#include "ir/task/Task.h"

namespace megalith::verify {

/// One executed op of a role region with the values of (sm, enclosing loop indices).
struct Step {
  mlir::Operation *op;
  llvm::SmallVector<int64_t, 4> dims;
};

/// Chooses the value of every `task.symbol`. The choice is a function of the symbol, the enclosing
/// loop indices and, for per-SM symbols, the SM: so all roles of an SM see the same value.
class Valuation {
public:
  /// Every symbol at its largest value: all experts, all splits.
  static Valuation largest() { return Valuation(0, /*isLargest=*/true); }
  /// Every symbol somewhere in its range, reproducibly from `seed`.
  static Valuation random(uint64_t seed) { return Valuation(seed, /*isLargest=*/false); }

  int64_t of(task::SymbolOp symbol, llvm::ArrayRef<int64_t> dims) const;
  bool isLargest() const { return isLargestCase; }

private:
  Valuation(uint64_t seed, bool isLargest) : seed(seed), isLargestCase(isLargest) {}
  uint64_t seed;
  bool isLargestCase;
};

/// Most steps of one role on one SM: a hundred times those of a real model's layer.
inline constexpr size_t kMaxSteps = 1 << 20;

/// The steps of `role` on `sm` over all stages in program order. Loops are unrolled; `task.local`
/// and structure ops leave no step. At kMaxSteps it stops.
std::vector<Step> unroll(task::KernelOp kernel, task::Role role, int64_t sm,
                         const Valuation &valuation);

/// A rectangle [row, row + rows) x [col, col + cols).
struct Rect {
  int64_t row, rows, col, cols;
  bool empty() const { return rows <= 0 || cols <= 0; }
  bool overlaps(const Rect &other) const {
    return row < other.row + other.rows && other.row < row + rows && col < other.col + other.cols &&
           other.col < col + cols;
  }
  bool contains(const Rect &other) const {
    return row <= other.row && other.row + other.rows <= row + rows && col <= other.col &&
           other.col + other.cols <= col + cols;
  }
};

/// The rectangle of an access at `dims`, within what its table names if it has one.
Rect rectOf(task::AccessAttr access, llvm::ArrayRef<int64_t> dims);

/// "[rows 0..1, columns 64..128)" for diagnostics.
std::string describe(const Rect &rect);

} // namespace megalith::verify
