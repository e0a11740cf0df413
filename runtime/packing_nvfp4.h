//===- packing_nvfp4.h - How NVFP4 weights lie in memory ---------*- C++ -*-===//
//
// The layout of docs/kernel-contract.md section 1 for NVFP4 matrices and expert banks: tiles of 16
// rows, codes and scales of a piece together, the factors of a matrix behind it. As packing.h, one
// version for all plans.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_PACKING_NVFP4_H
#define MEGALITH_RUNTIME_PACKING_NVFP4_H

#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstdint>
#include <span>

namespace megalith::runtime {

/// What the accumulator of an NVFP4 product is multiplied by, for rows of either half of the
/// strips: half 0 are rows 2i of what is packed (gates), half 1 rows 2i + 1 (ups).
struct Nvfp4Factors {
  float global[2] = {1, 1}; ///< weight_scale_2
  float inputScale = 0;     ///< of quantised activations; 0: the checkpoint has none
};

/// An NVFP4 matrix of n rows and k columns (a multiple of 16). Rows are paired as in StripLayout;
/// a tile is 8 strips, so row r is fragment row r / 2 % 8 + 8 * (r % 2) of tile r / 16.
struct Nvfp4Layout {
  Nvfp4Layout(int64_t n, int64_t k);

  int64_t n, k;
  int64_t chunk16; ///< k16 steps in a chunk, one consumer warp's share of k
  int64_t group;   ///< k16 steps that share scales in a lane: 4, 2 or 1
  int64_t kb;      ///< k16 steps per chunk and block, a multiple of group
  int64_t blocks;
  int64_t tiles; ///< rows behind the last are zero

  int64_t paddedK() const { return 8 * chunk16 * 16; }
  /// Bytes of one chunk of one block and tile: kb * 128 of codes, then kb * 16 of scales.
  int64_t chunkBytes() const { return 144 * kb; }
  int64_t pieceBytes() const { return 8 * chunkBytes(); } ///< one block of one tile
  int64_t piecesBytes() const { return blocks * tiles * pieceBytes(); }
  /// Of a matrix with its factors; matrices of a bank lie one after another.
  int64_t bytes() const { return piecesBytes() + kFactorBytes; }
  int64_t pieceOffset(int64_t block, int64_t tile) const {
    return (block * tiles + tile) * pieceBytes();
  }

  /// Whether codes are placed in two steps of a group together (nvfp4PlacedInPair), or one by one
  /// (nvfp4Placed): groups of one step have no neighbours.
  bool hasPairs() const { return group % 2 == 0; }
  /// Where the 4 bytes of the lane and k16 step of (row, column) lie. The neighbouring step's of a
  /// group are the other 4 of 8, aligned.
  int64_t codeOffset(int64_t row, int64_t column) const;
  /// Which of a step's four words of A the code of (row, column) is in: nvfp4Placed's `place`.
  static int64_t codePlace(int64_t row, int64_t column) { return row % 2 + column % 4 / 2 * 2; }
  /// Where the scale of (row, column) lies, one byte.
  int64_t scaleOffset(int64_t row, int64_t column) const;

  /// The order in which a warp adds the products of its chunk: the column, counted from the
  /// chunk's first, of product i. A lane owns consecutive columns, so that one scale serves several
  /// steps; in a step of the machine, 16 products in a row, columns ascend.
  int64_t columnAt(int64_t i) const {
    const int64_t p = i % (16 * group);
    return i - p + p % 16 / 4 * (4 * group) + p / 16 * 4 + p % 4;
  }

  /// Behind the pieces of a matrix, fp32: {factor of half 0, of half 1 (bf16 activations), the
  /// same two times the input scale (quantised activations), the input scale, zeros}. The four
  /// factors are times kNvfp4FactorScale.
  static constexpr int64_t kFactorBytes = 128;
};

/// Writes row `row` as it is stored in a checkpoint: k / 2 bytes of codes, k / 16 e4m3 scales.
using Nvfp4Row =
    llvm::function_ref<void(int64_t row, std::span<uint8_t> codes, std::span<uint8_t> scales)>;

/// Fills tiles [first, first + count) in every block of a matrix at `matrix`, padding included.
/// Each row is asked for once. Returns the first row with a scale that is negative or NaN, which no
/// quantiser makes and the layout cannot hold, or -1.
int64_t packNvfp4(const Nvfp4Layout &layout, int64_t first, int64_t count, Nvfp4Row rows,
                  unsigned char *matrix);

/// Whether the factors can be packed: all are finite, none is too large or small to be scaled
/// exactly.
bool nvfp4FactorsFit(const Nvfp4Factors &factors);

/// Fills what stands behind the pieces of the matrix, with factors that fit.
void packNvfp4Factors(const Nvfp4Layout &layout, const Nvfp4Factors &factors,
                      unsigned char *matrix);

/// Row `row` of a packed matrix as operands mean it: code * scale, k exact values.
void unpackNvfp4Row(const Nvfp4Layout &layout, const unsigned char *matrix, int64_t row,
                    std::span<float> out);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_PACKING_NVFP4_H
