//===- WeightPackerTest.cpp - Checkpoint tensors to packed memory ---------===//

#include "tests/runtime/TinyPlan.h"

#include "runtime/ranks.h"
#include "runtime/weight_packer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>

using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

/// Small integers as bf16, different for each tensor; their sums with 1 are exact.
uint16_t bits(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  return uint16_t(word >> 16);
}
uint16_t element(const std::string &tensor, int64_t row, int64_t column) {
  return bits(float((std::hash<std::string>()(tensor) % 7 + row * 13 + column * 3) % 100));
}

struct Source {
  std::vector<std::string> opened;
  OpenTensor open() {
    return [this](const std::string &name, const std::vector<int64_t> &shape,
                  bool) -> llvm::Expected<TensorRow> {
      opened.push_back(name);
      if (name == "missing")
        return llvm::createStringError(llvm::inconvertibleErrorCode(), "no such tensor");
      return TensorRow([name, columns = shape.back()](int64_t row, std::span<uint16_t> out) {
        REQUIRE(int64_t(out.size()) == columns);
        for (int64_t c = 0; c < columns; ++c)
          out[c] = element(name, row, c);
      });
    };
  }
};

WeightPacker open(const Weight &weight, int64_t layer = 3) {
  Source source;
  auto packer = WeightPacker::open(weight, layer, source.open());
  REQUIRE(bool(packer));
  return std::move(*packer);
}

std::vector<uint16_t> row(const WeightPacker &packer, int64_t segment, int64_t index) {
  std::vector<uint16_t> values(packer.weight().k);
  packer.row(segment, index, values);
  return values;
}

/// Columns [first, first + count) of a tensor's row.
std::vector<uint16_t> tensorRow(const std::string &name, int64_t index, int64_t count,
                                int64_t first = 0) {
  std::vector<uint16_t> values;
  for (int64_t c = first; c < first + count; ++c)
    values.push_back(element(name, index, c));
  return values;
}

Weight single(std::vector<int64_t> shape, std::vector<Transform> transforms, int64_t n, int64_t k) {
  return {.name = "w",
          .form = WeightForm::Table,
          .n = n,
          .k = k,
          .perLayer = false,
          .parts = {{.tensor = "t", .shape = shape, .transforms = transforms}}};
}

} // namespace

TEST_CASE("parts are stacked, names get the layer") {
  Source source;
  auto packer = WeightPacker::open(*tinyPlan().weight("qkv"), 5, source.open());
  REQUIRE(bool(packer));
  CHECK(source.opened == std::vector<std::string>{"model.layers.5.q.weight",
                                                  "model.layers.5.k.weight",
                                                  "model.layers.5.v.weight"});
  CHECK(row(*packer, 0, 0) == tensorRow("model.layers.5.q.weight", 0, 128));
  CHECK(row(*packer, 0, 16) == tensorRow("model.layers.5.k.weight", 0, 128));
  CHECK(row(*packer, 0, 47) == tensorRow("model.layers.5.v.weight", 15, 128));
}

TEST_CASE("an expert bank pairs gate with up, one segment an expert") {
  const WeightPacker packer = open(*tinyPlan().weight("expert_up"));
  const StripLayout layout(64, 128);
  CHECK(segmentCount(packer.weight()) == 3);
  CHECK(segmentBytes(packer.weight()) == layout.bytes());
  std::vector<unsigned char> bytes(layout.bytes(), 0xAA), again(layout.bytes(), 0xBB);
  packer.pack(2, bytes.data());
  packer.pack(2, again.data(), 3);
  CHECK(bytes == again); // on any number of threads
  std::vector<uint16_t> values(128);
  unpackRow(layout, bytes.data(), 2 * 31, values);
  CHECK(values == tensorRow("model.layers.3.mlp.2.gate.weight", 31, 128));
  unpackRow(layout, bytes.data(), 2 * 31 + 1, values);
  CHECK(values == tensorRow("model.layers.3.mlp.2.up.weight", 31, 128));
}

TEST_CASE("one tensor may hold all experts") {
  Weight weight = {.name = "w",
                   .n = 4,
                   .k = 128,
                   .experts = 3,
                   .perLayer = false,
                   .parts = {{.tensor = "t", .shape = {3, 4, 128}}}};
  const WeightPacker packer = open(weight);
  CHECK(row(packer, 2, 1) == tensorRow("t", 9, 128));
}

TEST_CASE("a rank's rows of each expert in a tensor that holds all, gates and ups") {
  // Three experts of 8 gate and 8 up rows; two ranks have four of each.
  const auto part = [](int64_t first) {
    return WeightPart{
        .tensor = "t",
        .shape = {3, 16, 128},
        .transforms = {{.first = first, .count = 8, .groups = 3},
                       {.kind = TransformKind::Shard, .count = 4, .groups = 1, .matrices = 3}}};
  };
  const Plan plan = {.tp = 2,
                     .weights = {{.name = "up",
                                  .form = WeightForm::GateUpStrips,
                                  .n = 8,
                                  .k = 128,
                                  .experts = 3,
                                  .perLayer = false,
                                  .parts = {part(0), part(8)}}}};
  for (int64_t rank = 0; rank < 2; ++rank) {
    const WeightPacker packer = open(planOfRank(plan, rank).weights.front());
    for (int64_t expert = 0; expert < 3; ++expert)
      for (int64_t i = 0; i < 8; ++i) { // gate, up
        INFO("rank " << rank << ", expert " << expert << ", row " << i);
        CHECK(row(packer, expert, i) ==
              tensorRow("t", 16 * expert + 8 * (i % 2) + 4 * rank + i / 2, 128));
      }
  }
}

TEST_CASE("each transform") {
  SECTION("slice of rows and of columns") {
    const WeightPacker packer = open(single({8, 16},
                                            {{.axis = Axis::Rows, .first = 2, .count = 4},
                                             {.axis = Axis::Columns, .first = 5, .count = 6}},
                                            4, 6));
    CHECK(row(packer, 0, 3) == tensorRow("t", 5, 6, 5));
  }
  SECTION("pad of rows and of columns") {
    const WeightPacker packer =
        open(single({2, 4},
                    {{.kind = TransformKind::Pad, .axis = Axis::Rows, .count = 3},
                     {.kind = TransformKind::Pad, .axis = Axis::Columns, .count = 6}},
                    3, 6));
    auto want = tensorRow("t", 1, 4);
    want.resize(6, 0);
    CHECK(row(packer, 0, 1) == want);
    CHECK(row(packer, 0, 2) == std::vector<uint16_t>(6, 0));
  }
  SECTION("permute, group by group") {
    const WeightPacker packer =
        open(single({6, 4}, {{.kind = TransformKind::Permute, .order = {2, 0, 1}}}, 6, 4));
    CHECK(row(packer, 0, 0) == tensorRow("t", 2, 4));
    CHECK(row(packer, 0, 4) == tensorRow("t", 3, 4));
  }
  SECTION("interleave") {
    const WeightPacker packer =
        open(single({6, 4}, {{.kind = TransformKind::Interleave, .groups = 2}}, 6, 4));
    CHECK(row(packer, 0, 0) == tensorRow("t", 0, 4));
    CHECK(row(packer, 0, 1) == tensorRow("t", 3, 4));
    CHECK(row(packer, 0, 4) == tensorRow("t", 2, 4));
  }
  SECTION("transforms apply in order") { // interleave, then rows 1..3 of the result
    const WeightPacker packer = open(single({6, 4},
                                            {{.kind = TransformKind::Interleave, .groups = 2},
                                             {.axis = Axis::Rows, .first = 1, .count = 3}},
                                            3, 4));
    CHECK(row(packer, 0, 0) == tensorRow("t", 3, 4));
    CHECK(row(packer, 0, 2) == tensorRow("t", 4, 4));
  }
  SECTION("slice of the rows of every matrix in a tensor") {
    const WeightPacker packer =
        open(single({3, 4, 8}, {{.first = 2, .count = 2, .groups = 3}}, 6, 8));
    CHECK(row(packer, 0, 0) == tensorRow("t", 2, 8));
    CHECK(row(packer, 0, 3) == tensorRow("t", 7, 8));
    CHECK(row(packer, 0, 4) == tensorRow("t", 10, 8));
  }
  SECTION("coefficients of a residual gate") { // test values of spec/muse-spark-open.md section 3
    Weight weight = single({6}, {}, 2, 6);
    weight.element = Element::F32;
    weight.parts.push_back(weight.parts[0]);
    weight.parts[0].transforms = {
        {.kind = TransformKind::GateAlpha, .temperature = 0.3, .floor = 1e-3}};
    weight.parts[1].transforms = {{.kind = TransformKind::GateBeta, .temperature = 0.3}};
    const std::vector<float> gates = {-2, -0.5, 0, 0.5, 2, 3},
                             alpha = {0.999999f, 0.987300f, 0.866025f,
                                      0.540832f, 0.050403f, 0.031623f},
                             beta = {0.001271f, 0.158869f, 0.5f, 0.841131f, 0.998729f, 0.999955f};
    auto packer = WeightPacker::open(weight, 0,
                                     [&](const std::string &, const std::vector<int64_t> &,
                                         TensorUse use) -> llvm::Expected<TensorRow> {
                                       CHECK(use == kMatrix);
                                       return TensorRow([&](int64_t, std::span<float> out) {
                                         std::ranges::copy(gates, out.begin());
                                       });
                                     });
    REQUIRE(bool(packer));
    std::vector<float> values(12);
    REQUIRE(segmentBytes(weight) == 48);
    packer->pack(0, reinterpret_cast<unsigned char *>(values.data()));
    for (size_t i = 0; i < 6; ++i) {
      CHECK(values[i] == Approx(alpha[i]).margin(1e-6));
      CHECK(values[6 + i] == Approx(beta[i]).margin(1e-6));
    }
  }
  SECTION("1 + w") {
    const WeightPacker packer = open(single({1, 4}, {{.kind = TransformKind::AddOne}}, 1, 4));
    const auto plain = tensorRow("t", 0, 4);
    const auto values = row(packer, 0, 0);
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = uint32_t(plain[i]) << 16;
      float value;
      std::memcpy(&value, &word, 4);
      CHECK(values[i] == bits(value + 1));
    }
  }
}

TEST_CASE("vectors are padded, fp32 where asked; tables are rows; frequencies need no tensor") {
  Weight weight = {.name = "v",
                   .form = WeightForm::Vector,
                   .element = Element::F32,
                   .k = 100,
                   .perLayer = false,
                   .parts = {{.tensor = "t", .shape = {100}}}};
  const WeightPacker packer = open(weight);
  REQUIRE(segmentBytes(packer.weight()) == 512);
  std::vector<float> values(128, 77);
  packer.pack(0, reinterpret_cast<unsigned char *>(values.data()));
  for (int i = 0; i < 128; ++i)
    CHECK((i < 100 ? bits(values[i]) == element("t", 0, i) : values[i] == 0));

  const WeightPacker table = open(single({8, 16}, {}, 8, 16));
  std::vector<uint16_t> rows(8 * 16);
  REQUIRE(segmentBytes(table.weight()) == 2 * int64_t(rows.size()));
  table.pack(0, reinterpret_cast<unsigned char *>(rows.data()));
  CHECK(rows[5 * 16 + 7] == element("t", 5, 7));

  const WeightPacker frequencies = open(*tinyPlan().weight("inv_freq"));
  std::vector<float> inverse(8);
  REQUIRE(segmentBytes(frequencies.weight()) == 32);
  frequencies.pack(0, reinterpret_cast<unsigned char *>(inverse.data()));
  CHECK(inverse == inverseFrequencies(16, 1e4));
}

TEST_CASE("fp32 matrices keep every bit") {
  Weight weight = {.name = "w",
                   .element = Element::F32,
                   .n = 6,
                   .k = 200,
                   .perLayer = false,
                   .parts = {{.tensor = "t", .shape = {6, 200}}}};
  const auto element = [](int64_t row, int64_t column) {
    return 1.0f + float(row * 1000 + column) * 0x1p-20f; // no bf16 number
  };
  auto packer = WeightPacker::open(weight, 0,
                                   [&](const std::string &, const std::vector<int64_t> &,
                                       TensorUse) -> llvm::Expected<TensorRow> {
                                     return TensorRow([&](int64_t row, std::span<float> out) {
                                       for (size_t c = 0; c < out.size(); ++c)
                                         out[c] = element(row, int64_t(c));
                                     });
                                   });
  REQUIRE(bool(packer));
  const StripLayout layout(6, 200);
  REQUIRE(segmentBytes(weight) == 2 * layout.bytes());
  std::vector<unsigned char> bytes(size_t(segmentBytes(weight)), 0xAA);
  packer->pack(0, bytes.data(), 2);
  int wrong = 0;
  for (int64_t row = 0; row < 6; ++row)
    for (int64_t column = 0; column < layout.paddedK(); ++column) {
      float value;
      std::memcpy(&value, bytes.data() + wideOffset(layout, row, column), 4);
      wrong += value != (column < 200 ? element(row, column) : 0.0f);
    }
  CHECK(wrong == 0);
  // The contract: of a strip of a block, unit j = chunk * kb + step is [2 rows][16 k].
  CHECK(wideOffset(layout, 3, 5) == 1024 * layout.kb + 64 + 20);
  CHECK(wideOffset(layout, 0, 16 * layout.chunk16) == 128 * layout.kb);
}

TEST_CASE("a tensor that cannot be opened is named with its weight") {
  Source source;
  Weight weight = single({8, 16}, {}, 8, 16);
  weight.parts[0].tensor = "missing";
  auto packer = WeightPacker::open(weight, 4, source.open());
  REQUIRE(!packer);
  CHECK_THAT(llvm::toString(packer.takeError()), Contains("weight 'w' of layer 4: no such tensor"));
}

namespace {

/// NVFP4 tensors whose numbers say where they are; factors by tensor and half of the rows.
struct BlockSource {
  float downFactor = 0.5f, upFactor = 0.25f, lateInput = 2;

  OpenTensor open() const {
    OpenTensor open = Source().open();
    open.blocks = [*this](const std::string &name,
                          const std::vector<int64_t> &) -> llvm::Expected<BlockRows> {
      const bool isUp = name.find("up") != std::string::npos;
      return BlockRows{
          [](int64_t row, std::span<uint8_t> codes, std::span<uint8_t> scales) {
            for (size_t i = 0; i < codes.size(); ++i)
              codes[i] = code(row, int64_t(i));
            for (size_t i = 0; i < scales.size(); ++i)
              scales[i] = uint8_t(1 + (row + int64_t(i)) % 0x7E);
          },
          [factor = isUp ? upFactor : downFactor](int64_t row) { return row < 8 ? 0.5f : factor; },
          [late = lateInput](int64_t row) { return row < 12 ? 2.0f : late; }};
    };
    return open;
  }
  static uint8_t code(int64_t row, int64_t byte) { return uint8_t(row * 37 + byte * 11); }
};

Weight nvfp4(std::vector<WeightPart> parts, WeightForm form, int64_t n, int64_t k) {
  return {.name = "w", .form = form, .n = n, .k = k, .perLayer = false, .parts = std::move(parts)};
}

std::string openError(const Weight &weight, const OpenTensor &open) {
  auto packer = WeightPacker::open(weight, 0, open);
  return packer ? "" : llvm::toString(packer.takeError());
}

} // namespace

TEST_CASE("NVFP4: rows are found through transforms, columns cut at whole blocks") {
  const Weight weight =
      nvfp4({{.tensor = "gate",
              .shape = {8, 256},
              .transforms = {{.axis = Axis::Rows, .first = 2, .count = 6},
                             {.axis = Axis::Columns, .first = 64, .count = 128}}},
             {.tensor = "up",
              .shape = {8, 256},
              .transforms = {{.axis = Axis::Rows, .first = 1, .count = 6},
                             {.axis = Axis::Columns, .first = 64, .count = 128}}}},
            WeightForm::GateUpNvfp4, 12, 128);
  auto packer = WeightPacker::open(weight, 0, BlockSource().open());
  REQUIRE(bool(packer));
  const Nvfp4Layout layout(12, 128);
  REQUIRE(segmentBytes(weight) == layout.bytes());
  std::vector<unsigned char> bytes(size_t(layout.bytes())), again(bytes.size(), 0xBB);
  packer->pack(0, bytes.data());
  packer->pack(0, again.data(), 3);
  CHECK(bytes == again);
  std::vector<unsigned char> expected(bytes.size());
  packNvfp4(
      layout, 0, 1,
      [&](int64_t row, std::span<uint8_t> codes, std::span<uint8_t> scales) {
        const int64_t source = row / 2 + (row % 2 ? 1 : 2);
        for (size_t i = 0; i < codes.size(); ++i)
          codes[i] = BlockSource::code(source, int64_t(i) + 32);
        for (size_t i = 0; i < scales.size(); ++i)
          scales[i] = uint8_t(1 + (source + int64_t(i) + 4) % 0x7E);
      },
      expected.data());
  packNvfp4Factors(layout, {{0.5f, 0.5f}, 2}, expected.data());
  CHECK(bytes == expected);
}

TEST_CASE("NVFP4: gates and ups have their own factors, and no more than these") {
  const std::vector<int64_t> halves = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
  const Weight fused = nvfp4({{.tensor = "up",
                               .shape = {16, 128},
                               .transforms = {{.kind = TransformKind::Permute, .order = halves}}}},
                             WeightForm::Nvfp4, 16, 128);
  auto packer = WeightPacker::open(fused, 0, BlockSource().open());
  REQUIRE(bool(packer));
  std::vector<unsigned char> bytes(size_t(segmentBytes(fused)));
  packer->pack(0, bytes.data());
  float factors[5];
  std::memcpy(factors, bytes.data() + Nvfp4Layout(16, 128).piecesBytes(), 20);
  CHECK(factors[0] == 0.5f * 16384);
  CHECK(factors[1] == 0.25f * 16384);
  CHECK(factors[4] == 2);

  const Weight plain = nvfp4({{.tensor = "up", .shape = {16, 128}}}, WeightForm::Nvfp4, 16, 128);
  CHECK_THAT(
      openError(plain, BlockSource().open()),
      Catch::Contains("weight 'w' of layer 0: segment 0: rows 6 and 8 have the factors 0.5"));
  CHECK_THAT(openError(fused, BlockSource{.lateInput = 3}.open()),
             Catch::Contains("have the input scale 2"));
  CHECK_THAT(openError(fused, BlockSource{.upFactor = 1e36f}.open()),
             Catch::Contains("too large or small"));
  CHECK_THAT(openError(plain, Source().open()),
             Catch::Contains("is NVFP4, of which this source of weights has none"));
}
