// What kernels built with --trace record: for every warp and stage, when its part ended and, of
// consumers, when it could begin, began and was done, and what it waited. Lane 0 writes
// TraceHead and TraceEntries (runtime/abi.h); runtime/trace.h reads them.
//
// It must not cost what it measures, and a layer's code is as large as the instruction cache: what
// is kept are clock reads in registers, written in one place a stage that is known when compiling.
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
  const uint32_t now = platform::clock();
  if (cta.lane == 0)
    platform::st_global<uint32_t>(&detail::trace_entry<S>(cta)->end, now);
}

/// Epilogue: end of the part in stage S.
template <class S, class Cta> MEGALITH_DEVICE void trace_epilogue(const Cta &cta) {
  const uint32_t now = platform::clock();
  if (cta.lane == 0)
    platform::st_global(&detail::trace_entry<S>(cta)->end, u32x2{now, cta.trace.ready});
}

/// Consumers: end of the part in stage S.
template <class S, class Cta> MEGALITH_DEVICE void trace_consumer(Cta &cta) {
  const uint32_t now = platform::clock();
  if (cta.lane == 0) {
    TraceEntry *entry = detail::trace_entry<S>(cta);
    platform::st_global(&entry->end, u32x4{now, cta.trace.ready, cta.trace.first, cta.trace.last});
    platform::st_global(&entry->waited, u32x2{cta.trace.waited, cta.trace.stalled});
  }
  cta.trace.first = 0;
}

/// Consumers: what they are about to hand over is computed.
template <class Cta> MEGALITH_DEVICE void trace_product(Cta &cta) {
  cta.trace.last = platform::clock();
}

/// Consumers, epilogue: `wait`, noting when it was over, and for how long it was.
template <class E, class Cta> MEGALITH_DEVICE int timed_wait(Cta &cta) {
  const uint32_t before = platform::clock();
  const int slot = wait<E>(cta);
  cta.trace.ready = platform::clock();
  cta.trace.waited += cta.trace.ready - before;
  return slot;
}

/// Consumers: around a poll, the same.
template <class Cta> MEGALITH_DEVICE void trace_poll(Cta &cta) {
  cta.trace.since = platform::clock();
}
template <class Cta> MEGALITH_DEVICE void trace_polled(Cta &cta) {
  cta.trace.ready = platform::clock();
  cta.trace.waited += cta.trace.ready - cta.trace.since;
}

/// Consumers: the same for the ring's next piece.
template <class E, class Cta> MEGALITH_DEVICE int timed_piece(Cta &cta) {
  const uint32_t before = platform::clock();
  const int slot = wait<E>(cta);
  const uint32_t now = platform::clock();
  cta.trace.stalled += now - before;
  if (cta.trace.first == 0)
    cta.trace.first = now;
  return slot;
}

/// What a function that is called records of the ring's pieces that it waits for, as timed_piece
/// would: nothing in kernels that do not record.
template <bool IsTraced> struct PieceClocks {
  static MEGALITH_DEVICE uint32_t begin() { return 0; }
  MEGALITH_DEVICE void end(uint32_t) {}
  template <class Cta> MEGALITH_DEVICE void add_to(Cta &) const {}
};
template <> struct PieceClocks<true> {
  uint32_t first = 0, stalled = 0;

  static MEGALITH_DEVICE uint32_t begin() { return platform::clock(); }
  MEGALITH_DEVICE void end(uint32_t before) {
    const uint32_t now = platform::clock();
    stalled += now - before;
    if (first == 0)
      first = now;
  }
  template <class Cta> MEGALITH_DEVICE void add_to(Cta &cta) const {
    cta.trace.stalled += stalled;
    if (cta.trace.first == 0)
      cta.trace.first = first;
  }
};

} // namespace megalith
