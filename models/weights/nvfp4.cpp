//===- nvfp4.cpp - Block-scaled weights and activations -------------------===//

#include "models/weights/nvfp4.h"

#include "models/weights/bf16.h"
#include "models/weights/block_codec.h"
#include "models/weights/philox.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

namespace megalith::models {

namespace {

/// The largest magnitude, or NaN if any value is one.
float largestMagnitude(std::span<const float> values) {
  uint32_t largest = 0; // of a NaN, the bits are above those of infinity
  for (float value : values)
    largest = std::max(largest, codecBits(value) & 0x7FFFFFFFu);
  return codecFloat(largest);
}

/// Codes of the values divided by `divisor`, two to a byte.
void encodeE2m1(std::span<const float> values, float divisor, std::span<uint8_t> codes) {
  for (size_t i = 0; i < values.size(); i += 2)
    codes[i / 2] = uint8_t(e2m1Code(values[i] / divisor) | e2m1Code(values[i + 1] / divisor) << 4);
}

} // namespace

float scaleValue(BlockFormat::Scale scale, const unsigned char *at) {
  switch (scale) {
  case BlockFormat::Scale::E4m3:
    return e4m3Value(*at);
  case BlockFormat::Scale::E8m0:
    return e8m0Value(*at);
  case BlockFormat::Scale::Bf16:
    return fromBf16(uint16_t(at[0] | at[1] << 8));
  case BlockFormat::Scale::F32:
    break;
  }
  float value; // files are little-endian, as is every machine this runs on
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&value, at, 4);
  return value;
}

void decodeRow(const BlockFormat &format, std::span<const uint8_t> codes,
               std::span<const uint8_t> scales, std::span<float> out) {
  static const std::array<float, 16> e2m1 = [] {
    std::array<float, 16> table;
    for (uint32_t code = 0; code < 16; ++code)
      table[code] = e2m1Value(code);
    return table;
  }();
  const int64_t columns = int64_t(out.size());
  for (int64_t first = 0, block = 0; first < columns; first += format.blockColumns, ++block) {
    const float scale = scaleValue(format.scale, scales.data() + block * format.scaleBytes());
    const int64_t end = std::min(first + format.blockColumns, columns);
    if (format.code == BlockFormat::Code::E2m1)
      for (int64_t i = first; i < end; ++i)
        out[i] = e2m1[codes[i / 2] >> 4 * (i % 2) & 15] * scale;
    else
      for (int64_t i = first; i < end; ++i)
        out[i] = e4m3Value(codes[i]) * scale;
  }
}

void quantizeNvfp4(std::span<const float> values, float global, std::span<uint8_t> codes,
                   std::span<uint8_t> scales) {
  constexpr size_t kBlock = 16;
  assert(values.size() % kBlock == 0);
  for (size_t first = 0; first < values.size(); first += kBlock) {
    const auto block = values.subspan(first, kBlock);
    const uint32_t scale = nvfp4Scale(largestMagnitude(block), global);
    scales[first / kBlock] = uint8_t(scale);
    encodeE2m1(block, nvfp4Divisor(scale, global), codes.subspan(first / 2, kBlock / 2));
  }
}

void quantizeActivations(std::span<const float> values, float inputScale, std::span<float> out) {
  std::vector<uint8_t> codes(values.size() / 2), scales(values.size() / 16);
  quantizeNvfp4(values, inputScale, codes, scales);
  decodeRow(BlockFormat::nvfp4(), codes, scales, out);
}

void quantizeMxfp4(std::span<const float> values, std::span<uint8_t> codes,
                   std::span<uint8_t> scales) {
  constexpr size_t kBlock = 32;
  assert(values.size() % kBlock == 0);
  for (size_t first = 0; first < values.size(); first += kBlock) {
    const auto block = values.subspan(first, kBlock);
    const uint32_t scale = mxfp4Scale(largestMagnitude(block));
    scales[first / kBlock] = uint8_t(scale);
    encodeE2m1(block, e8m0Value(scale), codes.subspan(first / 2, kBlock / 2));
  }
}

void quantizeFp8Blocks(std::span<const float> values, int64_t rows, int64_t columns,
                       std::span<uint8_t> codes, std::span<float> scales) {
  const BlockFormat format = BlockFormat::fp8Block();
  const int64_t across = format.blocksAcross(columns);
  for (int64_t down = 0; down < format.blocksDown(rows); ++down)
    for (int64_t b = 0; b < across; ++b) {
      const int64_t firstRow = down * format.blockRows, first = b * format.blockColumns;
      const int64_t endRow = std::min(firstRow + format.blockRows, rows);
      const size_t width = size_t(std::min(format.blockColumns, columns - first));
      float amax = 0;
      for (int64_t r = firstRow; r < endRow; ++r) {
        const float largest = largestMagnitude(values.subspan(size_t(r * columns + first), width));
        amax = codecBits(largest) > codecBits(amax) ? largest : amax;
      }
      const float scale = amax == 0 ? 1.0f : amax / kE4m3Max;
      scales[size_t(down * across + b)] = scale;
      for (int64_t r = firstRow; r < endRow; ++r)
        for (size_t i = 0; i < width; ++i) {
          const size_t at = size_t(r * columns + first) + i;
          codes[at] = uint8_t(e4m3Bits(values[at] / scale));
        }
    }
}

void BlockTensor::unscaledRow(int64_t index, std::span<float> out) const {
  std::vector<uint8_t> codes(size_t(format.codeBytes(columns)));
  std::vector<uint8_t> scales(size_t(format.blocksAcross(columns) * format.scaleBytes()));
  stored(index, codes, scales);
  decodeRow(format, codes, scales, out);
}

void BlockTensor::row(int64_t index, std::span<float> out) const {
  unscaledRow(index, out);
  if (!format.global)
    return;
  const float factor = global(index);
  for (float &value : out)
    value *= factor;
}

float hashedGlobal(int64_t k) {
  return nvfp4Global(weightScale(uint64_t(k)));
}

} // namespace megalith::models
