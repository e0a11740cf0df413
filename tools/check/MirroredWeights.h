//===- MirroredWeights.h - Weights that repeat rank 0's share ----*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CHECK_MIRROREDWEIGHTS_H
#define MEGALITH_TOOLS_CHECK_MIRROREDWEIGHTS_H

#include "models/weights/weights.h"
#include "runtime/plan.h"

#include <string>
#include <vector>

namespace megalith::check {

/// Of another source, but row n of a tensor that a plan's ranks divide is row n modulo a rank's
/// share (of each expert's matrix, of each half that gates and ups have): the model that rank 0
/// computes a part of, when what it computes stands for every rank's (RankOptions::mirror). Vectors
/// of which ranks have columns likewise. Rank
/// 0's own rows are the other source's.
class MirroredWeights final : public models::WeightSource {
public:
  /// `from` must outlive this; `plan` is one with all shards.
  MirroredWeights(const models::WeightSource &from, const runtime::Plan &plan);

  llvm::Expected<std::unique_ptr<models::WeightTensor>>
  open(const models::TensorSpec &spec) const override;
  llvm::Expected<std::unique_ptr<models::BlockTensor>>
  openBlocks(const models::TensorSpec &spec, const models::BlockFormat &format) const override;

  /// Every `range` rows repeat their first `share`, every row its first `columns`; 0: not divided.
  struct Rule {
    int64_t range = 1, share = 0, columns = 0;
    bool isAny() const { return share || columns; }
    int64_t row(int64_t index) const {
      return share ? index / range * range + index % range % share : index;
    }
  };

private:
  Rule ruleOf(const std::string &tensor) const;

  const models::WeightSource &from;
  struct Divided {
    std::string pattern; ///< of checkpoint names, with "{layer}" and "{expert}"
    Rule rule;
  };
  std::vector<Divided> divided;
};

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_MIRROREDWEIGHTS_H
