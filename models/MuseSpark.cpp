//===- MuseSpark.cpp - Muse Spark Open, text decoder ------------------------===//
//
// spec/muse-spark-open.md; the numbers in comments are the steps of its section 4. What section 5
// leaves open is a choice, the default first.
//
//===----------------------------------------------------------------------===//

#include "models/Decoder.h"
#include "models/Family.h"
#include "models/JsonText.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;

namespace megalith::models {

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

// Section 5.1: the checkpoint's rows rotate in halves; a dump for adjacent pairs needs the other.
static constexpr llvm::StringRef kRopePairing[] = {"half_split", "adjacent"};
// Section 5.2: which layers see everything, where the config has no layer_types: l mod 4.
static constexpr llvm::StringRef kFullPhase[] = {"1", "0", "2", "3"};
// Section 5.3: the score's factor in one number, or on q before it is rounded, then 1/sqrt(D).
static constexpr llvm::StringRef kScoreScale[] = {"softmax", "query"};
// Section 5.4: o, its norm and the gate's sigmoid stay fp32, or are each rounded.
static constexpr llvm::StringRef kAttentionOutput[] = {"f32", "bf16"};
// Section 5.5: experts are added in fp32, or every product and sum is rounded.
static constexpr llvm::StringRef kCombine[] = {"f32", "bf16"};
// Section 5.6.
static constexpr llvm::StringRef kRouterPrecision[] = {"f32", "tf32", "bf16x2"};
// Section 1: ids behind the tokeniser's are masked. They are in no field of the config.
static constexpr llvm::StringRef kPadding[] = {"masked", "free"};

static constexpr Choice kChoices[] = {
    {"rope-pairing", kRopePairing},
    {"full-layer-phase", kFullPhase},
    {"score-scale", kScoreScale},
    {"attention-output", kAttentionOutput},
    {"combine", kCombine},
    {"router-precision", kRouterPrecision},
    {"vocabulary-padding", kPadding},
};

/// The vocabulary with its padding, and where the padding begins.
static constexpr int64_t kVocab = 202048, kValidVocab = 201818;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Per layer: window and RoPE, or all positions and none.
static void readLayerKinds(ConfigReader &reader, ModelConfig &config) {
  size_t layers = size_t(config.layers);
  int64_t window = reader.integer("sliding_window", 1, INT32_MAX);
  std::vector<std::string> types =
      reader.strings("layer_types", layers, {"sliding_attention", "full_attention"},
                     "other kinds of layer are not supported for this model type");
  std::vector<double> thetas = reader.numbers("layer_rope_theta", layers);
  reader.strings("mlp_layer_types", layers, {"sparse"},
                 "dense layers are not supported for this model type");
  int64_t phase = config.choices["full-layer-phase"].front() - '0';
  for (size_t l = 0; l < layers; ++l) {
    bool full = types.empty() ? int64_t(l % 4) == phase : types[l] == "full_attention";
    double theta = thetas.empty() ? (full ? 0 : config.ropeTheta) : thetas[l];
    config.attention.push_back({full ? 0 : window, theta});
  }
}

static void readText(ConfigReader &reader, ModelConfig &config) {
  readDecoder(reader, config, {/*normEps=*/1e-5, /*ropeTheta=*/5e5, ""});
  readExperts(reader, config, "num_local_experts", "moe_intermediate_size");
  reader.expectString("model_type", "muse_spark_text", "give the config of a Muse Spark model");
  readLayerKinds(reader, config);
  config.f32Residual = true;
  config.renormalize = true;
  config.latentWidth = reader.integer("moe_hidden_size", 1, 1 << 20);
  config.postNormEps = reader.positiveOr("post_norm_eps", 1e-8);
  config.qkScale = reader.positiveOr("qk_scale_factor", 5.4730064863875);
  config.residualTemperature = reader.positiveOr("residual_gate_temperature", 0.3);
  config.outputMultiplier = reader.positiveOr("output_multiplier", 1);
  config.logitSoftcap = reader.positiveOr("final_logit_softcapping", 20);
  config.routedScale = reader.positiveOr("routed_scaling_factor", 1);
  if (config.vocab == kVocab && config.choices["vocabulary-padding"] == "masked")
    config.validVocab = kValidVocab;

  reader.expectFalse("attention_bias", "bias in the attention projections");
  reader.expectInteger("num_shared_experts", 0, "a shared expert");
}

static void read(ConfigReader &reader, ModelConfig &config) {
  reader.expectOnlyString("architectures", "MuseSparkForConditionalGeneration",
                          "model_type and architectures contradict each other: correct one");
  reader.expectAbsent("quantization_config", "a config with its own quantisation");
  reader.expectFalse("tie_word_embeddings", "a head tied to the embedding");
  for (llvm::StringRef key : {"torch_dtype", "dtype"})
    reader.expectString(key, "bfloat16", "convert the checkpoint to bfloat16");
  // Towers and projectors of images and sound come before the decoder and are no part of a step.
  reader.ignore({"vision_config", "audio_config", "image_token_id", "video_token_id",
                 "audio_token_id", "out_hidden_size", "projector_hidden_size", "bos_token_id",
                 "eos_token_id", "pad_token_id", "auto_map", "initializer_range", "name_or_path",
                 "transformers_version", "use_cache"});
  const llvm::json::Object *text = reader.object("text_config");
  if (!text) {
    reader.fail("text_config", "an object", "nothing",
                "add the field from the model's config.json");
    return;
  }
  ConfigReader nested(*text, reader.getSource(), reader.path("text_config"));
  readText(nested, config);
  nested.expectNoOthers("muse_spark_text");
  if (nested.failed())
    reader.adopt(nested.takeError());
}

// Section 7.1: the experts of all layers but the first and the last, and nothing else.
static constexpr llvm::StringRef kPlain[] = {
    "self_attn.q_proj", "self_attn.k_proj",    "self_attn.v_proj",     "self_attn.gate_proj",
    "self_attn.o_proj", "mlp.pre_expert_proj", "mlp.post_expert_proj", "mlp.gate"};
static constexpr llvm::StringRef kPlainModel[] = {"lm_head"};
static constexpr QuantModules kModules = {.layers = "model.language_model.layers.",
                                          .experts = "mlp.experts",
                                          .attention = {},
                                          .plain = kPlain,
                                          .model = kPlainModel,
                                          .endsArePlain = true};

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

namespace {

const FlatSymbolRefAttr kNone;
constexpr const char *kLayer = "model.language_model.layers.{layer}.";

/// The layer functions of one model: every method is one group of steps.
class Layers {
public:
  explicit Layers(StepBuilder &b) : b(b), c(b.config), builder(b.builder) {}

  std::pair<Value, Value> attention(Value stream, Value kv, const LayerAttention &kind) {
    int64_t qWidth = c.heads * c.headDim, kvWidth = c.kvHeads * c.headDim;
    Type q16 = b.bf16(b.rows, qWidth), kv16 = b.bf16(b.rows, kvWidth);
    // 0b, 19: the pre-norm.
    Value x = norm(stream, moe::NormKind::Rms, c.normEps, "input_norm", "input_layernorm.weight");
    // 1: four projections of it.
    llvm::StringRef wq = matrix("q_proj", {qWidth, c.hidden}, "self_attn.q_proj.weight");
    llvm::StringRef wk = matrix("k_proj", {kvWidth, c.hidden}, "self_attn.k_proj.weight");
    llvm::StringRef wv = matrix("v_proj", {kvWidth, c.hidden}, "self_attn.v_proj.weight");
    auto qkv = moe::QkvProjOp::create(builder, at("self_attn.qkv_proj"), q16, kv16, kv16, x, wq, wk,
                                      wv, c.heads, c.kvHeads, c.headDim, kNone, kNone, kNone,
                                      /*clip=*/FloatAttr());
    Value gate = linear(x, "gate_proj", qWidth, "self_attn.gate_proj.weight");
    // 2: q and k of unit RMS.
    bool scaleQuery = choice("score-scale") == "query";
    auto qk = moe::QkNormOp::create(builder, at("self_attn.qk_norm"), q16, kv16, qkv.getQ(),
                                    qkv.getK(), moe::NormKind::RmsWeightless, c.headDim, c.normEps,
                                    kNone, kNone, moe::NormOver::Head, moe::Gain::Absolute,
                                    scaleQuery ? c.qkScale : 1.0);
    Value q = qk.getQOut(), k = qk.getKOut();
    // 3
    if (kind.ropeTheta > 0) {
      auto pairing = choice("rope-pairing") == "adjacent" ? moe::RopePairing::Adjacent
                                                          : moe::RopePairing::HalfSplit;
      auto rope = moe::RopeOp::create(builder, at("self_attn.rope"), q16, kv16, q, k, c.headDim,
                                      /*rotary_dims=*/c.headDim, kind.ropeTheta, pairing,
                                      moe::RopeScalingAttr());
      q = rope.getQOut();
      k = rope.getKOut();
    }
    // 4, 5
    kv = b.kvAppend(kv, k, qkv.getV(), std::string(kLayer) + "self_attn.",
                    "layer.self_attn.kv_append");
    bool rounded = choice("attention-output") == "bf16";
    Type inner = rounded ? q16 : Type(b.f32(b.rows, qWidth));
    double scale = (scaleQuery ? 1.0 : c.qkScale) / std::sqrt(static_cast<double>(c.headDim));
    Value o = moe::AttentionOp::create(
        builder, at("self_attn.attention"), inner, q, kv, c.heads, scale,
        kind.window ? moe::AttentionMask::Window : moe::AttentionMask::Full,
        kind.window ? builder.getI64IntegerAttr(kind.window) : IntegerAttr(), kNone, FloatAttr());
    // 6, 7: its norm per head, then a gate per channel.
    o = moe::NormOp::create(builder, at("self_attn.output_norm"), inner, o,
                            moe::NormKind::RmsWeightless, c.normEps, kNone, kNone,
                            moe::NormOver::Head, builder.getI64IntegerAttr(c.headDim));
    o = moe::OutputGateOp::create(builder, at("self_attn.output_gate"), q16, o, gate, rounded);
    // 8, 9
    Value a = linear(o, "o_proj", c.hidden, "self_attn.o_proj.weight");
    a = norm(a, moe::NormKind::RmsWeightless, c.postNormEps, "", "self_attn.post_norm");
    return {residual(stream, a, "attention_gate", "post_attention_residual_gate.gate"), kv};
  }

  Value experts(Value stream, bool nvfp4) {
    int64_t pairs = b.rows * c.topK;
    // 10, 11
    Value x = norm(stream, moe::NormKind::Rms, c.normEps, "feedforward_norm",
                   "pre_feedforward_layernorm.weight");
    moe::TopKOp top = route(x);
    // 12, 13: into the experts' width.
    Value h = linear(x, "pooler", c.latentWidth, "mlp.pre_expert_proj.weight");
    h = norm(h, moe::NormKind::Rms, c.normEps, "pre_expert_norm", "mlp.pre_expert_norm.weight");
    // 14
    bool quantize = nvfp4 && c.nvfp4Activations;
    std::string suffix = nvfp4 ? "_nvfp4" : "";
    const char *gateUpName = "mlp.experts.gate_up_proj", *downName = "mlp.experts.down_proj";
    if (quantize)
      h = quantized(h, Value(), "gate_up_input_scale", {c.experts, 2}, gateUpName);
    Type inner = b.bf16(pairs, c.expertWidth);
    auto half = [&](const char *symbol, int64_t index) {
      return expertMatrix(symbol + suffix, {c.experts, c.expertWidth, c.latentWidth}, gateUpName,
                          nvfp4, moe::PartAttr::get(builder.getContext(), 1, index, 2));
    };
    llvm::StringRef wg = half("experts_gate", 0), wu = half("experts_up", 1);
    auto gateUp = moe::ExpertGateUpOp::create(builder, at("mlp.experts.gate_up"), inner, inner, h,
                                              top.getIds(), wg, wu, kNone, kNone);
    Value act = moe::GluOp::create(builder, at("mlp.experts.glu"), inner, gateUp.getGate(),
                                   gateUp.getUp(), moe::Activation::Silu, /*clamp=*/FloatAttr(),
                                   /*alpha=*/FloatAttr());
    if (quantize)
      act = quantized(act, top.getIds(), "down_input_scale", {c.experts}, downName);
    Value y = moe::ExpertDownOp::create(
        builder, at("mlp.experts.down"), b.bf16(pairs, c.latentWidth), act, top.getIds(),
        expertMatrix("experts_down" + suffix, {c.experts, c.latentWidth, c.expertWidth}, downName,
                     nvfp4, {}),
        kNone);
    // 15, 16: each expert's own norm, then the weighted sum.
    bool rounded = choice("combine") == "bf16";
    y = moe::ExpertNormOp::create(
        builder, at("mlp.experts.post_norm"),
        rounded ? b.bf16(pairs, c.latentWidth) : b.f32(pairs, c.latentWidth), y, /*sums=*/Value(),
        moe::NormKind::RmsInputScaled, c.postNormEps,
        b.weight("post_expert_norm", {c.latentWidth},
                 std::string(kLayer) + "mlp.experts.post_expert_norm.weight"),
        moe::Gain::OnePlus, /*width=*/IntegerAttr());
    Value m = moe::CombineOp::create(builder, at("mlp.combine"), b.bf16(b.rows, c.latentWidth),
                                     top.getWeights(), y, rounded);
    // 17, 18
    Value f = linear(m, "unpooler", c.hidden, "mlp.post_expert_proj.weight");
    f = norm(f, moe::NormKind::RmsInputScaled, c.postNormEps, "post_feedforward_norm",
             "post_feedforward_layernorm.weight");
    return residual(stream, f, "feedforward_gate", "post_feedforward_residual_gate.gate");
  }

private:
  llvm::StringRef choice(const char *name) { return c.choices.at(name); }
  Location at(llvm::StringRef where) { return b.loc(("layer." + where).str()); }

  llvm::StringRef matrix(llvm::StringRef symbol, llvm::ArrayRef<int64_t> shape, const char *name) {
    return b.weight(symbol, shape, std::string(kLayer) + name).getValue();
  }

  llvm::StringRef expertMatrix(const std::string &symbol, llvm::ArrayRef<int64_t> shape,
                               const char *name, bool nvfp4, moe::PartAttr part) {
    Type format = nvfp4 ? Type(moe::BlockFormatType::getNVFP4(builder.getContext())) : Type();
    return b.weight(symbol, shape, std::string(kLayer) + name, format, part).getValue();
  }

  Value linear(Value x, llvm::StringRef symbol, int64_t out, const char *name) {
    int64_t in = cast<RankedTensorType>(x.getType()).getDimSize(1);
    return moe::LinearOp::create(builder, at(name), b.bf16(b.rows, out), x,
                                 matrix(symbol, {out, in}, name), kNone);
  }

  /// A norm over whole rows; gains are stored around zero.
  Value norm(Value x, moe::NormKind kind, double eps, llvm::StringRef symbol, const char *name) {
    int64_t width = cast<RankedTensorType>(x.getType()).getDimSize(1);
    bool weighted = kind != moe::NormKind::RmsWeightless;
    FlatSymbolRefAttr gain =
        weighted ? b.weight(symbol, {width}, std::string(kLayer) + name) : kNone;
    return moe::NormOp::create(builder, at(name), b.bf16(b.rows, width), x, kind, eps, gain, kNone,
                               moe::NormOver::Row, /*head_dim=*/IntegerAttr(),
                               weighted ? moe::Gain::OnePlus : moe::Gain::Absolute);
  }

  Value residual(Value stream, Value branch, llvm::StringRef symbol, const char *name) {
    auto gate = b.weight(symbol, {c.hidden}, std::string(kLayer) + name);
    return moe::ResidualOp::create(builder, at(name), stream.getType(), stream, ValueRange(branch),
                                   moe::ResidualKind::Gated, /*scale=*/FloatAttr(), gate,
                                   builder.getF64FloatAttr(c.residualTemperature),
                                   builder.getF64FloatAttr(1e-3));
  }

  moe::TopKOp route(Value x) {
    Type f32 = builder.getF32Type();
    auto precision = moe::symbolizeRouterPrecision(choice("router-precision"));
    auto router =
        b.weight("router", {c.experts, c.hidden}, std::string(kLayer) + "mlp.gate.weight", f32);
    auto bias = b.weight("router_bias", {c.experts},
                         std::string(kLayer) + "mlp.gate.e_score_correction_bias", f32);
    Value logits =
        moe::RouterOp::create(builder, at("mlp.router"), b.f32(b.rows, c.experts), x, router, kNone,
                              builder.getF64FloatAttr(c.outputMultiplier),
                              moe::RouterPrecisionAttr::get(builder.getContext(), *precision));
    Type ids = RankedTensorType::get({b.rows, c.topK}, builder.getI32Type());
    return moe::TopKOp::create(builder, at("mlp.top_k"), ids, b.f32(b.rows, c.topK), logits,
                               moe::Score::Sigmoid, c.topK, moe::ScoreOver::All, c.renormalize,
                               /*renormalize_eps=*/1e-15, c.routedScale, bias,
                               /*groups=*/IntegerAttr(), /*top_groups=*/IntegerAttr());
  }

  /// Section 7.3: `x` in NVFP4, with the calibrated scale of the matrix it meets.
  Value quantized(Value x, Value ids, llvm::StringRef symbol, llvm::ArrayRef<int64_t> shape,
                  const char *name) {
    auto scale =
        b.weight(symbol, shape, std::string(kLayer) + name + "_input_scale", builder.getF32Type());
    auto type = RankedTensorType::get(cast<RankedTensorType>(x.getType()).getShape(),
                                      moe::BlockFormatType::getNVFP4(builder.getContext()));
    return moe::QuantizeOp::create(builder, at(symbol), type, x, ids, scale);
  }

  StepBuilder &b;
  const ModelConfig &c;
  OpBuilder &builder;
};

/// The cache of a kind of layer: a ring where a window lets go of positions. A verify step of R
/// rows needs R - 1 beside the window (section 6).
moe::KVType cacheOf(StepBuilder &b, const LayerAttention &kind) {
  int64_t ring = kind.window ? kind.window + b.rows - 1 : 0;
  return b.cache(ring < b.positions ? ring : 0);
}

} // namespace

static void build(StepBuilder &b) {
  const ModelConfig &c = b.config;
  Layers layers(b);
  // 0a: rows of unit RMS; the stream is fp32 from here on.
  b.embed("model.language_model.embed_tokens.weight", [&](Value row) -> Value {
    row = moe::NormOp::create(b.builder, b.loc("embed_norm"), row.getType(), row,
                              moe::NormKind::RmsWeightless, c.normEps, kNone, kNone,
                              moe::NormOver::Row, IntegerAttr());
    return moe::CastOp::create(b.builder, b.loc("embed_norm"), b.streamType(), row);
  });

  // A function per kind: window or not, its rotation, the experts' format.
  std::map<std::tuple<int64_t, double, bool>, std::string> kinds;
  std::vector<std::string> step;
  for (size_t l = 0; l < size_t(c.layers); ++l) {
    const LayerAttention &kind = c.attention[l];
    bool nvfp4 = !c.nvfp4Experts.empty() && c.nvfp4Experts[l];
    std::string &name = kinds[{kind.window, kind.ropeTheta, nvfp4}];
    if (name.empty()) {
      std::string base = std::string(kind.window ? "sliding" : "full") + (nvfp4 ? "_nvfp4" : "");
      name = base;
      // Kinds that only differ in their rotation.
      for (int n = 2; llvm::is_contained(step, name); ++n)
        name = base + "_" + std::to_string(n);
      b.layer(name, cacheOf(b, kind), [&](Value stream, Value kv) {
        std::tie(stream, kv) = layers.attention(stream, kv, kind);
        return std::pair(layers.experts(stream, nvfp4), kv);
      });
    }
    step.push_back(name);
  }

  auto gain = b.weight("final_norm", {c.hidden}, "model.language_model.norm.weight");
  auto head = b.weight("lm_head", {c.vocab, c.hidden}, "lm_head.weight");
  // 20, 21
  b.head([&](Value stream) -> Value {
    Value x = moe::CastOp::create(b.builder, b.loc("norm"), b.bf16(b.rows, c.hidden), stream);
    x = b.rmsNorm(x, gain, "norm");
    return moe::LmHeadOp::create(
        b.builder, b.loc("lm_head"), b.f32(b.rows, c.vocab), x, head, kNone,
        b.builder.getF64FloatAttr(c.outputMultiplier), b.builder.getF64FloatAttr(c.logitSoftcap),
        c.validVocab ? b.builder.getI64IntegerAttr(c.validVocab) : IntegerAttr());
  });
  b.step(step);
}

const Family kMuseSpark = {"muse_spark", read, build, kChoices, kModules};

} // namespace megalith::models
