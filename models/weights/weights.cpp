//===- weights.cpp - Weights from the counter hash ------------------------===//

#include "models/weights/weights.h"

#include "models/weights/bf16.h"
#include "models/weights/philox.h"

#include <algorithm>

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
        gain(spec.role == TensorRole::Gain),
        scale(spec.role == TensorRole::Matrix ? weightScale(uint64_t(spec.columns()))
                                              : kGainScale) {}

  using WeightTensor::row;
  void row(int64_t index, std::span<float> out) const override {
    const uint64_t first = uint64_t(index) * out.size();
    weightValues(seed, nameHash, first, scale, out);
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
