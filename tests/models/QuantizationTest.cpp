// Which weights of a checkpoint are NVFP4, in the families whose layers are otherwise all alike.

#include "ir/moe/Moe.h"
#include "models/Import.h"
#include "tests/models/Configs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"

#include <catch2/catch.hpp>

#include <set>

using namespace megalith;
using namespace megalith::models;
using namespace megalith::models::test;

namespace {

constexpr const char *kQwen = "qwen3-30b-a3b", *kSmall = "qwen3-moe-small.test",
                     *kMixtral = "mixtral-small.test";

struct Imported {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;

  Imported(const char *config, Quantization quantization) {
    auto result = importConfig(context, configText(config), "config.json",
                               {.rows = 2, .quantization = std::move(quantization)});
    if (!result)
      FAIL(llvm::toString(result.takeError()));
    module = std::move(*result);
  }

  /// Checkpoint names of the NVFP4 weights that a layer's function reads.
  std::set<std::string> nvfp4(llvm::StringRef layer) {
    std::set<std::string> names;
    module->lookupSymbol<mlir::func::FuncOp>(layer)->walk([&](mlir::Operation *op) {
      op->getAttrDictionary().walk([&](mlir::FlatSymbolRefAttr ref) {
        auto weight = module->lookupSymbol<moe::WeightOp>(ref.getValue());
        if (weight && weight.getFormat() == moe::BlockFormatType::getNVFP4(&context))
          names.insert(weight.getCheckpoint().str());
      });
    });
    return names;
  }

  /// The layers' functions in order.
  std::vector<std::string> kinds() {
    std::vector<std::string> names;
    for (auto step : module->getOps<moe::StepOp>())
      for (int64_t l = 0; l < step.getNumLayers(); ++l)
        names.push_back(step.getLayer(l).getValue().str());
    return names;
  }
};

Quantization file(const std::string &text) {
  return {.text = text, .source = "hf_quant_config.json"};
}

/// A file with these patterns, each in quotes.
Quantization excluding(const std::string &patterns) {
  return file(R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16,
                 "kv_cache_quant_algo": "FP8", "exclude_modules": [)" +
              patterns + "]}}");
}

const std::string kLayer = "model.layers.{layer}.";
const std::string kExperts = kLayer + "mlp.experts.{expert}.";
const std::set<std::string> kQwenExperts = {
    kExperts + "gate_proj.weight", kExperts + "up_proj.weight", kExperts + "down_proj.weight"};

std::string refusal(const char *config, const Quantization &quantization) {
  auto result = parseConfig(configText(config), "config.json", {.quantization = quantization});
  REQUIRE_FALSE(bool(result));
  return llvm::toString(result.takeError());
}

} // namespace

TEST_CASE("the published file of a Qwen3: all linears but the routers and the head") {
  Imported m(kQwen, file(configText("qwen3-30b-a3b-nvfp4.hf_quant_config")));
  CHECK(m.kinds() == std::vector<std::string>(48, "layer_nvfp4"));
  std::set<std::string> all = kQwenExperts;
  for (const char *name : {"q_proj", "k_proj", "v_proj", "o_proj"})
    all.insert(kLayer + "self_attn." + name + ".weight");
  CHECK(m.nvfp4("layer_nvfp4") == all);
  CHECK(m.module->lookupSymbol<moe::WeightOp>("router").getFormat().isBF16());
  CHECK(m.module->lookupSymbol<moe::WeightOp>("lm_head").getFormat().isBF16());
}

TEST_CASE("experts only") {
  CHECK(Imported(kSmall, {.experts = true}).nvfp4("layer_nvfp4_experts") == kQwenExperts);
  Imported mixtral(kMixtral, {.experts = true});
  const std::string experts = kLayer + "block_sparse_moe.experts.{expert}.";
  CHECK(mixtral.nvfp4("layer_nvfp4_experts") ==
        std::set<std::string>{experts + "w1.weight", experts + "w2.weight", experts + "w3.weight"});
}

TEST_CASE("layers that differ have functions of their own and share the rest") {
  Imported m(kSmall, excluding(R"("lm_head", "*.mlp.gate", "*self_attn*", "model.layers.1.mlp*")"));
  std::vector<std::string> expected(m.kinds().size(), "layer_nvfp4_experts");
  expected[1] = "layer";
  CHECK(m.kinds() == expected);
  CHECK(m.nvfp4("layer").empty());
  CHECK(m.nvfp4("layer_nvfp4_experts") == kQwenExperts);
}

TEST_CASE("quantised activations: one scale for gate and up, one an expert for down") {
  Imported m(kSmall, {.experts = true, .activations = true});
  std::vector<moe::QuantizeOp> points;
  m.module->walk([&](moe::QuantizeOp op) { points.push_back(op); });
  REQUIRE(points.size() == 2);
  auto scale = [&](moe::QuantizeOp op) {
    return m.module->lookupSymbol<moe::WeightOp>(*op.getGlobal()).getCheckpoint().str();
  };
  CHECK_FALSE(points[0].getIds());
  CHECK(scale(points[0]) == kExperts + "gate_proj.input_scale");
  CHECK(points[1].getIds());
  CHECK(scale(points[1]) == kExperts + "down_proj.input_scale");
}

TEST_CASE("what has no form is refused by name") {
  const std::string head = "hf_quant_config.json: $.quantization.exclude_modules: ";
  CHECK(refusal(kSmall, excluding(R"("lm_head")"))
            .starts_with(head + "expected a pattern for model.layers.0.mlp.gate but got none"));
  CHECK(refusal(kSmall, excluding(R"("*.mlp.gate")"))
            .starts_with(head + "expected a pattern for lm_head but got none"));
  CHECK(refusal(kSmall, excluding(R"("lm_head", "*.mlp.gate", "*.0.self_attn.k_proj")"))
            .starts_with(head + "expected patterns for all of layer 0's attention or for none but "
                                "got one for model.layers.0.self_attn.k_proj"));
}
