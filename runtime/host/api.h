// The table through which code compiled for the host platform calls the machine, and the record by
// which the machine finds a kernel. Included by emitted sources, so it needs nothing but abi.h.
#pragma once

#include "runtime/abi.h"

namespace megalith::host {

/// How a global access is ordered.
enum class Order : int {
  constant,
  weak,
  relaxed,
  acquire,
  release,
  system ///< relaxed, a store of system scope: it may have to go to another GPU
};

enum class Collective : int { sync, shuffle, shuffle_xor, ballot, mma };

/// Everything a device function of the host platform asks of the machine. All calls are made by the
/// fiber that is running; most may switch to another before they return.
struct HostApi {
  int (*sm)();
  int (*warp)();
  int (*lane)();
  unsigned char *(*smem)();

  void (*load)(const void *p, uint32_t bytes, Order order, void *out);
  void (*load_words)(const uint32_t *p, uint32_t out[4]); ///< four relaxed accesses of 4 bytes
  void (*store)(void *p, uint32_t bytes, Order order, const void *value);
  void (*add)(uint32_t *p, uint32_t value, Order order);

  void (*mbarrier_init)(uint64_t *bar, uint32_t arrivals);
  void (*mbarrier_arrive)(uint64_t *bar, uint32_t expect_bytes);
  void (*mbarrier_expect)(uint64_t *bar, uint32_t bytes); ///< without an arrival
  bool (*mbarrier_try_wait)(uint64_t *bar, uint32_t parity);
  void (*mbarrier_passed)(uint64_t *bar, uint32_t phases);
  void (*copy_bulk)(void *dst, const void *src, uint32_t bytes, uint64_t *bar);
  void (*prefetch)(const void *p, uint32_t bytes);

  /// `in`, `out`: 8 bytes of this lane (mma: in = const MmaLoop *, out = float[4]); `argument`: the
  /// source lane or mask of a shuffle.
  void (*collective)(Collective op, const void *in, int argument, void *out);
  void (*named_barrier)(int id, int threads);

  void (*launch_wait)();
  void (*launch_dependents)();
  uint64_t (*now_ns)();
  uint32_t (*clock)(); ///< the scheduler's steps, 256 a nanosecond of now_ns
  void (*poll_pause)(const void *p);
  void (*fail)(FaultTable *table, uint32_t edge, uint64_t expected, uint64_t seen, uint64_t launch);

  // Called by kernels compiled with MEGALITH_HOST_LOG only (runtime/host/log.h).
  void (*mark)(const char *verb, const char *name, const char *order); ///< verb null: its end
  void (*shared)(const void *p, uint32_t bytes, bool is_write);
};

/// A kernel compiled for the host: MEGALITH_KERNEL(name) exports one as megalith_kernel_<name>.
struct KernelRecord {
  int abi; ///< kAbiVersion it was compiled with
  const char *name;
  int threads;
  void (*entry)(const LaunchArgs &);
  const HostApi **api; ///< where the machine leaves its table before a launch
};

} // namespace megalith::host
