#include "passes/verify/Rectangles.h"

#include <algorithm>

using namespace megalith::verify;

std::string megalith::verify::describe(const Rect &rect) {
  return "rows [" + std::to_string(rect.row) + ", " + std::to_string(rect.rowEnd()) +
         ") columns [" + std::to_string(rect.col) + ", " + std::to_string(rect.colEnd()) + ")";
}

void RectSet::clear() {
  only = {};
  bands.clear();
}

// Whether the set stays one rectangle.
bool RectSet::growOnly(const Rect &rect, bool &isFresh) {
  isFresh = true;
  if (only.empty()) {
    only = rect;
    return true;
  }
  isFresh = !only.overlaps(rect);
  if (only.contains(rect))
    return true;
  const bool isColumn = only.col == rect.col && only.cols == rect.cols &&
                        only.row <= rect.rowEnd() && rect.row <= only.rowEnd();
  const bool isRow = only.row == rect.row && only.rows == rect.rows && only.col <= rect.colEnd() &&
                     rect.col <= only.colEnd();
  if (!isColumn && !isRow && !rect.contains(only))
    return false;
  const Rect old = only;
  only.row = std::min(old.row, rect.row);
  only.rows = std::max(old.rowEnd(), rect.rowEnd()) - only.row;
  only.col = std::min(old.col, rect.col);
  only.cols = std::max(old.colEnd(), rect.colEnd()) - only.col;
  return true;
}

bool RectSet::add(const Rect &rect) {
  if (!bands.empty())
    return addBands(rect);
  bool isFresh;
  if (growOnly(rect, isFresh))
    return isFresh;
  addBands(only);
  only = {};
  return addBands(rect);
}

// Makes `row` the first row of a band if it is inside one; the first band at or after it.
std::map<int64_t, RectSet::Band>::iterator RectSet::splitAt(int64_t row) {
  auto it = bands.lower_bound(row);
  if (it == bands.begin() || (it != bands.end() && it->first == row))
    return it;
  auto before = std::prev(it);
  if (before->second.end <= row)
    return it;
  Band rest = before->second;
  before->second.end = row;
  return bands.emplace_hint(it, row, std::move(rest));
}

// Adds [begin, end) to columns; whether none of it was there.
static bool addColumns(std::map<int64_t, int64_t> &columns, int64_t begin, int64_t end) {
  auto it = columns.lower_bound(begin);
  if (it != columns.begin() && std::prev(it)->second >= begin)
    --it;
  bool isFresh = true;
  int64_t joinedBegin = begin, joinedEnd = end;
  while (it != columns.end() && it->first <= end) { // overlaps or touches
    isFresh &= it->second <= begin || it->first >= end;
    joinedBegin = std::min(joinedBegin, it->first);
    joinedEnd = std::max(joinedEnd, it->second);
    it = columns.erase(it);
  }
  columns.emplace_hint(it, joinedBegin, joinedEnd);
  return isFresh;
}

// A band that says the same as its neighbours swallows them. Only whole runs: comparing long lists
// would cost more than it saves.
void RectSet::joinAround(std::map<int64_t, Band>::iterator band) {
  auto isSame = [](const auto &a, const auto &b) {
    return a->second.end == b->first && a->second.columns.size() == 1 &&
           a->second.columns == b->second.columns;
  };
  auto next = std::next(band);
  if (next != bands.end() && isSame(band, next)) {
    band->second.end = next->second.end;
    bands.erase(next);
  }
  if (band != bands.begin() && isSame(std::prev(band), band)) {
    std::prev(band)->second.end = band->second.end;
    bands.erase(band);
  }
}

bool RectSet::addBands(const Rect &rect) {
  bool isFresh = true;
  splitAt(rect.rowEnd());
  auto it = splitAt(rect.row);
  int64_t row = rect.row;
  while (row < rect.rowEnd()) {
    if (it == bands.end() || it->first > row) { // rows without a band
      const int64_t end = it == bands.end() ? rect.rowEnd() : std::min(rect.rowEnd(), it->first);
      it = bands.emplace_hint(it, row, Band{end, {{rect.col, rect.colEnd()}}});
    } else {
      isFresh &= addColumns(it->second.columns, rect.col, rect.colEnd());
    }
    row = it->second.end;
    ++it;
  }
  // From the last to the first, so that no band that is still to come goes away.
  for (int64_t at = row; at > rect.row;) {
    auto band = std::prev(bands.lower_bound(at));
    at = band->first;
    joinAround(band);
  }
  return isFresh;
}

bool RectSet::overlaps(const Rect &rect) const {
  if (!only.empty())
    return only.overlaps(rect);
  return std::any_of(bands.begin(), bands.end(), [&](const auto &entry) {
    const auto &[row, band] = entry;
    return std::any_of(band.columns.begin(), band.columns.end(), [&](const auto &columns) {
      return rect.overlaps({row, band.end - row, columns.first, columns.second - columns.first});
    });
  });
}

std::optional<std::pair<int64_t, int64_t>> RectSet::firstMissing(const Rect &rect) const {
  if (only.contains(rect))
    return std::nullopt;
  if (bands.empty()) {
    // The corner, or the first element past the rectangle that is there.
    const Rect corner = {rect.row, 1, rect.col, 1};
    if (!only.contains(corner))
      return std::pair(rect.row, rect.col);
    if (only.colEnd() < rect.colEnd())
      return std::pair(rect.row, only.colEnd());
    return std::pair(only.rowEnd(), rect.col);
  }
  auto it = bands.upper_bound(rect.row);
  if (it != bands.begin())
    --it;
  for (int64_t row = rect.row; row < rect.rowEnd(); row = it->second.end, ++it) {
    if (it == bands.end() || it->first > row || it->second.end <= row)
      return std::pair(row, rect.col);
    const Columns &columns = it->second.columns;
    auto after = columns.upper_bound(rect.col);
    if (after == columns.begin() || std::prev(after)->second <= rect.col)
      return std::pair(row, rect.col);
    if (std::prev(after)->second < rect.colEnd())
      return std::pair(row, std::prev(after)->second);
  }
  return std::nullopt;
}

std::optional<std::pair<int64_t, int64_t>> RectSet::firstOfHalfRow(int64_t cols) const {
  if (!only.empty())
    return firstMissing({only.row, only.rows, 0, cols});
  for (const auto &[row, band] : bands)
    if (auto place = firstMissing({row, band.end - row, 0, cols}))
      return place;
  return std::nullopt;
}

std::optional<std::pair<int64_t, int64_t>> RectSet::firstMissing(const RectSet &other) const {
  if (!other.only.empty())
    return firstMissing(other.only);
  for (const auto &[row, band] : other.bands)
    for (const auto &[begin, end] : band.columns)
      if (auto place = firstMissing({row, band.end - row, begin, end - begin}))
        return place;
  return std::nullopt;
}
