//===- nvfp4_bits.h - NVFP4 as a kernel reads it -----------------*- C++ -*-===//
//
// How codes and scales are placed so that a Hopper SM turns them into operands of mma with few
// instructions (docs/kernel-contract.md section 1): pure functions for the host's packing and for
// the kernel that makes weights up. What undoes them is codegen/device/nvfp4.cuh.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_NVFP4_BITS_H
#define MEGALITH_RUNTIME_NVFP4_BITS_H

#ifndef __CUDACC_RTC__
#include <cstdint>
#endif

#ifdef __CUDACC__
#define MEGALITH_BITS_FN __host__ __device__ inline
#else
#define MEGALITH_BITS_FN inline
#endif

namespace megalith {

/// Kernels multiply by operands that are 2^-14 of code * scale, and by 2^14 of the global factor:
/// both exact, and no operand is a bf16 subnormal.
constexpr float kNvfp4FactorScale = 0x1p14f;

/// Where the code of (row, column) lies in what a lane holds of a k16 step, 32 bits. `place` is the
/// word of an mma's A fragment that it goes to: 0: row g, k and k + 1; 1: row g + 8; 2: row g,
/// k + 2 and k + 3; 3: row g + 8; `odd` is 1 for k + 1 and k + 3, the word's high half. Its sign
/// and its other three bits are apart, so that masks and shifts leave a bf16 number: sign at bit
/// 15, the three at bits 8..6, which is the code's value times 2^-126.
MEGALITH_BITS_FN uint32_t nvfp4Placed(uint32_t code, uint32_t place, uint32_t odd) {
  const uint32_t sign = code >> 3 & 1u, rest = code & 7u;
  switch (place) {
  case 0:
    return (sign << 15 | rest << 6) << 16 * odd;
  case 1:
    return (sign << 9 | rest) << 16 * odd;
  case 2:
    return (sign << 11 | rest << 3) << 16 * odd;
  default:
    return (sign << 10 | rest << 12) << 16 * odd;
  }
}

/// The same of two neighbouring steps of a group, `step` 0 or 1, whose words are the low and the
/// high half of 64 bits. Three of a word's four pairs of codes are one rotation and one mask away
/// (by 0, 4 and 10 bits to the left); bits of 16 have no fourth such place, but what is left of
/// both words together has two: bits 0, 1, 9 and 10 of each half of the first and, two to the
/// left, of the second, rotated by 6 and by 12.
MEGALITH_BITS_FN uint64_t nvfp4PlacedInPair(uint32_t code, uint32_t place, uint32_t odd,
                                            uint32_t step) {
  const uint64_t sign = code >> 3 & 1u, rest = code & 7u;
  const uint32_t half = 16 * odd, other = 16 - half, word = 32 * step;
  switch (place) {
  case 0:
    return (sign << 15 | rest << 6) << (word + half);
  case 1:
    return (sign << 11 | rest << 2) << (word + half);
  case 2:
    return sign << (word + half + 5) | rest << (word + other + 12);
  default:
    if (step == 0)
      return (sign << 9 | (rest & 3)) << half | rest >> 2 << (32 + half);
    return sign << (32 + half + 1) | (rest & 1) << (other + 10) | rest >> 1 << (32 + other + 9);
  }
}

/// An e4m3 scale as a normalised number of 5 exponent and 3 mantissa bits: (1 + m / 8) * 2^(e - 9).
/// Scales are positive; zero has no such form (its codes must be zero, any scale does) and gives 0.
MEGALITH_BITS_FN uint32_t nvfp4PackedScale(uint32_t e4m3) {
  const uint32_t magnitude = e4m3 & 0x7Fu;
  if (magnitude >= 8) // exponent - 7 = e - 9
    return magnitude + (2u << 3);
  if (magnitude == 0)
    return 0;
  const uint32_t shift = magnitude >= 4 ? 1 : magnitude >= 2 ? 2 : 3; // until bit 3 is set
  return (3u - shift) << 3 | ((magnitude << shift) & 7u);
}

} // namespace megalith

#undef MEGALITH_BITS_FN
#endif // MEGALITH_RUNTIME_NVFP4_BITS_H
