// Rows of a residual stream that is kept in fp32: the branch's norm, the gated update and the norm
// before the next projection; replicated on every SM, or, of many rows, dealt out: some SMs do a
// row together, each reads all of it and publishes its share of the stream and of the normed row.
//
// A consumer warp has its K chunk of one row at a time, in registers: first the stream's words,
// which an earlier stage or launch wrote long ago, and the tables that the branch will meet; they
// come while the branch is still being made. Then the branch's. Of the updated stream each SM
// publishes its share of channels, so nothing of it stays in shared memory, whatever the bucket.
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

/// Vectors First .. First + Count - 1 of a lane in a table of which each has `Each` pieces of 16
/// bytes; `otherwise` where there is no table. All loads are under way together.
template <class X, bool IsThere, int Each, int First = 0, int Count = kChunkVectors<X>>
MEGALITH_DEVICE void load_table(const unsigned char *table, uint32_t otherwise, int warp, int lane,
                                u32x4 (&value)[Each * Count]) {
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < Each * Count; ++j) {
    const int u = First + j / Each;
    value[j] = {otherwise, otherwise, otherwise, otherwise};
    if (IsThere && has_vector<X>(warp, lane, u))
      value[j] = platform::ld_const<u32x4>(table +
                                           16 * (Each * chunk_vector<X>(warp, lane, u) + j % Each));
  }
}

/// Word i of a vector.
MEGALITH_DEVICE uint32_t word_of(const u32x4 &v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <int Slot, class Cta> MEGALITH_DEVICE const unsigned char *bytes_of(const Cta &cta) {
  if constexpr (Slot >= 0)
    return static_cast<const unsigned char *>(cta.template buffer<Slot>());
  else
    return nullptr;
}

/// Fp32 of a lane's channels.
template <class X> struct Floats { float v[8 * kChunkVectors<X>]; };
/// Bf16 of a lane's channels.
template <class X> struct Vectors { u32x4 v[kChunkVectors<X>]; };

inline constexpr uint32_t kOne = 0x3F800000; // fp32

/// Vectors First .. First + Count - 1 of a lane, times their factors in `alpha`.
template <class X, bool IsThere, int First, int Count>
MEGALITH_DEVICE void scale_by(const unsigned char *alpha, int warp, int lane, Floats<X> &value) {
  u32x4 factors[2 * Count];
  load_table<X, IsThere, 2, First, Count>(alpha, kOne, warp, lane, factors);
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * Count; ++j)
    value.v[8 * First + j] = bits_to_float(word_of(factors[j / 4], j % 4)) * value.v[8 * First + j];
}
} // namespace detail

/// A lane's channels of a row of the stream, in registers: as they are or, where a branch is to
/// join, times alpha, with the gains of that branch.
template <class S> struct StreamWords {
  detail::Floats<typename S::Normed> value;
  detail::Vectors<typename S::Normed> gains;
};

/// A lane's channels of a row of the branch.
template <class S> struct BranchWords { detail::Vectors<typename S::Normed> words; };

namespace detail {
/// See poll_stream. Out of line: a layer has two such stages.
template <class X, bool IsGated, platform::Scope Scope>
MEGALITH_COLD Floats<X> stream_words(const LaunchArgs &args, const uint32_t *source,
                                     const unsigned char *alpha, int warp, int lane, uint32_t edge,
                                     uint64_t n) {
  constexpr int kEach = kChunkVectors<X>, kHalf = kEach / 2;
  u32x4 words[2 * kEach];
  gather_registers<Scope>(
      args, edge, n, source,
      [&](int j) {
        return has_vector<X>(warp, lane, j / 2) ? 2 * chunk_vector<X>(warp, lane, j / 2) + j % 2
                                                : -1;
      },
      words);
  Floats<X> value;
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kEach; ++j)
    value.v[j] =
        has_vector<X>(warp, lane, j / 8) ? bits_to_float(word_of(words[j / 4], j % 4)) : 0.0f;
  // By halves: registers have no room for more.
  if constexpr (kHalf > 0)
    scale_by<X, IsGated, 0, kHalf>(alpha, warp, lane, value);
  scale_by<X, IsGated, kHalf, kEach - kHalf>(alpha, warp, lane, value);
  return value;
}

/// See poll_branch.
template <class X, platform::Scope Scope>
MEGALITH_COLD Vectors<X> branch_words(const LaunchArgs &args, const uint32_t *source, int warp,
                                      int lane, uint32_t edge, uint64_t n) {
  Vectors<X> branch;
  gather_registers<Scope>(
      args, edge, n, source,
      [&](int j) { return has_vector<X>(warp, lane, j) ? chunk_vector<X>(warp, lane, j) : -1; },
      branch.v);
  if constexpr (!kIsEven<X>)
    MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u)
    if (!has_vector<X>(warp, lane, u))
      branch.v[u] = {0, 0, 0, 0};
  return branch;
}
} // namespace detail

/// Consumer: its chunk of row `row` of the stream, words of E. An earlier stage or launch wrote
/// them long ago: they and what is known of the branch come while that is still being made.
template <class S, class E, class Cta>
MEGALITH_DEVICE void poll_stream(const Cta &cta, int row, StreamWords<S> &stream) {
  using Exchange = typename E::Exchange;
  using X = typename S::Normed;
  static_assert(Exchange::kWidth >= X::kWidth && X::kWidth % 8 == 0);
  static_assert(!Exchange::kOfRanks, "every rank has the whole stream");
  constexpr bool kHasBranch = S::kBranch != BranchNorm::absent;
  platform::mark<platform::verb::Poll, E>();
  stream.value = detail::stream_words < X, kHasBranch && (S::kGate >= 0),
  kScopeOf < Exchange >> (cta.args, set_of<Exchange>(cta, E::kAge) + row * Exchange::kWidth,
                          detail::bytes_of<S::kGate>(cta), cta.role_warp, cta.lane, E::kId, cta.n);
  platform::mark_end();
  constexpr bool kHasGains = kHasBranch && S::kBranch != BranchNorm::none && S::kBranchGain >= 0;
  detail::load_table<X, kHasGains, 1>(detail::bytes_of<S::kBranchGain>(cta), detail::kOnes,
                                      cta.role_warp, cta.lane, stream.gains.v);
}

/// Consumer: its chunk of row `row` of the branch, bf16 words of E.
template <class S, class E, class Cta>
MEGALITH_DEVICE void poll_branch(const Cta &cta, int row, BranchWords<S> &branch) {
  using Exchange = typename E::Exchange;
  using X = typename S::Normed;
  static_assert(2 * Exchange::kWidth == X::kWidth && Exchange::kWidth % 4 == 0 && E::kIsProof);
  platform::mark<platform::verb::Poll, E>();
  branch.words = detail::branch_words<X, kScopeOf<Exchange>>(
      cta.args, set_of<Exchange>(cta, E::kAge) + row * Exchange::kWidth, cta.role_warp, cta.lane,
      E::kId, cta.n);
  platform::mark_end();
  await_hop<Exchange>(cta, X::kChunk / 2 * cta.role_warp, X::kChunk / 2);
}

namespace detail {

/// What a row becomes, and where it goes.
struct RowTarget {
  uint32_t *stream;                  // fp32 words; null: nobody wants them
  unsigned char *normed;             // bf16 in shared memory; null: the caller takes it
  uint32_t *sums;                    // of each warp, of the branch, then of the stream
  const unsigned char *beta, *gains; // of the branch; of the row's norm
  float branch_eps, eps;
  Share share;           // of the channels of `stream`
  bool is_branch_normed; // else it joins as it is
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
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < kConsumerWarps / 4; ++i) {
    const auto v = platform::ld_shared<u32x4>(sums + 4 * i);
    total =
        total + bits_to_float(v.x) + bits_to_float(v.y) + bits_to_float(v.z) + bits_to_float(v.w);
  }
  return total;
}

/// Of the branch, normed by `scale` and by `gains`, vectors First .. First + Count - 1 of a lane
/// join the stream.
template <class X, int First, int Count>
MEGALITH_DEVICE void join_vectors(Floats<X> &stream, const Vectors<X> &branch,
                                  const u32x4 (&beta)[2 * Count], const Vectors<X> &gains,
                                  float scale) {
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 4 * Count; ++j) {
    const int u = First + j / 4;
    const uint32_t pair =
        scale_pair(word_of(branch.v[u], j % 4), scale, word_of(gains.v[u], j % 4));
    MEGALITH_UNROLL_ALL
    for (int e = 0; e < 2; ++e) {
      float &s = stream.v[8 * First + 2 * j + e];
      s = platform::fmaf_(bits_to_float(word_of(beta[j / 2], 2 * (j % 2) + e)),
                          e ? hi16(pair) : lo16(pair), s);
    }
  }
}

/// The branch, normed, joins the stream. `gains` come behind its norm. The gate's factors are on
/// their way while warps meet, half of them: registers have no room for more.
template <class X, bool IsGated>
MEGALITH_DEVICE void join(Floats<X> &stream, const Vectors<X> &branch, const Vectors<X> &gains,
                          const RowTarget &to, int warp, int lane) {
  constexpr int kEach = kChunkVectors<X>, kHalf = (kEach + 1) / 2, kRest = kEach - kHalf;
  u32x4 beta[2 * kHalf];
  load_table<X, IsGated, 2, 0, kHalf>(to.beta, kOne, warp, lane, beta);
  float scale = 1;
  if (to.is_branch_normed) {
    float sum = 0;
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < 4 * kEach; ++j)
      sum = add_squares(sum, word_of(branch.v[j / 4], j % 4));
    const float mean = sum_over_row(sum, to.sums, warp, lane) * (1.0f / X::kWidth);
    scale = platform::rsqrtf_(mean + to.branch_eps);
  }
  join_vectors<X, 0, kHalf>(stream, branch, beta, gains, scale);
  if constexpr (kRest > 0) {
    u32x4 rest[2 * kRest];
    load_table<X, IsGated, 2, kHalf, kRest>(to.beta, kOne, warp, lane, rest);
    join_vectors<X, kHalf, kRest>(stream, branch, rest, gains, scale);
  }
}

/// The normed row; zero in padding.
template <class X, bool IsRounded>
MEGALITH_DEVICE Vectors<X> normed_row(const Floats<X> &stream,
                                      const u32x4 (&gains)[kChunkVectors<X>], const RowTarget &to,
                                      int warp, int lane) {
  constexpr int kEach = kChunkVectors<X>;
  Floats<X> row;
  float sum = 0;
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kEach; ++j) {
    row.v[j] = IsRounded ? round16(stream.v[j]) : +stream.v[j];
    sum = platform::fmaf_(row.v[j], row.v[j], sum);
  }
  const float mean = sum_over_row(sum, to.sums + kConsumerWarps, warp, lane) * (1.0f / X::kWidth);
  const float scale = platform::rsqrtf_(mean + to.eps);
  Vectors<X> normed;
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kEach; ++u) {
    const auto pair = [&](int at, uint32_t gain) {
      const float *s = row.v + 8 * u + at;
      return r16x2(s[0] * scale * lo16(gain), s[1] * scale * hi16(gain));
    };
    const u32x4 &g = gains[u];
    normed.v[u] = {pair(0, g.x), pair(2, g.y), pair(4, g.z), pair(6, g.w)};
  }
  return normed;
}

/// Whether vector u of a lane is there, and in `share`.
template <class X> MEGALITH_DEVICE bool in_share(const Share &share, int warp, int lane, int u) {
  const int first = 8 * chunk_vector<X>(warp, lane, u);
  return has_vector<X>(warp, lane, u) && first >= share.first && first < share.end;
}

/// A vector of the stream, as words.
template <class X>
MEGALITH_DEVICE void publish_vector(const float (&value)[8], const RowTarget &to, int warp,
                                    int lane, int u) {
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < 8; ++i)
    platform::st_relaxed<platform::Scope::gpu, uint32_t>(
        to.stream + 8 * chunk_vector<X>(warp, lane, u) + i, float_word(value[i]));
}
/// The share of the stream goes out.
template <class X, bool IsNarrow>
MEGALITH_DEVICE void publish_stream(const Floats<X> &stream, const RowTarget &to, int warp,
                                    int lane) {
  int mine = -1;
  float value[8] = {};
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u) {
    const bool is_mine = in_share<X>(to.share, warp, lane, u);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < 8; ++i)
      value[i] = is_mine || !IsNarrow ? +stream.v[8 * u + i] : +value[i];
    if (IsNarrow)
      mine = is_mine ? u : mine;
    else if (is_mine)
      publish_vector<X>(value, to, warp, lane, u);
  }
  if (IsNarrow && mine >= 0)
    publish_vector<X>(value, to, warp, lane, mine);
}

/// Gains behind the branch's norm, in the code that has any.
template <class X, bool HasGains> struct GainsBehind {
  Vectors<X> v;
  MEGALITH_DEVICE const Vectors<X> &gains() const { return v; }
};
template <class X> struct GainsBehind<X, false> {
  MEGALITH_DEVICE GainsBehind(const Vectors<X> &) {}
  MEGALITH_DEVICE Vectors<X> gains() const {
    Vectors<X> ones;
    MEGALITH_UNROLL_ALL
    for (u32x4 &v : ones.v)
      v = {kOnes, kOnes, kOnes, kOnes};
    return ones;
  }
};

/// What differs between stages in the code that makes a row; what does not differ they share.
/// IsNarrow: a lane has at most one vector of the share of the stream.
template <bool HasBranch, bool IsGated, bool HasGainsBehind, bool HasGains, bool IsRounded,
          bool IsNarrow>
struct RowKind {
  static constexpr bool kHasBranch = HasBranch, kIsGated = IsGated, kHasGains = HasGains,
                        kIsRounded = IsRounded, kIsNarrow = IsNarrow;
  template <class X> using Behind = GainsBehind<X, HasGainsBehind>;
};

/// The row from what came of it; a branch that its gains scale before its norm is scaled already.
/// Out of line: a layer has two such stages.
template <class X, class Kind>
MEGALITH_COLD Vectors<X> finish_row(const Floats<X> given, const Vectors<X> branch,
                                    const typename Kind::template Behind<X> behind,
                                    const RowTarget to, int warp, int lane) {
  constexpr int kEach = kChunkVectors<X>;
  Floats<X> stream;
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kEach; ++j)
    stream.v[j] = given.v[j];
  if constexpr (Kind::kHasBranch) {
    join<X, Kind::kIsGated>(stream, branch, behind.gains(), to, warp, lane);
  }
  u32x4 gains[kEach]; // on their way while warps meet
  load_table<X, Kind::kHasGains, 1>(to.gains, kOnes, warp, lane, gains);
  const Vectors<X> normed = normed_row<X, Kind::kIsRounded>(stream, gains, to, warp, lane);
  if (to.normed) {
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < kEach; ++u)
      if (lane + 32 * u < X::kChunk / 8)
        platform::st_shared(to.normed + 16 * (X::kChunk / 8 * warp + lane + 32 * u), normed.v[u]);
    platform::warp_sync();
  }
  if constexpr (Kind::kHasBranch) // last, since nobody waits for the stream
    publish_stream<X, Kind::kIsNarrow>(stream, to, warp, lane);
  return normed;
}

/// Whether a share of so many channels gives a lane at most one vector: its vectors are 32 apart.
MEGALITH_DEVICE constexpr bool is_narrow(int channels) {
  return channels <= 8 * 32;
}

/// finish_row of stage S: `target` null, or where `share` of the row's stream goes; `normed`
/// likewise. IsNarrow: see RowKind.
template <class S, bool IsNarrow, class Cta>
MEGALITH_DEVICE Vectors<typename S::Normed>
finish_row_of(const Cta &cta, int row, const StreamWords<S> &stream, const BranchWords<S> &branch,
              uint32_t *target, unsigned char *normed, const Share &share) {
  using X = typename S::Normed;
  using Kind = RowKind<S::kBranch != BranchNorm::absent, (S::kGate >= 0),
                       S::kBranch == BranchNorm::rms && (S::kBranchGain >= 0), (S::kGain >= 0),
                       S::kRoundStream, IsNarrow>;
  const unsigned char *beta = S::kGate >= 0 ? bytes_of<S::kGate>(cta) + 4 * X::kWidth : nullptr;
  Vectors<X> scaled;
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u) {
    const u32x4 &b = branch.words.v[u], &g = stream.gains.v[u];
    scaled.v[u] = S::kBranch == BranchNorm::input_scaled
                      ? u32x4{platform::mul_bf16x2(b.x, g.x), platform::mul_bf16x2(b.y, g.y),
                              platform::mul_bf16x2(b.z, g.z), platform::mul_bf16x2(b.w, g.w)}
                      : b;
  }
  Floats<X> value; // by elements: a copy of a struct's part would go through memory
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kChunkVectors<X>; ++j)
    value.v[j] = stream.value.v[j];
  return finish_row<X, Kind>(value, scaled, {stream.gains},
                             {target, normed, S::Sums::row(cta, X::kCount == 1 ? 0 : 2 * row), beta,
                              bytes_of<S::kGain>(cta), S::kBranchEps, S::kEps, share,
                              S::kBranch != BranchNorm::none},
                             cta.role_warp, cta.lane);
}

/// The words of row `row` of E.
template <class E, class Cta> MEGALITH_DEVICE uint32_t *row_words(const Cta &cta, int row) {
  static_assert(E::kAge == 0 && !E::Exchange::kOfRanks);
  return set_of<typename E::Exchange>(cta, 0) + row * E::Exchange::kWidth + first_word<E>();
}

/// Share `part` of the channels of a row that `Sms` SMs do together: whole sectors of bf16 words.
template <int Width, int Sms> MEGALITH_DEVICE Share dealt_share(int part) {
  constexpr int kSize = ((Width + Sms - 1) / Sms + 15) / 16 * 16;
  const int first = kSize * part;
  return {first, first + kSize < Width ? first + kSize : Width};
}

/// `share` of the normed row goes out as bf16 words of Out.
template <class X, class Out, class Cta>
MEGALITH_DEVICE void publish_normed(const Cta &cta, int row, const Vectors<X> &normed,
                                    const Share &share) {
  static_assert(2 * kRowWords<Out> == X::kWidth);
  uint32_t *target = row_words<Out>(cta, row);
  platform::mark<platform::verb::Publish, Out>();
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u)
    if (in_share<X>(share, cta.role_warp, cta.lane, u))
      MEGALITH_UNROLL_ALL
  for (int w = 0; w < 4; ++w)
    platform::st_relaxed<platform::Scope::gpu, uint32_t>(
        target + 4 * chunk_vector<X>(cta.role_warp, cta.lane, u) + w,
        canonical_pair(word_of(normed.v[u], w)));
  platform::mark_end();
}

} // namespace detail

/// Consumer, after poll_stream: row `row`, normed, to S::Normed.
template <class S, class Cta>
MEGALITH_DEVICE void norm_row(const Cta &cta, int row, const StreamWords<S> &stream) {
  detail::finish_row_of<S, true>(cta, row, stream, {}, nullptr, S::Normed::row(cta, row), {});
}

/// Consumer, after poll_stream, poll_branch and launch_wait: the branch joins row `row`, which then
/// is normed to S::Normed. This SM's share of the updated stream goes out as words of Out.
template <class S, class Out, class Cta>
MEGALITH_DEVICE void join_row(const Cta &cta, int row, const StreamWords<S> &stream,
                              const BranchWords<S> &branch) {
  static_assert(Out::Exchange::kWidth == S::Normed::kWidth);
  platform::mark<platform::verb::Publish, Out>();
  constexpr int kShare = (S::Normed::kWidth + Cta::Config::kSms - 1) / Cta::Config::kSms + 7;
  detail::finish_row_of<S, detail::is_narrow(kShare)>(
      cta, row, stream, branch, detail::row_words<Out>(cta, row), S::Normed::row(cta, row),
      share_of<Cta>(cta.sm, S::Normed::kWidth));
  platform::mark_end();
}

/// Consumer, after poll_stream and launch_wait: of row `row`, normed, share `part` of `Sms`, as
/// bf16 words of Normed.
template <class S, class Normed, int Sms, class Cta>
MEGALITH_DEVICE void deal_norm_row(const Cta &cta, int row, int part,
                                   const StreamWords<S> &stream) {
  using X = typename S::Normed;
  const auto normed = detail::finish_row_of<S, true>(cta, 0, stream, {}, nullptr, nullptr, {});
  detail::publish_normed<X, Normed>(cta, row, normed, detail::dealt_share<X::kWidth, Sms>(part));
}

/// Consumer, after poll_stream, poll_branch and launch_wait: the branch joins row `row`; share
/// `part` of `Sms` of the updated row goes out as words of Out, and normed as bf16 words of Normed,
/// which may be void, or lie behind the words of Out.
template <class S, class Out, class Normed, int Sms, class Cta>
MEGALITH_DEVICE void deal_row(const Cta &cta, int row, int part, const StreamWords<S> &stream,
                              const BranchWords<S> &branch) {
  using X = typename S::Normed;
  static_assert(Out::Exchange::kWidth >= X::kWidth);
  const Share share = detail::dealt_share<X::kWidth, Sms>(part);
  platform::mark<platform::verb::Publish, Out>();
  const auto normed = detail::finish_row_of<S, detail::is_narrow(X::kWidth / Sms + 16)>(
      cta, 0, stream, branch, detail::row_words<Out>(cta, row), nullptr, share);
  platform::mark_end();
  if constexpr (requires { typename Normed::Exchange; })
    detail::publish_normed<X, Normed>(cta, row, normed, share);
}

} // namespace megalith
