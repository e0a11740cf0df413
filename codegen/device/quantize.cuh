// Activations in NVFP4 on their way to NVFP4 weights (docs/spec/muse-spark-open.md section 7.3).
//
// In place of each value of a block of 16 channels comes code * scale, which bf16 holds exactly:
// the machine multiplies bf16, and what the input's calibrated scale and the weights' factor come
// to multiplies the finished sum. Every SM quantises the rows that it reads, each consumer warp the
// chunk of K that it multiplies, so nobody waits. The same bits as models/weights/nvfp4.h.
#pragma once

#include "codegen/device/nvfp4.cuh"

namespace megalith {

namespace detail {

/// The nearest e2m1 number to a magnitude, ties to the even code; 6 for what is larger, and for
/// NaN.
MEGALITH_DEVICE float nearest_e2m1(float m) {
  float v = m > 0.25f ? 0.5f : 0.0f;
  v = m >= 0.75f ? 1.0f : v;
  v = m > 1.25f ? 1.5f : v;
  v = m >= 1.75f ? 2.0f : v;
  v = m > 2.5f ? 3.0f : v;
  v = m >= 3.5f ? 4.0f : v;
  return m <= 5.0f ? v : 6.0f;
}

/// The nearest e4m3 number to a magnitude above zero, ties to even; 448 for what is larger, the
/// least, 2^-9, for what would be zero; NaN stays.
MEGALITH_DEVICE float nearest_e4m3(float m) {
  constexpr float kLeastNormal = 0x1p-6f, kLeast = 0x1p-9f, kMost = 448.0f;
  if (m < kLeastNormal) { // in steps of 2^-9, to which the sum rounds
    const float v = m + 0x1p14f - 0x1p14f;
    return v < kLeast ? kLeast : v;
  }
  const uint32_t bits = float_to_bits(m);
  const float v = bits_to_float((bits + 0x7FFFFu + (bits >> 20 & 1u)) & 0xFFF00000u);
  return m != m ? m : v < kMost ? v : kMost;
}

/// m / d where it is in [low, high], powers of two; low or high where it is outside; NaN stays.
MEGALITH_DEVICE float clamped_quotient(float m, float d, float low, float high) {
  const float q = platform::bounded_quotient(m, d);
  return m < low * d ? low : m > high * d ? high : q;
}

/// The scale of a block whose largest magnitude is `most`; 1 for a block of zeros.
MEGALITH_DEVICE float nvfp4_block_scale(float most, float global) {
  // Below 2^-10 all are the least scale, above 512 the largest.
  return most == 0.0f ? 1.0f
                      : nearest_e4m3(clamped_quotient(most, 6.0f * global, 0x1p-12f, 512.0f));
}

/// Two values as code * scale.
MEGALITH_DEVICE uint32_t nvfp4_pair(uint32_t pair, float scale, float divisor) {
  // Below 0.25 all are 0, above 5 all are 6.
  const auto value = [&](uint32_t bits) {
    return nearest_e2m1(clamped_quotient(bits_to_float(bits), divisor, 0.125f, 8.0f)) * scale;
  };
  const float low = value((pair & 0x7FFFu) << 16), high = value(pair & 0x7FFF0000u);
  return r16x2(low, high) | (pair & 0x80008000u);
}

MEGALITH_DEVICE uint32_t larger_magnitude(uint32_t most, uint32_t pair) {
  const uint32_t low = pair << 16 & 0x7FFF0000u, high = pair & 0x7FFF0000u;
  most = low > most ? low : most; // as bits: NaN is above all numbers
  return high > most ? high : most;
}

/// One warp quantises `vectors` vectors of eight bf16 of each of `rows` rows, the first at `at`. A
/// block is two neighbouring lanes'. Out of line: a layer does it at two points.
MEGALITH_COLD void quantize_vectors(unsigned char *at, uint32_t stride, int rows, int vectors,
                                    int lane, float global) {
  MEGALITH_UNROLL(1)
  for (int r = 0; r < rows; ++r)
    MEGALITH_UNROLL(1)
  for (int first = 0; first < vectors; first += 32) {
    const bool valid = first + lane < vectors;
    unsigned char *vector = at + r * stride + 16 * (first + lane);
    u32x4 x = {0, 0, 0, 0};
    if (valid)
      x = platform::ld_shared<u32x4>(vector);
    uint32_t most = larger_magnitude(larger_magnitude(0, x.x), x.y);
    most = larger_magnitude(larger_magnitude(most, x.z), x.w);
    const uint32_t other = platform::shfl_xor(most, 1);
    const float scale = nvfp4_block_scale(bits_to_float(most > other ? most : other), global);
    const float divisor = scale * global;
    x = {nvfp4_pair(x.x, scale, divisor), nvfp4_pair(x.y, scale, divisor),
         nvfp4_pair(x.z, scale, divisor), nvfp4_pair(x.w, scale, divisor)};
    if (valid)
      platform::st_shared(vector, x);
  }
  platform::warp_sync();
}

} // namespace detail

/// The calibrated scale of what meets matrix `expert` of L; matrices that read the same rows have
/// the same.
template <Nvfp4Matrix L, class Cta> MEGALITH_DEVICE float input_scale(const Cta &cta, int expert) {
  const auto *matrix = static_cast<const unsigned char *>(cta.template buffer<L::kBuffer>());
  return platform::ld_const<float>(matrix + expert * L::kMatrixBytes + L::kFactors + 16);
}

/// What the finished sums of matrix `expert` are multiplied by where its input was quantised. As
/// weight_factors.
template <Nvfp4Matrix L, class Cta>
MEGALITH_DEVICE FloatPair quantized_factors(const Cta &cta, int expert = 0) {
  const auto *matrix = static_cast<const unsigned char *>(cta.template buffer<L::kBuffer>());
  return platform::ld_const<FloatPair>(matrix + expert * L::kMatrixBytes + L::kFactors + 8);
}

/// Consumer warp: quantises its chunk of the rows of X, which all matrices of L read.
template <Nvfp4Matrix L, class X, class Cta> MEGALITH_DEVICE void quantize_rows(const Cta &cta) {
  static_assert(X::kChunk % 16 == 0 && L::kInputs == X::kWidth);
  detail::quantize_vectors(X::row(cta, 0) + 2 * X::kChunk * cta.role_warp, X::kStride, X::kCount,
                           X::kChunk / 8, cta.lane, input_scale<L>(cta, 0));
}

/// Consumer warp: quantises its chunk of rows 0..count of slot `slot` of X, which matrix `expert`
/// of L reads.
template <Nvfp4Matrix L, class X, class Cta>
MEGALITH_DEVICE void quantize_slot(const Cta &cta, int slot, int expert, int count) {
  constexpr int kChunk = 16 * L::kChunkSteps;
  static_assert(X::kRowBytes >= 2 * kPaddedWidth<L::kInputs>);
  detail::quantize_vectors(X::row(cta, slot, 0) + 2 * kChunk * cta.role_warp, X::kRowBytes, count,
                           kChunk / 8, cta.lane, input_scale<L>(cta, expert));
}

} // namespace megalith
