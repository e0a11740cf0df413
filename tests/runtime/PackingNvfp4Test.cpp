//===- PackingNvfp4Test.cpp - Tiles of NVFP4 weights ----------------------===//

#include "runtime/nvfp4_bits.h"
#include "runtime/packing_nvfp4.h"

#include "models/weights/block_codec.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

using namespace megalith;
using namespace megalith::runtime;

namespace {

/// Codes and scales that differ everywhere; some scales are zero, least, largest.
void madeUpRow(int64_t row, std::span<uint8_t> codes, std::span<uint8_t> scales) {
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = uint8_t((uint64_t(row) * 131 + i * 57 + i / 16) * 2654435761u >> 13);
  for (size_t i = 0; i < scales.size(); ++i)
    scales[i] = uint8_t((uint64_t(row) * 29 + i * 11) % 0x7F);
}

std::vector<unsigned char> packed(const Nvfp4Layout &layout) {
  std::vector<unsigned char> matrix(size_t(layout.bytes()), 0xEE);
  REQUIRE(packNvfp4(layout, 0, layout.tiles, madeUpRow, matrix.data()) == -1);
  packNvfp4Factors(layout, {}, matrix.data());
  return matrix;
}

} // namespace

TEST_CASE("A packed scale is the e4m3 scale") {
  for (uint32_t byte = 1; byte < 0x7F; ++byte) {
    const uint32_t packed = nvfp4PackedScale(byte);
    CHECK(packed < 18u << 3);
    CHECK(std::ldexp(8.0f + float(packed & 7), int(packed >> 3) - 12) == models::e4m3Value(byte));
  }
  CHECK(nvfp4PackedScale(0) == 0);
}

TEST_CASE("Four codes share 16 bits, and masks and shifts give bf16 numbers times 2^-126") {
  std::set<uint32_t> words;
  for (uint32_t c = 0; c < 0x10000; ++c) {
    const uint32_t code[4] = {c & 15, c >> 4 & 15, c >> 8 & 15, c >> 12};
    uint32_t word = 0;
    for (uint32_t place = 0; place < 4; ++place) {
      if (word & nvfp4Placed(code[place], place, 0))
        FAIL("place " << place << " overlaps another");
      word |= nvfp4Placed(code[place], place, 0);
    }
    words.insert(word);
    const uint32_t number[4] = {word & 0x81C0u, word << 6 & 0x81C0u,
                                (word << 3 & 0x01C0u) | (word << 4 & 0x8000u),
                                (word >> 6 & 0x01C0u) | (word << 5 & 0x8000u)};
    for (int i = 0; i < 4; ++i) {
      const float value = std::bit_cast<float>(number[i] << 16);
      if (std::ldexp(value, 126) != models::e2m1Value(code[i]) ||
          std::signbit(value) != bool(code[i] & 8))
        FAIL("code " << code[i] << " at place " << i);
    }
  }
  CHECK(words.size() == 0x10000);
}

TEST_CASE("Sixteen codes share two words, and rotations and masks give bf16 numbers times 2^-126") {
  const auto rotated = [](uint32_t w, int by) { return std::rotl(w, by); };
  uint64_t taken = 0;
  for (uint32_t step = 0; step < 2; ++step)
    for (uint32_t place = 0; place < 4; ++place)
      for (uint32_t odd = 0; odd < 2; ++odd) {
        CHECK((taken & nvfp4PlacedInPair(15, place, odd, step)) == 0);
        taken |= nvfp4PlacedInPair(15, place, odd, step);
        for (uint32_t code = 0; code < 16; ++code) {
          const uint64_t words = nvfp4PlacedInPair(code, place, odd, step);
          const auto a = uint32_t(words), b = uint32_t(words >> 32);
          const uint32_t left = (a & 0x06030603u) | (b << 2 & ~0x06030603u);
          const uint32_t number[2][4] = {{a, rotated(a, 4), rotated(a, 10), rotated(left, 6)},
                                         {b, rotated(b, 4), rotated(b, 10), rotated(left, 12)}};
          for (uint32_t s = 0; s < 2; ++s)
            for (uint32_t p = 0; p < 4; ++p)
              for (uint32_t o = 0; o < 2; ++o) {
                const uint32_t half = number[s][p] >> 16 * o & 0x81C0u;
                const bool isMine = s == step && p == place && o == odd;
                INFO("step " << s << " place " << p << " odd " << o);
                CHECK(std::ldexp(std::bit_cast<float>(half << 16), 126) ==
                      (isMine ? models::e2m1Value(code) : 0.0f));
                CHECK(bool(half & 0x8000u) == (isMine && (code & 8)));
              }
        }
      }
  CHECK(taken == ~uint64_t{0});
}

TEST_CASE("Shapes of pieces") {
  struct Case {
    int64_t k, chunk16, group, kb, blocks;
  };
  for (const Case &c : {Case{16, 1, 1, 1, 1},
                        {128, 1, 1, 1, 1},
                        {256, 2, 2, 2, 1},
                        {512, 4, 4, 4, 1},
                        {768, 6, 2, 6, 1},
                        {1536, 12, 4, 12, 1},
                        {2048, 16, 4, 16, 1},
                        {2560, 20, 4, 20, 1},
                        {2880, 23, 1, 23, 1},
                        {4096, 32, 4, 16, 2},
                        {7168, 56, 4, 8, 7},
                        {8192, 64, 4, 16, 4}}) {
    const Nvfp4Layout layout(40, c.k);
    INFO("k " << c.k);
    CHECK(layout.chunk16 == c.chunk16);
    CHECK(layout.group == c.group);
    CHECK(layout.kb == c.kb);
    CHECK(layout.blocks == c.blocks);
    CHECK(layout.tiles == 3);
    CHECK(layout.pieceBytes() == 1152 * c.kb);
    CHECK(layout.pieceBytes() <= 32768);
    CHECK(layout.bytes() % 128 == 0);
  }
}

TEST_CASE("Packing and unpacking are inverses, padding is zero") {
  for (auto [n, k] : {std::pair<int64_t, int64_t>{16, 512}, {40, 4096}, {7, 768}, {33, 208}}) {
    INFO("n " << n << " k " << k);
    const Nvfp4Layout layout(n, k);
    const std::vector<unsigned char> matrix = packed(layout);
    std::vector<float> row(static_cast<size_t>(k));
    std::vector<uint8_t> codes(size_t(k / 2)), scales(size_t(k / 16));
    int wrong = 0;
    for (int64_t r = 0; r < n; ++r) {
      madeUpRow(r, codes, scales);
      unpackNvfp4Row(layout, matrix.data(), r, row);
      for (int64_t c = 0; c < k; ++c) {
        const uint32_t code = codes[size_t(c / 2)] >> 4 * (c % 2) & 15;
        wrong +=
            row[size_t(c)] != models::e2m1Value(code) * models::e4m3Value(scales[size_t(c / 16)]);
      }
    }
    CHECK(wrong == 0);
    // Rows behind the last, and columns up to paddedK.
    const Nvfp4Layout whole(16 * layout.tiles, layout.paddedK());
    REQUIRE(whole.pieceBytes() == layout.pieceBytes());
    std::vector<float> wide(size_t(layout.paddedK()));
    for (int64_t r = 0; r < whole.n; ++r) {
      unpackNvfp4Row(whole, matrix.data(), r, wide);
      CHECK(
          std::all_of(wide.begin() + (r < n ? k : 0), wide.end(), [](float v) { return v == 0; }));
    }
  }
}

TEST_CASE("Addresses are affine: a piece is a tile of a block") {
  const Nvfp4Layout layout(48, 4096), tile(16, 4096);
  const std::vector<unsigned char> matrix = packed(layout);
  std::vector<unsigned char> one(size_t(tile.bytes()));
  for (int64_t t = 0; t < 3; ++t) {
    packNvfp4(
        tile, 0, 1,
        [&](int64_t row, std::span<uint8_t> codes, std::span<uint8_t> scales) {
          madeUpRow(16 * t + row, codes, scales);
        },
        one.data());
    for (int64_t b = 0; b < layout.blocks; ++b)
      CHECK(std::memcmp(matrix.data() + (b * 3 + t) * 18432, one.data() + b * 18432, 18432) == 0);
  }
}

TEST_CASE("Products of a chunk come in groups of steps in which a lane's columns are consecutive") {
  const Nvfp4Layout layout(16, 4096);
  std::vector<bool> seen(512);
  for (int64_t i = 0; i < 512; ++i) {
    const int64_t column = layout.columnAt(i);
    seen[size_t(column)] = true;
    CHECK(column / 64 == i / 64);
    CHECK(column % 64 == i % 16 / 4 * 16 + i % 64 / 16 * 4 + i % 4);
  }
  CHECK(std::ranges::count(seen, true) == 512);
  for (int64_t i = 0; i < 16; ++i)
    CHECK(Nvfp4Layout(16, 128).columnAt(i) == i);
}

TEST_CASE("Factors stand behind the pieces, scaled") {
  const Nvfp4Layout layout(16, 128);
  std::vector<unsigned char> matrix(size_t(layout.bytes()));
  packNvfp4Factors(layout, {{1e-5f, 3e-5f}, 0.5f}, matrix.data());
  float values[32];
  std::memcpy(values, matrix.data() + layout.piecesBytes(), 128);
  CHECK(values[0] == 1e-5f * 16384);
  CHECK(values[1] == 3e-5f * 16384);
  CHECK(values[2] == 0.5e-5f * 16384);
  CHECK(values[3] == 1.5e-5f * 16384);
  CHECK(values[4] == 0.5f);
  CHECK(values[5] == 0);
  CHECK_FALSE(nvfp4FactorsFit({{1e35f, 1}, 0}));
  CHECK_FALSE(nvfp4FactorsFit({{1, 1e-39f}, 0}));
  CHECK_FALSE(nvfp4FactorsFit({{1, 1}, std::numeric_limits<float>::infinity()}));
  CHECK(nvfp4FactorsFit({{0, 0}, 0})); // a matrix of zeros
  CHECK(nvfp4FactorsFit({{1e-5f, 3e-5f}, 0.5f}));
}

TEST_CASE("Scales that no quantiser makes are refused by row") {
  const Nvfp4Layout layout(24, 128);
  std::vector<unsigned char> matrix(size_t(layout.bytes()));
  for (uint8_t bad : {0x7F, 0xFF, 0x80, 0xB8})
    CHECK(packNvfp4(
              layout, 0, 2,
              [&](int64_t row, std::span<uint8_t> codes, std::span<uint8_t> scales) {
                madeUpRow(row, codes, scales);
                if (row == 17 || row == 20)
                  scales[3] = bad;
              },
              matrix.data()) == 17);
}
