// The norm of each expert's output before it is weighted, and the weighted sum: outputs of pairs
// stay on the rank that has their columns, only sums of squares travel.
//
// The sums are of 16 channels each, a tile of eight strips, whoever has it: what is added in which
// order depends on the width alone.
#pragma once

#include "codegen/device/epilogue.cuh"
#include "codegen/device/gather.cuh"
#include "codegen/device/warp_sums.cuh"

namespace megalith {

/// Strips whose squares are added before they travel.
inline constexpr int kSquareStrips = 8;

/// Epilogue: this lane's word of the bf16 gains in buffer slot `Gain`, for its strip of `tile`;
/// load it before the wait for the sums. kWeightless: nothing.
template <class L, int Gain, class Cta>
MEGALITH_DEVICE uint32_t output_gain(const Cta &cta, int tile) {
  if constexpr (Gain < 0)
    return 0;
  else
    return platform::ld_const<uint32_t>(static_cast<const uint32_t *>(cta.template buffer<Gain>()) +
                                        tile_first<L>(cta, tile) + cta.lane / 4);
}

namespace detail {
/// t of a column tile's sums, in place: words of this lane's two pairs.
MEGALITH_DEVICE void weighted_words(uint32_t (&word)[2], const Fragment &sum, bool has_gain,
                                    uint32_t gain) {
  word[0] = r16x2(sum.v[0], sum.v[2]), word[1] = r16x2(sum.v[1], sum.v[3]);
  MEGALITH_UNROLL_ALL
  for (int i = 0; has_gain && i < 2; ++i)
    word[i] = r16x2(lo16(word[i]) * lo16(gain), hi16(word[i]) * hi16(gain));
}

/// Of all strips: those of the first of this lane's pairs if its strip is even, else of the second.
template <class Cta> MEGALITH_DEVICE float pair_squares(const Cta &cta, const uint32_t (&word)[2]) {
  float squares = 0;
  MEGALITH_UNROLL(4)
  for (int strip = 0; strip < kSquareStrips; ++strip) {
    const uint32_t even = platform::shfl(word[0], 4 * strip + cta.lane % 4);
    const uint32_t odd = platform::shfl(word[1], 4 * strip + cta.lane % 4);
    const uint32_t t = cta.lane / 4 % 2 == 0 ? even : odd;
    squares = platform::fmaf_(lo16(t), lo16(t), squares);
    squares = platform::fmaf_(hi16(t), hi16(t), squares);
  }
  return squares;
}

} // namespace detail

/// Down tile of one expert: t = r16(r16(sum) * gain), kWeightless without the gain, as bf16 words
/// `[pair][kStrips]` of T, and the sums of t^2 over the tile's 16 channels, strip by strip, as fp32
/// words `[pair][kStrips / 8]` of Q. `pairs[0..count)` (shared) are the expert's pairs, in the
/// mma's column order: `sums` are those of one or two column tiles.
template <class L, class T, class Q, int Gain, int Tiles, class Cta>
MEGALITH_DEVICE void epilogue_outputs(const Cta &cta, int tile, const Fragment (&sums)[Tiles],
                                      uint32_t gain, const int32_t *pairs, int count) {
  static_assert(L::kTileStrips == kSquareStrips && L::kUnit % kSquareStrips == 0 &&
                T::Exchange::kOwn == L::kStrips && Q::Exchange::kOwn == L::kStrips / kSquareStrips);
  const int g = cta.lane / 4, column = 2 * (cta.lane % 4), first = tile_first<L>(cta, tile);
  uint32_t word[Tiles][2];
  platform::mark<platform::verb::Publish, T>();
  MEGALITH_UNROLL_ALL
  for (int n = 0; n < Tiles; ++n) {
    detail::weighted_words(word[n], sums[n], Gain >= 0, gain);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < 2; ++i) {
      const int pair = 8 * n + column + i;
      if (pair < count)
        publish<T>(cta, platform::ld_shared<int32_t>(pairs + pair), first + g,
                   rounded_word(word[n][i]));
    }
  }
  platform::mark_end();
  float squares[Tiles];
  MEGALITH_UNROLL_ALL
  for (int n = 0; n < Tiles; ++n)
    squares[n] = n == 0 || count > 8 * n ? detail::pair_squares(cta, word[n]) : 0;
  platform::mark<platform::verb::Publish, Q>();
  MEGALITH_UNROLL_ALL
  for (int n = 0; n < Tiles; ++n) {
    const int pair = 8 * n + column + g;
    if (g < 2 && pair < count)
      publish<Q>(cta, platform::ld_shared<int32_t>(pairs + pair), first / kSquareStrips,
                 float_word(squares[n]));
  }
  platform::mark_end();
}

template <class L, class T, class Q, int Gain, class Cta>
MEGALITH_DEVICE void epilogue_outputs(const Cta &cta, int tile, const Fragment &sum, uint32_t gain,
                                      const int32_t *pairs, int count) {
  const Fragment sums[] = {sum};
  epilogue_outputs<L, T, Q, Gain>(cta, tile, sums, gain, pairs, count);
}

template <class L, class T, class Q, int Gain, class Cta>
MEGALITH_DEVICE void epilogue_outputs(const Cta &cta, int tile, const Fragments &sums,
                                      uint32_t gain, const int32_t *pairs, int count) {
  const Fragment both[] = {sums.low, sums.high};
  epilogue_outputs<L, T, Q, Gain>(cta, tile, both, gain, pairs, count);
}

/// How the pairs of a row are added: outputs of `Width` channels over all ranks. An SM has the
/// share Y::kWidth (words) of a row's: Y, a WordRows of as many rows as a row has pairs, holds it,
/// the one row of Scales the pairs' scales.
template <class Y, class Scales, int Width, float Epsilon> struct Combine {
  using Outputs = Y;
  using PairScales = Scales;
  static constexpr int kPairs = Y::kCount, kWidth = Width;
  static constexpr float kEpsilon = Epsilon;
  static_assert(Scales::kWidth == kPairs && Y::kWidth % 4 == 0);
};

/// Epilogue: waits for share `part` of the words of E, outputs of the pairs of `row`, and puts it
/// in C::Outputs. A dead row has none.
template <class C, class E, class Cta>
MEGALITH_DEVICE void poll_outputs(const Cta &cta, int row, int part) {
  using X = typename E::Exchange;
  constexpr int kVectors = C::Outputs::kWidth / 4, kRow = X::kWidth / 4; // of a share, of a pair
  constexpr int kEach = (C::kPairs * kVectors + 31) / 32, kBatch = kEach < 4 ? kEach : 4;
  const bool is_live = cta.is_live(row);
  platform::warp_sync(); // what a row before left has been read
  gather_words<E, kBatch>(
      cta, C::kPairs * kVectors, set_of<X>(cta, 0),
      [&](int i) {
        const int vector = part * kVectors + i % kVectors;
        return is_live && vector < kRow ? (row * C::kPairs + i / kVectors) * kRow + vector : -1;
      },
      [&](int i, const u32x4 &v) {
        platform::st_shared(C::Outputs::row(cta, i / kVectors) + 4 * (i % kVectors), v);
      });
}

/// Epilogue: waits for all words of E, sums of the pairs of `row`, and leaves rsqrt(mean t^2 +
/// C::kEpsilon) of each in C::PairScales. Those of a dead row, which has none, mean nothing.
template <class C, class E, class Cta> MEGALITH_DEVICE void poll_scales(const Cta &cta, int row) {
  using X = typename E::Exchange;
  static_assert(X::kWidth * 2 * kSquareStrips == C::kWidth && X::kWidth % 4 == 0);
  constexpr int kVectors = X::kWidth / 4, kEach = (kVectors + 31) / 32; // of a pair, of a lane
  // As many pairs together as registers hold vectors, a power of two: their sums share shuffles.
  constexpr int kMost = kEach <= 2 ? 8 : kEach <= 4 ? 4 : kEach <= 8 ? 2 : 1;
  constexpr int kAtOnce = kMost <= C::kPairs ? kMost : C::kPairs >= 4 ? 4 : C::kPairs >= 2 ? 2 : 1;
  const bool is_live = cta.is_live(row);
  MEGALITH_UNROLL(1)
  for (int first = 0; first < C::kPairs; first += kAtOnce) {
    u32x4 words[kAtOnce * kEach];
    const auto place = [&](int j) {
      const int pair = first + j / kEach, vector = cta.lane + 32 * (j % kEach);
      return is_live && pair < C::kPairs && vector < kVectors
                 ? (row * C::kPairs + pair) * kVectors + vector
                 : -1;
    };
    gather_registers<E>(cta, set_of<X>(cta, 0), place, words);
    await_hop<X>(cta, 0, X::kWidth);
    float sums[kAtOnce] = {};
    MEGALITH_UNROLL_ALL
    for (int p = 0; p < kAtOnce; ++p) {
      MEGALITH_UNROLL_ALL
      for (int u = 0; u < kEach; ++u)
        if (const u32x4 &v = words[p * kEach + u]; place(p * kEach + u) >= 0)
          sums[p] = sums[p] + bits_to_float(v.x) + bits_to_float(v.y) + bits_to_float(v.z) +
                    bits_to_float(v.w);
    }
    const float sum = sums_over_warp(sums, cta.lane);
    const float scale = platform::rsqrtf_(platform::fmaf_(sum, 1.0f / C::kWidth, C::kEpsilon));
    const int pair = first + summed_value<kAtOnce>(cta.lane);
    if (cta.lane % (32 / kAtOnce) == 0 && pair < C::kPairs)
      platform::st_shared(C::PairScales::row(cta, 0) + pair, float_to_bits(scale));
  }
  platform::warp_sync();
}

/// Epilogue, after poll_outputs and poll_scales: r16(sum over slots of weight * t * scale, in slot
/// order) of share `part` of `row`, as bf16 words of E. `weights` as in combine. Zero for a
/// dead row.
template <class C, class E, class Cta>
MEGALITH_DEVICE void combine_normed(const Cta &cta, int row, int part, const float *weights) {
  platform::mark<platform::verb::Publish, E>();
  MEGALITH_UNROLL(1)
  for (int i = cta.lane; i < C::Outputs::kWidth; i += 32) {
    const int word = part * C::Outputs::kWidth + i;
    if (word >= E::Exchange::kOwn)
      continue;
    float low = 0, high = 0;
    if (cta.is_live(row))
      MEGALITH_UNROLL(2)
    for (int slot = 0; slot < C::kPairs; ++slot) {
      const float weight = platform::ld_shared<float>(weights + row * C::kPairs + slot);
      const float scale =
          bits_to_float(platform::ld_shared<uint32_t>(C::PairScales::row(cta, 0) + slot));
      const uint32_t t = platform::ld_shared<uint32_t>(C::Outputs::row(cta, slot) + i);
      low = platform::fmaf_(weight, lo16(t) * scale, low);
      high = platform::fmaf_(weight, hi16(t) * scale, high);
    }
    publish<E>(cta, row, word, pair_word(low, high));
  }
  platform::mark_end();
}

} // namespace megalith
