// Rows of a residual stream that is kept in fp32: the branch's norm, the gated update and the norm
// before the next projection; replicated on every SM, or, of many rows, dealt out: some SMs do a
// row together, each reads all of it and publishes its share of the stream and of the normed row.
//
// A consumer warp has its K chunk of one row at a time: the branch's words wait in shared memory,
// where the normed row will be; the stream's, which an earlier stage or launch wrote long ago, pass
// through registers. Of the updated stream each SM publishes its share of channels, so nothing of
// it stays in shared memory, whatever the bucket.
#pragma once

#include "codegen/device/gather.cuh"
#include "codegen/device/norm.cuh"

namespace megalith {

/// What a branch goes through before it joins the stream.
enum class BranchNorm {
  absent,       ///< there is no branch
  none,         ///< nothing
  rms,          ///< r16(b * rsqrt(mean b^2 + eps) * gain)
  input_scaled, ///< t = r16(b * gain); r16(t * rsqrt(mean t^2 + eps))
};

/// A `rows` stage; base of the emitted config.
///   X            Rows that hold the normed rows
///   RowSums      WordRows<., 2 * X::kCount, 8>: sums of squares on their way from warp to warp
///   Branch, BranchEps, BranchGain   the branch's norm, gain in a buffer slot or kWeightless
///   Gate         buffer slot of fp32 [2][width], alpha then beta; -1: both are 1
///   Eps, Gain    of the norm of the updated row
///   RoundStream  whether that norm is of the stream rounded to bf16
template <class X, class RowSums, BranchNorm Branch, float BranchEps, int BranchGain, int Gate,
          float Eps, int Gain, bool RoundStream>
struct StreamRows {
  using Normed = X;
  using Sums = RowSums;
  static constexpr BranchNorm kBranch = Branch;
  static constexpr float kBranchEps = BranchEps, kEps = Eps;
  static constexpr int kBranchGain = BranchGain, kGate = Gate, kGain = Gain;
  static constexpr bool kRoundStream = RoundStream;
  static_assert(RowSums::kCount >= 2 * X::kCount && RowSums::kStride == 4 * kConsumerWarps);
};

namespace detail {

/// Whether every lane has all its vectors, each of channels that there are.
template <class X> inline constexpr bool kIsEven = X::kChunk % 256 == 0 && X::kPadded == X::kWidth;

/// Vector u of a lane in its warp's chunk of the rows of X: eight channels, counted in the row.
template <class X> MEGALITH_DEVICE int chunk_vector(int warp, int lane, int u) {
  return X::kChunk / 8 * warp + lane + 32 * u;
}
/// Whether there is such a vector.
template <class X> MEGALITH_DEVICE bool has_vector(int warp, int lane, int u) {
  return kIsEven<X> ||
         (lane + 32 * u < X::kChunk / 8 && 8 * chunk_vector<X>(warp, lane, u) < X::kWidth);
}
/// Vectors of a lane.
template <class X> inline constexpr int kChunkVectors = (X::kChunk / 8 + 31) / 32;

} // namespace detail

namespace detail {
/// See poll_branch. Out of line: a layer has two such stages.
template <class X, platform::Scope Scope>
MEGALITH_COLD void branch_row(const LaunchArgs &args, const uint32_t *source, unsigned char *row,
                              int warp, int lane, uint32_t edge, uint64_t n) {
  constexpr int kEach = kChunkVectors<X>;
  u32x4 words[kEach];
  gather_registers<Scope>(
      args, edge, n, source,
      [&](int j) { return has_vector<X>(warp, lane, j) ? chunk_vector<X>(warp, lane, j) : -1; },
      words);
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kEach; ++u)
    if (has_vector<X>(warp, lane, u))
      platform::st_shared(row + 16 * chunk_vector<X>(warp, lane, u), words[u]);
  platform::warp_sync();
}
} // namespace detail

namespace detail {
/// Where row `row` is in X, which has room for one where rows are dealt out.
template <class X, class Cta> MEGALITH_DEVICE unsigned char *place_of(const Cta &cta, int row) {
  return X::row(cta, X::kCount == 1 ? 0 : row);
}
} // namespace detail

/// Consumer: its chunk of row `row` of the branch, bf16 words of E, to the row of S::Normed.
template <class S, class E, class Cta> MEGALITH_DEVICE void poll_branch(const Cta &cta, int row) {
  using Exchange = typename E::Exchange;
  using X = typename S::Normed;
  static_assert(2 * Exchange::kWidth == X::kWidth && Exchange::kWidth % 4 == 0 && E::kIsProof);
  platform::mark<platform::verb::Poll, E>();
  detail::branch_row<X, kScopeOf<Exchange>>(
      cta.args, set_of<Exchange>(cta, E::kAge) + row * Exchange::kWidth,
      detail::place_of<X>(cta, row), cta.role_warp, cta.lane, E::kId, cta.n);
  platform::mark_end();
  await_hop<Exchange>(cta, X::kChunk / 2 * cta.role_warp, X::kChunk / 2);
}

namespace detail {

/// Where a row comes from and goes to. Null: no gains, no gate, nobody who wants the stream.
struct StreamRow {
  const uint32_t *stream; // fp32 words
  uint32_t *target;       // likewise
  uint32_t *normed;       // bf16 words, where rows are dealt out
  unsigned char *row;     // bf16: the branch, then the normed row
  uint32_t *sums;         // of each warp, of the branch, then of the stream
  const unsigned char *branch_gains, *gate, *gains;
  float branch_eps, eps;
  Share share;                       // of the channels of `target`, and of `normed`
  bool is_scaled;                    // the branch by its gains before its norm, not behind it
  bool is_branch_normed, is_rounded; // is_rounded: the stream, before its norm
};

/// All consumer warps: the sum of what each lane has, in the order of the chunks.
MEGALITH_DEVICE float sum_over_row(float sum, uint32_t *sums, int warp, int lane) {
  MEGALITH_UNROLL(5)
  for (int mask = 16; mask > 0; mask /= 2)
    sum += platform::shfl_xor(sum, mask);
  if (lane == 0)
    platform::st_shared(sums + warp, float_to_bits(sum));
  consumer_sync();
  float total = 0;
  MEGALITH_UNROLL(8)
  for (int w = 0; w < kConsumerWarps; ++w)
    total += bits_to_float(platform::ld_shared<uint32_t>(sums + w));
  return total;
}

/// Word i of a vector.
MEGALITH_DEVICE uint32_t word_of(const u32x4 &v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// Vectors First .. First + Count - 1 of a lane in a table of which each has `Each` pieces of 16
/// bytes; `otherwise` where there is no table. All loads are under way together.
template <class X, bool IsThere, int Each, int First, int Count>
MEGALITH_DEVICE void load_table(const unsigned char *table, uint32_t otherwise, int warp, int lane,
                                u32x4 (&value)[Each * Count]) {
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < Each * Count; ++j) {
    const int vector = chunk_vector<X>(warp, lane, First + j / Each);
    value[j] = {otherwise, otherwise, otherwise, otherwise};
    if (IsThere && has_vector<X>(warp, lane, First + j / Each))
      value[j] = platform::ld_const<u32x4>(table + 16 * (Each * vector + j % Each));
  }
}

/// A pair times its gains, each product rounded.
MEGALITH_DEVICE uint32_t scaled_pair(uint32_t pair, uint32_t gains) {
  return r16x2(lo16(pair) * lo16(gains), hi16(pair) * hi16(gains));
}

/// The gate's factors of Count of a lane's vectors.
template <class X, bool IsGated, int First, int Count> struct GateFactors {
  u32x4 alpha[2 * Count], beta[2 * Count];

  MEGALITH_DEVICE void load(const StreamRow &r, int warp, int lane) {
    constexpr uint32_t kOne = 0x3F800000;
    load_table<X, IsGated, 2, First, Count>(r.gate, kOne, warp, lane, alpha);
    load_table<X, IsGated, 2, First, Count>(r.gate + 4 * X::kWidth, kOne, warp, lane, beta);
  }
};
/// Vectors of a lane whose factors are asked for before the row's words are waited for; registers
/// hold no more. The others' follow while these are used.
template <class X> inline constexpr int kHeadVectors = (kChunkVectors<X> + 3) / 4;

/// Vectors First .. First + Count - 1 of a lane: pairs of the branch, normed by `scale` and gains
/// behind the norm, join the stream, which is published.
template <class X, class Kind, int First, int Count>
MEGALITH_DEVICE void join_vectors(const StreamRow &r,
                                  const GateFactors<X, Kind::kIsGated, First, Count> &factors,
                                  const uint32_t (&pairs)[4 * kChunkVectors<X>], float scale,
                                  int warp, int lane, float (&stream)[8 * kChunkVectors<X>]) {
  MEGALITH_UNROLL_ALL
  for (int u = First; u < First + Count; ++u) {
    const int vector = chunk_vector<X>(warp, lane, u);
    u32x4 gains = {kOnes, kOnes, kOnes, kOnes};
    const bool exists = has_vector<X>(warp, lane, u);
    if (Kind::kHasGainsBehind && exists)
      gains = platform::ld_const<u32x4>(r.branch_gains + 16 * vector);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = scale_pair(pairs[4 * u + i], scale, word_of(gains, i));
      MEGALITH_UNROLL_ALL
      for (int e = 0; e < 2; ++e) {
        const int at = 2 * i + e, half = 2 * (u - First) + at / 4; // of the vector
        float &s = stream[8 * u + at];
        s = platform::fmaf_(bits_to_float(word_of(factors.beta[half], at % 4)),
                            e ? hi16(pair) : lo16(pair),
                            bits_to_float(word_of(factors.alpha[half], at % 4)) * s);
      }
    }
    if (exists && 8 * vector >= r.share.first && 8 * vector < r.share.end)
      MEGALITH_UNROLL_ALL
    for (int i = 0; i < 8; ++i)
      platform::st_relaxed<platform::Scope::gpu, uint32_t>(r.target + 8 * vector + i,
                                                           float_word(stream[8 * u + i]));
  }
}

/// Adds the branch that waits in r.row to `stream`, a lane's channels of it, and publishes. Gains
/// come before the norm, `first_gains`, or behind it.
template <class X, class Kind>
MEGALITH_DEVICE void join_branch(const StreamRow &r,
                                 const GateFactors<X, Kind::kIsGated, 0, kHeadVectors<X>> &factors,
                                 const u32x4 (&first_gains)[kChunkVectors<X>], int warp, int lane,
                                 float (&stream)[8 * kChunkVectors<X>]) {
  constexpr int kHead = kHeadVectors<X>, kRest = kChunkVectors<X> - kHead;
  uint32_t pairs[4 * kChunkVectors<X>];
  float sum = 0;
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u) {
    const int vector = chunk_vector<X>(warp, lane, u);
    u32x4 branch = {0, 0, 0, 0};
    if (has_vector<X>(warp, lane, u))
      branch = platform::ld_shared<u32x4>(r.row + 16 * vector);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < 4; ++i) {
      pairs[4 * u + i] = scaled_pair(word_of(branch, i), word_of(first_gains[u], i));
      sum = add_squares(sum, pairs[4 * u + i]);
    }
  }
  float scale = 1;
  if (r.is_branch_normed) {
    const float mean = sum_over_row(sum, r.sums, warp, lane) * (1.0f / X::kWidth);
    scale = platform::rsqrtf_(mean + r.branch_eps);
  }
  if constexpr (kRest > 0) {
    constexpr int kNext = (kRest + 1) / 2, kLast = kRest - kNext;
    GateFactors<X, Kind::kIsGated, kHead, kNext> next;
    next.load(r, warp, lane);
    join_vectors<X, Kind, 0, kHead>(r, factors, pairs, scale, warp, lane, stream);
    if constexpr (kLast > 0) {
      GateFactors<X, Kind::kIsGated, kHead + kNext, kLast> last;
      last.load(r, warp, lane);
      join_vectors<X, Kind, kHead, kNext>(r, next, pairs, scale, warp, lane, stream);
      join_vectors<X, Kind, kHead + kNext, kLast>(r, last, pairs, scale, warp, lane, stream);
    } else {
      join_vectors<X, Kind, kHead, kNext>(r, next, pairs, scale, warp, lane, stream);
    }
  } else {
    join_vectors<X, Kind, 0, kHead>(r, factors, pairs, scale, warp, lane, stream);
  }
}

/// What differs between stages in the code that makes a row; what does not differ they share.
template <bool HasBranch, bool IsGated, bool HasGainsBehind, bool HasGains> struct RowKind {
  static constexpr bool kHasBranch = HasBranch, kIsGated = IsGated, kHasGains = HasGains,
                        kHasGainsBehind = HasGainsBehind; ///< of the branch, behind its norm
};

/// The stream's words are in `words`; see update_row. Out of line: a layer has two such stages.
template <class X, class Kind, bool IsDealt>
MEGALITH_COLD void stream_row(StreamRow r, const LaunchArgs &args, int warp, int lane,
                              uint32_t edge, uint64_t n) {
  constexpr int kEach = kChunkVectors<X>;
  GateFactors<X, Kind::kIsGated, 0, kHeadVectors<X>> factors;
  u32x4 first_gains[kEach];
  if constexpr (Kind::kHasBranch) {
    factors.load(r, warp, lane);
    if (r.is_scaled)
      load_table<X, true, 1, 0, kEach>(r.branch_gains, kOnes, warp, lane, first_gains);
    else
      load_table<X, false, 1, 0, kEach>(nullptr, kOnes, warp, lane, first_gains);
  }
  u32x4 words[2 * kEach];
  gather_registers<platform::Scope::gpu>(
      args, edge, n, r.stream,
      [&](int j) {
        return has_vector<X>(warp, lane, j / 2) ? 2 * chunk_vector<X>(warp, lane, j / 2) + j % 2
                                                : -1;
      },
      words);
  float stream[8 * kEach];
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kEach; ++j)
    stream[j] =
        has_vector<X>(warp, lane, j / 8) ? bits_to_float(word_of(words[j / 4], j % 4)) : 0.0f;
  if constexpr (Kind::kHasBranch)
    join_branch<X, Kind>(r, factors, first_gains, warp, lane, stream);
  u32x4 gains[kEach];
  load_table<X, Kind::kHasGains, 1, 0, kEach>(r.gains, kOnes, warp, lane,
                                              gains); // while warps meet
  float sum = 0;
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kEach; ++j) {
    if (r.is_rounded)
      stream[j] = round16(stream[j]);
    sum = platform::fmaf_(stream[j], stream[j], sum);
  }
  const float mean = sum_over_row(sum, r.sums + kConsumerWarps, warp, lane) * (1.0f / X::kWidth);
  const float scale = platform::rsqrtf_(mean + r.eps);
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kEach; ++u) {
    const int i = lane + 32 * u;
    if (i >= X::kChunk / 8)
      continue;
    const float *s = stream + 8 * u; // zero in padding, and so is what comes of it
    const auto pair = [&](int at, uint32_t gain) {
      return r16x2(s[at] * scale * lo16(gain), s[at + 1] * scale * hi16(gain));
    };
    const u32x4 &g = gains[u];
    const u32x4 normed = {pair(0, g.x), pair(2, g.y), pair(4, g.z), pair(6, g.w)};
    if constexpr (!IsDealt) {
      platform::st_shared(r.row + 16 * (X::kChunk / 8 * warp + i), normed);
    } else {
      const int vector = X::kChunk / 8 * warp + i;
      if (r.normed && 8 * vector >= r.share.first && 8 * vector < r.share.end) {
        MEGALITH_UNROLL_ALL
        for (int w = 0; w < 4; ++w)
          platform::st_relaxed<platform::Scope::gpu, uint32_t>(r.normed + 4 * vector + w,
                                                               canonical_pair(word_of(normed, w)));
      }
    }
  }
  platform::warp_sync();
}

template <int Slot, class Cta> MEGALITH_DEVICE const unsigned char *bytes_of(const Cta &cta) {
  if constexpr (Slot >= 0)
    return static_cast<const unsigned char *>(cta.template buffer<Slot>());
  else
    return nullptr;
}

template <class S, class E, bool IsDealt, class Cta>
MEGALITH_DEVICE void run_stream_row(const Cta &cta, int row, uint32_t *target, uint32_t *normed,
                                    const Share &share) {
  using Exchange = typename E::Exchange;
  using X = typename S::Normed;
  static_assert(Exchange::kWidth >= X::kWidth && X::kWidth % 8 == 0);
  static_assert(!Exchange::kOfRanks, "every rank has the whole stream");
  constexpr bool kIsScaled = S::kBranch == BranchNorm::input_scaled;
  platform::mark<platform::verb::Poll, E>();
  using Kind = RowKind<S::kBranch != BranchNorm::absent, (S::kGate >= 0),
                       S::kBranch == BranchNorm::rms && (S::kBranchGain >= 0), (S::kGain >= 0)>;
  stream_row<X, Kind, IsDealt>({set_of<Exchange>(cta, E::kAge) + row * Exchange::kWidth, target,
                                normed, place_of<X>(cta, row),
                                S::Sums::row(cta, X::kCount == 1 ? 0 : 2 * row),
                                bytes_of<S::kBranchGain>(cta), bytes_of<S::kGate>(cta),
                                bytes_of<S::kGain>(cta), S::kBranchEps, S::kEps, share, kIsScaled,
                                kIsScaled || S::kBranch == BranchNorm::rms, S::kRoundStream},
                               cta.args, cta.role_warp, cta.lane, E::kId, cta.n);
  platform::mark_end();
}

} // namespace detail

/// Consumer: row `row` of the stream, words of E, normed, to S::Normed.
template <class S, class E, class Cta> MEGALITH_DEVICE void norm_row(const Cta &cta, int row) {
  detail::run_stream_row<S, E, false>(cta, row, nullptr, nullptr, {});
}

/// Consumer, after poll_branch and launch_wait: the branch joins row `row` of the stream, words of
/// E. The updated row is normed where the branch was; this SM's share of it goes out as words of
/// Out.
template <class S, class E, class Out, class Cta>
MEGALITH_DEVICE void update_row(const Cta &cta, int row) {
  using Target = typename Out::Exchange;
  static_assert(Target::kWidth == S::Normed::kWidth && Out::kAge == 0);
  platform::mark<platform::verb::Publish, Out>();
  detail::run_stream_row<S, E, false>(cta, row, set_of<Target>(cta, 0) + row * Target::kWidth,
                                      nullptr, share_of<Cta>(cta.sm, S::Normed::kWidth));
  platform::mark_end();
}

namespace detail {

/// Share `part` of the channels of a row that `Sms` SMs do together: whole sectors of bf16 words.
template <int Width, int Sms> MEGALITH_DEVICE Share dealt_share(int part) {
  constexpr int kSize = ((Width + Sms - 1) / Sms + 15) / 16 * 16;
  const int first = kSize * part;
  return {first, first + kSize < Width ? first + kSize : Width};
}

/// The words of row `row` of E; none where E is void.
template <class E, class Cta> MEGALITH_DEVICE uint32_t *row_words(const Cta &cta, int row) {
  if constexpr (requires { typename E::Exchange; })
    return set_of<typename E::Exchange>(cta, 0) + row * E::Exchange::kWidth + first_word<E>();
  else
    return nullptr;
}

/// Runs `publishing`, marked as what publishes words of E.
template <class E, class Publishing>
MEGALITH_DEVICE void marked_publish(const Publishing &publishing) {
  if constexpr (requires { typename E::Exchange; }) {
    platform::mark<platform::verb::Publish, E>();
    publishing();
    platform::mark_end();
  } else {
    publishing();
  }
}

} // namespace detail

/// Consumer, after launch_wait: of row `row` of the stream, words of E, share `part` of `Sms`,
/// normed, as bf16 words of Normed.
template <class S, class E, class Normed, int Sms, class Cta>
MEGALITH_DEVICE void deal_norm_row(const Cta &cta, int row, int part) {
  constexpr int kWidth = S::Normed::kWidth;
  static_assert(2 * kRowWords<Normed> == kWidth);
  platform::mark<platform::verb::Publish, Normed>();
  detail::run_stream_row<S, E, true>(cta, row, nullptr, detail::row_words<Normed>(cta, row),
                                     detail::dealt_share<kWidth, Sms>(part));
  platform::mark_end();
}

/// Consumer, after poll_branch and launch_wait: the branch joins row `row` of the stream, words of
/// E; share `part` of `Sms` of the updated row goes out as words of Out, and normed as bf16 words
/// of Normed, which may be void, or lie behind the words of Out.
template <class S, class E, class Out, class Normed, int Sms, class Cta>
MEGALITH_DEVICE void deal_row(const Cta &cta, int row, int part) {
  constexpr int kWidth = S::Normed::kWidth;
  static_assert(Out::Exchange::kWidth >= kWidth && Out::kAge == 0);
  platform::mark<platform::verb::Publish, Out>();
  const auto run = [&] {
    detail::run_stream_row<S, E, true>(cta, row, detail::row_words<Out>(cta, row),
                                       detail::row_words<Normed>(cta, row),
                                       detail::dealt_share<kWidth, Sms>(part));
  };
  if constexpr (requires { Normed::kFirst; }) // the same exchange
    run();
  else
    detail::marked_publish<Normed>(run);
  platform::mark_end();
}

} // namespace megalith
