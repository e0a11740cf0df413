// A simulated GPU that runs kernels compiled for the host platform: every thread a fiber, one
// seeded scheduler, memory as adversarial as CUDA's model allows (DESIGN section 6, docs/
// kernel-contract.md section 3). One machine runs at a time in a process.
#pragma once

#include "runtime/host/api.h"
#include "runtime/host/memory.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <memory>

namespace megalith::host {

struct Options {
  int sms = 4;                  ///< CTAs of every launch
  uint32_t smem_bytes = 232448; ///< shared arena of a CTA (227 KB)
  uint64_t seed = 1;
  /// 0: stores are visible at once, copies land whole, threads run in order. 1: everything the
  /// memory model allows, with rare preemption. 2: frequent preemption, several times slower.
  int chaos = 1;
  uint32_t stack_bytes = 64 << 10; ///< address space of one fiber's stack
  bool log = false;                ///< keep what kernels compiled with MEGALITH_HOST_LOG did
};

struct Launch {
  const KernelRecord *kernel;
  LaunchArgs args;
  /// What the kernel gets instead, where that is more: the beginning of StepArgs or RanksArgs.
  const LaunchArgs *parameters = nullptr;
  /// Of a looping kernel: it runs launches [args.launch_in_step, end) of its step.
  uint64_t end = 0;
};

struct RunReport {
  uint64_t switches = 0;     ///< fibers resumed
  uint64_t collectives = 0;  ///< completed warp collectives
  uint64_t landings = 0;     ///< stores and pieces of copies that became visible
  uint64_t trace_hash = 0;   ///< equal for equal seeds, options, kernels and contents
  uint64_t early_starts = 0; ///< CTAs that started before the previous launch was complete
  int max_overlap = 0;       ///< most launches with CTAs resident at the same time
};

class Machine {
public:
  explicit Machine(const Options &options);
  ~Machine();

  /// Makes memory known to kernels; any access outside known buffers is a fault. The memory stays
  /// the caller's and must outlive the runs.
  void registerBuffer(void *base, size_t bytes, std::string name,
                      Access access = Access::read_write);
  /// Makes a read-only address range known whose bytes are computed when they are read (bulk copies
  /// and constant loads). The range need not be mapped; see reserveAddresses. The generator runs on
  /// a fiber's small stack.
  void registerGenerated(const void *base, size_t bytes, std::string name, Generator generator);
  void clearBuffers();
  /// Other processes store to some of the memory too: threads that poll then look again from time
  /// to time, and a run is only stuck when nothing has come for half a minute.
  void expectOthers();

  /// Runs launches in order, chained as by programmatic dependent launch. The error names what
  /// went wrong and where; for a deadlock every thread that waits, and for what. Buffers then hold
  /// whatever was visible. May be called again, after an error too.
  ///
  /// Of several streams, as ranks on GPUs of their own have them, each has as many SMs and
  /// launches: those of stream 0 first. Within a stream launches wait for each other, between them
  /// only words do; stores of system scope take longer.
  llvm::Expected<RunReport> run(llvm::ArrayRef<Launch> launches, int streams = 1);

  /// Seed of the next run.
  void reseed(uint64_t seed);

  /// What each launch of the last run did (runtime/host/log.h), launch after launch; of one stream.
  std::string log() const;

  class Impl;

private:
  std::unique_ptr<Impl> impl;
};

/// Fills memory with a value that spoils any result it takes part in: 0x7FC1 in each 16 bits, a NaN
/// as bf16 and as fp32, and not the `empty` of exchange words. `bytes` must be even.
void poison(void *p, size_t bytes);

/// Address space without memory, for registerGenerated. Never given back.
void *reserveAddresses(size_t bytes);

} // namespace megalith::host
