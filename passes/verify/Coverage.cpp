#include "passes/verify/Coverage.h"

using namespace megalith::verify;

bool Coverage::mark(const Key &key, const Rect &rect) {
  auto [it, inserted] = planes.try_emplace(key);
  llvm::BitVector &plane = it->second;
  if (inserted)
    plane.resize(rows * cols);
  bool isFresh = true;
  for (int64_t r = rect.row; r < rect.row + rect.rows; ++r) {
    unsigned begin = r * cols + rect.col, end = begin + rect.cols;
    isFresh &= plane.find_first_in(begin, end) == -1;
    plane.set(begin, end);
  }
  return isFresh;
}

bool Coverage::contains(const Key &key, const Rect &rect) const {
  auto it = planes.find(key);
  if (it == planes.end())
    return false;
  for (int64_t r = rect.row; r < rect.row + rect.rows; ++r) {
    unsigned begin = r * cols + rect.col;
    if (it->second.find_first_unset_in(begin, begin + rect.cols) != -1)
      return false;
  }
  return true;
}

bool Coverage::isComplete() const {
  for (auto &[key, plane] : planes)
    if (key.empty()) {
      if (!plane.all())
        return false;
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        unsigned begin = r * cols, end = begin + cols;
        if (plane.find_first_in(begin, end) != -1 && plane.find_first_unset_in(begin, end) != -1)
          return false;
      }
    }
  return true;
}
