//===- block_codec.h - Numbers of four and eight bits ------------*- C++ -*-===//
//
// The small floating-point formats of block-scaled weights (docs/spec/muse-spark-open.md section 7;
// OCP Microscaling Formats v1.0 for e8m0), one number at a time, and the scalar rules of the NVFP4
// quantiser. Host C++ and CUDA (offline or NVRTC) give the same bits: comparisons, integer
// arithmetic and single IEEE operations, nothing that a compiler may contract.
//
//   e2m1  4 bits  sign, 2 exponent, 1 mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6
//   e4m3  8 bits  sign, 4 exponent (bias 7), 3 mantissa; no infinity, 0x7F is NaN, largest 448
//   e8m0  8 bits  2^(bits - 127), 0xFF is NaN; no sign, no zero
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_WEIGHTS_BLOCK_CODEC_H
#define MEGALITH_MODELS_WEIGHTS_BLOCK_CODEC_H

#ifndef __CUDACC_RTC__
#include <cstdint>
#endif

#ifdef __CUDACC__
#define MEGALITH_CODEC_FN __host__ __device__ inline
#else
#define MEGALITH_CODEC_FN inline
#endif

namespace megalith::models {

constexpr float kE2m1Max = 6.0f, kE4m3Max = 448.0f;
constexpr uint32_t kE4m3Nan = 0x7F, kE4m3One = 0x38, kE4m3Least = 0x01;
constexpr uint32_t kE8m0Nan = 0xFF, kE8m0One = 0x7F;

MEGALITH_CODEC_FN uint32_t codecBits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
MEGALITH_CODEC_FN float codecFloat(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

/// The value of the low four bits of `code`; 8 is -0.
MEGALITH_CODEC_FN float e2m1Value(uint32_t code) {
  // Twice the magnitude: 0, 1, 2, 3, 4, 6, 8, 12.
  const uint32_t exponent = code >> 1 & 3u, mantissa = code & 1u;
  const uint32_t twice = exponent ? (2u + mantissa) << (exponent - 1) : mantissa;
  return codecFloat(codecBits(0.5f * float(twice)) | (code & 8u) << 28);
}

/// The nearest e2m1; ties to the even code, magnitudes above 6 to 6, NaN to 6. The sign is kept,
/// so what rounds to zero from below, and -0, is code 8.
MEGALITH_CODEC_FN uint32_t e2m1Code(float value) {
  const float m = codecFloat(codecBits(value) & 0x7FFFFFFFu);
  const uint32_t code = m != m ? 7u
                               : uint32_t(m > 0.25f) + uint32_t(m >= 0.75f) + uint32_t(m > 1.25f) +
                                     uint32_t(m >= 1.75f) + uint32_t(m > 2.5f) +
                                     uint32_t(m >= 3.5f) + uint32_t(m > 5.0f);
  return code | (codecBits(value) >> 31) << 3;
}

/// The value of an e4m3 byte.
MEGALITH_CODEC_FN float e4m3Value(uint32_t byte) {
  const uint32_t sign = (byte & 0x80u) << 24, magnitude = byte & 0x7Fu;
  if (magnitude == kE4m3Nan)
    return codecFloat(0x7FC00000u | sign);
  if (magnitude < 8) // subnormal
    return codecFloat(codecBits(float(magnitude) * 0x1p-9f) | sign);
  return codecFloat(((magnitude << 20) + (120u << 23)) | sign);
}

/// The nearest e4m3; ties to even, magnitudes above 448 to 448 (infinity too), NaN to NaN.
MEGALITH_CODEC_FN uint32_t e4m3Bits(float value) {
  const uint32_t sign = codecBits(value) >> 31 << 7, bits = codecBits(value) & 0x7FFFFFFFu;
  if (bits > 0x7F800000u)
    return kE4m3Nan | sign;
  if (bits <
      (121u << 23)) // below 2^-6, the least normal: in steps of 2^-9, which the sum rounds to
    return (codecBits(codecFloat(bits) + 0x1p14f) & 0xFu) | sign;
  const uint32_t rounded = (bits + 0x7FFFFu + (bits >> 20 & 1u)) >> 20;
  const uint32_t magnitude = rounded - (120u << 3);
  return (magnitude > 0x7Eu ? 0x7Eu : magnitude) | sign;
}

/// The value of an e8m0 byte.
MEGALITH_CODEC_FN float e8m0Value(uint32_t byte) {
  if (byte == kE8m0Nan)
    return codecFloat(0x7FC00000u);
  return codecFloat(byte ? byte << 23 : 0x00400000u);
}

/// NVFP4: fp32 factor of a whole tensor whose largest magnitude is `amax`.
MEGALITH_CODEC_FN float nvfp4Global(float amax) {
  return amax / (kE2m1Max * kE4m3Max);
}

/// NVFP4: scale of a block whose largest magnitude is `amax`, as e4m3. A block of zeros gets 1;
/// what would round to zero, or overflow, the least or largest scale; a NaN gives NaN.
MEGALITH_CODEC_FN uint32_t nvfp4Scale(float amax, float global) {
  if (amax == 0)
    return kE4m3One;
  const uint32_t byte = e4m3Bits(amax / (kE2m1Max * global));
  return byte == 0 ? kE4m3Least : byte;
}

/// NVFP4: what a value is divided by before it becomes a code.
MEGALITH_CODEC_FN float nvfp4Divisor(uint32_t scale, float global) {
  return e4m3Value(scale) * global;
}

/// MXFP4: scale of a block whose largest magnitude is `amax`, as e8m0: 2^(floor(log2 amax) - 2),
/// so that the largest magnitude lies in [4, 8) and may saturate. Zeros get 1, NaN and infinity
/// NaN.
MEGALITH_CODEC_FN uint32_t mxfp4Scale(float amax) {
  const uint32_t exponent = codecBits(amax) >> 23 & 0xFFu;
  if (exponent == 0xFF)
    return kE8m0Nan;
  if (amax == 0)
    return kE8m0One;
  return exponent < 2 ? 0u : exponent - 2;
}

} // namespace megalith::models

#undef MEGALITH_CODEC_FN
#endif // MEGALITH_MODELS_WEIGHTS_BLOCK_CODEC_H
