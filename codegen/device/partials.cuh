// A tile's result: what its warps found is added up, chunk by chunk, and published as epoch words.
//
// Record of (row, query head, merge part, split) in the exchange: kPartWords epoch words with the
// floats {m, l, o[kPartDim], padding}; o and l are relative to 2^m. Its index is
// (((row * kQHeads + head) * kMergeParts + part) * 32 + split) * kPartWords, so that a merge tile
// finds its words one after another.
#pragma once

#include "codegen/device/scores.cuh"

namespace megalith {

namespace detail {
/// Chunks of a tile of one split that have keys; a pair of units each, or several.
template <class C>
MEGALITH_DEVICE int chunks_with_keys(const AttentionTile &tile, const WarpShare &share) {
  const int pairs = (tile.full_units + tile.tail_units + 1) / 2;
  return pairs < share.chunks ? pairs : share.chunks;
}
} // namespace detail

/// Consumer: leaves what the warp found in round `round` in C::Apart. Returns when all warps have;
/// a round behind the tile's last query vector has nothing.
template <class C, class Cta>
MEGALITH_DEVICE void attention_finish(const Cta &cta, const AttentionTile &tile,
                                      const AttentionState<C> &state, int round = 0) {
  using S = AttentionShape<C>;
  const int vectors = tile.rows * S::kGroup, g = cta.lane / 4, t = cta.lane % 4;
  const bool has_splits = C::kRows > 1 && tile.splits > 1;
  const bool has_share =
      state.share.chunk <
      (has_splits ? state.share.chunks : detail::chunks_with_keys<C>(tile, state.share));
  if (round > 0 && vectors <= 64 * round)
    return;
  if (round > 0)
    consumer_sync();     // the records of the round before have been added up
  platform::warp_sync(); // the last probabilities have been read
  MEGALITH_UNROLL_ALL
  for (int e = 0; e < 2; ++e) {
    float l = state.l[round][e];
    for (int mask = 4; mask <= 16; mask *= 2)
      l += platform::shfl_xor(l, mask);
    const int column = 2 * t + e;
    if (has_share && 8 * (8 * round + state.share.column) + column < vectors) {
      unsigned char *record = apart_record<C>(cta, cta.role_warp, column);
      if (g == 0) {
        if constexpr (!C::kBounded)
          platform::st_shared(record, state.m[round][e]);
        platform::st_shared(record + 4, l);
      }
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < S::kSlices; ++i) {
        const float scale = C::kIsScaled ? state.value_scale : 1.0f;
        platform::st_shared(record + 8 + 4 * (16 * i + g), state.o[round][i][e] * scale);
        platform::st_shared(record + 8 + 4 * (16 * i + g + 8), state.o[round][i][e + 2] * scale);
      }
    }
  }
  consumer_sync();
}

/// Consumer: adds up the chunks of each query vector of round `round`, in ascending order, and
/// publishes the results through E, the edge of the partials exchange; warp w has vectors w, w + 8,
/// ... of the round's 64, or vector w of each split. After launch_wait and attention_finish of that
/// round.
template <class C, class E, class Cta>
MEGALITH_DEVICE void publish_partials(const Cta &cta, const AttentionTile &tile,
                                      const AttentionState<C> &state, int round = 0) {
  using S = AttentionShape<C>;
  static_assert(E::Exchange::kCount == S::kPartials);
  constexpr int kWords = C::kMergeParts * S::kPartWords, kMost = kConsumerWarps;
  const WarpShare &share = state.share;
  const bool has_splits = C::kRows > 1 && tile.splits > 1;
  // Of several splits, the chunks behind `warps` have no keys.
  const int vectors = tile.rows * S::kGroup;
  const int chunks = has_splits ? share.warps : detail::chunks_with_keys<C>(tile, share);
  const int end = S::kRounds == 1 || vectors < 64 * (round + 1) ? vectors : 64 * (round + 1);
  int split = 0;
  platform::mark<platform::verb::Publish, E>();
  for (int v = 64 * round + cta.role_warp; v < end && split < tile.splits;
       has_splits ? ++split : v += kConsumerWarps) {
    const int first = has_splits ? split * share.warps : v / 8 % 8; // warp of chunk 0
    const unsigned char *records = apart_record<C>(cta, first, v % 8);
    const int stride = share.columns * S::kColumns * S::kRecordBytes;
    float weight[kMost], most = C::kBounded ? 0.0f : kNoScore;
    if constexpr (!C::kBounded) {
      MEGALITH_UNROLL_ALL
      for (int c = 0; c < kMost; ++c) {
        weight[c] = c < chunks ? platform::ld_shared<float>(records + c * stride) : kNoScore;
        most = platform::fmaxf_(most, weight[c]);
      }
      MEGALITH_UNROLL_ALL
      for (int c = 0; c < kMost; ++c)
        weight[c] = platform::exp2f_(weight[c] - most);
    }
    const int row = tile.first_row + v / S::kGroup;
    const int head = tile.kv_head * S::kGroup + v % S::kGroup;
    const int record =
        ((row * C::kQHeads + head) * C::kMergeParts * kMaxSplits + tile.split + split) *
        S::kPartWords;
    MEGALITH_UNROLL(1)
    for (int base = 0; base < kWords; base += 32) {
      const int part = (base + cta.lane) / S::kPartWords, word = (base + cta.lane) % S::kPartWords;
      if (base + cta.lane < kWords) {
        float x[kEpochPayload] = {};
        // Float e of the word in the record of chunk c.
        const auto at = [&](int e, int c) {
          const int i = word * kEpochPayload + e;
          return records + c * stride + 4 * (i < 2 ? i : part * S::kPartDim + i);
        };
        if constexpr (C::kRows == 1 && S::kVectors <= 8) {
          // All warps have records of the column, so loads need no condition: they are under way
          // together.
          constexpr int kAtOnce = C::kBounded ? 4 : kMost;
          MEGALITH_UNROLL(1)
          for (int first = 0; first < chunks; first += kAtOnce) {
            float value[kAtOnce][kEpochPayload];
            MEGALITH_UNROLL_ALL
            for (int c = 0; c < kAtOnce; ++c) {
              MEGALITH_UNROLL_ALL
              for (int e = 0; e < kEpochPayload; ++e)
                value[c][e] = platform::ld_shared<float>(at(e, first + c));
            }
            MEGALITH_UNROLL_ALL
            for (int c = 0; c < kAtOnce; ++c) {
              MEGALITH_UNROLL_ALL
              for (int e = 0; e < kEpochPayload; ++e)
                if (first + c < chunks)
                  x[e] = C::kBounded ? x[e] + value[c][e]
                                     : platform::fmaf_(weight[c], value[c][e], x[e]);
            }
          }
        } else {
          MEGALITH_UNROLL_ALL
          for (int e = 0; e < kEpochPayload; ++e) {
            MEGALITH_UNROLL_ALL
            for (int c = 0; c < kMost; ++c)
              if (c < chunks)
                x[e] = platform::fmaf_(C::kBounded ? 1.0f : weight[c],
                                       platform::ld_shared<float>(at(e, c)), x[e]);
          }
        }
        MEGALITH_UNROLL_ALL
        for (int e = 0; e < kEpochPayload; ++e)
          if (word * kEpochPayload + e >= S::kPartDim + 2)
            x[e] = 0; // padding
        if (word == 0)
          x[0] = most;
        publish_epoch<E>(cta, record + part * kMaxSplits * S::kPartWords + word,
                         {x[0], x[1], x[2]});
      }
    }
  }
  platform::mark_end();
}

} // namespace megalith
