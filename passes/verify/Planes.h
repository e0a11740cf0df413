// Which elements of a global thing were touched in one launch.
#pragma once

#include "passes/verify/Program.h"

namespace megalith::verify {

/// Elements of one buffer, exchange or weight bank. A table's row is not a number: rows reached
/// through a table are kept apart by key, its argument (and the SM, unless the table is uniform
/// over SMs).
class Planes {
public:
  struct Key {
    int table = -1; ///< none
    int64_t argument = 0, sm = 0;
    bool operator<(const Key &other) const {
      return std::tie(table, sm, argument) < std::tie(other.table, other.sm, other.argument);
    }
  };
  static Key keyOf(const Access &access, const int64_t *dims) {
    if (access.table < 0)
      return {};
    const bool isUniform = access.axiom == task::Axiom::Uniform;
    return {access.table, access.argument->eval(dims), isUniform ? 0 : dims[0]};
  }

  /// Adds a rectangle; whether none of it was there before.
  bool add(const Key &key, const Rect &rect) {
    return (key.table < 0 ? plain : tabled[key]).add(rect);
  }
  const RectSet &at(const Key &key) const {
    if (key.table < 0)
      return plain;
    static const RectSet none;
    auto it = tabled.find(key);
    return it == tabled.end() ? none : it->second;
  }
  /// Whether all of the other's elements are here.
  bool containsAll(const Planes &other) const {
    return plain.containsAll(other.plain) && llvm::all_of(other.tabled, [&](const auto &entry) {
             return at(entry.first).containsAll(entry.second);
           });
  }
  /// A key whose argument's predecessor, from 0 on, was not touched though the table and SM were.
  std::optional<Key> firstGap() const {
    Key next;
    for (const auto &[key, plane] : tabled) {
      if (key.table != next.table || key.sm != next.sm)
        next = {key.table, 0, key.sm};
      if (key.argument != next.argument)
        return key;
      ++next.argument;
    }
    return std::nullopt;
  }
  bool empty() const { return plain.empty() && tabled.empty(); }
  /// Whether the whole of every plane that was touched is there: all rows of the plain plane; of
  /// table planes likewise if `areMatrices`, else the rows that were touched.
  bool isComplete(int64_t rows, int64_t cols, bool areMatrices) const {
    return (plain.empty() || plain.contains({0, rows, 0, cols})) &&
           llvm::all_of(tabled, [&](const auto &entry) {
             return areMatrices ? entry.second.contains({0, rows, 0, cols})
                                : entry.second.hasOnlyWholeRows(cols);
           });
  }

private:
  RectSet plain;
  std::map<Key, RectSet> tabled;
};

} // namespace megalith::verify
