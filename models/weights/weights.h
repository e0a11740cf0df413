//===- weights.h - Where weights come from -----------------------*- C++ -*-===//
//
// A model has tens of gigabytes of weights and a test needs a few rows of them: a source hands out
// rows on demand and never a whole tensor.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_WEIGHTS_WEIGHTS_H
#define MEGALITH_MODELS_WEIGHTS_WEIGHTS_H

#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace megalith::models {

/// What a tensor is for. Only made-up weights care: a gain is around one, a centred gain (to which
/// the model adds one) around zero, input scales are nvfp4Global(kHashedActivationMax). In the
/// families so far the gains are the vectors.
enum class TensorRole { Matrix, Gain, CentredGain, InputScale };

/// One tensor of a checkpoint, unsharded. A vector of n elements is one row of n.
struct TensorSpec {
  std::string name;           ///< checkpoint name, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape; ///< e.g. {4096, 2048}; the last dimension is contracted
  TensorRole role = TensorRole::Matrix;

  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;
  /// "name [4096, 2048]", for messages.
  std::string str() const;
};

/// An opened tensor. Reading cannot fail and is safe from several threads.
class WeightTensor {
public:
  virtual ~WeightTensor() = default;

  /// Writes row `index` (all leading dimensions flattened) in full; `out` has columns() elements.
  /// Values are as stored: bf16 numbers for a bf16 tensor.
  virtual void row(int64_t index, std::span<float> out) const = 0;

  /// The same rounded to bf16, as bits.
  void row(int64_t index, std::span<uint16_t> out) const;
};

class BlockTensor; // nvfp4.h
struct BlockFormat;

/// A model's weights by checkpoint name.
class WeightSource {
public:
  virtual ~WeightSource() = default;

  /// Opens a tensor, or says why it cannot be read as `spec`: it is missing, has another shape or a
  /// type that is not supported.
  virtual llvm::Expected<std::unique_ptr<WeightTensor>> open(const TensorSpec &spec) const = 0;

  /// Opens a block-scaled tensor (nvfp4.h); `spec` has the shape of its numbers. A source that has
  /// none, as by default, says so.
  virtual llvm::Expected<std::unique_ptr<BlockTensor>> openBlocks(const TensorSpec &spec,
                                                                  const BlockFormat &format) const;
};

/// weightValue (philox.h) of elements first .. first + out.size() - 1 of the tensor whose name
/// hashes to `nameHash`, many at a time.
void weightValues(uint32_t seed, uint32_t nameHash, uint64_t first, float scale,
                  std::span<float> out);

/// Weights from the counter hash (philox.h): any tensor of any shape exists.
class HashedWeights final : public WeightSource {
public:
  explicit HashedWeights(uint32_t seed) : seed(seed) {}
  llvm::Expected<std::unique_ptr<WeightTensor>> open(const TensorSpec &spec) const override;

  /// The same numbers quantised, with the scale s of weightScale for the largest magnitude: NVFP4
  /// has the global factor nvfp4Global(s), FP8 the scale s / 448 in every block. Input scales are
  /// nvfp4Global(kHashedActivationMax).
  llvm::Expected<std::unique_ptr<BlockTensor>> openBlocks(const TensorSpec &spec,
                                                          const BlockFormat &format) const override;

private:
  uint32_t seed;
};

} // namespace megalith::models

#endif // MEGALITH_MODELS_WEIGHTS_WEIGHTS_H
