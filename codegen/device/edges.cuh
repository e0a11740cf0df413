// Edges inside a CTA: one mbarrier per slot, counted uses, deadlines that name the edge.
//
// Every wait, signal, acquire and release of a kernel is one of these calls in its emitted source;
// no other device header synchronises roles. The k-th use of an edge with S slots is phase k / S of
// barrier k % S; both ends count uses for themselves (Cta::next_use). A missed deadline reports the
// uses needed as `expected` and those certainly over as `seen`.
#pragma once

#include "codegen/device/cta.cuh"
#include "codegen/device/ring.cuh"

namespace megalith {

/// Base of an emitted edge, which adds its name for the marks in the PTX:
///   struct w_full : MbarrierEdge<0, 1024, 4, 1> {
///     static constexpr char kName[] = "w_full";
///   };
/// Id       edge id of the plan, also the id a missed deadline reports
/// Offset   of `Slots` barriers of 8 B in the arena
/// Arrivals per use: signalling warps, or 1 for an edge that bulk copies complete
template <int Id, uint32_t Offset, int Slots, int Arrivals> struct MbarrierEdge {
  static constexpr int kId = Id;
  static constexpr uint32_t kOffset = Offset;
  static constexpr int kSlots = Slots, kArrivals = Arrivals;
  static_assert(Offset % 8 == 0, "an mbarrier is 8 B aligned");

  template <class Cta> static MEGALITH_DEVICE uint64_t *barrier(const Cta &cta, int slot) {
    return shared_at<uint64_t>(cta, kOffset + 8 * slot);
  }
};

namespace detail {
/// Where a CTA's edges lie, for those that know no more of it.
struct Arena {
  unsigned char *smem = platform::smem();
};
template <class E> MEGALITH_DEVICE void init_barriers(const Arena &arena) {
  for (int slot = 0; slot < E::kSlots; ++slot)
    platform::mbarrier_init(E::barrier(arena, slot), E::kArrivals);
}
} // namespace detail

/// Start of the kernel body, all threads: one makes the barriers of all edges. Needs nothing of the
/// kernel's parameters, which the others wait for meanwhile.
template <class... Edges> MEGALITH_DEVICE void make_barriers() {
  if (platform::warp() == 0 && platform::lane() == 0) {
    (detail::init_barriers<Edges>({}), ...);
    platform::fence_mbarrier_init();
  }
}

/// Before the roles begin, all threads: the barriers of all edges, those given here and those made
/// before, are usable by every role, and `cta` is complete.
template <class... Edges, class Cta> MEGALITH_DEVICE void setup(Cta &cta) {
  if constexpr (sizeof...(Edges) > 0)
    make_barriers<Edges...>();
  platform::cta_sync();
  cta.settle();
}

namespace detail {
/// The rest of a wait that did not pass at once. Out of line: it is long, every wait has one, and
/// all roles share the SM's instruction cache.
MEGALITH_COLD void await_slowly(const LaunchArgs &args, platform::BarrierRef barrier,
                                uint32_t parity, uint32_t edge, uint32_t use, uint64_t n) {
  Patience patience;
  while (!platform::mbarrier_try_wait(barrier, parity))
    if (patience.lost(args))
      platform::fail(args.fault, edge, use + 1, use, n);
}
} // namespace detail

/// Blocks until phase `parity` of the slot's barrier is over. All lanes look for themselves, so
/// each of them may read what a bulk copy brought.
template <class E, class Cta>
MEGALITH_DEVICE void await_phase(const Cta &cta, int slot, uint32_t parity, uint32_t use) {
  const platform::BarrierRef barrier = platform::barrier_ref(E::barrier(cta, slot));
  if (!platform::mbarrier_try_wait(barrier, parity))
    detail::await_slowly(cta.args, barrier, parity, E::kId, use, cta.n);
}

namespace detail {
/// All that its lanes did is visible to whoever waits for the slot's barrier. Whole warp.
template <class E, class Cta> MEGALITH_DEVICE void arrive(const Cta &cta, int slot) {
  platform::warp_sync();
  if (cta.lane == 0)
    platform::mbarrier_arrive(E::barrier(cta, slot));
}

/// What functions that are called know of their CTA beside their arguments. Such a function holds
/// marks of its own: the lint reads it in the place of each call.
struct Called {
  const LaunchArgs &args;
  uint64_t n;
  unsigned char *smem = platform::smem();
  int lane = platform::lane();
  int role_warp = platform::warp() - 2; // of a consumer
};
} // namespace detail

/// Waits for the next use of E to be signalled and returns its slot. Whole warp.
template <class E, class Cta> MEGALITH_DEVICE int wait(Cta &cta) {
  const Use use = cta.template next_use<E::kId, E::kSlots>();
  platform::mark<platform::verb::Wait, E>();
  await_phase<E>(cta, use.slot, use.parity, use.number);
  platform::mark_end();
  return use.slot;
}

/// Waits for the next use of E, which stays to be waited for: as often as one likes before `wait`.
/// Whole warp.
template <class E, class Cta> MEGALITH_DEVICE void peek(const Cta &cta) {
  const Use use = cta.template coming_use<E::kId, E::kSlots>();
  platform::mark<platform::verb::Wait, E>();
  await_phase<E>(cta, use.slot, use.parity, use.number);
  platform::mark_end();
}

/// Signals the next use of E. Whole warp; all that its lanes did before is visible to the waiter.
template <class E, class Cta> MEGALITH_DEVICE void signal(Cta &cta) {
  const int slot = cta.template next_use<E::kId, E::kSlots>().slot;
  platform::mark<platform::verb::Signal, E>();
  detail::arrive<E>(cta, slot);
  platform::mark_end();
}

/// Waits until the next slot guarded by the free edge E may be overwritten, and returns it. The
/// first kSlots uses pass at once: a fresh barrier counts as having completed the phase before.
template <class E, class Cta> MEGALITH_DEVICE int acquire(Cta &cta) {
  const Use use = cta.template next_use<E::kId, E::kSlots>();
  platform::mark<platform::verb::Acquire, E>();
  await_phase<E>(cta, use.slot, use.parity ^ 1, use.number);
  platform::mark_end();
  return use.slot;
}

/// Gives back the oldest slot this warp still holds of the free edge E. Whole warp.
template <class E, class Cta> MEGALITH_DEVICE void release(Cta &cta) {
  const int slot = cta.template next_use<E::kId, E::kSlots>().slot;
  platform::mark<platform::verb::Release, E>();
  detail::arrive<E>(cta, slot);
  platform::mark_end();
}

/// One lane adds a bulk copy of `bytes`, from global memory to `target` in the slot that the next
/// signal of E hands on, both 16 B aligned: E's waiters wait for the bytes too.
template <class E, class Cta>
MEGALITH_DEVICE void copy_for(const Cta &cta, void *target, const void *source, uint32_t bytes) {
  uint64_t *barrier = E::barrier(cta, cta.at[E::kId] % E::kSlots);
  platform::mbarrier_expect_tx(barrier, bytes);
  platform::cp_async_bulk(target, source, bytes, barrier);
}

/// Producer, before copy_bulk<Full>: waits until fewer than Window of its copies are under way,
/// that is, until copy u - Window has landed. More in flight than bandwidth x latency makes the
/// SM's exchanges queue behind the stream and the stream no faster. Copies land by themselves, so
/// this wait needs nobody.
template <class Full, int Window, class Cta> MEGALITH_DEVICE void pace(Cta &cta) {
  static_assert(Window >= 1 && Window <= Full::kSlots, "an older copy's phase is gone");
  const uint32_t next = cta.at[Full::kId];
  if (next < Window)
    return;
  const uint32_t use = next - Window;
  const int slot = use % Full::kSlots;
  platform::mark<platform::verb::Pace, Full>();
  // Not every copy is waited for here; but the slot was free for this one.
  platform::mbarrier_passed(Full::barrier(cta, slot), use / Full::kSlots);
  await_phase<Full>(cta, slot, (use / Full::kSlots) & 1, use);
  platform::mark_end();
}

/// Starts a bulk copy of `bytes` (a multiple of 16) from 16 B aligned global memory, then of
/// `rest_bytes` from `rest` if there are any, into the next slot of R, which has room for both; the
/// arrival of the last byte signals Full. The slot must have been acquired.
template <class Full, class R, class Cta>
MEGALITH_DEVICE void copy_bulk(Cta &cta, const void *source, uint32_t bytes,
                               const void *rest = nullptr, uint32_t rest_bytes = 0) {
  static_assert(Full::kSlots == R::kSlots && Full::kArrivals == 1);
  const int slot = cta.template next_copy<Full::kId, Full::kSlots>().slot;
  platform::mark<platform::verb::Copy, Full>();
  // A lane that still waits, for the slot or for an older copy, would miss the phase it waits for.
  platform::warp_sync();
  if (cta.lane == 0) {
    uint64_t *barrier = Full::barrier(cta, slot);
    platform::mbarrier_arrive_expect_tx(barrier, bytes + rest_bytes);
    platform::cp_async_bulk(R::slot(cta, slot), source, bytes, barrier);
    if (rest_bytes > 0)
      platform::cp_async_bulk(R::slot(cta, slot) + bytes, rest, rest_bytes, barrier);
  }
  platform::mark_end();
}

/// As copy_bulk, of `parts` stretches of `bytes`, each `stride` bytes behind the one before; they
/// lie one after another in the slot.
template <class Full, class R, class Cta>
MEGALITH_DEVICE void copy_bulk_parts(Cta &cta, const unsigned char *source, uint32_t bytes,
                                     int parts, uint32_t stride) {
  static_assert(Full::kSlots == R::kSlots && Full::kArrivals == 1);
  const int slot = cta.template next_copy<Full::kId, Full::kSlots>().slot;
  platform::mark<platform::verb::Copy, Full>();
  platform::warp_sync(); // as in copy_bulk
  if (cta.lane == 0) {
    uint64_t *barrier = Full::barrier(cta, slot);
    unsigned char *to = R::slot(cta, slot);
    platform::mbarrier_arrive_expect_tx(barrier, parts * bytes);
    MEGALITH_UNROLL(1)
    for (int part = 0; part < parts; ++part, to += bytes, source += stride)
      platform::cp_async_bulk(to, source, bytes, barrier);
  }
  platform::mark_end();
}

} // namespace megalith
