// The attention stage: one SM's share of softmax(q k^T) v for the rows of a step, with qk-norm,
// RoPE and the append to the KV pages. Tiles come from tiles.cuh; the layouts of units and the
// split order are those of docs/kernel-contract.md sections 1 and 6.
//
// A tile's query vectors are (row of the sequence, query head of the group), row-major; they are
// the columns of the mma, 8 to a column tile, and keys (then value channels) are its 16 rows. Every
// consumer warp computes all scores of a unit and so knows m and l without asking; warp w owns the
// value channels [16 w, 16 w + 16), [16 (w + 8), ...). Scores live in the log2 domain.
//
// Config members (struct C): those of the base `Attention` below, and the buffers, whose sizes are
// AttentionShape<C>'s:
//   QkvIn   SlottedRows<., kRows, kQkvRow, slots>: a tile's words
//   Query   SlottedRows<., kQueryRows, kQueryStride>: q after norm and RoPE
//   Tail    SlottedRows<., 2, kUnitBytes>: the tail units
//   Prob    SlottedRows<., 8, 256>: each warp's probabilities on their way to an mma operand
//   Apart   SlottedRows<., kVectors, kRecordBytes, slots>: a tile's result
// Query, Tail and Prob belong to the consumers alone. The raw projections are crossing words
// Words<., kRows, (kQHeads + 2 kKvHeads) d / 2, 3>, channels q | k | v.
#pragma once

#include "codegen/device/edges.cuh"
#include "codegen/device/gather.cuh"
#include "codegen/device/rope.cuh"
#include "codegen/device/slots.cuh"
#include "codegen/device/tiles.cuh"

namespace megalith {

/// Per-head norm of q and k before RoPE: none, without weight, or times a weight per channel.
enum class QkNorm { none, plain, weighted };

/// What an attention stage computes and where its global buffers are; base of the emitted config.
///   Config          the kernel's: kRows, kSms
///   SequenceStride  see tiles.cuh
///   QHeads, KvHeads, HeadDim  of this rank; HeadDim = d is a multiple of 64
///   RopeDim         rotated channels, a multiple of 64, or 0: no RoPE
///   MergeParts      merge tiles of a head; d / MergeParts is even
///   Norm, NormEps   of qk-norm
///   ScoreScale      factor of q k^T, > 0
///   Pool            buffer slot of the KV pages of this launch's layer
///   InvFreq         buffer slot of fp32 [RopeDim / 2] inverse frequencies, if RopeDim > 0
///   QGain, KGain    buffer slots of the bf16 [d] gains, if Norm is weighted
template <class Config, int SequenceStride, int QHeads, int KvHeads, int HeadDim, int RopeDim,
          int MergeParts, QkNorm Norm, float NormEps, float ScoreScale, int Pool, int InvFreq = -1,
          int QGain = -1, int KGain = -1>
struct Attention {
  static constexpr int kRows = Config::kRows, kSms = Config::kSms;
  static constexpr int kSequenceStride = SequenceStride, kMergeParts = MergeParts;
  static constexpr int kQHeads = QHeads, kKvHeads = KvHeads, kHeadDim = HeadDim;
  static constexpr int kRopeDim = RopeDim;
  static constexpr QkNorm kQkNorm = Norm;
  static constexpr float kQkNormEps = NormEps, kScoreScale = ScoreScale;
  static constexpr int kPool = Pool, kInvFreq = InvFreq, kQGain = QGain, kKGain = KGain;

  static_assert(HeadDim % 64 == 0 && RopeDim % 64 == 0 && RopeDim <= HeadDim);
  static_assert(QHeads % KvHeads == 0 && HeadDim % MergeParts == 0);
  static_assert(Norm != QkNorm::weighted || (QGain >= 0 && KGain >= 0));
  static_assert(RopeDim == 0 || InvFreq >= 0);
};

/// Sizes that follow from an attention config; it need not have its buffers yet.
template <class C> struct AttentionShape {
  static constexpr int kDim = C::kHeadDim;
  static constexpr int kGroup = C::kQHeads / C::kKvHeads;
  static constexpr int kVectors = C::kRows * kGroup; // most query vectors of a tile
  static constexpr int kColumnTiles = (kVectors + 7) / 8;
  static constexpr int kSlices = kDim / 16; // k16 steps of a score; channel tiles of V
  static constexpr int kWarpSlices = (kSlices + kConsumerWarps - 1) / kConsumerWarps;
  static constexpr int kPerLane = kDim / 32; // channels of a head in each lane
  static constexpr int kQkvWidth = (C::kQHeads + 2 * C::kKvHeads) * kDim; // of an exchange row
  static constexpr int kQkvRow = (kGroup + 2) * kDim * 2; // a tile's row: q heads, k, v
  static constexpr int kQueryRows = 8 * kColumnTiles;
  static constexpr int kQueryStride = 2 * kDim + 32;           // conflict-free for 8 rows x 4 lanes
  static constexpr int kUnitBytes = 4 * kUnitPositions * kDim; // K part, V part
  static constexpr int kRecordWords = (kDim + 2 + kEpochPayload - 1) / kEpochPayload;
  static constexpr int kRecordBytes = kRecordWords * kEpochPayload * 4; // {m, l, o[d], padding}
};

/// Byte of channel c of key 0..15 in a unit; its V part starts at byte 32 d.
MEGALITH_PURE int key_offset(int key, int c) {
  return c / 16 * 512 + (key % 8 * 4 + c % 16 / 4) * 16 + (c % 4 / 2 * 2 + key / 8) * 4 + c % 2 * 2;
}
template <int Dim> MEGALITH_PURE int value_offset(int key, int c) {
  return 32 * Dim + c / 16 * 512 + (c % 8 * 4 + key / 4) * 16 + (key % 4 / 2 * 2 + c % 16 / 8) * 4 +
         key % 2 * 2;
}

/// The unit with `position` of the tile's (sequence, KV head) in the pool.
template <class C, class Cta>
MEGALITH_DEVICE unsigned char *kv_unit(const Cta &cta, const AttentionTile &tile, int position) {
  const int32_t *pages = cta.args.page_table + tile.seq * cta.args.max_pages;
  const auto page = platform::ld_const<int32_t>(pages + position / kPagePositions);
  const int unit = position % kPagePositions / kUnitPositions;
  const size_t index =
      (static_cast<size_t>(page) * C::kKvHeads + tile.kv_head) * (kPagePositions / kUnitPositions) +
      unit;
  return static_cast<unsigned char *>(cta.args.buffer[C::kPool]) +
         index * AttentionShape<C>::kUnitBytes;
}

/// Producer: copies full unit i of the tile to the next, acquired, slot of R.
template <class C, class R, class Full, class Cta>
MEGALITH_DEVICE void copy_unit(Cta &cta, const AttentionTile &tile, int i) {
  static_assert(AttentionShape<C>::kUnitBytes <= R::kSlotBytes);
  copy_bulk<Full, R>(cta, kv_unit<C>(cta, tile, tile.first + kUnitPositions * i),
                     AttentionShape<C>::kUnitBytes);
}

/// Poller: brings the tile's words of launch n-1 (E: the edge of the qkv exchange, age 1) to slot
/// `slot` of the tile's rows: q of its heads for all rows of the sequence, k and v of its KV head
/// for the rows whose position is the tile's.
template <class C, class E, class Cta>
MEGALITH_DEVICE void poll_qkv_tile(const Cta &cta, const AttentionTile &tile, int slot) {
  using S = AttentionShape<C>;
  using X = typename E::Exchange;
  static_assert(E::kAge == (E::kIsProof ? 1 : 0), "what an earlier launch projected");
  static_assert(X::kCount == C::kRows && X::kWidth == S::kQkvWidth / 2);
  constexpr int kHeadItems = S::kDim * 2 / 16, kRowItems = S::kQkvRow / 16;
  const uint32_t *words = set_of<X>(cta, E::kAge) + tile.first_row * X::kWidth;
  unsigned char *rows = C::QkvIn::row(cta, slot, 0);
  gather_words<E, 8>(
      cta, tile.rows * kRowItems,
      [&](int i) -> const uint32_t * {
        const int row = i / kRowItems, head = i % kRowItems / kHeadItems, item = i % kHeadItems;
        const int position = tile.start + row;
        if (head >= S::kGroup && (position < tile.first || position >= tile.end))
          return nullptr;
        const int source = head < S::kGroup
                               ? tile.kv_head * S::kGroup + head
                               : C::kQHeads + (head - S::kGroup) * C::kKvHeads + tile.kv_head;
        return words + row * X::kWidth + (source * kHeadItems + item) * 4;
      },
      [&](int i, const u32x4 &v) { platform::st_shared(rows + 16 * i, v); });
}

/// What a consumer lane needs of the layer's constants, for channels lane, lane + 32, ...
template <class C> struct AttentionConstants {
  float q_gain[AttentionShape<C>::kPerLane];
  float k_gain[AttentionShape<C>::kPerLane];
  float frequency[C::kRopeDim > 0 ? C::kRopeDim / 64 : 1];
};

/// Loads them; before the stage's first wait, so that their latency is hidden.
template <class C, class Cta>
MEGALITH_DEVICE AttentionConstants<C> attention_constants(const Cta &cta) {
  AttentionConstants<C> constants = {};
  if constexpr (C::kQkNorm == QkNorm::weighted) {
    const auto *q = static_cast<const bf16 *>(cta.args.buffer[C::kQGain]);
    const auto *k = static_cast<const bf16 *>(cta.args.buffer[C::kKGain]);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < AttentionShape<C>::kPerLane; ++i) {
      constants.q_gain[i] = to_float(platform::ld_const<bf16>(q + 32 * i + cta.lane));
      constants.k_gain[i] = to_float(platform::ld_const<bf16>(k + 32 * i + cta.lane));
    }
  }
  if constexpr (C::kRopeDim > 0) {
    const auto *frequency = static_cast<const float *>(cta.args.buffer[C::kInvFreq]);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < C::kRopeDim / 64; ++i)
      constants.frequency[i] = platform::ld_const<float>(frequency + 32 * i + cta.lane);
  }
  return constants;
}

namespace detail {

/// One warp: x[i] = channel 32 i + lane of the head at `source`, normed, rotated, each rounded.
template <class C, class Cta>
MEGALITH_DEVICE void load_head(const Cta &cta, const unsigned char *source, int position,
                               const float (&gain)[AttentionShape<C>::kPerLane],
                               const AttentionConstants<C> &constants,
                               float (&x)[AttentionShape<C>::kPerLane]) {
  constexpr int kPerLane = AttentionShape<C>::kPerLane;
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kPerLane; ++i)
    x[i] = to_float(platform::ld_shared<bf16>(source + 2 * (32 * i + cta.lane)));
  if constexpr (C::kQkNorm != QkNorm::none) {
    float sum = 0;
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kPerLane; ++i)
      sum = platform::fmaf_(x[i], x[i], sum);
    for (int mask = 16; mask > 0; mask /= 2)
      sum += platform::shfl_xor(sum, mask);
    const float scale = platform::rsqrtf_(platform::fmaf_(sum, 1.0f / C::kHeadDim, C::kQkNormEps));
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kPerLane; ++i) {
      const float normed = x[i] * scale;
      x[i] = round16(C::kQkNorm == QkNorm::weighted ? normed * gain[i] : normed);
    }
  }
  if constexpr (C::kRopeDim > 0)
    rotate_head<C::kRopeDim>(x, position, constants.frequency);
}

/// Clears the bf16 of keys `key` (low half) and `key + 1` (high half) unless they are below `old`.
MEGALITH_DEVICE uint32_t keep_old(uint32_t word, int key, int old) {
  return word & ((key < old ? 0xFFFFu : 0u) | (key + 1 < old ? 0xFFFF0000u : 0u));
}

} // namespace detail

/// Consumer state of a tile, in registers: columns 8 j + 2 (lane % 4) + {0, 1} of each column tile
/// j.
template <class C> struct AttentionState {
  using S = AttentionShape<C>;
  float m[S::kColumnTiles][2];                 // largest score so far, log2 domain
  float l[S::kColumnTiles][2];                 // this lane's part of the sum of 2^(score - m)
  float o[S::kColumnTiles][S::kWarpSlices][4]; // sum of p v: mma accumulators
};

/// m of a query that has seen no key; finite, so that differences are.
inline constexpr float kNoScore = -1e30f;

/// Consumer: begins a tile: its q vectors, normed and rotated, become rows in shared memory.
/// attention_tail must follow before they are used.
template <class C, class Cta>
MEGALITH_DEVICE void attention_begin(const Cta &cta, const AttentionTile &tile, int slot,
                                     const AttentionConstants<C> &constants,
                                     AttentionState<C> &state) {
  using S = AttentionShape<C>;
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < S::kColumnTiles; ++j) {
    MEGALITH_UNROLL_ALL
    for (int e = 0; e < 2; ++e) {
      state.m[j][e] = kNoScore;
      state.l[j][e] = 0;
    }
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < S::kWarpSlices; ++i) {
      MEGALITH_UNROLL_ALL
      for (int e = 0; e < 4; ++e)
        state.o[j][i][e] = 0;
    }
  }
  consumer_sync(); // all warps are done with the previous tile's q rows and tail
  const unsigned char *rows = C::QkvIn::row(cta, slot, 0);
  for (int v = cta.role_warp; v < tile.rows * S::kGroup; v += kConsumerWarps) {
    const int row = v / S::kGroup;
    float x[S::kPerLane];
    detail::load_head<C>(cta, rows + row * S::kQkvRow + v % S::kGroup * S::kDim * 2,
                         tile.start + row, constants.q_gain, constants, x);
    unsigned char *query = C::Query::row(cta, 0, v);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < S::kPerLane; ++i)
      platform::st_shared(query + 2 * (32 * i + cta.lane), r16(x[i]));
  }
}

/// Consumer: puts the tail units together in shared memory: positions below `start` from the page
/// (written by launches that are over), new ones from the tile's words, zeros from n on. Returns
/// with q rows and tail visible to all consumer warps and the slot of words no longer needed. Call
/// it for every tile, with or without a tail.
template <class C, class Cta>
MEGALITH_DEVICE void attention_tail(const Cta &cta, const AttentionTile &tile, int slot,
                                    const AttentionConstants<C> &constants) {
  using S = AttentionShape<C>;
  if (tile.tail_units > 0) {
    constexpr int kVectors = S::kUnitBytes / 16;
    unsigned char *tail = C::Tail::row(cta, 0, 0);
    // Only the first unit can have positions below `start`, from its first on.
    const int old = tile.start - tile.tail_first();
    const unsigned char *page = old > 0 ? kv_unit<C>(cta, tile, tile.tail_first()) : nullptr;
    for (int i = 32 * cta.role_warp + cta.lane; i < tile.tail_units * kVectors;
         i += 32 * kConsumerWarps) {
      u32x4 v = {0, 0, 0, 0};
      if (old > 0 && i < kVectors) {
        v = platform::ld_global<u32x4>(page + 16 * i);
        if (i < kVectors / 2) { // words of keys g, g + 8, g, g + 8
          const int key = i % 32 / 4;
          const uint32_t low = key < old ? ~0u : 0u, high = key + 8 < old ? ~0u : 0u;
          v = {v.x & low, v.y & high, v.z & low, v.w & high};
        } else { // words of keys (4t, 4t+1) twice, (4t+2, 4t+3) twice
          const int key = i % 4 * 4;
          v = {detail::keep_old(v.x, key, old), detail::keep_old(v.y, key, old),
               detail::keep_old(v.z, key + 2, old), detail::keep_old(v.w, key + 2, old)};
        }
      }
      platform::st_shared(tail + 16 * i, v);
    }
    consumer_sync(); // zeros before the new positions that replace them
    const unsigned char *rows = C::QkvIn::row(cta, slot, 0);
    for (int p = tile.first_new() + cta.role_warp; p < tile.end; p += kConsumerWarps) {
      const unsigned char *key = rows + (p - tile.start) * S::kQkvRow + S::kGroup * S::kDim * 2;
      float x[S::kPerLane];
      detail::load_head<C>(cta, key, p, constants.k_gain, constants, x);
      const int at = p - tile.tail_first();
      unsigned char *unit = C::Tail::row(cta, 0, at / kUnitPositions);
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < S::kPerLane; ++i) {
        const int c = 32 * i + cta.lane;
        const auto value = platform::ld_shared<bf16>(key + S::kDim * 2 + 2 * c);
        platform::st_shared(unit + key_offset(at % kUnitPositions, c), r16(x[i]));
        platform::st_shared(unit + value_offset<S::kDim>(at % kUnitPositions, c), value);
      }
    }
  }
  consumer_sync();
}

namespace detail {

/// add_unit for the 8 query vectors of column tile j, whose state m, l, o is.
template <class C, bool Masked, class Cta>
MEGALITH_DEVICE void add_columns(const Cta &cta, const AttentionTile &tile,
                                 const unsigned char *unit, int position, int j, float (&m)[2],
                                 float (&l)[2], float (&o)[AttentionShape<C>::kWarpSlices][4]) {
  using S = AttentionShape<C>;
  constexpr float kLog2Scale = static_cast<float>(C::kScoreScale * 1.4426950408889634);
  const int g = cta.lane / 4, t = cta.lane % 4;
  const unsigned char *query = C::Query::row(cta, 0, 8 * j + g) + 8 * t;
  unsigned char *prob = C::Prob::row(cta, 0, cta.role_warp);
  float s[4] = {0, 0, 0, 0};
  platform::mma_k_loop(s, {.steps = S::kSlices,
                           .a = unit + 16 * cta.lane,
                           .j0 = 0,
                           .swap = 0,
                           .a_stride = 512,
                           .a_valid = true,
                           .b = query,
                           .b_stride = 32,
                           .b_valid = 8 * j + g < tile.rows * S::kGroup});
  // s = {(key g, column 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)}
  float alpha[2];
  MEGALITH_UNROLL_ALL
  for (int e = 0; e < 2; ++e) {
    const int last = tile.start + (8 * j + 2 * t + e) / S::kGroup; // the query's own position
    const bool low = !Masked || position + g <= last, high = !Masked || position + g + 8 <= last;
    s[e] *= kLog2Scale;
    s[e + 2] *= kLog2Scale;
    float most = platform::fmaxf_(low ? s[e] : kNoScore, high ? s[e + 2] : kNoScore);
    for (int mask = 4; mask <= 16; mask *= 2)
      most = platform::fmaxf_(most, platform::shfl_xor(most, mask));
    most = platform::fmaxf_(most, m[e]);
    alpha[e] = platform::exp2f_(m[e] - most);
    m[e] = most;
    s[e] = low ? platform::exp2f_(s[e] - most) : 0.0f;
    s[e + 2] = high ? platform::exp2f_(s[e + 2] - most) : 0.0f;
    l[e] = platform::fmaf_(l[e], alpha[e], s[e] + s[e + 2]);
  }
  // Probabilities go from accumulator to B operand through shared memory: [column][key].
  platform::warp_sync();
  MEGALITH_UNROLL_ALL
  for (int e = 0; e < 4; ++e)
    platform::st_shared(prob + (2 * t + e % 2) * 32 + (g + e / 2 * 8) * 2, r16(s[e]));
  platform::warp_sync();
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < S::kWarpSlices; ++i) {
    const int slice = cta.role_warp + i * kConsumerWarps;
    if (slice < S::kSlices) {
      MEGALITH_UNROLL_ALL
      for (int e = 0; e < 4; ++e)
        o[i][e] *= alpha[e % 2];
      platform::mma_k_loop(o[i], {.steps = 1,
                                  .a = unit + S::kUnitBytes / 2 + slice * 512 + 16 * cta.lane,
                                  .j0 = 0,
                                  .swap = 0,
                                  .a_stride = 0,
                                  .a_valid = true,
                                  .b = prob + g * 32 + t * 8,
                                  .b_stride = 0,
                                  .b_valid = true});
    }
  }
}

/// Adds the 16 keys and values of `unit` (shared memory), the first of which is at `position`.
/// Masked: keys after a query's own position do not count.
template <class C, bool Masked, class Cta>
MEGALITH_DEVICE void add_unit(const Cta &cta, const AttentionTile &tile, const unsigned char *unit,
                              int position, AttentionState<C> &state) {
  using S = AttentionShape<C>;
  if (S::kSlices < kConsumerWarps && cta.role_warp >= S::kSlices)
    return; // has no value channels
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < S::kColumnTiles; ++j)
    if (8 * j < tile.rows * S::kGroup)
      add_columns<C, Masked>(cta, tile, unit, position, j, state.m[j], state.l[j], state.o[j]);
}

} // namespace detail

/// Consumer: adds the keys and values of full unit i of the tile, in slot `slot` of ring R. All of
/// them are before every query, so nothing is masked.
template <class C, class R, class Cta>
MEGALITH_DEVICE void attention_unit(const Cta &cta, const AttentionTile &tile, int slot, int i,
                                    AttentionState<C> &state) {
  detail::add_unit<C, false>(cta, tile, R::slot(cta, slot), tile.first + kUnitPositions * i, state);
}

/// Consumer: adds the tail units; a query sees keys up to its own position.
template <class C, class Cta>
MEGALITH_DEVICE void attention_tail_units(const Cta &cta, const AttentionTile &tile,
                                          AttentionState<C> &state) {
  for (int i = 0; i < tile.tail_units; ++i)
    detail::add_unit<C, true>(cta, tile, C::Tail::row(cta, 0, i),
                              tile.tail_first() + kUnitPositions * i, state);
}

/// Consumer: writes the tile's result to slot `slot` of C::Apart: per query vector
/// {m, l, o[d] not normalised}, kRecordBytes apart.
template <class C, class Cta>
MEGALITH_DEVICE void attention_finish(const Cta &cta, const AttentionTile &tile, int slot,
                                      const AttentionState<C> &state) {
  using S = AttentionShape<C>;
  if (S::kSlices < kConsumerWarps && cta.role_warp >= S::kSlices)
    return;
  const int vectors = tile.rows * S::kGroup, g = cta.lane / 4, t = cta.lane % 4;
  unsigned char *part = C::Apart::row(cta, slot, 0);
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < S::kColumnTiles; ++j) {
    MEGALITH_UNROLL_ALL
    for (int e = 0; e < 2; ++e) {
      float l = state.l[j][e];
      for (int mask = 4; mask <= 16; mask *= 2)
        l += platform::shfl_xor(l, mask);
      const int v = 8 * j + 2 * t + e;
      unsigned char *record = part + v * S::kRecordBytes;
      if (v < vectors && g == 0 && cta.role_warp == 0) {
        platform::st_shared(record, state.m[j][e]);
        platform::st_shared(record + 4, l);
      }
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < S::kWarpSlices; ++i) {
        const int slice = cta.role_warp + i * kConsumerWarps;
        if (v < vectors && slice < S::kSlices) {
          platform::st_shared(record + 8 + 4 * (16 * slice + g), state.o[j][i][e]);
          platform::st_shared(record + 8 + 4 * (16 * slice + g + 8), state.o[j][i][e + 2]);
        }
      }
    }
  }
}

/// Consumer: appends the tile's new positions to their page, from the tail units. After
/// launch_wait; last in the tile, so that the wait is as late as it can be.
template <class C, class Cta>
MEGALITH_DEVICE void attention_append(const Cta &cta, const AttentionTile &tile) {
  using S = AttentionShape<C>;
  for (int p = tile.first_new() + cta.role_warp; p < tile.end; p += kConsumerWarps) {
    const int at = p - tile.tail_first(), key = at % kUnitPositions;
    const unsigned char *unit = C::Tail::row(cta, 0, at / kUnitPositions);
    unsigned char *page = kv_unit<C>(cta, tile, p);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < S::kPerLane; ++i) {
      const int c = 32 * i + cta.lane, k = key_offset(key, c), v = value_offset<S::kDim>(key, c);
      platform::st_global(page + k, platform::ld_shared<bf16>(unit + k));
      platform::st_global(page + v, platform::ld_shared<bf16>(unit + v));
    }
  }
}

} // namespace megalith
