// Rectangles of a buffer, exchange or weight matrix, and sets of them that cost by their shape, not
// by the elements they hold.
#pragma once

#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace megalith::verify {

/// A rectangle [row, row + rows) x [col, col + cols).
struct Rect {
  int64_t row = 0, rows = 0, col = 0, cols = 0;
  int64_t rowEnd() const { return row + rows; }
  int64_t colEnd() const { return col + cols; }
  bool empty() const { return rows <= 0 || cols <= 0; }
  bool overlaps(const Rect &other) const {
    return row < other.rowEnd() && other.row < rowEnd() && col < other.colEnd() &&
           other.col < colEnd();
  }
  bool contains(const Rect &other) const {
    return row <= other.row && other.rowEnd() <= rowEnd() && col <= other.col &&
           other.colEnd() <= colEnd();
  }
  /// Whether it lies in [0, height) x [0, width), wherever its corner may be.
  bool fits(int64_t height, int64_t width) const {
    return row >= 0 && col >= 0 && row <= height - rows && col <= width - cols;
  }
};

/// "rows [0, 1) columns [64, 128)" for diagnostics.
std::string describe(const Rect &rect);

/// A set of elements. All rectangles given must fit their buffer.
class RectSet {
public:
  /// Adds the rectangle, which is not empty; whether none of it was there before.
  bool add(const Rect &rect);
  /// Adds the rectangle, of which some may be there.
  void include(const Rect &rect) {
    if (!contains(rect))
      add(rect);
  }
  bool overlaps(const Rect &rect) const;
  bool empty() const { return only.empty() && bands.empty(); }
  void clear();
  bool contains(const Rect &rect) const {
    return only.contains(rect) || (!bands.empty() && !firstMissing(rect));
  }
  /// (row, column) of an element of `rect` that is not in the set, if there is one.
  std::optional<std::pair<int64_t, int64_t>> firstMissing(const Rect &rect) const;
  /// (row, column) of an element of the other set that is not in this one.
  std::optional<std::pair<int64_t, int64_t>> firstMissing(const RectSet &other) const;
  /// (row, column) of an element that is not in the set, of a row of `cols` of which some are;
  /// nothing: every row with an element is whole.
  std::optional<std::pair<int64_t, int64_t>> firstOfHalfRow(int64_t cols) const;

private:
  using Columns = std::map<int64_t, int64_t>; ///< begin → end, apart from each other
  struct Band {
    int64_t end; ///< rows [key, end) have the same columns
    Columns columns;
  };
  bool growOnly(const Rect &rect, bool &isFresh);
  bool addBands(const Rect &rect);
  std::map<int64_t, Band>::iterator splitAt(int64_t row);
  void joinAround(std::map<int64_t, Band>::iterator band);

  // Most sets are one rectangle, often growing tile by tile: it needs no tree.
  Rect only;
  std::map<int64_t, Band> bands; ///< by first row; empty while `only` says it all
};

} // namespace megalith::verify
