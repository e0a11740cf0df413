//===- weights.cpp - Weights from the counter hash ------------------------===//

#include "models/weights/weights.h"

#include "models/weights/bf16.h"
#include "models/weights/block_codec.h"
#include "models/weights/nvfp4.h"
#include "models/weights/philox.h"

#include <algorithm>
#include <cstring>

namespace megalith::models {

int64_t TensorSpec::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    rows *= shape[i];
  return rows;
}

std::string TensorSpec::str() const {
  std::string text = name + " [";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

void WeightTensor::row(int64_t index, std::span<uint16_t> out) const {
  std::vector<float> values(out.size());
  row(index, std::span<float>(values));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = toBf16(values[i]);
}

/// The rounds of neighbouring counters do not depend on each other, so a compiler can put them side
/// by side. The value is formed in floating point here, which is exact up to the one rounding of
/// r16.
#if defined(__x86_64__) && defined(__gnu_linux__)
__attribute__((target_clones("avx2", "default"), optimize("O3")))
#endif
void weightValues(uint32_t seed, uint32_t nameHash, uint64_t first, float scale,
                  std::span<float> out) {
  constexpr size_t kLanes = 32;
  const float unit = scale * 0x1p-24f;
  for (size_t begin = 0; begin < out.size(); begin += kLanes) {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes] = {}, c3[kLanes] = {};
    for (size_t i = 0; i < kLanes; ++i) {
      const uint64_t index = first + begin + i;
      c0[i] = uint32_t(index);
      c1[i] = uint32_t(index >> 32);
    }
    uint32_t key0 = seed, key1 = nameHash;
    for (int round = 0; round < 10; ++round) {
      for (size_t i = 0; i < kLanes; ++i)
        philoxRound(key0, key1, c0[i], c1[i], c2[i], c3[i]);
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    float values[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      const float value = float(int32_t((c0[i] >> 8) << 1) - 0x1000000) * unit;
      const uint32_t bits = std::bit_cast<uint32_t>(value);
      values[i] = std::bit_cast<float>((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
    }
    std::copy_n(values, std::min(kLanes, out.size() - begin), out.begin() + begin);
  }
}

namespace {

class HashedTensor final : public WeightTensor {
public:
  HashedTensor(uint32_t seed, const TensorSpec &spec)
      : seed(seed), nameHash(fnv1a32(spec.name.data(), spec.name.size())),
        gain(spec.role == TensorRole::Gain), inputScale(spec.role == TensorRole::InputScale),
        scale(spec.role == TensorRole::Matrix ? weightScale(uint64_t(spec.columns()))
                                              : kGainScale) {}

  using WeightTensor::row;
  void row(int64_t index, std::span<float> out) const override {
    const uint64_t first = uint64_t(index) * out.size();
    if (inputScale) {
      std::ranges::fill(out, nvfp4Global(kHashedActivationMax));
      return;
    }
    weightValues(seed, nameHash, first, scale, out);
    if (gain)
      for (float &value : out)
        value = r16(1.0f + value);
  }

private:
  uint32_t seed;
  uint32_t nameHash;
  bool gain, inputScale;
  float scale;
};

class HashedBlocks final : public BlockTensor {
public:
  HashedBlocks(uint32_t seed, const TensorSpec &spec, const BlockFormat &format)
      : BlockTensor(format, spec.columns()), values(seed, spec),
        amax(weightScale(uint64_t(spec.columns()))) {}

  float global(int64_t) const override { return format.global ? nvfp4Global(amax) : 1.0f; }
  bool hasInputScale() const override { return format.global; }
  float inputScale(int64_t) const override {
    return format.global ? nvfp4Global(kHashedActivationMax) : 1.0f;
  }

  void stored(int64_t index, std::span<uint8_t> codes, std::span<uint8_t> scales) const override {
    std::vector<float> row(static_cast<size_t>(columns));
    values.row(index, std::span<float>(row));
    if (format == BlockFormat::nvfp4())
      return quantizeNvfp4(row, nvfp4Global(amax), codes, scales);
    if (format == BlockFormat::mxfp4())
      return quantizeMxfp4(row, codes, scales);
    float scale = amax / kE4m3Max;
    if (format.scale == BlockFormat::Scale::Bf16)
      scale = r16(scale);
    for (size_t i = 0; i < row.size(); ++i)
      codes[i] = uint8_t(e4m3Bits(row[i] / scale));
    const uint16_t narrow = toBf16(scale);
    const int64_t bytes = format.scaleBytes();
    for (size_t at = 0; at < scales.size(); at += size_t(bytes))
      std::memcpy(scales.data() + at, bytes == 4 ? static_cast<const void *>(&scale) : &narrow,
                  size_t(bytes));
  }

private:
  HashedTensor values;
  float amax;
};

} // namespace

llvm::Expected<std::unique_ptr<BlockTensor>> WeightSource::openBlocks(const TensorSpec &spec,
                                                                      const BlockFormat &) const {
  return llvm::createStringError("weights: tensor %s: this source has no block-scaled weights",
                                 spec.str().c_str());
}

llvm::Expected<std::unique_ptr<BlockTensor>>
HashedWeights::openBlocks(const TensorSpec &spec, const BlockFormat &format) const {
  for (int64_t extent : spec.shape)
    if (extent <= 0)
      return llvm::createStringError("weights: tensor %s: every dimension must be positive",
                                     spec.str().c_str());
  if (format.code == BlockFormat::Code::E2m1 && spec.columns() % format.blockColumns)
    return llvm::createStringError(
        "weights: tensor %s: rows of 4-bit codes must be whole blocks of %d columns",
        spec.str().c_str(), int(format.blockColumns));
  if (format != BlockFormat::nvfp4() && format != BlockFormat::mxfp4() &&
      format != BlockFormat::fp8Block(format.scale))
    return llvm::createStringError(
        "weights: tensor %s: made-up block-scaled weights are NVFP4, MXFP4 or FP8 in blocks of "
        "128 x 128 with fp32 or bf16 scales",
        spec.str().c_str());
  return std::make_unique<HashedBlocks>(seed, spec, format);
}

llvm::Expected<std::unique_ptr<WeightTensor>> HashedWeights::open(const TensorSpec &spec) const {
  for (int64_t extent : spec.shape)
    if (extent <= 0)
      return llvm::createStringError("weights: tensor %s: every dimension must be positive",
                                     spec.str().c_str());
  return std::make_unique<HashedTensor>(seed, spec);
}

} // namespace megalith::models
