// The one row of a small bucket that is a weighted sum of its experts' normed outputs, made by
// whoever multiplies it: every SM reads the outputs of all pairs, and so saves the exchange of the
// sums and, on the way there, the SMs that add them (expert_norm.cuh).
//
// Pairs come in groups, slot by slot as the table lists them (route_row): an early group's outputs
// are read and added while the last experts are still at work.
#pragma once

#include "codegen/device/expert_norm.cuh"

namespace megalith {

/// How the pairs of the row of X are added. Scales: WordRows<., 1, Pairs>, the pairs' scales;
/// Group: pairs that come together.
template <class X, class Scales, int Pairs, int Group, float Epsilon> struct PairRow {
  using Row = X;
  using PairScales = Scales;
  static constexpr int kPairs = Pairs, kGroup = Group;
  static constexpr float kEpsilon = Epsilon;
  static constexpr int kEach = detail::kChunkVectors<X>; // vectors of a lane, of every pair
  static constexpr int kSums = X::kWidth / (2 * kSquareStrips) / 4; // vectors of sums of a pair
  static constexpr int kLaneSums = (kSums + 31) / 32;
  static_assert(X::kCount == 1 && X::kWidth % (8 * kSquareStrips) == 0 && Scales::kWidth == Pairs);
  static_assert(Pairs % Group == 0 && Group <= kConsumerWarps);
  static_assert(kEach <= 2 && Group * kEach <= kMostOfLane && kLaneSums <= kMostOfLane,
                "registers have room for no more");
};

/// A lane's channels of the row, on their way.
template <class P> struct PairRowSums { float v[8 * P::kEach]; };
/// A lane's vectors of a group's outputs: pair by pair.
template <class P> struct PairWords { u32x4 v[P::kGroup * P::kEach]; };

namespace detail {
/// Where a lane's sums of squares lie, vectors 32 apart, and how many it has: warp w's are of pair
/// w of the group. A dead row has none.
struct LaneSums {
  const uint32_t *source;
  int count;
  uint32_t edge;
};
template <class P, class E, class Cta>
MEGALITH_DEVICE LaneSums lane_sums(const Cta &cta, int group) {
  using X = typename E::Exchange;
  static_assert(X::kWidth == 4 * P::kSums && X::kCount == P::kPairs && E::kIsProof);
  const bool has = cta.is_live(0) && cta.role_warp < P::kGroup && cta.lane < P::kSums;
  const uint32_t *first = set_of<X>(cta, 0) + group * P::kGroup * X::kWidth;
  return {has ? first + X::kWidth * cta.role_warp + 4 * cta.lane : first,
          has ? vectors_of_lane(P::kSums, cta.lane) : 0, E::kId};
}

/// What came for a lane of N vectors of outputs and M of sums.
template <int N, int M> struct PairLane {
  LaneVectors<N> outputs;
  LaneVectors<M> sums;
};
/// Where one of them lies that has not come; null: all have.
template <int N, int M>
MEGALITH_DEVICE const uint32_t *absent_of(const PairLane<N, M> &lane, const uint32_t *outputs,
                                          const LanePlaces &places, const uint32_t *sums) {
  const uint32_t *absent = nullptr;
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < N; ++j)
    absent = arrived(lane.outputs.v[j]) ? absent : outputs + place_in(places, j);
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < M; ++j)
    absent = arrived(lane.sums.v[j]) ? absent : sums + 128 * j;
  return absent;
}
/// Fails if one has not come: tells its edge and its word in what the warp waits for.
template <int N, int M>
MEGALITH_DEVICE void fail_if_absent(const LaunchArgs &args, const PairLane<N, M> &lane,
                                    const LanePlaces &places, int count, const LaneSums &sums,
                                    uint32_t edge, uint64_t n) {
  int output = -1, sum = -1;
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < N; ++j)
    output = arrived(lane.outputs.v[j]) ? output : place_in(places, j);
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < M; ++j)
    sum = arrived(lane.sums.v[j]) ? sum : 128 * j;
  if (output >= 0)
    platform::fail(args.fault, edge, 4 * count, 4 * platform::lane() + output, n);
  if (sum >= 0)
    platform::fail(args.fault, sums.edge, 4 * sums.count, 4 * platform::lane() + sum, n);
}
/// As poll_lane, of outputs and sums together.
template <platform::Scope Scope, int N, int M>
MEGALITH_COLD PairLane<N, M> poll_pair_lane(const LaunchArgs &args, const uint32_t *source,
                                            LanePlaces places, int count, LaneSums sums,
                                            uint32_t edge, uint64_t n) {
  PairLane<N, M> lane;
  MEGALITH_UNROLL_ALL
  for (u32x4 &v : lane.outputs.v)
    v = {0, 0, 0, 0};
  MEGALITH_UNROLL_ALL
  for (u32x4 &v : lane.sums.v)
    v = {0, 0, 0, 0};
  Patience patience;
  MEGALITH_UNROLL(1)
  for (uint32_t sweep = 1;; ++sweep) {
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < N; ++j)
      if (j < count)
        lane.outputs.v[j] = platform::ld_relaxed_v4<Scope>(source + place_in(places, j));
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < M; ++j)
      if (j < sums.count)
        lane.sums.v[j] = platform::ld_relaxed_v4<Scope>(sums.source + 128 * j);
    if (platform::all_sync(larger(largest(lane.outputs.v), largest(lane.sums.v)) != kEmptyWord))
      return lane;
    if (sweep % kSweepsPerLook == 0 && patience.lost(args))
      fail_if_absent(args, lane, places, count, sums, edge, n);
    if (const uint32_t *absent = absent_of(lane, source, places, sums.source))
      platform::poll_pause(absent); // nothing of this is left where nobody pauses
  }
}
} // namespace detail

/// Consumer: waits for its K chunk of the outputs of the pairs of `group`, words of E, and warp w
/// for the sums of its pair w, words of Sums; each sweep reads both, since they come one right
/// behind the other. The sums are asked for ahead of the first sweep, which reads them again: to
/// hand on what came would be to wait for it first (0.15 us of a layer on an H200). Leaves
/// rsqrt(mean t^2 + eps), added as poll_scales does, in P::PairScales. Those of a dead row, which
/// has no words, mean nothing. An exchange has one hop, the groups' words go it side by side: the
/// last group waits for it, behind what is done with the groups before.
template <class P, class Sums, class E, class Cta>
MEGALITH_DEVICE void poll_pair_words(const Cta &cta, int group, PairWords<P> &words) {
  using X = typename E::Exchange;
  using Row = typename P::Row;
  static_assert(2 * X::kWidth == Row::kWidth && X::kCount == P::kPairs && E::kIsProof);
  static_assert(kScopeOf<X> == kScopeOf<typename Sums::Exchange>);
  constexpr int kVectors = P::kGroup * P::kEach;
  // Pair by pair; where a lane has but one of two vectors it reads that twice.
  const int second = detail::has_vector<Row>(cta.role_warp, cta.lane, 1) ? 128 : 0;
  const LanePlaces places =
      P::kEach == 2 ? LanePlaces{second, X::kWidth} : LanePlaces{X::kWidth, 2 * X::kWidth};
  const uint32_t *source = set_of<X>(cta, 0) + group * P::kGroup * X::kWidth +
                           4 * detail::chunk_vector<Row>(cta.role_warp, cta.lane, 0);
  const bool has = cta.is_live(0) && detail::has_vector<Row>(cta.role_warp, cta.lane, 0);
  platform::mark<platform::verb::Poll, E>();
  const detail::LaneSums sums = detail::lane_sums<P, Sums>(cta, group);
  platform::ld_relaxed_v4<kScopeOf<X>>(sums.source);
  const auto came = detail::poll_pair_lane<kScopeOf<X>, kVectors, P::kLaneSums>(
      cta.args, source, places, has ? kVectors : 0, sums, E::kId, cta.n);
  platform::mark_end();
  if (group == P::kPairs / P::kGroup - 1)
    await_hop<X>(cta, 0, X::kWidth);
  float sum = 0;
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < P::kLaneSums; ++u)
    if (const u32x4 &v = came.sums.v[u]; cta.lane + 32 * u < P::kSums)
      sum = sum + bits_to_float(v.x) + bits_to_float(v.y) + bits_to_float(v.z) + bits_to_float(v.w);
  MEGALITH_UNROLL_ALL
  for (int mask = 16; mask > 0; mask /= 2)
    sum += platform::shfl_xor(sum, mask);
  if (cta.lane == 0 && cta.role_warp < P::kGroup)
    platform::st_shared(
        P::PairScales::row(cta, 0) + group * P::kGroup + cta.role_warp,
        float_to_bits(platform::rsqrtf_(platform::fmaf_(sum, 1.0f / P::Row::kWidth, P::kEpsilon))));
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < kVectors; ++j)
    words.v[j] = came.outputs.v[j];
}

/// Consumer, after poll_pair_words: adds weight * t * scale of the pairs of `group`, in slot order;
/// `weights` are the row's. All warps meet first, since others have left scales.
template <class P, class Cta>
MEGALITH_DEVICE void add_pairs(const Cta &cta, int group, const PairWords<P> &words,
                               const float *weights, PairRowSums<P> &sums) {
  consumer_sync();
  const uint32_t *scales = P::PairScales::row(cta, 0) + group * P::kGroup;
  weights += group * P::kGroup;
  MEGALITH_UNROLL_ALL
  for (int pair = 0; pair < P::kGroup; ++pair) {
    const float weight = platform::ld_shared<float>(weights + pair);
    const float scale = bits_to_float(platform::ld_shared<uint32_t>(scales + pair));
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < P::kEach; ++u) {
      const u32x4 &v = words.v[pair * P::kEach + u];
      const uint32_t word[4] = {v.x, v.y, v.z, v.w};
      MEGALITH_UNROLL_ALL
      for (int w = 0; w < 4; ++w) {
        float *sum = sums.v + 8 * u + 2 * w;
        sum[0] = platform::fmaf_(weight, lo16(word[w]) * scale, sum[0]);
        sum[1] = platform::fmaf_(weight, hi16(word[w]) * scale, sum[1]);
      }
    }
  }
}

/// Consumer: its K chunk of the row, rounded, to P::Row. Zero if the row is dead, and in padding.
template <class P, class Cta>
MEGALITH_DEVICE void store_pairs(const Cta &cta, const PairRowSums<P> &sums) {
  using Row = typename P::Row;
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < P::kEach; ++u) {
    const float *s = sums.v + 8 * u;
    u32x4 out = {r16x2(s[0], s[1]), r16x2(s[2], s[3]), r16x2(s[4], s[5]), r16x2(s[6], s[7])};
    if (!cta.is_live(0) || !detail::has_vector<Row>(cta.role_warp, cta.lane, u))
      out = {0, 0, 0, 0};
    if (cta.lane + 32 * u < Row::kChunk / 8)
      platform::st_shared(
          Row::row(cta, 0) + 16 * detail::chunk_vector<Row>(cta.role_warp, cta.lane, u), out);
  }
  platform::warp_sync();
}

} // namespace megalith
