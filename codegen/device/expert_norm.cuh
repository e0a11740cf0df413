// The norm of each expert's output before it is weighted, and the weighted sum: an SM keeps its
// slice of every pair's output, and only sums of squares travel.
//
// The sums are of 16 channels each, eight strips, whoever has them: what is added in which order
// depends on the width alone.
#pragma once

#include "codegen/device/epilogue.cuh"
#include "codegen/device/gather.cuh"

namespace megalith {

/// Strips whose squares are added before they travel.
inline constexpr int kSquareStrips = 8;

/// Epilogue, after the last expert: Y, the SM's slice `[pair][L::kUnit]` of the outputs, becomes
/// t = r16(y * gain), with bf16 gains in buffer slot `Gain` (kWeightless: t = y), and the sums of
/// t^2 go out as fp32 words `[pair][kStrips / 8]` of E.
template <class L, class E, class Y, int Gain, class Cta>
MEGALITH_DEVICE void publish_squares(const Cta &cta) {
  static_assert(L::kOutputs % (2 * kSquareStrips) == 0 && L::kUnit % kSquareStrips == 0 &&
                E::Exchange::kOwn == L::kStrips / kSquareStrips && Y::kWidth == L::kUnit);
  constexpr int kGroups = L::kUnit / kSquareStrips;
  const int groups = slice_strips<L>(cta) / kSquareStrips, first = cta.sm * kGroups;
  platform::warp_sync();
  platform::mark<platform::verb::Publish, E>();
  MEGALITH_UNROLL(1)
  for (int i = cta.lane; i < Y::kCount * kGroups; i += 32) {
    const int pair = i / kGroups, group = i % kGroups;
    if (group >= groups)
      continue;
    uint32_t *y = Y::row(cta, pair) + kSquareStrips * group;
    float sum = 0;
    MEGALITH_UNROLL(8)
    for (int s = 0; s < kSquareStrips; ++s) {
      uint32_t t = platform::ld_shared<uint32_t>(y + s);
      if constexpr (Gain >= 0) {
        const auto *gains = static_cast<const uint32_t *>(cta.template buffer<Gain>());
        const auto gain = platform::ld_const<uint32_t>(gains + (first + group) * kSquareStrips + s);
        t = r16x2(lo16(t) * lo16(gain), hi16(t) * hi16(gain));
        platform::st_shared(y + s, t);
      }
      sum = platform::fmaf_(lo16(t), lo16(t), sum);
      sum = platform::fmaf_(hi16(t), hi16(t), sum);
    }
    publish<E>(cta, pair, first + group, float_word(sum));
  }
  platform::mark_end();
}

/// Epilogue: waits for all sums of E and leaves rsqrt(mean t^2 + Epsilon) of every pair in the one
/// row of Scales, a WordRows. `Width`: channels of a pair.
template <class E, class Scales, int Width, float Epsilon, class Cta>
MEGALITH_DEVICE void poll_scales(const Cta &cta) {
  using X = typename E::Exchange;
  static_assert(Scales::kWidth == X::kCount && X::kWidth % 4 == 0);
  constexpr int kVectors = X::kWidth / 4, kEach = (kVectors + 31) / 32; // of a pair, of a lane
  // As many pairs together as registers hold vectors.
  constexpr int kMost = kEach < 8 ? 8 / kEach : 1, kPairs = kMost < X::kCount ? kMost : X::kCount;
  MEGALITH_UNROLL(1)
  for (int first = 0; first < X::kCount; first += kPairs) {
    u32x4 sums[kPairs * kEach];
    const auto place = [&](int j) {
      const int pair = first + j / kEach, vector = cta.lane + 32 * (j % kEach);
      return pair < X::kCount && vector < kVectors ? pair * kVectors + vector : -1;
    };
    gather_registers<E>(cta, set_of<X>(cta, 0), place, sums);
    await_hop<X>(cta, 0, X::kWidth);
    MEGALITH_UNROLL_ALL
    for (int p = 0; p < kPairs; ++p) {
      float sum = 0;
      MEGALITH_UNROLL_ALL
      for (int u = 0; u < kEach; ++u)
        if (const u32x4 &v = sums[p * kEach + u]; place(p * kEach + u) >= 0)
          sum = sum + bits_to_float(v.x) + bits_to_float(v.y) + bits_to_float(v.z) +
                bits_to_float(v.w);
      for (int mask = 16; mask > 0; mask /= 2)
        sum += platform::shfl_xor(sum, mask);
      const float scale = platform::rsqrtf_(platform::fmaf_(sum, 1.0f / Width, Epsilon));
      if (cta.lane == 0 && first + p < X::kCount)
        platform::st_shared(Scales::row(cta, 0) + first + p, float_to_bits(scale));
    }
  }
  platform::warp_sync();
}

/// Epilogue, after poll_scales: r16(sum over slots of weight * t * scale, in slot order) of this
/// SM's slice, as bf16 words of E. `weights` as in combine. Dead rows have no pairs: zero.
template <class L, class E, class Y, class Scales, int TopK, class Cta>
MEGALITH_DEVICE void combine_normed(const Cta &cta, const float *weights) {
  static_assert(E::Exchange::kOwn == L::kStrips && Y::kWidth == L::kUnit);
  const int strips = slice_strips<L>(cta);
  platform::mark<platform::verb::Publish, E>();
  MEGALITH_UNROLL(1)
  for (int i = cta.lane; i < Cta::Config::kRows * L::kUnit; i += 32) {
    const int row = i / L::kUnit, strip = i % L::kUnit;
    if (strip >= strips)
      continue;
    float low = 0, high = 0;
    if (cta.is_live(row))
      MEGALITH_UNROLL(2)
    for (int slot = 0; slot < TopK; ++slot) {
      const int pair = row * TopK + slot;
      const float weight = platform::ld_shared<float>(weights + pair);
      const float scale = bits_to_float(platform::ld_shared<uint32_t>(Scales::row(cta, 0) + pair));
      const uint32_t t = platform::ld_shared<uint32_t>(Y::row(cta, pair) + strip);
      low = platform::fmaf_(weight, lo16(t) * scale, low);
      high = platform::fmaf_(weight, hi16(t) * scale, high);
    }
    publish<E>(cta, row, cta.sm * L::kUnit + strip, pair_word(low, high));
  }
  platform::mark_end();
}

} // namespace megalith
