//===- safetensors_blocks.cpp - Block-scaled tensors of a checkpoint ------===//

#include "models/weights/nvfp4.h"
#include "models/weights/safetensors.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace megalith::models {

namespace {

llvm::Error problem(const llvm::Twine &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

std::string shapeText(llvm::ArrayRef<int64_t> shape) {
  return TensorSpec{"", shape.vec()}.str();
}

/// Shape of codes and scales as they lie in a file, next to the tensor's own.
std::vector<int64_t> withColumns(std::vector<int64_t> shape, int64_t columns) {
  shape.back() = columns;
  return shape;
}

/// "x.weight" + "scale" -> "x.weight_scale"; "x" + "scale" -> "x_weight_scale".
std::string weightPart(const std::string &name, const char *part) {
  const bool dotted = llvm::StringRef(name).ends_with(".weight");
  return name + (dotted ? "_" : "_weight_") + part;
}

/// "x.weight" -> "x.input_scale"; "x" -> "x_input_scale".
std::string inputScaleName(llvm::StringRef name) {
  return name.consume_back(".weight") ? name.str() + ".input_scale" : name.str() + "_input_scale";
}

class MappedBlocks final : public BlockTensor {
public:
  MappedBlocks(const BlockFormat &format, const TensorSpec &spec)
      : BlockTensor(format, spec.columns()), rows(spec.rows()),
        matrixRows(spec.shape[spec.shape.size() - 2]) {}

  const unsigned char *codeBytes = nullptr, *scaleBytes = nullptr;
  std::vector<float> globals = {1.0f}, inputScales;

  void stored(int64_t index, std::span<uint8_t> codes, std::span<uint8_t> scales) const override {
    std::memcpy(codes.data(), codeBytes + uint64_t(index) * codes.size(), codes.size());
    const int64_t down =
        index / matrixRows * format.blocksDown(matrixRows) + index % matrixRows / format.blockRows;
    std::memcpy(scales.data(), scaleBytes + uint64_t(down) * scales.size(), scales.size());
  }
  float global(int64_t index) const override { return ofRow(globals, index); }
  bool hasInputScale() const override { return !inputScales.empty(); }
  float inputScale(int64_t index) const override {
    return inputScales.empty() ? 1.0f : ofRow(inputScales, index);
  }

private:
  /// Factors belong to equal runs of rows.
  float ofRow(const std::vector<float> &factors, int64_t index) const {
    return factors[size_t(index / (rows / int64_t(factors.size())))];
  }

  int64_t rows, matrixRows;
};

/// One byte that is no scale (NaN, or negative) would spoil a layer long after loading; looking at
/// all of them takes a fraction of the time that loading takes.
llvm::Error scalesMakeSense(const MappedBlocks &tensor, const TensorSpec &spec,
                            const llvm::Twine &name) {
  const int64_t across = tensor.format.blocksAcross(tensor.columns);
  const bool e4m3 = tensor.format.scale == BlockFormat::Scale::E4m3;
  const auto isBad = [e4m3](uint8_t byte) { return e4m3 ? byte >= 0x7F : byte == 0xFF; };
  for (int64_t row = 0; row < spec.rows(); ++row) {
    const unsigned char *scales = tensor.scaleBytes + row * across;
    bool bad = false;
    for (int64_t b = 0; b < across; ++b)
      bad |= isBad(scales[b]);
    if (!bad)
      continue;
    const int64_t at = std::find_if(scales, scales + across, isBad) - scales;
    return problem("tensor " + name + ": row " + llvm::Twine(row) + ", block " + llvm::Twine(at) +
                   ": the byte " + llvm::Twine(int(scales[at])) +
                   " is no scale, expected one that is positive and not NaN; is the file damaged?");
  }
  return llvm::Error::success();
}

} // namespace

llvm::Expected<const SafetensorsWeights::Entry *>
SafetensorsWeights::find(llvm::StringRef name, llvm::StringRef type,
                         llvm::ArrayRef<std::vector<int64_t>> shapes, llvm::StringRef what) const {
  auto found = entries.find(name);
  if (found == entries.end())
    return problem(origin + ": no tensor " + name + " (" + what + ") among its " +
                   llvm::Twine(entries.size()) + " tensors");
  const Entry &entry = found->second;
  if (entry.type != type || !llvm::is_contained(shapes, entry.shape)) {
    const bool plain = entry.type == "BF16" && type == "U8";
    return problem(entry.file + ": tensor " + name + " (" + what + "): expected " + type +
                   shapeText(shapes[0]) + ", the file has " + entry.type + shapeText(entry.shape) +
                   (plain ? "; this tensor is not quantised: name it among the layers that the "
                            "quantisation config excludes"
                          : ""));
  }
  return &entry;
}

llvm::Expected<std::vector<float>> SafetensorsWeights::factors(llvm::StringRef name,
                                                               const TensorSpec &spec) const {
  const std::vector<int64_t> matrices(spec.shape.begin(), spec.shape.end() - 2);
  std::vector<int64_t> halves = matrices;
  halves.push_back(2);
  std::vector<std::vector<int64_t>> shapes = {matrices};
  if (spec.shape[matrices.size()] % 2 == 0)
    shapes.push_back(halves);
  shapes.insert(shapes.end(), {{}, {1}});
  auto entry = find(name, "F32", shapes, "a factor for all, for a matrix, or for half of one");
  if (!entry)
    return entry.takeError();
  size_t count = 1;
  for (int64_t extent : (*entry)->shape)
    count *= size_t(extent);
  std::vector<float> values(count);
  std::memcpy(values.data(), (*entry)->data, 4 * count);
  for (size_t i = 0; i < count; ++i)
    if (!std::isfinite(values[i]) || values[i] < 0)
      return problem((*entry)->file + ": tensor " + name + ": factor " + llvm::Twine(i) +
                     " should be a number that is not negative, got " + std::to_string(values[i]));
  return values;
}

llvm::Expected<std::unique_ptr<BlockTensor>>
SafetensorsWeights::openBlocks(const TensorSpec &spec, const BlockFormat &format) const {
  const std::string &name = spec.name;
  const bool nvfp4 = format == BlockFormat::nvfp4(), mxfp4 = format == BlockFormat::mxfp4();
  if (!nvfp4 && !mxfp4 && format != BlockFormat::fp8Block(format.scale))
    return problem(origin + ": tensor " + name +
                   ": expected NVFP4, MXFP4 or FP8 in blocks of "
                   "128 x 128, got another block format");
  if (spec.shape.size() < 2 || llvm::any_of(spec.shape, [](int64_t n) { return n <= 0; }) ||
      (format.code == BlockFormat::Code::E2m1 && spec.columns() % format.blockColumns))
    return problem(origin + ": tensor " + spec.str() + ": expected a matrix whose rows are whole " +
                   "blocks of " + llvm::Twine(format.blockColumns) + " columns");
  auto tensor = std::make_unique<MappedBlocks>(format, spec);
  const int64_t across = format.blocksAcross(spec.columns());
  auto attach = [&](const unsigned char *&to, const std::string &name, llvm::StringRef type,
                    llvm::ArrayRef<std::vector<int64_t>> shapes,
                    llvm::StringRef what) -> llvm::Error {
    auto entry = find(name, type, shapes, what);
    if (!entry)
      return entry.takeError();
    to = (*entry)->data;
    return llvm::Error::success();
  };
  const std::vector<int64_t> packed = withColumns(spec.shape, spec.columns() / 2);
  if (nvfp4) {
    if (llvm::Error error = attach(tensor->codeBytes, name, "U8", packed,
                                   "NVFP4 codes, two to a byte along the last dimension"))
      return error;
    if (llvm::Error error =
            attach(tensor->scaleBytes, weightPart(name, "scale"), "F8_E4M3",
                   withColumns(spec.shape, across), "NVFP4 scales, one for 16 columns"))
      return error;
    if (llvm::Error error = scalesMakeSense(*tensor, spec, weightPart(name, "scale")))
      return error;
    auto globals = factors(weightPart(name, "scale_2"), spec);
    if (!globals)
      return globals.takeError();
    tensor->globals = std::move(*globals);
    const std::string inputScale = inputScaleName(name);
    if (entries.contains(inputScale)) {
      auto scales = factors(inputScale, spec);
      if (!scales)
        return scales.takeError();
      tensor->inputScales = std::move(*scales);
    }
  } else if (mxfp4) {
    std::vector<int64_t> blocks = withColumns(spec.shape, across);
    blocks.push_back(16);
    if (llvm::Error error = attach(tensor->codeBytes, name + "_blocks", "U8", {blocks, packed},
                                   "MXFP4 codes, 16 bytes for 32 columns"))
      return error;
    if (llvm::Error error =
            attach(tensor->scaleBytes, name + "_scales", "U8", withColumns(spec.shape, across),
                   "MXFP4 scales, one for 32 columns"))
      return error;
    if (llvm::Error error = scalesMakeSense(*tensor, spec, name + "_scales"))
      return error;
  } else {
    if (llvm::Error error = attach(tensor->codeBytes, name, "F8_E4M3", spec.shape, "FP8 codes"))
      return error;
    std::vector<int64_t> blocks = withColumns(spec.shape, across);
    blocks[blocks.size() - 2] = format.blocksDown(blocks[blocks.size() - 2]);
    if (llvm::Error error = attach(tensor->scaleBytes, name + "_scale_inv",
                                   format.scale == BlockFormat::Scale::F32 ? "F32" : "BF16", blocks,
                                   "FP8 scales, one for 128 rows and columns"))
      return error;
  }
  return tensor;
}

} // namespace megalith::models
