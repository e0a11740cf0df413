//===- trace.h - What kernels recorded, read back ----------------*- C++ -*-===//
//
// Kernels compiled with --trace leave a record of each warp (abi.h: TraceHead, TraceEntry; who
// writes what: codegen/device/trace.cuh). Here the records of some launches become times on one
// clock.
//
// An SM's clock is fast but its own, and its rate moves with the load; the global timer is
// everybody's, but ticks coarsely. Each warp leaves a pair of both at its begin and at its end. In
// each launch an SM's pairs bound from both sides when it began and when it ended; its clock is
// read in between.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_TRACE_H
#define MEGALITH_RUNTIME_TRACE_H

#include "runtime/abi.h"
#include "runtime/plan.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace megalith::runtime {

/// Bytes that one launch of a kernel that records needs on `sms` SMs.
int64_t traceBytes(const KernelTrace &trace, int64_t sms);

/// The records of one launch as they lie in memory.
struct LaunchRecord {
  int64_t launch = 0;  ///< index in the plan
  uint64_t number = 0; ///< of the launch since the buffers were set up
  std::vector<unsigned char> bytes;
};

// Times below are nanoseconds since the earliest begin of any warp (on the host platform: 256 steps
// of its scheduler).

/// A warp's part of a stage.
struct WarpStage {
  int64_t stage = 0; ///< in KernelTrace::stages
  double begin = 0, end = 0;
  double waited = 0;  ///< for other roles
  double stalled = 0; ///< for pieces from the ring
  /// The last wait for another role was over; the first piece was here; the last product was done,
  /// before it was handed over. Nothing where there was none, or the role does not tell.
  std::optional<double> ready, first, last;
};

struct WarpTrace {
  int64_t sm = 0, warp = 0;
  double begin = 0, end = 0;
  std::vector<WarpStage> stages;
};

struct LaunchTrace {
  int64_t launch = 0; ///< index in the plan
  uint64_t number = 0;
  double clocksPerNs = 1;
  std::vector<WarpTrace> warps; ///< of roles that do something, by SM, then warp
};

struct Trace {
  std::vector<LaunchTrace> launches; ///< by number
  double timerStep = 1;              ///< of the global timer, ns
  /// Of times on different SMs, ns: median and largest of what pairs leave open, or contradict.
  double alignmentError = 0, largestError = 0;
};

/// Whether launch `index` of the plan leaves records: its kernel was compiled with --trace and has
/// a slot for them.
bool isRecorded(const Plan &plan, int64_t index);

/// Reads records of launches of `plan`, at most a second from the first to the last. The error
/// names the launch, SM and warp whose record is not one, as when the launch did not run.
llvm::Expected<Trace> decodeTrace(const Plan &plan, std::span<const LaunchRecord> records);

/// "producer", "poller", "consumer" or "epilogue".
llvm::StringRef roleOfWarp(int64_t warp);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_TRACE_H
