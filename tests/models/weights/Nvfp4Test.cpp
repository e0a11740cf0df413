//===- Nvfp4Test.cpp - Block-scaled weights and activations ---------------===//

#include "models/weights/nvfp4.h"

#include "models/weights/bf16.h"
#include "models/weights/block_codec.h"
#include "models/weights/philox.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace megalith::models;
using Catch::Matchers::Contains;

namespace {

/// The block of the specification's test vector (section 7.2).
std::vector<float> vectorBlock() {
  return {.03f,  -.011f, 0,      .007f,   .0255f, -.0198f, .0009f,  .0149f,
          -.03f, .0021f, .0123f, -.0062f, .018f,  .001f,   -.0003f, .024f};
}

struct Quantised {
  std::vector<uint8_t> codes, scales;
};

Quantised quantise(const std::vector<float> &values, float global) {
  Quantised q{std::vector<uint8_t>(values.size() / 2), std::vector<uint8_t>(values.size() / 16)};
  quantizeNvfp4(values, global, q.codes, q.scales);
  return q;
}

std::vector<float> decoded(const BlockFormat &format, const Quantised &q, size_t columns) {
  std::vector<float> out(columns);
  decodeRow(format, q.codes, q.scales, out);
  return out;
}

} // namespace

TEST_CASE("The specification's test vector") {
  const float global = nvfp4Global(0.03f);
  CHECK(global == 1.1160714e-5f);
  const Quantised q = quantise(vectorBlock(), global);
  CHECK(q.scales == std::vector<uint8_t>{0x7E});
  CHECK(q.codes == std::vector<uint8_t>{0xC7, 0x30, 0xE7, 0x50, 0x1F, 0xA4, 0x06, 0x68});
  const std::vector<float> back = decoded(BlockFormat::nvfp4(), q, 16);
  CHECK(back[0] * global == Approx(.03f));
  CHECK(back[1] * global == Approx(-.01f));
  CHECK(back[2] == 0);
  CHECK(back[3] * global == Approx(.0075f));
}

TEST_CASE("The same values clipped, in a tensor of the same largest magnitude") {
  std::vector<float> values = vectorBlock();
  for (float &value : values)
    value = std::clamp(value, -.02f, .02f);
  const Quantised q = quantise(values, nvfp4Global(0.03f));
  CHECK(q.scales == std::vector<uint8_t>{0x79});
  CHECK(e4m3Value(0x79) == 288);
  CHECK(q.codes == std::vector<uint8_t>{0xD7, 0x40, 0xF7, 0x61, 0x1F, 0xC6, 0x17, 0x78});
}

TEST_CASE("Blocks of zeros, of tiny, huge and undefined numbers") {
  std::vector<float> values(80, 0.0f);
  values[16] = 1e-20f; // far below the least scale
  values[33] = -1e20f; // far above what 448 * 6 reaches
  values[34] = 1;
  values[50] = std::numeric_limits<float>::quiet_NaN();
  values[64] = -0.0f;
  const Quantised q = quantise(values, 1.0f);
  CHECK(q.scales[0] == kE4m3One);
  CHECK(q.scales[1] == kE4m3Least);
  CHECK(q.scales[2] == 0x7E);
  CHECK(q.scales[3] == kE4m3Nan);
  CHECK(q.codes[8] == 0);
  CHECK(q.codes[16] == 0xF0); // column 33 saturates
  CHECK(q.codes[32] == 0x08); // -0 stays
  const std::vector<float> back = decoded(BlockFormat::nvfp4(), q, values.size());
  CHECK(back[33] == -2688);
  CHECK(std::isnan(back[48]));
  for (size_t i = 0; i < 16; ++i)
    CHECK(back[i] == 0);
}

TEST_CASE("Every code under every scale is a bf16 number, normal or zero") {
  for (uint32_t scale = 0; scale < 0x7F; ++scale)
    for (uint32_t code = 0; code < 16; ++code) {
      const float value = e2m1Value(code) * e4m3Value(scale);
      CHECK(r16(value) == value);
      CHECK((value == 0 || std::isnormal(value)));
    }
}

TEST_CASE("Quantised numbers quantise to themselves") {
  // A block whose largest code is 7 keeps its scale.
  std::vector<float> values(16);
  for (uint32_t scale = 1; scale < 0x7F; ++scale) {
    for (uint32_t code = 0; code < 16; ++code)
      values[code] = e2m1Value(code) * e4m3Value(scale);
    const Quantised q = quantise(values, 1.0f);
    REQUIRE(q.scales[0] == scale);
    CHECK(q.codes == std::vector<uint8_t>{0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE});
  }
}

TEST_CASE("Activations are replaced by code times scale") {
  const std::vector<float> values = vectorBlock();
  std::vector<float> out(16);
  const float inputScale = nvfp4Global(0.03f);
  quantizeActivations(values, inputScale, out);
  CHECK(out == decoded(BlockFormat::nvfp4(), quantise(values, inputScale), 16));
  CHECK(out[0] == 2688);
}

TEST_CASE("MXFP4: blocks of 32 under powers of two") {
  std::vector<float> values(64);
  for (size_t i = 0; i < 64; ++i)
    values[i] = float(int(i % 32) - 16) * (i < 32 ? 1.0f : 0x1p-20f);
  Quantised q{std::vector<uint8_t>(32), std::vector<uint8_t>(2)};
  quantizeMxfp4(values, q.codes, q.scales);
  CHECK(q.scales == std::vector<uint8_t>{127 + 2, 127 - 18});
  const std::vector<float> back = decoded(BlockFormat::mxfp4(), q, 64);
  for (size_t i = 0; i < 32; ++i) {
    CHECK(back[i] == 4 * e2m1Value(e2m1Code(values[i] / 4)));
    CHECK(back[32 + i] == back[i] * 0x1p-20f);
  }
}

TEST_CASE("FP8: blocks of 128 x 128, cut short at the edges") {
  const int64_t rows = 130, columns = 200;
  std::vector<float> values(size_t(rows * columns));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float(int(i * 7919 % 1001) - 500) / 100;
  std::fill(values.begin() + 128 * columns, values.end(), 0.0f); // the lower blocks are zero
  values[129 * columns + 199] = 1e-3f;                           // but for one number
  std::vector<uint8_t> codes(values.size());
  std::vector<float> scales(4);
  quantizeFp8Blocks(values, rows, columns, codes, scales);
  CHECK(scales[0] == 5.0f / 448);
  CHECK(scales[2] == 1.0f);
  CHECK(scales[3] == 1e-3f / 448);
  CHECK(codes.back() == 0x7E);
  std::vector<float> row(size_t(columns), 0.0f);
  decodeRow(BlockFormat::fp8Block(), std::span(codes).first(size_t(columns)),
            {reinterpret_cast<const uint8_t *>(scales.data()), 8}, row);
  for (int64_t i = 0; i < columns; ++i) // an e4m3 number has a relative error of 1/16 at most
    CHECK(std::abs(row[size_t(i)] - values[size_t(i)]) <=
          std::max(std::abs(values[size_t(i)]) / 16, scales[0] * 0x1p-10f) * 1.0001f);
}

TEST_CASE("Made-up NVFP4 weights are the made-up weights, quantised") {
  const TensorSpec spec{"model.layers.1.mlp.experts.gate_up_proj", {3, 6, 64}};
  const HashedWeights weights(5);
  const auto plain = llvm::cantFail(weights.open(spec));
  const auto blocks = llvm::cantFail(weights.openBlocks(spec, BlockFormat::nvfp4()));
  const float s = weightScale(64), global = nvfp4Global(s);
  std::vector<float> values(64), got(64);
  for (int64_t row = 0; row < spec.rows(); ++row) {
    plain->row(row, std::span<float>(values));
    const Quantised q = quantise(values, global);
    Quantised stored = q;
    std::ranges::fill(stored.codes, 0);
    std::ranges::fill(stored.scales, 0);
    blocks->stored(row, stored.codes, stored.scales);
    CHECK(stored.codes == q.codes);
    CHECK(stored.scales == q.scales);
    CHECK(blocks->global(row) == global);
    CHECK(blocks->inputScale(row) == nvfp4Global(8));
    blocks->unscaledRow(row, got);
    CHECK(got == decoded(BlockFormat::nvfp4(), q, 64));
    blocks->row(row, std::span<float>(got));
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(std::abs(got[i] - values[i]) <= s / 6); // half the widest step, 4 to 6
  }
}

TEST_CASE("Made-up MXFP4 and FP8 weights") {
  const TensorSpec spec{"w", {2, 160}};
  const HashedWeights weights(5);
  std::vector<float> values(160), got(160);
  llvm::cantFail(weights.open(spec))->row(1, std::span<float>(values));
  for (const BlockFormat &format : {BlockFormat::mxfp4(), BlockFormat::fp8Block(),
                                    BlockFormat::fp8Block(BlockFormat::Scale::Bf16)}) {
    const auto blocks = llvm::cantFail(weights.openBlocks(spec, format));
    CHECK(blocks->global(1) == 1.0f);
    blocks->row(1, std::span<float>(got));
    double error = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += std::pow(got[i] - values[i], 2);
      size += std::pow(values[i], 2);
    }
    CHECK(error > 0);
    CHECK(error < size * (format.code == BlockFormat::Code::E2m1 ? 0.03 : 0.002));
  }
}

TEST_CASE("Block formats that no made-up weight has are refused") {
  const HashedWeights weights(5);
  auto error = [&](const TensorSpec &spec, const BlockFormat &format) {
    auto opened = weights.openBlocks(spec, format);
    return opened ? "" : llvm::toString(opened.takeError());
  };
  CHECK_THAT(error({"w", {2, 24}}, BlockFormat::nvfp4()),
             Contains("w [2, 24]: rows of 4-bit codes must be whole blocks of 16 columns"));
  BlockFormat odd = BlockFormat::nvfp4();
  odd.blockColumns = 8;
  CHECK_THAT(error({"w", {2, 24}}, odd), Contains("NVFP4, MXFP4 or FP8"));
}
