// What kernels built with --trace record: for every warp and stage, when its part ended and, of
// consumers, when it could begin, began and was done, and what it waited. Lane 0 writes
// TraceHead and TraceEntries (runtime/abi.h); runtime/trace.h reads them.
//
// It must not cost what it measures, and a layer's code is as large as the instruction cache: what
// is kept are clock reads in registers, written in one place a stage that is known when compiling.
// Only lane 0 reads its clock: what all lanes read comes through uniform registers, for which the
// warp waits and which are copied then. A stretch's clock is taken off its sum when it begins and
// added when it ends, so that no register holds it meanwhile.
// Registers are not emptied between stages: the host knows which times are of a stage. Times are
// the SM's clock; the host aligns SMs by the pairs (clock, global timer) at both ends of each warp.
#pragma once

#include "codegen/device/edges.cuh"

namespace megalith {

namespace detail {
template <class S, class Cta> MEGALITH_DEVICE TraceEntry *trace_entry(const Cta &cta) {
  return reinterpret_cast<TraceEntry *>(cta.trace.head + 1) + S::kStage;
}
MEGALITH_DEVICE uint32_t timer_low() {
  return static_cast<uint32_t>(platform::now_ns());
}
} // namespace detail

/// First thing of every warp.
template <class Cta> MEGALITH_DEVICE void trace_begin(Cta &cta) {
  constexpr uint32_t kBytes = sizeof(TraceHead) + Cta::Config::kTraceStages * sizeof(TraceEntry);
  cta.trace.head =
      reinterpret_cast<TraceHead *>(static_cast<unsigned char *>(cta.args.buffer[kTraceBuffer]) +
                                    (cta.sm * kWarpsPerCta + cta.warp) * kBytes);
  platform::forget(cta.trace.head); // else each stage adds it up again
  const uint32_t now = platform::clock(), timer = detail::timer_low();
  if (cta.lane == 0)
    platform::st_global(cta.trace.head,
                        u32x4{now, timer, static_cast<uint32_t>(cta.n), platform::physical_sm()});
}

/// Last thing of every warp.
template <class Cta> MEGALITH_DEVICE void trace_end(const Cta &cta) {
  const uint32_t now = platform::clock(), timer = detail::timer_low();
  if (cta.lane == 0)
    platform::st_global(&cta.trace.head->end, u32x2{now, timer});
}

/// Producer, poller: end of the part in stage S.
template <class S, class Cta> MEGALITH_DEVICE void trace_stage(const Cta &cta) {
  if (cta.lane == 0)
    platform::st_global<uint32_t>(&detail::trace_entry<S>(cta)->end, platform::clock());
}

/// Epilogue: end of the part in stage S.
template <class S, class Cta> MEGALITH_DEVICE void trace_epilogue(const Cta &cta) {
  if (cta.lane == 0)
    platform::st_global(&detail::trace_entry<S>(cta)->end,
                        u32x2{platform::clock(), cta.trace.ready});
}

/// Consumers: end of the part in stage S.
template <class S, class Cta> MEGALITH_DEVICE void trace_consumer(Cta &cta) {
  if (cta.lane == 0) {
    const uint32_t now = platform::clock();
    TraceEntry *entry = detail::trace_entry<S>(cta);
    platform::st_global(&entry->end,
                        u32x4{now, cta.trace.ready, cta.trace.pieces.first, cta.trace.last});
    platform::st_global(&entry->waited, u32x2{cta.trace.waited, cta.trace.pieces.stalled});
  }
  cta.trace.pieces.first = 0;
}

/// Consumers: what they are about to hand over is computed.
template <class Cta> MEGALITH_DEVICE void trace_product(Cta &cta) {
  if (cta.lane == 0)
    cta.trace.last = platform::clock();
}

/// Consumers: around polls, noting when they were over, and for how long they were.
template <class Cta> MEGALITH_DEVICE void trace_poll(Cta &cta) {
  if (cta.lane == 0)
    cta.trace.waited -= platform::clock();
}
template <class Cta> MEGALITH_DEVICE void trace_polled(Cta &cta) {
  if (cta.lane == 0) {
    cta.trace.ready = platform::clock();
    cta.trace.waited += cta.trace.ready;
  }
}

/// The same where what they hand over is what they polled.
template <class Cta> MEGALITH_DEVICE void trace_polled_product(Cta &cta) {
  trace_polled(cta);
  cta.trace.last = cta.trace.ready;
}

/// Consumers, epilogue: `wait`, timed as a poll.
template <class E, class Cta> MEGALITH_DEVICE int timed_wait(Cta &cta) {
  trace_poll(cta);
  const int slot = wait<E>(cta);
  trace_polled(cta);
  return slot;
}

/// Consumers: `wait` for the ring's next piece.
template <class E, class Cta> MEGALITH_DEVICE int timed_piece(Cta &cta) {
  cta.trace.pieces.begin(cta.lane);
  const int slot = wait<E>(cta);
  cta.trace.pieces.end(cta.lane);
  return slot;
}

} // namespace megalith
