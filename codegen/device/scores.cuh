// One warp's pass over keys and values: scores, running softmax, p v, two units at a time.
//
// Query vectors are (row of the sequence, query head of the group), row-major; they are the columns
// of the mma, 8 to a column tile, and keys (then value channels) are its 16 rows. Scores live in
// the log2 domain. The two units of a step overlap in the instruction stream, but the result is
// that of one after the other: probabilities are relative to the largest score of the warp's keys
// up to their own unit, and so they round (docs/kernel-contract.md section 6).
#pragma once

#include "codegen/device/attention_shape.cuh"
#include "codegen/device/rope.cuh"
#include "codegen/device/slots.cuh"

namespace megalith {

/// m of a query that has seen no key; finite, so that differences are.
inline constexpr float kNoScore = -1e30f;

/// Of a cache that has scales; of any other they are one, and nothing is kept.
template <bool IsScaled> struct StateScales {
  static constexpr float key_scale = 1, value_scale = 1;
};
template <> struct StateScales<true> { float key_scale, value_scale; };

namespace detail {
/// What the keys so far came to in one round.
template <class C> struct Sums {
  float m[2];                             // largest score so far, log2 domain; 0 where bounded
  float l[2];                             // this lane's part of the sum of 2^(score - m)
  float o[AttentionShape<C>::kSlices][4]; // sum of p v: mma accumulators, channels 16 i + ...
};
} // namespace detail

/// Consumer state of a tile, in registers: the warp's share, and for columns 2 (lane % 4) + {0, 1}
/// of its column tile in each round what the keys so far came to.
template <class C> struct AttentionState : StateScales<C::kIsScaled> {
  using S = AttentionShape<C>;
  Rotation<C::kRopeDim> rotation; // of the last head that the warp rotated
  WarpShare share;
  detail::Sums<C> sums[S::kRounds];
};

/// State before the first key.
template <class C, class Cta>
MEGALITH_DEVICE void clear_state(const Cta &cta, const AttentionTile &tile,
                                 AttentionState<C> &state) {
  using S = AttentionShape<C>;
  const int vectors = tile.rows * S::kGroup, of_all = vectors * C::kHeadRanks;
  state.share = C::kRows > 1 && tile.splits > 1 ? WarpShare::of_splits(tile, of_all, cta.role_warp)
                                                : WarpShare::of(vectors, of_all, cta.role_warp);
  MEGALITH_UNROLL_ALL
  for (int r = 0; r < S::kRounds; ++r) {
    MEGALITH_UNROLL_ALL
    for (int e = 0; e < 2; ++e) {
      state.sums[r].m[e] = C::kBounded ? 0.0f : kNoScore;
      state.sums[r].l[e] = 0;
    }
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < S::kSlices; ++i) {
      MEGALITH_UNROLL_ALL
      for (int e = 0; e < 4; ++e)
        state.sums[r].o[i][e] = 0;
    }
  }
}

/// Row of C::Apart in which warp `warp` leaves what it found for column `column` of its tile in the
/// round at hand.
template <class C, class Cta>
MEGALITH_DEVICE unsigned char *apart_record(const Cta &cta, int warp, int column) {
  return C::Apart::row(cta, 0, warp * AttentionShape<C>::kColumns + column);
}

namespace detail {

/// The scores of a lane for two units, and what becomes of them.
struct PairScores {
  float s[2][4];     // of a unit: {(key g, column 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)}
  float alpha[2][2]; // factor on what came before a unit, by column
};

/// Whether a key `before` positions before the query counts.
template <class C> MEGALITH_DEVICE bool counts(int before) {
  if constexpr (C::kWindow > 0)
    return static_cast<uint32_t>(before) < static_cast<uint32_t>(C::kWindow);
  else
    return before >= 0;
}

/// Scores to probabilities, with m and l brought up to date. Keys after a query's own position or
/// before its window, and all of the second unit unless `units` is 2, do not count.
/// `before`: positions from the unit's first key to the sequence's first row.
template <class C>
MEGALITH_DEVICE void soften(int lane, int first_vector, int units, int before, PairScores &pair,
                            float (&m)[2], float (&l)[2], float key_scale) {
  constexpr float kUnscaled = static_cast<float>(C::kScoreScale * 1.4426950408889634);
  const float log2_scale = C::kIsScaled ? kUnscaled * key_scale : kUnscaled;
  const int g = lane / 4, t = lane % 4;
  MEGALITH_UNROLL_ALL
  for (int e = 0; e < 2; ++e) {
    // Keys g and g + 8 of a unit count up to the query's own position.
    const int row = C::kRows == 1 ? 0 : (first_vector + 2 * t + e) / AttentionShape<C>::kGroup;
    const int seen = before + row - g;
    const bool low[2] = {counts<C>(seen), units > 1 && counts<C>(seen - kUnitPositions)};
    const bool high[2] = {counts<C>(seen - 8), units > 1 && counts<C>(seen - kUnitPositions - 8)};
    if constexpr (C::kBounded) { // relative to 2^0, before and after
      MEGALITH_UNROLL_ALL
      for (int u = 0; u < 2; ++u) {
        pair.alpha[u][e] = 1.0f;
        pair.s[u][e] = low[u] ? platform::exp2f_(pair.s[u][e] * log2_scale) : 0.0f;
        pair.s[u][e + 2] = high[u] ? platform::exp2f_(pair.s[u][e + 2] * log2_scale) : 0.0f;
        l[e] += pair.s[u][e] + pair.s[u][e + 2];
      }
    } else {
      float most[2];
      MEGALITH_UNROLL_ALL
      for (int u = 0; u < 2; ++u) {
        pair.s[u][e] *= log2_scale;
        pair.s[u][e + 2] *= log2_scale;
        most[u] = platform::fmaxf_(low[u] ? pair.s[u][e] : kNoScore,
                                   high[u] ? pair.s[u][e + 2] : kNoScore);
      }
      for (int mask = 4; mask <= 16; mask *= 2) {
        MEGALITH_UNROLL_ALL
        for (int u = 0; u < 2; ++u)
          most[u] = platform::fmaxf_(most[u], platform::shfl_xor(most[u], mask));
      }
      MEGALITH_UNROLL_ALL
      for (int u = 0; u < 2; ++u) {
        const float now = platform::fmaxf_(most[u], m[e]);
        pair.alpha[u][e] = platform::exp2f_(m[e] - now);
        m[e] = now;
        pair.s[u][e] = low[u] ? platform::exp2f_(pair.s[u][e] - now) : 0.0f;
        pair.s[u][e + 2] = high[u] ? platform::exp2f_(pair.s[u][e + 2] - now) : 0.0f;
        l[e] = platform::fmaf_(l[e], pair.alpha[u][e], pair.s[u][e] + pair.s[u][e + 2]);
      }
    }
  }
}

/// A lane's fragment of A from its eight codes, which lie in the fragment's order: every e4m3 is a
/// bf16.
MEGALITH_DEVICE u32x4 widened(const u32x2 &codes) {
  const u32x2 low = platform::widen_e4m3(codes.x), high = platform::widen_e4m3(codes.y);
  return {low.x, low.y, high.x, high.y};
}

/// platform::mma_k_loops over the K parts of two units of e4m3: `a0`, `a1` are the lane's codes of
/// the first slice, 256 bytes before those of the next.
template <int Slices>
MEGALITH_DEVICE void scores_of_codes(PairScores &pair, const unsigned char *a0,
                                     const unsigned char *a1, const unsigned char *query,
                                     bool is_valid) {
  constexpr int kAhead = 4;
  static_assert(Slices % kAhead == 0);
  MEGALITH_UNROLL(1)
  for (int first = 0; first < Slices; first += kAhead) {
    u32x2 codes[2][kAhead], b[kAhead];
    MEGALITH_UNROLL_ALL
    for (int s = 0; s < kAhead; ++s) {
      b[s] = platform::ld_shared<u32x2>(query + 32 * (first + s));
      codes[0][s] = platform::ld_shared<u32x2>(a0 + 256 * (first + s));
      codes[1][s] = platform::ld_shared<u32x2>(a1 + 256 * (first + s));
    }
    platform::mma_steps_of_two<kAhead>(
        pair.s[0], pair.s[1], [&](int s) { return widened(codes[0][s]); },
        [&](int s) { return widened(codes[1][s]); }, [&](int s) { return b[s]; }, is_valid);
  }
}

/// platform::mma_tiles over the V part of a unit of e4m3.
template <int N>
MEGALITH_DEVICE void add_values_of_codes(float (&acc)[N][4], const unsigned char *a,
                                         const u32x2 &p) {
  constexpr int kAhead = 4;
  static_assert(N % kAhead == 0);
  MEGALITH_UNROLL_ALL
  for (int first = 0; first < N; first += kAhead) {
    u32x2 codes[kAhead];
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kAhead; ++i)
      codes[i] = platform::ld_shared<u32x2>(a + 256 * (first + i));
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kAhead; ++i)
      platform::mma_steps<1>(
          acc[first + i], [&](int) { return widened(codes[i]); }, [&](int) { return p; }, true);
  }
}

/// One or two units and the column tile of queries that they meet; places are bytes of the arena.
struct UnitPair {
  uint32_t unit, second; // the second unit, or the first again
  uint32_t query;        // what this lane multiplies of the first slice
  uint32_t prob;         // room for 512 bytes of the warp's own
  int units, before, first_vector;
  bool is_valid; // whether the lane has a query
  float key_scale;
};

/// Adds the pair's keys and values.
template <class C> MEGALITH_DEVICE void add_pair(int lane, const UnitPair &pair, Sums<C> &sums) {
  using S = AttentionShape<C>;
  const int g = lane / 4, t = lane % 4;
  unsigned char *const smem = platform::smem();
  const unsigned char *unit = smem + pair.unit, *second = smem + pair.second;
  PairScores scores = {};
  if constexpr (C::kIsE4m3)
    scores_of_codes<S::kSlices>(scores, unit + 8 * lane, second + 8 * lane, smem + pair.query,
                                pair.is_valid);
  else
    platform::mma_k_loops(scores.s[0], scores.s[1],
                          {.steps = S::kSlices,
                           .a = unit + 16 * lane,
                           .j0 = 0,
                           .swap = 0,
                           .a_stride = 512,
                           .a_valid = true,
                           .b = smem + pair.query,
                           .b_stride = 32,
                           .b_valid = pair.is_valid},
                          second + 16 * lane);
  soften<C>(lane, pair.first_vector, pair.units, pair.before, scores, sums.m, sums.l,
            pair.key_scale);
  // Probabilities go from accumulator to B operand, [unit][column][key].
  unsigned char *prob = smem + pair.prob;
  platform::warp_sync();
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < 8; ++i) {
    const int u = i / 4, e = i % 4;
    platform::st_shared(prob + u * 256 + (2 * t + e % 2) * 32 + (g + e / 2 * 8) * 2,
                        r16(scores.s[u][e]));
  }
  platform::warp_sync();
  const auto rescale = [&](float low, float high) {
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < S::kSlices; ++i) {
      MEGALITH_UNROLL_ALL
      for (int e = 0; e < 4 && !C::kBounded; ++e)
        sums.o[i][e] *= e % 2 ? high : low;
    }
  };
  if constexpr (C::kIsE4m3) { // a loop: codes take much code
    MEGALITH_UNROLL(1)
    for (int u = 0; u < pair.units; ++u) {
      const auto p = platform::ld_shared<u32x2>(prob + u * 256 + g * 32 + t * 8);
      rescale(u == 0 ? scores.alpha[0][0] : scores.alpha[1][0],
              u == 0 ? scores.alpha[0][1] : scores.alpha[1][1]);
      add_values_of_codes(sums.o, unit + u * S::kUnitBytes + S::kUnitBytes / 2 + 8 * lane, p);
    }
  } else {
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < 2; ++u) {
      const auto p = platform::ld_shared<u32x2>(prob + u * 256 + g * 32 + t * 8);
      rescale(scores.alpha[u][0], scores.alpha[u][1]);
      platform::mma_tiles(sums.o, (u == 0 ? unit : second) + S::kUnitBytes / 2 + 16 * lane, 512, p);
    }
  }
}

/// The same out of line, for pieces and tails of a single row whose sums pass in registers.
template <class C> MEGALITH_COLD Sums<C> sums_with(int lane, UnitPair pair, Sums<C> sums) {
  add_pair<C>(lane, pair, sums);
  return sums;
}

} // namespace detail

/// Adds to the warp's state the keys and values of `units` (1 or 2) consecutive units in shared
/// memory, the first key of which is at `position`. Keys after a query's own position do not count.
template <class C, class Cta>
MEGALITH_DEVICE void add_units(const Cta &cta, const AttentionTile &tile, const unsigned char *unit,
                               int units, int position, AttentionState<C> &state) {
  using S = AttentionShape<C>;
  const int g = cta.lane / 4, t = cta.lane % 4, vectors = tile.rows * S::kGroup;
  static_assert(S::kColumns * S::kRecordBytes >= 512, "probabilities lie where records will");
  MEGALITH_UNROLL_ALL
  for (int r = 0; r < S::kRounds; ++r) {
    const int first = 8 * (8 * r + state.share.column); // query vector
    if (first >= vectors)
      continue;
    const auto place = [&](const unsigned char *p) { return static_cast<uint32_t>(p - cta.smem); };
    // Where there is no second unit the first stands in for it and its keys do not count.
    const detail::UnitPair pair = {.unit = place(unit),
                                   .second = place(unit) + (units > 1 ? S::kUnitBytes : 0),
                                   .query = place(C::Query::row(cta, 0, first + g) + 8 * t),
                                   .prob = place(apart_record<C>(cta, cta.role_warp, 0)),
                                   .units = units,
                                   .before = tile.start - position,
                                   .first_vector = first,
                                   .is_valid = first + g < vectors,
                                   .key_scale = state.key_scale};
    detail::Sums<C> &sums = state.sums[r];
    if constexpr (C::kRows == 1 && S::kSlices <= 4)
      sums = detail::sums_with<C>(cta.lane, pair, sums);
    else
      detail::add_pair<C>(cta.lane, pair, sums);
  }
}

} // namespace megalith
