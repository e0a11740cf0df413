// A tile's result: what its warps found is added up, chunk by chunk, and published as epoch words.
//
// Record of (row, query head, merge part, split) in the exchange: kPartWords epoch words with the
// floats {m, l, o[kPartDim], padding}; o and l are relative to 2^m. Its index is
// (((row * kQHeads + head) * kMergeParts + part) * 32 + split) * kPartWords, so that a merge tile
// finds its words one after another.
#pragma once

#include "codegen/device/gather.cuh"
#include "codegen/device/quotient.cuh"
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
  // Column 2t + e: as a butterfly for each would, but lanes of odd g go on with the second column.
  const detail::Sums<C> &sums = state.sums[round];
  const bool is_odd = g % 2 != 0;
  const float l0 = sums.l[0], l1 = sums.l[1]; // in registers: no lane chooses an address
  float l = (is_odd ? +l1 : +l0) + platform::shfl_xor(is_odd ? +l0 : +l1, 4);
  l += platform::shfl_xor(l, 8);
  l += platform::shfl_xor(l, 16);
  if (has_share) {
    const int left = vectors - 8 * (8 * round + state.share.column) - 2 * t; // from column 2t on
    unsigned char *record = apart_record<C>(cta, cta.role_warp, 2 * t);
    if (g < 2 && g < left) {
      if constexpr (!C::kBounded)
        platform::st_shared(record + g * S::kRecordBytes, is_odd ? +sums.m[1] : +sums.m[0]);
      platform::st_shared(record + g * S::kRecordBytes + 4, l);
    }
    record += 8 + 4 * g;
    MEGALITH_UNROLL_ALL
    for (int e = 0; e < 2; ++e) {
      if ((C::kRows > 1 || S::kGroup % 8 != 0) && e >= left)
        continue;
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < 2 * S::kSlices; ++i)
        platform::st_shared(record + e * S::kRecordBytes + 32 * i,
                            sums.o[i / 2][e + i % 2 * 2] *
                                (C::kIsScaled ? state.value_scale : 1.0f));
    }
  }
  consumer_sync();
}

namespace detail {
/// Adds up `chunks` records of a query vector, `stride` bytes apart, and publishes them as the
/// words of `record`, its record of merge part 0.
template <class C, class E, class Cta>
MEGALITH_DEVICE void publish_vector(const Cta &cta, const unsigned char *records, int stride,
                                    int chunks, int record) {
  using S = AttentionShape<C>;
  constexpr int kWords = C::kMergeParts * S::kPartWords, kMost = kConsumerWarps;
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
  MEGALITH_UNROLL(1)
  for (int base = 0; base < kWords; base += 32) {
    const int at = base + cta.lane;
    const int part = C::kMergeParts == 1 ? 0 : at / S::kPartWords;
    const int word = C::kMergeParts == 1 ? at : at % S::kPartWords;
    if (at < kWords) {
      float x[kEpochPayload] = {};
      // Float e of the word in the record of chunk c.
      const auto source = [&](int e, int c) {
        const int i = word * kEpochPayload + e;
        return records + c * stride +
               4 * (C::kMergeParts == 1 || i < 2 ? i : part * S::kPartDim + i);
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
              value[c][e] = platform::ld_shared<float>(source(e, first + c));
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
                                     platform::ld_shared<float>(source(e, c)), x[e]);
        }
      }
      MEGALITH_UNROLL_ALL
      for (int e = 0; e < kEpochPayload; ++e)
        if (word * kEpochPayload + e >= S::kPartDim + 2)
          x[e] = 0; // padding
      if (word == 0)
        x[0] = most;
      publish_epoch<E>(cta, record + part * kMaxSplits * S::kPartWords + word, {x[0], x[1], x[2]});
    }
  }
}
} // namespace detail

/// Consumer: adds up the chunks of each query vector of round `round`, in ascending order, and
/// publishes the results through E, the edge of the partials exchange; warp w has vectors w, w + 8,
/// ... of the round's 64, or vector w of each split. After launch_wait and attention_finish of that
/// round.
template <class C, class E, class Cta>
MEGALITH_DEVICE void publish_partials(const Cta &cta, const AttentionTile &tile,
                                      const AttentionState<C> &state, int round = 0) {
  using S = AttentionShape<C>;
  static_assert(E::Exchange::kCount == S::kPartials);
  const WarpShare &share = state.share;
  const auto record = [&](int row, int head, int split) {
    return ((row * C::kQHeads + head) * C::kMergeParts * kMaxSplits + split) * S::kPartWords;
  };
  platform::mark<platform::verb::Publish, E>();
  if constexpr (C::kRows == 1 && S::kVectors <= kConsumerWarps) {
    if (S::kVectors == kConsumerWarps || cta.role_warp < S::kVectors)
      detail::publish_vector<C, E>(cta, apart_record<C>(cta, 0, cta.role_warp),
                                   S::kColumns * S::kRecordBytes,
                                   detail::chunks_with_keys<C>(tile, share),
                                   record(0, tile.kv_head * S::kGroup + cta.role_warp, tile.split));
  } else {
    const bool has_splits = C::kRows > 1 && tile.splits > 1;
    // Of several splits, the chunks behind `warps` have no keys.
    const int vectors = tile.rows * S::kGroup;
    const int chunks = has_splits ? share.warps : detail::chunks_with_keys<C>(tile, share);
    const int end = S::kRounds == 1 || vectors < 64 * (round + 1) ? vectors : 64 * (round + 1);
    int split = 0;
    for (int v = 64 * round + cta.role_warp; v < end && split < tile.splits;
         has_splits ? ++split : v += kConsumerWarps) {
      const int first = has_splits ? split * share.warps : v / 8 % 8; // warp of chunk 0
      detail::publish_vector<C, E>(cta, apart_record<C>(cta, first, v % 8),
                                   share.columns * S::kColumns * S::kRecordBytes, chunks,
                                   record(tile.first_row + v / S::kGroup,
                                          tile.kv_head * S::kGroup + v % S::kGroup,
                                          tile.split + split));
    }
  }
  platform::mark_end();
}

} // namespace megalith
