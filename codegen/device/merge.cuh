// Putting the splits of a sequence together: partial results travel as epoch words (partials.cuh)
// from the tile's SM to the SM of the (row, query head, merge part), which adds them in ascending
// split order.
#pragma once

#include "codegen/device/partials.cuh"

namespace megalith {

/// Poller: brings the words of all splits of a merge tile to slot `slot`. Nothing to do for a dead
/// row.
template <class C, class E, class Cta>
MEGALITH_DEVICE void poll_partials(const Cta &cta, const MergeTile &tile, int slot) {
  using S = AttentionShape<C>;
  static_assert(E::Exchange::kCount == S::kPartials);
  // As few sweeps as registers allow, on both targets: each is a round trip to L2.
  constexpr int kMost = C::kRows == 1 ? 18 : 12;
  constexpr int kBatch = S::kPartWords < kMost ? S::kPartWords : kMost;
  const auto *words = static_cast<const U128 *>(cta.template buffer<E::Exchange::kBuffer>()) +
                      tile.number * (kMaxSplits * S::kPartWords);
  unsigned char *target = C::Mparts::row(cta, slot, 0);
  gather_epochs<E, kBatch, kMaxSplits * S::kPartWords>(
      cta, tile.splits * S::kPartWords, words,
      [&](int i, const U128 &v) { platform::st_shared(target + 16 * i, v); });
}

namespace detail {

/// Combines `count` splits, whose words begin at `splits`: value[i] = sum w o / sum w l of channel
/// 32 i + lane of a merge tile's part, with w = 2^(m - max m); zero for a dead row, which has none.
template <class C>
MEGALITH_DEVICE void merged_values(const unsigned char *splits, int count, int lane,
                                   float (&value)[(AttentionShape<C>::kPartDim + 31) / 32]) {
  using S = AttentionShape<C>;
  constexpr int kStride = S::kPartWords * 16, kEach = (S::kPartDim + 31) / 32;
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
  // Channel 32 i + lane of the part: three floats to a word, after m and l.
  const unsigned char *source[kEach];
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kEach; ++i) {
    const int at = 2 + (32 * i + lane < S::kPartDim ? 32 * i + lane : 0);
    source[i] = splits + at / kEpochPayload * 16 + at % kEpochPayload * 4;
  }
  // A batch of splits at a time, so that their loads are under way together; behind the last split
  // they read what is not used.
  float o[kEach] = {};
  constexpr int kBatch = kEach < 2 || (C::kBounded && kEach < 4) ? 8 : kEach < 4 ? 4 : 2;
  static_assert(kMaxSplits % kBatch == 0 && kMaxSplits <= 32);
  MEGALITH_UNROLL(1)
  for (int batch = 0; batch < count; batch += kBatch) {
    float part[kBatch][kEach];
    MEGALITH_UNROLL_ALL
    for (int s = 0; s < kBatch; ++s) {
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < kEach; ++i)
        part[s][i] = platform::ld_shared<float>(source[i] + s * kStride);
    }
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kEach; ++i)
      source[i] += kBatch * kStride;
    MEGALITH_UNROLL_ALL
    for (int s = 0; s < kBatch; ++s) {
      float w = 1;
      if constexpr (!C::kBounded)
        w = platform::shfl(weight, batch + s);
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < kEach; ++i)
        if (batch + s < count)
          o[i] = C::kBounded ? o[i] + part[s][i] : platform::fmaf_(w, part[s][i], o[i]);
    }
  }
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kEach; ++i)
    value[i] = count > 0 ? o[i] / sum : 0.0f;
}

/// Publishes r16 of the tile's channels as words of E, the edge of the attn exchange
/// [kRows][kQHeads d].
template <class C, class E, class Cta>
MEGALITH_DEVICE void publish_head(const Cta &cta, const MergeTile &tile,
                                  const float (&value)[(AttentionShape<C>::kPartDim + 31) / 32]) {
  using S = AttentionShape<C>;
  static_assert(E::Exchange::kCount == C::kRows &&
                E::Exchange::kOwn == C::kQHeads * C::kHeadDim / 2);
  constexpr int kEach = (S::kPartDim + 31) / 32;
  const int first = (tile.q_head * C::kHeadDim + tile.channel) / 2;
  platform::mark<platform::verb::Publish, E>();
  if constexpr (S::kPartDim % 64 == 0) {
    // Even lanes have words of channels 32 i + .., odd ones of the next 32: all lanes store.
    const bool is_odd = cta.lane % 2 != 0;
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kEach; i += 2) {
      const float low = value[i], high = value[i + 1];
      const float other = platform::shfl_xor(is_odd ? low : high, 1);
      const uint32_t word = is_odd ? pair_word(other, high) : pair_word(low, other);
      publish<E>(cta, tile.row, first + 16 * (is_odd ? i + 1 : i) + cta.lane / 2, word);
    }
  } else {
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kEach; ++i) {
      const float next = platform::shfl_xor(value[i], 1);
      const int channel = 32 * i + cta.lane;
      if (channel % 2 == 0 && channel < S::kPartDim)
        publish<E>(cta, tile.row, first + channel / 2, pair_word(value[i], next));
    }
  }
  platform::mark_end();
}

} // namespace detail

/// Epilogue, after launch_wait: combines the splits in slot `slot`, rounds to bf16 and publishes
/// the tile's channels of row and head through E. Zeros for a dead row.
template <class C, class E, class Cta>
MEGALITH_DEVICE void merge_splits(const Cta &cta, const MergeTile &tile, int slot) {
  float value[(AttentionShape<C>::kPartDim + 31) / 32];
  detail::merged_values<C>(C::Mparts::row(cta, slot, 0), tile.splits, cta.lane, value);
  detail::publish_head<C, E>(cta, tile, value);
}

/// The sigmoids of a head's gates: channels 32 i + lane.
template <class C> struct HeadGate { float value[(AttentionShape<C>::kDim + 31) / 32]; };

/// Epilogue: the gates of the tile's row and head, which follow q | k | v in the words of E. Then a
/// rehearsal of what comes when the splits are there: that code is not in the instruction cache,
/// and there it costs a microsecond in which all SMs wait. What it makes of the slot's bytes is
/// lost.
template <class C, class E, class Cta>
MEGALITH_DEVICE void fetch_gate(const Cta &cta, const MergeTile &tile, HeadGate<C> &gate) {
  using S = AttentionShape<C>;
  static_assert(E::Exchange::kWidth == (S::kQkvWidth + C::kQHeads * S::kDim) / 2);
  platform::mark<platform::verb::Poll, E>();
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < S::kPerLane; ++i) {
    const int channel = S::kQkvWidth + tile.q_head * S::kDim + 32 * i + cta.lane;
    const uint32_t pair = poll_word<E>(cta, tile.row, channel / 2);
    const float before = channel % 2 ? hi16(pair) : lo16(pair);
    gate.value[i] = 1.0f / (1.0f + platform::exp2f_(before * -1.44269504f));
  }
  platform::warp_sync();
  platform::mark_end();
}

/// Epilogue: as merge_splits, of whole heads, with o * rsqrt(mean o^2 + Norm::kEps) over the head
/// where Norm has one, times sigmoid(gate); rounded once.
template <class C, class Norm, class E, class Cta>
MEGALITH_DEVICE void merge_gated(const Cta &cta, const MergeTile &tile, int slot,
                                 const HeadGate<C> &gate) {
  using S = AttentionShape<C>;
  static_assert(S::kPartDim == S::kDim, "the norm is of a whole head");
  float value[S::kPerLane];
  detail::merged_values<C>(C::Mparts::row(cta, slot, 0), tile.splits, cta.lane, value);
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
  detail::publish_head<C, E>(cta, tile, value);
}

} // namespace megalith
