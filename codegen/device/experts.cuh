// The experts of a step: which rows an active expert has, and its activations on their way from the
// exchange of pairs to the columns of its second projection.
//
// All pairs' activations of a wide bucket would not fit in shared memory; one expert's rows do, so
// they pass through slots, expert by expert, in the order of the routing table.
#pragma once

#include "codegen/device/exchange.cuh"
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
  const auto first = platform::ld_shared<int32_t>(&table->first[e]);
  return {platform::ld_shared<int32_t>(&table->expert[e]), &table->pair[first],
          platform::ld_shared<int32_t>(&table->first[e + 1]) - first};
}

/// Poller: rows pairs[0..count) of E's bf16 words to rows 0..count of slot `slot` of X, a
/// SlottedRows with the stride of `Rows`; padding columns become zero.
template <class E, class X, class Cta>
MEGALITH_DEVICE void poll_expert(const Cta &cta, int slot, const int32_t *pairs, int count) {
  using Exchange = typename E::Exchange;
  constexpr int kVectors = Exchange::kWidth / 4;
  constexpr int kPadding = (kPaddedWidth<2 * Exchange::kWidth> - 2 * Exchange::kWidth) / 8;
  static_assert(Exchange::kWidth % 4 == 0 && X::kRowBytes >= 16 * (kVectors + kPadding));
  MEGALITH_UNROLL(1)
  for (int i = 0; i < count; ++i)
    poll_block<E>(cta, platform::ld_shared<int32_t>(pairs + i), 1, 0, kVectors,
                  X::row(cta, slot, i), 0);
  if constexpr (kPadding > 0)
    for (int i = cta.lane; i < count * kPadding; i += 32)
      platform::st_shared(X::row(cta, slot, i / kPadding) + 16 * (kVectors + i % kPadding),
                          u32x4{0, 0, 0, 0});
}

/// Consumer warp: rows 0..count of slot `slot` of X as columns of L, count <= 8.
template <class L, class X, class Cta>
MEGALITH_DEVICE Column slot_column(const Cta &cta, int slot, int count) {
  static_assert(X::kRowBytes >= 2 * kPaddedWidth<L::kInputs>);
  const int i = cta.lane / 4;
  const int k = 16 * L::kChunkSteps * cta.role_warp + 4 * (cta.lane % 4);
  return {X::row(cta, slot, i < count ? i : 0) + 2 * k, i < count};
}

/// One warp makes all words of X, a WordRows, zero: sums of pairs that a step may not have.
template <class X, class Cta> MEGALITH_DEVICE void clear_words(const Cta &cta) {
  for (uint32_t i = 16 * cta.lane; i < X::kBytes; i += 16 * 32)
    platform::st_shared(cta.smem + X::kOffset + i, u32x4{0, 0, 0, 0});
  platform::warp_sync();
}

} // namespace megalith
