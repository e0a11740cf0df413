//===- SafetensorsBlocksTest.cpp - Reading block-scaled checkpoints -------===//

#include "models/weights/block_codec.h"
#include "models/weights/nvfp4.h"
#include "models/weights/safetensors.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <limits>

using namespace megalith::models;
using Catch::Matchers::Contains;

namespace {

/// A safetensors file under construction; removed at the end.
class Checkpoint {
public:
  Checkpoint() { REQUIRE(!llvm::sys::fs::createTemporaryFile("blocks", "safetensors", path)); }
  ~Checkpoint() { llvm::sys::fs::remove(path); }

  Checkpoint &add(const std::string &name, const std::string &type, const std::string &shape,
                  const std::string &bytes) {
    header += (header.empty() ? "" : ",") +
              llvm::Twine("\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape +
                          ",\"data_offsets\":[" + llvm::Twine(data.size()) + "," +
                          llvm::Twine(data.size() + bytes.size()) + "]}")
                  .str();
    data += bytes;
    return *this;
  }

  std::unique_ptr<SafetensorsWeights> load() {
    const std::string text = "{" + header + "}";
    const uint64_t size = text.size();
    std::ofstream out(path.c_str(), std::ios::binary);
    out.write(reinterpret_cast<const char *>(&size), 8) << text << data;
    out.close();
    return llvm::cantFail(SafetensorsWeights::load(path));
  }

  std::string error(const TensorSpec &spec, const BlockFormat &format) {
    auto opened = load()->openBlocks(spec, format);
    return opened ? "" : llvm::toString(opened.takeError());
  }

private:
  llvm::SmallString<128> path;
  std::string header, data;
};

std::string floats(const std::vector<float> &values) {
  return {reinterpret_cast<const char *>(values.data()), 4 * values.size()};
}

/// Bytes seed, seed + 7, seed + 14, ... below `limit`.
std::string pattern(size_t count, unsigned seed, unsigned limit = 256) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i)
    bytes[i] = char((seed + 7 * i) % limit);
  return bytes;
}

uint32_t byteOf(const std::string &bytes, size_t at) {
  return uint8_t(bytes[at]);
}

const TensorSpec kGateUp{"m.experts.gate_up_proj", {2, 4, 32}};
const TensorSpec kDown{"m.experts.down_proj", {2, 4, 32}};

/// An NVFP4 expert bank of two experts, 4 rows (2 gate, 2 up) and 32 columns.
struct Bank {
  std::string codes = pattern(2 * 4 * 16, 3), scales = pattern(2 * 4 * 2, 1, 0x7F);
  std::string codeType = "U8", codeShape = "[2,4,16]", scaleType = "F8_E4M3",
              scaleShape = "[2,4,2]", globalShape = "[2,2]", inputShape = "[2,2]";
  std::vector<float> globals = {0.5f, 1.5f, 2.5f, 3.5f}, inputs = {10, 20, 30, 40};

  std::string error() const {
    Checkpoint file;
    write(file);
    return file.error(kGateUp, BlockFormat::nvfp4());
  }
  void write(Checkpoint &file) const {
    file.add("m.experts.gate_up_proj", codeType, codeShape, codes)
        .add("m.experts.gate_up_proj_weight_scale", scaleType, scaleShape, scales)
        .add("m.experts.gate_up_proj_weight_scale_2", "F32", globalShape, floats(globals))
        .add("m.experts.gate_up_proj_input_scale", "F32", inputShape, floats(inputs));
  }
};

} // namespace

TEST_CASE("An NVFP4 expert bank: codes, scales, factors of gate and up") {
  const Bank bank;
  Checkpoint file;
  file.add("shift", "U8", "[3]", "xyz"); // nothing relies on alignment
  bank.write(file);
  const auto weights = file.load();
  const auto tensor = llvm::cantFail(weights->openBlocks(kGateUp, BlockFormat::nvfp4()));
  CHECK(tensor->hasInputScale());
  std::vector<float> plain(32), whole(32);
  for (int64_t row = 0; row < 8; ++row) {
    const float global = bank.globals[size_t(row / 2)];
    CHECK(tensor->global(row) == global);
    CHECK(tensor->inputScale(row) == bank.inputs[size_t(row / 2)]);
    tensor->unscaledRow(row, plain);
    tensor->row(row, std::span<float>(whole));
    for (size_t k = 0; k < 32; ++k) {
      const uint32_t byte = byteOf(bank.codes, size_t(row) * 16 + k / 2);
      const float scale = e4m3Value(byteOf(bank.scales, size_t(row) * 2 + k / 16));
      CHECK(plain[k] == e2m1Value(k % 2 ? byte >> 4 : byte & 15) * scale);
      CHECK(whole[k] == plain[k] * global);
    }
  }
}

TEST_CASE("One factor an expert, or one for all; names of a linear layer") {
  const Bank bank;
  Checkpoint file;
  file.add("m.experts.down_proj", "U8", "[2,4,16]", bank.codes)
      .add("m.experts.down_proj_weight_scale", "F8_E4M3", "[2,4,2]", bank.scales)
      .add("m.experts.down_proj_weight_scale_2", "F32", "[2]", floats({3, 4}))
      .add("l.0.weight", "U8", "[8,16]", bank.codes)
      .add("l.0.weight_scale", "F8_E4M3", "[8,2]", bank.scales)
      .add("l.0.weight_scale_2", "F32", "[]", floats({5}))
      .add("l.0.input_scale", "F32", "[1]", floats({6}));
  const auto weights = file.load();
  const auto down = llvm::cantFail(weights->openBlocks(kDown, BlockFormat::nvfp4()));
  CHECK(down->global(3) == 3);
  CHECK(down->global(4) == 4);
  CHECK_FALSE(down->hasInputScale());
  const auto linear =
      llvm::cantFail(weights->openBlocks({"l.0.weight", {8, 32}}, BlockFormat::nvfp4()));
  CHECK(linear->global(7) == 5);
  CHECK(linear->inputScale(7) == 6);
}

TEST_CASE("What is wrong with an NVFP4 tensor is said by name") {
  auto with = [](auto change) {
    Bank bank;
    change(bank);
    return bank.error();
  };
  CHECK(with([](Bank &) {}).empty());
  CHECK_THAT(with([](Bank &bank) {
               bank.codeType = "BF16";
               bank.codeShape = "[2,4,32]";
               bank.codes = std::string(512, '\0');
             }),
             Contains("gate_up_proj (NVFP4 codes, two to a byte along the last dimension): "
                      "expected U8 [2, 4, 16], the file has BF16 [2, 4, 32]; this tensor is not "
                      "quantised"));
  CHECK_THAT(with([](Bank &bank) { bank.codeShape = "[2,2,32]"; }),
             Contains("expected U8 [2, 4, 16], the file has U8 [2, 2, 32]"));
  CHECK_THAT(with([](Bank &bank) { bank.scaleType = "U8"; }),
             Contains("gate_up_proj_weight_scale (NVFP4 scales, one for 16 columns): expected "
                      "F8_E4M3 [2, 4, 2], the file has U8 [2, 4, 2]"));
  CHECK_THAT(with([](Bank &bank) { bank.scaleShape = "[2,2,4]"; }),
             Contains("the file has F8_E4M3 [2, 2, 4]"));
  CHECK_THAT(with([](Bank &bank) { bank.globalShape = "[4]"; }),
             Contains("weight_scale_2 (a factor for all, for a matrix, or for half of one): "
                      "expected F32 [2], the file has F32 [4]"));
  CHECK_THAT(with([](Bank &bank) { bank.globals[2] = std::numeric_limits<float>::infinity(); }),
             Contains("weight_scale_2: factor 2 should be a number that is not negative, got inf"));
  CHECK_THAT(with([](Bank &bank) { bank.inputs[1] = -1; }),
             Contains("input_scale: factor 1 should be a number that is not negative, got -1"));
  CHECK_THAT(with([](Bank &bank) { bank.scales[11] = char(0x7F); }),
             Contains("gate_up_proj_weight_scale: row 5, block 1: the byte 127 is no scale"));
  CHECK_THAT(with([](Bank &bank) { bank.scales[2] = char(0x81); }), Contains("row 1, block 0"));
  Checkpoint none;
  CHECK_THAT(none.error(kGateUp, BlockFormat::nvfp4()),
             Contains("no tensor m.experts.gate_up_proj (NVFP4 codes"));
  CHECK_THAT(none.error({"v", {32}}, BlockFormat::nvfp4()),
             Contains("v [32]: expected a matrix whose rows are whole blocks of 16 columns"));
  CHECK_THAT(none.error({"v", {2, 24}}, BlockFormat::nvfp4()), Contains("whole blocks of 16"));
}

TEST_CASE("MXFP4: blocks and scales") {
  const std::string codes = pattern(2 * 3 * 32, 5), scales = pattern(2 * 3 * 2, 120, 135);
  for (const char *shape : {"[2,3,2,16]", "[2,3,32]"}) {
    Checkpoint file;
    file.add("e_blocks", "U8", shape, codes).add("e_scales", "U8", "[2,3,2]", scales);
    const auto weights = file.load();
    const auto tensor =
        llvm::cantFail(weights->openBlocks({"e", {2, 3, 64}}, BlockFormat::mxfp4()));
    std::vector<float> row(64);
    tensor->row(4, std::span<float>(row));
    for (size_t k = 0; k < 64; ++k)
      CHECK(row[k] == e2m1Value(byteOf(codes, 4 * 32 + k / 2) >> 4 * (k % 2)) *
                          e8m0Value(byteOf(scales, 4 * 2 + k / 32)));
  }
}

TEST_CASE("MXFP4: a scale that is NaN") {
  Checkpoint file;
  file.add("e_blocks", "U8", "[2,32]", pattern(64, 5)).add("e_scales", "U8", "[2,2]", "abc\xFF");
  CHECK_THAT(file.error({"e", {2, 64}}, BlockFormat::mxfp4()),
             Contains("e_scales: row 1, block 1: the byte 255 is no scale"));
}

TEST_CASE("FP8: a scale for 128 x 128, also where the matrix ends") {
  const int64_t rows = 130, columns = 200;
  const std::string codes = pattern(size_t(2 * rows * columns), 0, 0x7F);
  Checkpoint file;
  file.add("x.weight", "F8_E4M3", "[2,130,200]", codes)
      .add("x.weight_scale_inv", "F32", "[2,2,2]", floats({1, 2, 3, 4, 5, 6, 7, 8}));
  const auto weights = file.load();
  const auto tensor = llvm::cantFail(
      weights->openBlocks({"x.weight", {2, rows, columns}}, BlockFormat::fp8Block()));
  std::vector<float> row(static_cast<size_t>(columns));
  for (auto [index, left, right] :
       {std::tuple{0, 1, 2}, {127, 1, 2}, {128, 3, 4}, {129, 3, 4}, {130, 5, 6}, {259, 7, 8}}) {
    tensor->row(index, std::span<float>(row));
    for (size_t k : {0, 127, 128, 199})
      CHECK(row[k] ==
            e4m3Value(byteOf(codes, size_t(index * columns) + k)) * float(k < 128 ? left : right));
  }
  CHECK_THAT(
      file.error({"x.weight", {2, rows, columns}}, BlockFormat::fp8Block(BlockFormat::Scale::Bf16)),
      Contains("x.weight_scale_inv (FP8 scales, one for 128 rows and columns): expected "
               "BF16 [2, 2, 2], the file has F32 [2, 2, 2]"));
}
