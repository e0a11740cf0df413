// Polling at its tightest: every load in flight at once, nothing between two looks that need not
// be.
#pragma once

#include "codegen/device/exchange.cuh"

namespace megalith::calibrate {

/// One warp copies Each * 32 vectors of words to shared memory as soon as all are there. Every
/// round reads all of them again, `pause` ns after the one before; the deadline is looked at every
/// 64th round.
template <int Each, class Cta>
MEGALITH_DEVICE void poll_tight(const Cta &cta, uint32_t edge, const uint32_t *source,
                                unsigned char *target, uint32_t pause = 0) {
  u32x4 v[Each];
  Patience patience;
  for (uint32_t round = 1;; ++round) {
    const uint32_t *missing = nullptr;
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < Each; ++j)
      v[j] = platform::ld_relaxed_v4<platform::Scope::gpu>(source + 4 * (32 * j + cta.lane));
    MEGALITH_UNROLL_ALL
    for (int j = 0; j < Each; ++j)
      if (!megalith::detail::arrived(v[j]))
        missing = source + 4 * (32 * j + cta.lane);
    if (platform::all_sync(missing == nullptr))
      break;
    if (round % 64 == 0 && patience.lost(cta))
      platform::fail(cta.args.fault, edge, round, 0, cta.n);
    if (missing)
      platform::poll_pause(missing);
    if (pause) {
      const uint64_t until = platform::now_ns() + pause;
      while (platform::now_ns() < until)
        ;
    }
  }
  MEGALITH_UNROLL_ALL
  for (int j = 0; j < Each; ++j)
    platform::st_shared(target + 16 * (32 * j + cta.lane), v[j]);
}

} // namespace megalith::calibrate
