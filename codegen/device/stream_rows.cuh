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

/// Vector u of a lane in its warp's chunk of the rows of X: eight channels, counted in the row;
/// negative where there are none.
template <class X> MEGALITH_DEVICE int chunk_vector(int warp, int lane, int u) {
  constexpr int kVectors = X::kChunk / 8;
  const int i = lane + 32 * u, at = kVectors * warp + i;
  return i < kVectors && 8 * at < X::kWidth ? at : -1;
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
      args, edge, n, source, [&](int j) { return chunk_vector<X>(warp, lane, j); }, words);
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kEach; ++u)
    if (const int at = chunk_vector<X>(warp, lane, u); at >= 0)
      platform::st_shared(row + 16 * at, words[u]);
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

MEGALITH_DEVICE u32x4 gains_at(const unsigned char *gains, int vector) {
  return gains && vector >= 0 ? platform::ld_const<u32x4>(gains + 16 * vector)
                              : u32x4{kOnes, kOnes, kOnes, kOnes};
}

/// A pair of a branch times its gains, each product rounded.
MEGALITH_DEVICE uint32_t scaled_pair(uint32_t pair, uint32_t gains) {
  return r16x2(lo16(pair) * lo16(gains), hi16(pair) * hi16(gains));
}

/// Adds the branch that waits in r.row to `stream`, a lane's channels of it, and publishes.
template <class X>
MEGALITH_DEVICE void join_branch(const StreamRow &r, int warp, int lane,
                                 float (&stream)[8 * kChunkVectors<X>]) {
  float scale = 1;
  if (r.is_branch_normed) {
    float sum = 0;
    MEGALITH_UNROLL_ALL
    for (int u = 0; u < kChunkVectors<X>; ++u) {
      const int vector = chunk_vector<X>(warp, lane, u);
      if (vector < 0)
        continue;
      const auto branch = platform::ld_shared<u32x4>(r.row + 16 * vector);
      const u32x4 gains = gains_at(r.is_scaled ? r.branch_gains : nullptr, vector);
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < 4; ++i)
        sum = add_squares(sum, scaled_pair(word_of(branch, i), word_of(gains, i)));
    }
    const float mean = sum_over_row(sum, r.sums, warp, lane) * (1.0f / X::kWidth);
    scale = platform::rsqrtf_(mean + r.branch_eps);
  }
  MEGALITH_UNROLL_ALL
  for (int u = 0; u < kChunkVectors<X>; ++u) {
    const int vector = chunk_vector<X>(warp, lane, u);
    if (vector < 0)
      continue;
    const auto branch = platform::ld_shared<u32x4>(r.row + 16 * vector);
    const u32x4 gains = gains_at(r.branch_gains, vector);
    const bool is_mine = 8 * vector >= r.share.first && 8 * vector < r.share.end;
    MEGALITH_UNROLL_ALL
    for (int half = 0; half < 2; ++half) {
      u32x4 alpha = {0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000}, beta = alpha;
      if (r.gate) {
        alpha = platform::ld_const<u32x4>(r.gate + 32 * vector + 16 * half);
        beta = platform::ld_const<u32x4>(r.gate + 4 * X::kWidth + 32 * vector + 16 * half);
      }
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < 2; ++i) {
        uint32_t pair = word_of(branch, 2 * half + i);
        const uint32_t gain = word_of(gains, 2 * half + i);
        if (r.is_scaled)
          pair = scaled_pair(pair, gain);
        if (r.is_branch_normed)
          pair = scale_pair(pair, scale, r.is_scaled ? kOnes : gain);
        MEGALITH_UNROLL_ALL
        for (int e = 0; e < 2; ++e) {
          float &s = stream[8 * u + 4 * half + 2 * i + e];
          s = platform::fmaf_(bits_to_float(word_of(beta, 2 * i + e)), e ? hi16(pair) : lo16(pair),
                              bits_to_float(word_of(alpha, 2 * i + e)) * s);
          if (is_mine)
            platform::st_relaxed<platform::Scope::gpu, uint32_t>(
                r.target + 8 * vector + 4 * half + 2 * i + e, float_word(s));
        }
      }
    }
  }
}

/// The stream's words are in `words`; see update_row. Out of line: a layer has two such stages.
template <class X, bool IsDealt>
MEGALITH_COLD void stream_row(StreamRow r, const LaunchArgs &args, int warp, int lane,
                              uint32_t edge, uint64_t n) {
  constexpr int kEach = kChunkVectors<X>;
  u32x4 words[2 * kEach];
  gather_registers<platform::Scope::gpu>(
      args, edge, n, r.stream,
      [&](int j) {
        const int vector = chunk_vector<X>(warp, lane, j / 2);
        return vector < 0 ? -1 : 2 * vector + j % 2;
      },
      words);
  float stream[8 * kEach];
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < 8 * kEach; ++j)
    stream[j] =
        chunk_vector<X>(warp, lane, j / 8) < 0 ? 0.0f : bits_to_float(word_of(words[j / 4], j % 4));
  if (r.target)
    join_branch<X>(r, warp, lane, stream);
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
    const u32x4 gains = gains_at(r.gains, chunk_vector<X>(warp, lane, u));
    const float *s = stream + 8 * u; // zero in padding, and so is what comes of it
    const auto pair = [&](int at, uint32_t gain) {
      return r16x2(s[at] * scale * lo16(gain), s[at + 1] * scale * hi16(gain));
    };
    const u32x4 words = {pair(0, gains.x), pair(2, gains.y), pair(4, gains.z), pair(6, gains.w)};
    if constexpr (!IsDealt) {
      platform::st_shared(r.row + 16 * (X::kChunk / 8 * warp + i), words);
    } else {
      const int vector = X::kChunk / 8 * warp + i;
      if (r.normed && 8 * vector >= r.share.first && 8 * vector < r.share.end) {
        MEGALITH_UNROLL_ALL
        for (int w = 0; w < 4; ++w)
          platform::st_relaxed<platform::Scope::gpu, uint32_t>(r.normed + 4 * vector + w,
                                                               canonical_pair(word_of(words, w)));
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
  stream_row<X, IsDealt>({set_of<Exchange>(cta, E::kAge) + row * Exchange::kWidth, target, normed,
                          place_of<X>(cta, row), S::Sums::row(cta, X::kCount == 1 ? 0 : 2 * row),
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
