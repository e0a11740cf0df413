//===- PlanBuilderTest.cpp - What a plan says about kernels ---------------===//

#include "codegen/PlanBuilder.h"
#include "ir/moe/Moe.h"
#include "runtime/packing.h"
#include "tests/codegen/emit/Kernel.h"

using namespace megalith;
using namespace megalith::task;
using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

// Declarations of a two-layer model, without stages: 8 experts, 2 KV heads of 64.
constexpr const char *kModel = R"(
module attributes {megalith.launches = [@embed, @layer, @last]} {
  task.kernel @embed "embed" target "sm_90a" sms 4 rows 2 smem 1024 {
    task.buffer @embedding [100, 256] bf16 global immutable {slot = 0, checkpoint = "embed"}
    task.weights @w_qkv n 512 k 256 slot 1 rows ["q.{layer}", "k.{layer}", "v.{layer}"]
        {layer_offset = 1}
    task.exchange @qkv [2, 512] bf16 sentinel sets 3 slot 2 edge @qkv_words
    task.edge 0 @qkv_words words epilogue -> poller
  }
  task.kernel @layer "layer" target "sm_90a" sms 4 rows 2 smem 2048 {
    task.buffer @kv [1, 1] bf16 global pages {slot = 0}
    task.buffer @inv_freq [1, 32] f32 global immutable {slot = 7}
    task.buffer @g_attn [1, 256] bf16 global immutable
        {slot = 1, checkpoint = "norm.{layer}", layer_offset = 1}
    task.weights @w_qkv n 512 k 256 slot 2 rows ["q.{layer}", "k.{layer}", "v.{layer}"]
        {layer_offset = 1}
    task.weights @w_up n 128 k 256 slot 3 gate_up ["gate.{layer}.{expert}", "up.{layer}.{expert}"]
        {experts = 8}
    task.exchange @qkv [2, 512] bf16 sentinel sets 3 slot 4 edge @qkv_words
    task.exchange @partials [2, 66] f32 epoch sets 1 slot 5 edge @partials_words
    task.edge 0 @qkv_words words epilogue -> poller, epilogue
    task.edge 1 @partials_words words epilogue -> poller
    task.stage @attention attention reads [] writes []
        config {kv_heads = 2, head_dim = 64, max_positions = 4096, rope_theta = 1.0e+06 : f64,
                inv_freq = @inv_freq} {
    }
  }
  task.kernel @last "last" target "sm_90a" sms 4 rows 2 smem 2048 {
    task.buffer @out [2, 100] f32 global written {slot = 0}
    task.weights @w_head n 100 k 256 slot 1 rows ["head"]
  }
})";

class Model {
public:
  explicit Model(std::string text = kModel) {
    context.loadDialect<TaskDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    REQUIRE(module);
  }
  llvm::Expected<Plan> build() {
    return buildPlan(llvm::SmallVector<KernelOp>(module->getOps<KernelOp>()),
                     {{"embed"}, {"layer"}, {"last"}}, facts);
  }
  std::string error() {
    auto plan = build();
    return plan ? "" : llvm::toString(plan.takeError());
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  ModelFacts facts{.model = "small",
                   .layers = 2,
                   .tensors = {{"embed", {100, 256}},
                               {"q.{layer}", {256, 256}},
                               {"k.{layer}", {128, 256}},
                               {"v.{layer}", {128, 256}},
                               {"norm.{layer}", {256}},
                               {"gate.{layer}.{expert}", {64, 256}},
                               {"up.{layer}.{expert}", {64, 256}},
                               {"head", {100, 256}}}};
};

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

} // namespace

TEST_CASE("a plan lists kernels, buffers, weights and launches") {
  Model model;
  auto built = model.build();
  if (!built)
    FAIL(llvm::toString(built.takeError()));
  const Plan &plan = *built;
  CHECK(plan.target == "sm_90a");
  CHECK(plan.sms == 4);
  CHECK(plan.rows == 2);
  CHECK(plan.kvHeads == 2);
  CHECK(plan.headDim == 64);
  CHECK(plan.maxPositions == 4096);
  CHECK(plan.weightLayout == kWeightLayoutDigest);
  CHECK(plan.launches == std::vector<Launch>{{"embed", 0}, {"layer", 0}, {"last", 1}});

  // The embed launch stands before layer 0, so its next layer is the layer it is launched with.
  using Slots = std::vector<SlotBinding>;
  CHECK(plan.kernel("embed")->slots == Slots{{0, "embedding", SlotRole::Weights},
                                             {1, "w_qkv", SlotRole::Weights},
                                             {2, "qkv", SlotRole::Exchange}});
  CHECK(plan.kernel("layer")->slots == Slots{{0, "kv", SlotRole::Kv},
                                             {7, "inv_freq", SlotRole::Immutable},
                                             {1, "g_attn", SlotRole::Weights, 1},
                                             {2, "w_qkv", SlotRole::Weights, 1},
                                             {3, "w_up", SlotRole::Weights},
                                             {4, "qkv", SlotRole::Exchange},
                                             {5, "partials", SlotRole::Exchange}});
  CHECK(plan.kernel("layer")->edges ==
        std::vector<Edge>{{0, "qkv_words", "epilogue", "poller, epilogue", "words"},
                          {1, "partials_words", "epilogue", "poller", "words"}});
  CHECK(plan.kernel("layer")->smemBytes == 2048);

  const Buffer &qkv = *plan.buffer("qkv");
  CHECK(qkv.kind == BufferKind::Words);
  CHECK(qkv.sets == 3);
  CHECK(qkv.crossing);
  CHECK(qkv.bytes == 2 * 512 * 2);
  CHECK(plan.buffer("partials")->kind == BufferKind::Epoch);
  CHECK(plan.buffer("partials")->bytes == 2 * 22 * 16);
  CHECK(plan.buffer("kv")->perLayer);
  CHECK(plan.buffer("kv")->bytes == KvLayout{2, 64}.pageBytes());
  CHECK(plan.buffer("out")->kind == BufferKind::Output);
  CHECK(plan.buffer("out")->element == Element::F32);

  CHECK(plan.weight("w_up")->form == WeightForm::GateUpStrips);
  CHECK(plan.weight("w_up")->experts == 8);
  CHECK(plan.weight("w_qkv")->parts.size() == 3);
  CHECK(plan.weight("w_qkv")->perLayer);
  CHECK_FALSE(plan.weight("w_head")->perLayer);
  CHECK(plan.weight("embedding")->form == WeightForm::Table);
  CHECK(plan.weight("g_attn")->form == WeightForm::Vector);
  CHECK(plan.weight("g_attn")->parts.at(0).gain);
  CHECK(plan.weight("inv_freq")->form == WeightForm::InverseFrequencies);
  CHECK(plan.weight("inv_freq")->k == 64);
  CHECK(plan.weight("inv_freq")->theta == 1e6);
}

TEST_CASE("contradictions between kernels are named") {
  CHECK_THAT(Model(replaced(kModel, "@w_head n 100", "@w_qkv n 100")).error(),
             Contains("kernel 'last'") && Contains("'w_qkv'"));
  CHECK_THAT(Model(replaced(kModel, "@last \"last\" target \"sm_90a\" sms 4",
                            "@last \"last\" target \"sm_90a\" sms 8"))
                 .error(),
             Contains("kernel 'last' is for sm_90a, 8 SMs"));
  CHECK_THAT(Model(replaced(kModel, "rows 2 smem 1024", "rows 2")).error(),
             Contains("kernel 'embed'") && Contains("not planned"));
  CHECK_THAT(Model(replaced(kModel, "[\"head\"]", "[\"lm_head\"]")).error(),
             Contains("'lm_head', which the model does not have"));
}

TEST_CASE("facts come from the graph") {
  mlir::MLIRContext context;
  context.loadDialect<moe::MoeDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
    moe.weight @up [8, 64, 256] of bf16 from "up.{layer}.{expert}"
    moe.weight @norm [256] of bf16 from "norm.{layer}")",
                                                        &context);
  REQUIRE(module);
  const ModelFacts facts = collectFacts(*module, "small");
  CHECK(facts.model == "small");
  CHECK(facts.tensors.at("up.{layer}.{expert}") == std::vector<int64_t>{64, 256});
  CHECK(facts.tensors.at("norm.{layer}") == std::vector<int64_t>{256});
}
