// The experts of a step: which rows an active expert has, and its activations on their way from the
// exchange of pairs to the columns of its second projection.
//
// All pairs' activations of a wide bucket would not fit in shared memory; one expert's rows do, so
// they pass through slots, expert by expert, in the order of the routing table.
#pragma once

#include "codegen/device/chunks.cuh"
#include "codegen/device/gemv.cuh"
#include "codegen/device/router.cuh"
#include "codegen/device/slots.cuh"

namespace megalith {

/// An expert with pairs in this step: its id, and its pairs (row * k + slot, by row) in shared
/// memory.
struct ActiveExpert {
  int id;
  const int32_t *pairs;
  int count;
};

/// Entry `e` of the routing table of C, the top-k stage. Any role that has waited for the table.
template <class C, class Cta> MEGALITH_DEVICE ActiveExpert active_expert(const Cta &cta, int e) {
  const auto *table = routing_table<C>(cta);
  if constexpr (C::kRows == 1) // its experts differ: one pair each
    return {platform::ld_shared<int32_t>(&table->expert[e]), &table->pair[e], 1};
  const auto first = platform::ld_shared<int32_t>(&table->first[e]);
  return {platform::ld_shared<int32_t>(&table->expert[e]), &table->pair[first],
          platform::ld_shared<int32_t>(&table->first[e + 1]) - first};
}

/// One warp zeroes the padding behind `Words` bf16 words of rows 0..count of slot `slot` of X.
template <class X, int Words, class Cta>
MEGALITH_DEVICE void clear_behind(const Cta &cta, int slot, int count) {
  constexpr int kVectors = Words / 4;
  constexpr int kPadding = (kPaddedWidth<2 * Words> - 2 * Words) / 8;
  static_assert(X::kRowBytes >= 16 * (kVectors + kPadding));
  if constexpr (kPadding > 0)
    for (int i = cta.lane; i < count * kPadding; i += 32)
      platform::st_shared(X::row(cta, slot, i / kPadding) + 16 * (kVectors + i % kPadding),
                          u32x4{0, 0, 0, 0});
}

/// Poller: rows pairs[0..count) of E's bf16 words to rows 0..count of slot `slot` of X, a
/// SlottedRows with the stride of `Rows`; padding columns become zero.
template <class E, class X, class Cta>
MEGALITH_DEVICE void poll_expert(const Cta &cta, int slot, const int32_t *pairs, int count) {
  using Exchange = typename E::Exchange;
  constexpr int kVectors = Exchange::kWidth / 4;
  static_assert(Exchange::kWidth % 4 == 0);
  if constexpr (E::kIsProof && kVectors % (32 * detail::kChunkBatch) == 0) { // wide: row by row
    using Shape =
        detail::ChunkShape<kScopeOf<Exchange>, Exchange::kWidth, X::kRowBytes, 1, kVectors>;
    platform::mark<platform::verb::Poll, E>();
    MEGALITH_UNROLL(1)
    for (int i = 0; i < count; ++i)
      detail::poll_chunk_rows<Shape>(cta.args,
                                     set_of<Exchange>(cta, E::kAge) +
                                         platform::ld_shared<int32_t>(pairs + i) * Exchange::kWidth,
                                     X::row(cta, slot, i), cta.lane, E::kId, cta.n);
    platform::mark_end();
  } else {
    // Two rows at a time, or what registers hold of them: most experts have no more.
    constexpr int kTwoRows = (2 * kVectors + 31) / 32, kBatch = kTwoRows < 8 ? kTwoRows : 8;
    gather_words<E, kBatch>(
        cta, count * kVectors, set_of<Exchange>(cta, E::kAge),
        [&](int i) {
          return platform::ld_shared<int32_t>(pairs + i / kVectors) * kVectors + i % kVectors;
        },
        [&](int i, const u32x4 &v) {
          platform::st_shared(X::row(cta, slot, i / kVectors) + 16 * (i % kVectors), v);
        });
  }
  await_hop<Exchange>(cta, 0, Exchange::kWidth);
  clear_behind<X, Exchange::kWidth>(cta, slot, count);
}

/// Poller: the same of part `part` of `Parts` parts of K: of each chunk, the columns of so many
/// blocks, chunk after chunk.
template <class E, class X, int Parts, class Cta>
MEGALITH_DEVICE void poll_expert_part(const Cta &cta, int slot, const int32_t *pairs, int count,
                                      int part) {
  using Exchange = typename E::Exchange;
  constexpr int kRow = Exchange::kWidth / 4;            // vectors of a row
  constexpr int kChunk = kRow / Parts / kConsumerWarps; // of a chunk's columns of one part
  constexpr int kVectors = kConsumerWarps * kChunk;     // of a row's
  static_assert(2 * Exchange::kWidth % 128 == 0 && kVectors * Parts == kRow);
  constexpr int kTwoRows = (2 * kVectors + 31) / 32, kBatch = kTwoRows < 8 ? kTwoRows : 8;
  gather_words<E, kBatch>(
      cta, count * kVectors, set_of<Exchange>(cta, E::kAge),
      [&](int i) {
        const int at = i % kVectors;
        return platform::ld_shared<int32_t>(pairs + i / kVectors) * kRow +
               (at / kChunk * Parts + part) * kChunk + at % kChunk;
      },
      [&](int i, const u32x4 &v) {
        platform::st_shared(X::row(cta, slot, i / kVectors) + 16 * (i % kVectors), v);
      });
  await_hop<Exchange>(cta, 0, Exchange::kWidth);
}

/// Poller, after launch_wait: the same over a launch edge, by bulk copies that the next signal of
/// Full hands on. No row waits for the one before, so the rows of all slots are under way together.
template <class E, class X, class Full, class Cta>
MEGALITH_DEVICE void fetch_expert(const Cta &cta, int slot, const int32_t *pairs, int count) {
  using Exchange = typename E::Exchange;
  constexpr int kVectors = Exchange::kWidth / 4;
  static_assert(!E::kIsProof && Exchange::kWidth % 4 == 0);
  platform::mark<platform::verb::Poll, E>();
  if (cta.lane < count)
    copy_for<Full>(cta, X::row(cta, slot, cta.lane),
                   set_of<Exchange>(cta, 0) +
                       platform::ld_shared<int32_t>(pairs + cta.lane) * Exchange::kWidth,
                   4 * Exchange::kWidth);
  platform::mark_end();
  clear_behind<X, Exchange::kWidth>(cta, slot, count);
}

namespace detail {
template <class L, class X, int Parts, class Cta>
MEGALITH_DEVICE Column column_in_slot(const Cta &cta, int slot, int count, int i) {
  static_assert(X::kRowBytes >= 2 * kPaddedWidth<L::kInputs> / Parts);
  const int k = 16 * (L::kChunkSteps / Parts) * cta.role_warp + L::kLaneColumns * (cta.lane % 4);
  return {X::row(cta, slot, i < count ? i : 0) + 2 * k, i < count};
}
} // namespace detail

/// Consumer warp: rows 0..count of slot `slot` of X, or one of `Parts` parts of K of them, as
/// columns of L, count <= 8.
template <class L, class X, int Parts = 1, class Cta>
MEGALITH_DEVICE Column slot_column(const Cta &cta, int slot, int count) {
  return detail::column_in_slot<L, X, Parts>(cta, slot, count, cta.lane / 4);
}

/// The same with count <= 16.
template <class L, class X, int Parts = 1, class Cta>
MEGALITH_DEVICE Columns slot_columns(const Cta &cta, int slot, int count) {
  const int i = cta.lane / 4;
  return {detail::column_in_slot<L, X, Parts>(cta, slot, count, i),
          detail::column_in_slot<L, X, Parts>(cta, slot, count, i + 8), count};
}

/// One warp makes all words of X, a WordRows, zero: sums of pairs that a step may not have.
template <class X, class Cta> MEGALITH_DEVICE void clear_words(const Cta &cta) {
  for (uint32_t i = 16 * cta.lane; i < X::kBytes; i += 16 * 32)
    platform::st_shared(cta.smem + X::kOffset + i, u32x4{0, 0, 0, 0});
  platform::warp_sync();
}

} // namespace megalith
