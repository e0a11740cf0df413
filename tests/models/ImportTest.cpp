// Good configs: the values of real models appear in the IR, and the IR is that of the spec.

#include "models/Import.h"
#include "ir/moe/Moe.h"
#include "tests/models/Configs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::models;
using namespace megalith::models::test;

namespace {

/// An imported module with the context that it lives in.
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
    return module->lookupSymbol<mlir::func::FuncOp>(name);
  }

  /// The only operation of its kind in @layer.
  template <typename OpT> OpT only() {
    auto ops = function("layer").getOps<OpT>();
    REQUIRE(llvm::hasSingleElement(ops));
    return *ops.begin();
  }

  moe::WeightOp weight(llvm::StringRef name) {
    auto op = module->lookupSymbol<moe::WeightOp>(name);
    INFO("weight " << name.str());
    REQUIRE(op);
    return op;
  }

  std::string print() {
    std::string text;
    llvm::raw_string_ostream os(text);
    module->print(os);
    return text;
  }
};

using Shape = std::vector<int64_t>;

void checkWeight(Imported &m, llvm::StringRef name, const Shape &shape, const char *checkpoint) {
  moe::WeightOp weight = m.weight(name);
  CHECK(weight.getShape().vec() == shape);
  CHECK(weight.getFormat().isBF16());
  CHECK(weight.getCheckpoint().str() == checkpoint);
}

Shape shapeOf(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType()).getShape().vec();
}

std::vector<std::string> layerOps(Imported &m) {
  std::vector<std::string> names;
  for (mlir::Operation &op : m.function("layer").front().without_terminator())
    names.push_back(op.getName().stripDialect().str());
  return names;
}

} // namespace

TEST_CASE("Qwen3-30B-A3B: weights") {
  Imported m(configText("qwen3-30b-a3b"));
  checkWeight(m, "embed_tokens", {151936, 2048}, "model.embed_tokens.weight");
  checkWeight(m, "input_norm", {2048}, "model.layers.{layer}.input_layernorm.weight");
  checkWeight(m, "q_proj", {4096, 2048}, "model.layers.{layer}.self_attn.q_proj.weight");
  checkWeight(m, "k_proj", {512, 2048}, "model.layers.{layer}.self_attn.k_proj.weight");
  checkWeight(m, "v_proj", {512, 2048}, "model.layers.{layer}.self_attn.v_proj.weight");
  checkWeight(m, "q_norm", {128}, "model.layers.{layer}.self_attn.q_norm.weight");
  checkWeight(m, "k_norm", {128}, "model.layers.{layer}.self_attn.k_norm.weight");
  checkWeight(m, "o_proj", {2048, 4096}, "model.layers.{layer}.self_attn.o_proj.weight");
  checkWeight(m, "post_attention_norm", {2048},
              "model.layers.{layer}.post_attention_layernorm.weight");
  checkWeight(m, "router", {128, 2048}, "model.layers.{layer}.mlp.gate.weight");
  checkWeight(m, "experts_gate", {128, 768, 2048},
              "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight");
  checkWeight(m, "experts_up", {128, 768, 2048},
              "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight");
  checkWeight(m, "experts_down", {128, 2048, 768},
              "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight");
  checkWeight(m, "final_norm", {2048}, "model.norm.weight");
  checkWeight(m, "lm_head", {151936, 2048}, "lm_head.weight");
  CHECK(m.weight("experts_up").getTensorName(47, 127) ==
        "model.layers.47.mlp.experts.127.up_proj.weight");
}

TEST_CASE("Qwen3-30B-A3B: the number of parameters is the model's") {
  // spec/models.md section 3: 30.53 billion.
  Imported m(configText("qwen3-30b-a3b"));
  int64_t total = 0;
  for (moe::WeightOp weight : m.module->getOps<moe::WeightOp>()) {
    int64_t elements = 1;
    for (int64_t n : weight.getShape())
      elements *= n;
    total += elements * (weight.isPerLayer() ? 48 : 1);
  }
  CHECK(total == 30532122624);
}

TEST_CASE("Qwen3-30B-A3B: the layer") {
  Imported m(configText("qwen3-30b-a3b"));
  CHECK(layerOps(m) == std::vector<std::string>{"norm", "qkv_proj", "qk_norm", "rope", "kv_append",
                                                "attention", "linear", "residual", "norm", "router",
                                                "top_k", "expert_gate_up", "glu", "expert_down",
                                                "combine", "residual"});
  for (auto norm : m.function("layer").getOps<moe::NormOp>()) {
    CHECK(norm.getEps() == 1e-6);
    CHECK(norm.getKind() == moe::NormKind::Rms);
  }
  auto qkv = m.only<moe::QkvProjOp>();
  CHECK(qkv.getHeads() == 32);
  CHECK(qkv.getKvHeads() == 4);
  CHECK(qkv.getHeadDim() == 128);
  auto qkNorm = m.only<moe::QkNormOp>();
  CHECK(qkNorm.getOver() == moe::NormOver::Head);
  CHECK(qkNorm.getEps() == 1e-6);
  CHECK(qkNorm.getQWeight() == llvm::StringRef("q_norm"));
  auto rope = m.only<moe::RopeOp>();
  CHECK(rope.getTheta() == 1e6);
  CHECK(rope.getRotaryDims() == 128);
  CHECK(rope.getPairing() == moe::RopePairing::HalfSplit);
  auto attention = m.only<moe::AttentionOp>();
  CHECK(attention.getMask() == moe::AttentionMask::Full);
  CHECK(attention.getScale() == Approx(0.08838834764831845).epsilon(1e-15));
  // The rows of this step take part: attention reads the cache after the append.
  CHECK(attention.getKv() == m.only<moe::KvAppendOp>().getResult());
  CHECK(m.only<moe::KvAppendOp>().getK() == rope.getKOut());
  auto topK = m.only<moe::TopKOp>();
  CHECK(topK.getK() == 8);
  CHECK(topK.getScore() == moe::Score::Softmax);
  CHECK(topK.getOver() == moe::ScoreOver::All);
  CHECK(topK.getRenormalize());
  auto gateUp = m.only<moe::ExpertGateUpOp>();
  CHECK(shapeOf(gateUp.getGate()) == Shape{8, 768});
  CHECK(gateUp.getGateWeight() == "experts_gate");
  CHECK(gateUp.getUpWeight() == "experts_up");
  // Router and experts read the same normed row; the residual joins the un-normed stream.
  CHECK(m.only<moe::RouterOp>().getInput() == gateUp.getInput());
}

TEST_CASE("Qwen3-30B-A3B: step, cache and ends") {
  Imported m(configText("qwen3-30b-a3b"));
  auto step = m.module->lookupSymbol<moe::StepOp>("decode");
  REQUIRE(step);
  CHECK(step.getNumLayers() == 48);
  CHECK(step.getLayer(47).getValue() == "layer");
  auto kv = llvm::cast<moe::KVType>(m.function("layer").getArgumentTypes()[1]);
  CHECK(kv.getHeads() == 4);
  CHECK(kv.getHeadDim() == 128);
  CHECK(kv.getElement().isBF16());
  CHECK(kv.getPositions() == 40960);
  CHECK(kv.getWindow() == 0);
  auto logits = llvm::cast<mlir::RankedTensorType>(m.function("head").getResultTypes()[0]);
  CHECK(logits.getShape().vec() == Shape{1, 151936});
  CHECK(logits.getElementType().isF32());
}

TEST_CASE("Mixtral-8x7B: what differs from Qwen3") {
  Imported m(configText("mixtral-8x7b"));
  checkWeight(m, "q_proj", {4096, 4096}, "model.layers.{layer}.self_attn.q_proj.weight");
  checkWeight(m, "router", {8, 4096}, "model.layers.{layer}.block_sparse_moe.gate.weight");
  checkWeight(m, "experts_gate", {8, 14336, 4096},
              "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight");
  checkWeight(m, "experts_up", {8, 14336, 4096},
              "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight");
  checkWeight(m, "experts_down", {8, 4096, 14336},
              "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight");
  CHECK(m.function("layer").getOps<moe::QkNormOp>().empty());
  CHECK(m.only<moe::QkvProjOp>().getHeadDim() == 128); // hidden / heads: the field is absent
  CHECK(m.only<moe::RopeOp>().getTheta() == 1e6);
  auto topK = m.only<moe::TopKOp>();
  CHECK(topK.getK() == 2);
  CHECK(topK.getOver() == moe::ScoreOver::Selected);
  CHECK_FALSE(topK.getRenormalize());
  for (auto norm : m.function("layer").getOps<moe::NormOp>())
    CHECK(norm.getEps() == 1e-5);
  CHECK(m.module->lookupSymbol<moe::StepOp>("decode").getNumLayers() == 32);
}

TEST_CASE("rows and context are options") {
  Imported m(configText("qwen3-moe-small.test"), {/*rows=*/4, /*maxContext=*/1024});
  CHECK(shapeOf(m.function("layer").getArgument(0)) == Shape{4, 256});
  CHECK(shapeOf(m.function("embed").getArgument(0)) == Shape{4});
  CHECK(llvm::cast<moe::KVType>(m.function("layer").getArgumentTypes()[1]).getPositions() == 1024);
  CHECK(shapeOf(m.only<moe::QkvProjOp>().getQ()) == Shape{4, 512}); // wider than hidden
  CHECK(shapeOf(m.only<moe::ExpertDownOp>().getResult()) == Shape{16, 256});
}

TEST_CASE("what is imported verifies, prints, and parses to the same text") {
  for (const char *name : {"qwen3-30b-a3b", "mixtral-8x7b", "muse-spark-open.assembled",
                           "qwen3-moe-small.test", "mixtral-small.test", "muse-spark-mini.test"}) {
    INFO(name);
    Imported m(configText(name));
    CHECK(mlir::succeeded(mlir::verify(*m.module)));
    std::string text = m.print();
    auto again = mlir::parseSourceString<mlir::ModuleOp>(text, &m.context);
    REQUIRE(again);
    std::string textAgain;
    llvm::raw_string_ostream os(textAgain);
    again->print(os);
    CHECK(textAgain == text);
  }
}

TEST_CASE("absent fields take the defaults of the family's config class") {
  auto parse = [](const std::string &text) {
    auto config = parseConfig(text, "test.json");
    if (!config)
      FAIL(llvm::toString(config.takeError()));
    return *config;
  };
  CHECK(parse(changed("qwen3-30b-a3b", "", "rms_norm_eps")).normEps == 1e-6);
  CHECK(parse(changed("mixtral-8x7b", "", "rms_norm_eps")).normEps == 1e-5);
  CHECK(parse(changed("qwen3-30b-a3b", "", "rope_theta")).ropeTheta == 1e4);
  CHECK(parse(changed("mixtral-8x7b", "", "rope_theta")).ropeTheta == 1e6);
  CHECK(parse(changed("qwen3-30b-a3b", "", "head_dim")).headDim == 64);
  CHECK(parse(changed("qwen3-30b-a3b", R"("head_dim": null)")).headDim == 64);
  CHECK_FALSE(parse(changed("qwen3-30b-a3b", "", "norm_topk_prob")).renormalize);
}

TEST_CASE("spellings that say the same are accepted") {
  auto accepted = [](const std::string &text) {
    auto config = parseConfig(text, "test.json");
    INFO((config ? "" : llvm::toString(config.takeError())));
    CHECK(bool(config));
  };
  accepted(changed("qwen3-30b-a3b", R"("_provenance": {"any": ["thing"]})"));
  accepted(changed("qwen3-30b-a3b", R"("dtype": "bfloat16")", "torch_dtype"));
  accepted(changed("qwen3-30b-a3b", R"("mlp_only_layers": null)"));
  // Without use_sliding_window the window itself says nothing.
  accepted(changed("qwen3-30b-a3b", R"("sliding_window": 4096)"));
  accepted(changed("qwen3-30b-a3b",
                   R"("rope_parameters": {"rope_type": "default", "rope_theta": 5e6})",
                   "rope_theta"));
  // An escaped key is the same key.
  accepted(R"({"_comment": "\"quoted\" {braces} [and] \\", )" +
           configText("mixtral-8x7b").substr(1));
}

TEST_CASE("rope_parameters give theta") {
  auto config = parseConfig(
      changed("qwen3-30b-a3b", R"("rope_parameters": {"rope_theta": 5e6})", "rope_theta"),
      "t.json");
  if (!config)
    FAIL(llvm::toString(config.takeError()));
  CHECK(config->ropeTheta == 5e6);
}

TEST_CASE("the supported model types are listed") {
  CHECK(supportedModelTypes() ==
        std::vector<llvm::StringRef>{"mixtral", "muse_spark", "qwen3_moe"});
}
