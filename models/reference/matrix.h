//===- matrix.h - Values of the reference evaluator --------------*- C++ -*-===//
#ifndef MEGALITH_MODELS_REFERENCE_MATRIX_H
#define MEGALITH_MODELS_REFERENCE_MATRIX_H

#include <cstdint>
#include <span>
#include <vector>

namespace megalith::reference {

/// Activations, row-major: [rows or pairs, channels]. Stored as doubles whatever the precision of
/// the evaluation, since every float and every bf16 is one; arithmetic is done in the evaluation's
/// own type (context.h).
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;
  /// Of quantised rows: a factor that is still to be applied to what is made of row r. Else empty.
  std::vector<double> rowFactors;

  Matrix() = default;
  Matrix(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), values(size_t(rows * columns)) {}

  std::span<double> row(int64_t r) { return {values.data() + r * columns, size_t(columns)}; }
  std::span<const double> row(int64_t r) const {
    return {values.data() + r * columns, size_t(columns)};
  }
  double &at(int64_t r, int64_t c) { return values[size_t(r * columns + c)]; }
  double at(int64_t r, int64_t c) const { return values[size_t(r * columns + c)]; }
};

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_MATRIX_H
