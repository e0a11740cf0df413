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
  /// An element of a plane.
  struct Place {
    Key key;
    std::pair<int64_t, int64_t> at; ///< row, column
  };
  /// One of the other's elements that is not here; nothing: all are.
  std::optional<Place> firstMissing(const Planes &other) const {
    if (auto at = plain.firstMissing(other.plain))
      return Place{{}, *at};
    for (const auto &[key, plane] : other.tabled)
      if (auto place = at(key).firstMissing(plane))
        return Place{key, *place};
    return std::nullopt;
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
  /// "row 3, column 64", with the argument that stood for a table's row.
  static std::string describe(const Place &place) {
    return (place.key.table < 0
                ? ""
                : "argument " + std::to_string(place.key.argument) + " of a table, ") +
           "row " + std::to_string(place.at.first) + ", column " + std::to_string(place.at.second);
  }
  /// What the whole of every plane that was touched lacks: of all rows of the plain plane; of table
  /// planes likewise if `areMatrices`, else of the rows that were touched.
  std::optional<Place> firstMissing(int64_t rows, int64_t cols, bool areMatrices) const {
    const Rect whole = {0, rows, 0, cols};
    if (!plain.empty())
      if (auto at = plain.firstMissing(whole))
        return Place{{}, *at};
    for (const auto &[key, plane] : tabled)
      if (auto at = areMatrices ? plane.firstMissing(whole) : plane.firstOfHalfRow(cols))
        return Place{key, *at};
    return std::nullopt;
  }

private:
  RectSet plain;
  std::map<Key, RectSet> tabled;
};

} // namespace megalith::verify
