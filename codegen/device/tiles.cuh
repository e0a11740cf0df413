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
//   kSequenceStride  tile u of sequence s runs on SM (u + s * kSequenceStride) % kSms
//   kMergeParts      merge tiles of a (row, query head), each with kHeadDim / kMergeParts channels
//   kHeadDim         d
//   kWindow          optional: keys that a query sees, its own included; 0 or missing: all
#pragma once

#include "runtime/abi.h"

/// Prefix of a function without side effects that both kernels and host code evaluate.
#ifdef __CUDACC__
#define MEGALITH_PURE __host__ __device__ constexpr
#else
#define MEGALITH_PURE constexpr
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

/// The window of config C, 0 if it has none.
template <class C> MEGALITH_PURE int window_of() {
  if constexpr (requires { C::kWindow; })
    return C::kWindow;
  else
    return 0;
}

/// One attention tile: `kv_head`'s keys [first, end) against all rows of sequence `seq`.
struct AttentionTile {
  int seq;
  int kv_head;
  int split;
  int first;      // first position; a multiple of 16
  int end;        // one past the last position
  int full_units; // units of 16 positions below `start`, read through the ring
  int tail_units; // units after them, 0..2
  int first_row;  // of the sequence
  int rows;       // of the sequence
  int start;      // positions of the sequence in the pages before this step

  /// First position of the tail.
  MEGALITH_PURE int tail_first() const { return first + full_units * kUnitPositions; }
  /// First position of this tile that this step adds; >= end if there is none.
  MEGALITH_PURE int first_new() const { return start > first ? start : first; }
};

/// The tile of (sequence, KV head, split).
MEGALITH_PURE AttentionTile attention_tile(const SequenceEntry &seq, int index, int kv_head,
                                           int split, int window = 0) {
  int keys = sequence_keys(seq), first = sequence_first(seq, window);
  int length = split_length(keys - first);
  AttentionTile tile{};
  tile.seq = index;
  tile.kv_head = kv_head;
  tile.split = split;
  tile.first = first + split * length;
  tile.end = tile.first + length < keys ? tile.first + length : keys;
  int old_end = tile.end < seq.start ? tile.end : seq.start;
  tile.full_units = old_end > tile.first ? (old_end - tile.first) / kUnitPositions : 0;
  tile.tail_units = (tile.end - tile.tail_first() + kUnitPositions - 1) / kUnitPositions;
  tile.first_row = seq.first_row;
  tile.rows = seq.rows;
  tile.start = seq.start;
  return tile;
}

/// The tiles of one SM in its order: sequence ascending, then tile number (split, KV head)
/// ascending. `while (tiles.next(tile))` visits each once; there are tiles.count() of them.
template <class C> struct AttentionTiles {
  using Tile = AttentionTile;

  MEGALITH_PURE AttentionTiles(const StepDescriptor &step, int sm)
      : step(step), sm(sm), seq(-1), at(0), end(0) {}

  MEGALITH_PURE int count() const {
    int count = 0;
    for (int s = 0; s < step.sequences; ++s)
      count += (tile_count(s) - first_tile(s) + C::kSms - 1) / C::kSms;
    return count;
  }

  /// Moves to the next tile; false, with `tile` untouched, after the last.
  MEGALITH_PURE bool next(AttentionTile &tile) {
    at += C::kSms;
    while (at >= end) {
      if (++seq >= step.sequences)
        return false;
      end = tile_count(seq);
      at = first_tile(seq);
    }
    tile = attention_tile(step.seq[seq], seq, at % C::kKvHeads, at / C::kKvHeads, window_of<C>());
    return true;
  }

private:
  /// Tiles of sequence s on all SMs.
  MEGALITH_PURE int tile_count(int s) const {
    int keys = visible_keys(step.seq[s], window_of<C>());
    return keys > 0 ? split_count(keys) * C::kKvHeads : 0;
  }
  /// The first tile number of sequence s that this SM has, if there is such a tile.
  MEGALITH_PURE int first_tile(int s) const {
    return (sm - s * C::kSequenceStride % C::kSms + C::kSms) % C::kSms;
  }

  const StepDescriptor &step;
  int sm;
  int seq; // sequence of the last tile returned
  int at;  // its number in that sequence
  int end; // tiles of that sequence
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
/// tile % kSms. Every row of the bucket has its tiles, dead ones too, since their zeros are waited
/// for.
template <class C> struct MergeTiles {
  using Tile = MergeTile;

  MEGALITH_PURE MergeTiles(const StepDescriptor &step, int sm) : step(step), at(sm - C::kSms) {}

  MEGALITH_PURE int count() const {
    return (C::kRows * C::kQHeads * C::kMergeParts - at - 1) / C::kSms;
  }

  /// Moves to the next tile; false, with `tile` untouched, after the last.
  MEGALITH_PURE bool next(MergeTile &tile) {
    at += C::kSms;
    if (at >= C::kRows * C::kQHeads * C::kMergeParts)
      return false;
    int head = at / C::kMergeParts, row = head / C::kQHeads;
    int seq = row < step.live_rows ? step.row_seq[row] : -1;
    tile.number = at;
    tile.row = row;
    tile.q_head = head % C::kQHeads;
    tile.channel = at % C::kMergeParts * (C::kHeadDim / C::kMergeParts);
    tile.splits = seq >= 0 ? split_count(visible_keys(step.seq[seq], window_of<C>())) : 0;
    return true;
  }

private:
  const StepDescriptor &step;
  int at; // number of the last tile returned
};

} // namespace megalith
