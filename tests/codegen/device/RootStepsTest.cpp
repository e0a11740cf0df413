//===- RootStepsTest.cpp - 1 / sqrt(x) from an estimate -------------------===//

#include "codegen/device/platform.cuh"
#include "codegen/device/root_steps.cuh"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace megalith;

namespace {

float steps(float x, float estimate) {
  return platform::root_steps(x, estimate,
                              [](float a, float b, float c) { return std::fma(a, b, c); });
}

/// How many of all significands of two binades have other bits than a root and a division, the
/// estimate `off` units of its last place away.
int wrong(int off) {
  int wrong = 0;
  for (uint32_t i = 0; i < 1u << 24; ++i) {
    const float x = bits_to_float(0x3F800000u + i);
    const auto exact = static_cast<float>(1 / std::sqrt(static_cast<double>(x)));
    wrong += steps(x, bits_to_float(float_to_bits(exact) + off)) != 1.0f / std::sqrt(x);
  }
  return wrong;
}

} // namespace

TEST_CASE("every significand, whatever the estimate within two units") {
  for (int off = -2; off <= 2; ++off) {
    INFO("estimate " << off << " units off");
    CHECK(wrong(off) == 0);
  }
}

TEST_CASE("the range's ends, and what has no root") {
  const float least = 0x1p-100f, most = std::numeric_limits<float>::max();
  for (float x : {least, std::nextafter(least, 1.0f), 1e-8f, 0x1p100f, most})
    for (int off = -2; off <= 2; ++off) {
      const auto exact = static_cast<float>(1 / std::sqrt(static_cast<double>(x)));
      INFO(x << ", estimate " << off << " units off");
      CHECK(steps(x, bits_to_float(float_to_bits(exact) + off)) == 1.0f / std::sqrt(x));
    }
  CHECK(steps(most, 0.0f) == 0); // infinity, as the platform hands it on
  CHECK(std::isnan(steps(most, std::nanf(""))));
}
