// Made-up weights and KV pages, written where they will be read.
//
// The same numbers as models/weights (DESIGN section 5) in the layouts of runtime/packing.h, 16
// bytes at a time: a model of 60 GB takes a second instead of an hour. Plain C++ apart from the
// kernels at the end, so a test compares the bytes with the host's packing without a GPU.
#pragma once

#include "runtime/abi.h"

#include "models/weights/philox.h"

#ifdef __CUDACC__
#define MEGALITH_FILL_FN __device__ __forceinline__
#else
#define MEGALITH_FILL_FN inline
#endif

namespace megalith {

inline constexpr int kFillThreads = 256;
inline constexpr int kMaxFillParts = 4;

/// Part of one checkpoint tensor that a segment takes: rows [first_row, first_row + rows), the
/// segment's k columns from first_column on.
struct FillPart {
  uint32_t name_hash; ///< of the tensor's checkpoint name
  int32_t gain;       ///< 1: a norm's gain, r16(1 + w)
  float scale;
  int32_t rows;
  int64_t first_row;
  int64_t columns; ///< of the tensor
  int64_t first_column;
};

enum FillForm : int32_t {
  kFillRows,        ///< row-major, zeros behind the last
  kFillStrips,      ///< strips of rows (2i, 2i + 1) of the stacked parts
  kFillGateUp,      ///< strips of row i of part 0 and row i of part 1
  kFillNvfp4,       ///< NVFP4 tiles, rows as kFillStrips
  kFillNvfp4GateUp, ///< NVFP4 tiles, rows as kFillGateUp
};

/// One segment of a weight: a matrix, a table or a vector of bf16, or an NVFP4 matrix.
struct FillSegment {
  unsigned char *out;
  uint32_t pieces; ///< of 16 bytes
  uint32_t seed;
  int32_t form; ///< FillForm
  int32_t parts;
  int64_t n, k;                 ///< before padding
  uint32_t strips, kb, chunk16; ///< of StripLayout; of Nvfp4Layout tiles, kb, chunk16
  uint32_t group;               ///< of Nvfp4Layout
  FillPart part[kMaxFillParts];
};

/// The pages of one sequence in one layer's pool.
struct FillPages {
  unsigned char *pool;
  const int32_t *pages; ///< page table of `count` entries
  int32_t first, count; ///< of its pages, those from `first` on are filled
  int32_t heads, dim;
  int32_t element_bytes;               ///< 2: bf16, 1: e4m3
  uint32_t seed, key_hash, value_hash; ///< of "kv.{layer}.k" and "kv.{layer}.v"
  int64_t content;                     ///< which made-up sequence
  int64_t start;                       ///< positions from here on get `poison`
  uint32_t poison;                     ///< a pair of bf16, or four e4m3
};

/// Four words: 16 bytes of memory.
struct alignas(16) FillPiece {
  uint32_t word[4];
};

/// The bits of a float that is a bf16 number.
MEGALITH_FILL_FN uint32_t fill_bits(float value) {
  return __builtin_bit_cast(uint32_t, value) >> 16;
}

/// Element (row, column) of the stacked parts; zero outside.
MEGALITH_FILL_FN float fill_value(const FillSegment &f, int64_t row, int64_t column) {
  if (row >= f.n || column >= f.k)
    return 0;
  int p = 0;
  if (f.form == kFillGateUp || f.form == kFillNvfp4GateUp) {
    p = static_cast<int>(row & 1);
    row >>= 1;
  } else {
    while (row >= f.part[p].rows)
      row -= f.part[p++].rows;
  }
  const FillPart &part = f.part[p];
  const uint64_t index =
      static_cast<uint64_t>((part.first_row + row) * part.columns + part.first_column + column);
  const float value = models::weightValue(f.seed, part.name_hash, index, part.scale);
  if (!part.gain)
    return value;
  const uint32_t wide = __builtin_bit_cast(uint32_t, 1.0f + value);
  return __builtin_bit_cast(float, (wide + 0x7FFFu + (wide >> 16 & 1u)) & 0xFFFF0000u);
}

/// The same as bf16 bits.
MEGALITH_FILL_FN uint32_t fill_element(const FillSegment &f, int64_t row, int64_t column) {
  return fill_bits(fill_value(f, row, column));
}

} // namespace megalith

#include "runtime/device_fill_nvfp4.cuh"

namespace megalith {

/// Piece `piece` of a segment.
MEGALITH_FILL_FN FillPiece fill_segment_piece(const FillSegment &f, uint32_t piece) {
  if (f.form == kFillNvfp4 || f.form == kFillNvfp4GateUp)
    return fill_nvfp4_piece(f, piece);
  FillPiece out;
  if (f.form == kFillRows) {
    for (int w = 0; w < 4; ++w) {
      uint32_t pair[2];
      for (int i = 0; i < 2; ++i) {
        const int64_t element = int64_t(piece) * 8 + 2 * w + i;
        // A single row may have padding behind it, several have none.
        const int64_t row = f.n == 1 ? 0 : element / f.k;
        pair[i] = fill_element(f, row, element - row * f.k);
      }
      out.word[w] = pair[0] | pair[1] << 16;
    }
    return out;
  }
  const uint32_t lane = piece % 4, unit = piece / 4 % (8 * f.kb), strip = piece / 4 / (8 * f.kb);
  const uint32_t block = strip / f.strips, row_pair = strip % f.strips;
  const uint32_t step = unit ^ (row_pair & 1u);
  const uint32_t k16 = step / f.kb * f.chunk16 + block * f.kb + step % f.kb;
  for (int w = 0; w < 4; ++w) {
    const int64_t row = int64_t(row_pair) * 2 + (w & 1);
    const int64_t column = int64_t(k16) * 16 + lane * 4 + (w >> 1) * 2;
    out.word[w] = fill_element(f, row, column) | fill_element(f, row, column + 1) << 16;
  }
  return out;
}

/// 16-byte pieces of one page.
MEGALITH_FILL_FN uint32_t fill_page_pieces(const FillPages &f) {
  return static_cast<uint32_t>(f.heads * 4 * 2 * f.dim * f.element_bytes);
}

/// A made-up key or value, a bf16 number.
MEGALITH_FILL_FN float fill_page_value(const FillPages &f, int64_t position, uint32_t head,
                                       uint32_t channel, bool values) {
  const uint64_t index =
      models::kvIndex(static_cast<uint64_t>(f.content), static_cast<uint64_t>(position),
                      static_cast<uint64_t>(f.heads), static_cast<uint64_t>(f.dim), head, channel);
  return models::weightValue(f.seed, values ? f.value_hash : f.key_hash, index, models::kKvScale);
}

/// Piece `piece` of page `page` of the sequence.
MEGALITH_FILL_FN FillPiece fill_page_piece(const FillPages &f, int32_t page, uint32_t piece) {
  const uint32_t each = 16 / static_cast<uint32_t>(f.element_bytes);     // numbers
  const uint32_t part_pieces = static_cast<uint32_t>(f.dim) * 16 / each, // of K or V of a unit
      part = piece / part_pieces;
  const bool values = part % 2;
  const int64_t unit_start = int64_t(page) * 64 + part / 2 % 4 * 16;
  const uint32_t head = part / 8;
  FillPiece out = {};
  for (uint32_t i = 0; i < each; ++i) {
    // A slice of 16 channels or positions is [lane][4 pairs][2].
    const uint32_t at = piece % part_pieces * each + i, slice = at / 256, lane = at / 8 % 32;
    const uint32_t pair = at / 2 % 4;
    const uint32_t row = lane / 4 + 8 * (pair & 1),
                   column = lane % 4 * 4 + (pair >> 1) * 2 + at % 2;
    // Rows of the fragment are positions of K and channels of V.
    const int64_t position = unit_start + (values ? column : row);
    const uint32_t channel = slice * 16 + (values ? row : column);
    const uint32_t bits = 8 * static_cast<uint32_t>(f.element_bytes), shift = bits * i % 32;
    uint32_t number = f.poison >> shift & (0xFFFFFFFFu >> (32 - bits));
    if (position < f.start) {
      const float value = fill_page_value(f, position, head, channel, values);
      number = f.element_bytes == 1 ? models::e4m3Bits(value) : fill_bits(value);
    }
    out.word[bits * i / 32] |= number << shift;
  }
  return out;
}

#ifdef __CUDACC__

extern "C" __global__ void __launch_bounds__(kFillThreads)
    megalith_fill_segment(const __grid_constant__ FillSegment f) {
  FillPiece *out = reinterpret_cast<FillPiece *>(f.out);
  const uint32_t threads = gridDim.x * kFillThreads;
  for (uint64_t i = blockIdx.x * kFillThreads + threadIdx.x; i < f.pieces; i += threads)
    out[i] = fill_segment_piece(f, static_cast<uint32_t>(i));
}

extern "C" __global__ void __launch_bounds__(kFillThreads)
    megalith_fill_pages(const __grid_constant__ FillPages f) {
  const uint32_t pieces = fill_page_pieces(f);
  for (int32_t page = f.first + blockIdx.x; page < f.count; page += gridDim.x) {
    FillPiece *out = reinterpret_cast<FillPiece *>(f.pool) + int64_t(f.pages[page]) * pieces;
    for (uint32_t i = threadIdx.x; i < pieces; i += kFillThreads)
      out[i] = fill_page_piece(f, page, i);
  }
}

#endif

} // namespace megalith
