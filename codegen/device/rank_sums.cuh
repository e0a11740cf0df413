// Projections divided by K: each rank has some columns of the matrix and so a part of each output's
// sum. All parts go to all ranks, who add them in the order of ranks and round: from here on every
// rank has the same outputs.
//
// The words of a row (of a pair, behind the experts' down projection) are R times its channels,
// rank by rank: fp32 sums, or bf16 pairs of them.
#pragma once

#include "codegen/device/expert_norm.cuh"

namespace megalith {

/// Down tile of one expert: this rank's part of the sums, for every rank, as words of E: fp32
/// `[pair][2 * kStrips]` a rank, or bf16 `[pair][kStrips]`. `pairs[0..count)` (shared) are the
/// expert's pairs, in the mma's column order.
template <class L, class E, class Cta, class Sum>
MEGALITH_DEVICE void epilogue_parts(const Cta &cta, int tile, const Sum &sum, const int32_t *pairs,
                                    int count) {
  constexpr bool kIsRounded = E::Exchange::kOwn == L::kStrips;
  static_assert(kIsRounded || E::Exchange::kOwn == 2 * L::kStrips);
  platform::mark<platform::verb::Publish, E>();
  detail::each_word<L>(cta, tile, sum, count, [&](int column, int strip, float low, float high) {
    const int pair = platform::ld_shared<int32_t>(pairs + column);
    const int at = tile_first<L>(cta, tile) + strip;
    if constexpr (kIsRounded) {
      publish<E>(cta, pair, at, pair_word(low, high));
    } else {
      publish<E>(cta, pair, 2 * at, float_word(low));
      publish<E>(cta, pair, 2 * at + 1, float_word(high));
    }
  });
  platform::mark_end();
}

namespace detail {
/// bf16 words r16(sum over ranks, ascending) of the channels of one vector of every rank's words.
template <bool IsRounded, int Ranks>
MEGALITH_DEVICE void add_parts(const u32x4 (&parts)[Ranks], uint32_t (&out)[IsRounded ? 4 : 2]) {
  float sum[IsRounded ? 8 : 4] = {};
  MEGALITH_UNROLL_ALL
  for (int rank = 0; rank < Ranks; ++rank) {
    const uint32_t word[4] = {parts[rank].x, parts[rank].y, parts[rank].z, parts[rank].w};
    MEGALITH_UNROLL_ALL
    for (int w = 0; w < 4; ++w)
      if constexpr (IsRounded) {
        sum[2 * w] += lo16(word[w]);
        sum[2 * w + 1] += hi16(word[w]);
      } else {
        sum[w] += bits_to_float(word[w]);
      }
  }
  MEGALITH_UNROLL_ALL
  for (int w = 0; w < (IsRounded ? 4 : 2); ++w)
    out[w] = r16x2(sum[2 * w], sum[2 * w + 1]);
}
} // namespace detail

/// Epilogue: waits for share `part` of all ranks' parts of the pairs of `row`, words of E, and puts
/// t = r16(r16(sum over ranks, ascending) * gain) in C::Outputs; without the gain if `Gain`, the
/// buffer slot of bf16 gains, is kWeightless. A dead row has none.
template <class C, class E, int Gain, class Cta>
MEGALITH_DEVICE void poll_parts(const Cta &cta, int row, int part) {
  using X = typename E::Exchange;
  constexpr bool kIsRounded = X::kOwn * 2 == C::kWidth;
  static_assert((kIsRounded || X::kOwn == C::kWidth) && X::kOwn % 4 == 0);
  constexpr int kWords = kIsRounded ? 4 : 2;               // bf16 words of t that a vector makes
  constexpr int kVectors = C::Outputs::kWidth / kWords;    // of a share
  constexpr int kRank = X::kOwn / 4, kRow = X::kWidth / 4; // of a pair: one rank's, all
  const bool is_live = cta.is_live(row);
  platform::warp_sync(); // what a row before left has been read
  MEGALITH_UNROLL(1)
  for (int first = 0; first < C::kPairs * kVectors; first += 32) {
    const int slot = (first + cta.lane) / kVectors, own = (first + cta.lane) % kVectors;
    const int vector = part * kVectors + own;
    const bool has = is_live && slot < C::kPairs && vector < kRank;
    [[maybe_unused]] uint32_t gain[kWords]; // asked for before the wait
    if constexpr (Gain >= 0) {
      MEGALITH_UNROLL_ALL
      for (int w = 0; w < kWords; ++w)
        gain[w] = platform::ld_const<uint32_t>(
            static_cast<const uint32_t *>(cta.template buffer<Gain>()) +
            (has ? vector * kWords + w : 0));
    }
    u32x4 parts[X::kRanks];
    gather_registers<E>(
        cta, set_of<X>(cta, 0),
        [&](int rank) {
          return has ? (row * C::kPairs + slot) * kRow + rank * kRank + vector : -1;
        },
        parts);
    uint32_t t[kWords];
    detail::add_parts<kIsRounded>(parts, t);
    MEGALITH_UNROLL_ALL
    for (int w = 0; w < kWords; ++w) {
      if constexpr (Gain >= 0)
        t[w] = r16x2(lo16(t[w]) * lo16(gain[w]), hi16(t[w]) * hi16(gain[w]));
      if (has)
        platform::st_shared(C::Outputs::row(cta, slot) + kWords * own + w, t[w]);
    }
  }
  await_hop<X>(cta, 0, X::kWidth);
  platform::warp_sync();
}

/// Epilogue, after the parts of its last tile: waits for all ranks' parts of this SM's slice, words
/// of E, and puts r16(sum over ranks, ascending) in S, a WordRows `[rows][L::kUnit]`.
template <class L, class E, class S, class Cta>
MEGALITH_DEVICE void poll_slice_parts(const Cta &cta) {
  using X = typename E::Exchange;
  constexpr bool kIsRounded = X::kOwn == L::kStrips;
  constexpr int kWords = kIsRounded ? 4 : 2, kVectors = L::kUnit / kWords;
  constexpr int kRank = X::kOwn / 4, kRow = X::kWidth / 4; // of a row: one rank's, all
  static_assert((kIsRounded || X::kOwn == 2 * L::kStrips) && L::kUnit % kWords == 0 &&
                S::kWidth == L::kUnit && X::kOwn % 4 == 0);
  const int strips = slice_strips<L>(cta);
  platform::warp_sync(); // what a launch before left has been read
  MEGALITH_UNROLL(1)
  for (int first = 0; first < Cta::Config::kRows * kVectors; first += 32) {
    const int row = (first + cta.lane) / kVectors, own = (first + cta.lane) % kVectors;
    const bool has = row < Cta::Config::kRows && kWords * own < strips;
    u32x4 parts[X::kRanks];
    gather_registers<E>(
        cta, set_of<X>(cta, 0),
        [&](int rank) { return has ? row * kRow + rank * kRank + cta.sm * kVectors + own : -1; },
        parts);
    uint32_t y[kWords];
    detail::add_parts<kIsRounded>(parts, y);
    MEGALITH_UNROLL_ALL
    for (int w = 0; w < kWords; ++w)
      if (has)
        platform::st_shared(S::row(cta, row) + kWords * own + w, y[w]);
  }
  await_hop<X>(cta, 0, X::kWidth);
  platform::warp_sync();
}

/// Epilogue, after poll_slice_parts: this SM's slice, bf16 words of S, as words of E.
template <class L, class E, class S, class Cta> MEGALITH_DEVICE void publish_slice(const Cta &cta) {
  static_assert(E::Exchange::kOwn == L::kStrips && S::kWidth == L::kUnit);
  const int strips = slice_strips<L>(cta);
  platform::mark<platform::verb::Publish, E>();
  MEGALITH_UNROLL(1)
  for (int i = cta.lane; i < Cta::Config::kRows * L::kUnit; i += 32) {
    const int row = i / L::kUnit, strip = i % L::kUnit;
    if (strip < strips)
      publish<E>(cta, row, cta.sm * L::kUnit + strip,
                 canonical_pair(platform::ld_shared<uint32_t>(S::row(cta, row) + strip)));
  }
  platform::mark_end();
}

/// Epilogue, after poll_parts: the sums of t^2 over 16 channels each of share `part` of the pairs
/// of `row`, strip by strip as in epilogue_outputs, as fp32 words `[pair][C::kWidth / 16]` of Q. A
/// dead row has none.
template <class C, class Q, class Cta>
MEGALITH_DEVICE void publish_squares(const Cta &cta, int row, int part) {
  constexpr int kTiles = C::Outputs::kWidth / kSquareStrips, kAll = Q::Exchange::kWidth;
  static_assert(C::Outputs::kWidth % kSquareStrips == 0 && kAll * 2 * kSquareStrips == C::kWidth);
  platform::mark<platform::verb::Publish, Q>();
  MEGALITH_UNROLL(1)
  for (int i = cta.lane; i < C::kPairs * kTiles; i += 32) {
    const int slot = i / kTiles, tile = part * kTiles + i % kTiles;
    if (!cta.is_live(row) || tile >= kAll)
      continue;
    const uint32_t *words = C::Outputs::row(cta, slot) + kSquareStrips * (i % kTiles);
    float squares = 0;
    MEGALITH_UNROLL(4)
    for (int strip = 0; strip < kSquareStrips; ++strip) {
      const uint32_t t = platform::ld_shared<uint32_t>(words + strip);
      squares = platform::fmaf_(lo16(t), lo16(t), squares);
      squares = platform::fmaf_(hi16(t), hi16(t), squares);
    }
    publish<Q>(cta, row * C::kPairs + slot, tile, float_word(squares));
  }
  platform::mark_end();
}

} // namespace megalith
