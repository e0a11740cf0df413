// Putting the splits of a sequence together: partial results travel as epoch words from the tile's
// SM to the SM of the (row, query head, channels), which adds them in ascending split order.
//
// Record of (row, query head, split) in the exchange: kRecordWords epoch words with the floats
// {m, l, o[d], padding}; o and l are relative to 2^m. Its index is
// ((row * kQHeads + head) * 32 + split) * kRecordWords.
//
// Config members (struct C), beside those of attention.cuh:
//   Mparts  SlottedRows<., 32, MergeShape<C>::kRowBytes, slots>: the words of a merge tile
// More merge parts spread the reading over more SMs: 4 suit one row of 32 heads.
#pragma once

#include "codegen/device/attention.cuh"

namespace megalith {

namespace detail {

/// Words of a record that the tile of `channels` channels from `channel` on needs: word 0, which
/// holds m and l, and `first_word` to the one with its last channel.
MEGALITH_PURE int first_word(int channel) {
  return channel == 0 ? 1 : (2 + channel) / kEpochPayload;
}
MEGALITH_PURE int count_words(int channel, int channels) {
  return 2 + (1 + channel + channels) / kEpochPayload - first_word(channel);
}
MEGALITH_PURE int most_words(int dim, int channels) {
  int most = 0;
  for (int channel = 0; channel < dim; channel += channels) {
    const int count = count_words(channel, channels);
    most = count > most ? count : most;
  }
  return most;
}

} // namespace detail

/// Sizes that follow from an attention config.
template <class C> struct MergeShape {
  static constexpr int kChannels = C::kHeadDim / C::kMergeParts;
  static constexpr int kPairsPerLane = (kChannels / 2 + 31) / 32;
  static constexpr int kWords = detail::most_words(C::kHeadDim, kChannels); // of a split, at most
  static constexpr int kRowBytes = kWords * 16;
  static constexpr int kExchangeWords = // epoch words of the whole exchange
      C::kRows * C::kQHeads * kMaxSplits * AttentionShape<C>::kRecordWords;

  static_assert(C::kHeadDim % C::kMergeParts == 0 && kChannels % 2 == 0);
};

/// Epilogue: publishes the result that attention_finish left in slot `slot` through E, the edge of
/// the partials exchange. After launch_wait.
template <class C, class E, class Cta>
MEGALITH_DEVICE void publish_partials(const Cta &cta, const AttentionTile &tile, int slot) {
  using S = AttentionShape<C>;
  static_assert(E::Exchange::kCount == MergeShape<C>::kExchangeWords);
  const unsigned char *part = C::Apart::row(cta, slot, 0);
  platform::mark<platform::verb::Publish, E>();
  for (int i = cta.lane; i < tile.rows * S::kGroup * S::kRecordWords; i += 32) {
    const int v = i / S::kRecordWords, word = i % S::kRecordWords;
    const int row = tile.first_row + v / S::kGroup;
    const int head = tile.kv_head * S::kGroup + v % S::kGroup;
    float x[kEpochPayload];
    MEGALITH_UNROLL_ALL
    for (int e = 0; e < kEpochPayload; ++e) {
      const int at = word * kEpochPayload + e;
      x[e] =
          at < S::kDim + 2 ? platform::ld_shared<float>(part + v * S::kRecordBytes + at * 4) : 0.0f;
    }
    publish_epoch<E>(cta,
                     ((row * C::kQHeads + head) * kMaxSplits + tile.split) * S::kRecordWords + word,
                     {x[0], x[1], x[2]});
  }
  platform::mark_end();
}

/// Poller: brings the words of all splits of a merge tile to slot `slot`. Nothing to do for a dead
/// row.
template <class C, class E, class Cta>
MEGALITH_DEVICE void poll_partials(const Cta &cta, const MergeTile &tile, int slot) {
  using S = AttentionShape<C>;
  using M = MergeShape<C>;
  const auto *records = static_cast<const U128 *>(cta.args.buffer[E::Exchange::kBuffer]) +
                        (tile.row * C::kQHeads + tile.q_head) * (kMaxSplits * S::kRecordWords);
  unsigned char *target = C::Mparts::row(cta, slot, 0);
  const int first = detail::first_word(tile.channel);
  const int words = detail::count_words(tile.channel, M::kChannels);
  gather_epochs<E, 8>(
      cta, tile.splits * M::kWords,
      [&](int i) -> const U128 * {
        const int word = i % M::kWords;
        if (word >= words)
          return nullptr;
        return records + i / M::kWords * S::kRecordWords + (word == 0 ? 0 : first + word - 1);
      },
      [&](int i, const U128 &v) { platform::st_shared(target + 16 * i, v); });
}

/// Epilogue: combines the splits in slot `slot`, o = sum w o / sum w l with w = 2^(m - max m),
/// rounds to bf16 and publishes the tile's channels of row and head through E, the edge of the attn
/// exchange [kRows][kQHeads d]. Zeros for a dead row. After launch_wait.
template <class C, class E, class Cta>
MEGALITH_DEVICE void merge_splits(const Cta &cta, const MergeTile &tile, int slot) {
  using M = MergeShape<C>;
  static_assert(E::Exchange::kCount == C::kRows &&
                E::Exchange::kWidth == C::kQHeads * C::kHeadDim / 2);
  const unsigned char *splits = C::Mparts::row(cta, slot, 0);
  constexpr int kStride = M::kRowBytes;
  const int first = detail::first_word(tile.channel);
  // Byte of channel c of split 0.
  const auto offset = [&](int c) {
    const int at = 2 + c, word = at / kEpochPayload;
    return (word == 0 ? 0 : word - first + 1) * 16 + at % kEpochPayload * 4;
  };
  const bool mine = cta.lane < tile.splits;
  const float m = mine ? platform::ld_shared<float>(splits + cta.lane * kStride) : kNoScore;
  const float l = mine ? platform::ld_shared<float>(splits + cta.lane * kStride + 4) : 0.0f;
  float most = m;
  for (int mask = 16; mask > 0; mask /= 2)
    most = platform::fmaxf_(most, platform::shfl_xor(most, mask));
  const float weight = platform::exp2f_(m - most);
  float sum = 0, low[M::kPairsPerLane] = {}, high[M::kPairsPerLane] = {};
  // A batch of splits at a time, so that their loads are under way together. What is behind the
  // last split has weight 0.
  constexpr int kBatch = 8;
  static_assert(kMaxSplits % kBatch == 0 && kMaxSplits <= 32);
  MEGALITH_UNROLL(1)
  for (int batch = 0; batch < tile.splits; batch += kBatch) {
    MEGALITH_UNROLL(kBatch)
    for (int s = batch; s < batch + kBatch; ++s) {
      const float w = platform::shfl(weight, s);
      sum = platform::fmaf_(w, platform::shfl(l, s), sum);
      const unsigned char *split = splits + (s < tile.splits ? s : tile.splits - 1) * kStride;
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < M::kPairsPerLane; ++i) {
        const int pair = 32 * i + cta.lane;
        const int c = tile.channel + 2 * (pair < M::kChannels / 2 ? pair : 0);
        low[i] = platform::fmaf_(w, platform::ld_shared<float>(split + offset(c)), low[i]);
        high[i] = platform::fmaf_(w, platform::ld_shared<float>(split + offset(c + 1)), high[i]);
      }
    }
  }
  platform::mark<platform::verb::Publish, E>();
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < M::kPairsPerLane; ++i) {
    const int pair = 32 * i + cta.lane;
    if (pair < M::kChannels / 2)
      publish<E>(cta, tile.row, (tile.q_head * C::kHeadDim + tile.channel) / 2 + pair,
                 tile.splits > 0 ? pair_word(low[i] / sum, high[i] / sum) : 0u);
  }
  platform::mark_end();
}

} // namespace megalith
