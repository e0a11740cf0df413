//===- context.h - Precision of an evaluation --------------------*- C++ -*-===//
//
// The same formulas in three precisions (DESIGN section 5):
//   contract  fp32 inside an operation; each result rounded once to its element type
//   fp32      fp32 throughout, nothing rounded to bf16
//   fp64      double throughout
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_REFERENCE_CONTEXT_H
#define MEGALITH_MODELS_REFERENCE_CONTEXT_H

#include "models/reference/rules.h"
#include "models/reference/step.h"
#include "models/weights/bf16.h"
#include "models/weights/block_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace megalith::reference {

/// The nearest e4m3 number, by way of fp32.
inline double roundE4m3(double value) {
  return models::e4m3Value(models::e4m3Bits(float(value)));
}

enum class Precision { Contract, F32, F64 };

/// The contract fixes the order of chunks, not that within a matrix unit's 16 products or within a
/// chunk of a norm's squares, nor the last bit of an exponential or a root. Ascending is one
/// choice. Others, all as good:
///   Paired  products and squares are added in pairs, exponentials are powers of two, 1 / sqrt(x)
///   is
///           sqrt(1 / x)
///   Halved  the first eight of 16, then the others, are added among themselves
/// How far their results are apart is how exactly the contract determines a result at all. That
/// varies from step to step, as it takes a bf16 that is rounded the other way to begin with.
enum class Inner { Ascending, Paired, Halved };
inline constexpr Inner kOtherInners[] = {Inner::Paired, Inner::Halved};

/// What every operation needs to know beside its operands.
struct Context {
  Precision precision = Precision::Contract;
  const Step *step = nullptr;
  unsigned threads = 1;
  Inner inner = Inner::Ascending;

  bool live(int64_t row) const { return step->rows[size_t(row)].live; }
  int64_t rows() const { return int64_t(step->rows.size()); }

  /// `value` as it is stored in a value of type `element`. Eight bits are what the model computes
  /// with, not how exactly: every precision rounds to them.
  double store(double value, Element element) const {
    if (element == Element::E4m3)
      return roundE4m3(value);
    if (precision == Precision::F64)
      return value;
    if (precision == Precision::Contract && element == Element::Bf16)
      return models::r16(float(value));
    return float(value);
  }
};

/// Calls `body` with a zero of the type that `precision` computes in: float or double.
template <class Body> auto withArithmetic(Precision precision, Body &&body) {
  return precision == Precision::F64 ? body(double(0)) : body(float(0));
}

/// The canonical K chunk: an eighth of the contraction width, rounded up to 16.
inline int64_t canonicalChunk(int64_t k) {
  return ((k + 7) / 8 + 15) / 16 * 16;
}

/// x . w over `k` elements, chunk by chunk: each in ascending k by one accumulator, then the chunks
/// in ascending order. Full chunks advance together, which changes no sum.
template <class T> T canonicalDot(const T *x, const T *w, int64_t k) {
  const int64_t chunk = canonicalChunk(k);
  const int64_t full = k / chunk; // at most 8
  T sums[8] = {};
  if (full == 8) { // the common case, unrolled
    for (int64_t i = 0; i < chunk; ++i)
      for (int c = 0; c < 8; ++c)
        sums[c] += x[c * chunk + i] * w[c * chunk + i];
  } else {
    for (int64_t i = 0; i < chunk; ++i)
      for (int64_t c = 0; c < full; ++c)
        sums[c] += x[c * chunk + i] * w[c * chunk + i];
    for (int64_t i = full * chunk; i < k; ++i)
      sums[full] += x[i] * w[i];
  }
  T total = sums[0];
  for (int c = 1; c < 8; ++c)
    total += sums[c];
  return total;
}

/// K16 steps in a block of a strip-packed matrix whose chunks are of `chunk` elements, and of a
/// block-scaled one (docs/kernel-contract.md section 1).
inline int64_t stripBlockSteps(int64_t chunk) {
  const int64_t steps = chunk / 16;
  return steps % 4 == 0 ? 4 : steps % 3 == 0 ? 3 : steps % 2 == 0 ? 2 : 1;
}
inline int64_t scaledBlockSteps(int64_t chunk) {
  const int64_t steps = chunk / 16, group = steps % 4 == 0 ? 4 : steps % 2 == 0 ? 2 : 1;
  int64_t few = 16 / group * group, more = 16 + group;
  while (steps % few != 0)
    few -= group;
  while (more <= 28 && steps % more != 0)
    more += group;
  return few >= 8 || more > 28 ? few : more;
}

/// x . w over `k` elements of `Chunks` chunks side by side, each `chunk` elements behind the one
/// before: the even and the odd k16 steps of each block of `steps` ascending, by accumulators of
/// their own, which are added.
template <int Chunks, class T>
std::array<T, Chunks> chunkSums(const T *x, const T *w, int64_t k, int64_t chunk, int64_t steps) {
  std::array<T, Chunks> sums[2] = {};
  for (int64_t step = 0, i = 0; i < k; ++step)
    for (auto &into = sums[step % steps % 2]; i < std::min(k, 16 * (step + 1)); ++i)
      for (int c = 0; c < Chunks; ++c)
        into[size_t(c)] += x[c * chunk + i] * w[c * chunk + i];
  for (int c = 0; c < Chunks; ++c)
    sums[0][size_t(c)] += sums[1][size_t(c)];
  return sums[0];
}

/// x . w over `k` elements as a matrix has it whose blocks are of `steps` k16 steps: chunks as
/// chunkSums, added in ascending order.
template <class T> T matrixDot(const T *x, const T *w, int64_t k, int64_t steps) {
  const int64_t chunk = canonicalChunk(k);
  if (k == 8 * chunk) { // the common case, unrolled
    const std::array<T, 8> sums = chunkSums<8>(x, w, chunk, chunk, steps);
    return std::accumulate(sums.begin() + 1, sums.end(), sums[0]);
  }
  T total = chunkSums<1>(x, w, std::min(chunk, k), chunk, steps)[0];
  for (int64_t i = chunk; i < k; i += chunk)
    total += chunkSums<1>(x + i, w + i, std::min(chunk, k - i), chunk, steps)[0];
  return total;
}

/// Of a block-scaled matrix, whose lanes own consecutive columns: the column that a chunk's product
/// `i` is of, counted from the chunk's first (docs/kernel-contract.md section 1, "NVFP4 matrices").
inline int64_t blockColumnAt(int64_t i, int64_t chunk) {
  const int64_t group = chunk % 64 == 0 ? 4 : chunk % 32 == 0 ? 2 : 1;
  const int64_t p = i % (16 * group);
  return i - p + p % 16 / 4 * (4 * group) + p / 16 * 4 + p % 4;
}

/// The elements of x [k] in the order in which such a matrix's products are added.
template <class T> std::vector<T> inBlockOrder(const std::vector<T> &x) {
  const int64_t k = int64_t(x.size()), chunk = canonicalChunk(k);
  std::vector<T> ordered(size_t(8 * chunk), T(0));
  for (int64_t i = 0; i < 8 * chunk; ++i)
    if (const int64_t from = i / chunk * chunk + blockColumnAt(i % chunk, chunk); from < k)
      ordered[size_t(i)] = x[size_t(from)];
  return ordered;
}

/// x . w over at most 16 elements.
template <class T> T innerSum(const T *x, const T *w, int64_t k, Inner inner) {
  if (inner == Inner::Paired) {
    T sums[16] = {};
    for (int64_t i = 0; i < k; ++i)
      sums[i] = x[i] * w[i];
    for (int width = 8; width > 0; width /= 2)
      for (int i = 0; i < width; ++i)
        sums[i] += sums[i + width];
    return sums[0];
  }
  T low = 0, high = 0;
  for (int64_t i = 0; i < std::min<int64_t>(8, k); ++i)
    low += x[i] * w[i];
  for (int64_t i = 8; i < k; ++i)
    high += x[i] * w[i];
  return low + high;
}

/// matrixDot with another order within 16 products than Ascending; canonicalDot, if `steps` is 1.
template <class T> T innerDot(const T *x, const T *w, int64_t k, Inner inner, int64_t steps) {
  const int64_t chunk = canonicalChunk(k);
  T total = 0;
  for (int64_t first = 0; first < k; first += chunk) {
    T sums[2] = {};
    for (int64_t step = 0, i = first; i < std::min(first + chunk, k); ++step, i += 16)
      sums[step % steps % 2] += innerSum(x + i, w + i, std::min<int64_t>(16, k - i), inner);
    total += sums[0] + sums[1];
  }
  return total;
}

/// e^x.
template <class T> T exponential(T x, Inner inner) {
  return inner == Inner::Paired ? std::exp2(x * T(1.4426950408889634)) : std::exp(x);
}

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_CONTEXT_H
