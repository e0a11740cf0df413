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
MEGALITH_DEVICE float add_squares(float sum, uint32_t pair) {
  return platform::fmaf_(hi16(pair), hi16(pair), platform::fmaf_(lo16(pair), lo16(pair), sum));
}
MEGALITH_DEVICE uint32_t scale_pair(uint32_t pair, float scale) {
  return r16x2(lo16(pair) * scale, hi16(pair) * scale);
}
MEGALITH_DEVICE uint32_t scale_pair(uint32_t pair, float scale, uint32_t gains) {
  return r16x2(lo16(pair) * scale * lo16(gains), hi16(pair) * scale * hi16(gains));
}
} // namespace detail

/// The 8 consumer warps: row r of N::Rows becomes r16(x * rsqrt(mean x^2 + eps) * w), statistics
/// and product in fp32, one rounding (models.md, section 1b). Warp r does row r, the same way for
/// any number of rows. Ends with all rows done and visible to all consumer warps.
template <class N, class Cta> MEGALITH_DEVICE void rms_norm(const Cta &cta) {
  using X = typename N::Rows;
  static_assert(X::kCount <= kConsumerWarps);
  constexpr int kVectors = X::kWidth / 8;
  if (cta.role_warp < X::kCount) {
    unsigned char *row = X::row(cta, cta.role_warp);
    float sum = 0;
    MEGALITH_UNROLL(4)
    for (int i = cta.lane; i < kVectors; i += 32) {
      const auto x = platform::ld_shared<u32x4>(row + 16 * i);
      sum = detail::add_squares(sum, x.x);
      sum = detail::add_squares(sum, x.y);
      sum = detail::add_squares(sum, x.z);
      sum = detail::add_squares(sum, x.w);
    }
    MEGALITH_UNROLL(5)
    for (int mask = 16; mask > 0; mask /= 2)
      sum += platform::shfl_xor(sum, mask);
    const float scale = platform::rsqrtf_(platform::fmaf_(sum, 1.0f / X::kWidth, N::kEpsilon));
    MEGALITH_UNROLL(4)
    for (int i = cta.lane; i < kVectors; i += 32) {
      auto x = platform::ld_shared<u32x4>(row + 16 * i);
      if constexpr (N::kWeight == kWeightless) {
        x = {detail::scale_pair(x.x, scale), detail::scale_pair(x.y, scale),
             detail::scale_pair(x.z, scale), detail::scale_pair(x.w, scale)};
      } else {
        const auto *gains = static_cast<const unsigned char *>(cta.args.buffer[N::kWeight]);
        const auto w = platform::ld_const<u32x4>(gains + 16 * i);
        x = {detail::scale_pair(x.x, scale, w.x), detail::scale_pair(x.y, scale, w.y),
             detail::scale_pair(x.z, scale, w.z), detail::scale_pair(x.w, scale, w.w)};
      }
      platform::st_shared(row + 16 * i, x);
    }
  }
  consumer_sync();
}

} // namespace megalith
