// The one row of a small bucket that is a weighted sum of its experts' normed outputs, made by
// whoever multiplies it: every SM reads the outputs of all pairs, and so saves the exchange of the
// sums and, on the way there, the SMs that add them (expert_norm.cuh).
//
// Polls of many bytes delay the stores that they wait for, so a row of more than 2,048 channels is
// asked for in two halves: one before the sums of squares are polled, one when they are there,
// which are stored behind the outputs that they are of.
#pragma once

#include "codegen/device/expert_norm.cuh"

namespace megalith {

/// How the pairs of the row of X are added. Scales: WordRows<., 1, Pairs>, the pairs' scales.
template <class X, class Scales, int Pairs, float Epsilon> struct PairRow {
  using Row = X;
  using PairScales = Scales;
  static constexpr int kPairs = Pairs;
  static constexpr float kEpsilon = Epsilon;
  static constexpr int kEach = detail::kChunkVectors<X>; // vectors of a lane, of every pair
  static constexpr int kSums = X::kWidth / (2 * kSquareStrips) / 4; // vectors of sums of a pair
  static constexpr int kLaneSums = (kSums + 31) / 32;
  static constexpr int kOwnPairs = (Pairs + kConsumerWarps - 1) / kConsumerWarps; // of a warp
  static_assert(X::kCount == 1 && X::kWidth % (8 * kSquareStrips) == 0 && Scales::kWidth == Pairs);
  static_assert(kEach <= 2 && Pairs * kEach <= 16, "registers have room for no more");

  /// Vector u of a lane in the row: of two, those of even and of odd tiles of two vectors. Where an
  /// SM has two neighbouring tiles of an expert it is done with the even one first.
  static MEGALITH_DEVICE int vector(int warp, int lane, int u) {
    if constexpr (X::kChunk == 512)
      return 64 * warp + 4 * (lane / 2) + 2 * u + lane % 2;
    else
      return detail::chunk_vector<X>(warp, lane, u);
  }
};

/// A lane's sums of squares of its warp's pairs: warp w has pairs w, w + 8.
template <class P> struct PairSums { u32x4 v[P::kOwnPairs * P::kLaneSums]; };
/// A vector of all pairs.
template <int Pairs> struct PairVectors { u32x4 v[Pairs]; };
/// A lane's channels of its warp's K chunk, of all pairs.
template <class P> struct PairWords { PairVectors<P::kPairs> of[P::kEach]; };

namespace detail {
/// rsqrt(mean t^2 + eps) of this warp's pairs, added as poll_scales does, to P::PairScales.
template <class P, class Cta>
MEGALITH_DEVICE void leave_scales(const Cta &cta, const PairSums<P> &sums) {
  MEGALITH_UNROLL_ALL
  for (int p = 0; p < P::kOwnPairs; ++p) {
    float sum = 0;
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < P::kLaneSums; ++u)
      if (const u32x4 &v = sums.v[p * P::kLaneSums + u]; cta.lane + 32 * u < P::kSums)
        sum =
            sum + bits_to_float(v.x) + bits_to_float(v.y) + bits_to_float(v.z) + bits_to_float(v.w);
    MEGALITH_UNROLL_ALL
    for (int mask = 16; mask > 0; mask /= 2)
      sum += platform::shfl_xor(sum, mask);
    const int pair = cta.role_warp + kConsumerWarps * p;
    if (cta.lane == 0 && pair < P::kPairs)
      platform::st_shared(P::PairScales::row(cta, 0) + pair,
                          float_to_bits(platform::rsqrtf_(
                              platform::fmaf_(sum, 1.0f / P::Row::kWidth, P::kEpsilon))));
  }
}

/// Vector u of a lane of all pairs, words of E; `meanwhile` is done while they are on their way.
template <class P, class E, class Cta, class Meanwhile>
MEGALITH_DEVICE void poll_pair_vectors(const Cta &cta, int u, PairVectors<P::kPairs> &pairs,
                                       Meanwhile meanwhile) {
  using X = typename E::Exchange;
  using Row = typename P::Row;
  static_assert(2 * X::kWidth == Row::kWidth && X::kCount == P::kPairs && E::kIsProof);
  const uint32_t *base = set_of<X>(cta, 0);
  // What there is not is read at the first word, and means nothing.
  const bool has = cta.is_live(0) && has_vector<Row>(cta.role_warp, cta.lane, u);
  const uint32_t *source = base + (has ? 4 * P::vector(cta.role_warp, cta.lane, u) : 0);
  const auto ask = [&] {
    MEGALITH_UNROLL_ALL
    for (int pair = 0; pair < P::kPairs; ++pair)
      pairs.v[pair] = platform::ld_relaxed_v4<kScopeOf<X>>(source + pair * X::kWidth);
  };
  platform::mark<platform::verb::Poll, E>();
  ask();
  meanwhile();
  Patience patience;
  MEGALITH_UNROLL(1)
  for (uint32_t sweep = 1;; ++sweep) {
    int absent = -1;
    MEGALITH_UNROLL_ALL
    for (int pair = 0; pair < P::kPairs; ++pair)
      if (!arrived(pairs.v[pair]))
        absent = pair;
    if (platform::all_sync(absent < 0 || !has))
      break;
    if (absent >= 0 && has) {
      const uint32_t *word = source + absent * X::kWidth;
      if (sweep % kSweepsPerLook == 0 && patience.lost(cta))
        platform::fail(cta.args.fault, E::kId, 4 * 32 * P::kPairs, word - base, cta.n);
      platform::poll_pause(word);
    }
    ask();
  }
  platform::mark_end();
}

/// r16(sum over slots of weight * t * scale, in slot order) of a vector. Out of line: each lane has
/// two.
template <int Pairs>
MEGALITH_COLD u32x4 combine_vector(const PairVectors<Pairs> pairs, const uint32_t *scales,
                                   const float *weights) {
  float sum[8] = {};
  MEGALITH_UNROLL_ALL
  for (int slot = 0; slot < Pairs; ++slot) {
    const float weight = platform::ld_shared<float>(weights + slot);
    const float scale = bits_to_float(platform::ld_shared<uint32_t>(scales + slot));
    const u32x4 &v = pairs.v[slot];
    const uint32_t word[4] = {v.x, v.y, v.z, v.w};
    MEGALITH_UNROLL_ALL
    for (int w = 0; w < 4; ++w) {
      sum[2 * w] = platform::fmaf_(weight, lo16(word[w]) * scale, sum[2 * w]);
      sum[2 * w + 1] = platform::fmaf_(weight, hi16(word[w]) * scale, sum[2 * w + 1]);
    }
  }
  return {r16x2(sum[0], sum[1]), r16x2(sum[2], sum[3]), r16x2(sum[4], sum[5]),
          r16x2(sum[6], sum[7])};
}
} // namespace detail

/// Consumer, before poll_pair_sums: the first half of its K chunk of all pairs' outputs, words of
/// E. A dead row has none.
template <class P, class E, class Cta>
MEGALITH_DEVICE void poll_pair_words(const Cta &cta, PairWords<P> &pairs) {
  static_assert(P::kEach == 2);
  detail::poll_pair_vectors<P, E>(cta, 0, pairs.of[0], [] {});
}

/// Consumer: waits for the sums of squares of its warp's pairs, words of E. A dead row has none.
template <class P, class E, class Cta>
MEGALITH_DEVICE void poll_pair_sums(const Cta &cta, PairSums<P> &sums) {
  using X = typename E::Exchange;
  static_assert(X::kWidth == 4 * P::kSums && X::kCount == P::kPairs && E::kIsProof);
  const bool is_live = cta.is_live(0);
  gather_registers<E>(
      cta, set_of<X>(cta, 0),
      [&](int j) {
        const int pair = cta.role_warp + kConsumerWarps * (j / P::kLaneSums);
        const int vector = cta.lane + 32 * (j % P::kLaneSums);
        return is_live && pair < P::kPairs && vector < P::kSums ? pair * P::kSums + vector : -1;
      },
      sums.v);
  await_hop<X>(cta, 0, X::kWidth);
}

/// Consumer, after poll_pair_sums: the rest of the outputs, each stored before the sum that counts
/// it; so whatever hop there is has been waited for. Meanwhile the pairs' scales go to
/// P::PairScales.
template <class P, class E, class Cta>
MEGALITH_DEVICE void poll_last_pair_words(const Cta &cta, const PairSums<P> &sums,
                                          PairWords<P> &pairs) {
  detail::poll_pair_vectors<P, E>(cta, P::kEach - 1, pairs.of[P::kEach - 1],
                                  [&] { detail::leave_scales<P>(cta, sums); });
}

/// Consumer, after poll_last_pair_words: its K chunk of the row, as combine_normed has it;
/// `weights` are the row's. Zero if the row is dead, and in padding. All warps meet first, since
/// each has left other pairs' scales.
template <class P, class Cta>
MEGALITH_DEVICE void combine_pairs(const Cta &cta, const PairWords<P> &pairs,
                                   const float *weights) {
  using Row = typename P::Row;
  consumer_sync();
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < P::kEach; ++u) {
    u32x4 out = detail::combine_vector<P::kPairs>(pairs.of[u], P::PairScales::row(cta, 0), weights);
    if (!cta.is_live(0) || !detail::has_vector<Row>(cta.role_warp, cta.lane, u))
      out = {0, 0, 0, 0};
    if (cta.lane + 32 * u < Row::kChunk / 8)
      platform::st_shared(Row::row(cta, 0) + 16 * P::vector(cta.role_warp, cta.lane, u), out);
  }
  platform::warp_sync();
}

} // namespace megalith
