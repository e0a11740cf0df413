// Rotary position embedding: angles, and the rotation of one head held by a warp.
//
// The angle of pair j at position p is the fp32 product p * inverse_frequency[j], as in the
// rounding contract (docs/spec/models.md 1b); inverse_frequency is a table that the runtime rounds
// from double, because theta^(-2j/d) by fp32 exponentials would already be wrong by whole radians
// at position 1e6.
#pragma once

#include "codegen/device/cta.cuh"

namespace megalith {

/// sin and cos of an fp32 angle, |angle| <= 1e7 rad: absolute error below 1e-7, and the same bits
/// on every platform. The angle is reduced in double (error below 1e-9 rad), the polynomials are
/// fp32 Taylor series on [-pi/4, pi/4]. sin_cos(0) is exactly (0, 1).
MEGALITH_DEVICE void sin_cos(float angle, float &sine, float &cosine) {
  constexpr double kTwoOverPi = 0.63661977236758134308, kHalfPi = 1.57079632679489661923;
  constexpr double kRound = 6755399441055744.0; // 1.5 * 2^52: adding it rounds to an integer
  const double quarters = (angle * kTwoOverPi + kRound) - kRound;
  const float r = static_cast<float>(angle - quarters * kHalfPi);
  const int quadrant = static_cast<int>(quarters) & 3;
  const float z = r * r;
  float s = platform::fmaf_(z, 2.7557319e-6f, -1.9841270e-4f);
  s = platform::fmaf_(z, s, 8.3333333e-3f);
  s = platform::fmaf_(z, s, -1.6666667e-1f);
  s = platform::fmaf_(r * z, s, r);
  float c = platform::fmaf_(z, -2.7557319e-7f, 2.4801587e-5f);
  c = platform::fmaf_(z, c, -1.3888889e-3f);
  c = platform::fmaf_(z, c, 4.1666667e-2f);
  c = platform::fmaf_(z, c, -0.5f);
  c = platform::fmaf_(z, c, 1.0f);
  const float first = quadrant & 1 ? c : s, second = quadrant & 1 ? s : c;
  sine = quadrant & 2 ? -first : first;
  cosine = (quadrant + 1) & 2 ? -second : second;
}

/// The angles of one position, for this lane's pairs 32 * i + lane.
template <int RopeDim> struct Rotation {
  static_assert(RopeDim % 64 == 0);
  static constexpr int kPairs = RopeDim > 0 ? RopeDim / 64 : 1;
  int position = -1;
  float sine[kPairs], cosine[kPairs];

  /// Turns to position `to`, given the inverse frequencies of the pairs; costs nothing where it is
  /// there already.
  MEGALITH_DEVICE void turn_to(int to, const float (&frequency)[kPairs]) {
    if (to == position)
      return;
    position = to;
    if constexpr (RopeDim > 0) {
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < kPairs; ++i)
        sin_cos(static_cast<float>(to) * frequency[i], sine[i], cosine[i]);
    }
  }
};

/// Rotates a head whose channel 32 * i + lane is x[i]: half-split pairs (j, j + RopeDim / 2) for
/// j < RopeDim / 2, results rounded to bf16; channels from RopeDim on stay. RopeDim is a multiple
/// of 64, so both channels of a pair are in one lane. Position 0 changes nothing.
template <int RopeDim, int N>
MEGALITH_DEVICE void rotate_head(float (&x)[N], const Rotation<RopeDim> &rotation) {
  static_assert(RopeDim <= 32 * N);
  constexpr int kHalf = RopeDim / 64;
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kHalf; ++i) {
    const float a = x[i], b = x[i + kHalf], s = rotation.sine[i], c = rotation.cosine[i];
    x[i] = round16(platform::fmaf_(a, c, -(b * s)));
    x[i + kHalf] = round16(platform::fmaf_(b, c, a * s));
  }
}

} // namespace megalith
