// Launch 0's input: rows of the embedding table.
#pragma once

#include "codegen/device/exchange.cuh"

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

} // namespace megalith
