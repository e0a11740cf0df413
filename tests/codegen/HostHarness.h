// What tests of hand-written kernels share: bf16 arithmetic of the reference, random matrices,
// packed weights, and exchanges as the runtime sets them up.
#pragma once

#include "runtime/abi.h"
#include "runtime/packing.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace megalith::test {

/// Round to nearest even; the inputs of these tests are finite.
inline uint16_t toBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
inline float fromBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
inline float round16(double value) {
  return fromBf16(toBf16(static_cast<float>(value)));
}

/// A bf16 matrix, row-major.
struct Matrix {
  int rows, cols;
  std::vector<uint16_t> bits;

  Matrix(int rows, int cols)
      : rows(rows), cols(cols), bits(static_cast<size_t>(rows) * static_cast<size_t>(cols)) {}

  /// Uniform in offset +- scale.
  static Matrix random(std::mt19937 &rng, int rows, int cols, float scale, float offset = 0) {
    std::uniform_real_distribution<float> uniform(-scale, scale);
    Matrix m(rows, cols);
    for (uint16_t &b : m.bits)
      b = toBf16(offset + uniform(rng));
    return m;
  }
  std::span<const uint16_t> row(int r) const {
    return std::span(bits).subspan(static_cast<size_t>(r) * cols, cols);
  }
  std::vector<float> floats(int r) const {
    std::vector<float> out;
    for (uint16_t b : row(r))
      out.push_back(fromBf16(b));
    return out;
  }
};

/// Appends the strip-packed matrix to a bank.
inline void pack(const Matrix &m, std::vector<unsigned char> &bank) {
  const runtime::StripLayout layout(m.rows, m.cols);
  const size_t at = bank.size();
  bank.resize(at + static_cast<size_t>(layout.bytes()));
  runtime::packStrips(
      layout, 0, layout.strips,
      [&](int64_t row, std::span<uint16_t> out) {
        const auto source = m.row(static_cast<int>(row));
        std::copy(source.begin(), source.end(), out.begin());
      },
      bank.data() + at);
}

/// W x, one dot product a row, unrounded.
inline std::vector<double> multiply(const Matrix &w, const std::vector<float> &x) {
  std::vector<double> y(static_cast<size_t>(w.rows));
  for (int r = 0; r < w.rows; ++r) {
    const auto row = w.row(r);
    for (int k = 0; k < w.cols; ++k)
      y[r] += static_cast<double>(fromBf16(row[k])) * x[k];
  }
  return y;
}

inline std::vector<float> rounded(const std::vector<double> &x) {
  std::vector<float> y;
  for (double v : x)
    y.push_back(round16(v));
  return y;
}

/// RMS norm as the rounding contract has it.
inline std::vector<float> rmsNorm(const std::vector<float> &x, const std::vector<float> &gain,
                                  double eps) {
  double squares = 0;
  for (float v : x)
    squares += static_cast<double>(v) * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<float> y;
  for (size_t i = 0; i < x.size(); ++i)
    y.push_back(round16(x[i] * scale * (gain.empty() ? 1 : gain[i])));
  return y;
}

/// Root mean square of got - want, relative to want; infinite if anything is not finite.
inline double relativeRms(const std::vector<float> &got, const std::vector<float> &want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i]))
      return INFINITY;
    error += (got[i] - want[i]) * static_cast<double>(got[i] - want[i]);
    norm += want[i] * static_cast<double>(want[i]);
  }
  return std::sqrt(error / norm);
}

} // namespace megalith::test
