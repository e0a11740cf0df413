// One row's products of an m-tile's pieces, one piece after another: each is multiplied while the
// next is looked at, and what is in the ring before the column is there may be held in registers.
#pragma once

#include "codegen/device/gemv.cuh"

namespace megalith {

namespace detail {
/// What stages of equal strips and pieces share of a product.
template <int BlockSteps, uint32_t StripBytes, bool IsNarrow, int PieceBlocks> struct StripShape {
  static constexpr int kBlockSteps = BlockSteps;
  static constexpr uint32_t kStripBytes = StripBytes;
  static constexpr bool kIsNarrow = IsNarrow;
  static constexpr int kEvery = IsNarrow ? 2 : 1; // steps of a product
  // Of a piece a lane holds the operands of so many blocks at a time: of about four products.
  static constexpr int kUnitBlocks = IsNarrow && PieceBlocks % 2 == 0 ? 2 : 1;
  static constexpr int kUnits = PieceBlocks / kUnitBlocks;
  static constexpr int kHeld = kUnitBlocks * BlockSteps / kEvery;
};

/// What all pieces' products of an m-tile have in common: of `strips` strips, from number `first`
/// of the matrix on, that of this lane, and where it lies in a slot of R.
template <class Shape> struct StripLane {
  platform::MmaLoop loop; // without operands
  int strip, block_bytes; // blocks of A are so far apart
  int lane;

  template <class Cta>
  MEGALITH_DEVICE StripLane(const Cta &cta, int strips, int first) : lane(cta.lane) {
    const int g = cta.lane / 4, step = Shape::kIsNarrow ? g / kHalfStrips : 0;
    strip = Shape::kIsNarrow ? g % kHalfStrips : g;
    block_bytes = strips * Shape::kStripBytes;
    loop.steps = Shape::kBlockSteps;
    loop.j0 = cta.role_warp * Shape::kBlockSteps;
    loop.swap = ((first + strip) & 1) ^ step;
    loop.a_stride = 64;
    loop.a_valid = strip < strips;
    loop.b_stride = 32;
  }
  template <class R, class Cta> MEGALITH_DEVICE void begin_piece(const Cta &cta, int slot) {
    loop.a = R::slot(cta, slot) + strip * Shape::kStripBytes + 16 * (lane % 4);
  }
  template <class Cta> MEGALITH_DEVICE void begin_column(const Cta &cta, const Column &column) {
    loop.b = column.at;
    loop.b_valid = column.valid;
    if constexpr (Shape::kIsNarrow) {
      const int g = lane / 4;
      const auto at = static_cast<uint32_t>(column.at - cta.smem);
      loop.b = cta.smem + platform::shfl(at, lane % 4) + 32 * (g & 1);
      loop.b_valid = g < 2;
    }
  }
};

/// Operands of a unit, in registers: those that the lane has no row or column for mean nothing.
template <class Shape> struct HeldUnit {
  u32x4 a[Shape::kHeld] = {};
  u32x2 b[Shape::kHeld] = {};

  /// They read from where the loop stands, and move it on.
  MEGALITH_DEVICE void load(StripLane<Shape> &at) {
    load_a(at);
    load_b(at);
  }
  MEGALITH_DEVICE void load_a(StripLane<Shape> &at) {
    platform::MmaLoop &loop = at.loop;
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < Shape::kHeld; ++i) {
      const int block = i * Shape::kEvery / Shape::kBlockSteps;
      const int s = i * Shape::kEvery % Shape::kBlockSteps;
      if (loop.a_valid)
        a[i] = platform::ld_shared<u32x4>(loop.a + block * at.block_bytes +
                                          ((loop.j0 + s) ^ loop.swap) * loop.a_stride);
    }
    loop.a += Shape::kUnitBlocks * at.block_bytes;
  }
  MEGALITH_DEVICE void load_b(StripLane<Shape> &at) {
    platform::MmaLoop &loop = at.loop;
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < Shape::kHeld; ++i) {
      const int block = i * Shape::kEvery / Shape::kBlockSteps;
      const int s = i * Shape::kEvery % Shape::kBlockSteps;
      b[i] = platform::ld_shared<u32x2>(loop.b + (block * Shape::kBlockSteps + s) * loop.b_stride);
    }
    loop.b += Shape::kUnitBlocks * Shape::kBlockSteps * loop.b_stride;
  }
};

/// The sums that products of Shape add to. Of narrow ones a ChunkSum's first half is those sums
/// still: `apart` has only brought the odd steps' to its second.
template <class Shape> struct RunSums {
  static constexpr int kApart = Shape::kIsNarrow ? 1 : 2;
  float v[kApart][4];

  MEGALITH_DEVICE explicit RunSums(const ChunkSum &sum) {
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < 4 * kApart; ++i)
      v[i / 4][i % 4] = sum.v[i / 4][i % 4];
  }
  MEGALITH_DEVICE ChunkSum whole() const {
    if constexpr (Shape::kIsNarrow)
      return apart(v[0]);
    else
      return {{{v[0][0], v[0][1], v[0][2], v[0][3]}, {v[1][0], v[1][1], v[1][2], v[1][3]}}};
  }
};

/// A chunk, and what was recorded of its pieces.
template <bool IsTraced> struct RunProduct : ChunkSum, PieceClocks<IsTraced> {};

/// `start` and the chunk of an m-tile of `strips` strips from number `first` of the matrix on,
/// `pieces` pieces from uses number `use` of Full and Free on. A piece is multiplied while the next
/// one's barrier is looked at, and given back before: neither the look nor the loads are waited
/// for. Two pieces a turn, since ptxas puts a YIELD before each branch back (50 clocks on an H200).
template <class Full, class Free, class R, class Shape, bool IsTraced>
MEGALITH_COLD RunProduct<IsTraced> product_of_run(const LaunchArgs &args, uint64_t n, uint32_t use,
                                                  ChunkSum start, Column column, int pieces,
                                                  int strips, int first) {
  constexpr int kTurn = 2;
  const Called cta = {args, n};
  StripLane<Shape> at(cta, strips, first);
  at.begin_column(cta, column);
  RunProduct<IsTraced> product;
  RunSums<Shape> sums(start);
  HeldUnit<Shape> held;
  bool is_held = false;
  int slot = use % R::kSlots;
  uint32_t parity = use / R::kSlots & 1;
  MEGALITH_UNROLL(1)
  do {
    MEGALITH_UNROLL_ALL
    for (int turn = 0; turn < kTurn; ++turn) {
      platform::mark<platform::verb::Wait, Full>();
      const platform::BarrierRef barrier = platform::barrier_ref(Full::barrier(cta, slot));
      const bool is_there = platform::mbarrier_try_wait(barrier, parity);
      platform::mma_held(sums.v, held.a, held.b, is_held, at.loop.b_valid);
      product.begin(cta.lane);
      if (!is_there)
        await_slowly(cta.args, barrier, parity, Full::kId, use, cta.n);
      product.end(cta.lane);
      platform::mark_end();
      is_held = true;
      at.template begin_piece<R>(cta, slot);
      MEGALITH_UNROLL_ALL
      for (int unit = 0; unit < Shape::kUnits; ++unit) {
        if (unit > 0)
          platform::mma_held(sums.v, held.a, held.b, true, at.loop.b_valid);
        held.load(at);
      }
      platform::mark<platform::verb::Release, Free>();
      arrive<Free>(cta, slot);
      platform::mark_end();
      ++use;
      const bool is_last = slot + 1 == R::kSlots;
      slot = is_last ? 0 : slot + 1;
      parity ^= is_last;
      if (--pieces == 0)
        break;
    }
  } while (pieces > 0);
  platform::mma_held(sums.v, held.a, held.b, true, at.loop.b_valid);
  ChunkSum &whole = product;
  whole = sums.whole();
  return product;
}

template <class L, class Cta>
using ShapeOf = StripShape<L::kBlockSteps, L::kStripBytes,
                           is_narrow<Cta>(L::kTopStrips, L::kBlockSteps), L::kPieceBlocks>;
} // namespace detail

/// Consumer warp: adds the `pieces` pieces of an m-tile from number `first` on to `sum`, which has
/// those before, each as wait<Full>, gemv_blocks<L, R> and release<Free> would. Out of line: stages
/// whose strips and pieces are alike share the instructions, which come from L2 once then.
template <class Full, class Free, class R, class L, class Cta>
MEGALITH_DEVICE void multiply_pieces_from(Cta &cta, ChunkSum &sum, int tile, int first, int pieces,
                                          const Column &column) {
  static_assert(Full::kSlots == R::kSlots && Free::kSlots == R::kSlots);
  using Shape = detail::ShapeOf<L, Cta>;
  constexpr int kPieceBytes = 32 * L::kBlockSteps * L::kPieceBlocks; // of a column
  const Use use = cta.template coming_use<Full::kId, R::kSlots>();
  const auto product = detail::product_of_run<Full, Free, R, Shape, kTraced<typename Cta::Config>>(
      cta.args, cta.n, use.number, sum, {column.at + kPieceBytes * first, column.valid}, pieces,
      tile_strips<L>(cta, tile), tile_first<L>(cta, tile));
  sum = product;
  product.add_to(cta);
  cta.template count_uses<Full::kId, R::kSlots>(pieces);
  cta.template count_uses<Free::kId, R::kSlots>(pieces);
}

/// The same of an m-tile's `pieces` pieces.
template <class Full, class Free, class R, class L, class Cta>
MEGALITH_DEVICE void multiply_pieces(Cta &cta, ChunkSum &sum, int tile, int pieces,
                                     const Column &column) {
  multiply_pieces_from<Full, Free, R, L>(cta, sum, tile, 0, pieces, column);
}

/// A lane's weights of the first Pieces pieces of L's only m-tile.
template <class L, class Cta, int Pieces> struct HeldPieces {
  using Shape = detail::ShapeOf<L, Cta>;
  detail::HeldUnit<Shape> unit[Pieces][Shape::kUnits]; // their columns' registers are not used
};

/// Consumer warp of the only row, before the words come that it will multiply: keeps its part of
/// piece `piece` (a constant), which is in slot `slot` of R. The slot has been read then. So what
/// the ring brought early is out of it, and a product has its weights when it has its column.
template <class L, class R, int Pieces, class Cta>
MEGALITH_DEVICE void hold_piece(const Cta &cta, HeldPieces<L, Cta, Pieces> &held, int slot,
                                int piece) {
  static_assert(Cta::Config::kRows == 1);
  detail::StripLane<detail::ShapeOf<L, Cta>> at(cta, tile_strips<L>(cta, 0), tile_first<L>(cta, 0));
  at.template begin_piece<R>(cta, slot);
  MEGALITH_UNROLL_ALL
  for (auto &unit : held.unit[piece])
    unit.load_a(at);
}

/// Consumer warp: adds the products of the pieces that `held` has with `column` to `sum`, as
/// multiply_pieces of these pieces would.
template <class L, int Pieces, class Cta>
MEGALITH_DEVICE void multiply_held(const Cta &cta, ChunkSum &sum, HeldPieces<L, Cta, Pieces> &held,
                                   const Column &column) {
  using Shape = detail::ShapeOf<L, Cta>;
  detail::StripLane<Shape> at(cta, tile_strips<L>(cta, 0), tile_first<L>(cta, 0));
  at.begin_column(cta, column);
  detail::RunSums<Shape> sums(sum);
  MEGALITH_UNROLL_ALL
  for (auto &units : held.unit)
    MEGALITH_UNROLL_ALL
  for (auto &unit : units) {
    unit.load_b(at);
    platform::mma_held(sums.v, unit.a, unit.b, true, at.loop.b_valid);
  }
  sum = sums.whole();
}

/// The same with two column tiles, in line.
template <class Full, class Free, class R, class L, class Cta>
MEGALITH_DEVICE void multiply_pieces(Cta &cta, ChunkSums &sum, int tile, int pieces,
                                     const Columns &columns) {
  MEGALITH_UNROLL(1)
  for (int piece = 0; piece < pieces; ++piece) {
    int slot;
    if constexpr (kTraced<typename Cta::Config>)
      slot = timed_piece<Full>(cta);
    else
      slot = wait<Full>(cta);
    gemv_blocks<L, R>(cta, sum, slot, tile, piece, columns);
    release<Free>(cta);
  }
}

} // namespace megalith
