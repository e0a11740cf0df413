//===- Qwen3Moe.cpp - Qwen3-30B-A3B, Qwen3-235B-A22B ------------------------===//
//
// spec/models.md sections 1, 2 and 4: QK norm per head with a weight before RoPE; softmax over all
// experts, then top-k, then (norm_topk_prob) division by their sum.
//
//===----------------------------------------------------------------------===//

#include "models/Decoder.h"
#include "models/Family.h"

namespace megalith::models {

static void read(ConfigReader &reader, ModelConfig &config) {
  readDecoder(reader, config, {/*normEps=*/1e-6, /*ropeTheta=*/1e4, "Qwen3MoeForCausalLM"});
  readExperts(reader, config, "num_experts", "moe_intermediate_size");
  config.renormalize = reader.booleanOr("norm_topk_prob", false);

  reader.expectFalse("attention_bias", "bias in the attention projections");
  reader.expectEmptyList("mlp_only_layers", "a dense layer among the layers of experts");
  reader.expectInteger("decoder_sparse_step", 1, "a dense layer among the layers of experts");
  reader.expectFalse("use_sliding_window", "sliding-window attention");
  // Without use_sliding_window or dense layers these say nothing, but they are there and typed.
  reader.integerOr("sliding_window", 1, INT32_MAX, 1);
  reader.integerOr("max_window_layers", 0, INT32_MAX, 0);
  reader.integerOr("intermediate_size", 1, INT32_MAX, 1);
}

static constexpr llvm::StringRef kRouter[] = {"mlp.gate"}, kHead[] = {"lm_head"};
static constexpr QuantModules kModules = {.layers = "model.layers.",
                                          .experts = "mlp.experts",
                                          .attention = kAttentionModules,
                                          .plain = kRouter,
                                          .model = kHead};

static void build(StepBuilder &b) {
  b.embed("model.embed_tokens.weight");
  auto layers =
      buildLayers(b, [&](mlir::Value stream, mlir::Value kv, const LayerFormats &formats) {
        std::tie(stream, kv) = buildAttention(b, stream, kv, /*qkNorm=*/true, formats);
        ExpertNames names = {"model.layers.{layer}.mlp.gate.weight",
                             "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
                             "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
                             "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"};
        stream = buildExperts(b, stream, names, moe::ScoreOver::All, b.config.renormalize, formats);
        return std::pair(stream, kv);
      });
  b.head("model.norm.weight", "lm_head.weight");
  b.step(layers);
}

const Family kQwen3Moe = {"qwen3_moe", read, build, {}, kModules};

} // namespace megalith::models
