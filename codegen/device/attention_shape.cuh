// What an attention stage computes, the sizes that follow from it, and how its work is dealt to the
// consumer warps. The layouts of units and pages are those of docs/kernel-contract.md section 1.
//
// Config members (struct C): those of the base `Attention` below, and the buffers, whose sizes are
// AttentionShape<C>'s:
//   QkvIn   SlottedRows<., kRows, kQkvRow, slots>: a tile's words
//   Query   SlottedRows<., kQueryRows, kQueryStride>: q after norm and RoPE
//   Tail    SlottedRows<., kTailUnits, kUnitBytes>: the tail units
//   Apart   SlottedRows<., kRecords, kRecordBytes>: what each warp found, to be added up
//   Mparts  SlottedRows<., 32, kPartWords * 16, slots>: the words of a merge tile
// Query, Tail and Apart belong to the consumers alone. The raw projections are crossing words
// Words<., kRows, (kQHeads + 2 kKvHeads) d / 2, 3>, channels q | k | v; more may follow in a row.
#pragma once

#include "codegen/device/cta.cuh"
#include "codegen/device/gather.cuh"
#include "codegen/device/tiles.cuh"

namespace megalith {

/// Per-head norm of q and k before RoPE: none, without weight, or times a weight per channel.
enum class QkNorm { none, plain, weighted };

/// What keys and values are in pages and in shared memory. e4m3 (OCP FP8, no infinities) has the
/// elements of a unit in the order of bf16, a byte for two.
enum class KvFormat { bf16, e4m3 };

/// What an attention stage computes and where its global buffers are; base of the emitted config.
///   Config          the kernel's: kRows, kSms
///   SequenceStride  see tiles.cuh
///   QHeads, KvHeads, HeadDim  of this rank; HeadDim = d is a multiple of 64
///   RopeDim         rotated channels, a multiple of 64, or 0: no RoPE
///   MergeParts      merge tiles of a head; d / MergeParts is even. More of them spread the reading
///                   of partial results over more SMs: 4 suit one row of 32 heads
///   Norm, NormEps   of qk-norm
///   ScoreScale      factor of q k^T, > 0
///   Pool            buffer slot of the KV pages of this launch's layer
///   InvFreq         buffer slot of fp32 [RopeDim / 2] inverse frequencies, if RopeDim > 0
///   QGain, KGain    buffer slots of the bf16 [d] gains, if Norm is weighted
///   HeadRanks       ranks that have this rank's KV head, each with its share of the query heads
///   Window          keys that a query sees, its own included; 0: all
///   Bounded         2^score of any number of keys stays finite in fp32: no running maximum
///   Format          of keys and values
///   KScale, VScale  buffer slots of one fp32 each: what keys and values are divided by before they
///                   are rounded to e4m3, and scores and results multiplied by; -1: 1
template <class Config, int SequenceStride, int QHeads, int KvHeads, int HeadDim, int RopeDim,
          int MergeParts, QkNorm Norm, float NormEps, float ScoreScale, int Pool, int InvFreq = -1,
          int QGain = -1, int KGain = -1, int HeadRanks = 1, int Window = 0, bool Bounded = false,
          KvFormat Format = KvFormat::bf16, int KScale = -1, int VScale = -1>
struct Attention {
  static constexpr int kRows = Config::kRows, kSms = Config::kSms;
  static constexpr int kSequenceStride = SequenceStride, kMergeParts = MergeParts;
  static constexpr int kQHeads = QHeads, kKvHeads = KvHeads, kHeadDim = HeadDim;
  static constexpr int kRopeDim = RopeDim;
  static constexpr QkNorm kQkNorm = Norm;
  static constexpr float kQkNormEps = NormEps, kScoreScale = ScoreScale;
  static constexpr int kHeadRanks = HeadRanks;
  static constexpr int kWindow = Window;
  static constexpr bool kBounded = Bounded;
  static constexpr int kPool = Pool, kInvFreq = InvFreq, kQGain = QGain, kKGain = KGain;
  static constexpr bool kIsE4m3 = Format == KvFormat::e4m3, kIsScaled = KScale >= 0;
  static constexpr int kKScale = KScale, kVScale = VScale;
  // Of one row, behind the SMs with attention tiles, where that may be: whoever merges waits there
  // from the beginning. A merge in a kernel of its own (Pool -1) is where it is.
  static constexpr int kMergeFirst =
      Config::kRows == 1 && Pool >= 0 ? kMaxSplits * KvHeads % Config::kSms : 0;

  static_assert(HeadDim % 64 == 0 && RopeDim % 64 == 0 && RopeDim <= HeadDim);
  static_assert(QHeads % KvHeads == 0 && HeadDim % MergeParts == 0);
  static_assert(Norm != QkNorm::weighted || (QGain >= 0 && KGain >= 0));
  static_assert(RopeDim == 0 || InvFreq >= 0);
  static_assert((KScale >= 0) == (VScale >= 0) && (KScale < 0 || Format == KvFormat::e4m3));
};

/// Sizes that follow from an attention config; it need not have its buffers yet.
template <class C> struct AttentionShape {
  static constexpr int kDim = C::kHeadDim;
  static constexpr int kGroup = C::kQHeads / C::kKvHeads;
  static constexpr int kVectors = C::kRows * kGroup; // most query vectors of a tile
  static constexpr int kSlices = kDim / 16;          // k16 steps of a score; channel tiles of V
  static constexpr int kPerLane = kDim / 32;         // channels of a head in each lane
  static constexpr int kQkvWidth = (C::kQHeads + 2 * C::kKvHeads) * kDim; // q | k | v
  static constexpr int kQkvRow = (kGroup + 2) * kDim * 2; // a tile's row: q heads, k, v
  static constexpr int kQueryRows = (kVectors + 7) / 8 * 8;
  static constexpr int kQueryStride = 2 * kDim + 32; // conflict-free for 8 rows x 4 lanes

  // Units, and the pieces of one or a few of them that pass through the ring.
  static constexpr int kKvBytes = C::kIsE4m3 ? 1 : 2;                     // of an element
  static constexpr int kUnitBytes = 2 * kKvBytes * kUnitPositions * kDim; // K part, V part
  static constexpr int kMostUnits = C::kIsE4m3 || C::kRows > 1 ? 4 : 2;
  static constexpr int kPieceUnits = kMostUnits == 4 && 4 * kUnitBytes <= 16384 ? 4
                                     : 2 * kUnitBytes <= 16384                  ? 2
                                                                                : 1;
  static constexpr int kPieceBytes = kPieceUnits * kUnitBytes;
  static constexpr int kTailUnits = (2 * kUnitPositions - 2 + C::kRows) / kUnitPositions;

  // Column tiles of 8 query vectors; a warp has its share of each round of 8.
  static constexpr int kRounds = (kVectors + 63) / 64;
  static constexpr int kColumns = kVectors < 2 ? 2 : kVectors < 8 ? kVectors : 8; // of a tile

  // What a warp found for a query vector: fp32 {m, l, o[d], 2 unused}. Records of neighbouring
  // columns start 4 banks apart, so that fragments are stored without conflicts.
  // Those of one round at a time.
  static constexpr int kRecords = kConsumerWarps * kColumns;
  static constexpr int kRecordBytes = 4 * (kDim + 4);

  // What a tile publishes of a query vector: for each merge part the fp32 {m, l, o[kPartDim]}.
  static constexpr int kPartDim = kDim / C::kMergeParts;
  static constexpr int kPartWords = (kPartDim + 2 + kEpochPayload - 1) / kEpochPayload;
  static constexpr int kPartials = // epoch words of the whole exchange
      C::kRows * C::kQHeads * C::kMergeParts * kMaxSplits * kPartWords;
};

/// Pieces of a split whose units are all full, or of so many units of one.
template <class C> MEGALITH_PURE int pieces_of(int units) {
  constexpr uint32_t kEach = AttentionShape<C>::kPieceUnits;
  return static_cast<int>((static_cast<uint32_t>(units) + kEach - 1) / kEach);
}

/// Pieces in which the full units of a tile pass through the ring. Those of a split begin a new
/// one.
template <class C> MEGALITH_PURE int full_pieces(const AttentionTile &tile) {
  int units = tile.full_units, pieces = 0;
  if constexpr (C::kRows > 1) {
    MEGALITH_ROLLED
    for (; units > tile.split_units; units -= tile.split_units)
      pieces += pieces_of<C>(tile.split_units);
  }
  return pieces + pieces_of<C>(units);
}

/// Units [first, end) of a tile.
struct UnitRange {
  int first, end;
};

/// The units of piece `i`, all full.
template <class C> MEGALITH_PURE UnitRange piece_units(const AttentionTile &tile, int i) {
  constexpr int kEach = AttentionShape<C>::kPieceUnits;
  int first = 0, end = tile.full_units;
  if constexpr (C::kRows > 1) {
    const int pieces = pieces_of<C>(tile.split_units);
    MEGALITH_ROLLED
    for (; i >= pieces; i -= pieces)
      first += tile.split_units;
    end = first + tile.split_units < end ? first + tile.split_units : end;
  }
  first += kEach * i;
  return {first, first + kEach < end ? first + kEach : end};
}

/// A consumer warp's share of a tile: which query vectors, which keys. A tile has T column tiles of
/// 8 query vectors, and its units, counted from its first position, come in pairs. Pair p belongs
/// to chunk p % chunks, where chunks = 8 / T rounded down (at least 1, and then a power of two), so
/// that each of the 8 warps has a column tile and a chunk. Chunks are added up in ascending order:
/// they decide the bits of a result, and depend on nothing but the query vectors of the sequence,
/// those on ranks that share the head included. Of several splits in a tile each has warps of its
/// own, as many as it has pairs: the chunks behind them would be empty.
struct WarpShare {
  int columns;   // column tiles, 8 at most: of one round
  int chunks;    // 8, 4, 2 or 1
  int column;    // column tile of the warp, in each round
  int chunk;     // chunk of the warp; `chunks` or more: it has none
  int first = 0; // unit of the tile with which the warp's split begins
  int units = 0; // of that split; 0: the tile is one split
  int warps = 0; // of a split, where there are several

  /// `of_all`: the vectors of all ranks that have the head.
  static MEGALITH_PURE WarpShare of(int vectors, int of_all, int warp) {
    const int columns = columns_of(vectors);
    return {columns, 8 / columns_of(of_all), warp % columns, warp / columns};
  }
  /// Of a tile with several splits, which has one column tile.
  static MEGALITH_PURE WarpShare of_splits(const AttentionTile &tile, int of_all, int warp) {
    WarpShare share = of(1, of_all, warp);
    share.warps = (tile.split_units + 1) / 2;
    share.units = tile.split_units;
    int split = 0;
    MEGALITH_ROLLED
    for (; share.chunk >= share.warps; share.chunk -= share.warps)
      ++split;
    share.first = split * share.units;
    if (split >= tile.splits)
      share.chunk = share.chunks;
    return share;
  }
  static MEGALITH_PURE int columns_of(int vectors) {
    const int tiles = (vectors + 7) / 8;
    return tiles < 8 ? tiles : 8;
  }

  /// Whether unit `unit` of the tile is this warp's.
  MEGALITH_PURE bool has_unit(int unit) const {
    if (units > 0) {
      unit -= first;
      if (unit < 0 || unit >= units)
        return false;
    }
    return (unit / 2 & (chunks - 1)) == chunk;
  }
};

/// Byte of channel c of key 0..15 in a unit of bf16; its V part starts at byte 32 d. In a unit of
/// e4m3 it is half of that. 32 channels on it is kPlaceStride more.
MEGALITH_PURE int key_offset(uint32_t key, uint32_t c) {
  return static_cast<int>(c / 16 * 512 + (key % 8 * 4 + c % 16 / 4) * 16 +
                          (c % 4 / 2 * 2 + key / 8) * 4 + c % 2 * 2);
}
template <int Dim> MEGALITH_PURE int value_offset(uint32_t key, uint32_t c) {
  return static_cast<int>(32 * Dim + c / 16 * 512 + (c % 8 * 4 + key / 4) * 16 +
                          (key % 4 / 2 * 2 + c % 16 / 8) * 4 + key % 2 * 2);
}
inline constexpr int kPlaceStride = 1024;

} // namespace megalith
