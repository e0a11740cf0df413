//===- safetensors.cpp - Weights from a checkpoint ------------------------===//
//
// A file is: header length (8 bytes, little endian), header (JSON: name -> {dtype, shape,
// data_offsets}), data. Offsets count from the end of the header.
//
//===----------------------------------------------------------------------===//

#include "models/weights/safetensors.h"

#include "models/weights/bf16.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <cstring>

namespace megalith::models {

namespace {

llvm::Error problem(const llvm::Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

/// Bytes of one element, or 0 for a type that this reader does not know.
uint64_t elementBytes(llvm::StringRef type) {
  return llvm::StringSwitch<uint64_t>(type)
      .Case("BF16", 2)
      .Case("F32", 4)
      .Cases({"U8", "F8_E4M3"}, 1)
      .Default(0);
}

class MappedTensor final : public WeightTensor {
public:
  MappedTensor(const unsigned char *data, bool isBf16) : data(data), isBf16(isBf16) {}

  using WeightTensor::row;
  void row(int64_t index, std::span<float> out) const override {
    const uint64_t first = uint64_t(index) * out.size();
    if (!isBf16) { // offsets need not be aligned
      std::memcpy(out.data(), data + 4 * first, 4 * out.size());
      return;
    }
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = fromBf16(llvm::support::endian::read16le(data + 2 * (first + i)));
  }

private:
  const unsigned char *data;
  bool isBf16;
};

std::string shapeText(llvm::ArrayRef<int64_t> shape) {
  return TensorSpec{"", shape.vec()}.str();
}

} // namespace

struct SafetensorsWeights::MappedFile {
  std::unique_ptr<llvm::MemoryBuffer> buffer;
};

SafetensorsWeights::SafetensorsWeights() = default;
SafetensorsWeights::~SafetensorsWeights() = default;

llvm::Error SafetensorsWeights::addHeader(llvm::StringRef path, llvm::StringRef text,
                                          const unsigned char *data, uint64_t dataBytes) {
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(text);
  if (!parsed)
    return problem(path + ": the header is not JSON: " + llvm::toString(parsed.takeError()));
  const llvm::json::Object *header = parsed->getAsObject();
  if (!header)
    return problem(path + ": the header is not a JSON object");
  for (const auto &[key, value] : *header) {
    const llvm::StringRef name = key;
    if (name == "__metadata__")
      continue;
    const llvm::json::Object *object = value.getAsObject();
    const auto type = object ? object->getString("dtype") : std::nullopt;
    const llvm::json::Array *shape = object ? object->getArray("shape") : nullptr;
    const llvm::json::Array *offsets = object ? object->getArray("data_offsets") : nullptr;
    if (!type || !shape || !offsets || offsets->size() != 2)
      return problem(path + ": tensor " + name + ": expected dtype, shape and two data_offsets");
    Entry entry{type->str(), {}, nullptr, path.str()};
    uint64_t elements = 1;
    for (const llvm::json::Value &extent : *shape) {
      const std::optional<int64_t> size = extent.getAsInteger();
      if (!size || *size < 0 || __builtin_mul_overflow(elements, uint64_t(*size), &elements))
        return problem(path + ": tensor " + name +
                       ": a dimension of its shape is not a size that fits");
      entry.shape.push_back(*size);
    }
    const std::optional<int64_t> begin = (*offsets)[0].getAsInteger();
    const std::optional<int64_t> end = (*offsets)[1].getAsInteger();
    if (!begin || !end || *begin < 0 || *end < *begin || uint64_t(*end) > dataBytes)
      return problem(path + ": tensor " + name + ": data_offsets lie outside the " +
                     llvm::Twine(dataBytes) + " bytes of data; is the file truncated?");
    const uint64_t bytes = elementBytes(*type);
    const uint64_t held = uint64_t(*end - *begin);
    if (bytes && (held % bytes || held / bytes != elements))
      return problem(path + ": tensor " + name + ": expected " + llvm::Twine(elements) +
                     " elements of " + *type + ", got " + llvm::Twine(*end - *begin) + " bytes");
    entry.data = data + *begin;
    if (!entries.try_emplace(name, std::move(entry)).second)
      return problem(path + ": tensor " + name + " is already in " + entries[name].file);
  }
  return llvm::Error::success();
}

llvm::Error SafetensorsWeights::addFile(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer)
    return problem(path + ": cannot be read: " + buffer.getError().message());
  const llvm::StringRef bytes = (*buffer)->getBuffer();
  if (bytes.size() < 8)
    return problem(path + ": not a safetensors file: expected at least 8 bytes, got " +
                   llvm::Twine(bytes.size()));
  const uint64_t headerBytes = llvm::support::endian::read64le(bytes.data());
  if (headerBytes > bytes.size() - 8)
    return problem(path + ": not a safetensors file, or truncated: its header should have " +
                   llvm::Twine(headerBytes) + " bytes, the file has " + llvm::Twine(bytes.size()));
  const auto *data = reinterpret_cast<const unsigned char *>(bytes.data()) + 8 + headerBytes;
  files.push_back(std::make_unique<MappedFile>(MappedFile{std::move(*buffer)}));
  return addHeader(path, bytes.substr(8, headerBytes), data, bytes.size() - 8 - headerBytes);
}

llvm::Error SafetensorsWeights::addIndexed(llvm::StringRef folder, llvm::StringRef indexPath) {
  auto buffer = llvm::MemoryBuffer::getFile(indexPath);
  if (!buffer)
    return problem(indexPath + ": cannot be read: " + buffer.getError().message());
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse((*buffer)->getBuffer());
  if (!parsed)
    return problem(indexPath + ": not JSON: " + llvm::toString(parsed.takeError()));
  const llvm::json::Object *index = parsed->getAsObject();
  const llvm::json::Object *map = index ? index->getObject("weight_map") : nullptr;
  if (!map)
    return problem(indexPath + ": expected an object \"weight_map\" (tensor name -> file)");
  llvm::StringSet<> seen;
  for (const auto &[name, value] : *map) {
    const auto file = value.getAsString();
    if (!file || file->contains('/'))
      return problem(indexPath + ": weight_map: " + llvm::StringRef(name) +
                     ": expected the name of a file in this folder");
    if (!seen.insert(*file).second)
      continue;
    llvm::SmallString<256> path(folder);
    llvm::sys::path::append(path, *file);
    if (llvm::Error error = addFile(path))
      return error;
  }
  for (const auto &[name, value] : *map) {
    const llvm::StringRef file = *value.getAsString();
    auto entry = entries.find(llvm::StringRef(name));
    if (entry == entries.end() || llvm::sys::path::filename(entry->second.file) != file)
      return problem(indexPath + ": weight_map puts " + llvm::StringRef(name) + " into " + file +
                     ", which does not have it");
  }
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<SafetensorsWeights>> SafetensorsWeights::load(llvm::StringRef path) {
  std::unique_ptr<SafetensorsWeights> weights(new SafetensorsWeights());
  weights->origin = path.str();
  if (!llvm::sys::fs::is_directory(path)) {
    if (llvm::Error error = weights->addFile(path))
      return error;
    return weights;
  }
  llvm::SmallString<256> index(path), single(path);
  llvm::sys::path::append(index, "model.safetensors.index.json");
  llvm::sys::path::append(single, "model.safetensors");
  if (llvm::sys::fs::exists(index)) {
    if (llvm::Error error = weights->addIndexed(path, index))
      return error;
  } else if (llvm::sys::fs::exists(single)) {
    if (llvm::Error error = weights->addFile(single))
      return error;
  } else {
    return problem(path + ": expected model.safetensors or model.safetensors.index.json in this "
                          "folder, found neither");
  }
  return weights;
}

llvm::Expected<std::unique_ptr<WeightTensor>>
SafetensorsWeights::open(const TensorSpec &spec) const {
  auto found = entries.find(spec.name);
  if (found == entries.end())
    return problem(origin + ": no tensor " + spec.name + " among its " +
                   llvm::Twine(entries.size()) + " tensors");
  const Entry &entry = found->second;
  const bool isScalar = spec.shape == std::vector<int64_t>{1} && entry.shape.empty();
  if (entry.shape != spec.shape && !isScalar)
    return problem(entry.file + ": tensor " + spec.name + ": the model expects shape" +
                   shapeText(spec.shape) + ", the file has" + shapeText(entry.shape));
  if (entry.type != "BF16" && entry.type != "F32")
    return problem(entry.file + ": tensor " + spec.name + ": its type " + entry.type +
                   " is not supported, expected BF16 or F32");
  return std::make_unique<MappedTensor>(entry.data, entry.type == "BF16");
}

} // namespace megalith::models
