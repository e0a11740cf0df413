// Which attention and merge tiles exist in a step, and which SM computes which: pure functions of
// the step descriptor (docs/kernel-contract.md section 6). Every role of every SM evaluates them
// for itself, so no tile list travels; tests and the runtime evaluate the same code on the host.
//
// The n positions that a sequence's rows look at (all start + rows, or those of a window) are split
// into pieces of 16 * ceil(ceil(n / 16) / 32) positions, so that there are at most 32 of them. One
// tile is (sequence, KV head, split) with all rows of the sequence as queries: each KV byte is read
// once. The first units of a tile, full and below `start`, are bulk copies through the ring, up to
// two at a time; what is left, at most two units, is the *tail*, put together in shared memory from
// the page and from this step's words.
//
// Config members (struct C):
//   kRows            rows of the bucket R
//   kQHeads          query heads of this rank
//   kKvHeads         KV heads of this rank; kQHeads is a multiple of it
//   kSms             SMs that run the kernel
//   kSequenceStride  where they are dealt out, tile u of sequence s is on SM
//                    (u + s * kSequenceStride) % kSms
//   kMergeParts      merge tiles of a (row, query head), each with kHeadDim / kMergeParts channels
//   kHeadDim         d
//   kWindow          optional: keys that a query sees, its own included; 0 or missing: all
//   kMergeFirst      optional: the SM of merge tile 0, below kSms; 0
//   kHeadRanks       optional: ranks that have the KV head, each with its share of query heads; 1
#pragma once

#include "runtime/abi.h"

/// Prefix of a function without side effects that both kernels and host code evaluate.
#ifdef __CUDACC__
#define MEGALITH_PURE __host__ __device__ constexpr
/// Before a loop that is rare or long: one copy of its code.
#define MEGALITH_ROLLED _Pragma("unroll 1")
#define MEGALITH_UNROLLED _Pragma("unroll")
/// A pure function that is long and has one copy in a kernel.
#define MEGALITH_ONCE __host__ __device__ __noinline__
#else
#define MEGALITH_PURE constexpr
#define MEGALITH_ROLLED
#define MEGALITH_UNROLLED
#define MEGALITH_ONCE constexpr
#endif

namespace megalith {

/// Positions of one KV unit, the grain of a copy and of a score computation.
inline constexpr int kUnitPositions = 16;
/// Positions of one KV page.
inline constexpr int kPagePositions = 64;
/// Most splits of a sequence.
inline constexpr int kMaxSplits = 32;

/// Positions of one split of a sequence of `keys` >= 1 positions; a multiple of 16.
MEGALITH_PURE int split_length(int keys) {
  int units = (keys + kUnitPositions - 1) / kUnitPositions;
  return kUnitPositions * ((units + kMaxSplits - 1) / kMaxSplits);
}

/// Splits of a sequence of `keys` >= 1 positions: 1..32.
MEGALITH_PURE int split_count(int keys) {
  int length = split_length(keys);
  return (keys + length - 1) / length;
}

/// Positions of a sequence after this step; 0 if it has no rows and so no tiles.
MEGALITH_PURE int sequence_keys(const SequenceEntry &seq) {
  return seq.rows > 0 ? seq.start + seq.rows : 0;
}

/// The first position that the sequence's rows look at, rounded down to a unit: 0, or what the
/// first row sees of `window` > 0 positions, its own included.
MEGALITH_PURE int sequence_first(const SequenceEntry &seq, int window) {
  const int first = window > 0 ? seq.start - window + 1 : 0;
  return first > 0 ? first / kUnitPositions * kUnitPositions : 0;
}

/// Keys of the sequence that are split: all from sequence_first on; 0 if it has no rows.
MEGALITH_PURE int visible_keys(const SequenceEntry &seq, int window) {
  return seq.rows > 0 ? sequence_keys(seq) - sequence_first(seq, window) : 0;
}

/// Ranks that have the KV heads of config C.
template <class C> MEGALITH_PURE int head_ranks_of() {
  if constexpr (requires { C::kHeadRanks; })
    return C::kHeadRanks;
  else
    return 1;
}

/// The window of config C, 0 if it has none.
template <class C> MEGALITH_PURE int window_of() {
  if constexpr (requires { C::kWindow; })
    return C::kWindow;
  else
    return 0;
}

/// The SM that has merge tile 0 of config C.
template <class C> MEGALITH_PURE int merge_first_of() {
  if constexpr (requires { C::kMergeFirst; })
    return C::kMergeFirst;
  else
    return 0;
}

/// One attention tile: `kv_head`'s keys [first, end) against all rows of sequence `seq`. Or several
/// neighbouring splits that are tiles, where each leaves so many warps idle that they work side by
/// side; results are those of one after the other.
struct AttentionTile {
  int seq;
  int kv_head;
  int split;                // the first of them
  int splits = 1;           // how many
  int split_units = 1 << 9; // units of a split; the sequence's last may have fewer
  int first;                // first position; a multiple of 16
  int end;                  // one past the last position
  int full_units;           // units of 16 positions below `start`, read through the ring
  int tail_units;           // units after them, 0..2
  int first_row;            // of the sequence
  int rows;                 // of the sequence
  int start;                // positions of the sequence in the pages before this step
  bool goes_on;             // sequence and KV head are those of this SM's tile before

  /// First position of the tail.
  MEGALITH_PURE int tail_first() const { return first + full_units * kUnitPositions; }
  /// First position of this tile that this step adds; >= end if there is none.
  MEGALITH_PURE int first_new() const { return start > first ? start : first; }
};

/// The tile of (sequence, KV head, split), or of `splits` splits from that one on.
MEGALITH_PURE AttentionTile attention_tile(const SequenceEntry &seq, int index, int kv_head,
                                           int split, int window = 0, int splits = 1) {
  int keys = sequence_keys(seq), first = sequence_first(seq, window);
  int length = split_length(keys - first);
  AttentionTile tile{};
  tile.seq = index;
  tile.kv_head = kv_head;
  tile.split = split;
  tile.splits = splits;
  tile.split_units = length / kUnitPositions;
  tile.first = first + split * length;
  tile.end = tile.first + splits * length < keys ? tile.first + splits * length : keys;
  int old_end = tile.end < seq.start ? tile.end : seq.start;
  tile.full_units = old_end > tile.first ? (old_end - tile.first) / kUnitPositions : 0;
  tile.tail_units = (tile.end - tile.tail_first() + kUnitPositions - 1) / kUnitPositions;
  tile.first_row = seq.first_row;
  tile.rows = seq.rows;
  tile.start = seq.start;
  return tile;
}

/// A split of a step's only sequence, of a single row.
struct RowSplit {
  int first, end;              // positions; first >= end: there is no such split
  int full_units, split_units; // as in AttentionTile
  int start;
};

/// Split `split` for config C. Out of line: several roles ask, and no step of one row waits for
/// anything longer than for this code. No division.
template <class C> MEGALITH_ONCE RowSplit row_split(const StepDescriptor &step, int split) {
  const SequenceEntry row = {0, 1, step.seq[0].start};
  const int begin = sequence_first(row, window_of<C>());
  const int keys = step.sequences > 0 && step.seq[0].rows > 0 ? row.start + 1 : 0;
  const int length = split_length(keys - begin), first = begin + split * length;
  const int end = first + length < keys ? first + length : keys;
  const int old_end = end < row.start ? end : row.start;
  return {first, end, (old_end - first) / kUnitPositions, length / kUnitPositions, row.start};
}

/// Splits of each sequence of a step, six bits a sequence, and what of them all counts for dealing
/// tiles out.
struct SplitCounts {
  uint64_t low, high; // ten sequences, then six; from bit 36 on the sum, bit 63 `is_even`

  MEGALITH_PURE int of(int s) const {
    return static_cast<int>((s < 10 ? low >> (6 * s) : high >> (6 * (s - 10))) & 63);
  }
  MEGALITH_PURE int total() const { return static_cast<int>(high >> 36 & 0xFFFF); }
  /// Whether splits are short, and the longest is at most half longer than the shortest.
  MEGALITH_PURE bool is_even() const { return high >> 63 != 0; }
};

/// Positions of a split that leaves warps idle: eight units are four pairs.
inline constexpr int kShortSplit = 8 * kUnitPositions;

/// Those of config C. Every role asks, so there is one copy of the code; its divisions overlap.
template <class C> MEGALITH_ONCE SplitCounts split_counts(const StepDescriptor &step) {
  constexpr int kAtOnce = 4;
  static_assert(C::kRows <= 16);
  uint64_t low = 0, high = 0;
  int total = 0, least = 1 << 30, most = 0;
  MEGALITH_ROLLED
  for (int first = 0; first < step.sequences; first += kAtOnce) {
    uint64_t counts = 0;
    MEGALITH_UNROLLED
    for (int i = 0; i < kAtOnce; ++i) {
      const int s = first + i;
      const int keys = s < step.sequences ? visible_keys(step.seq[s], window_of<C>()) : 0;
      const int length = keys > 0 ? split_length(keys) : 0,
                count = keys > 0 ? split_count(keys) : 0;
      least = keys > 0 && length < least ? length : least;
      most = length > most ? length : most;
      total += count;
      counts |= static_cast<uint64_t>(count) << (6 * i);
    }
    low |= first < 8 ? counts << (6 * first) : 0; // eight, and the first two of the next four
    if (first == 8)
      low |= (counts & 0xFFF) << 48, high = counts >> 12;
    if (first == 12)
      high |= counts << 12;
  }
  high |= static_cast<uint64_t>(total) << 36;
  high |= static_cast<uint64_t>(2 * most <= 3 * least && most <= kShortSplit) << 63;
  return {low, high};
}

/// The tiles of one SM in its order, sequence ascending. `while (tiles.next(tile))` visits each
/// once; there are tiles.count() of them.
///
/// Dealt out, tile u = split * KV heads + KV head of every sequence goes to an SM of its own, if
/// there are so many: whatever the lengths, every SM has its part of each sequence. With more tiles
/// than SMs and short splits of about one length (of windows, mostly) all tiles are numbered, KV
/// head by KV head and split by split, and SM i has those from i/SMs to (i + 1)/SMs of them:
/// neighbours, which share their queries, several of them as one tile where that keeps the warps
/// busy.
template <class C> struct AttentionTiles {
  using Tile = AttentionTile;

  MEGALITH_PURE AttentionTiles(const StepDescriptor &step, int sm)
      : step(step), sm(sm), stride(C::kSms), seq(-1), at(0), end(0), last(-1) {
    if constexpr (C::kRows > 1) {
      counts = split_counts<C>(step);
      const int total = counts.total() * C::kKvHeads;
      if (total > C::kSms && counts.is_even()) {
        stride = 1;
        first = sm * total / C::kSms;
        past = (sm + 1) * total / C::kSms;
      }
    }
  }

  MEGALITH_PURE int count() const {
    int count = 0;
    if (are_neighbours()) {
      AttentionTiles rest(step, sm);
      for (AttentionTile tile = {}; rest.next(tile);)
        ++count;
      return count;
    }
    for (int s = 0; s < step.sequences; ++s)
      count += (split_count_of(s) * C::kKvHeads - first_tile(s) + C::kSms - 1) / C::kSms;
    return count;
  }

  /// Moves to the next tile; false, with `tile` untouched, after the last.
  MEGALITH_PURE bool next(AttentionTile &tile) {
    if constexpr (C::kRows == 1)
      return next_of_row(tile);
    at += stride;
    MEGALITH_ROLLED
    while (at >= end) {
      if (++seq >= step.sequences)
        return false;
      splits = split_count_of(seq);
      const int tiles = splits * C::kKvHeads;
      at = first_tile(seq);
      end = tiles;
      if (are_neighbours()) { // numbers count from the sequence's first
        at = first > 0 ? first : 0;
        end = past < tiles ? past : tiles;
        first -= tiles;
        past -= tiles;
      }
    }
    int head = at % C::kKvHeads, split = at / C::kKvHeads, count = 1;
    if (are_neighbours()) {
      head = 0, split = at;
      MEGALITH_ROLLED
      for (; split >= splits; split -= splits)
        ++head;
      const int most = splits_at_once(step.seq[seq]);
      const int left = splits - split < end - at ? splits - split : end - at;
      count = left < most ? left : most;
      at += count - 1;
    }
    tile = attention_tile(step.seq[seq], seq, head, split, window_of<C>(), count);
    tile.goes_on = seq * C::kKvHeads + head == last;
    last = seq * C::kKvHeads + head;
    return true;
  }

private:
  /// Whether this SM's tiles are neighbours. One row has one sequence, whose tiles are dealt out.
  MEGALITH_PURE bool are_neighbours() const { return C::kRows > 1 && stride == 1; }

  /// Splits of the sequence that the eight warps work on at once: a pair of units occupies one, if
  /// there is but one column tile of queries, and no two pairs are of one chunk.
  MEGALITH_PURE int splits_at_once(const SequenceEntry &entry) const {
    const int vectors = entry.rows * (C::kQHeads / C::kKvHeads);
    const int units = split_length(visible_keys(entry, window_of<C>())) / kUnitPositions;
    const int warps = (units + 1) / 2, columns = (vectors * head_ranks_of<C>() + 7) / 8;
    if (vectors > 8 || warps > 4 || warps * columns > 8)
      return 1;
    return warps == 1 ? 8 : warps == 2 ? 4 : 2;
  }

  /// `next` for one row: there is one sequence at most, mostly with one tile an SM at most.
  MEGALITH_PURE bool next_of_row(AttentionTile &tile) {
    constexpr bool kIsOnce = kMaxSplits * C::kKvHeads <= C::kSms;
    if (kIsOnce && last >= 0)
      return false;
    const int number = ++last * (kIsOnce ? 0 : C::kSms) + sm, split = number / C::kKvHeads;
    const RowSplit found = row_split<C>(step, split);
    if (found.first >= found.end)
      return false;
    tile = {};
    tile.kv_head = number % C::kKvHeads;
    tile.split = split;
    tile.split_units = found.split_units;
    tile.first = found.first;
    tile.end = found.end;
    tile.full_units = found.full_units;
    tile.tail_units = tile.tail_first() < tile.end ? 1 : 0;
    tile.rows = 1;
    tile.start = found.start;
    tile.goes_on = !kIsOnce && last > 0 && C::kSms % C::kKvHeads == 0;
    return true;
  }

  MEGALITH_PURE int split_count_of(int s) const {
    if constexpr (C::kRows > 1)
      return counts.of(s);
    const int keys = visible_keys(step.seq[s], window_of<C>());
    return keys > 0 ? split_count(keys) : 0;
  }
  /// The first tile number of sequence s that this SM has, if there is such a tile.
  MEGALITH_PURE int first_tile(int s) const {
    return (sm - s * C::kSequenceStride % C::kSms + C::kSms) % C::kSms;
  }

  const StepDescriptor &step;
  SplitCounts counts = {};
  int sm;
  int stride;              // from tile to tile: kSms where they are dealt out, or 1
  int first = 0, past = 0; // of this SM's neighbours, counted from the next sequence's tiles
  int splits = 1;          // of the last tile's sequence
  int seq;                 // sequence of the last tile returned
  int at;                  // its number in that sequence, of several the last's
  int end;                 // tiles of that sequence, or of it on this SM
  int last;                // sequence and KV head of the last tile; of one row, its place here
};

/// One merge tile: the splits of (row, query head) become channels [channel, channel +
/// kHeadDim / kMergeParts) of that head's output.
struct MergeTile {
  int number; // (row * kQHeads + q_head) * kMergeParts + part
  int row;
  int q_head;
  int channel;
  int splits; // 0: a dead row, whose output is zero
};

/// The merge tiles of one SM: tile (row * kQHeads + q_head) * kMergeParts + part runs on SM
/// (kMergeFirst + tile) % kSms. Every row of the bucket has its tiles, dead ones too, since their
/// zeros are waited for.
template <class C> struct MergeTiles {
  using Tile = MergeTile;

  MEGALITH_PURE MergeTiles(const StepDescriptor &step, int sm)
      : step(step), at((sm < merge_first_of<C>() ? sm : sm - C::kSms) - merge_first_of<C>()) {}

  MEGALITH_PURE int count() const {
    return (C::kRows * C::kQHeads * C::kMergeParts - at - 1) / C::kSms;
  }

  /// Moves to the next tile; false, with `tile` untouched, after the last.
  MEGALITH_PURE bool next(MergeTile &tile) {
    constexpr int kTiles = C::kRows * C::kQHeads * C::kMergeParts;
    constexpr bool kIsOnce = C::kRows == 1 && kTiles <= C::kSms; // the compiler sees it only so
    if (kIsOnce && is_over)
      return false;
    is_over = true;
    at += C::kSms;
    if (at >= kTiles)
      return false;
    int head = at / C::kMergeParts, row = C::kRows == 1 ? 0 : head / C::kQHeads;
    int seq = row < step.live_rows ? step.row_seq[row] : -1;
    tile.number = at;
    tile.row = row;
    tile.q_head = head % C::kQHeads;
    tile.channel = at % C::kMergeParts * (C::kHeadDim / C::kMergeParts);
    const SequenceEntry &entry = step.seq[C::kRows > 1 && seq >= 0 ? seq : 0];
    tile.splits = seq >= 0 ? split_count(visible_keys(entry, window_of<C>())) : 0;
    return true;
  }

private:
  const StepDescriptor &step;
  int at;               // number of the last tile returned
  bool is_over = false; // after the first
};

} // namespace megalith
