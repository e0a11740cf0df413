// What the epilogue warp of the only row does with an m-tile, from the wait for its sums to the
// stores of its words: take_part, or with `factors` take_scaled, and the epilogue_… of the same
// name as one function.
//
// Everybody waits for these words. So where they go is looked up before the sums are waited for,
// each lane adds up what it publishes itself, and the lanes share the stores to the ranks.
#pragma once

#include "codegen/device/expert_norm.cuh"

namespace megalith {

namespace detail {
/// Lanes for each of Words words, which are at most all lanes of a warp.
template <int Words>
inline constexpr int kWordLanes = Words > 16  ? 1
                                  : Words > 8 ? 2
                                  : Words > 4 ? 4
                                  : Words > 2 ? 8
                                  : Words > 1 ? 16
                                              : 32;
/// Strips of the largest m-tile.
template <class L>
inline constexpr int kMostStrips = L::kUnit < L::kTileStrips ? L::kUnit : L::kTileStrips;
} // namespace detail

template <class Full, class Free, class P, class L, class E, class Cta, class... Factors>
MEGALITH_DEVICE void forward_words(Cta &cta, int tile, const Factors &...factors) {
  static_assert(E::Exchange::kOwn == L::kStrips);
  constexpr int kLanes = detail::kWordLanes<detail::kMostStrips<L>>;
  const PublishPlaces<E, kLanes> places(cta, 0, tile_first<L>(cta, tile),
                                        tile_strips<L>(cta, tile));
  const FloatPair sum = take_strip<Full, Free, P>(cta, cta.lane / kLanes, factors...);
  platform::mark<platform::verb::Publish, E>();
  places.store(pair_word(sum.x, sum.y));
  platform::mark_end();
}

template <class Full, class Free, class P, class L, class E, class Cta, class... Factors>
MEGALITH_DEVICE void forward_logits(Cta &cta, int tile, float multiplier,
                                    const Factors &...factors) {
  static_assert(E::Exchange::kOwn == L::kOutputs);
  constexpr int kLanes = detail::kWordLanes<2 * detail::kMostStrips<L>>;
  const int channel = 2 * tile_first<L>(cta, tile), left = L::kOutputs - channel;
  const int channels = 2 * tile_strips<L>(cta, tile), mine = cta.lane / kLanes;
  const PublishPlaces<E, kLanes> places(cta, 0, channel, channels < left ? channels : left);
  const FloatPair sum = take_strip<Full, Free, P>(cta, mine / 2, factors...);
  platform::mark<platform::verb::Publish, E>();
  places.store(float_word((mine % 2 == 0 ? sum.x : sum.y) * multiplier));
  platform::mark_end();
}

template <class Full, class Free, class P, class L, class E, class Cta, class... Factors>
MEGALITH_DEVICE void forward_logits(Cta &cta, int tile, const Factors &...factors) {
  forward_logits<Full, Free, P, L, E>(cta, tile, 1.0f, factors...);
}

/// An expert has one pair.
template <class Full, class Free, class P, class L, class E, class Cta, class... Factors>
MEGALITH_DEVICE void forward_glu(Cta &cta, int tile, const int32_t *pairs, int,
                                 const Factors &...factors) {
  static_assert(E::Exchange::kOwn * 2 == L::kStrips && L::kUnit % 2 == 0,
                "a word's two strips belong to one SM");
  const PublishPlaces<E, 8> places(cta, platform::ld_shared<int32_t>(pairs),
                                   tile_first<L>(cta, tile) / 2, tile_strips<L>(cta, tile) / 2);
  const FloatPair sum = take_strip<Full, Free, P>(cta, cta.lane / 4, factors...);
  const float mine = detail::silu(round16(sum.x)) * round16(sum.y);
  const float other = platform::shfl_xor(mine, 4); // of the word's other strip
  const bool is_low = cta.lane / 4 % 2 == 0;
  platform::mark<platform::verb::Publish, E>();
  places.store(is_low ? pair_word(mine, other) : pair_word(other, mine));
  platform::mark_end();
}

template <class Full, class Free, class P, class L, class T, class Q, int Gain, class Cta,
          class... Factors>
MEGALITH_DEVICE void forward_outputs(Cta &cta, int tile, uint32_t gain, const int32_t *pairs, int,
                                     const Factors &...factors) {
  static_assert(L::kTileStrips == kSquareStrips && L::kUnit % kSquareStrips == 0 &&
                T::Exchange::kOwn == L::kStrips && Q::Exchange::kOwn == L::kStrips / kSquareStrips);
  const int first = tile_first<L>(cta, tile), pair = platform::ld_shared<int32_t>(pairs);
  const PublishPlaces<T, 4> places(cta, pair, first, kSquareStrips);
  const PublishPlaces<Q, 32> place(cta, pair, first / kSquareStrips, 1);
  const FloatPair sum = take_strip<Full, Free, P>(cta, cta.lane / 4, factors...);
  uint32_t word = r16x2(sum.x, sum.y);
  if constexpr (Gain >= 0)
    word = r16x2(lo16(word) * lo16(gain), hi16(word) * hi16(gain));
  platform::mark<platform::verb::Publish, T>();
  places.store(rounded_word(word));
  platform::mark_end();
  float squares = 0;
  MEGALITH_UNROLL(8)
  for (int strip = 0; strip < kSquareStrips; ++strip) {
    const uint32_t t = platform::shfl(word, 4 * strip);
    squares = platform::fmaf_(lo16(t), lo16(t), squares);
    squares = platform::fmaf_(hi16(t), hi16(t), squares);
  }
  platform::mark<platform::verb::Publish, Q>();
  place.store(float_word(squares));
  platform::mark_end();
}

} // namespace megalith
