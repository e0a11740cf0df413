//===- Decoder.cpp - what decoders with GQA and gated experts share ---------===//

#include "models/Decoder.h"
#include "models/JsonText.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;

namespace megalith::models {

// Bounds far above any published model: they only catch slips, and keep products within int64.
static constexpr int64_t kMaxWidth = 1 << 20;
static constexpr int64_t kMaxLayers = 1000;
static constexpr int64_t kMaxHeads = 4096;
static constexpr int64_t kMaxHeadDim = 1024;
static constexpr int64_t kMaxExperts = 4096;
static constexpr int64_t kMaxVocab = 1 << 24;
static constexpr int64_t kMaxPositions = 1 << 27;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

static void readHeads(ConfigReader &reader, ModelConfig &config) {
  config.hidden = reader.integer("hidden_size", 1, kMaxWidth);
  config.heads = reader.integer("num_attention_heads", 1, kMaxHeads);
  config.kvHeads = reader.integer("num_key_value_heads", 1, kMaxHeads);
  if (config.heads % config.kvHeads != 0)
    reader.fail("num_key_value_heads",
                llvm::formatv("a divisor of num_attention_heads {0}", config.heads).str(),
                Twine(config.kvHeads), "correct one of the two");
  if (!reader.has("head_dim") && config.hidden % config.heads != 0)
    reader.fail("head_dim", "a value, as num_attention_heads does not divide hidden_size",
                "nothing", "add the field from the model's config.json");
  config.headDim =
      reader.integerOr("head_dim", 1, kMaxHeadDim,
                       std::max<int64_t>(1, std::min(config.hidden / config.heads, kMaxHeadDim)));
  if (config.headDim % 2 != 0)
    reader.fail("head_dim", "an even width, whose halves RoPE rotates against each other",
                Twine(config.headDim), "correct the value");
}

/// Older configs give rope_theta and rope_scaling, newer ones both in rope_parameters.
static void readRope(ConfigReader &reader, ModelConfig &config, double defaultTheta) {
  reader.expectAbsent("rope_scaling", "RoPE scaling");
  config.ropeTheta = reader.positiveOr("rope_theta", defaultTheta);
  const llvm::json::Object *parameters = reader.object("rope_parameters");
  if (!parameters)
    return;
  ConfigReader nested(*parameters, reader.getSource(), reader.path("rope_parameters"));
  nested.expectString("rope_type", "default",
                      "RoPE scaling is not supported for this model type: use a checkpoint "
                      "without it");
  double theta = nested.positiveOr("rope_theta", config.ropeTheta);
  if (reader.has("rope_theta") && theta != config.ropeTheta)
    nested.fail("rope_theta", describe(config.ropeTheta) + ", as in the field rope_theta",
                describe(theta), "remove one of the two");
  config.ropeTheta = theta;
  nested.expectNoOthers("default rope_parameters");
  if (nested.failed())
    reader.adopt(nested.takeError());
}

void readDecoder(ConfigReader &reader, ModelConfig &config, const DecoderDefaults &defaults) {
  reader.expectOnlyString("architectures", defaults.architecture,
                          "model_type and architectures contradict each other: correct one");
  reader.expectAbsent("quantization_config", "a quantised checkpoint");
  readHeads(reader, config);
  config.layers = reader.integer("num_hidden_layers", 1, kMaxLayers);
  config.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  config.maxPositions = reader.integer("max_position_embeddings", 1, kMaxPositions);
  config.normEps = reader.positiveOr("rms_norm_eps", defaults.normEps);
  readRope(reader, config, defaults.ropeTheta);

  reader.expectString("hidden_act", "silu",
                      "only SwiGLU experts are supported for this model type: use a checkpoint "
                      "with that activation");
  reader.expectFalse("tie_word_embeddings", "a head tied to the embedding");
  for (StringRef key : {"torch_dtype", "dtype"})
    reader.expectString(key, "bfloat16", "convert the checkpoint to bfloat16");

  // Training, generation and bookkeeping.
  reader.ignore({"attention_dropout", "auto_map", "bos_token_id", "eos_token_id", "pad_token_id",
                 "initializer_range", "name_or_path", "output_router_logits",
                 "router_aux_loss_coef", "transformers_version", "use_cache"});
}

void readExperts(ConfigReader &reader, ModelConfig &config, StringRef countField,
                 StringRef widthField) {
  config.experts = reader.integer(countField, 1, kMaxExperts);
  config.topK = reader.integer("num_experts_per_tok", 1, kMaxExperts);
  config.expertWidth = reader.integer(widthField, 1, kMaxWidth);
  if (config.topK > config.experts)
    reader.fail("num_experts_per_tok",
                llvm::formatv("at most {0} {1}", countField, config.experts).str(),
                Twine(config.topK), "correct one of the two");
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

static const FlatSymbolRefAttr noBias;

/// A matrix that may be NVFP4: layers that differ in it have weights of their own.
static FlatSymbolRefAttr matrix(StepBuilder &b, const std::string &symbol,
                                llvm::ArrayRef<int64_t> shape, llvm::StringRef checkpoint,
                                bool nvfp4) {
  return nvfp4 ? b.weight(symbol + "_nvfp4", shape, checkpoint,
                          moe::BlockFormatType::getNVFP4(b.builder.getContext()))
               : b.weight(symbol, shape, checkpoint);
}

std::pair<Value, Value> buildAttention(StepBuilder &b, Value stream, Value kv, bool qkNorm,
                                       const LayerFormats &formats) {
  const ModelConfig &c = b.config;
  int64_t qWidth = c.heads * c.headDim, kvWidth = c.kvHeads * c.headDim;
  Type qType = b.bf16(b.rows, qWidth), kvType = b.bf16(b.rows, kvWidth);
  OpBuilder &builder = b.builder;

  auto projection = [&](const std::string &name, llvm::ArrayRef<int64_t> shape) {
    return matrix(b, name, shape, "model.layers.{layer}.self_attn." + name + ".weight",
                  formats.attention);
  };
  auto gain = b.weight("input_norm", {c.hidden}, "model.layers.{layer}.input_layernorm.weight");
  auto wq = projection("q_proj", {qWidth, c.hidden});
  auto wk = projection("k_proj", {kvWidth, c.hidden});
  auto wv = projection("v_proj", {kvWidth, c.hidden});

  Value x = b.rmsNorm(stream, gain, "layer.input_layernorm");
  auto qkv =
      moe::QkvProjOp::create(builder, b.loc("layer.self_attn.qkv_proj"), qType, kvType, kvType, x,
                             wq.getValue(), wk.getValue(), wv.getValue(), c.heads, c.kvHeads,
                             c.headDim, noBias, noBias, noBias, /*clip=*/FloatAttr());
  Value q = qkv.getQ(), k = qkv.getK(), v = qkv.getV();
  if (qkNorm) {
    auto qGain = b.weight("q_norm", {c.headDim}, "model.layers.{layer}.self_attn.q_norm.weight");
    auto kGain = b.weight("k_norm", {c.headDim}, "model.layers.{layer}.self_attn.k_norm.weight");
    auto norm = moe::QkNormOp::create(builder, b.loc("layer.self_attn.qk_norm"), qType, kvType, q,
                                      k, moe::NormKind::Rms, c.headDim, c.normEps, qGain, kGain);
    q = norm.getQOut();
    k = norm.getKOut();
  }
  auto rope = moe::RopeOp::create(builder, b.loc("layer.self_attn.rope"), qType, kvType, q, k,
                                  c.headDim, /*rotary_dims=*/c.headDim, c.ropeTheta,
                                  moe::RopePairing::HalfSplit, moe::RopeScalingAttr());
  kv = b.kvAppend(kv, rope.getKOut(), v, "model.layers.{layer}.self_attn.",
                  "layer.self_attn.kv_append");
  double scale = 1.0 / std::sqrt(static_cast<double>(c.headDim));
  Value o = moe::AttentionOp::create(builder, b.loc("layer.self_attn.attention"), qType,
                                     rope.getQOut(), kv, c.heads, scale, moe::AttentionMask::Full,
                                     /*extent=*/IntegerAttr(), /*sinks=*/FlatSymbolRefAttr(),
                                     /*score_bound=*/FloatAttr());

  auto wo = projection("o_proj", {c.hidden, qWidth});
  Value a = moe::LinearOp::create(builder, b.loc("layer.self_attn.o_proj"), stream.getType(), o,
                                  wo.getValue(), noBias);
  return {b.residual(stream, a, "layer.self_attn.residual"), kv};
}

/// `x` in NVFP4, with the calibrated scale of the expert matrices `weight` that it meets: one for
/// gate and up, so theirs are equal.
static Value quantized(StepBuilder &b, Value x, Value ids, llvm::StringRef symbol,
                       llvm::StringRef weight) {
  auto scale = b.weight(symbol, {b.config.experts, 1},
                        weight.drop_back(llvm::StringRef("weight").size()).str() + "input_scale",
                        b.builder.getF32Type());
  auto type = RankedTensorType::get(cast<RankedTensorType>(x.getType()).getShape(),
                                    moe::BlockFormatType::getNVFP4(b.builder.getContext()));
  return moe::QuantizeOp::create(b.builder, b.loc(("layer.mlp." + symbol).str()), type, x, ids,
                                 scale);
}

Value buildExperts(StepBuilder &b, Value stream, const ExpertNames &names, moe::ScoreOver over,
                   bool renormalize, const LayerFormats &formats) {
  const ModelConfig &c = b.config;
  int64_t pairs = b.rows * c.topK;
  OpBuilder &builder = b.builder;

  auto gain = b.weight("post_attention_norm", {c.hidden},
                       "model.layers.{layer}.post_attention_layernorm.weight");
  auto wr = b.weight("router", {c.experts, c.hidden}, names.router);
  bool nvfp4 = formats.experts, quantizes = nvfp4 && c.nvfp4Activations;
  auto wg = matrix(b, "experts_gate", {c.experts, c.expertWidth, c.hidden}, names.gate, nvfp4);
  auto wu = matrix(b, "experts_up", {c.experts, c.expertWidth, c.hidden}, names.up, nvfp4);
  auto wd = matrix(b, "experts_down", {c.experts, c.hidden, c.expertWidth}, names.down, nvfp4);

  Value x = b.rmsNorm(stream, gain, "layer.post_attention_layernorm");
  Value logits = moe::RouterOp::create(builder, b.loc("layer.mlp.router"), b.f32(b.rows, c.experts),
                                       x, wr.getValue(), noBias);
  Type ids = RankedTensorType::get({b.rows, c.topK}, builder.getI32Type());
  auto top =
      moe::TopKOp::create(builder, b.loc("layer.mlp.top_k"), ids, b.f32(b.rows, c.topK), logits,
                          moe::Score::Softmax, c.topK, over, renormalize, /*renormalize_eps=*/0.0,
                          /*scale=*/1.0, /*selection_bias=*/FlatSymbolRefAttr(),
                          /*groups=*/IntegerAttr(), /*top_groups=*/IntegerAttr());
  Type inner = b.bf16(pairs, c.expertWidth);
  if (quantizes)
    x = quantized(b, x, Value(), "gate_up_input_scale", names.gate);
  auto gateUp =
      moe::ExpertGateUpOp::create(builder, b.loc("layer.mlp.experts.gate_up"), inner, inner, x,
                                  top.getIds(), wg.getValue(), wu.getValue(), noBias, noBias);
  Value h = moe::GluOp::create(builder, b.loc("layer.mlp.experts.glu"), inner, gateUp.getGate(),
                               gateUp.getUp(), moe::Activation::Silu, /*clamp=*/FloatAttr(),
                               /*alpha=*/FloatAttr());
  if (quantizes)
    h = quantized(b, h, top.getIds(), "down_input_scale", names.down);
  Value y =
      moe::ExpertDownOp::create(builder, b.loc("layer.mlp.experts.down"), b.bf16(pairs, c.hidden),
                                h, top.getIds(), wd.getValue(), noBias);
  Value m = moe::CombineOp::create(builder, b.loc("layer.mlp.combine"), stream.getType(),
                                   top.getWeights(), y);
  return b.residual(stream, m, "layer.mlp.residual");
}

std::vector<std::string> buildLayers(StepBuilder &b, MakeLayer make) {
  const ModelConfig &c = b.config;
  auto isNvfp4 = [](const std::vector<bool> &layers, size_t l) {
    return !layers.empty() && layers[l];
  };
  std::vector<std::string> step;
  for (size_t l = 0; l < size_t(c.layers); ++l) {
    const LayerFormats formats = {isNvfp4(c.nvfp4Attention, l), isNvfp4(c.nvfp4Experts, l)};
    std::string name = "layer";
    if (formats.attention || formats.experts)
      name +=
          formats.attention ? formats.experts ? "_nvfp4" : "_nvfp4_attention" : "_nvfp4_experts";
    if (!llvm::is_contained(step, name))
      b.layer(name, [&](Value stream, Value kv) { return make(stream, kv, formats); });
    step.push_back(std::move(name));
  }
  return step;
}

} // namespace megalith::models
