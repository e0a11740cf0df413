//===- SafetensorsTest.cpp - Reading checkpoints --------------------------===//

#include "models/weights/safetensors.h"
#include "models/weights/bf16.h"

#include "llvm/Support/FileSystem.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

using namespace megalith::models;
using Catch::Matchers::Contains;

namespace {

/// A folder that is removed with everything in it.
struct Folder {
  llvm::SmallString<128> path;
  Folder() { REQUIRE(!llvm::sys::fs::createUniqueDirectory("safetensors", path)); }
  ~Folder() { llvm::sys::fs::remove_directories(path); }

  std::string write(const std::string &name, const std::string &bytes) const {
    const std::string file = path.str().str() + "/" + name;
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  }
};

std::string file(const std::string &header, const std::string &data) {
  std::string bytes(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + data;
}

std::string bytesOf(const std::vector<float> &values) {
  return {reinterpret_cast<const char *>(values.data()), 4 * values.size()};
}

std::string loadError(const std::string &path) {
  auto loaded = SafetensorsWeights::load(path);
  return loaded ? "" : llvm::toString(loaded.takeError());
}

std::string openError(const std::string &path, const TensorSpec &spec) {
  auto loaded = llvm::cantFail(SafetensorsWeights::load(path));
  auto tensor = loaded->open(spec);
  return tensor ? "" : llvm::toString(tensor.takeError());
}

} // namespace

TEST_CASE("F32 and BF16 tensors of one file") {
  Folder folder;
  const uint16_t halves[2] = {toBf16(1.5f), toBf16(-2.0f)};
  // The bf16 tensor's three-byte offset shows that nothing relies on alignment.
  const std::string data = bytesOf({1, 2, 3, 4, 5, 6}) + std::string(3, 'x') +
                           std::string(reinterpret_cast<const char *>(halves), 4);
  const std::string path = folder.write(
      "m.safetensors",
      file(
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},)"
          R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[27,31]},)"
          R"("c":{"dtype":"I64","shape":[0],"data_offsets":[31,31]}})",
          data));
  auto weights = llvm::cantFail(SafetensorsWeights::load(path));
  std::vector<float> row(2);
  llvm::cantFail(weights->open({"a", {3, 2}}))->row(1, std::span<float>(row));
  CHECK(row == std::vector<float>{3, 4});
  llvm::cantFail(weights->open({"b", {2}}))->row(0, std::span<float>(row));
  CHECK(row == std::vector<float>{1.5f, -2.0f});

  CHECK_THAT(openError(path, {"d", {2}}), Contains("no tensor d among its 3 tensors"));
  CHECK_THAT(openError(path, {"a", {2, 3}}),
             Contains("tensor a: the model expects shape [2, 3], the file has [3, 2]"));
  CHECK_THAT(openError(path, {"c", {0}}), Contains("its type I64 is not supported"));
}

TEST_CASE("A folder with an index") {
  Folder folder;
  const std::string one = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string two = R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  folder.write("s1.safetensors", file(one, bytesOf({7})));
  folder.write("s2.safetensors", file(two, bytesOf({8})));
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"s1.safetensors","b":"s2.safetensors"}})");
  auto weights = llvm::cantFail(SafetensorsWeights::load(folder.path));
  std::vector<float> row(1);
  llvm::cantFail(weights->open({"b", {1}}))->row(0, std::span<float>(row));
  CHECK(row[0] == 8);

  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"s1.safetensors","b":"s1.safetensors"}})");
  CHECK_THAT(loadError(folder.path.str().str()),
             Contains("weight_map puts b into s1.safetensors, which does not have it"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"../s1.safetensors"}})");
  CHECK_THAT(loadError(folder.path.str().str()), Contains("the name of a file in this folder"));
  folder.write("model.safetensors.index.json", R"({"weights":{}})");
  CHECK_THAT(loadError(folder.path.str().str()), Contains("expected an object \"weight_map\""));
}

TEST_CASE("Damaged files are refused with a reason") {
  Folder folder;
  auto error = [&](const std::string &bytes) { return loadError(folder.write("f", bytes)); };
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  CHECK_THAT(loadError(folder.path.str().str()), Contains("found neither"));
  CHECK_THAT(loadError(folder.path.str().str() + "/none"), Contains("cannot be read"));
  CHECK_THAT(error("abc"), Contains("expected at least 8 bytes, got 3"));
  CHECK_THAT(error(file(header, "").substr(0, 20)), Contains("its header should have 54 bytes"));
  CHECK_THAT(error(file(header, "1234567")), Contains("outside the 7 bytes of data"));
  CHECK_THAT(error(file("{", "")), Contains("the header is not JSON"));
  CHECK_THAT(error(file("[]", "")), Contains("not a JSON object"));
  CHECK_THAT(error(file(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678")),
             Contains("expected 3 elements of F32, got 8 bytes"));
  CHECK_THAT(error(file(R"({"a":{"dtype":"F32","shape":[-3],"data_offsets":[0,8]}})", "12345678")),
             Contains("is not a size that fits"));
  CHECK_THAT(error(file(R"({"a":{"dtype":"F32","shape":[2]}})", "12345678")),
             Contains("expected dtype, shape and two data_offsets"));
}
