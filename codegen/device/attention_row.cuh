// The attention of a single row whose query heads have a consumer warp each: the warps bring their
// words to registers themselves, so that nobody hands them on.
#pragma once

#include "codegen/device/attention.cuh"

namespace megalith {

/// What a consumer lane has of the raw projections: channels 32 i + lane, each in the half lane % 2
/// of its word, of the warp's query head and, in warp 0 of the tile with the new position, of its
/// key and value.
template <class C> struct HeadWords {
  static constexpr int kEach = AttentionShape<C>::kPerLane;
  uint32_t word[3 * kEach]; // query, key, value
};

/// Consumer warp: brings them (E: the edge of the qkv exchange, age 1).
template <class C, class E, class Cta>
MEGALITH_DEVICE void poll_heads(const Cta &cta, const AttentionTile &tile, HeadWords<C> &words) {
  using S = AttentionShape<C>;
  using X = typename E::Exchange;
  static_assert(C::kRows == 1 && S::kGroup <= kConsumerWarps && X::kWidth >= S::kQkvWidth / 2);
  constexpr int kHead = S::kDim / 2, kEach = S::kPerLane, kLast = S::kGroup - 1;
  const uint32_t *set = set_of<X>(cta, E::kAge) + cta.lane / 2;
  // Warps without a head have the last one's, those without the new key their query once more.
  const int head = S::kGroup == kConsumerWarps || cta.role_warp < kLast ? cta.role_warp : kLast;
  const uint32_t *query = set + (tile.kv_head * S::kGroup + head) * kHead;
  const bool has_key = cta.role_warp == 0 && tile.first_new() < tile.end;
  const uint32_t *key = has_key ? set + (C::kQHeads + tile.kv_head) * kHead : query;
  const uint32_t *value = has_key ? key + C::kKvHeads * kHead : query;
  const uint32_t *from[3 * kEach];
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kEach; ++i) {
    from[i] = query + 16 * i;
    from[kEach + i] = key + 16 * i;
    from[2 * kEach + i] = value + 16 * i;
  }
  gather_lane_words<E>(cta, from, words.word);
}

/// Consumer: as attention_begin, with the warp's words in registers.
template <class C, class Cta>
MEGALITH_DEVICE void
attention_begin(const Cta &cta, const AttentionTile &tile, const HeadWords<C> &words,
                const AttentionConstants<C> &constants, AttentionState<C> &state) {
  using S = AttentionShape<C>;
  constexpr int kEach = S::kPerLane;
  const bool is_high = cta.lane % 2 != 0;
  const auto half = [&](uint32_t word) { return is_high ? word >> 16 : word & 0xFFFFu; };
  float x[2][kEach];
  bf16 value[kEach];
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kEach; ++i) {
    x[0][i] = bits_to_float(half(words.word[i]) << 16);
    x[1][i] = bits_to_float(half(words.word[kEach + i]) << 16);
    value[i] = {static_cast<uint16_t>(half(words.word[2 * kEach + i]))};
  }
  detail::begin_row<C>(cta, tile, x, value, constants, state);
  consumer_sync();
}

} // namespace megalith
