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

inline constexpr int kGainsInFlight = 8; // loads of gains a lane has under way at once

/// This lane's gains of vectors first, first + 32, ...; ones where there is no weight.
template <class N, class Cta>
MEGALITH_DEVICE void load_gains(const Cta &cta, int first, u32x4 (&gains)[kGainsInFlight]) {
  constexpr uint32_t kOnes = 0x3F803F80; // 1.0, twice
  MEGALITH_UNROLL(kGainsInFlight)
  for (int u = 0; u < kGainsInFlight; ++u) {
    gains[u] = {kOnes, kOnes, kOnes, kOnes};
    if constexpr (N::kWeight != kWeightless) {
      const auto *weight = static_cast<const unsigned char *>(cta.args.buffer[N::kWeight]);
      if (first + 32 * u < N::Rows::kWidth / 8)
        gains[u] = platform::ld_const<u32x4>(weight + 16 * (first + 32 * u));
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
/// and product in fp32, one rounding (models.md, section 1b). Warp r does row r, the same way for
/// any number of rows. Ends with all rows done and visible to all consumer warps.
template <class N, class Cta> MEGALITH_DEVICE void rms_norm(const Cta &cta) {
  using X = typename N::Rows;
  static_assert(X::kCount <= kConsumerWarps);
  constexpr int kVectors = X::kWidth / 8, kBatch = detail::kGainsInFlight;
  if (cta.role_warp < X::kCount) {
    unsigned char *row = X::row(cta, cta.role_warp);
    u32x4 gains[kBatch];
    detail::load_gains<N>(cta, cta.lane, gains); // on their way during the sum
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
    for (int first = cta.lane; first < kVectors; first += 32 * kBatch) {
      if (first != cta.lane)
        detail::load_gains<N>(cta, first, gains);
      MEGALITH_UNROLL(kBatch)
      for (int u = 0; u < kBatch; ++u)
        if (first + 32 * u < kVectors) {
          unsigned char *at = row + 16 * (first + 32 * u);
          const auto x = platform::ld_shared<u32x4>(at);
          platform::st_shared(at, u32x4{detail::scale_pair(x.x, scale, gains[u].x),
                                        detail::scale_pair(x.y, scale, gains[u].y),
                                        detail::scale_pair(x.z, scale, gains[u].z),
                                        detail::scale_pair(x.w, scale, gains[u].w)});
        }
    }
  }
  consumer_sync();
}

} // namespace megalith
