// One thread's view of its CTA: who it is, which launch this is, and how far its role has come on
// every edge. Each role owns a private copy, so the cursors are registers, never shared state.
#pragma once

#include "codegen/device/trace_state.cuh"

/// Before a loop: unroll it N times, or wholly, so that small arrays stay in registers. (Where the
/// trip count may be 1 only UNROLL_ALL will do: `unroll 1` forbids unrolling.) Nothing on the host,
/// where g++ takes no N that depends on a template argument.
#if defined(__CUDACC__)
#define MEGALITH_UNROLL(N) MEGALITH_PRAGMA(unroll N)
#define MEGALITH_UNROLL_ALL _Pragma("unroll")
#define MEGALITH_PRAGMA(TEXT) _Pragma(#TEXT)
#else
#define MEGALITH_UNROLL(N)
#define MEGALITH_UNROLL_ALL
#endif

namespace megalith {

/// The four roles of a CTA's 11 warps, in warp order: 1 producer, 1 poller, 8 consumers, 1
/// epilogue.
enum class Role : int { producer, poller, consumer, epilogue };

inline constexpr int kConsumerWarps = 8;
/// Hardware barrier of the consumer warps; 0 is the whole CTA's.
inline constexpr int kConsumerBarrier = 1;

/// The quotient rounded down, for positive `by`; C++ rounds to zero.
MEGALITH_DEVICE constexpr int floor_div(int value, int by) {
  return (value < 0 ? value - by + 1 : value) / by;
}

/// What floor_div leaves: 0 <= it < by.
MEGALITH_DEVICE constexpr int floor_mod(int value, int by) {
  return value - floor_div(value, by) * by;
}

/// One use of an edge: its slot, the parity of the slot's phase, and its number for messages.
struct Use {
  int slot;
  uint32_t parity, number;
};

/// `Config`, emitted with the kernel, supplies
///   kSms    CTAs of the launch, one per SM;
///   kRows   rows bucket R, in {1, 2, 4, 8, 16};
///   kEdges  number of edges of the plan (edge ids are 0 .. kEdges-1);
///   kTraceStages  only where the kernel records (trace.cuh).
template <class Config_> struct Cta {
  using Config = Config_;
  static constexpr int rank = 0; // RankCta's may be another

  const LaunchArgs &args;
  unsigned char *smem; // the CTA's shared arena; every kOffset below is in bytes from here
  int sm;
  int warp; // 0..10, order of `Role`
  int lane; // 0..31
  Role role;
  int role_warp; // index within the role: 0..7 for consumers, else 0
  // From `settle` on:
  uint64_t n;       // launch number
  uint32_t n_mod_3; // for exchanges of three sets
  uint32_t live;    // bit r: row r belongs to a sequence in this step
  // Uses so far, by edge id; constant indices keep it in registers.
  uint32_t at[Config::kEdges] = {};
  TraceState<Config> trace;

  MEGALITH_DEVICE explicit Cta(const LaunchArgs &launch_args)
      : args(launch_args), smem(platform::smem_kept()), sm(platform::sm()), warp(platform::warp()),
        lane(platform::lane()) {
    const int consumer = warp - 2;
    role = warp == 0                   ? Role::producer
           : warp == 1                 ? Role::poller
           : consumer < kConsumerWarps ? Role::consumer
                                       : Role::epilogue;
    role_warp = role == Role::consumer ? consumer : 0;
    const StepDescriptor *step = args.step;
    base = platform::ld_global<uint64_t>(&step->launch_base);
    live_rows = platform::ld_global<int32_t>(&step->live_rows);
    sequence = lane < Config::kRows ? platform::ld_global<int32_t>(&step->row_seq[lane]) : -1;
  }

  /// Ends what the constructor began: what it loads is on its way until then. `setup` calls it.
  MEGALITH_DEVICE void settle() {
    n = base + args.launch_in_step;
    n_mod_3 = static_cast<uint32_t>(n % 3);
    live = platform::ballot(lane < live_rows && sequence >= 0);
  }
  /// The launch number before `settle`.
  MEGALITH_DEVICE uint64_t coming_launch() const { return base + args.launch_in_step; }

  /// Counts on the role's uses of edge `Id`, which has `Slots` slots.
  template <int Id, int Slots> MEGALITH_DEVICE Use next_use() {
    const Use use = coming_use<Id, Slots>();
    ++at[Id];
    return use;
  }
  /// The same for copies, which `pace` counts on from.
  template <int Id, int Slots> MEGALITH_DEVICE Use next_copy() { return next_use<Id, Slots>(); }
  /// `uses` at once, by a function that is called.
  template <int Id, int Slots> MEGALITH_DEVICE void count_uses(int uses) { at[Id] += uses; }
  template <int Id, int Slots> MEGALITH_DEVICE Use coming_use() const {
    const uint32_t use = at[Id];
    return {static_cast<int>(use % Slots), (use / Slots) & 1, use};
  }

  /// What the launch's plan binds to slot `Slot` of LaunchArgs::buffer.
  template <int Slot> MEGALITH_DEVICE void *buffer() const { return args.buffer[Slot]; }

  /// A dead row has no token, no keys and no experts; exchanges carry zeros for it.
  MEGALITH_DEVICE bool is_live(int row) const { return (live >> row) & 1; }

private:
  uint64_t base;     // of the step's launches
  int32_t live_rows; // of the step
  int32_t sequence;  // of row `lane`, -1: none
};

/// Typed pointer into the arena.
template <class T, class Cta> MEGALITH_DEVICE T *shared_at(const Cta &cta, uint32_t offset) {
  return reinterpret_cast<T *>(cta.smem + offset);
}

/// Meeting point of the 8 consumer warps; the only barrier a device header may own.
MEGALITH_DEVICE void consumer_sync() {
  platform::named_barrier(kConsumerBarrier, 32 * kConsumerWarps);
}

/// Consumers, before each warp fills its share of B anew: until all meet, some may still read what
/// B held.
template <class B, class Cta> MEGALITH_DEVICE void refill(const Cta &) {
  consumer_sync();
}

/// Launch n-1 is complete and all it wrote is visible. Before a role's first store to an exchange,
/// page or output, and before its first poll of words written in this launch.
MEGALITH_DEVICE void launch_wait() {
  platform::launch_wait();
}

/// Lets the CTAs of launch n+1 start. After the poller's `launch_wait` and re-arming: from then on
/// n-1 is over, so no more than two launches ever overlap.
MEGALITH_DEVICE void launch_dependents() {
  platform::launch_dependents();
}

/// Counts the time since the first fruitless look; a wait that has lost patience fails.
struct Patience {
  uint64_t since = 0;

  /// True once args.deadline_ns (0: never) have passed since the first call.
  MEGALITH_DEVICE bool lost(const LaunchArgs &args) {
    const uint64_t now = platform::now_ns();
    if (since == 0)
      since = now;
    return args.deadline_ns != 0 && now - since > args.deadline_ns;
  }
  template <class Cta> MEGALITH_DEVICE bool lost(const Cta &cta) { return lost(cta.args); }
};

/// Test hook (kLaunchDelays): every SM starts up to 2^16 ns late, by a hash of (delay_seed, launch,
/// sm), so that repeated launches meet in different orders.
template <class Cta> MEGALITH_DEVICE void start_delay(const Cta &cta) {
  if (!(cta.args.flags & kLaunchDelays))
    return;
  uint64_t x = cta.args.delay_seed + 0x9E3779B97F4A7C15ull * (cta.coming_launch() * 1024 + cta.sm +
                                                              1 + (uint64_t(cta.rank) << 40));
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  const uint64_t until = platform::now_ns() + (x >> 48);
  while (platform::now_ns() < until)
    ;
}

} // namespace megalith
