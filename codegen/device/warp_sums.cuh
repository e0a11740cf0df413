// Sums over a warp of several values at once.
#pragma once

#include "codegen/device/cta.cuh"

namespace megalith {

/// Which of N values, a power of two up to 32, sums_over_warp leaves in lane `lane`.
template <int N> MEGALITH_DEVICE int summed_value(int lane) {
  return lane / (32 / N);
}

namespace detail {
/// A step of sums_over_warp: lanes with `Mask` set go on with the upper half of the values.
template <int N, int Mask> MEGALITH_DEVICE float sum_halves(const float (&v)[N], int lane) {
  if constexpr (N == 1) {
    float sum = v[0];
    MEGALITH_UNROLL_ALL
    for (int mask = Mask; mask > 0; mask /= 2)
      sum += platform::shfl_xor(sum, mask);
    return sum;
  } else {
    const bool is_upper = (lane & Mask) != 0;
    float half[N / 2];
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < N / 2; ++i) {
      const float low = v[i], high = v[i + N / 2]; // in registers: no lane chooses an address
      half[i] = (is_upper ? +high : +low) + platform::shfl_xor(is_upper ? +low : +high, Mask);
    }
    return sum_halves<N / 2, Mask / 2>(half, lane);
  }
}
} // namespace detail

/// The sum over all lanes of one of v[0..N): of that which summed_value says. The result has the
/// bits of a butterfly 16, 8, 4, 2, 1, since the same numbers are added; but while there are
/// several values a step halves them, and costs as many shuffles as are left.
template <int N> MEGALITH_DEVICE float sums_over_warp(const float (&v)[N], int lane) {
  static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0);
  return detail::sum_halves<N, 16>(v, lane);
}

} // namespace megalith
