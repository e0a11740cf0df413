//===- weights.cpp - Weights from the counter hash ------------------------===//

#include "models/weights/weights.h"

#include "models/weights/bf16.h"
#include "models/weights/philox.h"

#include <cassert>

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

namespace {
class HashedTensor final : public WeightTensor {
public:
  HashedTensor(uint32_t seed, const TensorSpec &spec)
      : seed(seed), nameHash(fnv1a32(spec.name.data(), spec.name.size())),
        gain(spec.role == TensorRole::Gain),
        scale(spec.role == TensorRole::Matrix ? weightScale(uint64_t(spec.columns())) : kGainScale) {
  }

  using WeightTensor::row;
  void row(int64_t index, std::span<float> out) const override {
    const uint64_t first = uint64_t(index) * out.size();
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = weightValue(seed, nameHash, first + i, scale);
    if (gain)
      for (float &value : out)
        value = r16(1.0f + value);
  }

private:
  uint32_t seed;
  uint32_t nameHash;
  bool gain;
  float scale;
};
} // namespace

llvm::Expected<std::unique_ptr<WeightTensor>> HashedWeights::open(const TensorSpec &spec) const {
  for (int64_t extent : spec.shape)
    if (extent <= 0)
      return llvm::createStringError("weights: tensor %s: every dimension must be positive",
                                     spec.str().c_str());
  return std::make_unique<HashedTensor>(seed, spec);
}

} // namespace megalith::models
