// A kernel that loops over the launches of a step: what changes from one to the next, and the edge
// that takes the place of the launch boundary between them.
#pragma once

#include "codegen/device/cta.cuh"

namespace megalith {

/// A thread's view of a looping kernel; `Config` supplies, beside what Cta needs,
///   kLaunches  launches of the step;
///   kLayered   slots that differ from launch to launch, [0, kLayered).
/// Uses of edges are counted on through all launches, but for edges with few slots only modulo
/// twice their number, which is all that slot and parity need: eight of these counts fit into a
/// register.
template <class Config_> struct StepCta : Cta<Config_> {
  using Args = StepArgs<Config_::kLaunches, Config_::kLayered>;

  const Args &step_args;
  int launch, first, end; // this launch's number in the step; the kernel runs [first, end)
  uint32_t packed[Config_::kEdges / 8 + 1] = {}; // four bits an edge

  MEGALITH_DEVICE explicit StepCta(const Args &kernel_args)
      : Cta<Config_>(kernel_args.launch), step_args(kernel_args),
        launch(static_cast<int>(kernel_args.launch.launch_in_step)), first(launch),
        end(static_cast<int>(kernel_args.end)) {}

  template <int Slot> MEGALITH_DEVICE void *buffer() const {
    if constexpr (Slot < Config_::kLayered)
      return step_args.layered[launch * Config_::kLayered + Slot];
    else
      return this->args.buffer[Slot];
  }

  template <int Id, int Slots> MEGALITH_DEVICE Use next_use() {
    const Use use = coming_use<Id, Slots>();
    count_uses<Id, Slots>(1);
    return use;
  }
  template <int Id, int Slots> MEGALITH_DEVICE void count_uses(int uses) {
    if constexpr (is_packed(Slots)) {
      constexpr int kShift = Id % 8 * 4;
      constexpr uint32_t kMask = (2 * Slots - 1) << kShift;
      uint32_t &word = packed[Id / 8];
      word = (word & ~kMask) | ((word + (static_cast<uint32_t>(uses) << kShift)) & kMask);
    } else {
      this->at[Id] += uses;
    }
  }
  template <int Id, int Slots> MEGALITH_DEVICE Use coming_use() const {
    if constexpr (is_packed(Slots)) {
      const uint32_t use = (packed[Id / 8] >> (Id % 8 * 4)) & (2 * Slots - 1);
      return {static_cast<int>(use % Slots), use / Slots, use};
    } else {
      return Cta<Config_>::template coming_use<Id, Slots>();
    }
  }
  static MEGALITH_DEVICE constexpr bool is_packed(int slots) {
    return slots <= 8 && (slots & (slots - 1)) == 0;
  }

  MEGALITH_DEVICE void next_launch() {
    ++launch;
    ++this->n;
    this->n_mod_3 = this->n_mod_3 == 2 ? 0 : this->n_mod_3 + 1;
  }

  /// At the beginning of each stage: what it computes of its place it computes for itself. Kept
  /// over stages and launches such values would take more registers than there are. Their ranges
  /// stay known, which makes divisions shifts.
  MEGALITH_DEVICE void begin_stage() {
    platform::forget(this->lane);
    platform::forget(this->sm);
    platform::forget(this->role_warp);
    this->lane &= 31;
    this->sm &= 0xFFFF;
    this->role_warp &= kConsumerWarps - 1;
  }
};

/// Base of an emitted edge that joins all SMs from one launch to the next:
///   struct complete : LaunchesEdge<27, 22> { static constexpr char kName[] = "complete"; };
/// The first word of buffer slot `Buffer` counts, modulo 2^32, kSms arrivals for every launch
/// number: before launch n it is kSms * n once all SMs are over with launch n - 1. It never is
/// further than kSms - 1 beyond, since no SM ends a launch that others have not begun.
template <int Id, int Buffer> struct LaunchesEdge {
  static constexpr int kId = Id, kBuffer = Buffer;
};

namespace detail {
MEGALITH_COLD void await_count(const LaunchArgs &args, const uint32_t *count, uint32_t target,
                               uint32_t edge, uint64_t n) {
  Patience patience;
  while (true) {
    const uint32_t seen = platform::ld_acquire<platform::Scope::gpu, uint32_t>(count);
    if (static_cast<int32_t>(seen - target) >= 0)
      return;
    if (patience.lost(args))
      platform::fail(args.fault, edge, target, seen, n);
    platform::poll_pause(count);
  }
}
} // namespace detail

/// Waits until every SM is over with the launch before, and all it wrote is visible; before the
/// first launch that the kernel runs, for the launch of the machine before. Whole warp.
template <class E, class Cta> MEGALITH_DEVICE void await_launch(const Cta &cta) {
  platform::mark<platform::verb::AwaitLaunch, E>();
  if (cta.launch == cta.first)
    platform::launch_wait();
  else
    detail::await_count(cta.args, static_cast<const uint32_t *>(cta.template buffer<E::kBuffer>()),
                        Cta::Config::kSms * static_cast<uint32_t>(cta.n), E::kId, cta.n);
  platform::mark_end();
}

/// Says that this SM is over with the launch: what its roles did, as far as this warp knows of it
/// by edges, is visible to who awaits the next launch. Whole warp.
template <class E, class Cta> MEGALITH_DEVICE void finish_launch(const Cta &cta) {
  platform::mark<platform::verb::FinishLaunch, E>();
  platform::warp_sync();
  if (cta.lane == 0)
    platform::red_add_release<platform::Scope::gpu>(
        static_cast<uint32_t *>(cta.template buffer<E::kBuffer>()), 1);
  platform::mark_end();
}

} // namespace megalith
