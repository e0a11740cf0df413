//===- PhiloxTest.cpp - The counter hash ----------------------------------===//

#include "models/weights/philox.h"
#include "models/weights/bf16.h"
#include "models/weights/weights.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace megalith::models;

TEST_CASE("Philox4x32-10 gives the published known answers") {
  auto words = [](PhiloxBlock block) { return std::vector<uint32_t>(block.word, block.word + 4); };
  CHECK(words(philox4x32(0, 0, 0, 0, 0, 0)) ==
        std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(words(philox4x32(ones, ones, ones, ones, ones, ones)) ==
        std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words(philox4x32(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344)) ==
        std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("FNV-1a gives the published known answers") {
  CHECK(fnv1a32("", 0) == 0x811c9dc5);
  CHECK(fnv1a32("a", 1) == 0xe40c292c);
  CHECK(fnv1a32("foobar", 6) == 0xbf9cf968);
}

TEST_CASE("r16 rounds to nearest, ties to even") {
  CHECK(r16(1.0f) == 1.0f);
  CHECK(r16(1.0f + 0x1p-8f) == 1.0f);           // tie, even below
  CHECK(r16(1.0f + 0x3p-8f) == 1.0f + 0x2p-7f); // tie, even above
  CHECK(r16(1.0f + 0x1p-8f + 0x1p-20f) == 1.0f + 0x1p-7f);
  CHECK(r16(-1.0f - 0x3p-8f) == -1.0f - 0x2p-7f);
  CHECK(std::isinf(r16(std::numeric_limits<float>::max())));
  CHECK(std::isnan(r16(std::numeric_limits<float>::quiet_NaN())));
  CHECK(r16(0x1p-133f) == 0x1p-133f); // the smallest bf16 subnormal
}

TEST_CASE("A weight equals the rounded floating-point formula") {
  auto formula = [](uint32_t word, float scale) {
    const float u = float(word >> 8) * 0x1p-24f;
    return r16((2.0f * u - 1.0f) * scale);
  };
  for (uint32_t i = 0; i < 200000; ++i) {
    const uint32_t word = hashWord(1, 2, i);
    // Near one half too, where the magnitude is small and few bits are cut off.
    for (uint32_t w : {word, 0x80000000u + (word >> (i % 24)), 0x80000000u - (word >> (i % 24))})
      if (weightFromWord(w, 0x1p-5f) != formula(w, 0x1p-5f))
        FAIL("word " << w << ": got " << weightFromWord(w, 0x1p-5f) << ", expected "
                     << formula(w, 0x1p-5f));
  }
  CHECK(weightFromWord(0, 0.25f) == -0.25f);
  CHECK(weightFromWord(0xffffffff, 0.25f) == 0.25f);
  CHECK(weightFromWord(0x80000000, 0.25f) == 0.0f);
}

TEST_CASE("The scale is the power of two nearest to sqrt(3/K), halves away from zero") {
  for (uint64_t k = 1; k < 70000; ++k) {
    const double exponent = std::log2(std::sqrt(3.0 / double(k)));
    if (std::abs(std::abs(exponent - std::floor(exponent)) - 0.5) > 1e-9)
      REQUIRE(weightScale(k) == float(std::exp2(std::round(exponent))));
  }
  CHECK(weightScale(6) == 0x1p-1f);
  CHECK(weightScale(1536) == 0x1p-5f);
}

TEST_CASE("Rows computed many elements at a time equal elements computed one by one") {
  for (int64_t columns : {1, 31, 32, 100, 2048}) {
    auto tensor = llvm::cantFail(HashedWeights(9).open({"t", {1 << 30, columns}}));
    std::vector<float> row(static_cast<size_t>(columns));
    // Row numbers on both sides of the element index 2^32.
    for (int64_t r : {int64_t(0), (int64_t(1) << 32) / columns % (1 << 30), int64_t(1 << 29)}) {
      tensor->row(r, std::span<float>(row));
      for (int64_t c = 0; c < columns; ++c)
        REQUIRE(row[size_t(c)] == weightValue(9, fnv1a32("t", 1), uint64_t(r * columns + c),
                                              weightScale(uint64_t(columns))));
    }
  }
}

TEST_CASE("Hashed weights are rows of the unsharded tensor, gains lie around one") {
  HashedWeights source(5);
  auto tensor = llvm::cantFail(source.open({"experts", {2, 3, 24}}));
  std::vector<float> row(24);
  tensor->row(4, std::span<float>(row));
  CHECK(row[7] == weightValue(5, fnv1a32("experts", 7), 4 * 24 + 7, 0.25f));
  std::vector<uint16_t> bits(24);
  tensor->row(4, std::span<uint16_t>(bits));
  CHECK(fromBf16(bits[7]) == row[7]);

  auto gain = llvm::cantFail(source.open({"norm", {24}, TensorRole::Gain}));
  gain->row(0, std::span<float>(row));
  for (float value : row)
    CHECK(std::abs(value - 1.0f) <= kGainScale);
  CHECK(row[0] != row[1]);
  std::vector<float> centred(24);
  llvm::cantFail(source.open({"norm", {24}, TensorRole::CentredGain}))
      ->row(0, std::span<float>(centred));
  CHECK(row[3] == r16(1.0f + centred[3]));

  auto bad = source.open({"x", {4, 0}});
  REQUIRE(!bad);
  CHECK(llvm::toString(bad.takeError()) ==
        "weights: tensor x [4, 0]: every dimension must be positive");
}

TEST_CASE("Tokens and KV indices do not depend on the length of a run") {
  CHECK(hashedToken(7, 3, 0, 512) == 360);
  CHECK(hashedToken(7, 3, 4, 512) == 208);
  CHECK(kvIndex(1, 2, 4, 64, 3, 5) == ((((1u << 20) + 2) * 4 + 3) * 64) + 5);
}
