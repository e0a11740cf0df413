// What a thread keeps while its kernel records (trace.cuh): nothing where the kernel does not.
#pragma once

#include "codegen/device/platform.cuh"

namespace megalith {

/// Whether a kernel records. Its Config then has kTraceStages, the number of its stages.
template <class Config> inline constexpr bool kTraced = requires {
  Config::kTraceStages;
};

template <class Config, bool = kTraced<Config>> struct TraceState {};

template <class Config> struct TraceState<Config, true> {
  TraceHead *head; // of the warp's record
  // Clocks: the last wait's end, the stage's first piece's arrival (0 = not yet), the last
  // product's end.
  uint32_t ready = 0, first = 0, last = 0;
  // Sums of clocks since the launch began: in waits, in waits for the ring's pieces.
  uint32_t waited = 0, stalled = 0;
  uint32_t since; // when the poll under way began
};

} // namespace megalith
