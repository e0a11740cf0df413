// One warp gathers scattered 16-byte items of an exchange, many loads in flight: what `poll_block`
// does for whole blocks of words, for the lists of items that attention and merge need.
#pragma once

#include "codegen/device/exchange.cuh"

namespace megalith {

/// fp32 values that an epoch word carries.
inline constexpr int kEpochPayload = 3;

/// Brings items 0 .. count-1. Lane i takes items i, i + 32, ..., up to `Batch` of them at a time,
/// since one after the other would each cost a trip to L2. E names the edge in the PTX and in a
/// missed deadline (expected = count, seen = an item not there).
///   source(i)   address of item i, or null: there is no such item
///   load(p)     an item, of type V; ready(v): whether it has been written
///   take(i, v)  disposes of it
template <class E, int Batch, class V, class Cta, class Source, class Load, class Ready, class Take>
MEGALITH_DEVICE void gather_items(const Cta &cta, int count, Source source, Load load, Ready ready,
                                  Take take) {
  static_assert(Batch >= 1 && Batch <= 32);
  platform::mark<platform::verb::Poll, E>();
  for (int base = 0; base < count; base += 32 * Batch) {
    const int first = base + cta.lane;
    uint32_t missing = 0;
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < Batch; ++j)
      if (first + 32 * j < count && source(first + 32 * j) != nullptr)
        missing |= 1u << j;
    Patience patience;
    while (true) {
      V value[Batch];
      MEGALITH_UNROLL_ALL
      for (int j = 0; j < Batch; ++j)
        if ((missing >> j) & 1)
          value[j] = load(source(first + 32 * j));
      int absent = -1;
      MEGALITH_UNROLL_ALL
      for (int j = 0; j < Batch; ++j)
        if ((missing >> j) & 1) {
          if (ready(value[j])) {
            take(first + 32 * j, value[j]);
            missing &= ~(1u << j);
          } else {
            absent = first + 32 * j;
          }
        }
      if (!platform::any_sync(missing != 0))
        break;
      if (absent >= 0) {
        if (patience.lost(cta))
          platform::fail(cta.args.fault, E::kId, count, absent, cta.n);
        platform::poll_pause(source(absent));
      }
    }
  }
  platform::mark_end();
}

/// Gathers vectors of four words: source(i) is a uint32_t pointer, 16 B aligned.
template <class E, int Batch, class Cta, class Source, class Take>
MEGALITH_DEVICE void gather_words(const Cta &cta, int count, Source source, Take take) {
  gather_items<E, Batch, u32x4>(
      cta, count, source,
      [](const uint32_t *p) { return platform::ld_relaxed_v4<platform::Scope::gpu>(p); },
      [](const u32x4 &v) { return !E::kIsProof || detail::arrived(v); }, take);
}

/// Gathers epoch words of this launch: source(i) is a U128 pointer.
template <class E, int Batch, class Cta, class Source, class Take>
MEGALITH_DEVICE void gather_epochs(const Cta &cta, int count, Source source, Take take) {
  const uint32_t epoch = epoch_of(cta);
  gather_items<E, Batch, U128>(
      cta, count, source,
      [](const U128 *p) { return platform::ld_relaxed<platform::Scope::gpu, U128>(p); },
      [epoch](const U128 &v) { return !E::kIsProof || v.w == epoch; }, take);
}

} // namespace megalith
