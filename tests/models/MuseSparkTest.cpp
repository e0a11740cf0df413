// Muse Spark Open: constants and steps of docs/spec/muse-spark-open.md appear in the IR, every
// choice changes what it names, and what is not built is refused by name.

#include "ir/moe/Moe.h"
#include "models/Import.h"
#include "tests/models/Configs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::models;
using namespace megalith::models::test;

namespace {

constexpr const char *kOpen = "muse-spark-open.assembled";
constexpr const char *kMini = "muse-spark-mini.test";

struct Imported {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;

  explicit Imported(const std::string &text, ImportOptions options = {}) {
    auto result = importConfig(context, text, "test.json", options);
    if (!result)
      FAIL(llvm::toString(result.takeError()));
    module = std::move(*result);
  }

  mlir::func::FuncOp function(llvm::StringRef name) {
    auto op = module->lookupSymbol<mlir::func::FuncOp>(name);
    INFO("function " << name.str());
    REQUIRE(op);
    return op;
  }
  template <typename OpT> std::vector<OpT> all(llvm::StringRef name) {
    std::vector<OpT> found;
    for (OpT op : function(name).getOps<OpT>())
      found.push_back(op);
    return found;
  }
  template <typename OpT> OpT only(llvm::StringRef name) {
    std::vector<OpT> found = all<OpT>(name);
    REQUIRE(found.size() == 1);
    return found.front();
  }
  moe::WeightOp weight(llvm::StringRef name) {
    auto op = module->lookupSymbol<moe::WeightOp>(name);
    INFO("weight " << name.str());
    REQUIRE(op);
    return op;
  }
  /// "sliding full sliding*3 ...": the kinds of the step, run by run.
  std::string kinds() {
    std::string text;
    auto step = module->lookupSymbol<moe::StepOp>("decode");
    for (int64_t l = 0; l < step.getNumLayers();) {
      int64_t end = l;
      while (end < step.getNumLayers() && step.getLayer(end) == step.getLayer(l))
        ++end;
      text += (l ? " " : "") + step.getLayer(l).getValue().str();
      if (end - l > 1)
        text += "*" + std::to_string(end - l);
      l = end;
    }
    return text;
  }
};

/// A config with fields of its text_config set and one removed.
std::string changedText(const std::string &name, const std::string &fields,
                        const std::string &removed = "") {
  auto config = llvm::cantFail(llvm::json::parse(configText(name)));
  auto changes = llvm::cantFail(llvm::json::parse("{" + fields + "}"));
  llvm::json::Object &text = *config.getAsObject()->getObject("text_config");
  for (auto &[key, value] : *changes.getAsObject())
    text[key] = value;
  text.erase(removed);
  std::string result;
  llvm::raw_string_ostream(result) << config;
  return result;
}

ImportOptions choose(const char *name, const char *value) {
  ImportOptions options;
  options.choices = {{name, value}};
  return options;
}

ImportOptions
quantized(const std::string &text = configText("muse-spark-open-nvfp4.quant.assembled")) {
  ImportOptions options;
  options.quantization = {.text = text, .source = "hf_quant_config.json"};
  return options;
}

std::string refusal(const std::string &text, const ImportOptions &options = {}) {
  auto config = parseConfig(text, "config.json", options);
  REQUIRE_FALSE(bool(config));
  std::string message = llvm::toString(config.takeError());
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

mlir::Type elementOf(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType()).getElementType();
}

} // namespace

TEST_CASE("Muse Spark: the steps of a layer") {
  Imported m(configText(kOpen));
  std::vector<std::string> names;
  for (mlir::Operation &op : m.function("sliding").front().without_terminator())
    names.push_back(op.getName().stripDialect().str());
  CHECK(names == std::vector<std::string>{
                     "norm",        "qkv_proj",  "linear",         "qk_norm",     "rope",
                     "kv_append",   "attention", "norm",           "output_gate", "linear",
                     "norm",        "residual",  "norm",           "router",      "top_k",
                     "linear",      "norm",      "expert_gate_up", "glu",         "expert_down",
                     "expert_norm", "combine",   "linear",         "norm",        "residual"});
}

TEST_CASE("Muse Spark: norms, three kinds and two eps") {
  Imported m(configText(kOpen));
  struct Expected {
    moe::NormKind kind;
    double eps;
    moe::Gain gain;
    bool overHead, roundsResult;
  };
  // In order: input, attention output, post-attention, pre-FFN, pre-expert, post-FFN.
  const Expected expected[] = {
      {moe::NormKind::Rms, 1e-5, moe::Gain::OnePlus, false, true},
      {moe::NormKind::RmsWeightless, 1e-5, moe::Gain::Absolute, true, false},
      {moe::NormKind::RmsWeightless, 1e-8, moe::Gain::Absolute, false, true},
      {moe::NormKind::Rms, 1e-5, moe::Gain::OnePlus, false, true},
      {moe::NormKind::Rms, 1e-5, moe::Gain::OnePlus, false, true},
      {moe::NormKind::RmsInputScaled, 1e-8, moe::Gain::OnePlus, false, true},
  };
  std::vector<moe::NormOp> norms = m.all<moe::NormOp>("sliding");
  REQUIRE(norms.size() == std::size(expected));
  for (size_t i = 0; i < norms.size(); ++i) {
    INFO(i);
    CHECK(norms[i].getKind() == expected[i].kind);
    CHECK(norms[i].getEps() == expected[i].eps);
    CHECK(norms[i].getGain() == expected[i].gain);
    CHECK((norms[i].getOver() == moe::NormOver::Head) == expected[i].overHead);
    CHECK(elementOf(norms[i].getResult()).isBF16() == expected[i].roundsResult);
  }
  auto expertNorm = m.only<moe::ExpertNormOp>("sliding");
  CHECK(expertNorm.getKind() == moe::NormKind::RmsInputScaled);
  CHECK(expertNorm.getEps() == 1e-8);
  CHECK(expertNorm.getGain() == moe::Gain::OnePlus);
  CHECK(elementOf(expertNorm.getResult()).isF32());
  // Before the experts are weighted.
  CHECK(m.only<moe::CombineOp>("sliding").getInput() == expertNorm.getResult());
  auto qkNorm = m.only<moe::QkNormOp>("sliding");
  CHECK(qkNorm.getKind() == moe::NormKind::RmsWeightless);
  CHECK(qkNorm.getEps() == 1e-5);
  CHECK(qkNorm.getQScale() == 1);
  auto embedNorm = m.only<moe::NormOp>("embed");
  CHECK(embedNorm.getKind() == moe::NormKind::RmsWeightless);
  CHECK(embedNorm.getEps() == 1e-5);
  auto finalNorm = m.only<moe::NormOp>("head");
  CHECK(finalNorm.getGain() == moe::Gain::Absolute);
  CHECK(elementOf(finalNorm.getInput()).isBF16()); // the stream is rounded first
}

TEST_CASE("Muse Spark: attention of the two kinds of layer") {
  Imported m(configText(kOpen), {.rows = 4});
  auto sliding = m.only<moe::AttentionOp>("sliding"), full = m.only<moe::AttentionOp>("full");
  CHECK(sliding.getMask() == moe::AttentionMask::Window);
  CHECK(*sliding.getExtent() == 2048);
  CHECK(full.getMask() == moe::AttentionMask::Full);
  CHECK(m.all<moe::RopeOp>("full").empty());
  auto rope = m.only<moe::RopeOp>("sliding");
  CHECK(rope.getTheta() == 5e5);
  CHECK(rope.getRotaryDims() == 64);
  CHECK(rope.getPairing() == moe::RopePairing::HalfSplit);
  for (moe::AttentionOp attention : {sliding, full}) {
    CHECK(attention.getScale() == Approx(0.6841258107984375).epsilon(1e-15));
    CHECK(attention.getHeads() == 128);
    CHECK(elementOf(attention.getResult()).isF32());
  }
  // The ring holds the window of the first of four rows and all four.
  CHECK(sliding.getKv().getType().getWindow() == 2051);
  CHECK(sliding.getKv().getType().getHeads() == 16);
  CHECK(full.getKv().getType().getWindow() == 0);
  CHECK(full.getKv().getType().getPositions() == 1048576);
  // The gate is a fourth projection of the row that q, k, v come from.
  auto gate = m.only<moe::OutputGateOp>("full").getGate().getDefiningOp<moe::LinearOp>();
  REQUIRE(gate);
  CHECK(gate.getInput() == m.only<moe::QkvProjOp>("full").getInput());
  CHECK(gate.getWeight() == "gate_proj");
}

TEST_CASE("Muse Spark: a window that no sequence outgrows needs no ring") {
  Imported m(configText(kOpen), {.rows = 1, .maxContext = 2048});
  CHECK(m.only<moe::AttentionOp>("sliding").getKv().getType().getWindow() == 0);
}

TEST_CASE("Muse Spark: the residual gate") {
  Imported m(configText(kOpen));
  std::vector<moe::ResidualOp> residuals = m.all<moe::ResidualOp>("full");
  REQUIRE(residuals.size() == 2);
  for (moe::ResidualOp residual : residuals) {
    CHECK(residual.getKind() == moe::ResidualKind::Gated);
    CHECK(*residual.getTemperature() == 0.3);
    CHECK(*residual.getFloor() == 1e-3);
    CHECK(elementOf(residual.getResult()).isF32());
    CHECK(elementOf(residual.getBranches()[0]).isBF16());
  }
  CHECK(*residuals[0].getGate() == "attention_gate");
  CHECK(*residuals[1].getGate() == "feedforward_gate");
}

TEST_CASE("Muse Spark: routing and experts") {
  Imported m(configText(kOpen));
  auto router = m.only<moe::RouterOp>("sliding");
  CHECK(router.getMultiplier() == 0.17677669529663687);
  CHECK(router.getPrecision() == moe::RouterPrecision::F32);
  CHECK(m.weight("router").getFormat().isF32());
  auto topK = m.only<moe::TopKOp>("sliding");
  CHECK(topK.getScore() == moe::Score::Sigmoid);
  CHECK(topK.getK() == 8);
  CHECK(topK.getRenormalize());
  CHECK(topK.getRenormalizeEps() == 1e-15);
  CHECK(topK.getScale() == 1);
  CHECK(*topK.getSelectionBias() == "router_bias");
  // The row before the pooler feeds router and pooler.
  auto pooler = m.all<moe::LinearOp>("sliding")[2];
  CHECK(pooler.getWeight() == "pooler");
  CHECK(pooler.getInput() == router.getInput());
  auto gateUp = m.only<moe::ExpertGateUpOp>("sliding");
  CHECK(gateUp.getGate().getType().getShape().vec() == std::vector<int64_t>{8, 4096});
}

TEST_CASE("Muse Spark: the head") {
  Imported m(configText(kOpen));
  auto head = m.only<moe::LmHeadOp>("head");
  CHECK(head.getMultiplier() == 0.17677669529663687);
  CHECK(*head.getSoftcap() == 20);
  CHECK(*head.getValidVocab() == 201818);
}

TEST_CASE("Muse Spark: checkpoint tensors") {
  Imported m(configText(kOpen));
  const std::string layer = "model.language_model.layers.{layer}.";
  auto check = [&](const char *symbol, std::vector<int64_t> shape, const std::string &name) {
    CHECK(m.weight(symbol).getCheckpointShape() == llvm::ArrayRef<int64_t>(shape));
    CHECK(m.weight(symbol).getCheckpoint().str() == name);
  };
  check("embed_tokens", {202048, 8192}, "model.language_model.embed_tokens.weight");
  check("q_proj", {8192, 8192}, layer + "self_attn.q_proj.weight");
  check("k_proj", {1024, 8192}, layer + "self_attn.k_proj.weight");
  check("gate_proj", {8192, 8192}, layer + "self_attn.gate_proj.weight");
  check("attention_gate", {8192}, layer + "post_attention_residual_gate.gate");
  check("router", {256, 8192}, layer + "mlp.gate.weight");
  check("router_bias", {256}, layer + "mlp.gate.e_score_correction_bias");
  check("pooler", {4096, 8192}, layer + "mlp.pre_expert_proj.weight");
  check("experts_gate", {256, 8192, 4096}, layer + "mlp.experts.gate_up_proj");
  check("experts_up", {256, 8192, 4096}, layer + "mlp.experts.gate_up_proj");
  check("experts_down", {256, 4096, 4096}, layer + "mlp.experts.down_proj");
  check("post_expert_norm", {4096}, layer + "mlp.experts.post_expert_norm.weight");
  check("unpooler", {8192, 4096}, layer + "mlp.post_expert_proj.weight");
  check("final_norm", {8192}, "model.language_model.norm.weight");
  CHECK(m.weight("experts_gate").getPartAttr().getIndex() == 0);
  CHECK(m.weight("experts_up").getPartAttr().getIndex() == 1);
}

TEST_CASE("Muse Spark: the number of parameters is the model's") {
  // Section 1: 819.86 billion in bf16 and exactly 130,039,296 in fp32.
  Imported m(configText(kOpen));
  int64_t bf16 = 0, f32 = 0;
  for (moe::WeightOp weight : m.module->getOps<moe::WeightOp>()) {
    int64_t elements = weight.isPerLayer() ? 62 : 1;
    for (int64_t n : weight.getShape())
      elements *= n;
    (weight.getFormat().isF32() ? f32 : bf16) += elements;
  }
  CHECK(f32 == 130039296);
  CHECK(bf16 == 819860512768);
}

TEST_CASE("Muse Spark: kinds of layer") {
  std::string open = "sliding";
  for (int i = 0; i < 15; ++i)
    open += " full sliding*3";
  CHECK(Imported(configText(kOpen)).kinds() == open + " full");
  CHECK(Imported(configText(kMini)).kinds() == "sliding full sliding*3 full");
}

TEST_CASE("Muse Spark: NVFP4 experts on all layers but the first and the last") {
  Imported m(configText(kOpen), quantized());
  std::string kinds = "sliding full_nvfp4 sliding_nvfp4*3";
  for (int i = 0; i < 14; ++i)
    kinds += " full_nvfp4 sliding_nvfp4*3";
  CHECK(m.kinds() == kinds + " full");
  auto plain = m.only<moe::ExpertDownOp>("full"), coded = m.only<moe::ExpertDownOp>("full_nvfp4");
  CHECK(m.weight(plain.getWeight()).getFormat().isBF16());
  CHECK(m.weight(coded.getWeight()).getFormat() == moe::BlockFormatType::getNVFP4(&m.context));
  CHECK(m.weight(plain.getWeight()).getCheckpoint() == m.weight(coded.getWeight()).getCheckpoint());
  // Everything else is shared.
  CHECK(m.weight("unpooler").getFormat().isBF16());
  CHECK(m.all<moe::QuantizeOp>("full_nvfp4").empty());
}

TEST_CASE("Muse Spark: layers excluded by name") {
  std::string text = R"({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4",
      "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*", "*.mlp.gate",
      "*pre_expert_proj", "*post_expert_proj", "model.language_model.layers.1.*"]}})";
  CHECK(Imported(configText(kMini), quantized(text)).kinds() ==
        "sliding_nvfp4 full sliding_nvfp4*3 full_nvfp4");
}

TEST_CASE("Muse Spark: quantised activations at two points") {
  ImportOptions options = quantized();
  options.quantization.activations = true;
  Imported m(configText(kOpen), options);
  CHECK(m.all<moe::QuantizeOp>("full").empty());
  std::vector<moe::QuantizeOp> points = m.all<moe::QuantizeOp>("full_nvfp4");
  REQUIRE(points.size() == 2);
  CHECK(m.only<moe::ExpertGateUpOp>("full_nvfp4").getInput() == points[0].getResult());
  CHECK(m.only<moe::ExpertDownOp>("full_nvfp4").getInput() == points[1].getResult());
  CHECK(points[1].getInput() == m.only<moe::GluOp>("full_nvfp4").getResult());
  CHECK(m.weight("gate_up_input_scale").getShape().vec() == std::vector<int64_t>{256, 2});
  CHECK(m.weight("down_input_scale").getShape().vec() == std::vector<int64_t>{256});
}

TEST_CASE("Muse Spark: every choice changes what it names") {
  auto with = [](const char *name, const char *value) {
    return std::make_unique<Imported>(configText(kMini), choose(name, value));
  };
  CHECK(with("rope-pairing", "adjacent")->only<moe::RopeOp>("sliding").getPairing() ==
        moe::RopePairing::Adjacent);
  auto query = with("score-scale", "query");
  CHECK(query->only<moe::QkNormOp>("full").getQScale() == 5.4730064863875);
  CHECK(query->only<moe::AttentionOp>("full").getScale() == 0.125);
  auto rounded = with("attention-output", "bf16");
  CHECK(elementOf(rounded->only<moe::AttentionOp>("full").getResult()).isBF16());
  CHECK(elementOf(rounded->only<moe::OutputGateOp>("full").getInput()).isBF16());
  CHECK(rounded->only<moe::OutputGateOp>("full").getRoundGate());
  auto sums = with("combine", "bf16");
  CHECK(sums->only<moe::CombineOp>("full").getRoundEach());
  CHECK(elementOf(sums->only<moe::ExpertNormOp>("full").getResult()).isBF16());
  CHECK(with("router-precision", "tf32")->only<moe::RouterOp>("full").getPrecision() ==
        moe::RouterPrecision::TF32);
  CHECK(with("router-precision", "bf16x2")->only<moe::RouterOp>("full").getPrecision() ==
        moe::RouterPrecision::BF16x2);
  Imported free(configText(kOpen), choose("vocabulary-padding", "free"));
  CHECK_FALSE(free.only<moe::LmHeadOp>("head").getValidVocab());
  // The phase counts only where the config leaves the kinds open.
  std::string open = changedText(kMini, R"("layer_types": null)", "layer_rope_theta");
  CHECK(Imported(open).kinds() == "sliding full sliding*3 full");
  CHECK(Imported(open, choose("full-layer-phase", "3")).kinds() == "sliding*3 full sliding*2");
  CHECK(with("full-layer-phase", "3")->kinds() == "sliding full sliding*3 full");
}

TEST_CASE("Muse Spark: refused by name") {
  struct Case {
    const char *fields, *removed, *message;
  };
  const Case cases[] = {
      {R"("num_shared_experts": 1)", "",
       "$.text_config.num_shared_experts: expected 0 but got 1; a shared expert is not supported"},
      {R"("attention_bias": true)", "",
       "$.text_config.attention_bias: expected false but got true"},
      {R"("layer_types": ["full_attention"])", "",
       "$.text_config.layer_types: expected a list of 6 entries, one a layer but got 1; correct "
       "the list"},
      {R"("mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse", "sparse"])", "",
       "$.text_config.mlp_layer_types: expected entries among sparse but got \"dense\"; dense "
       "layers are not supported for this model type"},
      {R"("layer_rope_theta": [5e5, -1, 5e5, 5e5, 5e5, 0])", "",
       "$.text_config.layer_rope_theta: expected finite numbers of at least 0 but got -1"},
      {R"("layer_types": 4)", "",
       "$.text_config.layer_types: expected a list of 6 entries, one a layer but got 4"},
      {"", "sliding_window", "$.text_config.sliding_window: expected an integer"},
      {"", "moe_hidden_size", "$.text_config.moe_hidden_size: expected an integer"},
      {R"("residual_gate_temperature": 0)", "",
       "$.text_config.residual_gate_temperature: expected a finite number above 0 but got 0"},
      {R"("model_type": "llama")", "",
       "$.text_config.model_type: expected \"muse_spark_text\" but got \"llama\""},
      {R"("use_new_gate": true)", "",
       "$.text_config.use_new_gate: expected only fields known for muse_spark_text but got true"},
  };
  for (const Case &c : cases) {
    std::string message = refusal(changedText(kMini, c.fields, c.removed));
    INFO(message);
    CHECK(message.find(std::string("config.json: ") + c.message) == 0);
  }
  CHECK(refusal(changed(kMini, "", "text_config")) ==
        "config.json: $.text_config: expected an object but got nothing; add the field from the "
        "model's config.json");
  CHECK(refusal(configText(kMini), choose("rope", "adjacent")) ==
        "config.json: choice rope: expected one of rope-pairing, full-layer-phase, score-scale, "
        "attention-output, combine, router-precision, vocabulary-padding for muse_spark but got "
        "rope=adjacent; see models/README.md");
  CHECK(
      refusal(configText(kMini), choose("combine", "fp16")) ==
      "config.json: choice combine: expected one of f32, bf16 but got fp16; see models/README.md");
  CHECK(refusal(configText("mixtral-8x7b"), choose("combine", "f32")) ==
        "config.json: choice combine: expected no choices for mixtral but got combine=f32; see "
        "models/README.md");
}

TEST_CASE("Muse Spark: quantisation refused by name") {
  auto quant = [](const char *inside) {
    return quantized(std::string(R"({"quant_method": "modelopt", "quantization": {)") + inside +
                     "}}");
  };
  auto refused = [&](const ImportOptions &options, const char *message) {
    std::string got = refusal(configText(kMini), options);
    INFO(got);
    CHECK(got.find(message) != std::string::npos);
  };
  refused(quant(R"("quant_algo": "FP8")"),
          "hf_quant_config.json: $.quantization.quant_algo: expected \"NVFP4\" but got \"FP8\"");
  refused(quant(""), "$.quantization.quant_algo: expected \"NVFP4\" but got nothing");
  refused(quant(R"("quant_algo": "NVFP4", "group_size": 32)"),
          "$.quantization.group_size: expected 16 but got 32");
  refused(quant(R"("quant_algo": "NVFP4", "kv_cache_quant_algo": "INT4")"),
          "$.quantization.kv_cache_quant_algo: expected \"FP8\" but got \"INT4\"");
  refused(quant(R"("quant_algo": "NVFP4", "exclude_modules": ["lm_head"])"),
          "expected a pattern for model.language_model.layers.0.self_attn.q_proj but got none");
  refused(quant(R"("quant_algo": "NVFP4", "exclude_modules": "lm_head")"),
          "expected a list of strings");
  refused(quantized("{}"), "$.quantization: expected an object but got nothing");
  ImportOptions activations;
  activations.quantization.activations = true;
  refused(activations,
          "config.json: NVFP4 activations: expected experts with NVFP4 weights but got "
          "none; give the checkpoint's hf_quant_config.json");
}
