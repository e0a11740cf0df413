// Linear layers over strip-packed weights: which pieces an SM streams, and what a consumer warp
// does with one. Layout: docs/kernel-contract.md section 1.
//
// An SM owns a slice of a matrix's strips (pairs of output rows) and walks it in m-tiles of up to 8
// strips, each block by block along K. A warp's accumulators stay in registers over all blocks of
// an m-tile; its sum is one chunk of K, which the epilogue warp adds to the other seven.
#pragma once

#include "codegen/device/parts.cuh"
#include "codegen/device/rows.cuh"
#include "codegen/device/stream.cuh"

namespace megalith {

/// Strips of an m-tile that tensor cores multiply.
inline constexpr int kTileStrips = 8;

/// A bf16 matrix `[Outputs][Inputs]`, strip-packed in buffer slot `Buffer`; an expert bank is such
/// matrices one after another. SM i owns strips [i * Unit, (i + 1) * Unit). For a gate/up matrix,
/// Outputs counts both and a strip is (gate i, up i). A ring piece is PieceBlocks consecutive
/// blocks of an m-tile, which divide those of the matrix: several where the slice is narrow.
template <int Buffer, int Outputs, int Inputs, int Unit, int PieceBlocks = 1> struct Linear {
  static constexpr int kPieceBlocks = PieceBlocks;
  static constexpr int kBuffer = Buffer, kOutputs = Outputs, kInputs = Inputs, kUnit = Unit;
  static constexpr int kTileStrips = megalith::kTileStrips;
  static constexpr int kStrips = (Outputs + 1) / 2;
  static constexpr int kChunkSteps = kPaddedWidth<Inputs> / 128; // k16 steps of a warp's chunk
  static constexpr int kBlockSteps = kChunkSteps % 4 == 0   ? 4
                                     : kChunkSteps % 3 == 0 ? 3
                                     : kChunkSteps % 2 == 0 ? 2
                                                            : 1; // of those, in one block
  static constexpr int kBlocks = kChunkSteps / kBlockSteps;
  static_assert(kBlocks % PieceBlocks == 0, "pieces are equal");
  static constexpr int kTopStrips = Unit < kTileStrips ? Unit : kTileStrips; // of an m-tile
  static constexpr int kLaneColumns = 4;                     // consecutive, of each step
  static constexpr uint32_t kStripBytes = 512 * kBlockSteps; // of one block
  static constexpr uint64_t kMatrixBytes = uint64_t{kStripBytes} * kStrips * kBlocks;
};

/// The last m-tile of the slices of L where they are not whole ones: narrower, and so in pieces of
/// more blocks.
template <class L, int PieceBlocks> struct LastTile : L {
  static constexpr int kPieceBlocks = PieceBlocks;
  static constexpr int kTopStrips = L::kUnit % L::kTileStrips;
  static_assert(kTopStrips > 0 && L::kBlocks % PieceBlocks == 0);
};

/// Slices of L as one m-tile of more than eight strips: two fragments of sums.
template <class L> struct WholeSlice : L {
  static constexpr int kTileStrips = L::kUnit, kTopStrips = L::kUnit;
  static_assert(kTileStrips > megalith::kTileStrips && kTileStrips <= 2 * megalith::kTileStrips);
};

/// Strips of L this SM owns; 0 on SMs past the end.
template <class L, class Cta> MEGALITH_DEVICE int slice_strips(const Cta &cta) {
  const int left = L::kStrips - cta.sm * L::kUnit;
  return left < 0 ? 0 : left < L::kUnit ? left : L::kUnit;
}

/// M-tiles of this SM's slice.
template <class L, class Cta> MEGALITH_DEVICE int tiles(const Cta &cta) {
  return (slice_strips<L>(cta) + L::kTileStrips - 1) / L::kTileStrips;
}

/// First strip of m-tile `tile`, counted in the whole matrix.
template <class L, class Cta> MEGALITH_DEVICE int tile_first(const Cta &cta, int tile) {
  return cta.sm * L::kUnit + tile * L::kTileStrips;
}

/// Strips of m-tile `tile`: 1..L::kTileStrips.
template <class L, class Cta> MEGALITH_DEVICE int tile_strips(const Cta &cta, int tile) {
  const int left = slice_strips<L>(cta) - tile * L::kTileStrips;
  return left < L::kTileStrips ? left : L::kTileStrips;
}

/// Producer: copies the piece (m-tile, block) of matrix `expert` to the next, acquired, slot of R;
/// `block` counts pieces where those are several blocks, which then lie one after another.
template <class Full, class R, class L, class Cta>
MEGALITH_DEVICE void copy_piece(Cta &cta, int tile, int block, int expert = 0) {
  static_assert(L::kTileStrips * L::kStripBytes <= R::kSlotBytes);
  const auto *matrix = static_cast<const unsigned char *>(cta.template buffer<L::kBuffer>());
  const uint32_t strip = block * L::kPieceBlocks * L::kStrips + tile_first<L>(cta, tile);
  const unsigned char *from = matrix + expert * L::kMatrixBytes + uint64_t{strip} * L::kStripBytes;
  const uint32_t bytes = tile_strips<L>(cta, tile) * L::kStripBytes;
  if constexpr (L::kPieceBlocks == 1) {
    copy_bulk<Full, R>(cta, from, bytes);
  } else {
    static_assert(L::kPieceBlocks * L::kTopStrips * L::kStripBytes <= R::kSlotBytes);
    copy_bulk_parts<Full, R>(cta, from, bytes, L::kPieceBlocks, L::kStrips * L::kStripBytes);
  }
}

/// Pieces 0 .. pieces - 1 of an m-tile of matrix `expert`, as copy_piece copies each.
template <class L, class Cta>
MEGALITH_DEVICE PieceRun piece_run(const Cta &cta, int tile, int pieces, int expert = 0) {
  constexpr int64_t kBlockStride = int64_t{L::kStrips} * L::kStripBytes;
  const auto *matrix = static_cast<const unsigned char *>(cta.template buffer<L::kBuffer>());
  PieceRun run;
  run.from =
      matrix + expert * L::kMatrixBytes + uint64_t{L::kStripBytes} * tile_first<L>(cta, tile);
  run.bytes = run.more_bytes = tile_strips<L>(cta, tile) * L::kStripBytes;
  run.pieces = pieces;
  run.piece_stride = kBlockStride * L::kPieceBlocks;
  run.parts = L::kPieceBlocks;
  run.part_stride = kBlockStride;
  return run;
}

/// Producer: the first `pieces` pieces of an m-tile of matrix `expert`, one after another, each as
/// acquire<Free>, pace<Full, Window> and copy_piece<Full, R, L> would.
template <class Free, class Full, int Window, class R, class L, class Cta>
MEGALITH_DEVICE void stream_pieces(Cta &cta, int tile, int pieces, int expert = 0) {
  static_assert(L::kPieceBlocks * L::kTopStrips * L::kStripBytes <= R::kSlotBytes);
  stream<Free, Full, Window, R>(cta, piece_run<L>(cta, tile, pieces, expert));
}

/// Producer: the same of pieces `first` .. first + pieces - 1.
template <class Free, class Full, int Window, class R, class L, class Cta>
MEGALITH_DEVICE void stream_pieces_from(Cta &cta, int tile, int first, int pieces) {
  static_assert(L::kPieceBlocks * L::kTopStrips * L::kStripBytes <= R::kSlotBytes);
  PieceRun run = piece_run<L>(cta, tile, pieces);
  run.from += first * run.piece_stride;
  stream<Free, Full, Window, R>(cta, run);
}

/// A consumer lane's column of the B operand: row lane / 4 of the activations, at this lane's k of
/// this warp's chunk; zero where there is no such row.
struct Column {
  const unsigned char *at;
  bool valid;
};

namespace detail {
template <class L, class X, class Cta>
MEGALITH_DEVICE Column column_of(const Cta &cta, int row, bool valid) {
  // Whole rows, or a part of K at a time: of each chunk, the columns of that part.
  static_assert(L::kInputs % X::kWidth == 0 && (L::kInputs == X::kWidth || X::kWidth % 128 == 0));
  const uint32_t k = X::kChunk * cta.role_warp + L::kLaneColumns * (cta.lane % 4);
  return {X::row(cta, valid ? row : 0) + 2 * k, valid};
}
} // namespace detail

/// Rows 0 .. kRows-1 of X as columns.
template <class L, class X, class Cta> MEGALITH_DEVICE Column dense_column(const Cta &cta) {
  const int row = cta.lane / 4;
  return detail::column_of<L, X>(cta, row, row < Cta::Config::kRows);
}

namespace detail {
template <class L, class X, int PairsPerRow, class Cta>
MEGALITH_DEVICE Column column_of_pair(const Cta &cta, const int32_t *pairs, int count, int i) {
  const bool valid = i < count;
  if constexpr (PairsPerRow > 1 && Cta::Config::kRows == 1) // all are of the only row
    return column_of<L, X>(cta, 0, valid);
  const int pair = valid ? platform::ld_shared<int32_t>(pairs + i) : 0;
  return column_of<L, X>(cta, pair / PairsPerRow, valid);
}
} // namespace detail

/// The rows of an expert's pairs as columns: column i is row `pairs[i] / PairsPerRow` of X for
/// i < count <= 8. PairsPerRow is k where X holds a row for every token, 1 where for every pair.
template <class L, class X, int PairsPerRow, class Cta>
MEGALITH_DEVICE Column gathered_column(const Cta &cta, const int32_t *pairs, int count) {
  return detail::column_of_pair<L, X, PairsPerRow>(cta, pairs, count, cta.lane / 4);
}

/// Two column tiles, for buckets of 16: rows (or pairs) lane / 4 and 8 + lane / 4. `count` is how
/// many there are, the same in all lanes: with 8 or less the second tile is not multiplied.
struct Columns {
  Column low, high;
  int count;
};

/// Rows 0 .. kRows-1 of X as columns, kRows = 16.
template <class L, class X, class Cta> MEGALITH_DEVICE Columns dense_columns(const Cta &cta) {
  constexpr int kRows = Cta::Config::kRows;
  static_assert(kRows > 8 && kRows <= 16);
  const int row = cta.lane / 4;
  return {detail::column_of<L, X>(cta, row, true),
          detail::column_of<L, X>(cta, row + 8, row + 8 < kRows), kRows};
}

/// As gathered_column, with count <= 16.
template <class L, class X, int PairsPerRow, class Cta>
MEGALITH_DEVICE Columns gathered_columns(const Cta &cta, const int32_t *pairs, int count) {
  const int i = cta.lane / 4;
  return {detail::column_of_pair<L, X, PairsPerRow>(cta, pairs, count, i),
          detail::column_of_pair<L, X, PairsPerRow>(cta, pairs, count, i + 8), count};
}

namespace detail {
/// The steps of one piece, in slot `slot` of R, with `column`.
template <class L, class R, class Cta>
MEGALITH_DEVICE platform::MmaLoop piece_loop(const Cta &cta, int slot, int tile, int block,
                                             const Column &column) {
  const int g = cta.lane / 4, t = cta.lane % 4;
  platform::MmaLoop loop;
  loop.steps = L::kBlockSteps;
  loop.a = R::slot(cta, slot) + g * L::kStripBytes + 16 * t;
  loop.j0 = cta.role_warp * L::kBlockSteps;
  loop.swap = (tile_first<L>(cta, tile) + g) & 1;
  loop.a_stride = 64;
  loop.a_valid = g < tile_strips<L>(cta, tile);
  loop.b = column.at + 32 * L::kBlockSteps * block;
  loop.b_stride = 32;
  loop.b_valid = column.valid;
  return loop;
}
} // namespace detail

/// Consumer warp: adds the product of one piece, in slot `slot` of R, with `column` to `sum`.
/// `block` counts from the first block of the rows' part of K.
template <class L, class R, class Cta>
MEGALITH_DEVICE void gemv_block(const Cta &cta, ChunkSum &sum, int slot, int tile, int block,
                                const Column &column) {
  platform::mma_k_loop(sum.v, detail::piece_loop<L, R>(cta, slot, tile, block, column));
}

/// The same with two column tiles: the weights are loaded once for both.
template <class L, class R, class Cta>
MEGALITH_DEVICE void gemv_block(const Cta &cta, ChunkSums &sum, int slot, int tile, int block,
                                const Columns &columns) {
  const platform::MmaLoop loop = detail::piece_loop<L, R>(cta, slot, tile, block, columns.low);
  if (columns.count > 8)
    platform::mma_k_columns(sum.low.v, sum.high.v, loop,
                            columns.high.at + 32 * L::kBlockSteps * block, columns.high.valid);
  else
    platform::mma_k_loop(sum.low.v, loop);
}

/// Consumer warp: the same for piece `piece` of several blocks, which meet the sum ascending.
template <class L, class R, class Cta>
MEGALITH_DEVICE void gemv_blocks(const Cta &cta, ChunkSum &sum, int slot, int tile, int piece,
                                 const Column &column) {
  platform::mma_k_blocks<L::kBlockSteps, 1>(
      sum.v, detail::piece_loop<L, R>(cta, slot, tile, piece * L::kPieceBlocks, column),
      L::kPieceBlocks, tile_strips<L>(cta, tile) * L::kStripBytes);
}
template <class L, class R, class Cta>
MEGALITH_DEVICE void gemv_blocks(const Cta &cta, ChunkSums &sum, int slot, int tile, int piece,
                                 const Columns &columns) {
  const int first = piece * L::kPieceBlocks;
  const int block_bytes = tile_strips<L>(cta, tile) * L::kStripBytes;
  platform::MmaLoop loop = detail::piece_loop<L, R>(cta, slot, tile, first, columns.low);
  if (!loop.a_valid) // reads the first strip: behind the last block's are other slots, or nothing
    loop.a = R::slot(cta, slot) + 16 * (cta.lane % 4);
  const unsigned char *high = columns.high.at + 32 * L::kBlockSteps * first;
  MEGALITH_UNROLL(1)
  for (int block = 0; block < L::kPieceBlocks; ++block) {
    if (columns.count > 8)
      platform::mma_k_columns(sum.low.v, sum.high.v, loop, high, columns.high.valid);
    else
      platform::mma_k_loop(sum.low.v, loop);
    loop.a += block_bytes;
    loop.b += 32 * L::kBlockSteps;
    high += 32 * L::kBlockSteps;
  }
}

namespace detail {
/// Strips of which a product has room for two k16 steps.
inline constexpr int kHalfStrips = kTileStrips / 2;
/// Whether blocks of so many steps of so few strips go two steps a product: lanes g < 4 have the
/// strips of an even step and column 0 its activations, the other lanes and column 1 those of the
/// next. Of only one row, as it needs two columns.
template <class Cta> MEGALITH_DEVICE constexpr bool is_narrow(int strips, int block_steps) {
  return Cta::Config::kRows == 1 && strips <= kHalfStrips && block_steps % 2 == 0;
}

/// What such products add up to, as the sums of even and odd steps: column 1 of the other lanes.
MEGALITH_DEVICE ChunkSum apart(const float (&sum)[4]) {
  constexpr int kOther = 4 * kHalfStrips;
  const float low = platform::shfl_xor(sum[1], kOther), high = platform::shfl_xor(sum[3], kOther);
  return {{{sum[0], sum[1], sum[2], sum[3]}, {low, low, high, high}}};
}
} // namespace detail

/// Operands in registers of the block of a WholeSlice L that is multiplied next; `rest`: A of its
/// second m-tile, narrow or not (detail::is_narrow).
template <class L> struct Held {
  static constexpr bool kIsNarrow =
      L::kUnit - kTileStrips <= detail::kHalfStrips && L::kBlockSteps % 2 == 0;
  static constexpr int kRest = kIsNarrow ? L::kBlockSteps / 2 : L::kBlockSteps;
  u32x4 a[L::kBlockSteps] = {}, rest[kRest] = {};
  u32x2 b[L::kBlockSteps] = {};
};

/// Consumer warp of the only row: as gemv_block of both m-tiles of a WholeSlice, whose sums are
/// `sum` and `rest`, but one block behind: adds what `held` holds, of the block before, and holds
/// this one. The slot has been read then. So a warp waits for a piece, and for what it reads of it,
/// while products go on.
template <class L, class R, class Cta>
MEGALITH_DEVICE void gemv_ahead(const Cta &cta, ChunkSum &sum, ChunkSum &rest, Held<L> &held,
                                int slot, int tile, int block, const Column &column) {
  static_assert(L::kPieceBlocks == 1 && Cta::Config::kRows == 1);
  constexpr bool kIsNarrow = Held<L>::kIsNarrow;
  constexpr int kEvery = kIsNarrow ? 2 : 1;
  const platform::MmaLoop loop = detail::piece_loop<L, R>(cta, slot, tile, block, column);
  const int g = cta.lane / 4, strip = kIsNarrow ? g % detail::kHalfStrips : g;
  // Strips that are even and odd as those of the first m-tile.
  const int step = g / detail::kHalfStrips;
  const int swap = kIsNarrow ? ((tile_first<L>(cta, tile) + strip) & 1) ^ step : loop.swap;
  const bool is_rest = kTileStrips + strip < tile_strips<L>(cta, tile);
  const unsigned char *others = loop.a + (kTileStrips + strip - g) * L::kStripBytes;
  platform::mma_k_turn<L::kBlockSteps, Held<L>::kRest>(
      sum.v, rest.v, held.a, held.rest, held.b, block > 0, g < kEvery, [&](int s) {
        const bool is_both = kIsNarrow && s % 2 == 0; // column 1 is of the next step
        held.b[s] =
            platform::ld_shared<u32x2>(loop.b + s * loop.b_stride + (is_both ? 32 * (g & 1) : 0));
        if (loop.a_valid)
          held.a[s] = platform::ld_shared<u32x4>(loop.a + ((loop.j0 + s) ^ loop.swap) * 64);
        if (s % kEvery == 0 && is_rest)
          held.rest[s / kEvery] = platform::ld_shared<u32x4>(others + ((loop.j0 + s) ^ swap) * 64);
      });
}

/// Behind the last block: what is held still.
template <class L, class Cta>
MEGALITH_DEVICE void gemv_held(const Cta &cta, ChunkSum &sum, ChunkSum &rest, const Held<L> &held,
                               const Column &) {
  platform::mma_k_turn<L::kBlockSteps, Held<L>::kRest>(
      sum.v, rest.v, held.a, held.rest, held.b, true, cta.lane / 4 < (Held<L>::kIsNarrow ? 2 : 1),
      [](int) {});
  if constexpr (Held<L>::kIsNarrow) {
    const float both[4] = {rest.v[0][0], rest.v[0][1], rest.v[0][2], rest.v[0][3]};
    rest = detail::apart(both);
  }
}

} // namespace megalith
