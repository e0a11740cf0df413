//===- KeptWeights.h - Made-up weights, made up once -------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CHECK_KEPTWEIGHTS_H
#define MEGALITH_TOOLS_CHECK_KEPTWEIGHTS_H

#include "models/weights/weights.h"

#include <map>

namespace megalith::check {

/// Keeps the rows that were read of another source until `drop`, for evaluations of the same layer
/// one after another: making a weight up costs ten times its multiplication. The other's values
/// must be bf16 numbers, but for input scales, which pass through.
class KeptWeights final : public models::WeightSource {
public:
  explicit KeptWeights(const models::WeightSource &from) : from(from) {}

  llvm::Expected<std::unique_ptr<models::WeightTensor>>
  open(const models::TensorSpec &spec) const override;

  /// Block-scaled tensors pass through; their rows are not kept.
  llvm::Expected<std::unique_ptr<models::BlockTensor>>
  openBlocks(const models::TensorSpec &spec, const models::BlockFormat &format) const override;

  /// Forgets all rows. Tensors that are open must not be read again.
  void drop() { tensors.clear(); }

  class Tensor;

private:
  const models::WeightSource &from;
  mutable std::map<std::string, std::shared_ptr<Tensor>> tensors; ///< by name; opened by one thread
};

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_KEPTWEIGHTS_H
