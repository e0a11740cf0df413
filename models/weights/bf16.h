//===- bf16.h - bf16 rounding ------------------------------------*- C++ -*-===//
//
// r16 of the rounding contract (docs/spec/models.md section 1b): round to nearest-even bf16.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_WEIGHTS_BF16_H
#define MEGALITH_MODELS_WEIGHTS_BF16_H

#include <bit>
#include <cstdint>

namespace megalith::models {

/// The bits of the bf16 nearest to `value`, ties to even. Overflow gives infinity; a NaN keeps its
/// sign and becomes quiet.
inline uint16_t toBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return uint16_t((bits >> 16) | 0x40u);
  return uint16_t((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/// The value of a bf16, exactly.
inline float fromBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

/// `value` rounded to bf16.
inline float r16(float value) {
  return fromBf16(toBf16(value));
}

} // namespace megalith::models

#endif // MEGALITH_MODELS_WEIGHTS_BF16_H
