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

#include "models/reference/step.h"
#include "models/weights/bf16.h"

namespace megalith::reference {

enum class Precision { Contract, F32, F64 };

/// The element type a value is declared with.
enum class Element { F32, Bf16 };

/// What every operation needs to know beside its operands.
struct Context {
  Precision precision = Precision::Contract;
  const Step *step = nullptr;
  unsigned threads = 1;

  bool live(int64_t row) const { return step->rows[size_t(row)].live; }
  int64_t rows() const { return int64_t(step->rows.size()); }

  /// `value` as it is stored in a value of type `element`.
  double store(double value, Element element) const {
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

/// x . w over `k` elements in canonical order: each chunk in ascending k by one accumulator, then
/// the chunks in ascending order. Full chunks advance together, which changes no sum.
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

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_CONTEXT_H
