// Plain types of device code: no CUDA vector types, so the same source builds on the host.
#pragma once

#include "runtime/abi.h"

/// Prefix of every function that kernels call; COLD for what is long and rarely runs, kept out of
/// line.
#ifdef MEGALITH_HOST
#define MEGALITH_DEVICE inline
#define MEGALITH_COLD inline
#else
#define MEGALITH_DEVICE __device__ __forceinline__
#define MEGALITH_COLD inline __device__ __noinline__
#endif

namespace megalith {

struct alignas(8) u32x2 {
  uint32_t x, y;
};

struct alignas(16) u32x4 {
  uint32_t x, y, z, w;
};

/// A 16-byte scalar: strong accesses of it are single (`.b128`), unlike those of u32x4.
struct alignas(16) U128 {
  uint32_t x, y, z, w;
};

struct bf16 {
  uint16_t bits;
};

MEGALITH_DEVICE float bits_to_float(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
MEGALITH_DEVICE uint32_t float_to_bits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

MEGALITH_DEVICE float to_float(bf16 value) {
  return bits_to_float(uint32_t{value.bits} << 16);
}

/// Rounds to nearest even. Every NaN becomes 0x7FFF (what the machine's conversion gives).
/// Defined by the platform.
MEGALITH_DEVICE bf16 r16(float value);

/// r16 of two values in one word: `lo` in bits 0..15, `hi` in bits 16..31. Defined by the platform.
MEGALITH_DEVICE uint32_t r16x2(float lo, float hi);

/// The value rounded to bf16, as fp32.
MEGALITH_DEVICE float round16(float value) {
  return bits_to_float(r16x2(0, value)); // one instruction, and a quick one
}

/// The two bf16 of a word, widened.
MEGALITH_DEVICE float lo16(uint32_t word) {
  return bits_to_float(word << 16);
}
MEGALITH_DEVICE float hi16(uint32_t word) {
  return bits_to_float(word & 0xFFFF0000u);
}

} // namespace megalith
