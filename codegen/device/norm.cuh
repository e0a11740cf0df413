// RMS norm of activation rows, in place, replicated on every SM that reads them.
#pragma once

#include "codegen/device/rows.cuh"

namespace megalith {

inline constexpr int kWeightless = -1;

/// Norm of the kWidth-wide rows of X with the bf16 gains in buffer slot `Weight` (16 B aligned), or
/// kWeightless.
template <class X, int Weight, float Epsilon> struct RmsNorm {
  using Rows = X;
  static constexpr int kWeight = Weight;
  static constexpr float kEpsilon = Epsilon;
};

namespace detail {

inline constexpr uint32_t kOnes = 0x3F803F80; // 1.0, twice

/// This thread's gains of vectors first, first + 256, ...; ones where there is no weight.
template <class N, int Count, class Cta>
MEGALITH_DEVICE void load_gains(const Cta &cta, int first, u32x4 (&gains)[Count]) {
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < Count; ++u) {
    gains[u] = {kOnes, kOnes, kOnes, kOnes};
    if constexpr (N::kWeight != kWeightless) {
      const auto *weight = static_cast<const unsigned char *>(cta.args.buffer[N::kWeight]);
      if (first + 256 * u < N::Rows::kWidth / 8)
        gains[u] = platform::ld_const<u32x4>(weight + 16 * (first + 256 * u));
    }
  }
}

MEGALITH_DEVICE float add_squares(float sum, uint32_t pair) {
  return platform::fmaf_(hi16(pair), hi16(pair), platform::fmaf_(lo16(pair), lo16(pair), sum));
}
MEGALITH_DEVICE uint32_t scale_pair(uint32_t pair, float scale, uint32_t gains) {
  return r16x2(lo16(pair) * scale * lo16(gains), hi16(pair) * scale * hi16(gains));
}

} // namespace detail

/// The 8 consumer warps: row r of N::Rows becomes r16(x * rsqrt(mean x^2 + eps) * w), statistics
/// and product in fp32, one rounding (models.md, section 1b). All warps share every row, a thread
/// taking the same vectors of each, so a row's bits do not depend on how many there are. The warps'
/// sums meet in the 32 B between rows. Ends with all rows done and visible to all consumer warps.
template <class N, class Cta> MEGALITH_DEVICE void rms_norm(const Cta &cta) {
  using X = typename N::Rows;
  constexpr int kVectors = X::kWidth / 8, kEach = (kVectors + 255) / 256;
  static_assert(X::kStride >= 2 * X::kPadded + 4 * kConsumerWarps);
  const int first = 32 * cta.role_warp + cta.lane;
  u32x4 gains[kEach];
  detail::load_gains<N>(cta, first, gains); // on their way during the sums
  MEGALITH_UNROLL(1)
  for (int r = 0; r < X::kCount; ++r) {
    unsigned char *row = X::row(cta, r);
    float sum = 0;
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < kEach; ++u)
      if (first + 256 * u < kVectors) {
        const auto x = platform::ld_shared<u32x4>(row + 16 * (first + 256 * u));
        sum = detail::add_squares(sum, x.x);
        sum = detail::add_squares(sum, x.y);
        sum = detail::add_squares(sum, x.z);
        sum = detail::add_squares(sum, x.w);
      }
    MEGALITH_UNROLL(5)
    for (int mask = 16; mask > 0; mask /= 2)
      sum += platform::shfl_xor(sum, mask);
    if (cta.lane == 0)
      platform::st_shared(row + 2 * X::kPadded + 4 * cta.role_warp, sum);
  }
  consumer_sync();
  MEGALITH_UNROLL(1)
  for (int r = 0; r < X::kCount; ++r) {
    unsigned char *row = X::row(cta, r);
    float sum = 0;
    MEGALITH_UNROLL(8)
    for (int warp = 0; warp < kConsumerWarps; ++warp)
      sum += platform::ld_shared<float>(row + 2 * X::kPadded + 4 * warp);
    const float scale = platform::rsqrtf_(platform::fmaf_(sum, 1.0f / X::kWidth, N::kEpsilon));
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < kEach; ++u)
      if (first + 256 * u < kVectors) {
        unsigned char *at = row + 16 * (first + 256 * u);
        const auto x = platform::ld_shared<u32x4>(at);
        platform::st_shared(at, u32x4{detail::scale_pair(x.x, scale, gains[u].x),
                                      detail::scale_pair(x.y, scale, gains[u].y),
                                      detail::scale_pair(x.z, scale, gains[u].z),
                                      detail::scale_pair(x.w, scale, gains[u].w)});
      }
  }
  consumer_sync();
}

} // namespace megalith
