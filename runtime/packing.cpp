//===- packing.cpp - Strips and pages -------------------------------------===//

#include "runtime/packing.h"

#include "models/weights/bf16.h"
#include "models/weights/block_codec.h"

#include <cassert>
#include <cmath>
#include <cstring>

namespace megalith::runtime {

namespace {

/// Every operand is cut into 512-byte slices: 16 rows x 16 columns for the 16-row operand of
/// mma.m16n8k16, as [8 rows g][4 lanes t][16 B]. Lane t owns columns 4t..4t+3; the upper half of
/// the rows (g + 8) sits in the odd words.
int64_t fragmentOffset(int64_t row, int64_t column) {
  const int64_t lane = (row % 8) * 4 + column / 4;
  const int64_t word = column % 4 / 2 * 2 + row / 8;
  return lane * 16 + word * 4 + column % 2 * 2;
}

void store16(unsigned char *at, uint16_t bits) {
  std::memcpy(at, &bits, 2);
}

uint16_t load16(const unsigned char *at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return bits;
}

/// Spreads one row over the strip that starts at `strip`, for one block.
void packRow(const StripLayout &layout, int64_t block, int64_t row, const uint16_t *values,
             unsigned char *strip) {
  const int64_t swap = row / 2 % 2;
  for (int64_t chunk = 0; chunk < 8; ++chunk)
    for (int64_t step = 0; step < layout.kb; ++step) {
      unsigned char *unit = strip + ((chunk * layout.kb + step) ^ swap) * 64 + row % 2 * 4;
      const uint16_t *k16 = values + (chunk * layout.chunk16 + block * layout.kb + step) * 16;
      for (int64_t t = 0; t < 4; ++t)
        for (int64_t half = 0; half < 2; ++half)
          std::memcpy(unit + t * 16 + half * 8, k16 + t * 4 + half * 2, 4);
    }
}

/// Asks for a row and pads it; rows past the end are zero.
void fetchRow(const StripLayout &layout, int64_t row, PackedRow rows,
              std::vector<uint16_t> &values) {
  values.assign(layout.paddedK(), 0);
  if (row < layout.n)
    rows(row, std::span(values).first(layout.k));
}

} // namespace

StripLayout::StripLayout(int64_t n, int64_t k) : n(n), k(k) {
  assert(n > 0 && k > 0);
  chunk16 = ((k + 7) / 8 + 15) / 16;
  kb = 4;
  while (chunk16 % kb)
    --kb;
  blocks = chunk16 / kb;
  strips = (n + 1) / 2;
}

int64_t StripLayout::offset(int64_t row, int64_t column) const {
  const int64_t strip = row / 2, k16 = column / 16;
  const int64_t chunk = k16 / chunk16, step = k16 % chunk16;
  const int64_t unit = (chunk * kb + step % kb) ^ (strip % 2);
  const int64_t lane = column % 16 / 4, half = column % 4 / 2;
  return pieceOffset(step / kb, strip) + unit * 64 + lane * 16 + half * 8 + row % 2 * 4 +
         column % 2 * 2;
}

void packStrips(const StripLayout &layout, int64_t first, int64_t count, PackedRow rows,
                unsigned char *matrix) {
  std::vector<uint16_t> values;
  for (int64_t row = 2 * first; row < 2 * (first + count); ++row) {
    fetchRow(layout, row, rows, values);
    for (int64_t block = 0; block < layout.blocks; ++block)
      packRow(layout, block, row, values.data(), matrix + layout.pieceOffset(block, row / 2));
  }
}

void packPiece(const StripLayout &layout, int64_t block, int64_t first, int64_t count,
               PackedRow rows, unsigned char *out) {
  std::vector<uint16_t> values;
  for (int64_t row = 2 * first; row < 2 * (first + count); ++row) {
    fetchRow(layout, row, rows, values);
    packRow(layout, block, row, values.data(), out + (row / 2 - first) * layout.stripBytes());
  }
}

int64_t wideOffset(const StripLayout &layout, int64_t row, int64_t column) {
  const int64_t k16 = column / 16, chunk = k16 / layout.chunk16, step = k16 % layout.chunk16;
  return 2 * layout.pieceOffset(step / layout.kb, row / 2) +
         (chunk * layout.kb + step % layout.kb) * 128 + row % 2 * 64 + column % 16 * 4;
}

void packWideStrips(const StripLayout &layout, int64_t first, int64_t count,
                    llvm::function_ref<void(int64_t row, std::span<float> out)> rows,
                    unsigned char *matrix) {
  std::vector<float> values;
  for (int64_t row = 2 * first; row < 2 * (first + count); ++row) {
    values.assign(size_t(layout.paddedK()), 0.0f);
    if (row < layout.n)
      rows(row, std::span(values).first(size_t(layout.k)));
    for (int64_t k16 = 0; k16 < layout.paddedK(); k16 += 16)
      std::memcpy(matrix + wideOffset(layout, row, k16), values.data() + k16, 64);
  }
}

void unpackRow(const StripLayout &layout, const unsigned char *matrix, int64_t row,
               std::span<uint16_t> out) {
  for (int64_t column = 0; column < layout.k; ++column)
    out[column] = load16(matrix + layout.offset(row, column));
}

int64_t KvLayout::keyOffset(int64_t position, int64_t head, int64_t channel) const {
  const int64_t inPart =
      channel / 16 * 512 + fragmentOffset(position % kUnitPositions, channel % 16);
  return head * headBytes() + position / kUnitPositions * unitBytes() + inPart * elementBytes / 2;
}

int64_t KvLayout::valueOffset(int64_t position, int64_t head, int64_t channel) const {
  // V is the transposed operand: its rows are channels, its columns positions.
  const int64_t inPart =
      channel / 16 * 512 + fragmentOffset(channel % 16, position % kUnitPositions);
  return head * headBytes() + position / kUnitPositions * unitBytes() + partBytes() +
         inPart * elementBytes / 2;
}

/// One number of a page, given and taken as bf16.
static void storeKv(const KvLayout &layout, unsigned char *at, uint16_t value) {
  if (layout.elementBytes == 1)
    *at = uint8_t(models::e4m3Bits(models::fromBf16(value)));
  else
    store16(at, value);
}
static uint16_t loadKv(const KvLayout &layout, const unsigned char *at) {
  return layout.elementBytes == 1 ? models::toBf16(models::e4m3Value(*at)) : load16(at);
}

void writeKv(const KvLayout &layout, unsigned char *pool, std::span<const int32_t> pages,
             int64_t position, std::span<const uint16_t> key, std::span<const uint16_t> value) {
  unsigned char *page = pool + pages[position / kPagePositions] * layout.pageBytes();
  const int64_t inPage = position % kPagePositions;
  for (int64_t head = 0; head < layout.heads; ++head)
    for (int64_t channel = 0; channel < layout.dim; ++channel) {
      const int64_t from = head * layout.dim + channel;
      storeKv(layout, page + layout.keyOffset(inPage, head, channel), key[from]);
      storeKv(layout, page + layout.valueOffset(inPage, head, channel), value[from]);
    }
}

void readKv(const KvLayout &layout, const unsigned char *pool, std::span<const int32_t> pages,
            int64_t position, std::span<uint16_t> key, std::span<uint16_t> value) {
  const unsigned char *page = pool + pages[position / kPagePositions] * layout.pageBytes();
  const int64_t inPage = position % kPagePositions;
  for (int64_t head = 0; head < layout.heads; ++head)
    for (int64_t channel = 0; channel < layout.dim; ++channel) {
      const int64_t to = head * layout.dim + channel;
      key[to] = loadKv(layout, page + layout.keyOffset(inPage, head, channel));
      value[to] = loadKv(layout, page + layout.valueOffset(inPage, head, channel));
    }
}

std::vector<float> inverseFrequencies(int64_t dims, double theta) {
  std::vector<float> table(dims / 2);
  for (int64_t j = 0; j < dims / 2; ++j)
    table[j] = float(std::pow(theta, -2.0 * double(j) / double(dims)));
  return table;
}

} // namespace megalith::runtime
