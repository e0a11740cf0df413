// The attention stage: one SM's share of softmax(q k^T) v for the rows of a step, with qk-norm,
// RoPE and the append to the KV pages. Tiles come from tiles.cuh, what is computed and by which
// warp from attention_shape.cuh, the pass over keys and values from scores.cuh, and a tile's result
// goes out through partials.cuh.
#pragma once

#include "codegen/device/edges.cuh"
#include "codegen/device/gather.cuh"
#include "codegen/device/partials.cuh"
#include "codegen/device/rope.cuh"
#include "codegen/device/scores.cuh"

namespace megalith {

/// The unit with `position` of the tile's (sequence, KV head) in the pool.
template <class C, class Cta>
MEGALITH_DEVICE unsigned char *kv_unit(const Cta &cta, const AttentionTile &tile, int position) {
  const int32_t *pages = cta.args.page_table + tile.seq * cta.args.max_pages;
  const auto page = platform::ld_const<int32_t>(pages + position / kPagePositions);
  const int unit = position % kPagePositions / kUnitPositions;
  const size_t index =
      (static_cast<size_t>(page) * C::kKvHeads + tile.kv_head) * (kPagePositions / kUnitPositions) +
      unit;
  return static_cast<unsigned char *>(cta.template buffer<C::kPool>()) +
         index * AttentionShape<C>::kUnitBytes;
}

/// Producer: copies piece i of the tile's full units to the next, acquired, slot of R. Its units
/// lie one after the other unless a page ends between them. Not out of line as pieces of weights
/// (stream.cuh): a long history's pieces are small and many, and this is what bounds their rate.
template <class C, class R, class Full, class Cta>
MEGALITH_DEVICE void copy_units(Cta &cta, const AttentionTile &tile, int i) {
  using S = AttentionShape<C>;
  static_assert(S::kPieceBytes <= R::kSlotBytes);
  const UnitRange range = piece_units<C>(tile, i);
  const int units = range.end - range.first, position = tile.first + kUnitPositions * range.first;
  const int left = (kPagePositions - position % kPagePositions) / kUnitPositions; // in the page
  const int first = units < left ? units : left;
  const unsigned char *rest =
      first < units ? kv_unit<C>(cta, tile, position + kUnitPositions * first) : nullptr;
  copy_bulk<Full, R>(cta, kv_unit<C>(cta, tile, position), first * S::kUnitBytes, rest,
                     (units - first) * S::kUnitBytes);
}

/// Poller: brings the tile's words of launch n-1 (E: the edge of the qkv exchange, age 1) to slot
/// `slot` of the tile's rows: q of its heads for all rows of the sequence, k and v of its KV head
/// for the rows whose position is the tile's. A tile that goes on has the queries of the one
/// before.
template <class C, class E, class Cta>
MEGALITH_DEVICE void poll_qkv_tile(const Cta &cta, const AttentionTile &tile, int slot) {
  using S = AttentionShape<C>;
  using X = typename E::Exchange;
  static_assert(E::kAge == (E::kIsProof ? 1 : 0), "what an earlier launch projected");
  static_assert(X::kCount == C::kRows && X::kWidth >= S::kQkvWidth / 2);
  constexpr int kHeadItems = S::kDim * 2 / 16, kRowItems = S::kQkvRow / 16;
  const uint32_t *words = set_of<X>(cta, E::kAge) + tile.first_row * X::kWidth;
  unsigned char *rows = C::QkvIn::row(cta, slot, 0);
  constexpr int kItems = (C::kRows * kRowItems + 31) / 32; // of a lane, at most
  constexpr int kBatch = kItems < 8 ? kItems : 8;
  const bool is_wanted = !tile.goes_on || tile.first_new() < tile.end;
  gather_words<E, kBatch>(
      cta, is_wanted ? tile.rows * kRowItems : 0, words,
      [&](int i) {
        const int row = i / kRowItems, head = i % kRowItems / kHeadItems, item = i % kHeadItems;
        const int position = tile.start + row;
        const bool is_wanted =
            head < S::kGroup ? !tile.goes_on : position >= tile.first && position < tile.end;
        if (!is_wanted)
          return -1;
        const int source = head < S::kGroup
                               ? tile.kv_head * S::kGroup + head
                               : C::kQHeads + (head - S::kGroup) * C::kKvHeads + tile.kv_head;
        return row * (X::kWidth / 4) + source * kHeadItems + item;
      },
      [&](int i, const u32x4 &v) { platform::st_shared(rows + 16 * i, v); });
}

/// What a consumer lane needs of the layer's constants, for channels lane, lane + 32, ...
template <class C> struct AttentionConstants {
  float q_gain[AttentionShape<C>::kPerLane];
  float k_gain[AttentionShape<C>::kPerLane];
  float frequency[C::kRopeDim > 0 ? C::kRopeDim / 64 : 1];
  float key_scale, value_scale; // where the cache has scales
};

/// Loads them; before the stage's first wait, so that their latency is hidden.
template <class C, class Cta>
MEGALITH_DEVICE AttentionConstants<C> attention_constants(const Cta &cta) {
  AttentionConstants<C> constants = {};
  if constexpr (C::kQkNorm == QkNorm::weighted) {
    const auto *q = static_cast<const bf16 *>(cta.template buffer<C::kQGain>());
    const auto *k = static_cast<const bf16 *>(cta.template buffer<C::kKGain>());
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < AttentionShape<C>::kPerLane; ++i) {
      constants.q_gain[i] = to_float(platform::ld_const<bf16>(q + 32 * i + cta.lane));
      constants.k_gain[i] = to_float(platform::ld_const<bf16>(k + 32 * i + cta.lane));
    }
  }
  if constexpr (C::kRopeDim > 0) {
    const auto *frequency = static_cast<const float *>(cta.template buffer<C::kInvFreq>());
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < C::kRopeDim / 64; ++i)
      constants.frequency[i] = platform::ld_const<float>(frequency + 32 * i + cta.lane);
  }
  if constexpr (C::kIsScaled) {
    constants.key_scale = platform::ld_const<float>(cta.template buffer<C::kKScale>());
    constants.value_scale = platform::ld_const<float>(cta.template buffer<C::kVScale>());
  }
  return constants;
}

namespace detail {

/// Channels 32 i + lane of a head in shared memory.
template <class C, class Cta>
MEGALITH_DEVICE void load_head(const Cta &cta, const unsigned char *source,
                               float (&x)[AttentionShape<C>::kPerLane]) {
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < AttentionShape<C>::kPerLane; ++i)
    x[i] = to_float(platform::ld_shared<bf16>(source + 2 * (32 * i + cta.lane)));
}

/// Those of the value that follows the key at `source`.
template <class C, class Cta>
MEGALITH_DEVICE void load_value(const Cta &cta, const unsigned char *source,
                                bf16 (&value)[AttentionShape<C>::kPerLane]) {
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < AttentionShape<C>::kPerLane; ++i)
    value[i] = platform::ld_shared<bf16>(source + 2 * (C::kHeadDim + 32 * i + cta.lane));
}

/// One warp: x[h][i] = channel 32 i + lane of a head, which is normed, rotated, each rounded; of
/// one head, or of a query and a key whose latencies overlap.
template <class C, int Heads, class Cta>
MEGALITH_DEVICE void
norm_heads(const Cta &cta, const float (&gain)[Heads][AttentionShape<C>::kPerLane],
           const Rotation<C::kRopeDim> &rotation, float (&x)[Heads][AttentionShape<C>::kPerLane]) {
  static_assert(Heads == 1 || Heads == 2);
  constexpr int kPerLane = AttentionShape<C>::kPerLane;
  if constexpr (C::kQkNorm != QkNorm::none) {
    float sum[Heads] = {};
    MEGALITH_UNROLL_ALL
    for (int h = 0; h < Heads; ++h) {
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < kPerLane; ++i)
        sum[h] = platform::fmaf_(x[h][i], x[h][i], sum[h]);
    }
    MEGALITH_UNROLL_ALL
    for (int mask = 16; mask > 0; mask /= 2) {
      MEGALITH_UNROLL_ALL
      for (int h = 0; h < Heads; ++h)
        sum[h] += platform::shfl_xor(sum[h], mask);
    }
    // One root for both: the upper lanes take the second head's.
    const float mine = cta.lane < 16 ? sum[0] : sum[Heads - 1];
    const float mean = platform::fmaf_(mine, 1.0f / C::kHeadDim, C::kQkNormEps);
    const float scale = platform::rsqrtf_(mean);
    MEGALITH_UNROLL_ALL
    for (int h = 0; h < Heads; ++h) {
      const float factor = Heads == 1 ? scale : platform::shfl(scale, 16 * h);
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < kPerLane; ++i) {
        const float normed = x[h][i] * factor;
        x[h][i] = round16(C::kQkNorm == QkNorm::weighted ? normed * gain[h][i] : normed);
      }
    }
  }
  if constexpr (C::kRopeDim > 0) {
    MEGALITH_UNROLL_ALL
    for (int h = 0; h < Heads; ++h)
      rotate_head<C::kRopeDim>(x[h], rotation);
  }
}

/// Vector i (16 bytes) of a unit with the values from key `old` on cleared: they are multiplied by
/// zero, and may be anything. What becomes of keys that are not there counts nowhere.
template <class C> MEGALITH_DEVICE u32x4 keep_old(u32x4 v, int i, int old) {
  if (i < AttentionShape<C>::kUnitBytes / 32)
    return v;
  if constexpr (C::kIsE4m3) {  // two lanes of the fragment
    const int key = i % 2 * 8; // words of keys (k, k+1) twice, k = 8 (i % 2) + 0, 2, 4, 6
    const auto kept = [&](int k) {
      return (k < old ? 0x00FF00FFu : 0u) | (k + 1 < old ? 0xFF00FF00u : 0u);
    };
    return {v.x & kept(key), v.y & kept(key + 2), v.z & kept(key + 4), v.w & kept(key + 6)};
  }
  const int key = i % 4 * 4; // words of keys (4t, 4t+1) twice, (4t+2, 4t+3) twice
  const auto kept = [&](int k) {
    return (k < old ? 0xFFFFu : 0u) | (k + 1 < old ? 0xFFFF0000u : 0u);
  };
  const uint32_t low = kept(key), high = kept(key + 2);
  return {v.x & low, v.y & low, v.z & high, v.w & high};
}

/// Writes channel 32 j + lane of a key and its value to a unit of the tail, rounded to what pages
/// hold; at_k and at_v are the places of channel `lane`.
template <class C>
MEGALITH_DEVICE void put_position(unsigned char *unit, int at_k, int at_v, int j, float k, bf16 v,
                                  const AttentionConstants<C> &constants) {
  if constexpr (C::kIsE4m3) {
    float value = to_float(v);
    if constexpr (C::kIsScaled) {
      k = platform::fdivf_(k, constants.key_scale);
      value = platform::fdivf_(value, constants.value_scale);
    }
    const uint32_t codes = platform::e4m3x2(k, value);
    platform::st_shared(unit + at_k / 2 + j * kPlaceStride / 2, static_cast<uint8_t>(codes));
    platform::st_shared(unit + at_v / 2 + j * kPlaceStride / 2, static_cast<uint8_t>(codes >> 8));
  } else {
    platform::st_shared(unit + at_k + j * kPlaceStride, r16(k));
    platform::st_shared(unit + at_v + j * kPlaceStride, v);
  }
}

/// One warp: a head as load_head leaves it becomes query row i.
template <class C, class Cta>
MEGALITH_DEVICE void put_query(const Cta &cta, int i,
                               const float (&x)[AttentionShape<C>::kPerLane]) {
  unsigned char *query = C::Query::row(cta, 0, i);
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < AttentionShape<C>::kPerLane; ++j)
    platform::st_shared(query + 2 * (32 * j + cta.lane), r16(x[j]));
}

/// One warp: likewise key `key` of the tail, with its value.
template <class C, class Cta>
MEGALITH_DEVICE void put_key(const Cta &cta, int key, const float (&x)[AttentionShape<C>::kPerLane],
                             const bf16 (&value)[AttentionShape<C>::kPerLane],
                             const AttentionConstants<C> &constants) {
  unsigned char *unit =
      C::Tail::row(cta, 0, AttentionShape<C>::kTailUnits > 1 ? key / kUnitPositions : 0);
  const int at_k = key_offset(key % kUnitPositions, cta.lane);
  const int at_v = value_offset<C::kHeadDim>(key % kUnitPositions, cta.lane);
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < AttentionShape<C>::kPerLane; ++j)
    put_position<C>(unit, at_k, at_v, j, x[j], value[j], constants);
}

/// Query vectors that a tile brings; a tile that goes on has those of the one before.
template <class C> MEGALITH_DEVICE int new_queries(const AttentionTile &tile) {
  return tile.goes_on ? 0 : tile.rows * AttentionShape<C>::kGroup;
}
/// Positions of a tile that this step adds.
MEGALITH_DEVICE int new_keys(const AttentionTile &tile) {
  return tile.end > tile.first_new() ? tile.end - tile.first_new() : 0;
}

/// Item i of a tile's heads that a warp norms and rotates: its query vectors, then its new keys.
struct Head {
  bool is_key;
  int row;  // of the sequence
  int head; // of the row's words in shared memory
};
template <class C> MEGALITH_DEVICE Head head_of(const AttentionTile &tile, int i) {
  constexpr int kGroup = AttentionShape<C>::kGroup;
  const int key = i - new_queries<C>(tile);
  return key < 0 ? Head{false, i / kGroup, i % kGroup}
                 : Head{true, tile.first_new() + key - tile.start, kGroup};
}

/// Of a single row whose query heads have a warp each: x[0] is the warp's query head as it was
/// projected, x[1] and `value` the new position. The tile with that position is the last to be
/// done, so the norm of the key does not come after that of a query: all warps compute it beside
/// theirs, whether there is one or not, and warp 0 keeps it.
template <class C, class Cta>
MEGALITH_DEVICE void
begin_row(const Cta &cta, const AttentionTile &tile, float (&x)[2][AttentionShape<C>::kPerLane],
          const bf16 (&value)[AttentionShape<C>::kPerLane], const AttentionConstants<C> &constants,
          const AttentionState<C> &state) {
  using S = AttentionShape<C>;
  float gain[2][S::kPerLane];
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < S::kPerLane; ++j)
    gain[0][j] = constants.q_gain[j], gain[1][j] = constants.k_gain[j];
  norm_heads<C, 2>(cta, gain, state.rotation, x);
  if (!tile.goes_on && cta.role_warp < S::kGroup)
    put_query<C>(cta, cta.role_warp, x[0]);
  if (new_keys(tile) > 0 && cta.role_warp == 0)
    put_key<C>(cta, tile.start - tile.tail_first(), x[1], value, constants);
}

} // namespace detail

/// Consumer: all of a tile that needs no words of launch n-1. The tail units get their positions
/// below `start`, from the page (written by launches that are over), and zeros for the rest.
template <class C, class Cta>
MEGALITH_DEVICE void attention_prepare(const Cta &cta, const AttentionTile &tile,
                                       const AttentionConstants<C> &constants,
                                       AttentionState<C> &state) {
  using S = AttentionShape<C>;
  clear_state<C>(cta, tile, state);
  if constexpr (C::kIsScaled) {
    state.key_scale = constants.key_scale;
    state.value_scale = constants.value_scale;
  }
  // Only the first tail unit can have positions below `start`, from its first on. They come from
  // HBM, so they are asked for first.
  constexpr int kUnitVectors = S::kUnitBytes / 16, kThreads = 32 * kConsumerWarps;
  constexpr int kOld = (kUnitVectors + kThreads - 1) / kThreads; // vectors of a lane
  const int at = 32 * cta.role_warp + cta.lane, old = tile.start - tile.tail_first();
  u32x4 kept[kOld] = {};
  if (tile.tail_units > 0 && old > 0) {
    const unsigned char *page = kv_unit<C>(cta, tile, tile.tail_first());
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < kOld; ++j)
      if (kUnitVectors % kThreads == 0 || at + kThreads * j < kUnitVectors)
        kept[j] = platform::ld_global<u32x4>(page + 16 * (at + kThreads * j));
  }
  if (C::kRows == 1) // all heads are of one position
    state.rotation.turn_to(tile.start, constants.frequency);
  else if (cta.role_warp < detail::new_queries<C>(tile) + detail::new_keys(tile))
    state.rotation.turn_to(tile.start + detail::head_of<C>(tile, cta.role_warp).row,
                           constants.frequency);
  consumer_sync(); // all warps are done with the previous tile's q rows, tail and records
  if (tile.tail_units == 0)
    return;
  unsigned char *tail = C::Tail::row(cta, 0, 0);
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < kOld; ++j) {
    const int i = at + kThreads * j;
    if (kUnitVectors % kThreads == 0 || i < kUnitVectors)
      platform::st_shared(tail + 16 * i, detail::keep_old<C>(kept[j], i, old));
  }
  if constexpr (S::kTailUnits > 1) {
    MEGALITH_UNROLL(1)
    for (int i = kUnitVectors + at; i < tile.tail_units * kUnitVectors; i += kThreads)
      platform::st_shared(tail + 16 * i, u32x4{0, 0, 0, 0});
  }
  consumer_sync(); // zeros before the new positions that replace them
}

/// Consumer: what the words in slot `slot` are needed for. Query vectors and new keys are normed
/// and rotated; the queries become rows in shared memory, keys and values join the tail units.
/// Returns with both visible to all consumer warps and the slot no longer needed.
template <class C, class Cta>
MEGALITH_DEVICE void attention_begin(const Cta &cta, const AttentionTile &tile, int slot,
                                     const AttentionConstants<C> &constants,
                                     AttentionState<C> &state) {
  using S = AttentionShape<C>;
  const int heads = detail::new_queries<C>(tile) + detail::new_keys(tile);
  if (heads == 0)
    return; // the queries are there
  if constexpr (C::kRows == 1 && S::kGroup <= kConsumerWarps) {
    const unsigned char *words = C::QkvIn::row(cta, slot, 0),
                        *key = words + S::kGroup * S::kDim * 2;
    constexpr int kLast = S::kGroup - 1; // warps without a head repeat it
    const int head = cta.role_warp < kLast ? cta.role_warp : kLast;
    float x[2][S::kPerLane];
    bf16 value[S::kPerLane];
    detail::load_head<C>(cta, words + head * S::kDim * 2, x[0]);
    detail::load_head<C>(cta, key, x[1]);
    detail::load_value<C>(cta, key, value);
    detail::begin_row<C>(cta, tile, x, value, constants, state);
  } else {
    for (int i = cta.role_warp; i < heads; i += kConsumerWarps) {
      const detail::Head at = detail::head_of<C>(tile, i);
      const int position = tile.start + at.row;
      if constexpr (C::kRows > 1)
        state.rotation.turn_to(position, constants.frequency);
      const unsigned char *source = C::QkvIn::row(cta, slot, at.row) + at.head * S::kDim * 2;
      float gain[1][S::kPerLane], x[1][S::kPerLane];
      MEGALITH_UNROLL_ALL
      for (int j = 0; j < S::kPerLane; ++j)
        gain[0][j] = at.is_key ? constants.k_gain[j] : constants.q_gain[j];
      detail::load_head<C>(cta, source, x[0]);
      detail::norm_heads<C, 1>(cta, gain, state.rotation, x);
      if (!at.is_key) {
        detail::put_query<C>(cta, i, x[0]);
        continue;
      }
      bf16 value[S::kPerLane];
      detail::load_value<C>(cta, source, value);
      detail::put_key<C>(cta, position - tile.tail_first(), x[0], value, constants);
    }
  }
  consumer_sync();
}

/// Consumer: adds the keys and values of piece i of the tile's full units, in slot `slot` of ring
/// R, if they are this warp's.
template <class C, class R, class Cta>
MEGALITH_DEVICE void attention_piece(const Cta &cta, const AttentionTile &tile, int slot, int i,
                                     AttentionState<C> &state) {
  using S = AttentionShape<C>;
  const UnitRange range = piece_units<C>(tile, i);
  const auto add_pair = [&](int unit) { // both of one warp
    const int left = range.end - unit;
    if (left > 0 && state.share.has_unit(unit))
      add_units<C>(cta, tile, R::slot(cta, slot) + (unit - range.first) * S::kUnitBytes,
                   left < 2 ? left : 2, tile.first + kUnitPositions * unit, state);
  };
  if constexpr (S::kPieceUnits > 2) {
    MEGALITH_UNROLL(1)
    for (int pair = 0; pair < S::kPieceUnits; pair += 2)
      add_pair(range.first + pair);
  } else {
    add_pair(range.first);
  }
}

/// Consumer: adds the tail units that are this warp's.
template <class C, class Cta>
MEGALITH_DEVICE void attention_tail(const Cta &cta, const AttentionTile &tile,
                                    AttentionState<C> &state) {
  const int first = tile.full_units;
  const bool has_first = tile.tail_units > 0 && state.share.has_unit(first);
  const bool has_second = tile.tail_units > 1 && state.share.has_unit(first + 1);
  if (has_first || has_second)
    add_units<C>(cta, tile, C::Tail::row(cta, 0, has_first ? 0 : 1), has_first + has_second,
                 tile.tail_first() + (has_first ? 0 : kUnitPositions), state);
}

namespace detail {
template <bool IsE4m3> struct PageElement { using Type = bf16; };
template <> struct PageElement<true> { using Type = uint8_t; };
} // namespace detail

/// Consumer: appends the tile's new positions to their page, from the tail units. After
/// launch_wait; last in the tile, for nobody waits for it.
template <class C, class Cta>
MEGALITH_DEVICE void attention_append(const Cta &cta, const AttentionTile &tile) {
  using S = AttentionShape<C>;
  constexpr int kStride = C::kIsE4m3 ? kPlaceStride / 2 : kPlaceStride, kHalve = C::kIsE4m3 ? 2 : 1;
  using Element = typename detail::PageElement<C::kIsE4m3>::Type;
  MEGALITH_UNROLL(1)
  for (int p = tile.first_new() + cta.role_warp; p < tile.end; p += kConsumerWarps) {
    const int at = p - tile.tail_first(), key = at % kUnitPositions;
    const unsigned char *unit = C::Tail::row(cta, 0, at / kUnitPositions);
    unsigned char *page = kv_unit<C>(cta, tile, p);
    const int places[2] = {key_offset(key, cta.lane) / kHalve,
                           value_offset<S::kDim>(key, cta.lane) / kHalve};
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < 2 * S::kPerLane; ++i) {
      const int place = places[i % 2] + i / 2 * kStride;
      platform::st_global(page + place, platform::ld_shared<Element>(unit + place));
    }
  }
}

} // namespace megalith
