// What the calibration program and its kernels share: what a launch is to do, and what each SM saw.
//
// Buffers of every kernel: 0 Job, 1 Sample of each SM, 2 data (pattern_word of each word), 3 the
// words of exchanges, 4 counters (zero), each on a line of its own.
#pragma once

#include "runtime/abi.h"

namespace megalith::calibrate {

enum Slot { kJob, kSamples, kData, kWords, kCounters };

/// Steps of attention, one behind the other: of one sequence, and of eight, each of one row behind
/// 4,096 positions.
enum Step { kOneRow, kEightRows, kSteps };
#if !defined(__CUDACC__)
inline void describe(StepDescriptor (&steps)[kSteps]) {
  for (int of = 0; of < kSteps; ++of) {
    StepDescriptor &step = steps[of] = {};
    step.live_rows = step.sequences = of == kOneRow ? 1 : 8;
    for (int32_t s = 0; s < step.sequences; ++s)
      step.seq[s] = {s, 1, 4096};
  }
}
#endif

/// Which pieces of the data an SM takes, round by round.
enum Walk : uint32_t {
  kInTurn,  ///< SM after SM, on through the data: what a dense layer's stream does
  kExperts, ///< a new place in every round, SM after SM from there: what chosen experts do
  kStray,   ///< a new place for every piece
};

/// job.variant of the kernel `pair`.
enum PairVariant : uint32_t {
  kFlag,        ///< a word there, a word back: nothing else
  kWord,        ///< lane 0 stores a word, then the flag; the other reads the word once it sees it
  kWholeSector, ///< the same with the word's whole sector, 32 B by eight lanes
};

/// job.stride of the kernels of parts.cuh: what they time, in parts.
enum TimedPart : uint32_t {
  kNormParts,      ///< norm
  kTopKParts,      ///< select, group
  kProductParts,   ///< first piece, three more, store
  kEpilogueParts,  ///< chunks, words, residual, glu, down, combine: the epilogue's
  kEntryParts,     ///< an expert's entry of the table, its column and a piece; the piece alone
  kMergeTile,      ///< splits: the epilogue's
  kAttentionParts, ///< prepare, begin, job.burst pieces, tail and finish, publish, append;
                   ///< job.walk: no new position; job.window: splits side by side, of many rows
  kOpenParts,      ///< once a launch, before the first tile: consumers, poller, producer; then
                   ///< consumers before their next one
  kStreamParts,    ///< of a row of the stream: its words, its branch's, joined and normed; normed
};
inline constexpr int kTimedParts = 6;

/// job.variant of these: how much other code runs before each round.
enum Heat : uint32_t { kWarm, kNear, kFar };
inline constexpr int kNearKb = 80, kFarKb = 192;

/// Parameters of one launch; a kernel's head says which it reads.
struct Job {
  uint32_t sms;     ///< CTAs of the launch
  uint32_t rounds;  ///< hops, stages, reads, ... that are timed
  uint32_t warmup;  ///< the same before, not timed
  uint32_t window;  ///< pieces in flight; 0: no stream
  uint32_t piece;   ///< bytes of a piece, a multiple of 128 up to kPieceBytes
  uint32_t burst;   ///< pieces of a round
  uint32_t ahead;   ///< how many pieces ahead the L2 prefetch runs; 0: none
  uint32_t walk;    ///< Walk
  uint32_t pause;   ///< ns between a prefetch and the reading
  uint32_t stride;  ///< bytes from one round's words to the next one's
  uint32_t variant; ///< the kernel's own choice
  uint32_t mask;    ///< 0, which the compiler does not know
  uint32_t pieces;  ///< of `piece` bytes in the data, a power of two
  uint32_t zeros;   ///< 1: the words start as 0, not as empty
  uint32_t unseen;  ///< a power of two less one: of how many pieces but one is looked at
  uint32_t start;   ///< piece of the data that the walk is counted from: new in every launch
};

/// What one SM saw. Times in ns of the GPU's one clock.
struct Sample {
  uint64_t begin, end; ///< of the timed rounds
  uint64_t pieces;     ///< that landed within them
  uint64_t wrong;      ///< words that were not what they had to be
  uint64_t sum[8];     ///< the kernel's own
};

inline constexpr uint32_t kPieceBytes = 16384;
inline constexpr int kMostHops = 256;          ///< of one launch, each with words of its own
inline constexpr uint32_t kCounterStride = 32; ///< words between counters

#if defined(__CUDACC__)
#define MEGALITH_SHARED_CODE __host__ __device__
#else
#define MEGALITH_SHARED_CODE
#endif

/// A well-mixed hash.
MEGALITH_SHARED_CODE inline uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

/// Word `index` of the data; as two bf16 small finite numbers.
MEGALITH_SHARED_CODE inline uint32_t pattern_word(uint64_t index) {
  return mix(static_cast<uint32_t>(index) + 0x9E3779B9u * static_cast<uint32_t>(index >> 32)) &
         0xBFFFBFFFu;
}

/// Word `index` of what hop `hop` exchanges: never the empty word, finite as two bf16 or one fp32.
MEGALITH_SHARED_CODE inline uint32_t hop_word(uint32_t hop, uint32_t index) {
  return mix(hop * 0x01000193u + index) & 0xBFFFBFFFu;
}

} // namespace megalith::calibrate
