//===- ModelConfig.h - what an importer has read from a config --------------===//
#ifndef MEGALITH_MODELS_MODELCONFIG_H
#define MEGALITH_MODELS_MODELCONFIG_H

#include <cstdint>
#include <string>

namespace megalith::models {

/// A checked config of a decoder with grouped-query attention and experts in every layer. Widths
/// are in channels; every count is at least 1.
struct ModelConfig {
  std::string modelType; ///< as in the config: "qwen3_moe"
  std::string source;    ///< name of the file, for messages and locations

  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kvHeads = 0; ///< divides heads
  int64_t headDim = 0; ///< even
  int64_t vocab = 0;
  int64_t maxPositions = 0;

  int64_t experts = 0;
  int64_t topK = 0;        ///< at most experts
  int64_t expertWidth = 0; ///< inner width of one expert
  /// Divide the chosen experts' softmax scores by their sum.
  bool renormalize = false;

  double normEps = 0;
  double ropeTheta = 0;
};

} // namespace megalith::models

#endif // MEGALITH_MODELS_MODELCONFIG_H
