//===- BlockCodecTest.cpp - Numbers of four and eight bits ----------------===//

#include "models/weights/block_codec.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

using namespace megalith::models;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The index in ascending `values` nearest to `x`, ties to the even index.
uint32_t nearest(const std::vector<double> &values, double x) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    const double d = std::abs(x - values[i]), b = std::abs(x - values[best]);
    if (d < b || (d == b && i % 2 == 0))
      best = i;
  }
  return uint32_t(best);
}

/// Counts the numbers for which `encode` differs from the nearest of `values`: each value, each
/// midpoint, their neighbours, every number of 11 significant bits, with both signs.
int differences(const std::vector<double> &values, uint32_t signBit,
                const std::function<uint32_t(float)> &encode) {
  int wrong = 0;
  auto check = [&](float x) {
    const uint32_t expected = nearest(values, x);
    wrong += encode(x) != expected;
    wrong += encode(-x) != (expected | signBit);
  };
  for (size_t i = 0; i < values.size(); ++i)
    for (double at : {values[i], i ? (values[i] + values[i - 1]) / 2 : 0.0}) {
      const float x = float(at);
      REQUIRE(double(x) == at);
      check(x);
      check(std::nextafter(x, kInfinity));
      if (x > 0)
        check(std::nextafter(x, 0.0f));
    }
  for (uint32_t bits = 100u << 23; bits < 140u << 23; bits += 1u << 13)
    check(codecFloat(bits));
  return wrong;
}

} // namespace

TEST_CASE("e2m1: the sixteen values") {
  const float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint32_t code = 0; code < 8; ++code) {
    CHECK(codecBits(e2m1Value(code)) == codecBits(magnitudes[code]));
    CHECK(codecBits(e2m1Value(code | 8)) == codecBits(-magnitudes[code]));
    CHECK(e2m1Code(magnitudes[code]) == code);
    CHECK(e2m1Code(-magnitudes[code]) == (code | 8));
  }
}

TEST_CASE("e2m1: nearest, ties to the even code, saturating") {
  CHECK(differences({0, 0.5, 1, 1.5, 2, 3, 4, 6}, 8, e2m1Code) == 0);
  // The ties of the specification, one by one.
  const std::pair<float, uint32_t> ties[] = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4},
                                             {2.5f, 4},  {3.5f, 6},  {5.0f, 6}};
  for (auto [value, code] : ties)
    CHECK(e2m1Code(value) == code);
  CHECK(e2m1Code(1e30f) == 7);
  CHECK(e2m1Code(-kInfinity) == 15);
  CHECK(e2m1Code(std::numeric_limits<float>::quiet_NaN()) == 7);
}

TEST_CASE("e4m3: all 256 values") {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const int exponent = int(byte >> 3 & 15), mantissa = int(byte & 7);
    const float value = e4m3Value(byte);
    CHECK(std::signbit(value) == bool(byte & 0x80));
    if ((byte & 0x7F) == 0x7F) {
      CHECK(std::isnan(value));
      CHECK(e4m3Bits(value) == byte);
      continue;
    }
    const double expected =
        exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
    CHECK(double(std::abs(value)) == expected);
    CHECK(e4m3Bits(value) == byte);
  }
  CHECK(e4m3Value(kE4m3One) == 1.0f);
}

TEST_CASE("e4m3: nearest, ties to even, saturating") {
  std::vector<double> values;
  for (uint32_t byte = 0; byte < 0x7F; ++byte)
    values.push_back(e4m3Value(byte));
  CHECK(differences(values, 0x80, e4m3Bits) == 0);
  CHECK(e4m3Bits(464.0f) == 0x7E);
  CHECK(e4m3Bits(1e30f) == 0x7E);
  CHECK(e4m3Bits(-kInfinity) == 0xFE);
}

TEST_CASE("e4m3 as ml_dtypes has it") {
  // FNV-1a over what float8_e4m3fn of ml_dtypes 0.6.0 makes of every bf16, in the order of their
  // bits, clamped to +-448 first and NaN as 0x7F; and over the fp32 bits of the 256 codes.
  uint32_t codes = 2166136261u, values = 2166136261u;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint32_t code = e4m3Bits(codecFloat(bits << 16));
    codes = (codes ^ ((code & 0x7F) == 0x7F ? 0x7F : code)) * 16777619u;
  }
  CHECK(codes == 0x66d439c5u);
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t bits = (code & 0x7F) == 0x7F ? 0x7FC00000u : codecBits(e4m3Value(code));
    for (int byte = 0; byte < 4; ++byte)
      values = (values ^ (bits >> 8 * byte & 0xFF)) * 16777619u;
  }
  CHECK(values == 0x4a617f05u);
}

TEST_CASE("e8m0: powers of two") {
  for (uint32_t byte = 0; byte < 255; ++byte)
    CHECK(e8m0Value(byte) == float(std::ldexp(1.0, int(byte) - 127)));
  CHECK(std::isnan(e8m0Value(255)));
  CHECK(e8m0Value(kE8m0One) == 1.0f);
}

TEST_CASE("MXFP4 scales put the largest magnitude into [4, 8)") {
  for (float amax : {1e-30f, 0.3f, 0.99f, 1.0f, 5.9f, 6.0f, 7.99f, 8.0f, 448.0f, 3e38f}) {
    const float scaled = amax / e8m0Value(mxfp4Scale(amax));
    CHECK(scaled >= 4);
    CHECK(scaled < 8);
  }
  CHECK(mxfp4Scale(0) == kE8m0One);
  CHECK(mxfp4Scale(1e-44f) == 0); // 2^-127 is the least scale
  CHECK(mxfp4Scale(kInfinity) == kE8m0Nan);
}
