//===- packing_nvfp4.cpp - Tiles of NVFP4 weights -------------------------===//

#include "runtime/packing_nvfp4.h"

#include "runtime/nvfp4_bits.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <vector>

namespace megalith::runtime {

namespace {

/// The bits of a lane that a stored byte (columns c, c + 1) contributes to: of one step, or of two
/// neighbours; the places of both codes are the same.
using PlacedBytes = std::array<uint64_t, 256>;

template <class Placed> PlacedBytes placedBytes(Placed placed) {
  PlacedBytes table;
  for (uint32_t byte = 0; byte < 256; ++byte)
    table[byte] = placed(byte & 15, 0u) | placed(byte >> 4, 1u);
  return table;
}

/// By place.
using PlacedTables = std::array<PlacedBytes, 4>;

template <class Placed> PlacedTables placedTables(Placed placed) {
  PlacedTables tables;
  for (uint32_t place = 0; place < 4; ++place)
    tables[place] =
        placedBytes([&](uint32_t code, uint32_t odd) { return placed(code, place, odd); });
  return tables;
}

/// Of step `step` of two, or of a step that has no neighbour in its group.
const PlacedTables &tablesOf(bool isInPair, int64_t step) {
  static const PlacedTables alone = placedTables([](uint32_t code, uint32_t place, uint32_t odd) {
    return uint64_t{nvfp4Placed(code, place, odd)};
  });
  static const auto inPair = [](uint32_t step) {
    return placedTables([=](uint32_t code, uint32_t place, uint32_t odd) {
      return nvfp4PlacedInPair(code, place, odd, step);
    });
  };
  static const std::array<PlacedTables, 2> pairs = {inPair(0), inPair(1)};
  return isInPair ? pairs[size_t(step)] : alone;
}

/// Where the codes of a lane and step lie: `bytes` bytes, those of two neighbouring steps together.
struct CodeWord {
  int64_t offset, step;
  size_t bytes;
};
CodeWord codeWord(const Nvfp4Layout &layout, int64_t row, int64_t column) {
  const int64_t offset = layout.codeOffset(row, column);
  if (!layout.hasPairs())
    return {offset, 0, 4};
  return {offset / 8 * 8, offset / 4 % 2, 8};
}

/// Adds the codes and scales of one row to a matrix whose tile is all zeros but for other rows.
void placeRow(const Nvfp4Layout &layout, int64_t row, std::span<const uint8_t> codes,
              std::span<const uint8_t> scales, unsigned char *matrix) {
  for (int64_t b = 0; b < int64_t(scales.size()); ++b) {
    if (scales[b] == 0)
      continue; // zeros, whatever the codes
    const int64_t column = 16 * b;
    matrix[layout.scaleOffset(row, column)] = uint8_t(nvfp4PackedScale(scales[b]));
    for (int64_t quad = 0; quad < 4; ++quad) {
      const uint8_t *bytes = codes.data() + 8 * b + 2 * quad;
      const CodeWord place = codeWord(layout, row, column + 4 * quad);
      const PlacedTables &tables = tablesOf(layout.hasPairs(), place.step);
      unsigned char *at = matrix + place.offset;
      uint64_t word = 0;
      std::memcpy(&word, at, place.bytes);
      word |= tables[row % 2][bytes[0]] | tables[row % 2 + 2][bytes[1]];
      std::memcpy(at, &word, place.bytes);
    }
  }
}

std::array<float, 5> factorWords(const Nvfp4Factors &factors) {
  return {factors.global[0] * kNvfp4FactorScale, factors.global[1] * kNvfp4FactorScale,
          factors.inputScale * factors.global[0] * kNvfp4FactorScale,
          factors.inputScale * factors.global[1] * kNvfp4FactorScale, factors.inputScale};
}

/// The code of (row, column) of a matrix.
uint32_t codeAt(const Nvfp4Layout &layout, int64_t row, int64_t column,
                const unsigned char *matrix) {
  const CodeWord place = codeWord(layout, row, column);
  uint64_t word = 0;
  std::memcpy(&word, matrix + place.offset, place.bytes);
  const uint32_t in = uint32_t(Nvfp4Layout::codePlace(row, column)), odd = uint32_t(column % 2);
  uint32_t code = 0;
  for (uint32_t bit = 1; bit < 16; bit *= 2) {
    const uint64_t placed = layout.hasPairs()
                                ? nvfp4PlacedInPair(bit, in, odd, uint32_t(place.step))
                                : nvfp4Placed(bit, in, odd);
    code |= word & placed ? bit : 0;
  }
  return code;
}

float codeValue(uint32_t code) {
  constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return code & 8 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

} // namespace

Nvfp4Layout::Nvfp4Layout(int64_t n, int64_t k) : n(n), k(k) {
  assert(n > 0 && k > 0 && k % 16 == 0);
  chunk16 = ((k + 7) / 8 + 15) / 16;
  group = chunk16 % 4 == 0 ? 4 : chunk16 % 2 == 0 ? 2 : 1;
  // Pieces of 8 to 18 KB where the width allows it, else up to 32 KB.
  kb = group;
  for (int64_t steps = group; steps <= 16; steps += group)
    if (chunk16 % steps == 0)
      kb = steps;
  for (int64_t steps = 16 + group; kb < 8 && steps <= 28; steps += group)
    if (chunk16 % steps == 0)
      kb = steps;
  blocks = chunk16 / kb;
  tiles = (n + 15) / 16;
}

int64_t Nvfp4Layout::codeOffset(int64_t row, int64_t column) const {
  const int64_t chunk = column / (16 * chunk16), inChunk = column % (16 * chunk16);
  const int64_t inBlock = inChunk % (16 * kb), p = inBlock % (16 * group);
  const int64_t lane = row / 2 % 8 * 4 + p / (4 * group);
  return pieceOffset(inChunk / (16 * kb), row / 16) + chunk * chunkBytes() +
         inBlock / (16 * group) * (128 * group) + lane * (4 * group) + p % (4 * group) / 4 * 4;
}

int64_t Nvfp4Layout::scaleOffset(int64_t row, int64_t column) const {
  const int64_t chunk = column / (16 * chunk16), inChunk = column % (16 * chunk16);
  const int64_t inBlock = inChunk % (16 * kb), block16 = inBlock % (16 * group) / 16;
  return pieceOffset(inChunk / (16 * kb), row / 16) + chunk * chunkBytes() + 128 * kb +
         ((row / 2 % 8 * group + block16) * (kb / group) + inBlock / (16 * group)) * 2 + row % 2;
}

int64_t packNvfp4(const Nvfp4Layout &layout, int64_t first, int64_t count, Nvfp4Row rows,
                  unsigned char *matrix) {
  int64_t refused = -1;
  std::vector<uint8_t> codes(layout.k / 2), scales(layout.k / 16);
  for (int64_t tile = first; tile < first + count; ++tile) {
    for (int64_t block = 0; block < layout.blocks; ++block)
      std::memset(matrix + layout.pieceOffset(block, tile), 0, layout.pieceBytes());
    for (int64_t row = 16 * tile; row < std::min(16 * (tile + 1), layout.n); ++row) {
      rows(row, codes, scales);
      for (uint8_t scale : scales)
        if (scale >= 0x7F && refused < 0)
          refused = row;
      placeRow(layout, row, codes, scales, matrix);
    }
  }
  return refused;
}

bool nvfp4FactorsFit(const Nvfp4Factors &factors) {
  for (float word : factorWords(factors))
    if (!std::isfinite(word))
      return false;
  for (float global : factors.global) // a subnormal factor has lost bits, or its product will
    if (global != 0 && !std::isnormal(global))
      return false;
  return true;
}

void packNvfp4Factors(const Nvfp4Layout &layout, const Nvfp4Factors &factors,
                      unsigned char *matrix) {
  const std::array<float, 5> words = factorWords(factors);
  unsigned char *at = matrix + layout.piecesBytes();
  std::memset(at, 0, Nvfp4Layout::kFactorBytes);
  std::memcpy(at, words.data(), sizeof(words));
}

void unpackNvfp4Row(const Nvfp4Layout &layout, const unsigned char *matrix, int64_t row,
                    std::span<float> out) {
  for (int64_t column = 0; column < layout.k; ++column) {
    const uint32_t code = codeAt(layout, row, column, matrix);
    const uint32_t scale = matrix[layout.scaleOffset(row, column)];
    out[column] = codeValue(code) * std::ldexp(8.0f + float(scale & 7), int(scale >> 3) - 12);
  }
}

} // namespace megalith::runtime
