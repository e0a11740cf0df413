// The consumers' own polls: each warp brings what it alone needs, by the shortest way from SM to
// SM, without the poller warp and an mbarrier between.
#pragma once

#include "codegen/device/gather.cuh"

namespace megalith {

/// Consumer warp, after refill<X>: its K chunk of all rows of E's bf16 words, as they arrive, to
/// the rows of X; the chunk's padding becomes zero. No other warp needs them, so none waits for
/// another.
template <class E, class X, class Cta> MEGALITH_DEVICE void poll_chunk(const Cta &cta) {
  using Exchange = typename E::Exchange;
  static_assert(Exchange::kCount <= X::kCount && 2 * kRowWords<E> == X::kWidth);
  constexpr int kVectors = X::kChunk / 8, kItems = Exchange::kCount * kVectors;
  constexpr int kEach = (kItems + 31) / 32, kBatch = kEach < 8 ? kEach : 8;
  const int first = kVectors * cta.role_warp; // of a row's vectors
  const auto target = [&](int i) {
    return X::row(cta, i / kVectors) + 16 * (first + i % kVectors);
  };
  const auto exists = [&](int i) {
    return X::kPadded == X::kWidth || 8 * (first + i % kVectors) < X::kWidth;
  };
  gather_words<E, kBatch>(
      cta, kItems, set_of<Exchange>(cta, E::kAge) + first_word<E>(),
      [&](int i) {
        return exists(i) ? i / kVectors * (Exchange::kWidth / 4) + first + i % kVectors : -1;
      },
      [&](int i, const u32x4 &v) { platform::st_shared(target(i), v); });
  await_hop<Exchange>(cta, 4 * first, 4 * kVectors);
  if constexpr (X::kPadded != X::kWidth)
    for (int i = cta.lane; i < kItems; i += 32)
      if (!exists(i))
        platform::st_shared(target(i), u32x4{0, 0, 0, 0});
  platform::warp_sync();
}

/// The same of part `part` of `Parts` parts of K: of the warp's chunk, the columns of so many
/// blocks. X holds one part.
template <class E, class X, int Parts, class Cta>
MEGALITH_DEVICE void poll_chunk_part(const Cta &cta, int part) {
  using Exchange = typename E::Exchange;
  static_assert(Exchange::kCount <= X::kCount && 2 * kRowWords<E> == Parts * X::kWidth);
  static_assert(X::kPadded == X::kWidth);
  constexpr int kVectors = X::kChunk / 8, kItems = Exchange::kCount * kVectors;
  constexpr int kEach = (kItems + 31) / 32, kBatch = kEach < 8 ? kEach : 8;
  const int first = kVectors * (Parts * cta.role_warp + part); // of a row's vectors
  gather_words<E, kBatch>(
      cta, kItems, set_of<Exchange>(cta, E::kAge) + first_word<E>(),
      [&](int i) { return i / kVectors * (Exchange::kWidth / 4) + first + i % kVectors; },
      [&](int i, const u32x4 &v) {
        platform::st_shared(
            X::row(cta, i / kVectors) + 16 * (kVectors * cta.role_warp + i % kVectors), v);
      });
  await_hop<Exchange>(cta, 4 * first, 4 * kVectors);
  platform::warp_sync();
}

namespace detail {
template <class E, class X, class Cta> MEGALITH_DEVICE void poll_row(const Cta &cta, int row) {
  using Exchange = typename E::Exchange;
  constexpr int kVectors = Exchange::kWidth / 4, kEach = (kVectors + 31) / 32;
  gather_words<E, (kEach < 8 ? kEach : 8)>(
      cta, kVectors, set_of<Exchange>(cta, E::kAge) + row * Exchange::kWidth,
      [](int i) { return i; },
      [&](int i, const u32x4 &v) { platform::st_shared(X::row(cta, row) + 4 * i, v); });
}
} // namespace detail

/// Consumer: warp r brings row r of E's fp32 words to row r of X, a WordRows; of 16 rows also row
/// r + 8. Or the only warp of a role the only row.
template <class E, class X, class Cta> MEGALITH_DEVICE void poll_own_row(const Cta &cta) {
  using Exchange = typename E::Exchange;
  static_assert(Exchange::kCount <= 2 * kConsumerWarps && Exchange::kWidth % 4 == 0);
  static_assert(Exchange::kCount <= X::kCount && Exchange::kWidth == X::kWidth);
  if (cta.role_warp >= Exchange::kCount)
    return;
  detail::poll_row<E, X>(cta, cta.role_warp);
  if constexpr (Exchange::kCount > kConsumerWarps)
    if (cta.role_warp + kConsumerWarps < Exchange::kCount)
      detail::poll_row<E, X>(cta, cta.role_warp + kConsumerWarps);
  platform::warp_sync();
}

} // namespace megalith
