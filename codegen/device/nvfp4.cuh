// NVFP4 weights as the 16-row operand of mma: four-bit codes and their scales become bf16 numbers
// in registers, exactly. Layout: docs/kernel-contract.md section 1, "NVFP4 matrices".
//
// An operand is code * scale * 2^-14. Codes are placed so that masks and shifts leave a bf16 number
// code * 2^-126, which may be subnormal: mma must not see those (PTX leaves them open), but a bf16
// multiplication takes them, and the scale times 2^112 makes every product normal. Both have few
// bits, so nothing is rounded. The matrix's own factors, times 2^14, multiply the finished sum.
//
// A tile is 16 rows: eight strips, an m-tile of gemv.cuh, whose sums, columns and epilogues these
// functions share. An SM owns a slice of whole tiles (Nvfp4Slices), or tiles of all experts of a
// step are dealt out among the SMs, where one expert has too few for all of them (Nvfp4); `tile`
// counts those of the slice, or those of the matrix.
#pragma once

#include "codegen/device/gemv.cuh"

namespace megalith {

namespace detail {
/// The largest multiple of Group up to Steps that divides Chunk, which Group does.
template <int Chunk, int Group, int Steps>
inline constexpr int kStepsUpTo =
    Chunk % Steps == 0 ? Steps : kStepsUpTo<Chunk, Group, Steps - Group>;
template <int Chunk, int Group> inline constexpr int kStepsUpTo<Chunk, Group, Group> = Group;

/// The least multiple of Group from Steps to 28 that divides Chunk, or 0.
template <int Chunk, int Group, int Steps, bool Fits = Steps <= 28>
inline constexpr int kStepsFrom =
    Chunk % Steps == 0 ? Steps : kStepsFrom<Chunk, Group, Steps + Group>;
template <int Chunk, int Group, int Steps>
inline constexpr int kStepsFrom<Chunk, Group, Steps, false> = 0;
} // namespace detail

/// An NVFP4 matrix `[Outputs][Inputs]` in buffer slot `Buffer`, or a bank of such matrices. SMs get
/// `Deal` neighbouring tiles at a time: two, where words of 16 gate/up pairs are to be one sector.
template <int Buffer, int Outputs, int Inputs, int Deal = 1> struct Nvfp4 {
  static constexpr int kTileStrips = megalith::kTileStrips;
  static constexpr bool kNvfp4 = true, kDealt = true;
  static constexpr int kBuffer = Buffer, kOutputs = Outputs, kInputs = Inputs, kDeal = Deal;
  static constexpr int kStrips = (Outputs + 1) / 2, kUnit = kTileStrips * Deal;
  static constexpr int kTiles = (Outputs + 15) / 16, kUnits = kTiles / Deal;
  static_assert(Inputs % 16 == 0, "a row is whole blocks of 16 columns");
  static_assert(kTiles % Deal == 0, "tiles are dealt out whole units at a time");

  static constexpr int kChunkSteps = kPaddedWidth<Inputs> / 128; // k16 steps of a warp's chunk
  static constexpr int kGroup = kChunkSteps % 4 == 0 ? 4 : kChunkSteps % 2 == 0 ? 2 : 1;
  static constexpr int kLaneColumns = 4 * kGroup; // consecutive, of kGroup steps

  static constexpr int kFewSteps = detail::kStepsUpTo<kChunkSteps, kGroup, 16>;
  static constexpr int kMoreSteps = detail::kStepsFrom<kChunkSteps, kGroup, 16 + kGroup>;
  static constexpr int kBlockSteps = // of a chunk, in one block: pieces of 8 to 32 KB if possible
      kFewSteps >= 8 || kMoreSteps == 0 ? kFewSteps : kMoreSteps;
  static constexpr int kBlocks = kChunkSteps / kBlockSteps;
  static constexpr uint32_t kChunkBytes = 144 * kBlockSteps; // codes and scales of one warp
  static constexpr uint32_t kPieceBytes = kConsumerWarps * kChunkBytes;
  static constexpr uint64_t kFactors = uint64_t{kPieceBytes} * kTiles * kBlocks;
  static constexpr uint64_t kMatrixBytes = kFactors + 128;
};

/// The same matrix or bank where SM i owns strips [i * Unit, (i + 1) * Unit) of each, as in Linear.
template <int Buffer, int Outputs, int Inputs, int Unit>
struct Nvfp4Slices : Nvfp4<Buffer, Outputs, Inputs> {
  static constexpr bool kDealt = false;
  static constexpr int kUnit = Unit;
  static_assert(Unit % kTileStrips == 0, "a slice is whole tiles");
};

template <class L>
concept Nvfp4Matrix = L::kNvfp4;
template <class L>
concept DealtTiles = Nvfp4Matrix<L> && L::kDealt;

/// The first unit of the expert in place `e` of the step's list that this SM works on, which has
/// none if that is kUnits or more: unit u of it is on SM (e * kUnits + u) % kSms.
template <DealtTiles L, class Cta> MEGALITH_DEVICE int first_unit(const Cta &cta, int e) {
  constexpr int kSms = Cta::Config::kSms;
  const int behind = cta.sm - e * (L::kUnits % kSms) % kSms;
  return behind < 0 ? behind + kSms : behind;
}

/// Tiles of the expert in place `e` that this SM works on.
template <DealtTiles L, class Cta> MEGALITH_DEVICE int tiles(const Cta &cta, int e) {
  constexpr int kSms = Cta::Config::kSms;
  return (L::kUnits - first_unit<L>(cta, e) + kSms - 1) / kSms * L::kDeal;
}

/// Which tile of the matrix the `m`-th of these is.
template <DealtTiles L, class Cta> MEGALITH_DEVICE int tile_of(const Cta &cta, int e, int m) {
  return (first_unit<L>(cta, e) + m / L::kDeal * Cta::Config::kSms) * L::kDeal + m % L::kDeal;
}

/// Over the units that this SM has of the experts of a step, in the order of the list: unit u of
/// the expert in place e is number e * Units + u of all, and every kSms-th of these is this SM's.
template <DealtTiles L, int Units, class Cta> class DealtUnit {
  static_assert(Units == L::kUnits, "the role regions have counted other units");
  static constexpr uint32_t kUnits = L::kUnits, kSms = Cta::Config::kSms;
  uint32_t at, end;

public:
  MEGALITH_DEVICE DealtUnit(const Cta &cta, int active) : at(cta.sm), end(active * kUnits) {}
  MEGALITH_DEVICE bool is_there() const { return at < end; }
  MEGALITH_DEVICE void next() { at += kSms; }
  /// Place of its expert in the list.
  MEGALITH_DEVICE int entry() const { return at / kUnits; }
  /// Which of the units that this SM has of the expert.
  MEGALITH_DEVICE int number() const { return at % kUnits / kSms; }
  /// Its first tile, of the matrix.
  MEGALITH_DEVICE int first() const { return at % kUnits * L::kDeal; }
};

/// First strip of a tile.
template <DealtTiles L, class Cta> MEGALITH_DEVICE int tile_first(const Cta &, int tile) {
  return kTileStrips * tile;
}

/// Strips of a tile: 1..8.
template <DealtTiles L, class Cta> MEGALITH_DEVICE int tile_strips(const Cta &, int tile) {
  const int left = L::kStrips - kTileStrips * tile;
  return left < kTileStrips ? left : kTileStrips;
}

/// Producer: copies the piece (tile, block) of matrix `expert` to the next, acquired, slot of R.
template <class Full, class R, Nvfp4Matrix L, class Cta>
MEGALITH_DEVICE void copy_piece(Cta &cta, int tile, int block, int expert = 0) {
  static_assert(L::kPieceBytes <= R::kSlotBytes);
  const auto *matrix = static_cast<const unsigned char *>(cta.template buffer<L::kBuffer>());
  const uint32_t piece = block * L::kTiles + tile_first<L>(cta, tile) / kTileStrips;
  copy_bulk<Full, R>(cta, matrix + expert * L::kMatrixBytes + uint64_t{piece} * L::kPieceBytes,
                     L::kPieceBytes);
}

/// Pieces 0 .. pieces - 1 of a tile of matrix `expert`.
template <Nvfp4Matrix L, class Cta>
MEGALITH_DEVICE PieceRun piece_run(const Cta &cta, int tile, int pieces, int expert = 0) {
  const auto *matrix = static_cast<const unsigned char *>(cta.template buffer<L::kBuffer>());
  const uint32_t first = tile_first<L>(cta, tile) / kTileStrips;
  PieceRun run;
  run.from = matrix + expert * L::kMatrixBytes + uint64_t{first} * L::kPieceBytes;
  run.bytes = L::kPieceBytes;
  run.pieces = pieces;
  run.piece_stride = int64_t{L::kTiles} * L::kPieceBytes;
  return run;
}

/// Producer: as stream_pieces of Linear.
template <class Free, class Full, int Window, class R, Nvfp4Matrix L, class Cta>
MEGALITH_DEVICE void stream_pieces(Cta &cta, int tile, int pieces, int expert = 0) {
  static_assert(L::kPieceBytes <= R::kSlotBytes);
  stream<Free, Full, Window, R>(cta, piece_run<L>(cta, tile, pieces, expert));
}

namespace detail {

/// The eight codes of a lane and step as bf16 numbers times 2^-126, in the order of mma's A.
MEGALITH_DEVICE u32x4 nvfp4_codes(uint32_t w) {
  constexpr uint32_t kBoth = 0x81C081C0u, kSign = 0x80008000u, kRest = 0x01C001C0u;
  return {w & kBoth, w << 6 & kBoth, (w << 3 & kRest) | (w << 4 & kSign),
          (w >> 6 & kRest) | (w << 5 & kSign)};
}

/// The same of two neighbouring steps' words, of one of them: the fourth codes of both share what
/// other places leave of the words (nvfp4PlacedInPair).
MEGALITH_DEVICE u32x4 nvfp4_codes(uint32_t first, uint32_t second, int step) {
  constexpr uint32_t kBoth = 0x81C081C0u, kLeft = 0x06030603u;
  const auto rotated = [](uint32_t w, int by) { return w << by | w >> (32 - by); };
  const uint32_t w = step == 0 ? first : second;
  const uint32_t left = platform::select_bits(kLeft, first, second << 2);
  return {w & kBoth, w << 4 & kBoth, rotated(w, 10) & kBoth,
          (step == 0 ? left << 6 : rotated(left, 12)) & kBoth};
}

/// Byte `i` of `bytes`, a packed scale, as two equal bf16 numbers times 2^112.
MEGALITH_DEVICE uint32_t nvfp4_scale(uint32_t bytes, uint32_t i) {
  return (platform::byte_permute(bytes, 0, 0x4040u | i | i << 8) << 4) + 0x73007300u;
}

/// `Bytes` (2, 4, 8 or 16) at a time from shared memory to words.
template <int Bytes> MEGALITH_DEVICE void load_words(uint32_t *out, const unsigned char *at) {
  if constexpr (Bytes % 16 == 0) {
    MEGALITH_UNROLL(4)
    for (int i = 0; i < Bytes / 16; ++i) {
      const auto v = platform::ld_shared<u32x4>(at + 16 * i);
      out[4 * i] = v.x, out[4 * i + 1] = v.y, out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;
    }
  } else if constexpr (Bytes == 8) {
    const auto v = platform::ld_shared<u32x2>(at);
    out[0] = v.x, out[1] = v.y;
  } else if constexpr (Bytes == 4) {
    out[0] = platform::ld_shared<uint32_t>(at);
  } else {
    static_assert(Bytes == 2);
    out[0] = platform::ld_shared<uint16_t>(at);
  }
}

} // namespace detail

namespace detail {

/// What a lane holds of one piece of Steps k16 steps: codes and scales of its groups of columns.
template <int Steps, int Group> struct Nvfp4Piece {
  static constexpr int kGroup = Group, kGroups = Steps / Group;
  static constexpr int kAtOnce = kGroups % 4 == 0 ? 4 : kGroups % 2 == 0 ? 2 : 1;
  uint32_t codes[kGroups][kGroup], scales[kGroups];

  MEGALITH_DEVICE void load(const unsigned char *chunk, int lane) {
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kGroups; ++i)
      load_words<4 * kGroup>(codes[i], chunk + 4 * kGroup * (32 * i + lane));
    // Two bytes a group, of rows g and g + 8; groups of a lane's column block lie together.
    const int columns = lane / 4 * kGroup + lane % 4 * kGroup / 4;
    const unsigned char *scale = chunk + 128 * Steps + 2 * kGroups * columns;
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kGroups; i += kAtOnce) {
      uint32_t words[2];
      load_words<2 * kAtOnce>(words, scale + 2 * i);
      MEGALITH_UNROLL_ALL
      for (int j = 0; j < kAtOnce; ++j)
        scales[i + j] = words[j / 2]; // of group i + j, or of two groups
    }
  }

  /// Operand A of step `s`.
  MEGALITH_DEVICE u32x4 fragment(int s) const {
    const uint32_t bytes = scales[s / kGroup], at = kAtOnce == 1 ? 0 : s / kGroup % 2 * 2;
    const uint32_t low = nvfp4_scale(bytes, at), high = nvfp4_scale(bytes, at + 1);
    const uint32_t(&words)[kGroup] = codes[s / kGroup];
    u32x4 a;
    if constexpr (kGroup % 2 == 0)
      a = nvfp4_codes(words[s % kGroup / 2 * 2], words[s % kGroup / 2 * 2 + 1], s % 2);
    else
      a = nvfp4_codes(words[s % kGroup]);
    return {platform::mul_bf16x2(a.x, low), platform::mul_bf16x2(a.y, high),
            platform::mul_bf16x2(a.z, low), platform::mul_bf16x2(a.w, high)};
  }
};

/// A lane's columns of the activations for one piece.
template <int Steps, int Group> struct Nvfp4Operand {
  static constexpr int kGroup = Group, kGroups = Steps / Group;
  uint32_t x[kGroups][2 * kGroup];

  MEGALITH_DEVICE void load(const unsigned char *b) {
    MEGALITH_UNROLL_ALL
    for (int i = 0; i < kGroups; ++i)
      load_words<8 * kGroup>(x[i], b + 32 * kGroup * i);
  }
  MEGALITH_DEVICE u32x2 at(int s) const {
    const uint32_t *pair = &x[s / kGroup][s % kGroup * 2];
    return {pair[0], pair[1]};
  }
};

/// `sum` and the product of one piece, of which this warp has the chunk at `chunk`, with `column`.
template <int Steps, int Group>
MEGALITH_DEVICE ChunkSum piece_product(ChunkSum sum, const unsigned char *chunk, int lane,
                                       const Column &column) {
  // All loads first: their latency is paid once.
  Nvfp4Piece<Steps, Group> piece;
  Nvfp4Operand<Steps, Group> x;
  piece.load(chunk, lane);
  x.load(column.at);
  platform::mma_steps<Steps>(
      sum.v, [&](int s) { return piece.fragment(s); }, [&](int s) { return x.at(s); },
      column.valid);
  return sum;
}

/// This warp's chunk of the piece in slot `slot` of R.
template <Nvfp4Matrix L, class R, class Cta>
MEGALITH_DEVICE const unsigned char *chunk_of(const Cta &cta, int slot) {
  return R::slot(cta, slot) + cta.role_warp * L::kChunkBytes;
}

/// A column from its block `block` on.
template <Nvfp4Matrix L> MEGALITH_DEVICE Column from_block(const Column &column, int block) {
  return {column.at + 32 * L::kBlockSteps * block, column.valid};
}

} // namespace detail

/// Consumer warp: adds the product of one piece, in slot `slot` of R, with `column` to `sum`.
template <Nvfp4Matrix L, class R, class Cta>
MEGALITH_DEVICE void gemv_block(const Cta &cta, ChunkSum &sum, int slot, int, int block,
                                const Column &column) {
  const unsigned char *chunk = detail::chunk_of<L, R>(cta, slot);
  const Column rest = detail::from_block<L>(column, block);
  sum = detail::piece_product<L::kBlockSteps, L::kGroup>(sum, chunk, cta.lane, rest);
}

/// The same with two column tiles: codes become operands once for both.
template <Nvfp4Matrix L, class R, class Cta>
MEGALITH_DEVICE void gemv_block(const Cta &cta, ChunkSums &sum, int slot, int tile, int block,
                                const Columns &columns) {
  if (columns.count <= 8) {
    gemv_block<L, R>(cta, sum.low, slot, tile, block, columns.low);
    return;
  }
  detail::Nvfp4Piece<L::kBlockSteps, L::kGroup> piece;
  detail::Nvfp4Operand<L::kBlockSteps, L::kGroup> low, high;
  piece.load(detail::chunk_of<L, R>(cta, slot), cta.lane);
  low.load(detail::from_block<L>(columns.low, block).at);
  high.load(detail::from_block<L>(columns.high, block).at);
  platform::mma_steps<L::kBlockSteps>(
      sum.low.v, sum.high.v, [&](int s) { return piece.fragment(s); },
      [&](int s) { return low.at(s); }, [&](int s) { return high.at(s); }, columns.low.valid,
      columns.high.valid);
}

/// A lane's operands of the first block of a tile.
template <Nvfp4Matrix L> struct DecodedBlock { u32x4 a[L::kBlockSteps]; };

/// Consumer warp of the only row, before the words come that it will multiply: makes operands of
/// the piece in slot `slot` of R, which is a tile's first. Most of a product's time is this, and
/// the slot is free then.
template <Nvfp4Matrix L, class R, class Cta>
MEGALITH_DEVICE void decode_block(const Cta &cta, DecodedBlock<L> &decoded, int slot) {
  detail::Nvfp4Piece<L::kBlockSteps, L::kGroup> piece;
  piece.load(detail::chunk_of<L, R>(cta, slot), cta.lane);
  MEGALITH_UNROLL_ALL
  for (int s = 0; s < L::kBlockSteps; ++s) {
    u32x4 &a = decoded.a[s];
    a = piece.fragment(s);
    platform::forget(a.x); // else it were decoded where it is used
    platform::forget(a.y);
    platform::forget(a.z);
    platform::forget(a.w);
  }
}

/// Consumer warp: adds the product of that block with `column` to `sum`, as gemv_block would.
template <Nvfp4Matrix L, class Cta>
MEGALITH_DEVICE void multiply_decoded(const Cta &, ChunkSum &sum, const DecodedBlock<L> &decoded,
                                      const Column &column) {
  detail::Nvfp4Operand<L::kBlockSteps, L::kGroup> x;
  x.load(column.at);
  platform::mma_steps<L::kBlockSteps>(
      sum.v, [&](int s) { return decoded.a[s]; }, [&](int s) { return x.at(s); }, column.valid);
}

/// What the finished sums of matrix `expert` are multiplied by; of the first and second row of
/// every strip. Load them before the wait for the sums: they may come from far away.
template <Nvfp4Matrix L, class Cta>
MEGALITH_DEVICE FloatPair weight_factors(const Cta &cta, int expert = 0) {
  const auto *matrix = static_cast<const unsigned char *>(cta.template buffer<L::kBuffer>());
  return platform::ld_const<FloatPair>(matrix + expert * L::kMatrixBytes + L::kFactors);
}

/// The sums of all chunks times the matrix's factors.
MEGALITH_DEVICE Fragment scaled(const Fragment &sum, const FloatPair &factors) {
  return {{sum.v[0] * factors.x, sum.v[1] * factors.x, sum.v[2] * factors.y, sum.v[3] * factors.y}};
}

MEGALITH_DEVICE Fragments scaled(const Fragments &sum, const FloatPair &factors) {
  return {scaled(sum.low, factors), scaled(sum.high, factors)};
}

/// Epilogue warp: the chunks of a slot added in ascending order, times the matrix's factors.
template <class P, class Cta>
MEGALITH_DEVICE auto sum_scaled(const Cta &cta, int slot, const FloatPair &factors) {
  return scaled(sum_chunks<P>(cta, slot), factors);
}

/// Epilogue warp: take_part, times the matrix's factors.
template <class Full, class Free, class P, class Cta>
MEGALITH_DEVICE auto take_scaled(Cta &cta, const FloatPair &factors) {
  return scaled(take_part<Full, Free, P>(cta), factors);
}

} // namespace megalith
