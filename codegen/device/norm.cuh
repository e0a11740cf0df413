// RMS norm of activation rows, in place, replicated on every SM that reads them.
#pragma once

#include "codegen/device/rows.cuh"
#include "codegen/device/warp_sums.cuh"

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

MEGALITH_DEVICE float add_squares(float sum, uint32_t pair) {
  return platform::fmaf_(hi16(pair), hi16(pair), platform::fmaf_(lo16(pair), lo16(pair), sum));
}
MEGALITH_DEVICE uint32_t scale_pair(uint32_t pair, float scale, uint32_t gains) {
  return r16x2(lo16(pair) * scale * lo16(gains), hi16(pair) * scale * hi16(gains));
}

} // namespace detail

/// A lane's gains of its warp's chunk of the rows of X: vectors lane, lane + 32, ...
template <class X> struct Gains {
  static constexpr int kVectors = X::kChunk / 8, kEach = (kVectors + 31) / 32;
  u32x4 v[kEach];
};

/// Consumer warp: loads them. Before the rows are waited for: gains come from HBM.
template <class N, class Cta> MEGALITH_DEVICE Gains<typename N::Rows> load_gains(const Cta &cta) {
  using G = Gains<typename N::Rows>;
  G gains;
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < G::kEach; ++u) {
    const int i = cta.lane + 32 * u, vector = G::kVectors * cta.role_warp + i;
    gains.v[u] = {detail::kOnes, detail::kOnes, detail::kOnes, detail::kOnes};
    if constexpr (N::kWeight != kWeightless) {
      const auto *weight = static_cast<const unsigned char *>(cta.template buffer<N::kWeight>());
      if (i < G::kVectors && 8 * vector < N::Rows::kWidth)
        gains.v[u] = platform::ld_const<u32x4>(weight + 16 * vector);
    }
  }
  return gains;
}

namespace detail {
/// All consumer warps: the sum of what each lane has, in the order of the chunks; `sums` has room
/// for one of each warp.
MEGALITH_DEVICE float sum_over_row(float sum, unsigned char *sums, int warp, int lane) {
  MEGALITH_UNROLL(5)
  for (int mask = 16; mask > 0; mask /= 2)
    sum += platform::shfl_xor(sum, mask);
  if (lane == 0)
    platform::st_shared(sums + 4 * warp, sum);
  consumer_sync();
  float total = 0;
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kConsumerWarps / 4; ++i) {
    const auto v = platform::ld_shared<u32x4>(sums + 16 * i);
    total =
        total + bits_to_float(v.x) + bits_to_float(v.y) + bits_to_float(v.z) + bits_to_float(v.w);
  }
  return total;
}

/// rms_norm of the only row of X, which stays in registers while warps meet.
template <class X>
MEGALITH_COLD void rms_norm_row(int warp, int lane, Gains<X> gains, float epsilon) {
  using G = Gains<X>;
  static_assert(X::kStride >= 2 * X::kPadded + 4 * kConsumerWarps);
  unsigned char *const row = platform::smem() + X::kOffset;
  unsigned char *const chunk = row + 2 * X::kChunk * warp + 16 * lane;
  const auto has_vector = [&](int u) {
    return G::kVectors % 32 == 0 || lane + 32 * u < G::kVectors;
  };
  u32x4 x[G::kEach] = {};
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < G::kEach; ++u)
    if (has_vector(u))
      x[u] = platform::ld_shared<u32x4>(chunk + 512 * u);
  float sum = 0;
  MEGALITH_UNROLL_ALL
  for (const u32x4 &v : x)
    sum = add_squares(add_squares(add_squares(add_squares(sum, v.x), v.y), v.z), v.w);
  sum = sum_over_row(sum, row + 2 * X::kPadded, warp, lane);
  const float scale = platform::rsqrtf_(platform::fmaf_(sum, 1.0f / X::kWidth, epsilon));
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < G::kEach; ++u)
    if (const u32x4 &g = gains.v[u]; has_vector(u))
      platform::st_shared(chunk + 512 * u,
                          u32x4{scale_pair(x[u].x, scale, g.x), scale_pair(x[u].y, scale, g.y),
                                scale_pair(x[u].z, scale, g.z), scale_pair(x[u].w, scale, g.w)});
  platform::warp_sync();
}

/// rms_norm of the rows of X, the first of which is at `rows`; four rows at a time, so that their
/// latencies overlap. Out of line: a layer norms rows of one shape twice.
template <class X>
MEGALITH_COLD void rms_norm_rows(unsigned char *rows, int warp, int lane, Gains<X> gains,
                                 float epsilon) {
  using G = Gains<X>;
  static_assert(X::kStride >= 2 * X::kPadded + 4 * kConsumerWarps);
  constexpr int kAtOnce = X::kCount < 4 ? X::kCount : 4, kPair = 2;
  static_assert(X::kCount % kAtOnce == 0 && X::kCount <= 32);
  unsigned char *const chunk = rows + 2 * X::kChunk * warp + 16 * lane;
  const auto has_vector = [&](int u) {
    return G::kVectors % 32 == 0 || lane + 32 * u < G::kVectors;
  };
  MEGALITH_UNROLL(1)
  for (int first = 0; first < X::kCount; first += kAtOnce) {
    float sums[kAtOnce] = {};
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kAtOnce; ++i) {
      MEGALITH_UNROLL_ALL
      for (int u = 0; u < G::kEach; ++u)
        if (has_vector(u)) {
          const auto x = platform::ld_shared<u32x4>(chunk + (first + i) * X::kStride + 512 * u);
          sums[i] = add_squares(sums[i], x.x);
          sums[i] = add_squares(sums[i], x.y);
          sums[i] = add_squares(sums[i], x.z);
          sums[i] = add_squares(sums[i], x.w);
        }
    }
    const float sum = sums_over_warp(sums, lane);
    if (lane % (32 / kAtOnce) == 0)
      platform::st_shared(rows + (first + summed_value<kAtOnce>(lane)) * X::kStride +
                              2 * X::kPadded + 4 * warp,
                          sum);
  }
  consumer_sync();
  // Lane r has the scale of row r.
  float sum = 0;
  const unsigned char *parts = rows + (lane < X::kCount ? lane : 0) * X::kStride + 2 * X::kPadded;
  MEGALITH_UNROLL(8)
  for (int w = 0; w < kConsumerWarps; ++w)
    sum += platform::ld_shared<float>(parts + 4 * w);
  const float own = platform::rsqrtf_(platform::fmaf_(sum, 1.0f / X::kWidth, epsilon));
  MEGALITH_UNROLL(1)
  for (int first = 0; first < X::kCount; first += kPair) {
    float scale[kPair];
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kPair; ++i)
      scale[i] = platform::shfl(own, first + i);
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < G::kEach; ++u)
      if (has_vector(u)) {
        unsigned char *at = chunk + first * X::kStride + 512 * u;
        const u32x4 &g = gains.v[u];
        u32x4 x[kPair];
        MEGALITH_UNROLL_ALL
        for (int i = 0; i < kPair; ++i)
          x[i] = platform::ld_shared<u32x4>(at + i * X::kStride);
        MEGALITH_UNROLL_ALL
        for (int i = 0; i < kPair; ++i)
          platform::st_shared(at + i * X::kStride, u32x4{scale_pair(x[i].x, scale[i], g.x),
                                                         scale_pair(x[i].y, scale[i], g.y),
                                                         scale_pair(x[i].z, scale[i], g.z),
                                                         scale_pair(x[i].w, scale[i], g.w)});
      }
  }
  platform::warp_sync();
}
} // namespace detail

/// The 8 consumer warps: row r of N::Rows becomes r16(x * rsqrt(mean x^2 + eps) * w), statistics
/// and product in fp32, one rounding (models.md, section 1b). Each warp takes its own chunk of
/// every row, so a row's bits do not depend on how many there are, and what a warp multiplies next
/// it has normed itself. The chunks' sums meet in the 32 B between rows, where the meeting of
/// refill keeps them until all have read them.
template <class N, class Cta>
MEGALITH_DEVICE void rms_norm(const Cta &cta, const Gains<typename N::Rows> &gains) {
  using X = typename N::Rows;
  if constexpr (X::kCount == 1)
    detail::rms_norm_row<X>(cta.role_warp, cta.lane, gains, N::kEpsilon);
  else
    detail::rms_norm_rows<X>(X::row(cta, 0), cta.role_warp, cta.lane, gains, N::kEpsilon);
}

/// The same where rows are there already and nothing is gained by loading the gains ahead.
template <class N, class Cta> MEGALITH_DEVICE void rms_norm(const Cta &cta) {
  rms_norm<N>(cta, load_gains<N>(cta));
}

} // namespace megalith
