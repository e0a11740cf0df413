//===- EvaluatorTest.cpp - The moe graph on the CPU -----------------------===//

#include "tests/models/reference/ModelSupport.h"

#include "mlir/Parser/Parser.h"

#include <chrono>

using namespace megalith::reference;
using namespace megalith::models;
using Catch::Matchers::Contains;

namespace {

bool sameRow(const Matrix &a, int64_t rowOfA, const Matrix &b, int64_t rowOfB) {
  return std::ranges::equal(a.row(rowOfA), b.row(rowOfB));
}

template <class T> std::string errorOf(llvm::Expected<T> result) {
  return result ? "" : llvm::toString(result.takeError());
}

} // namespace

TEST_CASE("Contract precision rounds, but stays near fp64 for the same routing") {
  for (const char *family : kFamilies) {
    Model model = Model::small(family);
    const Evaluator contract = model.evaluator(), exact = model.evaluator({Precision::F64});
    auto caches = filledCaches(contract, {40, 3}), exactCaches = caches;
    const std::vector<SequenceInput> inputs = {hashedInput(0, 40, 1, 512),
                                               hashedInput(1, 3, 1, 512)};
    const Step step = makeStep(inputs, 2);
    Matrix residual = llvm::cantFail(contract.embed(step));
    for (int64_t l = 0; l < contract.numLayers(); ++l) {
      const LayerResult rounded =
          llvm::cantFail(contract.layer(l, residual, caches[size_t(l)], step));
      const LayerResult reference = llvm::cantFail(
          exact.layer(l, residual, exactCaches[size_t(l)], step, &rounded.routing->ids));
      const double difference = relativeRms(rounded.residual, reference.residual);
      INFO(family << " layer " << l);
      CHECK(difference > 1e-4);
      CHECK(difference < 2e-2);
      CHECK(relativeRms(rounded.routing->logits, reference.routing->logits) < 2e-2);
      for (double value : rounded.residual.values)
        REQUIRE(value == double(r16(float(value))));
      residual = rounded.residual;
    }
    CHECK(relativeRms(llvm::cantFail(contract.head(residual, step)),
                      llvm::cantFail(exact.head(residual, step))) < 5e-3);
  }
}

TEST_CASE("Identical rows have identical bits; bucket and other sequences do not matter") {
  for (const char *family : kFamilies) {
    Model model = Model::small(family);
    const Evaluator evaluator = model.evaluator();
    const SequenceInput input = hashedInput(0, 50, 1, 512);
    auto alone = evaluator.makeCaches(), together = evaluator.makeCaches();
    for (int64_t l = 0; l < evaluator.numLayers(); ++l) {
      alone[size_t(l)].fillHashed(kSeed, l, 0, 50);
      together[size_t(l)].fillHashed(kSeed, l, 0, 50, /*source=*/0);
      together[size_t(l)].fillHashed(kSeed, l, 1, 50, /*source=*/0);
      together[size_t(l)].fillHashed(kSeed, l, 2, 11, /*source=*/5);
    }
    const StepResult one = llvm::cantFail(evaluator.step(makeStep({&input, 1}, 1), alone));
    const std::vector<SequenceInput> inputs = {input, input, hashedInput(5, 11, 2, 512)};
    const StepResult many = llvm::cantFail(evaluator.step(makeStep(inputs, 8), together));
    for (int64_t l = 0; l < evaluator.numLayers(); ++l) {
      const Matrix &residual = many.layers[size_t(l)].residual;
      CHECK(sameRow(residual, 0, residual, 1));
      CHECK(!sameRow(residual, 0, residual, 2));
      CHECK(sameRow(residual, 0, one.layers[size_t(l)].residual, 0));
      CHECK(std::ranges::all_of(residual.row(7), [](double value) { return value == 0; }));
      CHECK(many.layers[size_t(l)].routing->ids.back() == -1);
      CHECK(together[size_t(l)].positions(0) == 51);
      CHECK(together[size_t(l)].positions(2) == 13);
      CHECK(together[size_t(l)].positions(3) == 0); // dead rows write nothing
    }
    CHECK(sameRow(many.logits, 0, one.logits, 0));
  }
}

TEST_CASE("Rows of one step equal the same rows one step each") {
  Model model = Model::small("qwen3_moe");
  const Evaluator evaluator = model.evaluator({Precision::F64});
  auto at_once = evaluator.makeCaches(), one_by_one = evaluator.makeCaches();
  const SequenceInput all = hashedInput(0, 0, 19, 512);
  const StepResult together = llvm::cantFail(evaluator.step(makeStep({&all, 1}, 19), at_once));
  for (int64_t position = 0; position < 19; ++position) {
    const SequenceInput one = hashedInput(0, position, 1, 512);
    const StepResult alone = llvm::cantFail(evaluator.step(makeStep({&one, 1}, 1), one_by_one));
    for (int64_t v = 0; v < 512; ++v)
      REQUIRE(alone.logits.at(0, v) == Approx(together.logits.at(position, v)).margin(1e-9));
  }
}

TEST_CASE("Replayed ids take their weights from the layer's own logits") {
  Model model = Model::small("qwen3_moe");
  const Evaluator evaluator = model.evaluator();
  auto caches = filledCaches(evaluator, {8});
  const SequenceInput input = hashedInput(0, 8, 1, 512);
  const Step step = makeStep({&input, 1}, 1);
  const Matrix residual = llvm::cantFail(evaluator.embed(step));
  const LayerResult free = llvm::cantFail(evaluator.layer(0, residual, caches[0], step));
  const LayerResult same =
      llvm::cantFail(evaluator.layer(0, residual, caches[0], step, &free.routing->ids));
  CHECK(same.residual.values == free.residual.values);
  const ExpertIds other = {15, 0, 3, 7};
  const LayerResult forced = llvm::cantFail(evaluator.layer(0, residual, caches[0], step, &other));
  CHECK(forced.routing->ids == other);
  CHECK(forced.routing->logits.values == free.routing->logits.values);
  CHECK(relativeRms(forced.residual, free.residual) > 1e-2);
  const Matrix &z = forced.routing->logits;
  CHECK(forced.routing->weights.at(0, 0) / forced.routing->weights.at(0, 2) ==
        Approx(std::exp(z.at(0, 15) - z.at(0, 3))).epsilon(1e-5));
}

TEST_CASE("A layer alone is what it is inside a step, and projections cross its boundary") {
  Model model = Model::small("mixtral");
  const Evaluator evaluator = model.evaluator();
  auto caches = filledCaches(evaluator, {20}), again = filledCaches(evaluator, {20});
  const SequenceInput input = hashedInput(0, 20, 2, 512);
  const Step step = makeStep({&input, 1}, 4);
  const StepResult whole = llvm::cantFail(evaluator.step(step, caches));
  const LayerResult second =
      llvm::cantFail(evaluator.layer(1, whole.layers[0].residual, again[1], step));
  CHECK(second.residual.values == whole.layers[1].residual.values);
  const Matrix qkv = llvm::cantFail(evaluator.projections(1, whole.layers[0].residual, step));
  CHECK(qkv.columns == (4 + 2 + 2) * 64);
  CHECK(qkv.values == whole.layers[1].qkv.values);
  CHECK(llvm::cantFail(evaluator.head(whole.layers[2].residual, step)).values ==
        whole.logits.values);
}

TEST_CASE("One layer of Qwen3-30B-A3B at its real dimensions runs in seconds") {
  Model model("qwen3-30b-a3b.json");
  const Evaluator evaluator = model.evaluator();
  KvStore cache(4, 128);
  cache.fillHashed(kSeed, 20, 0, 128);
  const SequenceInput input = {128, {42}};
  const Step step = makeStep({&input, 1}, 1);
  const auto begin = std::chrono::steady_clock::now();
  const LayerResult result =
      llvm::cantFail(evaluator.layer(20, llvm::cantFail(evaluator.embed(step)), cache, step));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  CHECK(result.residual.columns == 2048);
  CHECK(result.routing->ids.size() == 8);
  CHECK(std::ranges::all_of(result.residual.values, [](double v) { return std::isfinite(v); }));
  CHECK(seconds.count() < 10); // about 0.3 s on two idle cores
}

TEST_CASE("What cannot be evaluated is refused with a reason") {
  Model model = Model::small("qwen3_moe");
  const Evaluator evaluator = model.evaluator();
  auto caches = evaluator.makeCaches();
  SequenceInput input = {0, {600}};
  CHECK_THAT(errorOf(evaluator.step(makeStep({&input, 1}, 1), caches)),
             Contains("token 600 is not in the vocabulary of 512"));
  input = {3, {5}};
  CHECK_THAT(errorOf(evaluator.step(makeStep({&input, 1}, 1), caches)),
             Contains("sequence 0 starts at position 3, its cache holds 0"));
  input = {4096, {5}};
  CHECK_THAT(errorOf(evaluator.step(makeStep({&input, 1}, 1), caches)),
             Contains("position 4096 lies beyond the cache's 4096 positions"));
  input = {0, {5}};
  const Step step = makeStep({&input, 1}, 1);
  CHECK_THAT(errorOf(evaluator.head(Matrix(1, 100), step)),
             Contains("expected a residual of 1 rows of 256 channels, got 1 of 100"));
  const ExpertIds three = {1, 2, 3}, outside = {1, 2, 3, 16};
  const Matrix residual(1, 256);
  CHECK_THAT(errorOf(evaluator.layer(0, residual, caches[0], step, &three)),
             Contains("expected 4 replayed ids, got 3"));
  CHECK_THAT(errorOf(evaluator.layer(0, residual, caches[0], step, &outside)),
             Contains("replayed id 16 of row 0 is not one of 16 experts"));
  KvStore wrong(4, 64);
  CHECK_THAT(errorOf(evaluator.layer(0, residual, wrong, step)),
             Contains("expected a cache of 2 heads of 64 channels"));
  caches.pop_back();
  CHECK_THAT(errorOf(evaluator.step(step, caches)), Contains("the model has 3 layers"));
}

TEST_CASE("Operations and modules outside the evaluator are refused by name") {
  Model model = Model::small("mixtral"); // loads the dialects
  auto parse = [&](const std::string &text) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &model.context);
    REQUIRE(module);
    return module;
  };
  CHECK_THAT(errorOf(Evaluator::create(*parse("module {}"), model.weights)),
             Contains("expected one moe.step to evaluate, found 0"));

  // A model of one layer that consists of one operation on the residual %s, with weight @w.
  auto layerError = [&](const std::string &weight, const std::string &op) {
    auto module = parse(R"(
      moe.weight @table [8, 16] of bf16 from "e"
      func.func @embed(%t: tensor<1xi32>) -> tensor<1x16xbf16> {
        %s = moe.embed %t weight(@table) : tensor<1xi32> -> tensor<1x16xbf16>
        return %s : tensor<1x16xbf16>
      }
      func.func @head(%s: tensor<1x16xbf16>) -> tensor<1x8xf32> {
        %z = moe.lm_head %s weight(@table) : tensor<1x16xbf16> -> tensor<1x8xf32>
        return %z : tensor<1x8xf32>
      }
      moe.step @decode embed(@embed) layers(@layer) head(@head)
      moe.weight @w )" + weight +
                        R"(
      func.func @layer(%s: tensor<1x16xbf16>,
                       %kv: !moe.kv<heads = 1, head_dim = 16, element = bf16, positions = 64>)
          -> (tensor<1x16xbf16>,
              !moe.kv<heads = 1, head_dim = 16, element = bf16, positions = 64>) {
        )" + op + R"( : tensor<1x16xbf16> -> tensor<1x16xbf16>
        return %r, %kv : tensor<1x16xbf16>,
            !moe.kv<heads = 1, head_dim = 16, element = bf16, positions = 64>
      })");
    const Evaluator evaluator = llvm::cantFail(Evaluator::create(*module, model.weights));
    auto caches = evaluator.makeCaches();
    const SequenceInput input = {0, {1}};
    return errorOf(evaluator.step(makeStep({&input, 1}, 1), caches));
  };
  const std::string linear = "%r = moe.linear %s weight(@w)";
  CHECK(layerError("[16, 16] of bf16 from \"w\"", linear) == "");
  CHECK_THAT(layerError("[32, 16] of bf16 from \"w\" sharded <dim = 0, ranks = 2>", linear),
             Contains("moe.weight at") &&
                 Contains("expected a weight for the module's 1 rank(s), got one for 2"));
  CHECK(layerError("[16, 16] of !moe.block_format<f4E2M1FN, block = [1, 16], scale = "
                   "f8E4M3FN, global = f32> from \"w\"",
                   linear) == "");
  CHECK_THAT(layerError("[16, 16] of bf16 from \"w\"", "%r = moe.all_reduce %s {ranks = 2}"),
             Contains("moe.all_reduce at") && Contains("expected the module's 1 ranks, got 2"));
}
