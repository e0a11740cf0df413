// Putting the splits of a sequence together: partial results travel as epoch
// words (partials.cuh) from the tile's SM to the SM of the (row, query head,
// merge part), which adds them in ascending split order.
#pragma once

#include "codegen/device/partials.cuh"

namespace megalith {

/// Poller: brings the words of all splits of a merge tile to slot `slot`.
/// Nothing to do for a dead row.
template <class C, class E, class Cta>
MEGALITH_DEVICE void poll_partials(const Cta &cta, const MergeTile &tile, int slot) {
  using S = AttentionShape<C>;
  static_assert(E::Exchange::kCount == S::kPartials);
  // As few sweeps as registers allow, on both targets: each is a round trip to
  // L2.
  constexpr int kMost = C::kRows == 1 ? 18 : 12;
  constexpr int kBatch = S::kPartWords < kMost ? S::kPartWords : kMost;
  const auto *words = static_cast<const U128 *>(cta.template buffer<E::Exchange::kBuffer>()) +
                      tile.number * (kMaxSplits * S::kPartWords);
  unsigned char *target = C::Mparts::row(cta, slot, 0);
  gather_epochs<E, kBatch, kMaxSplits * S::kPartWords>(
      cta, tile.splits * S::kPartWords, words,
      [&](int i, const U128 &v) { platform::st_shared(target + 16 * i, v); });
}

/// Consumer: the same by all warps, for themselves: what one brings all may
/// read once they meet.
template <class C, class E, class Cta>
MEGALITH_DEVICE void poll_partials(const Cta &cta, const MergeTile &tile) {
  using S = AttentionShape<C>;
  static_assert(E::Exchange::kCount == S::kPartials);
  constexpr int kThreads = 32 * kConsumerWarps, kMost = kMaxSplits * S::kPartWords;
  constexpr int kEach = (kMost + kThreads - 1) / kThreads; // of a lane
  const int first = 32 * cta.role_warp + cta.lane, count = tile.splits * S::kPartWords;
  const auto *words =
      static_cast<const U128 *>(cta.template buffer<E::Exchange::kBuffer>()) + tile.number * kMost;
  gather_own_epochs<E, kEach, kThreads>(cta, first, count, words, C::Mparts::row(cta, 0, 0));
}

namespace detail {

/// What a warp knows of the splits of a merge tile: lane s the factor of split s, all lanes the sum
/// of their weights.
struct SplitWeights {
  float factor, sum;
};

/// Of `count` splits, whose words begin at `splits`: w = 2^(m - max m) and sum w l.
template <class C>
MEGALITH_DEVICE SplitWeights weigh_splits(const unsigned char *splits, int count, int lane) {
  constexpr int kStride = AttentionShape<C>::kPartWords * 16;
  const bool mine = lane < count;
  float weight = 1; // bounded scores: all relative to 2^0
  if constexpr (!C::kBounded) {
    const float m = mine ? platform::ld_shared<float>(splits + lane * kStride) : kNoScore;
    float most = m;
    for (int mask = 16; mask > 0; mask /= 2)
      most = platform::fmaxf_(most, platform::shfl_xor(most, mask));
    weight = platform::exp2f_(m - most);
  }
  float sum = mine ? weight * platform::ld_shared<float>(splits + lane * kStride + 4) : 0.0f;
  for (int mask = 16; mask > 0; mask /= 2)
    sum += platform::shfl_xor(sum, mask);
  return {weight, sum};
}

/// Byte of channel `channel` of a part in a split's words: three floats to a word, after m and l.
MEGALITH_DEVICE int channel_place(int channel) {
  const int at = 2 + channel;
  return at / kEpochPayload * 16 + at % kEpochPayload * 4;
}

/// Sums of w o over the splits, in ascending order, of N channels of a lane, which lie at `source`
/// in the first split; zero for a dead row, which has none.
template <class C, int N>
MEGALITH_DEVICE void add_splits(const unsigned char *(&source)[N], int count, float factor,
                                float (&o)[N]) {
  // A batch of splits at a time, so that their loads are under way together; behind the last split
  // they read what is not used.
  constexpr int kStride = AttentionShape<C>::kPartWords * 16;
  constexpr int kBatch = N < 2 || (C::kBounded && N < 4) ? 8 : N < 4 ? 4 : 2;
  static_assert(kMaxSplits % kBatch == 0 && kMaxSplits <= 32);
  MEGALITH_UNROLL(1)
  for (int batch = 0; batch < count; batch += kBatch) {
    float part[kBatch][N];
    MEGALITH_UNROLL_ALL
    for (int s = 0; s < kBatch; ++s) {
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < N; ++i)
        part[s][i] = platform::ld_shared<float>(source[i] + s * kStride);
    }
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < N; ++i)
      source[i] += kBatch * kStride;
    MEGALITH_UNROLL_ALL
    for (int s = 0; s < kBatch; ++s) {
      float w = 1;
      if constexpr (!C::kBounded)
        w = platform::shfl(factor, batch + s);
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < N; ++i)
        if (batch + s < count)
          o[i] = C::kBounded ? o[i] + part[s][i] : platform::fmaf_(w, part[s][i], o[i]);
    }
  }
}

/// Combines `count` splits, whose words begin at `splits`: value[i] = sum w o / sum w l of channel
/// 32 i + lane of a merge tile's part; zero for a dead row, which has none.
template <class C>
MEGALITH_DEVICE void merged_values(const unsigned char *splits, int count, int lane,
                                   float (&value)[(AttentionShape<C>::kPartDim + 31) / 32]) {
  using S = AttentionShape<C>;
  constexpr int kEach = (S::kPartDim + 31) / 32;
  const SplitWeights weights = weigh_splits<C>(splits, count, lane);
  const unsigned char *source[kEach];
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kEach; ++i)
    source[i] = splits + channel_place(32 * i + lane < S::kPartDim ? 32 * i + lane : 0);
  float o[kEach] = {};
  add_splits<C>(source, count, weights.factor, o);
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kEach; ++i)
    value[i] = count > 0 ? quotient(o[i], weights.sum) : 0.0f;
}

/// The same by all consumer warps, between two meetings: warp i combines channels 32 i + lane for
/// all, and leaves them where the first split has its own, which no other lane reads before.
template <class C, class Cta>
MEGALITH_DEVICE void merged_among(const Cta &cta, int count,
                                  float (&value)[(AttentionShape<C>::kPartDim + 31) / 32]) {
  using S = AttentionShape<C>;
  constexpr int kEach = (S::kPartDim + 31) / 32;
  unsigned char *splits = C::Mparts::row(cta, 0, 0);
  consumer_sync();
  if constexpr (kEach == 1 || S::kPartDim % 32 != 0 || kEach > kConsumerWarps) {
    merged_values<C>(splits, count, cta.lane, value);
  } else {
    if (cta.role_warp < kEach) {
      unsigned char *place = splits + channel_place(32 * cta.role_warp + cta.lane);
      const SplitWeights weights = weigh_splits<C>(splits, count, cta.lane);
      const unsigned char *source[1] = {place};
      float o[1] = {};
      add_splits<C>(source, count, weights.factor, o);
      platform::st_shared(place, count > 0 ? quotient(o[0], weights.sum) : 0.0f);
    }
    consumer_sync();
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kEach; ++i)
      value[i] = platform::ld_shared<float>(splits + channel_place(32 * i + cta.lane));
  }
}

/// Where a consumer warp stores words that all warps have: each in its share of
/// the ranks, from `word` of `row` on; null if it has none. To be looked up
/// before the words are made, as PublishPlaces.
template <class E, class Cta>
MEGALITH_DEVICE uint32_t *place_among(const Cta &cta, int row, int word) {
  using X = typename E::Exchange;
  static_assert(replicas_of<X>() <= kConsumerWarps);
  if (cta.role_warp >= replicas_of<X>())
    return nullptr;
  uint32_t *replica = replica_of<X>(cta, cta.role_warp);
  platform::forget(replica);
  return replica + set_index<X>(cta, 0) * X::kSetWords + row * X::kWidth + own_first<X>(cta) + word;
}

/// The first word of the tile in its row of the attn exchange [kRows][kQHeads d].
template <class C, class E> MEGALITH_DEVICE int head_word(const MergeTile &tile) {
  static_assert(E::Exchange::kCount == C::kRows &&
                E::Exchange::kOwn == C::kQHeads * C::kHeadDim / 2);
  return (tile.q_head * C::kHeadDim + tile.channel) / 2;
}

/// Publishes r16 of the tile's channels as words of E, by store(word of the tile, value).
template <class C, class E, class Cta, class Store>
MEGALITH_DEVICE void publish_head(const Cta &cta,
                                  const float (&value)[(AttentionShape<C>::kPartDim + 31) / 32],
                                  const Store &store) {
  using S = AttentionShape<C>;
  constexpr int kEach = (S::kPartDim + 31) / 32;
  platform::mark<platform::verb::Publish, E>();
  if constexpr (S::kPartDim % 64 == 0) {
    // Even lanes have words of channels 32 i + .., odd ones of the next 32: all
    // lanes store.
    const bool is_odd = cta.lane % 2 != 0;
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kEach; i += 2) {
      const float low = value[i], high = value[i + 1];
      const float other = platform::shfl_xor(is_odd ? low : high, 1);
      const uint32_t word = is_odd ? pair_word(other, high) : pair_word(low, other);
      store(16 * (is_odd ? i + 1 : i) + cta.lane / 2, word);
    }
  } else {
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kEach; ++i) {
      const float next = platform::shfl_xor(value[i], 1);
      const int channel = 32 * i + cta.lane;
      if (channel % 2 == 0 && channel < S::kPartDim)
        store(channel / 2, pair_word(value[i], next));
    }
  }
  platform::mark_end();
}

/// Stores of publish_head, by one warp.
template <class C, class E, class Cta>
MEGALITH_DEVICE auto store_alone(const Cta &cta, const MergeTile &tile) {
  return [&cta, row = tile.row, first = head_word<C, E>(tile)](int word, uint32_t value) {
    publish<E>(cta, row, first + word, value);
  };
}

/// The same by all consumer warps.
template <class C, class E, class Cta>
MEGALITH_DEVICE auto store_among(const Cta &cta, const MergeTile &tile) {
  return [at = place_among<E>(cta, tile.row, head_word<C, E>(tile))](int word, uint32_t value) {
    if (at)
      platform::st_relaxed<kScopeOf<typename E::Exchange>, uint32_t>(at + word, value);
  };
}

} // namespace detail

/// Epilogue, after launch_wait: combines the splits in slot `slot`, rounds to
/// bf16 and publishes the tile's channels of row and head through E. Zeros for
/// a dead row.
template <class C, class E, class Cta>
MEGALITH_DEVICE void merge_splits(const Cta &cta, const MergeTile &tile, int slot) {
  float value[(AttentionShape<C>::kPartDim + 31) / 32];
  detail::merged_values<C>(C::Mparts::row(cta, slot, 0), tile.splits, cta.lane, value);
  detail::publish_head<C, E>(cta, value, detail::store_alone<C, E>(cta, tile));
}

/// Consumer, after launch_wait and poll_partials: likewise, by all warps.
template <class C, class E, class Cta>
MEGALITH_DEVICE void merge_splits(const Cta &cta, const MergeTile &tile) {
  const auto store = detail::store_among<C, E>(cta, tile);
  float value[(AttentionShape<C>::kPartDim + 31) / 32];
  detail::merged_among<C>(cta, tile.splits, value);
  detail::publish_head<C, E>(cta, value, store);
}

/// The sigmoids of a head's gates: channels 32 i + lane.
template <class C> struct HeadGate { float value[(AttentionShape<C>::kDim + 31) / 32]; };

/// The gates of the tile's row and head, which follow q | k | v in the words of
/// E.
template <class C, class E, class Cta>
MEGALITH_DEVICE void fetch_gate(const Cta &cta, const MergeTile &tile, HeadGate<C> &gate) {
  using S = AttentionShape<C>;
  using X = typename E::Exchange;
  static_assert(X::kWidth == (S::kQkvWidth + C::kQHeads * S::kDim) / 2);
  const uint32_t *head = set_of<X>(cta, E::kAge) + tile.row * X::kWidth +
                         (S::kQkvWidth + tile.q_head * S::kDim) / 2 + cta.lane / 2;
  const uint32_t *from[S::kPerLane];
  uint32_t pair[S::kPerLane];
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < S::kPerLane; ++i)
    from[i] = head + 16 * i;
  gather_lane_words<E>(cta, from, pair);
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < S::kPerLane; ++i) {
    const float before = cta.lane % 2 ? hi16(pair[i]) : lo16(pair[i]);
    gate.value[i] = quotient(1.0f, 1.0f + platform::exp2f_(before * -1.44269504f));
  }
}

namespace detail {
/// merge_gated of the head's channels, which are combined.
template <class C, class Norm, class E, class Cta, class Store>
MEGALITH_DEVICE void publish_gated(const Cta &cta, float (&value)[AttentionShape<C>::kPerLane],
                                   const HeadGate<C> &gate, const Store &store) {
  using S = AttentionShape<C>;
  static_assert(S::kPartDim == S::kDim, "the norm is of a whole head");
  float scale = 1;
  if constexpr (requires { Norm::kEps; }) {
    float sum = 0;
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < S::kPerLane; ++i)
      sum = platform::fmaf_(value[i], value[i], sum);
    for (int mask = 16; mask > 0; mask /= 2)
      sum += platform::shfl_xor(sum, mask);
    scale = platform::rsqrtf_(platform::fmaf_(sum, 1.0f / S::kDim, Norm::kEps));
  }
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < S::kPerLane; ++i)
    value[i] *= scale * gate.value[i];
  publish_head<C, E>(cta, value, store);
}
} // namespace detail

/// Epilogue: as merge_splits, of whole heads, with o * rsqrt(mean o^2 +
/// Norm::kEps) over the head where Norm has one, times sigmoid(gate); rounded
/// once.
template <class C, class Norm, class E, class Cta>
MEGALITH_DEVICE void merge_gated(const Cta &cta, const MergeTile &tile, int slot,
                                 const HeadGate<C> &gate) {
  float value[AttentionShape<C>::kPerLane];
  detail::merged_values<C>(C::Mparts::row(cta, slot, 0), tile.splits, cta.lane, value);
  detail::publish_gated<C, Norm, E>(cta, value, gate, detail::store_alone<C, E>(cta, tile));
}

/// Consumer, after poll_partials: likewise. All warps norm all of the head, and
/// each stores it to its share of the ranks.
template <class C, class Norm, class E, class Cta>
MEGALITH_DEVICE void merge_gated(const Cta &cta, const MergeTile &tile, const HeadGate<C> &gate) {
  const auto store = detail::store_among<C, E>(cta, tile);
  float value[AttentionShape<C>::kPerLane];
  detail::merged_among<C>(cta, tile.splits, value);
  detail::publish_gated<C, Norm, E>(cta, value, gate, store);
}

} // namespace megalith
