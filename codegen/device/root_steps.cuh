// 1 / sqrt(x) with the bits of two correctly rounded steps, from the machine's estimate: a dozen
// instructions in a row, where a root and a division that take any number are 40, with branches to
// subroutines. Norms wait for it on every way from words to products.
#pragma once

#include "codegen/device/types.cuh"

namespace megalith::platform {

/// 1 / s rounded, of s = sqrt(x) rounded; `r` is 1 / sqrt(x) to within two units of its last place
/// (PTX gives rsqrt.approx 2^-22.9). For x from 2^-100 to the largest fp32; of infinity 0, of 0 and
/// NaN NaN. fma(a, b, c) rounds once.
template <class Fma> MEGALITH_DEVICE float root_steps(float x, float r, Fma fma) {
  r = fma(0.5f * r, fma(-(x * r), r, 1.0f), r);
  float s = x * r;
  s = fma(fma(-s, s, x), 0.5f * r, s);
  float q = fma(fma(-s, r, 1.0f), r, r);
  q = fma(fma(-s, q, 1.0f), q, q);
  // Of one significand, all ones, the last step ends in a tie, below what is right.
  const bool is_tie = (float_to_bits(s) & 0x7FFFFFu) == 0x7FFFFFu;
  return is_tie ? bits_to_float(float_to_bits(q) + 1) : q;
}

} // namespace megalith::platform
