// Linear layers over fp32 weights, multiplied without tensor cores: exact products, fp32 sums. For
// small matrices whose result must not depend on rounded weights (a router).
//
// The walk is that of gemv.cuh: slices of strips, m-tiles, pieces of the ring, chunks of K. Only
// what lies in a strip differs, and the order in which a warp adds (docs/kernel-contract.md,
// section 13).
#pragma once

#include "codegen/device/gemv.cuh"

namespace megalith {

/// An fp32 matrix `[Outputs][Inputs]` in buffer slot `Buffer`, strips of two rows; SM i owns strips
/// [i * Unit, (i + 1) * Unit). A strip of one block: kConsumerWarps * kBlockSteps units of 128 B,
/// unit c * kBlockSteps + s = step s of chunk c: [2 rows][16 k].
template <int Buffer, int Outputs, int Inputs, int Unit, int PieceBlocks = 1>
struct WideLinear : Linear<Buffer, Outputs, Inputs, Unit, PieceBlocks> {
  using Base = Linear<Buffer, Outputs, Inputs, Unit, PieceBlocks>;
  static constexpr int kTileStrips = Unit < 4 ? Unit : 4;
  static constexpr uint32_t kStripBytes = 2 * Base::kStripBytes;
  static constexpr uint64_t kMatrixBytes = 2 * Base::kMatrixBytes;
};

/// A lane's sums of an m-tile: of strip s, its output row lane / 4 % 2, with activation row r.
template <class L, class Cta> struct WideSums { float v[L::kTileStrips][Cta::Config::kRows]; };

namespace detail {
/// Adds the product of block `block` of the rows, whose weights begin `offset` bytes into the slot.
template <class L, class R, class X, class Cta>
MEGALITH_DEVICE void add_wide_block(const Cta &cta, WideSums<L, Cta> &sums, int slot, int tile,
                                    int block, uint32_t offset) {
  static_assert(L::kInputs % X::kWidth == 0 && Cta::Config::kRows <= X::kCount);
  const int unit = cta.lane / 8;
  if (unit < L::kBlockSteps) {
    const int k =
        X::kChunk * cta.role_warp + 16 * (L::kBlockSteps * block + unit) + 4 * (cta.lane % 4);
    const unsigned char *a = R::slot(cta, slot) + offset +
                             128 * (L::kBlockSteps * cta.role_warp + unit) + 16 * (cta.lane % 8);
    const int strips = tile_strips<L>(cta, tile);
    MEGALITH_UNROLL_ALL
    for (int r = 0; r < Cta::Config::kRows; ++r) {
      const auto x = platform::ld_shared<u32x2>(X::row(cta, r) + 2 * k);
      MEGALITH_UNROLL_ALL
      for (int s = 0; s < L::kTileStrips; ++s) {
        if (s >= strips)
          continue;
        const auto w = platform::ld_shared<u32x4>(a + s * L::kStripBytes);
        float &sum = sums.v[s][r];
        sum = platform::fmaf_(bits_to_float(w.x), lo16(x.x), sum);
        sum = platform::fmaf_(bits_to_float(w.y), hi16(x.x), sum);
        sum = platform::fmaf_(bits_to_float(w.z), lo16(x.y), sum);
        sum = platform::fmaf_(bits_to_float(w.w), hi16(x.y), sum);
      }
    }
  }
}

/// The same for all blocks of piece `piece`, one strip with one row: all that they multiply is
/// asked for before the first product, which waits for nothing but the sum then.
template <class L, class R, class X, class Cta>
MEGALITH_DEVICE void add_wide_blocks(const Cta &cta, float &sum, int slot, int piece,
                                     uint32_t block_bytes) {
  const int unit = cta.lane / 8;
  if (unit >= L::kBlockSteps)
    return;
  const unsigned char *a =
      R::slot(cta, slot) + 128 * (L::kBlockSteps * cta.role_warp + unit) + 16 * (cta.lane % 8);
  const unsigned char *x = X::row(cta, 0) +
                           2 * (X::kChunk * cta.role_warp + 4 * (cta.lane % 4) + 16 * unit) +
                           32 * L::kBlockSteps * L::kPieceBlocks * piece;
  u32x4 weights[L::kPieceBlocks];
  u32x2 inputs[L::kPieceBlocks];
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < L::kPieceBlocks; ++i) {
    weights[i] = platform::ld_shared<u32x4>(a + i * block_bytes);
    inputs[i] = platform::ld_shared<u32x2>(x + 32 * L::kBlockSteps * i);
  }
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < L::kPieceBlocks; ++i) {
    const u32x4 &w = weights[i];
    sum = platform::fmaf_(bits_to_float(w.x), lo16(inputs[i].x), sum);
    sum = platform::fmaf_(bits_to_float(w.y), hi16(inputs[i].x), sum);
    sum = platform::fmaf_(bits_to_float(w.z), lo16(inputs[i].y), sum);
    sum = platform::fmaf_(bits_to_float(w.w), hi16(inputs[i].y), sum);
  }
}
} // namespace detail

/// Consumer warp: adds the product of one piece, in slot `slot` of R, with the rows of X, or with a
/// part of K of them, from whose first block `block` counts.
template <class L, class R, class X, class Cta>
MEGALITH_DEVICE void wide_block(const Cta &cta, WideSums<L, Cta> &sums, int slot, int tile,
                                int block) {
  detail::add_wide_block<L, R, X>(cta, sums, slot, tile, block, 0);
  platform::warp_sync(); // all have read the slot
}

/// The same for piece `piece` of several blocks, ascending.
template <class L, class R, class X, class Cta>
MEGALITH_DEVICE void wide_blocks(const Cta &cta, WideSums<L, Cta> &sums, int slot, int tile,
                                 int piece) {
  const uint32_t block_bytes = tile_strips<L>(cta, tile) * L::kStripBytes;
  if constexpr (L::kTileStrips == 1 && Cta::Config::kRows == 1) {
    detail::add_wide_blocks<L, R, X>(cta, sums.v[0][0], slot, piece, block_bytes);
  } else {
    MEGALITH_UNROLL(1)
    for (int i = 0; i < L::kPieceBlocks; ++i)
      detail::add_wide_block<L, R, X>(cta, sums, slot, tile, piece * L::kPieceBlocks + i,
                                      i * block_bytes);
  }
  platform::warp_sync(); // all have read the slot
}

/// Consumer warp: stores its chunk's sums in an acquired slot of P, where store_part would.
template <class P, class L, class Cta>
MEGALITH_DEVICE void store_wide_part(const Cta &cta, int slot, const WideSums<L, Cta> &sums) {
  // Rows g of the tile, then 256 B further rows g + 8: the strips' second outputs.
  unsigned char *at = cta.smem + P::kOffset + slot * P::kSlotBytes +
                      cta.role_warp * P::kChunkBytes + 256 * (cta.lane / 4 % 2);
  MEGALITH_UNROLL_ALL
  for (int s = 0; s < L::kTileStrips; ++s) {
    MEGALITH_UNROLL_ALL
    for (int r = 0; r < Cta::Config::kRows; ++r) {
      float sum = sums.v[s][r];
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < 4; ++i)
        sum += platform::shfl_xor(sum, i < 2 ? 1 << i : 2 << i); // not 4: that is the row
      if (cta.lane % 4 != 0 || cta.lane >= 8)
        continue;
      if constexpr (Cta::Config::kRows == 1)
        platform::st_shared(P::strip(cta, slot, s) + 8 * cta.role_warp + 4 * (cta.lane / 4), sum);
      else
        platform::st_shared(at + r / 8 * P::kTileBytes + 32 * s + 4 * (r % 8), sum);
    }
  }
}

} // namespace megalith
