// Launch 0's input: rows of the embedding table.
#pragma once

#include "codegen/device/exchange.cuh"
#include "codegen/device/norm.cuh"

namespace megalith {

/// The bf16 table `[vocabulary][Width]` in buffer slot `Buffer`, 16 B aligned.
template <int Buffer, int Width> struct Embedding {
  static constexpr int kBuffer = Buffer, kWidth = Width;
};

/// Row of the table for the token of live row `row`.
template <class E, class Cta>
MEGALITH_DEVICE const unsigned char *embedding_row(const Cta &cta, int row) {
  const int32_t token = platform::ld_global<int32_t>(&cta.args.step->row_token[row]);
  return static_cast<const unsigned char *>(cta.template buffer<E::kBuffer>()) +
         uint64_t{2 * E::kWidth} * token;
}

/// Poller: the tokens' embeddings to the rows of X; zeros for dead rows.
template <class E, class X, class Cta> MEGALITH_DEVICE void embed_rows(const Cta &cta) {
  static_assert(E::kWidth == X::kWidth && Cta::Config::kRows <= X::kCount);
  for (int row = 0; row < Cta::Config::kRows; ++row)
    if (cta.is_live(row))
      copy_row<X>(cta, row, embedding_row<E>(cta, row));
    else
      clear_row<X>(cta, row);
}

/// Poller, after launch_wait: stores this SM's share of the embeddings as words of `Resid`, from
/// the table, because X is normed in place by then.
template <class E, class Resid, class Cta> MEGALITH_DEVICE void publish_embedding(const Cta &cta) {
  constexpr int kWords = Resid::Exchange::kOwn;
  static_assert(2 * Resid::Exchange::kWidth == E::kWidth);
  const int first = own_first<typename Resid::Exchange>(cta);
  const Share share = share_of<Cta>(cta.sm, kWords);
  platform::mark<platform::verb::Publish, Resid>();
  for (int row = 0; row < Cta::Config::kRows; ++row) {
    const bool live = cta.is_live(row);
    const unsigned char *source = live ? embedding_row<E>(cta, row) : nullptr;
    for (int i = share.first + cta.lane; i < share.end; i += 32) {
      const uint32_t pair = live ? platform::ld_const<uint32_t>(source + 4 * (first + i)) : 0;
      publish<Resid>(cta, row, i, canonical_pair(pair));
    }
  }
  platform::mark_end();
}

/// Epilogue, after launch_wait: the same rows through an rms norm without weight, rounded to bf16,
/// as fp32 words of `Resid`. The warp reads whole rows, its lanes every 32nd vector.
template <class E, class Resid, float Epsilon, class Cta>
MEGALITH_DEVICE void publish_normed_embedding(const Cta &cta) {
  constexpr int kVectors = E::kWidth / 8;
  static_assert(Resid::Exchange::kWidth == E::kWidth);
  const Share share = share_of<Cta>(cta.sm, E::kWidth);
  platform::mark<platform::verb::Publish, Resid>();
  for (int row = 0; row < Cta::Config::kRows; ++row) {
    const bool live = cta.is_live(row);
    const unsigned char *source = live ? embedding_row<E>(cta, row) : nullptr;
    float sum = 0;
    if (live)
      MEGALITH_UNROLL(4)
    for (int i = cta.lane; i < kVectors; i += 32) {
      const auto v = platform::ld_const<u32x4>(source + 16 * i);
      sum = detail::add_squares(sum, v.x);
      sum = detail::add_squares(sum, v.y);
      sum = detail::add_squares(sum, v.z);
      sum = detail::add_squares(sum, v.w);
    }
    for (int mask = 16; mask > 0; mask /= 2)
      sum += platform::shfl_xor(sum, mask);
    const float scale = platform::rsqrtf_(platform::fmaf_(sum, 1.0f / E::kWidth, Epsilon));
    for (int i = share.first + cta.lane; i < share.end; i += 32) {
      const float x = live ? to_float(platform::ld_const<bf16>(source + 2 * i)) : 0.0f;
      publish<Resid>(cta, row, i, float_word(round16(x * scale)));
    }
  }
  platform::mark_end();
}

} // namespace megalith
