// Choices of the dynamic values that bound trip counts.
#pragma once

#include "ir/task/Task.h"

namespace megalith::verify {

/// Chooses the value of every `task.symbol`. The choice is a function of the symbol, the enclosing
/// loop indices, the launch of a looping kernel and, for per-SM symbols, the SM: so all roles of an
/// SM see the same value.
class Valuation {
public:
  /// Every symbol at its largest value: all experts, all splits.
  static Valuation largest() { return Valuation(0, INT64_MAX, /*isLargest=*/true); }
  /// Every symbol somewhere in its range, reproducibly from `seed`; per-SM symbols have values of
  /// at most `kinds` kinds of SM, dealt out anew by each seed.
  static Valuation random(uint64_t seed, int64_t kinds = INT64_MAX) {
    return Valuation(seed, kinds, /*isLargest=*/false);
  }

  /// A symbol as valuations see it, since they are asked millions of times.
  struct Symbol {
    explicit Symbol(task::SymbolOp op);
    int64_t min, max;
    bool isPerSm;
    llvm::SmallVector<unsigned char, 16> name;
  };

  /// `dims`: the SM and the indices of the enclosing loops.
  int64_t of(const Symbol &symbol, llvm::ArrayRef<int64_t> dims, int launch) const;

private:
  Valuation(uint64_t seed, int64_t kinds, bool isLargest)
      : seed(seed), kinds(kinds), isLargest(isLargest) {}
  uint64_t seed;
  int64_t kinds;
  bool isLargest;
};

} // namespace megalith::verify
