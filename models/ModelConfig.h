//===- ModelConfig.h - what an importer has read from a config --------------===//
#ifndef MEGALITH_MODELS_MODELCONFIG_H
#define MEGALITH_MODELS_MODELCONFIG_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace megalith::models {

/// Attention of one layer.
struct LayerAttention {
  int64_t window = 0;   ///< keys that a query sees, its own included; 0: all
  double ropeTheta = 0; ///< 0: no rotation
};

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

  // What only some families have. Neutral unless a family's reader says otherwise.

  /// One per layer, where layers differ; else empty.
  std::vector<LayerAttention> attention;
  bool f32Residual = false;       ///< the residual stream is fp32, not bf16
  double postNormEps = 0;         ///< of norms behind a branch
  double qkScale = 0;             ///< attention scores are q.k * qkScale / sqrt(headDim)
  double residualTemperature = 0; ///< of the gate that joins a branch to the stream
  int64_t latentWidth = 0;        ///< width of rows that experts read and write
  double routedScale = 1;         ///< on expert weights
  double outputMultiplier = 1;    ///< on router logits and final logits
  double logitSoftcap = 0;        ///< 0: none
  int64_t validVocab = 0;         ///< ids from here on are never produced; 0: all are valid
  /// Per layer, whether its experts' weights are NVFP4, and the four of attention; empty: none.
  std::vector<bool> nvfp4Experts, nvfp4Attention;
  /// Experts' inputs are quantised to NVFP4 where their weights are.
  bool nvfp4Activations = false;
  /// The KV cache holds e4m3, not bf16; with the checkpoint's k_scale and v_scale of each layer's
  /// attention, if its hf_quant_config.json says that it has them.
  bool e4m3Kv = false, kvScales = false;
  /// The family's named choices, all of them.
  std::map<std::string, std::string> choices;
};

} // namespace megalith::models

#endif // MEGALITH_MODELS_MODELCONFIG_H
