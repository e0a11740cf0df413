// What host code and kernels share: the step descriptor, the launch arguments and the fault record.
//
// Compiled by the host's g++, by nvcc and by NVRTC without any include folder, hence the typedefs
// of its own under NVRTC. Code in namespace megalith says uint32_t etc. and means the same type in
// all three. All structs have one layout everywhere (checked below); changing one is an ABI break:
// bump kAbiVersion.
#pragma once

#ifdef __CUDACC_RTC__
namespace megalith {
using int32_t = int;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
using size_t = decltype(sizeof 0);
} // namespace megalith
#else
#include <stddef.h>
#include <stdint.h>
namespace megalith {
using ::int32_t;
using ::int64_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;
} // namespace megalith
#endif

namespace megalith {

inline constexpr int kAbiVersion = 3;
inline constexpr int kMaxRows = 16;        ///< largest rows bucket a descriptor can describe
inline constexpr int kMaxBuffers = 40;     ///< binding slots of one launch
inline constexpr int kThreadsPerCta = 352; ///< 11 warps: producer, poller, 8 consumers, epilogue
inline constexpr int kWarpsPerCta = 11;

/// One live sequence of a step: its rows are [first_row, first_row + rows) and their positions
/// start, start + 1, ...; positions below start are in the KV pages already.
struct SequenceEntry {
  int32_t first_row, rows, start;
};

/// All that changes from step to step; lies in device memory, so graphs replay unchanged.
struct StepDescriptor {
  uint64_t launch_base; ///< number of this step's first launch since the buffers were set up
  int32_t live_rows, sequences;
  SequenceEntry seq[kMaxRows];
  int32_t row_seq[kMaxRows]; ///< sequence of a row; -1 = dead row
  int32_t row_pos[kMaxRows]; ///< position of a row in its sequence
  int32_t row_token[kMaxRows];
};

/// What a wait past its deadline leaves in pinned host memory.
struct FaultRecord {
  uint32_t valid; ///< 1 once written; the first to come to a place keeps it
  uint32_t edge;  ///< plan.json's number of the edge that was waited for
  uint32_t sm, warp;
  uint64_t launch;         ///< launch number (step->launch_base + launch_in_step)
  uint64_t expected, seen; ///< meaning depends on the edge's protocol (phase, count, word index)
};

/// Head of the records, `places` of which follow in pinned host memory. With one place the first
/// fault has it. With kFaultPlaces each warp of the (at most two) launches under way has its own,
///   (launch % 2 * kFaultCtas + cta % kFaultCtas) * kWarpsPerCta + warp,
/// so that the host sees who waited for whom: a warp that has left its record lets the others have
/// `grace_ns` to leave theirs, then traps, which stops all.
struct FaultTable {
  uint64_t grace_ns;
  uint32_t places;
  uint32_t unused;
};
inline constexpr int kFaultCtas = 192;
inline constexpr int kFaultPlaces = 2 * kFaultCtas * kWarpsPerCta;

/// A table of one place, for kernels that run alone.
struct OneFault {
  FaultTable table = {0, 1, 0};
  FaultRecord record = {};
};

/// Bits of LaunchArgs::flags.
enum LaunchFlags : uint32_t {
  kLaunchDelays = 1u, ///< inject seeded delays (delay_seed) before waits and signals
  kFeedback = 2u,     ///< for `advance`: the next step is of the tokens that this one chose
};

/// Head of the list of chosen tokens; [capacity][rows bucket] of int32_t follow. An entry that no
/// sequence has chosen (a dead row, rows but the first of a sequence) stays as it is.
struct TokenList {
  int32_t steps;    ///< that chose tokens so far; those past the capacity are counted only
  int32_t capacity; ///< in steps
  int32_t unused[2];
};

/// The one kernel parameter.
struct LaunchArgs {
  const StepDescriptor *step;
  const int32_t *page_table; ///< [sequence][max_pages] page numbers in the pool
  int32_t max_pages;
  int32_t layer;
  uint32_t launch_in_step;
  uint32_t flags;       ///< LaunchFlags
  uint64_t deadline_ns; ///< how long one wait may take
  uint64_t delay_seed;
  FaultTable *fault;
  void *buffer[kMaxBuffers]; ///< plan.json's binding list names what goes where
};

/// Of LaunchArgs::buffer in kernels built with --trace: where they record, [sm][warp] a TraceHead
/// with a TraceEntry for each stage of the kernel behind it.
inline constexpr int kTraceBuffer = kMaxBuffers - 1;

// Clocks are cycles of the SM, modulo 2^32; timers the low half of the GPU's global timer, taken at
// once with the clock before it.

/// A warp's record of one launch.
struct alignas(16) TraceHead {
  uint32_t begin, begin_timer; ///< clock, timer
  uint32_t launch;             ///< low half of the launch's number
  uint32_t sm;                 ///< whose clock it is: a CTA need not run on the SM of its number
  uint32_t end, end_timer;
  uint32_t unused[2];
};

/// Of a stage that the warp's role and SM take part in. Times that do not lie in it are left over
/// from another.
struct alignas(16) TraceEntry {
  uint32_t end;   ///< clock; the stage began where the one before ended
  uint32_t ready; ///< consumers, epilogue: the last wait for another role was over
  // Consumers: the first of the ring's pieces was here, 0 = there was none; the last product was
  // done, before it was handed over; clocks in waits for other roles and for pieces since the
  // launch began.
  uint32_t first, last;
  uint32_t waited, stalled;
  uint32_t unused[2];
};

static_assert(sizeof(TraceHead) == 32 && sizeof(TraceEntry) == 32);
/// The one parameter of a kernel that loops over the launches of a step: it runs launches
/// [launch.launch_in_step, end). Slots below `Layered` differ from launch to launch: launch i has
/// layered[i * Layered + slot]; those of launch.buffer are null.
template <int Launches, int Layered> struct StepArgs {
  LaunchArgs launch;
  uint64_t end;
  void *layered[Launches * Layered];
};
inline constexpr int kStepTableOffset = 384; ///< bytes of StepArgs before its table

/// One rank's part of a launch of several: LaunchArgs, which rank, and where all ranks' replicas of
/// the `Peers` exchanges between them are, the own ones included.
template <int Ranks, int Peers> struct RankArgs {
  LaunchArgs launch;
  uint64_t rank;
  void *peer[Ranks][Peers];
};
/// The one parameter of a kernel of several ranks. A launch is of one rank, held[0], on a GPU of
/// its own; or of several virtual ranks on one: CTA i is then SM places[i] % 2^16 of held[places[i]
/// >> 16]. All ranks' launches have the same number.
template <int Ranks, int Peers> struct RanksArgs {
  RankArgs<Ranks, Peers> held[Ranks];
  const uint32_t *places; ///< null: CTA i is SM i of held[0]
  uint32_t hop_ns;        ///< what a word is longer on its way from another rank, for tests
  uint32_t unused;
};
/// Bytes of RankArgs before its table, and of RanksArgs behind its ranks.
inline constexpr int kPeerTableOffset = 384, kRanksTail = 16;

static_assert(sizeof(SequenceEntry) == 12 && sizeof(StepDescriptor) == 16 + 16 * 24);
static_assert(sizeof(TokenList) == 16);
static_assert(sizeof(FaultTable) == 16 && sizeof(FaultRecord) == 40 &&
              sizeof(LaunchArgs) == 56 + 8 * kMaxBuffers);
static_assert(sizeof(StepArgs<2, 3>) == kStepTableOffset + 8 * 6);
static_assert(sizeof(RankArgs<2, 3>) == kPeerTableOffset + 8 * 6);
static_assert(sizeof(RanksArgs<2, 3>) == 2 * sizeof(RankArgs<2, 3>) + kRanksTail);

} // namespace megalith
