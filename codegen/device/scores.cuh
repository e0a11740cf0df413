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

/// Consumer state of a tile, in registers: the warp's share, and for columns 2 (lane % 4) + {0, 1}
/// of its column tile in each round what the keys so far came to.
template <class C> struct AttentionState : StateScales<C::kIsScaled> {
  using S = AttentionShape<C>;
  Rotation<C::kRopeDim> rotation; // of the last head that the warp rotated
  WarpShare share;
  float m[S::kRounds][2];             // largest score so far, log2 domain; 0 where bounded
  float l[S::kRounds][2];             // this lane's part of the sum of 2^(score - m)
  float o[S::kRounds][S::kSlices][4]; // sum of p v: mma accumulators, channels 16 i + ...
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
      state.m[r][e] = C::kBounded ? 0.0f : kNoScore;
      state.l[r][e] = 0;
    }
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < S::kSlices; ++i) {
      MEGALITH_UNROLL_ALL
      for (int e = 0; e < 4; ++e)
        state.o[r][i][e] = 0;
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
template <class C, class Cta>
MEGALITH_DEVICE void soften(const Cta &cta, const AttentionTile &tile, int first_vector, int units,
                            int position, PairScores &pair, float (&m)[2], float (&l)[2],
                            float key_scale) {
  constexpr float kUnscaled = static_cast<float>(C::kScoreScale * 1.4426950408889634);
  const float log2_scale = C::kIsScaled ? kUnscaled * key_scale : kUnscaled;
  const int g = cta.lane / 4, t = cta.lane % 4;
  MEGALITH_UNROLL_ALL
  for (int e = 0; e < 2; ++e) {
    // Keys g and g + 8 of a unit at `position` count up to the query's own position.
    const int seen =
        tile.start + (first_vector + 2 * t + e) / AttentionShape<C>::kGroup - position - g;
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
      continue;
    }
    float most[2];
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < 2; ++u) {
      pair.s[u][e] *= log2_scale;
      pair.s[u][e + 2] *= log2_scale;
      most[u] =
          platform::fmaxf_(low[u] ? pair.s[u][e] : kNoScore, high[u] ? pair.s[u][e + 2] : kNoScore);
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

} // namespace detail

/// Adds to the warp's state the keys and values of `units` (1 or 2) consecutive units in shared
/// memory, the first key of which is at `position`. Keys after a query's own position do not count.
template <class C, class Cta>
MEGALITH_DEVICE void add_units(const Cta &cta, const AttentionTile &tile, const unsigned char *unit,
                               int units, int position, AttentionState<C> &state) {
  using S = AttentionShape<C>;
  const int g = cta.lane / 4, t = cta.lane % 4, vectors = tile.rows * S::kGroup;
  // Where there is no second unit the first stands in for it and its keys do not count.
  const unsigned char *second = units > 1 ? unit + S::kUnitBytes : unit;
  MEGALITH_UNROLL_ALL
  for (int r = 0; r < S::kRounds; ++r) {
    const int first = 8 * (8 * r + state.share.column); // query vector
    if (first >= vectors)
      continue;
    detail::PairScores pair = {};
    const platform::MmaLoop loop = {.steps = S::kSlices,
                                    .a = unit + 16 * cta.lane,
                                    .j0 = 0,
                                    .swap = 0,
                                    .a_stride = 512,
                                    .a_valid = true,
                                    .b = C::Query::row(cta, 0, first + g) + 8 * t,
                                    .b_stride = 32,
                                    .b_valid = first + g < vectors};
    if constexpr (C::kIsE4m3)
      detail::scores_of_codes<S::kSlices>(pair, unit + 8 * cta.lane, second + 8 * cta.lane, loop.b,
                                          loop.b_valid);
    else
      platform::mma_k_loops(pair.s[0], pair.s[1], loop, second + 16 * cta.lane);
    detail::soften<C>(cta, tile, first, units, position, pair, state.m[r], state.l[r],
                      state.key_scale);
    // Probabilities go from accumulator to B operand, [unit][column][key], through the place where
    // the warp's records will be.
    unsigned char *prob = apart_record<C>(cta, cta.role_warp, 0);
    static_assert(S::kColumns * S::kRecordBytes >= 512);
    platform::warp_sync();
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < 8; ++i) {
      const int u = i / 4, e = i % 4;
      platform::st_shared(prob + u * 256 + (2 * t + e % 2) * 32 + (g + e / 2 * 8) * 2,
                          r16(pair.s[u][e]));
    }
    platform::warp_sync();
    if constexpr (C::kIsE4m3) { // a loop: codes take much code
      MEGALITH_UNROLL(1)
      for (int u = 0; u < units; ++u) {
        const auto p = platform::ld_shared<u32x2>(prob + u * 256 + g * 32 + t * 8);
        const float alpha[2] = {u == 0 ? pair.alpha[0][0] : pair.alpha[1][0],
                                u == 0 ? pair.alpha[0][1] : pair.alpha[1][1]};
        MEGALITH_UNROLL_ALL
        for (int i = 0; i < S::kSlices; ++i) {
          MEGALITH_UNROLL_ALL
          for (int e = 0; e < 4 && !C::kBounded; ++e)
            state.o[r][i][e] *= alpha[e % 2];
        }
        detail::add_values_of_codes(state.o[r],
                                    unit + u * S::kUnitBytes + S::kUnitBytes / 2 + 8 * cta.lane, p);
      }
      continue;
    }
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < 2; ++u) {
      const auto p = platform::ld_shared<u32x2>(prob + u * 256 + g * 32 + t * 8);
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < S::kSlices; ++i) {
        MEGALITH_UNROLL_ALL
        for (int e = 0; e < 4 && !C::kBounded; ++e)
          state.o[r][i][e] *= pair.alpha[u][e % 2];
      }
      platform::mma_tiles(state.o[r], (u == 0 ? unit : second) + S::kUnitBytes / 2 + 16 * cta.lane,
                          512, p);
    }
  }
}

} // namespace megalith
