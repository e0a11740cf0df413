// What a producer does for a stage, out of line: the stages of a layer differ in where their pieces
// lie, how large and how many they are, and nothing here is on a critical path.
#pragma once

#include "codegen/device/edges.cuh"

namespace megalith {

/// Pieces on their way to consecutive slots of a ring. Piece i begins i * piece_stride bytes behind
/// `from` and has `parts` parts: `bytes` there, then `more_bytes` each, every part `part_stride`
/// bytes behind the one before. They lie one after another in the slot. All is 16 B aligned.
struct PieceRun {
  const unsigned char *from;
  uint32_t bytes;
  int pieces = 1; // at least one
  int64_t piece_stride = 0;
  int parts = 1; // at least one
  int64_t part_stride = 0;
  uint32_t more_bytes = 0;
};

namespace detail {
/// `stream` of the uses of Free and Full from number `use` on.
template <class Free, class Full, class R>
MEGALITH_COLD void stream_run(const LaunchArgs &args, uint64_t n, uint32_t use, uint32_t window,
                              PieceRun run) {
  const Called cta = {args, n};
  const bool copies = cta.lane == 0;
  const uint32_t expected = run.bytes + (run.parts - 1) * run.more_bytes;
  do {
    // All that the copy needs is known before the waits: what a landed copy waits for is the next.
    const int slot = use % R::kSlots;
    uint64_t *barrier = Full::barrier(cta, slot);
    unsigned char *to = R::slot(cta, slot);
    const unsigned char *from = run.from;
    uint32_t bytes = run.bytes;
    platform::mark<platform::verb::Acquire, Free>();
    await_phase<Free>(cta, slot, (use / R::kSlots & 1) ^ 1, use);
    platform::mark_end();
    if (use >= window) {
      const uint32_t older = use - window;
      const int landing = older % R::kSlots;
      platform::mark<platform::verb::Pace, Full>();
      // Not every copy is waited for here; but the slot was free for this one.
      platform::mbarrier_passed(Full::barrier(cta, landing), older / R::kSlots);
      await_phase<Full>(cta, landing, older / R::kSlots & 1, older);
      platform::mark_end();
    }
    platform::mark<platform::verb::Copy, Full>();
    platform::warp_sync(); // as in copy_bulk
    if (copies) {
      platform::mbarrier_arrive_expect_tx(barrier, expected);
      MEGALITH_UNROLL(1)
      for (int part = 0; part < run.parts; ++part) {
        platform::cp_async_bulk(to, from, bytes, barrier);
        to += bytes;
        from += run.part_stride;
        bytes = run.more_bytes;
      }
    }
    platform::mark_end();
    ++use;
    run.from += run.piece_stride;
  } while (--run.pieces > 0);
}
} // namespace detail

/// Producer: for each piece of `run` acquires a slot of R (edge Free), paces and copies (edge
/// Full), as acquire, pace<Full, Window> and copy_bulk would.
template <class Free, class Full, int Window, class R, class Cta>
MEGALITH_DEVICE void stream(Cta &cta, const PieceRun &run) {
  static_assert(Full::kSlots == R::kSlots && Free::kSlots == R::kSlots && Full::kArrivals == 1);
  static_assert(Window >= 1 && Window <= R::kSlots, "an older copy's phase is gone");
  detail::stream_run<Free, Full, R>(cta.args, cta.n, cta.at[Full::kId], Window, run);
  cta.at[Full::kId] += run.pieces; // as pace counts
  cta.template count_uses<Free::kId, R::kSlots>(run.pieces);
}

} // namespace megalith
