// What the epilogue warp makes of a finished m-tile: round, add, activate, publish.
//
// Lane (g, t) holds strip g of the tile for activation rows (or pairs) 2t and 2t + 1: one bf16 word
// each, or two fp32 words. `tile` counts the m-tiles of this SM's slice. `E` is the edge whose
// words are stored, `S` the WordRows `[rows][L::kUnit]` that keep this SM's slice of the residual.
#pragma once

#include "codegen/device/argmax.cuh"
#include "codegen/device/exchange.cuh"
#include "codegen/device/gemv.cuh"

namespace megalith {

namespace detail {

/// Calls use(row, strip of the tile, low, high) for the (at most two) words of this lane.
template <class L, class Cta, class Use>
MEGALITH_DEVICE void each_word(const Cta &cta, int tile, const Fragment &sum, int rows, Use use) {
  const int g = cta.lane / 4, row = 2 * (cta.lane % 4);
  if (g >= tile_strips<L>(cta, tile))
    return;
  if (row < rows)
    use(row, g, sum.v[0], sum.v[2]);
  if (row + 1 < rows)
    use(row + 1, g, sum.v[1], sum.v[3]);
}

/// The same of two column tiles.
template <class L, class Cta, class Use>
MEGALITH_DEVICE void each_word(const Cta &cta, int tile, const Fragments &sum, int rows, Use use) {
  each_word<L>(cta, tile, sum.low, rows, use);
  each_word<L>(cta, tile, sum.high, rows - 8,
               [&](int row, int strip, float low, float high) { use(row + 8, strip, low, high); });
}

/// The same of the only row's sums of a whole slice.
template <class L, class Cta, class Use>
MEGALITH_DEVICE void each_word(const Cta &cta, int tile, const SliceSums &sum, int, Use use) {
  const int g = cta.lane / 4, strips = tile_strips<L>(cta, tile);
  if (cta.lane % 4 == 0 && g < strips)
    use(0, g, sum.first.v[0], sum.first.v[2]);
  if (cta.lane % 4 == 0 && 8 + g < strips)
    use(0, 8 + g, sum.rest.v[0], sum.rest.v[2]);
}

MEGALITH_DEVICE Fragment times(Fragment sum, float factor) {
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < 4; ++i)
    sum.v[i] *= factor;
  return sum;
}
MEGALITH_DEVICE Fragments times(const Fragments &sum, float factor) {
  return {times(sum.low, factor), times(sum.high, factor)};
}
MEGALITH_DEVICE SliceSums times(const SliceSums &sums, float factor) {
  return {times(sums.first, factor), times(sums.rest, factor)};
}

MEGALITH_DEVICE float silu(float x) {
  constexpr float kLog2E = 1.44269504f;
  return x / (1.0f + platform::exp2f_(-kLog2E * x));
}

} // namespace detail

/// Publishes r16(sum) as bf16 words: the raw q, k, v projections, or any linear layer.
template <class L, class E, class Cta, class Sum>
MEGALITH_DEVICE void epilogue_words(const Cta &cta, int tile, const Sum &sum) {
  static_assert(E::Exchange::kOwn == L::kStrips);
  platform::mark<platform::verb::Publish, E>();
  detail::each_word<L>(
      cta, tile, sum, Cta::Config::kRows, [&](int row, int strip, float low, float high) {
        publish<E>(cta, row, tile_first<L>(cta, tile) + strip, pair_word(low, high));
      });
  platform::mark_end();
}

/// Publishes the unrounded sums as fp32 words `[rows][kOutputs]`, of this rank: router logits,
/// parts of sums.
template <class L, class E, class Cta, class Sum>
MEGALITH_DEVICE void epilogue_logits(const Cta &cta, int tile, const Sum &sum) {
  static_assert(E::Exchange::kOwn == L::kOutputs);
  platform::mark<platform::verb::Publish, E>();
  detail::each_word<L>(cta, tile, sum, Cta::Config::kRows,
                       [&](int row, int strip, float low, float high) {
                         const int channel = 2 * (tile_first<L>(cta, tile) + strip);
                         publish<E>(cta, row, channel, float_word(low));
                         if (channel + 1 < L::kOutputs)
                           publish<E>(cta, row, channel + 1, float_word(high));
                       });
  platform::mark_end();
}

/// The same times `multiplier`.
template <class L, class E, class Cta, class Sum>
MEGALITH_DEVICE void epilogue_logits(const Cta &cta, int tile, const Sum &sum, float multiplier) {
  epilogue_logits<L, E>(cta, tile, detail::times(sum, multiplier));
}

/// Before the residual add: waits for this SM's slice of the words of E (the residual that entered
/// this layer) and puts it in S.
template <class L, class E, class S, class Cta> MEGALITH_DEVICE void fetch_slice(const Cta &cta) {
  static_assert(E::Exchange::kOwn == L::kStrips && S::kWidth == L::kUnit);
  const int strips = slice_strips<L>(cta);
  platform::mark<platform::verb::Poll, E>();
  for (int i = cta.lane; i < Cta::Config::kRows * L::kUnit; i += 32) {
    const int row = i / L::kUnit, strip = i % L::kUnit;
    if (strip < strips)
      platform::st_shared(S::row(cta, row) + strip,
                          poll_word<E>(cta, row, cta.sm * L::kUnit + strip));
  }
  platform::warp_sync();
  platform::mark_end();
}

/// r16(residual + r16(sum)): kept in S in place of the old residual, and published.
template <class L, class E, class S, class Cta, class Sum>
MEGALITH_DEVICE void epilogue_residual(const Cta &cta, int tile, const Sum &sum) {
  static_assert(E::Exchange::kOwn == L::kStrips && S::kWidth == L::kUnit);
  platform::mark<platform::verb::Publish, E>();
  detail::each_word<L>(
      cta, tile, sum, Cta::Config::kRows, [&](int row, int strip, float low, float high) {
        uint32_t *kept = S::row(cta, row) + tile * L::kTileStrips + strip;
        const uint32_t old = platform::ld_shared<uint32_t>(kept);
        const uint32_t word = pair_word(lo16(old) + round16(low), hi16(old) + round16(high));
        platform::st_shared(kept, word);
        publish<E>(cta, row, tile_first<L>(cta, tile) + strip, word);
      });
  platform::mark_end();
}

/// Gate/up tile of one expert: r16(silu(r16 gate) * r16 up) of strips 2i and 2i + 1 is word i of
/// the pair's row of E. `pairs[0..count)` (shared) are the expert's pairs, in the mma's column
/// order.
template <class L, class E, class Cta>
MEGALITH_DEVICE void epilogue_glu(const Cta &cta, int tile, const Fragment &sum,
                                  const int32_t *pairs, int count) {
  static_assert(E::Exchange::kOwn * 2 == L::kStrips && L::kUnit % 2 == 0,
                "a word's two strips belong to one SM");
  const int g = cta.lane / 4, column = 2 * (cta.lane % 4);
  const float low0 = detail::silu(round16(sum.v[0])) * round16(sum.v[2]);
  const float low1 = detail::silu(round16(sum.v[1])) * round16(sum.v[3]);
  const float high0 = platform::shfl_xor(low0, 4), high1 = platform::shfl_xor(low1, 4);
  platform::mark<platform::verb::Publish, E>();
  if (g % 2 == 0 && g < tile_strips<L>(cta, tile)) {
    const int word = (tile_first<L>(cta, tile) + g) / 2;
    if (column < count)
      publish<E>(cta, platform::ld_shared<int32_t>(pairs + column), word, pair_word(low0, high0));
    if (column + 1 < count)
      publish<E>(cta, platform::ld_shared<int32_t>(pairs + column + 1), word,
                 pair_word(low1, high1));
  }
  platform::mark_end();
}

/// The same of two column tiles.
template <class L, class E, class Cta>
MEGALITH_DEVICE void epilogue_glu(const Cta &cta, int tile, const Fragments &sum,
                                  const int32_t *pairs, int count) {
  epilogue_glu<L, E>(cta, tile, sum.low, pairs, count);
  if (count > 8)
    epilogue_glu<L, E>(cta, tile, sum.high, pairs + 8, count - 8);
}

/// Down tile of one expert: r16(sum) to this SM's slice `[pair][L::kUnit]` of the experts' outputs.
template <class L, class Y, class Cta, class Sum>
MEGALITH_DEVICE void epilogue_down(const Cta &cta, int tile, const Sum &sum, const int32_t *pairs,
                                   int count) {
  static_assert(Y::kWidth == L::kUnit);
  detail::each_word<L>(cta, tile, sum, count, [&](int column, int strip, float low, float high) {
    const int pair = platform::ld_shared<int32_t>(pairs + column);
    platform::st_shared(Y::row(cta, pair) + tile * L::kTileStrips + strip, r16x2(low, high));
  });
}

/// After the last expert: m = r16(sum over slots of weight * y, in slot order), then publishes
/// r16(S + m), the layer's residual. `weights` is `[rows][TopK]` fp32 in shared memory, Y holds
/// pair row * TopK + slot. Dead rows have no pairs: m = 0.
template <class L, class E, class S, class Y, int TopK, class Cta>
MEGALITH_DEVICE void combine(const Cta &cta, const float *weights) {
  static_assert(E::Exchange::kOwn == L::kStrips && S::kWidth == L::kUnit);
  const int strips = slice_strips<L>(cta);
  platform::warp_sync();
  platform::mark<platform::verb::Publish, E>();
  for (int i = cta.lane; i < Cta::Config::kRows * L::kUnit; i += 32) {
    const int row = i / L::kUnit, strip = i % L::kUnit;
    if (strip >= strips)
      continue;
    float low = 0, high = 0;
    if (cta.is_live(row))
      for (int slot = 0; slot < TopK; ++slot) {
        const int pair = row * TopK + slot;
        const float weight = platform::ld_shared<float>(weights + pair);
        const uint32_t y = platform::ld_shared<uint32_t>(Y::row(cta, pair) + strip);
        low = platform::fmaf_(weight, lo16(y), low);
        high = platform::fmaf_(weight, hi16(y), high);
      }
    const uint32_t old = platform::ld_shared<uint32_t>(S::row(cta, row) + strip);
    publish<E>(cta, row, cta.sm * L::kUnit + strip,
               pair_word(lo16(old) + round16(low), hi16(old) + round16(high)));
  }
  platform::mark_end();
}

/// Stores the unrounded sums to the fp32 matrix `[rows][kOutputs]` in buffer slot `Buffer`, which
/// is read after the launch: the head's logits.
template <class L, int Buffer, class Cta, class Sum>
MEGALITH_DEVICE void epilogue_head(const Cta &cta, int tile, const Sum &sum) {
  auto *out = static_cast<float *>(cta.template buffer<Buffer>());
  detail::each_word<L>(cta, tile, sum, Cta::Config::kRows,
                       [&](int row, int strip, float low, float high) {
                         const int channel = 2 * (tile_first<L>(cta, tile) + strip);
                         float *at = out + uint64_t{L::kOutputs} * row + channel;
                         platform::st_global(at, low);
                         if (channel + 1 < L::kOutputs)
                           platform::st_global(at + 1, high);
                       });
}

/// The best that a lane has seen of its rows 2t and 2t + 1, in its strips of the tiles so far.
struct BestRanks {
  uint64_t row[2] = {0, 0};
};

/// The same of two column tiles.
struct TwoBestRanks {
  BestRanks low, high;
};

/// Token of this rank's first logit.
template <class L, class Cta> MEGALITH_DEVICE int first_token(const Cta &cta) {
  return cta.rank * L::kOutputs;
}

namespace detail {
/// Keeps the best of the logits of `rows` rows. Channels from kOutputs on, which are padding, never
/// win.
template <class L, class Cta, class Sum>
MEGALITH_DEVICE void keep_best(const Cta &cta, int tile, const Sum &sum, int rows,
                               BestRanks &best) {
  each_word<L>(cta, tile, sum, rows, [&](int row, int strip, float low, float high) {
    const int channel = 2 * (tile_first<L>(cta, tile) + strip);
    uint64_t &rank = best.row[row % 2];
    rank = max_rank(rank, rank_of(low, first_token<L>(cta) + channel));
    if (channel + 1 < L::kOutputs)
      rank = max_rank(rank, rank_of(high, first_token<L>(cta) + channel + 1));
  });
}

/// The best of rows `first`.. of all lanes to column `sm` of the Candidates `[rows][Sms]` at `out`.
template <int Sms, class Cta>
MEGALITH_DEVICE void store_best(const Cta &cta, unsigned char *out, int first,
                                const BestRanks &best) {
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < 2; ++i) {
    uint64_t rank = best.row[i];
    for (int mask = 4; mask < 32; mask *= 2) // the lanes of one t
      rank = max_rank(rank, platform::shfl_xor(rank, mask));
    const int row = first + 2 * cta.lane + i;
    if (cta.lane < 4 && row < Cta::Config::kRows)
      platform::st_global(out + sizeof(Candidate) * (row * Sms + cta.sm),
                          __builtin_bit_cast(u32x2, candidate_of(rank)));
  }
}
} // namespace detail

/// Stores the logits, and keeps the best of them.
template <class L, int Buffer, class Cta, class Sum>
MEGALITH_DEVICE void epilogue_head(const Cta &cta, int tile, const Sum &sum, BestRanks &best) {
  epilogue_head<L, Buffer>(cta, tile, sum);
  detail::keep_best<L>(cta, tile, sum, Cta::Config::kRows, best);
}
template <class L, int Buffer, class Cta>
MEGALITH_DEVICE void epilogue_head(const Cta &cta, int tile, const Fragments &sum,
                                   TwoBestRanks &best) {
  epilogue_head<L, Buffer>(cta, tile, sum);
  detail::keep_best<L>(cta, tile, sum.low, Cta::Config::kRows, best.low);
  detail::keep_best<L>(cta, tile, sum.high, Cta::Config::kRows - 8, best.high);
}

/// After the last tile: this SM's best token of every row to column `sm` of the Candidates
/// `[rows][Sms]` in buffer slot `Buffer`; an SM without a slice has none (-1). `advance` reads it.
template <int Sms, int Buffer, class Cta>
MEGALITH_DEVICE void store_candidates(const Cta &cta, const BestRanks &best) {
  detail::store_best<Sms>(cta, static_cast<unsigned char *>(cta.template buffer<Buffer>()), 0,
                          best);
}
template <int Sms, int Buffer, class Cta>
MEGALITH_DEVICE void store_candidates(const Cta &cta, const TwoBestRanks &best) {
  auto *out = static_cast<unsigned char *>(cta.template buffer<Buffer>());
  detail::store_best<Sms>(cta, out, 0, best.low);
  detail::store_best<Sms>(cta, out, 8, best.high);
}

/// What becomes of the head's sums z before they are stored and compared: z * Multiplier, then with
/// a Softcap C > 0 C * tanh(z / C), then ids from `Valid` on, counted through all ranks, are -inf.
template <float Multiplier, float Softcap, int Valid> struct LogitRule {
  static MEGALITH_DEVICE float apply(float z, int token) {
    z *= Multiplier;
    if constexpr (Softcap > 0) {
      // tanh x = 1 - 2 / (1 + e^2x): absolute error of a rounding of 1, and no overflow.
      constexpr float kTwoLog2E = 2.88539008f;
      z = Softcap - 2.0f * Softcap / (1.0f + platform::exp2f_(kTwoLog2E / Softcap * z));
    }
    return token < Valid ? z : bits_to_float(0xFF800000u);
  }
};

namespace detail {
template <class Rule> MEGALITH_DEVICE Fragment ruled(Fragment sum, int token) {
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < 4; ++i)
    sum.v[i] = Rule::apply(sum.v[i], token + i / 2);
  return sum;
}
template <class Rule> MEGALITH_DEVICE Fragments ruled(const Fragments &sum, int token) {
  return {ruled<Rule>(sum.low, token), ruled<Rule>(sum.high, token)};
}
template <class Rule> MEGALITH_DEVICE SliceSums ruled(const SliceSums &sums, int token) {
  return {ruled<Rule>(sums.first, token), ruled<Rule>(sums.rest, token + 2 * kTileStrips)};
}
} // namespace detail

/// The head with a LogitRule.
template <class L, int Buffer, class Rule, class Cta, class Sum, class Best>
MEGALITH_DEVICE void epilogue_head(const Cta &cta, int tile, const Sum &sum, Best &best) {
  const int token = first_token<L>(cta) + 2 * (tile_first<L>(cta, tile) + cta.lane / 4);
  epilogue_head<L, Buffer>(cta, tile, detail::ruled<Rule>(sum, token), best);
}

/// Stores r16(sum) to the bf16 matrix `[rows][kOutputs]` in buffer slot `Buffer`, read after the
/// launch.
template <class L, int Buffer, class Cta, class Sum>
MEGALITH_DEVICE void epilogue_store_bf16(const Cta &cta, int tile, const Sum &sum) {
  static_assert(L::kOutputs % 2 == 0);
  auto *out = static_cast<uint32_t *>(cta.template buffer<Buffer>());
  detail::each_word<L>(
      cta, tile, sum, Cta::Config::kRows, [&](int row, int strip, float low, float high) {
        platform::st_global(out + L::kStrips * row + tile_first<L>(cta, tile) + strip,
                            r16x2(low, high));
      });
}

} // namespace megalith
