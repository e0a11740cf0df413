//===- packing.h - How weights and KV pages lie in memory --------*- C++ -*-===//
//
// The layouts of docs/kernel-contract.md section 1: strip-packed matrices, KV pages, padded
// vectors. One version for all plans: whatever the rows bucket, SM count or launch mode, kernels
// read these bytes. Offsets are in bytes from the start of a matrix or pool.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_PACKING_H
#define MEGALITH_RUNTIME_PACKING_H

#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace megalith::runtime {

/// Names the layouts below. Change it with them: plans and packed weights of another layout are
/// refused by it.
inline constexpr const char *kWeightLayoutDigest = "strips-2x16-c8-v1";

/// Positions in a KV page, and in the units that a page consists of.
inline constexpr int64_t kPagePositions = 64;
inline constexpr int64_t kUnitPositions = 16;
/// Strips in a ring piece: an m-tile of 16 fragment rows.
inline constexpr int64_t kPieceStrips = 8;
/// Every word of memory that must be written before it is read: a NaN as fp32 and as bf16 pair.
inline constexpr uint32_t kPoisonWord = 0x7FC17FC1;
/// An exchange word that nobody has stored yet.
inline constexpr uint32_t kEmptyWord = 0xFFFFFFFF;

/// A strip-packed matrix of n rows and k columns of bf16. A strip is a pair of rows: rows (2i,
/// 2i+1) of what is packed; a gate/up matrix is packed with gate i as row 2i and up i as row 2i+1.
struct StripLayout {
  StripLayout(int64_t n, int64_t k);

  int64_t n, k;
  int64_t chunk16; ///< k16 steps in a chunk, one consumer warp's share of k
  int64_t kb;      ///< k16 steps per chunk and block
  int64_t blocks;
  int64_t strips; ///< n odd: the last strip's second row is zero

  int64_t paddedK() const { return 8 * chunk16 * 16; }
  int64_t stripBytes() const { return 512 * kb; } ///< of one block
  int64_t bytes() const { return blocks * strips * stripBytes(); }
  /// Start of strips [first, ..) of a block; n strips from there are contiguous.
  int64_t pieceOffset(int64_t block, int64_t firstStrip) const {
    return (block * strips + firstStrip) * stripBytes();
  }
  /// Where element (row, column) lies; column may reach into the padding.
  int64_t offset(int64_t row, int64_t column) const;
};

/// Writes row `row` of the matrix, exactly k bf16 numbers as bits.
using PackedRow = llvm::function_ref<void(int64_t row, std::span<uint16_t> out)>;

/// Fills strips [first, first + count) in every block of a matrix at `matrix`. Each row is asked
/// for once, so rows that are computed on demand stay cheap.
void packStrips(const StripLayout &layout, int64_t first, int64_t count, PackedRow rows,
                unsigned char *matrix);

/// Fills one piece: `count` strips of one block, at `out`.
void packPiece(const StripLayout &layout, int64_t block, int64_t first, int64_t count,
               PackedRow rows, unsigned char *out);

/// An fp32 matrix in the same blocks and strips, each of twice the bytes: unit j = chunk * kb +
/// step of a strip is 128 B, [2 rows][16 k] (docs/kernel-contract.md section 13).
inline int64_t wideBytes(const StripLayout &layout) {
  return 2 * layout.bytes();
}
/// Byte of element (row, column).
int64_t wideOffset(const StripLayout &layout, int64_t row, int64_t column);
/// Fills strips [first, first + count) in every block; as packStrips.
void packWideStrips(const StripLayout &layout, int64_t first, int64_t count,
                    llvm::function_ref<void(int64_t row, std::span<float> out)> rows,
                    unsigned char *matrix);

/// Reads row `row` back, k numbers. The exact inverse of packStrips.
void unpackRow(const StripLayout &layout, const unsigned char *matrix, int64_t row,
               std::span<uint16_t> out);

/// A layer's pool of KV pages: [page][head][4 units], a unit = 16 positions, K part then V part.
struct KvLayout {
  int64_t heads;
  int64_t dim;              ///< of a head, a multiple of 16
  int64_t elementBytes = 2; ///< bf16; 1: e4m3, in the same order

  int64_t partBytes() const { return kUnitPositions * dim * elementBytes; } ///< K or V of a unit
  int64_t unitBytes() const { return 2 * partBytes(); }
  int64_t headBytes() const { return kPagePositions / kUnitPositions * unitBytes(); }
  int64_t pageBytes() const { return heads * headBytes(); }

  /// Where K or V of (position in the page, head, channel) lies within its page.
  int64_t keyOffset(int64_t position, int64_t head, int64_t channel) const;
  int64_t valueOffset(int64_t position, int64_t head, int64_t channel) const;
};

/// Writes K (after norm and RoPE) and V of one position: [heads][dim] of bf16 each, rounded to e4m3
/// where pages hold that. `pool` is a layer's pool and `pages` the sequence's page table.
void writeKv(const KvLayout &layout, unsigned char *pool, std::span<const int32_t> pages,
             int64_t position, std::span<const uint16_t> key, std::span<const uint16_t> value);
void readKv(const KvLayout &layout, const unsigned char *pool, std::span<const int32_t> pages,
            int64_t position, std::span<uint16_t> key, std::span<uint16_t> value);

/// Elements of a vector weight: k rounded up to 128, the padding is zero.
inline int64_t paddedVector(int64_t k) {
  return (k + 127) / 128 * 128;
}

/// theta^(-2j/dims) for j < dims/2, in double and rounded once to fp32.
std::vector<float> inverseFrequencies(int64_t dims, double theta);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_PACKING_H
