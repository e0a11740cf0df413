// Which elements of a global thing were touched in one launch: each output element must be written
// exactly once, each streamed block consumed once, and a poll passes when its words are there.
#pragma once

#include "passes/verify/Program.h"

#include "llvm/ADT/BitVector.h"
#include <map>

namespace megalith::verify {

/// Elements of one buffer, exchange or weight bank. A table's row is not a number: rows reached
/// through a table are kept apart by key, the loop indices (and the SM, unless the table is uniform
/// over SMs).
class Coverage {
public:
  using Key = llvm::SmallVector<int64_t, 4>;

  Coverage(int64_t rows, int64_t cols) : rows(rows), cols(cols) {}

  /// Marks the rectangle; returns false (and marks nothing new) where an element was marked before.
  bool mark(const Key &key, const Rect &rect);
  bool contains(const Key &key, const Rect &rect) const;
  /// Whether the whole of every plane that was touched is marked: all rows of the plain plane, of
  /// table planes the rows that were touched.
  bool isComplete() const;
  bool isUntouched() const { return planes.empty(); }
  /// Planes (keys) seen, for axioms that bound their number.
  size_t planeCount() const { return planes.size(); }

  int64_t rows, cols;

private:
  std::map<Key, llvm::BitVector> planes;
};

} // namespace megalith::verify
