//===- DeviceFillTest.cpp - Fill kernels' bytes against host packing ------===//

#include "runtime/device_fill.h"
#include "runtime/packing.h"
#include "runtime/weight_packer.h"

#include "models/weights/bf16.h"
#include "models/weights/weights.h"
#include "tools/weights/OpenWeights.h"

#include <catch2/catch.hpp>
#include <cstring>

using namespace megalith;
using namespace megalith::runtime;

namespace {

constexpr uint32_t kSeed = 7;

/// Every segment of a weight, filled as the kernel fills it, against the host's packing.
void checkFill(const Weight &weight, int64_t layer) {
  const models::HashedWeights weights(kSeed);
  auto packer = WeightPacker::open(weight, layer, openTensors(weights));
  REQUIRE(bool(packer));
  for (int64_t segment = 0; segment < segmentCount(weight); ++segment) {
    std::vector<unsigned char> expected(segmentBytes(weight)), got(segmentBytes(weight), 0xEE);
    packer->pack(segment, expected.data());
    auto fill = fillSegment(weight, layer, segment, kSeed, got.data());
    REQUIRE(fill);
    REQUIRE(fill->pieces * 16 == got.size());
    for (uint32_t piece = 0; piece < fill->pieces; ++piece) {
      const FillPiece bytes = fill_segment_piece(*fill, piece);
      std::memcpy(got.data() + 16 * piece, &bytes, 16);
    }
    CHECK(std::memcmp(expected.data(), got.data(), got.size()) == 0);
  }
}

} // namespace

TEST_CASE("matrices: stacked parts, odd heights, padded widths") {
  Weight weight = {.name = "w",
                   .form = WeightForm::Strips,
                   .n = 24 + 8 + 5,
                   .k = 2048,
                   .parts = {{.tensor = "l.{layer}.q", .shape = {24, 2048}},
                             {.tensor = "l.{layer}.k", .shape = {8, 2048}},
                             {.tensor = "l.{layer}.v", .shape = {5, 2048}}}};
  checkFill(weight, 0);
  checkFill(weight, 11);
  weight.k = 200; // 256 in memory
  for (WeightPart &part : weight.parts)
    part.shape.back() = 200;
  checkFill(weight, 3);
}

TEST_CASE("expert banks: a tensor an expert, or one for all") {
  checkFill({.name = "up",
             .form = WeightForm::GateUpStrips,
             .n = 12,
             .k = 768,
             .experts = 3,
             .parts = {{.tensor = "l.{layer}.e.{expert}.gate", .shape = {6, 768}},
                       {.tensor = "l.{layer}.e.{expert}.up", .shape = {6, 768}}}},
            2);
  checkFill({.name = "down",
             .form = WeightForm::Strips,
             .n = 10,
             .k = 128,
             .experts = 3,
             .parts = {{.tensor = "l.{layer}.down", .shape = {3, 10, 128}}}},
            5);
}

TEST_CASE("slices of rows and columns; gates and ups of one tensor") {
  const Transform rows = {.axis = Axis::Rows, .first = 4, .count = 8};
  const Transform columns = {.axis = Axis::Columns, .first = 256, .count = 128};
  checkFill(
      {.name = "w",
       .form = WeightForm::Strips,
       .n = 8,
       .k = 128,
       .parts = {{.tensor = "l.{layer}.o", .shape = {16, 512}, .transforms = {rows, columns}}}},
      1);
  const Transform pairs = {.kind = TransformKind::Permute, .order = {0, 3, 1, 4, 2, 5}};
  for (WeightForm form : {WeightForm::Strips, WeightForm::Nvfp4})
    checkFill({.name = "up",
               .form = form,
               .n = 6,
               .k = 256,
               .experts = 3,
               .parts = {{.tensor = "l.{layer}.e", .shape = {3, 6, 256}, .transforms = {pairs}}}},
              1);
}

TEST_CASE("NVFP4: groups of four, two and one steps, padded widths and heights, several blocks") {
  for (int64_t k : {128, 208, 512, 768, 2048, 4096}) {
    INFO("k " << k);
    checkFill({.name = "down",
               .form = WeightForm::Nvfp4,
               .n = 17,
               .k = k,
               .experts = 2,
               .parts = {{.tensor = "l.{layer}.down", .shape = {2, 17, k}}}},
              5);
  }
  checkFill({.name = "up",
             .form = WeightForm::GateUpNvfp4,
             .n = 24,
             .k = 512,
             .experts = 2,
             .parts = {{.tensor = "l.{layer}.e.{expert}.gate", .shape = {12, 512}},
                       {.tensor = "l.{layer}.e.{expert}.up", .shape = {12, 512}}}},
            2);
  checkFill({.name = "sharded",
             .form = WeightForm::Nvfp4,
             .n = 8,
             .k = 512,
             .parts = {{.tensor = "l.{layer}.down",
                        .shape = {8, 1024},
                        .transforms = {{.axis = Axis::Columns, .first = 512, .count = 512}}}}},
            2);
}

TEST_CASE("gains and tables") {
  checkFill({.name = "g",
             .form = WeightForm::Vector,
             .k = 136,
             .parts = {{.tensor = "l.{layer}.norm", .shape = {136}, .gain = true}}},
            1);
  checkFill({.name = "embedding",
             .form = WeightForm::Table,
             .n = 9,
             .k = 64,
             .perLayer = false,
             .parts = {{.tensor = "embed", .shape = {9, 64}}}},
            0);
}

TEST_CASE("what the kernel cannot make is left to the host") {
  Weight weight = {.name = "w",
                   .form = WeightForm::Strips,
                   .n = 8,
                   .k = 128,
                   .parts = {{.tensor = "t",
                              .shape = {16, 128},
                              .transforms = {{.kind = TransformKind::Interleave, .groups = 4},
                                             {.kind = TransformKind::Slice, .count = 8}}}}};
  CHECK_FALSE(fillSegment(weight, 0, 0, kSeed, nullptr));
  weight.parts[0] = {.tensor = "t", .shape = {8, 128}};
  CHECK(fillSegment(weight, 0, 0, kSeed, nullptr));
  weight.element = Element::F32;
  CHECK_FALSE(fillSegment(weight, 0, 0, kSeed, nullptr));
  CHECK_FALSE(
      fillSegment({.form = WeightForm::InverseFrequencies, .element = Element::F32, .k = 64}, 0, 0,
                  kSeed, nullptr));
}

TEST_CASE("KV pages: positions before start, poison from there on") {
  const Element element = GENERATE(Element::Bf16, Element::E4m3);
  const bool isE4m3 = element == Element::E4m3;
  Plan plan = {.kvHeads = 3, .headDim = 32};
  if (isE4m3)
    plan = {.kvHeads = 3,
            .headDim = 32,
            .kernels = {{.name = "layer", .slots = {{.name = "kv", .role = SlotRole::Kv}}}},
            .buffers = {{.name = "kv", .kind = BufferKind::Kv, .element = element}},
            .launches = {{"layer", 4}}};
  const KvLayout layout = {3, 32, isE4m3 ? 1 : 2};
  const std::vector<int32_t> pages = {2, 0};
  const int64_t start = 64 + 21, layer = 4, content = 5;
  std::vector<unsigned char> expected(3 * layout.pageBytes()), got(expected.size());
  for (size_t i = 0; i < expected.size(); i += 4)
    if (isE4m3)
      std::memset(&expected[i], 0x7F, 4); // NaN
    else
      std::memcpy(&expected[i], &kPoisonWord, 4);
  std::vector<uint16_t> key(96), value(96);
  for (int64_t position = 0; position < start; ++position) {
    for (int64_t i = 0; i < 96; ++i) {
      const uint64_t index = models::kvIndex(content, position, 3, 32, i / 32, i % 32);
      key[i] = models::toBf16(
          models::weightValue(kSeed, models::fnv1a32("kv.4.k", 6), index, models::kKvScale));
      value[i] = models::toBf16(
          models::weightValue(kSeed, models::fnv1a32("kv.4.v", 6), index, models::kKvScale));
    }
    writeKv(layout, expected.data(), pages, position, key, value);
  }
  std::copy(expected.begin(), expected.end(), got.begin());
  FillPages fill = fillPages(plan, layer, kSeed, got.data(), pages.data(), 2, start);
  fill.content = content;
  REQUIRE(fill_page_pieces(fill) * 16 == layout.pageBytes());
  for (int32_t page = 0; page < 2; ++page) {
    unsigned char *at = got.data() + pages[page] * layout.pageBytes();
    std::memset(at, 0xEE, layout.pageBytes());
    for (uint32_t piece = 0; piece < fill_page_pieces(fill); ++piece) {
      const FillPiece bytes = fill_page_piece(fill, page, piece);
      std::memcpy(at + 16 * piece, &bytes, 16);
    }
  }
  CHECK(got == expected);
}

TEST_CASE("KV pages of a window: those of its ring that hold the last positions") {
  const Plan plan = {
      .kernels = {{.name = "layer", .slots = {{.name = "kv_window", .role = SlotRole::Kv}}},
                  {.name = "other", .slots = {{.name = "kv", .role = SlotRole::Kv}}}},
      .buffers = {{.name = "kv_window", .kind = BufferKind::Kv, .window = 256},
                  {.name = "kv", .kind = BufferKind::Kv}},
      .launches = {{"layer", 0}, {"other", 1}}};
  const auto range = [&](int64_t layer, int64_t start) {
    const FillPages fill = fillPages(plan, layer, kSeed, nullptr, nullptr, 20, start);
    CHECK(fill.start == start);
    return std::pair(fill.first, fill.count);
  };
  CHECK(range(0, 100) == std::pair(0, 2));
  CHECK(range(0, 640) == std::pair(6, 11)); // five pages, the last one empty yet
  CHECK(range(0, 703) == std::pair(6, 11));
  CHECK(range(1, 703) == std::pair(0, 20));
}

TEST_CASE("the kernels compile where there is an NVRTC") {
  auto nvrtc = Nvrtc::load();
  if (!nvrtc) {
    WARN("skipped: " + llvm::toString(nvrtc.takeError()));
    return;
  }
  auto compiled = nvrtc->compile("#include \"runtime/device_fill.cuh\"\n", "device_fill.cu",
                                 deviceFillHeaders(), "sm_90a");
  if (!compiled)
    FAIL(llvm::toString(compiled.takeError()));
  REQUIRE(compiled->resources.count("megalith_fill_segment"));
  REQUIRE(compiled->resources.count("megalith_fill_pages"));
  CHECK(compiled->resources["megalith_fill_segment"].spillBytes == 0);
}
