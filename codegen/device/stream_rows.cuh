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

inline constexpr uint32_t kOne = 0x3F800000; // fp32

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

/// A lane's words of a table with `Each` pieces of 16 bytes for a vector of channels; `Otherwise`
/// where there is none.
template <class X, int Each, uint32_t Otherwise, bool IsThere> struct Table {
  u32x4 v[Each * kChunkVectors<X>];

  /// All of them are on their way together.
  MEGALITH_DEVICE void load(const unsigned char *table, int warp, int lane) {
    table += 16 * Each * chunk_vector<X>(warp, lane, 0);
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < Each * kChunkVectors<X>; ++j) {
      v[j] = {Otherwise, Otherwise, Otherwise, Otherwise};
      if (has_vector<X>(warp, lane, j / Each))
        v[j] = platform::ld_const<u32x4>(table + 16 * (32 * Each * (j / Each) + j % Each));
    }
  }
  MEGALITH_DEVICE uint32_t word(int i) const { return word_of(v[i / 4], i % 4); }
};
template <class X, int Each, uint32_t Otherwise> struct Table<X, Each, Otherwise, false> {
  MEGALITH_DEVICE void load(const unsigned char *, int, int) {}
  MEGALITH_DEVICE uint32_t word(int) const { return Otherwise; }
};
/// Fp32 factors and bf16 gains.
template <class X, bool IsThere> using Factors = Table<X, 2, kOne, IsThere>;
template <class X, bool IsThere> using RowGains = Table<X, 1, kOnes, IsThere>;

/// What stages have in common that share the code which makes a row.
template <class X, BranchNorm Branch, bool IsGated, bool HasGainsBehind, bool HasGains,
          bool IsRounded>
struct RowKind {
  using Normed = X;
  static constexpr bool kHasBranch = Branch != BranchNorm::absent,
                        kIsBranchNormed = kHasBranch && Branch != BranchNorm::none,
                        kIsGated = kHasBranch && IsGated, kHasGains = HasGains,
                        kIsRounded = IsRounded;
  using GainsBehind = RowGains<X, HasGainsBehind>;
};
/// A branch that its gains scale before its norm comes scaled: it has none behind.
template <class S>
using RowKindOf = RowKind<typename S::Normed,
                          S::kBranch == BranchNorm::input_scaled ? BranchNorm::rms : S::kBranch,
                          (S::kGate >= 0), S::kBranch == BranchNorm::rms && (S::kBranchGain >= 0),
                          (S::kGain >= 0), S::kRoundStream>;

} // namespace detail

/// A lane's channels of a row of the stream, as they are or, where a branch is to join, times
/// alpha; and the gains of that branch.
template <class S> struct StreamWords {
  static constexpr bool kHasBranchGains =
      (S::kBranch == BranchNorm::rms || S::kBranch == BranchNorm::input_scaled) &&
      S::kBranchGain >= 0;
  detail::Floats<typename S::Normed> value;
  detail::RowGains<typename S::Normed, kHasBranchGains> gains;
};

/// A lane's channels of a row of the branch.
template <class S> struct BranchWords { detail::Vectors<typename S::Normed> words; };

namespace detail {
/// See poll_stream. Out of line: a layer has two such stages.
template <class Kind, platform::Scope Scope>
MEGALITH_COLD Floats<typename Kind::Normed>
stream_words(const LaunchArgs &args, const uint32_t *source, const unsigned char *gate, int warp,
             int lane, uint32_t edge, uint64_t n) {
  using X = typename Kind::Normed;
  constexpr int kEach = kChunkVectors<X>;
  Floats<X> row;
  Factors<X, Kind::kIsGated> alpha;
  u32x4 words[2 * kEach];
  gather_registers<Scope>(
      args, edge, n, source,
      [&](int j) {
        return has_vector<X>(warp, lane, j / 2) ? 2 * chunk_vector<X>(warp, lane, j / 2) + j % 2
                                                : -1;
      },
      words);
  alpha.load(gate, warp, lane);
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kEach; ++j) {
    const float value =
        has_vector<X>(warp, lane, j / 8) ? bits_to_float(word_of(words[j / 4], j % 4)) : 0.0f;
    row.v[j] = Kind::kIsGated ? bits_to_float(alpha.word(j)) * value : +value;
  }
  return row;
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
  platform::mark<platform::verb::Poll, E>();
  stream.value = detail::stream_words<detail::RowKindOf<S>, kScopeOf<Exchange>>(
      cta.args, set_of<Exchange>(cta, E::kAge) + row * Exchange::kWidth,
      detail::bytes_of<S::kGate>(cta), cta.role_warp, cta.lane, E::kId, cta.n);
  platform::mark_end();
  stream.gains.load(detail::bytes_of<S::kBranchGain>(cta), cta.role_warp, cta.lane);
}

/// Consumer: its chunk of row `row` of the branch, bf16 words of E.
template <class S, class E, class Cta>
MEGALITH_DEVICE void poll_branch(const Cta &cta, int row, BranchWords<S> &branch) {
  using Exchange = typename E::Exchange;
  using X = typename S::Normed;
  static_assert(2 * Exchange::kWidth == X::kWidth && Exchange::kWidth % 4 == 0 && E::kIsProof);
  constexpr int kEach = detail::kChunkVectors<X>;
  const int warp = cta.role_warp, lane = cta.lane;
  const uint32_t *source = set_of<Exchange>(cta, E::kAge) + row * Exchange::kWidth +
                           4 * detail::chunk_vector<X>(warp, 0, 0);
  int count = 0; // of this lane: all, or the first
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kEach; ++u)
    count += detail::has_vector<X>(warp, lane, u);
  platform::mark<platform::verb::Poll, E>();
  const auto came = detail::poll_lane<kScopeOf<Exchange>, lane_vectors(kEach)>(
      cta.args, source + 4 * lane, detail::kStridesOfLane, count, E::kId, cta.n);
  platform::mark_end();
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kEach; ++u)
    branch.words.v[u] = came.v[u];
  await_hop<Exchange>(cta, X::kChunk / 2 * warp, X::kChunk / 2);
}

namespace detail {

/// The branch, normed, joins the stream.
template <class Kind, class X>
MEGALITH_DEVICE void join(Floats<X> &stream, const Floats<X> &value,
                          const Factors<X, Kind::kIsGated> &beta, const Vectors<X> &branch,
                          const typename Kind::GainsBehind &behind, unsigned char *sums, float eps,
                          int warp, int lane) {
  constexpr int kPairs = 4 * kChunkVectors<X>;
  float scale = 1;
  if constexpr (Kind::kIsBranchNormed) {
    float sum = 0;
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < kPairs; ++j)
      sum = add_squares(sum, word_of(branch.v[j / 4], j % 4));
    scale = platform::rsqrtf_(sum_over_row(sum, sums, warp, lane) * (1.0f / X::kWidth) + eps);
  }
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < kPairs; ++j) {
    const uint32_t pair = scale_pair(word_of(branch.v[j / 4], j % 4), scale, behind.word(j));
    MEGALITH_UNROLL_ALL
    for (int e = 0; e < 2; ++e)
      stream.v[2 * j + e] = platform::fmaf_(bits_to_float(beta.word(2 * j + e)),
                                            e ? hi16(pair) : lo16(pair), value.v[2 * j + e]);
  }
}

/// The normed row; zero in padding.
template <class Kind, class X>
MEGALITH_DEVICE Vectors<X> normed_row(const Floats<X> &stream,
                                      const RowGains<X, Kind::kHasGains> &gains,
                                      unsigned char *sums, float eps, int warp, int lane) {
  Floats<X> row;
  float sum = 0;
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kChunkVectors<X>; ++j) {
    row.v[j] = Kind::kIsRounded ? round16(stream.v[j]) : +stream.v[j];
    sum = platform::fmaf_(row.v[j], row.v[j], sum);
  }
  const float mean = sum_over_row(sum, sums, warp, lane) * (1.0f / X::kWidth);
  const float scale = platform::rsqrtf_(mean + eps);
  Vectors<X> normed;
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u) {
    const auto pair = [&](int i) {
      const float *s = row.v + 8 * u + 2 * i;
      const uint32_t gain = gains.word(4 * u + i);
      return r16x2(s[0] * scale * lo16(gain), s[1] * scale * hi16(gain));
    };
    normed.v[u] = {pair(0), pair(1), pair(2), pair(3)};
  }
  return normed;
}

/// A lane's channels of a row that is done.
template <class X> struct FinishedRow {
  Floats<X> stream;
  Vectors<X> normed;
};

/// The row from what came of it; sums of squares `row_sums` and the next are of its two norms. Out
/// of line: a layer has two such stages. IsOnly: the bucket has one row.
template <class Kind, class Sums, bool IsOnly, class X = typename Kind::Normed>
MEGALITH_COLD FinishedRow<X>
finish_row(const Floats<X> value, const Vectors<X> branch, const typename Kind::GainsBehind behind,
           const unsigned char *gate, const unsigned char *gain_table, int row_sums,
           float branch_eps, float eps, int warp, int lane) {
  // Tables are on their way while warps meet. Not sooner: what all SMs read of them (48 KB each, at
  // 8192 channels) would be in the way of the stores that the branch is waited for.
  Factors<X, Kind::kIsGated> beta;
  RowGains<X, Kind::kHasGains> gains;
  if constexpr (Kind::kIsGated)
    beta.load(gate + 4 * X::kWidth, warp, lane);
  if constexpr (IsOnly)
    gains.load(gain_table, warp, lane);
  unsigned char *const sums = platform::smem() + Sums::kOffset + row_sums * Sums::kStride;
  FinishedRow<X> row;
  if constexpr (Kind::kHasBranch) {
    join<Kind>(row.stream, value, beta, branch, behind, sums, branch_eps, warp, lane);
  } else {
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < 8 * kChunkVectors<X>; ++j)
      row.stream.v[j] = value.v[j];
  }
  if constexpr (!IsOnly) // other stages of more rows leave no registers for both tables
    gains.load(gain_table, warp, lane);
  row.normed = normed_row<Kind>(row.stream, gains, sums + Sums::kStride, eps, warp, lane);
  return row;
}

/// finish_row of row `row` of stage S.
template <class S, class Cta>
MEGALITH_DEVICE FinishedRow<typename S::Normed>
finish_row_of(const Cta &cta, int row, const StreamWords<S> &stream, const BranchWords<S> &branch) {
  using X = typename S::Normed;
  using Kind = RowKindOf<S>;
  Vectors<X> scaled;
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u) {
    const u32x4 &b = branch.words.v[u];
    const auto gain = [&](int i) { return stream.gains.word(4 * u + i); };
    scaled.v[u] =
        S::kBranch == BranchNorm::input_scaled
            ? u32x4{platform::mul_bf16x2(b.x, gain(0)), platform::mul_bf16x2(b.y, gain(1)),
                    platform::mul_bf16x2(b.z, gain(2)), platform::mul_bf16x2(b.w, gain(3))}
            : b;
  }
  typename Kind::GainsBehind behind;
  if constexpr (S::kBranch == BranchNorm::rms)
    behind = stream.gains;
  Floats<X> value; // by elements: a copy of a struct's part would go through memory
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kChunkVectors<X>; ++j)
    value.v[j] = stream.value.v[j];
  return finish_row<Kind, typename S::Sums, Cta::Config::kRows == 1>(
      value, scaled, behind, bytes_of<S::kGate>(cta), bytes_of<S::kGain>(cta),
      X::kCount == 1 ? 0 : 2 * row, S::kBranchEps, S::kEps, cta.role_warp, cta.lane);
}

/// Its chunk of row `row`, normed, to X.
template <class X, class Cta>
MEGALITH_DEVICE void store_normed(const Cta &cta, int row, const Vectors<X> &normed) {
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u)
    if (cta.lane + 32 * u < X::kChunk / 8)
      platform::st_shared(X::row(cta, row) + 16 * chunk_vector<X>(cta.role_warp, cta.lane, u),
                          normed.v[u]);
  platform::warp_sync();
}

/// Whether vector u of a lane is there, and in `share`.
template <class X> MEGALITH_DEVICE bool in_share(const Share &share, int warp, int lane, int u) {
  const int first = 8 * chunk_vector<X>(warp, lane, u);
  return has_vector<X>(warp, lane, u) && first >= share.first && first < share.end;
}

/// A vector of the stream, as words.
MEGALITH_DEVICE void publish_vector(const float (&value)[8], uint32_t *target) {
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < 8; ++i)
    platform::st_relaxed<platform::Scope::gpu, uint32_t>(target + i, float_word(value[i]));
}
/// `share` of a row of the stream goes to `target`. IsNarrow: a lane has at most one vector of it.
template <class X, bool IsNarrow>
MEGALITH_DEVICE void publish_stream(const Floats<X> &stream, uint32_t *target, const Share &share,
                                    int warp, int lane) {
  if (share.end <= X::kChunk * warp || share.first >= X::kChunk * (warp + 1))
    return; // most warps have none
  int mine = -1;
  float value[8] = {};
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u) {
    const bool is_mine = in_share<X>(share, warp, lane, u);
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < 8; ++i)
      value[i] = is_mine || !IsNarrow ? +stream.v[8 * u + i] : +value[i];
    if (IsNarrow)
      mine = is_mine ? u : mine;
    else if (is_mine)
      publish_vector(value, target + 8 * chunk_vector<X>(warp, lane, u));
  }
  if (IsNarrow && mine >= 0)
    publish_vector(value, target + 8 * chunk_vector<X>(warp, lane, mine));
}

/// Whether a share of so many channels gives a lane at most one vector: its vectors are 32 apart.
MEGALITH_DEVICE constexpr bool is_narrow(int channels) {
  return channels <= 8 * 32;
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
  const auto done = detail::finish_row_of<S>(cta, row, stream, {});
  detail::store_normed<typename S::Normed>(cta, row, done.normed);
}

/// Consumer, after poll_stream, poll_branch and launch_wait: the branch joins row `row`, which then
/// is normed to S::Normed. This SM's share of the updated stream goes out as words of Out.
template <class S, class Out, class Cta>
MEGALITH_DEVICE void join_row(const Cta &cta, int row, const StreamWords<S> &stream,
                              const BranchWords<S> &branch) {
  using X = typename S::Normed;
  static_assert(Out::Exchange::kWidth == X::kWidth);
  constexpr int kShare = (X::kWidth + Cta::Config::kSms - 1) / Cta::Config::kSms + 7;
  const auto done = detail::finish_row_of<S>(cta, row, stream, branch);
  detail::store_normed<X>(cta, row, done.normed);
  platform::mark<platform::verb::Publish, Out>(); // last, since nobody waits for the stream
  detail::publish_stream<X, detail::is_narrow(kShare)>(
      done.stream, detail::row_words<Out>(cta, row), share_of<Cta>(cta.sm, X::kWidth),
      cta.role_warp, cta.lane);
  platform::mark_end();
}

/// Consumer, after poll_stream and launch_wait: of row `row`, normed, share `part` of `Sms`, as
/// bf16 words of Normed.
template <class S, class Normed, int Sms, class Cta>
MEGALITH_DEVICE void deal_norm_row(const Cta &cta, int row, int part,
                                   const StreamWords<S> &stream) {
  using X = typename S::Normed;
  const auto done = detail::finish_row_of<S>(cta, 0, stream, {});
  detail::publish_normed<X, Normed>(cta, row, done.normed,
                                    detail::dealt_share<X::kWidth, Sms>(part));
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
  const auto done = detail::finish_row_of<S>(cta, 0, stream, branch);
  platform::mark<platform::verb::Publish, Out>();
  detail::publish_stream<X, detail::is_narrow(X::kWidth / Sms + 16)>(
      done.stream, detail::row_words<Out>(cta, row), share, cta.role_warp, cta.lane);
  platform::mark_end();
  if constexpr (requires { typename Normed::Exchange; })
    detail::publish_normed<X, Normed>(cta, row, done.normed, share);
}

} // namespace megalith
