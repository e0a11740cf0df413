#include "passes/verify/Nest.h"

using namespace megalith::verify;

bool Nest::enter(const Program &program, const Valuation &valuation, const Loop &loop,
                 const int64_t *dims) {
  if (isEmpty)
    return true;
  const bool changes = loop.symbol >= 0
                           ? !nest.empty()
                           : llvm::any_of(loop.trips, [&](const Affine &e) { return usesNest(e); });
  if (changes)
    return false;
  const int64_t trips = program.tripsOf(loop, valuation, dims);
  isEmpty = trips == 0;
  if (trips > 1)
    nest.push_back({loop.dim, trips});
  return true;
}

// A quotient or remainder of a loop's index makes no rectangle.
bool Nest::isLinear() const {
  auto isFine = [&](const Affine &expr) { return expr.isLinear() || !usesNest(expr); };
  return isFine(access.row) && isFine(access.col) && llvm::all_of(access.widths, isFine);
}

static int64_t coefficientOf(const Affine &expr, unsigned dim) {
  return expr.isLinear() ? expr.coefficient(dim) : 0;
}

std::optional<Rect> Nest::join(const int64_t *dims) const {
  if (isEmpty)
    return Rect();
  if (nest.empty())
    return access.at(dims);
  if (!isLinear() || (access.argument && usesNest(*access.argument)))
    return std::nullopt;
  Rect rect{access.row.eval(dims), access.height, access.col.eval(dims), INT64_MAX};
  // A width is the same in every rectangle, or ends them all at the same column.
  int64_t end = INT64_MAX;
  for (const Affine &width : access.widths) {
    const int64_t first = width.eval(dims);
    if (!usesNest(width)) {
      rect.cols = std::min(rect.cols, first);
      continue;
    }
    for (const Entered &loop : nest)
      if (coefficientOf(width, loop.dim) != -coefficientOf(access.col, loop.dim))
        return std::nullopt;
    int64_t here;
    if (__builtin_add_overflow(rect.col, first, &here))
      return std::nullopt;
    end = std::min(end, here);
  }
  if (rect.cols == INT64_MAX)
    return std::nullopt;
  if (rect.cols <= 0)
    return Rect();
  // From the innermost loop outwards: each puts as many side by side, or one above the other.
  for (const Entered &loop : llvm::reverse(nest)) {
    const int64_t down = coefficientOf(access.row, loop.dim);
    const int64_t right = coefficientOf(access.col, loop.dim);
    int64_t *grows = right == 0 && down == rect.rows   ? &rect.rows
                     : down == 0 && right == rect.cols ? &rect.cols
                                                       : nullptr;
    if (!grows || __builtin_mul_overflow(*grows, loop.trips, grows))
      return std::nullopt;
  }
  if (end != INT64_MAX)
    rect.cols = std::min(rect.cols, end - rect.col);
  return rect;
}

std::optional<Rect> Nest::hull(const int64_t *dims) const {
  if (isEmpty)
    return Rect();
  if (nest.empty())
    return access.at(dims);
  if (!isLinear())
    return std::nullopt;
  using Wide = __int128;
  // The least and the greatest value of a sum of expressions.
  auto least = [&](const Affine &expr) {
    Wide value = expr.eval(dims);
    for (const Entered &loop : nest)
      value += std::min<Wide>(0, Wide(coefficientOf(expr, loop.dim)) * (loop.trips - 1));
    return value;
  };
  auto greatest = [&](const Affine &a, const Affine *b) {
    Wide value = Wide(a.eval(dims)) + (b ? b->eval(dims) : 0);
    for (const Entered &loop : nest)
      value += std::max<Wide>(
          0, (Wide(coefficientOf(a, loop.dim)) + (b ? coefficientOf(*b, loop.dim) : 0)) *
                 (loop.trips - 1));
    return value;
  };
  const Wide row = least(access.row), rowEnd = greatest(access.row, nullptr) + access.height;
  const Wide col = least(access.col);
  Wide colEnd = INT64_MAX;
  for (const Affine &width : access.widths)
    colEnd = std::min(colEnd, greatest(access.col, &width));
  const Wide most = INT64_MAX / 2;
  if (row < -most || col < -most || rowEnd > most || colEnd > most)
    return std::nullopt;
  return Rect{int64_t(row), int64_t(rowEnd - row), int64_t(col), int64_t(colEnd - col)};
}
