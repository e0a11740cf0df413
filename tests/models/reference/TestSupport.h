//===- TestSupport.h - Made-up values for evaluator tests --------*- C++ -*-===//
#ifndef MEGALITH_TESTS_MODELS_REFERENCE_TESTSUPPORT_H
#define MEGALITH_TESTS_MODELS_REFERENCE_TESTSUPPORT_H

#include "models/reference/context.h"
#include "models/reference/dense.h"
#include "models/reference/matrix.h"
#include "models/weights/philox.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace megalith::reference {

/// bf16 numbers in [-scale, scale]; equal seeds give equal matrices.
inline Matrix randomMatrix(int64_t rows, int64_t columns, uint32_t seed, float scale = 1) {
  Matrix matrix(rows, columns);
  for (size_t i = 0; i < matrix.values.size(); ++i)
    matrix.values[i] = models::weightValue(seed, 0, i, scale);
  return matrix;
}

/// A weight held in memory.
class MatrixTensor final : public models::WeightTensor {
public:
  explicit MatrixTensor(Matrix matrix) : matrix(std::move(matrix)) {}
  using WeightTensor::row;
  void row(int64_t index, std::span<float> out) const override {
    for (size_t c = 0; c < out.size(); ++c)
      out[c] = float(matrix.at(index, int64_t(c)));
  }
  WeightView view(Element element = Element::Bf16) const {
    WeightView view{this, 0, matrix.rows, matrix.columns};
    view.element = element;
    return view;
  }
  const Matrix matrix;
};

/// A step of `rows` live rows, each the first row of its own sequence at the position given.
inline Step rowsAt(std::vector<int64_t> positions, int64_t bucket = 0) {
  std::vector<SequenceInput> inputs;
  for (int64_t position : positions)
    inputs.push_back({position, {0}});
  return makeStep(inputs, bucket);
}

/// Largest relative RMS difference of two matrices as a whole.
inline double relativeRms(const Matrix &actual, const Matrix &expected) {
  REQUIRE(actual.values.size() == expected.values.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < actual.values.size(); ++i) {
    difference += std::pow(actual.values[i] - expected.values[i], 2);
    size += std::pow(expected.values[i], 2);
  }
  return std::sqrt(difference / size);
}

} // namespace megalith::reference

#endif // MEGALITH_TESTS_MODELS_REFERENCE_TESTSUPPORT_H
