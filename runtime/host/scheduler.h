// Inside of the machine: threads, CTAs, launches and the scheduler that interleaves them.
#pragma once

#include "runtime/host/fiber.h"
#include "runtime/host/log.h"
#include "runtime/host/machine.h"
#include "runtime/host/mbarrier.h"
#include "runtime/host/random.h"

#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace megalith::host {

struct Cta;

/// What a fiber that cannot run waits for.
enum class Park : uint8_t { none, collective, mbarrier, poll, named_barrier, launch, exited };

struct Fiber {
  void *stack_pointer = nullptr;
  Cta *cta = nullptr;
  unsigned char *stack_low = nullptr;
  uint8_t warp = 0, lane = 0;
  Park park = Park::none;
  int refused = 0; ///< waits of this fiber that the passed deadline has ended
  int id = 0;      ///< mbarrier or named barrier index
  const void *address = nullptr;
  uint64_t stamp = 0; ///< machine time when its last poll_pause returned
};

struct Warp {
  uint32_t runnable = 0, arrived = 0, exited = 0;
  int upcoming = 0; ///< lane to run next, if it can: its stack is being fetched
  Collective op = Collective::sync;
  uint64_t in[32], out[32];
  int argument[32];
  const void *mma_in[32];
  void *mma_out[32];
};

struct NamedBarrier {
  int threads = 0, arrived = 0;
  std::vector<Fiber *> waiters;
};

struct LaunchState {
  const Launch *launch = nullptr;
  int started = 0, exited = 0, triggered_or_exited = 0;
  bool complete = false;
  uint64_t complete_time = 0;
  std::vector<Fiber *> waiters; ///< in launch_wait for this launch to be complete
};

/// The CTA that is (or was last) on an SM.
struct Cta {
  int sm = 0;
  int launch = -1;     ///< index in the run
  int next_launch = 0; ///< the launch whose CTA comes next on this SM
  bool live = false, start_queued = false, triggered = false;
  int threads = 0;
  uint32_t copies = 0;       ///< pieces in flight
  uint64_t acquire_time = 0; ///< what became visible up to here is seen by weak loads
  unsigned char *smem = nullptr;
  uint32_t runnable_warps = 0;
  int runnable_slot = -1; ///< place in Impl::runnable, or -1
  int dirty_slot = -1;    ///< place in Impl::dirty, or -1
  Warp warps[kWarpsPerCta];
  Fiber fibers[kThreadsPerCta];
  std::vector<Mbarrier> mbarriers;
  NamedBarrier named[16];
  StoreBuffer stores, far; ///< far: those of system scope
};

/// A part of a bulk copy on its way.
struct CopyPiece {
  Cta *cta;
  unsigned char *dst;
  const unsigned char *src;
  uint32_t bytes;
  int mbarrier;
  int buffer; ///< of the source
};

/// What 16 bytes of global memory held before the last store that became visible there.
struct OldLine {
  uint64_t key = ~uint64_t{0}, time = 0;
  int writer = -1; ///< SM
  unsigned char bytes[16];
};

/// A 128-byte line of global memory that somebody polls.
struct Watch {
  uint64_t changed = 0;
  std::vector<Fiber *> waiters;
};

/// How much the run misbehaves; chosen from the seed within the level of chaos.
struct Temper {
  uint32_t land_one_in = 1; ///< landings per pick of a thread; 0 = only when nothing can run
  uint32_t leave_warp_one_in = 0, leave_cta_one_in = 0;
  uint32_t preempt_mean = 0; ///< memory operations between preemptions; 0 = never
  uint32_t stale_one_in = 0, spurious_one_in = 0;
  uint32_t max_stores = 0; ///< of an SM's store buffer; 0 = stores are visible at once
  uint32_t far_one_in = 1; ///< tries until a store of system scope arrives
  uint32_t max_pieces = 1; ///< of a bulk copy
  bool shuffle = false;    ///< random order of lanes, warps, SMs
};

class Machine::Impl {
public:
  explicit Impl(const Options &options);
  ~Impl();

  Options options;
  bool hasOthers = false; ///< processes that store to our memory
  GlobalMemory memory;
  llvm::Expected<RunReport> run(llvm::ArrayRef<Launch> launches, int streams);

  // --- for the device interface (device_api.cpp); called on fibers ---
  Fiber *current = nullptr;
  Random random{1};
  Temper temper;
  RunReport report;
  std::string error;
  uint64_t time = 0; ///< counts picks and landings
  bool expired = false;
  std::vector<LaunchState> launches; ///< stream after stream
  int per_stream = 1;                ///< CTAs of each launch of a stream
  /// Launch `index` of the stream that the CTA's SM belongs to.
  LaunchState &stateOf(const Cta &cta, int index) {
    return launches[static_cast<size_t>(cta.sm / per_stream) * in_stream +
                    static_cast<size_t>(index)];
  }
  const LaunchState &stateOf(const Cta &cta, int index) const {
    return const_cast<Impl *>(this)->stateOf(cta, index);
  }
  Log log;
  std::string logText; ///< of the last run

  /// Ends the run with an error of the running fiber; never returns to it.
  [[noreturn]] void fault(const std::string &what);
  /// The same for what happens on no thread's behalf, as when a copy lands.
  void note(const std::string &what);
  void progressed() {
    looked_again = false;
    last_progress = time;
  }
  /// After the deadline: whether this wait ends without what it waits for. Often enough for code
  /// that reads the clock after a first vain wait, or at every 64th sweep only (gather.cuh).
  bool refuses(Fiber &fiber) { return expired && fiber.refused++ < 200; }
  /// Parks the running fiber (whose park fields are set) until make runnable; runs others.
  void block(Park park);
  /// May let others run here; called by memory operations.
  void preemptionPoint();
  void makeRunnable(Fiber *fiber);
  void wakeAll(std::vector<Fiber *> &waiters);
  [[noreturn]] void exitFiber();

  void pushStore(Cta &cta, const PendingStore &store);
  void flush(Cta &cta);
  void pushCopy(const CopyPiece &piece);
  void landOne();
  void barrierChanged(Cta &cta, int index);
  void recordFail(uint32_t edge, uint64_t expected, uint64_t seen);
  void triggerDependents(Cta &cta);
  OldLine &oldLine(uint64_t key) { return old_lines[(key >> 4) * 0x9E3779B97F4A7C15ull >> 51]; }
  std::unordered_map<uint64_t, Watch> watches;
  /// Nanoseconds for the kernel. Hardly moves while anything happens, so that deadlines pass only
  /// where nothing can.
  uint64_t logicalTime() {
    if (expired)
      time_skip += uint64_t{1} << 42; // every deadline is over between two looks
    return (time >> 8) + time_skip;
  }
  std::string where(const Fiber &fiber) const;

private:
  Fiber *next();
  void switchTo(Fiber *fiber);
  [[noreturn]] void stackOverflow();
  void setTemper();
  void reset(llvm::ArrayRef<Launch> list, int streams);
  void startCta(Cta &cta);
  void exitCta(Cta &cta);
  void queueStarts();
  void makeVisible(Cta &writer, const PendingStore &store);
  void landCopy(size_t index);
  void landStore(Cta &cta, bool now = false);
  bool unstick();
  bool wakePollers();
  bool awaitOthers();
  Fiber *pickLane(Cta &cta, int warp);
  void removeRunnable(Cta &cta);
  void mix(uint64_t value) { report.trace_hash = (report.trace_hash ^ value) * 0x100000001B3ull; }
  void collectParked();
  std::string describeParked() const;
  std::string describeWait(const Fiber &fiber) const;
  static void fiberMain();

  StackArena stacks;
  bool stacks_ready = false;
  void *main_stack = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<Cta *> runnable, dirty, starts;
  std::vector<CopyPiece> copies;
  std::vector<OldLine> old_lines;
  size_t pending_stores = 0;
  size_t in_stream = 0; ///< launches of each stream
  int preempt_in = 0;
  bool start_now = false, looked_again = false, done = false, leave = false;
  uint64_t time_skip = 0, last_progress = 0;
  uint64_t stuck_progress = 0; ///< last_progress when the run got stuck
  std::chrono::steady_clock::time_point stuck_since;
  unsigned char *arenas = nullptr;
  size_t arenas_mapped = 0;
  struct Wait {
    const Fiber *fiber;
    std::string text;
  };
  std::vector<Wait> parked; ///< who waited for what when the run got stuck
};

/// The machine whose run is in progress.
extern Machine::Impl *active;
extern const HostApi kHostApi;

/// "producer", "poller", "consumer 3", "epilogue".
std::string roleOf(int warp);

} // namespace megalith::host
