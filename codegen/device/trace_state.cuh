// What a thread keeps while its kernel records (trace.cuh): nothing where the kernel does not.
#pragma once

#include "codegen/device/platform.cuh"

namespace megalith {

/// Whether a kernel records. Its Config then has kTraceStages, the number of its stages.
template <class Config> inline constexpr bool kTraced = requires {
  Config::kTraceStages;
};

/// What a stage, or a function that it calls, records of its waits for the ring's pieces; nothing
/// in kernels that do not record. Lane 0 alone reads its clock (trace.cuh).
template <bool IsTraced> struct PieceClocks {
  MEGALITH_DEVICE void begin(int) {}
  MEGALITH_DEVICE void end(int) {}
  template <class Cta> MEGALITH_DEVICE void add_to(Cta &) const {}
};
template <> struct PieceClocks<true> {
  uint32_t first = 0;   // clock of the stage's first piece's arrival, 0 = not yet
  uint32_t stalled = 0; // sum of clocks since the launch began

  MEGALITH_DEVICE void begin(int lane) {
    if (lane == 0)
      stalled -= platform::clock();
  }
  MEGALITH_DEVICE void end(int lane) {
    if (lane == 0) {
      const uint32_t now = platform::clock();
      stalled += now;
      if (first == 0)
        first = now;
    }
  }
  /// A function's to its stage's.
  template <class Cta> MEGALITH_DEVICE void add_to(Cta &cta) const {
    PieceClocks &all = cta.trace.pieces;
    all.stalled += stalled;
    if (all.first == 0)
      all.first = first;
  }
};

template <class Config, bool = kTraced<Config>> struct TraceState {};

template <class Config> struct TraceState<Config, true> {
  TraceHead *head;              // of the warp's record
  uint32_t ready = 0, last = 0; // clocks: the last wait's end, the last product's end
  uint32_t waited = 0;          // sum of clocks since the launch began
  PieceClocks<true> pieces;
};

} // namespace megalith
