//===- Mixtral.cpp - Mixtral-8x7B, Mixtral-8x22B ----------------------------===//
//
// spec/models.md sections 1, 2 and 4: no QK norm; softmax over the selected experts only. In the
// checkpoint w1 is the gate, w3 up and w2 down.
//
//===----------------------------------------------------------------------===//

#include "models/Decoder.h"
#include "models/Family.h"

namespace megalith::models {

static void read(ConfigReader &reader, ModelConfig &config) {
  readDecoder(reader, config, {/*normEps=*/1e-5, /*ropeTheta=*/1e6, "MixtralForCausalLM"});
  readExperts(reader, config, "num_local_experts", "intermediate_size");
  // The softmax over the selected experts sums to one already.
  config.renormalize = false;

  reader.expectFalse("attention_bias", "bias in the attention projections");
  reader.expectAbsent("sliding_window", "sliding-window attention");
  reader.ignore({"router_jitter_noise"}); // training only
}

static constexpr llvm::StringRef kRouter[] = {"block_sparse_moe.gate"}, kHead[] = {"lm_head"};
static constexpr QuantModules kModules = {.layers = "model.layers.",
                                          .experts = "block_sparse_moe.experts",
                                          .attention = kAttentionModules,
                                          .plain = kRouter,
                                          .model = kHead};

static void build(StepBuilder &b) {
  b.embed("model.embed_tokens.weight");
  auto layers =
      buildLayers(b, [&](mlir::Value stream, mlir::Value kv, const LayerFormats &formats) {
        std::tie(stream, kv) = buildAttention(b, stream, kv, /*qkNorm=*/false, formats);
        ExpertNames names = {"model.layers.{layer}.block_sparse_moe.gate.weight",
                             "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight",
                             "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight",
                             "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"};
        stream = buildExperts(b, stream, names, moe::ScoreOver::Selected, /*renormalize=*/false,
                              formats);
        return std::pair(stream, kv);
      });
  b.head("model.norm.weight", "lm_head.weight");
  b.step(layers);
}

const Family kMixtral = {"mixtral", read, build, {}, kModules};

} // namespace megalith::models
