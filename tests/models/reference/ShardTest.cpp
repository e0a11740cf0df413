//===- ShardTest.cpp - A model cut over ranks is the same model -----------===//
//
// moe-shard against the evaluator, which runs every rank; and what it says of bytes and stops
// against the table of docs/spec/muse-spark-open.md section 9.3.
//
//===----------------------------------------------------------------------===//

#include "models/reference/compare.h"
#include "passes/graph/GraphPasses.h"
#include "passes/graph/ShardSchemes.h"
#include "tests/models/reference/ModelSupport.h"

#include "mlir/IR/Verifier.h"

using namespace megalith;
using namespace megalith::reference;
using Experts = ShardScheme::Experts;
using Output = ShardScheme::OutputProjection;

namespace {

constexpr int64_t kHistory = 40;

/// A step of two rows of one sequence behind made-up keys, through layers 0 (a window, bf16
/// experts) and 1 (all positions, NVFP4 experts and activations), and the head.
struct Outcome {
  std::vector<Matrix> residuals;
  std::vector<ExpertIds> ids;
  Matrix qkv, logits;
};

Outcome evaluate(mlir::ModuleOp module, const models::WeightSource &weights) {
  const Evaluator evaluator = llvm::cantFail(Evaluator::create(module, weights));
  const SequenceInput input = hashedInput(0, kHistory, 2, 2048);
  const Step step = makeStep({&input, 1}, 2);
  Outcome outcome;
  Matrix stream = llvm::cantFail(evaluator.embed(step));
  outcome.residuals.push_back(stream);
  for (int64_t l : {0, 1}) {
    KvStore cache = evaluator.makeCache(l);
    cache.fillHashed(kSeed, l, 0, kHistory);
    LayerResult result = llvm::cantFail(evaluator.layer(l, stream, cache, step));
    CHECK(cache.positions(0) == kHistory + 2);
    stream = result.residual;
    outcome.residuals.push_back(stream);
    outcome.ids.push_back(result.routing->ids);
    outcome.qkv = std::move(result.qkv);
  }
  outcome.logits = llvm::cantFail(evaluator.head(stream, step));
  return outcome;
}

const LayerCost &costOf(llvm::ArrayRef<SchemeCost> costs, Experts experts, Output output,
                        llvm::StringRef kind) {
  for (const SchemeCost &cost : costs)
    if (cost.scheme.experts == experts && cost.scheme.outputProjection == output)
      for (const LayerCost &layer : cost.layers)
        if (layer.kind == kind)
          return layer;
  throw std::runtime_error("no such scheme or kind");
}

/// Bytes and stops of the exchange whose description contains `what`.
std::pair<int64_t, int64_t> exchange(const LayerCost &layer, llvm::StringRef what) {
  for (const ExchangeCost &cost : layer.exchanges)
    if (llvm::StringRef(cost.what).contains(what))
      return {cost.bytes, cost.stops};
  return {-1, -1};
}

std::vector<SchemeCost> openCosts(int64_t rows, bool activations, int64_t ranks = 8) {
  Model model("muse-spark-open.assembled.json", Model::nvfp4(activations, rows));
  return compareSchemes(
      *model.module, ranks, [](const ShardScheme &) { return true; }, /*bf16Sums=*/true);
}

using Cost = std::pair<int64_t, int64_t>;

} // namespace

TEST_CASE("Cut over 2, 4 and 8 ranks, a model is the same") {
  Model model("muse-spark-mini.test.json", Model::nvfp4(/*activations=*/true, 2));
  const Outcome expected = evaluate(*model.module, model.weights);
  const ShardScheme schemes[] = {{Experts::NN, Output::N},
                                 {Experts::NNSums, Output::KOrdered},
                                 {Experts::NK, Output::K},
                                 {Experts::NK, Output::K, /*bf16Sums=*/true}};
  for (int64_t ranks : {2, 4, 8})
    for (const ShardScheme &scheme : schemes) {
      if (scheme.bf16Sums && ranks != 8)
        continue;
      INFO(ranks << " ranks, " << scheme.str() << (scheme.bf16Sums ? ", bf16" : ""));
      mlir::OwningOpRef<mlir::ModuleOp> sharded = model.module->clone();
      REQUIRE(mlir::succeeded(shardModule(*sharded, ranks, scheme)));
      REQUIRE(mlir::succeeded(mlir::verify(*sharded)));
      const Outcome actual = evaluate(*sharded, model.weights);
      CHECK(bool(actual.residuals[0].values == expected.residuals[0].values));
      if (scheme.isOrdered()) {
        // Bit by bit, whatever the number of ranks.
        for (size_t l = 0; l < expected.residuals.size(); ++l)
          CHECK(bool(actual.residuals[l].values == expected.residuals[l].values));
        CHECK(actual.ids == expected.ids);
        CHECK(bool(actual.qkv.values == expected.qkv.values));
        CHECK(bool(actual.logits.values == expected.logits.values));
        continue;
      }
      // Another order of sums: fp32 sums rarely differ behind their rounding, bf16 sums always do.
      // One layer only: from there on, other experts may be chosen.
      const double difference = relativeRms(actual.residuals[1], expected.residuals[1]);
      CHECK(difference <= 7e-3);
      CHECK((difference > 1e-3) == scheme.bf16Sums);
    }
}

TEST_CASE("Bytes and stops of N/N are those of the specification") {
  const std::vector<SchemeCost> costs = openCosts(1, /*activations=*/true);
  REQUIRE(costs.size() == 9);
  const LayerCost &nn = costOf(costs, Experts::NN, Output::K, "full_nvfp4");
  CHECK(nn.layers == 15);
  CHECK(exchange(nn, "input_scale") == Cost(16128, 1)); // activations in NVFP4
  CHECK(exchange(nn, "experts.down") == Cost(57344, 1));
  CHECK(exchange(nn, "pre_expert_proj") == Cost(7168, 1));
  CHECK(exchange(nn, "post_expert_proj") == Cost(14336, 1));
  CHECK(exchange(nn, "o_proj") == Cost(28672, 2)); // two shots: less to read is worth a stop
  CHECK(nn.stops() == 6);
  // Both gathers of o_proj cut by rows: its input and its output.
  const LayerCost &rows = costOf(costs, Experts::NN, Output::N, "full_nvfp4");
  CHECK(rows.stops() == 6);
  CHECK(rows.bytes() == nn.bytes() - 28672 + 2 * 14336);
  // Sums of squares first: two hops, an eighth of the bytes.
  const LayerCost &sums = costOf(costs, Experts::NNSums, Output::K, "full_nvfp4");
  CHECK(exchange(sums, "post_norm") == Cost(224, 1));
  CHECK(exchange(sums, "combine") == Cost(7168, 1));
  CHECK(224 + 7168 == 7392);
  // The layers that keep bf16 experts gather bf16 activations: 7 ranks, 8 experts, 512 values.
  const LayerCost &plain = costOf(costs, Experts::NN, Output::K, "full");
  CHECK(exchange(plain, "experts.glu") == Cost(7 * 8 * 512 * 2, 1));
}

TEST_CASE("With bf16 activations N/N gathers bf16") {
  const std::vector<SchemeCost> costs = openCosts(1, /*activations=*/false);
  const LayerCost &nn = costOf(costs, Experts::NN, Output::K, "full_nvfp4");
  CHECK(exchange(nn, "experts.glu") == Cost(57344, 1));
  CHECK(exchange(nn, "input_scale") == Cost(-1, -1));
}

TEST_CASE("Bytes of an all_reduce in both of its forms are those of the specification") {
  // Between two ranks a second shot would save nothing.
  const LayerCost once = costOf(openCosts(1, true, 2), Experts::NK, Output::K, "full_nvfp4");
  CHECK(exchange(once, "experts.down") == Cost(65536, 1));
  CHECK(exchange(once, "o_proj") == Cost(16384, 1));
  // Among eight it reads a quarter: 7/8 twice instead of 7 times.
  const LayerCost one = costOf(openCosts(1, true), Experts::NK, Output::K, "full_nvfp4");
  CHECK(exchange(one, "experts.down") == Cost(114688, 2));
  CHECK(exchange(one, "o_proj") == Cost(28672, 2));
  // Bytes are of a row, whatever the rows.
  const LayerCost twice = costOf(openCosts(16, true), Experts::NK, Output::K, "full_nvfp4");
  CHECK(exchange(twice, "experts.down") == Cost(114688, 2));
  CHECK(exchange(twice, "o_proj") == Cost(28672, 2));
}

TEST_CASE("The cheapest scheme comes first, among those that are allowed") {
  const std::vector<SchemeCost> costs = openCosts(16, true);
  for (size_t i = 0; i + 1 < costs.size(); ++i)
    CHECK(costs[i].microseconds() <= costs[i + 1].microseconds());
  Model model("muse-spark-open.assembled.json", Model::nvfp4(true, 16));
  const auto ordered = compareSchemes(*model.module, 8,
                                      [](const ShardScheme &scheme) { return scheme.isOrdered(); });
  CHECK(ordered.size() == 4);
  for (const SchemeCost &cost : ordered)
    CHECK(cost.scheme.isOrdered());
  const std::string table = describe(ordered, 8);
  CHECK(table.find("8 ranks: what a rank receives for a row") == 0);
  CHECK(table.find("@full_nvfp4, 15 layer(s)") != std::string::npos);
}

TEST_CASE("moe-bound-scores bounds the imported model's scores, and not those of larger factors") {
  auto bounds = [](mlir::ModuleOp module) {
    mlir::PassManager manager(module.getContext());
    manager.addPass(createBoundScores());
    REQUIRE(mlir::succeeded(manager.run(module)));
    std::vector<double> found;
    module.walk([&](moe::AttentionOp op) {
      if (op.getScoreBound())
        found.push_back(*op.getScoreBound());
    });
    return found;
  };
  // 43.79 and what rounding adds: two roundings more where RoPE stands between.
  Model open("muse-spark-open.assembled.json");
  const std::vector<double> found = bounds(*open.module);
  REQUIRE(found.size() == 2);
  CHECK(found[0] == Approx(43.784052 * std::pow(1 + 1.0 / 256, 4)).epsilon(1e-4));
  CHECK(found[1] == Approx(43.784052 * std::pow(1 + 1.0 / 256, 2)).epsilon(1e-4));

  auto text = llvm::MemoryBuffer::getFile("models/configs/muse-spark-mini.test.json");
  REQUIRE(text);
  std::string config = (*text)->getBuffer().str();
  const size_t at = config.find("5.4730064863875");
  REQUIRE(at != std::string::npos);
  mlir::MLIRContext context;
  auto larger = models::importConfig(context, config.replace(at, 15, "20"), "larger.json");
  REQUIRE(bool(larger));
  CHECK(bounds(**larger).empty());
  // Weights of the norms decide there.
  CHECK(bounds(*Model::small("qwen3_moe").module).empty());
}
