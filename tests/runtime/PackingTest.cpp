//===- PackingTest.cpp - Strips and pages against the contract's words ----===//

#include "runtime/packing.h"

#include "models/weights/bf16.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <iterator>
#include <set>

using namespace megalith::runtime;

namespace {

uint16_t element(int64_t row, int64_t column) {
  return uint16_t(1 + row * 397 + column * 7);
}

void fillRow(int64_t row, std::span<uint16_t> out) {
  for (size_t c = 0; c < out.size(); ++c)
    out[c] = element(row, c);
}

uint16_t at(const std::vector<unsigned char> &bytes, int64_t offset) {
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + offset, 2);
  return bits;
}

std::vector<unsigned char> pack(const StripLayout &layout) {
  std::vector<unsigned char> bytes(layout.bytes(), 0xAA);
  packStrips(layout, 0, layout.strips, fillRow, bytes.data());
  return bytes;
}

/// The contract's section 1 read literally: walk memory in order and say what belongs there.
std::vector<unsigned char> packByWalking(int64_t n, int64_t k) {
  const int64_t chunk16 = int64_t(std::ceil(std::ceil(k / 8.0) / 16.0));
  int64_t kb = 4;
  while (chunk16 % kb != 0)
    --kb;
  std::vector<uint16_t> words;
  for (int64_t block = 0; block < chunk16 / kb; ++block)
    for (int64_t strip = 0; strip < (n + 1) / 2; ++strip)
      for (int64_t position = 0; position < 8 * kb; ++position) {
        const int64_t unit = position ^ (strip & 1);
        const int64_t k16 = unit / kb * chunk16 + block * kb + unit % kb;
        for (int64_t t = 0; t < 4; ++t)
          for (int64_t first : {4 * t, 4 * t + 2})
            for (int64_t row : {2 * strip, 2 * strip + 1})
              for (int64_t c : {16 * k16 + first, 16 * k16 + first + 1})
                words.push_back(row < n && c < k ? element(row, c) : 0);
      }
  std::vector<unsigned char> bytes(words.size() * 2);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

} // namespace

TEST_CASE("the shape of blocks follows K") {
  // Qwen3-30B-A3B: hidden 2048, attention output 4096, expert width 768; Mixtral's 14336.
  struct Case {
    int64_t k, chunk16, kb, blocks;
  };
  for (Case c : {Case{2048, 16, 4, 4},
                 {4096, 32, 4, 8},
                 {768, 6, 3, 2},
                 {14336, 112, 4, 28},
                 {128, 1, 1, 1},
                 {100, 1, 1, 1},
                 {129, 2, 2, 1},
                 {640, 5, 1, 5}}) {
    StripLayout layout(64, c.k);
    CAPTURE(c.k);
    CHECK(layout.chunk16 == c.chunk16);
    CHECK(layout.kb == c.kb);
    CHECK(layout.blocks == c.blocks);
    CHECK(layout.bytes() == 64 * layout.paddedK() * 2);
    CHECK(layout.stripBytes() * kPieceStrips <= 16384);
  }
}

TEST_CASE("packed strips are what the contract says, padding included") {
  for (auto [n, k] :
       {std::pair<int64_t, int64_t>{2, 128}, {16, 768}, {7, 200}, {34, 2048}, {1, 16}, {18, 640}}) {
    CAPTURE(n, k);
    CHECK(pack(StripLayout(n, k)) == packByWalking(n, k));
  }
}

TEST_CASE("offset() names each byte pair of the matrix once") {
  StripLayout layout(6, 384);
  std::set<int64_t> seen;
  for (int64_t row = 0; row < 2 * layout.strips; ++row)
    for (int64_t column = 0; column < layout.paddedK(); ++column)
      seen.insert(layout.offset(row, column));
  CHECK(int64_t(seen.size()) * 2 == layout.bytes());
  CHECK(*seen.rbegin() == layout.bytes() - 2);
}

TEST_CASE("unpacking gives the rows back") {
  StripLayout layout(13, 776);
  const auto bytes = pack(layout);
  std::vector<uint16_t> row(layout.k), want(layout.k);
  for (int64_t r = 0; r < layout.n; ++r) {
    unpackRow(layout, bytes.data(), r, row);
    fillRow(r, want);
    CHECK(row == want);
  }
}

TEST_CASE("a piece equals its bytes in the matrix") {
  StripLayout layout(39, 1024);
  const auto bytes = pack(layout);
  for (int64_t block = 0; block < layout.blocks; ++block)
    for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 8}, {3, 5}, {19, 1}}) {
      std::vector<unsigned char> piece(count * layout.stripBytes());
      packPiece(layout, block, first, count, fillRow, piece.data());
      CHECK(std::memcmp(piece.data(), bytes.data() + layout.pieceOffset(block, first),
                        piece.size()) == 0);
    }
}

TEST_CASE("packing some strips leaves the others alone") {
  StripLayout layout(20, 512);
  std::vector<unsigned char> bytes(layout.bytes(), 0xAA);
  packStrips(layout, 4, 3, fillRow, bytes.data());
  for (int64_t row = 0; row < 20; ++row)
    CHECK(at(bytes, layout.offset(row, 77)) ==
          (row >= 8 && row < 14 ? element(row, 77) : uint16_t(0xAAAA)));
}

TEST_CASE("a KV unit holds fragments: K by key, V by channel") {
  KvLayout layout{2, 64};
  CHECK(layout.pageBytes() == 2 * 64 * 64 * 2 * 2);
  // The contract's slots for lane (g, t) = (3, 2) of slice 1, second unit, head 1.
  const int64_t base = layout.headBytes() + layout.unitBytes() + 512 + (3 * 4 + 2) * 16;
  CHECK(layout.keyOffset(16 + 3, 1, 16 + 8) == base);
  CHECK(layout.keyOffset(16 + 3, 1, 16 + 9) == base + 2);
  CHECK(layout.keyOffset(16 + 11, 1, 16 + 8) == base + 4);
  CHECK(layout.keyOffset(16 + 3, 1, 16 + 10) == base + 8);
  CHECK(layout.keyOffset(16 + 11, 1, 16 + 11) == base + 14);
  const int64_t values = base + layout.partBytes();
  CHECK(layout.valueOffset(16 + 8, 1, 16 + 3) == values);
  CHECK(layout.valueOffset(16 + 9, 1, 16 + 3) == values + 2);
  CHECK(layout.valueOffset(16 + 8, 1, 16 + 11) == values + 4);
  CHECK(layout.valueOffset(16 + 10, 1, 16 + 3) == values + 8);
}

TEST_CASE("KV written through a page table reads back, and touches nothing else") {
  KvLayout layout{3, 32};
  std::vector<unsigned char> pool(4 * layout.pageBytes(), 0xEE);
  const std::vector<int32_t> pages = {2, 0};
  std::vector<uint16_t> key(96), value(96);
  std::set<int64_t> offsets;
  for (int64_t position : {0, 15, 16, 63, 64, 100}) {
    for (int64_t i = 0; i < 96; ++i) {
      key[i] = element(position, i);
      value[i] = element(position + 1000, i);
    }
    writeKv(layout, pool.data(), pages, position, key, value);
    std::vector<uint16_t> k(96), v(96);
    readKv(layout, pool.data(), pages, position, k, v);
    CHECK(k == key);
    CHECK(v == value);
  }
  int64_t written = 0;
  for (int64_t i = 0; i < int64_t(pool.size()); i += 2)
    written += at(pool, i) != 0xEEEE;
  CHECK(written == 6 * 2 * 96);
  CHECK(std::vector<unsigned char>(pool.begin() + layout.pageBytes(),
                                   pool.begin() + 2 * layout.pageBytes()) ==
        std::vector<unsigned char>(layout.pageBytes(), 0xEE));
}

TEST_CASE("KV of e4m3: the same places at half the bytes, numbers rounded") {
  const KvLayout wide{2, 64}, layout{2, 64, 1};
  CHECK(2 * layout.pageBytes() == wide.pageBytes());
  for (int64_t position : {0, 19, 63})
    for (int64_t channel : {0, 9, 63}) {
      CHECK(2 * layout.keyOffset(position, 1, channel) == wide.keyOffset(position, 1, channel));
      CHECK(2 * layout.valueOffset(position, 1, channel) == wide.valueOffset(position, 1, channel));
    }
  std::vector<unsigned char> pool(layout.pageBytes(), 0xEE);
  const std::vector<int32_t> pages = {0};
  std::vector<uint16_t> key(128), value(128), k(128), v(128);
  const float given[] = {1.0f, 1.0625f, 1.1875f, 500.0f, -0.0f, 0x1p-10f, -0x1.8p-10f};
  const float kept[] = {1.0f, 1.0f, 1.25f, 448.0f, -0.0f, 0.0f, -0x1p-9f};
  for (size_t i = 0; i < std::size(given); ++i) {
    key[i] = megalith::models::toBf16(given[i]);
    value[127 - i] = key[i];
  }
  key[100] = 0x7FC0; // NaN
  writeKv(layout, pool.data(), pages, 37, key, value);
  readKv(layout, pool.data(), pages, 37, k, v);
  for (size_t i = 0; i < std::size(kept); ++i) {
    CHECK(k[i] == megalith::models::toBf16(kept[i]));
    CHECK(v[127 - i] == k[i]);
  }
  CHECK((k[100] & 0x7FFF) > 0x7F80);
  CHECK(std::count(pool.begin(), pool.end(), 0xEE) ==
        int64_t(pool.size()) - 256); // nothing else is touched, and no code here is 0xEE
}

TEST_CASE("inverse frequencies") {
  const auto table = inverseFrequencies(128, 1e6);
  REQUIRE(table.size() == 64);
  CHECK(table[0] == 1.0f);
  CHECK(table[32] == 1e-3f);
  CHECK(table[63] == Approx(std::exp(-126.0 / 128 * std::log(1e6))));
}
