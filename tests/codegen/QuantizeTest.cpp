// The arithmetic of kernels that quantise activations, value by value against the codec that
// quantises weights and serves the reference.
#include "codegen/device/quantize.cuh"

#include "models/weights/block_codec.h"

#include <catch2/catch.hpp>

#include <random>

using namespace megalith;

namespace {

bool sameBits(float a, float b) {
  return a == b ? std::signbit(a) == std::signbit(b) : a != a && b != b;
}

/// Magnitudes of all exponents, each mantissa's beginning, and next to every threshold.
template <class Use> void eachMagnitude(Use use) {
  for (uint32_t bits = 0; bits <= 0x7F800000u; bits += 0x4001)
    use(models::codecFloat(bits));
  for (uint32_t byte = 1; byte < 0x7F; ++byte)
    for (float factor : {1.0f, 1.03125f, 1.0625f, 0.96875f})
      for (float nudge : {1.0f, 1.0000001f, 0.9999999f})
        use(models::e4m3Value(byte) * factor * nudge);
  use(models::codecFloat(0x7FC00000u));
}

} // namespace

// Counted, and asserted once: a million assertions take half a minute.
TEST_CASE("the nearest e2m1") {
  int64_t wrong = 0;
  eachMagnitude(
      [&](float m) { wrong += detail::nearest_e2m1(m) != models::e2m1Value(models::e2m1Code(m)); });
  CHECK(wrong == 0);
}

TEST_CASE("the scale of a block") {
  for (float global : {1.0f, 0.0029761905f, 1e-5f, 3.0f}) {
    INFO(global);
    int64_t wrong = 0;
    eachMagnitude([&](float most) {
      wrong += !sameBits(detail::nvfp4_block_scale(most, global),
                         models::e4m3Value(models::nvfp4Scale(most, global)));
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("two values of a block") {
  std::mt19937 rng(1);
  int64_t wrong = 0;
  for (int i = 0; i < 200000; ++i) {
    const uint32_t pair = uint32_t(rng()), scale = 1 + uint32_t(rng()) % 0x7E;
    const float global = models::codecFloat(0x30000000u + uint32_t(rng()) % 0x10000000u);
    const float value = models::e4m3Value(scale), divisor = models::nvfp4Divisor(scale, global);
    const uint32_t coded = detail::nvfp4_pair(pair, value, divisor);
    for (uint32_t half : {0u, 16u}) {
      const float x = models::codecFloat(pair >> half << 16);
      const float expected = models::e2m1Value(models::e2m1Code(x / divisor)) * value;
      wrong += !sameBits(models::codecFloat(coded >> half << 16), expected);
    }
  }
  CHECK(wrong == 0);
}
