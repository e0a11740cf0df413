//===- evaluator.cpp - The moe graph on the CPU ---------------------------===//

#include "models/reference/evaluator.h"

#include "models/reference/interpreter.h"

using namespace mlir;

namespace megalith::reference {

using llvm::Error;
using llvm::Expected;

namespace {

/// The value a function returns first.
Value firstResult(FunctionOpInterface function) {
  return function.getFunctionBody().front().getTerminator()->getOperand(0);
}

moe::KVType cacheType(FunctionOpInterface layer) {
  return cast<moe::KVType>(layer.getArgumentTypes().back());
}

} // namespace

Expected<Evaluator> Evaluator::create(ModuleOp module, const models::WeightSource &weights,
                                      EvaluatorOptions options) {
  auto steps = llvm::to_vector(module.getOps<moe::StepOp>());
  if (steps.size() != 1)
    return opError(module, "expected one moe.step to evaluate, found " + Twine(steps.size()));
  moe::StepOp step = steps.front();
  Evaluator evaluator(weights, options);
  auto find = [&](FlatSymbolRefAttr name) {
    return cast<FunctionOpInterface>(SymbolTable::lookupNearestSymbolFrom(step, name));
  };
  evaluator.embedFunction = find(step.getEmbedAttr());
  evaluator.headFunction = find(step.getHeadAttr());
  for (int64_t l = 0; l < step.getNumLayers(); ++l)
    evaluator.layerFunctions.push_back(find(step.getLayer(l)));
  if (auto ranks = module->getAttrOfType<IntegerAttr>(moe::kRanksAttr))
    evaluator.ranks = ranks.getInt();
  return evaluator;
}

std::vector<KvStore> Evaluator::makeCaches() const {
  std::vector<KvStore> caches;
  for (int64_t layer = 0; layer < numLayers(); ++layer)
    caches.push_back(makeCache(layer));
  return caches;
}

KvStore Evaluator::makeCache(int64_t layer) const {
  const moe::KVType type = cacheType(layerFunctions[size_t(layer)]);
  return KvStore(type.getHeads() * ranks, type.getHeadDim(),
                 isa<mlir::Float8E4M3FNType>(type.getElement()) ? Element::E4m3 : Element::Bf16);
}

Expected<Context> Evaluator::contextOf(const Step &step, const Matrix *residual) const {
  if (Error error = step.validate())
    return error;
  if (residual) {
    FunctionOpInterface function = headFunction;
    const int64_t hidden =
        cast<RankedTensorType>(function.getArgumentTypes().front()).getDimSize(1);
    if (residual->rows != int64_t(step.rows.size()) || residual->columns != hidden)
      return llvm::createStringError(
          "evaluator: expected a residual of %zu rows of %lld channels, got %lld of %lld",
          step.rows.size(), (long long)hidden, (long long)residual->rows,
          (long long)residual->columns);
  }
  return Context{options.precision, &step, options.threads, options.inner};
}

std::vector<Interpreter> Evaluator::interpreters(const Context &context, int64_t layer,
                                                 std::span<KvStore *const> caches,
                                                 const ExpertIds *routingIn) const {
  std::vector<Interpreter> all;
  all.reserve(size_t(ranks));
  for (int64_t rank = 0; rank < ranks; ++rank)
    all.emplace_back(context, *weights, options.fault, layer,
                     caches.empty() ? nullptr : caches[size_t(rank)], routingIn, rank);
  return all;
}

/// What every rank has: an error if they do not agree.
static Expected<Matrix> replicated(std::span<const Interpreter> ranks, Value value) {
  const Matrix &first = ranks.front().matrixOf(value);
  for (size_t rank = 1; rank < ranks.size(); ++rank)
    if (ranks[rank].matrixOf(value).values != first.values)
      return llvm::createStringError("evaluator: rank %zu has another result than rank 0", rank);
  return first;
}

Expected<Matrix> Evaluator::embed(const Step &step) const {
  Expected<Context> context = contextOf(step, nullptr);
  if (!context)
    return context.takeError();
  std::vector<Interpreter> all = interpreters(*context, 0, {}, nullptr);
  if (Error error = Interpreter::run(all, embedFunction))
    return error;
  return replicated(all, firstResult(embedFunction));
}

/// q, k, v of all ranks, each in the order of its heads.
static Matrix joinQkv(std::span<const Interpreter> ranks, moe::QkvProjOp op) {
  Matrix all;
  SmallVector<Value> results(op.getResults());
  for (auto beside : op->getBlock()->getOps<moe::LinearOp>())
    if (beside.getInput() == op.getInput())
      results.push_back(beside.getResult());
  for (Value part : results) {
    std::vector<const Matrix *> parts;
    for (const Interpreter &one : ranks)
      parts.push_back(&one.matrixOf(part));
    Matrix next = allGather(parts);
    const Matrix *both[] = {&all, &next};
    if (all.columns == 0) {
      all = std::move(next);
      continue;
    }
    Matrix joined(all.rows, all.columns + next.columns);
    for (int64_t r = 0; r < joined.rows; ++r) {
      std::ranges::copy(both[0]->row(r), joined.row(r).begin());
      std::ranges::copy(both[1]->row(r), joined.row(r).begin() + all.columns);
    }
    all = std::move(joined);
  }
  return all;
}

Expected<LayerResult> Evaluator::runLayer(int64_t index, const Matrix &residual, KvStore *cache,
                                          const Step &step, const ExpertIds *routingIn,
                                          StringRef stopAfter) const {
  Expected<Context> context = contextOf(step, &residual);
  if (!context)
    return context.takeError();
  FunctionOpInterface function = layerFunctions[size_t(index)];
  // Every rank has the heads that it owns.
  std::vector<KvStore> parts;
  std::vector<KvStore *> caches;
  const int64_t heads = cache ? cache->heads / ranks : 0;
  if (cache && ranks > 1)
    for (int64_t rank = 0; rank < ranks; ++rank)
      parts.push_back(cache->part(rank * heads, heads));
  for (KvStore &part : parts)
    caches.push_back(&part);
  if (cache && ranks == 1)
    caches.push_back(cache);
  std::vector<Interpreter> all = interpreters(*context, index, caches, routingIn);
  for (Interpreter &one : all)
    one.define(function.getArgument(0), residual);
  Error error = Interpreter::run(all, function, stopAfter);
  for (const auto &[rank, part] : llvm::enumerate(parts))
    cache->put(int64_t(rank) * heads, part);
  if (error)
    return error;
  LayerResult result;
  for (moe::QkvProjOp op : function.getFunctionBody().getOps<moe::QkvProjOp>())
    result.qkv = joinQkv(all, op);
  if (!stopAfter.empty())
    return result;
  Expected<Matrix> stream = replicated(all, firstResult(function));
  if (!stream)
    return stream.takeError();
  result.residual = std::move(*stream);
  result.routing = std::move(all.front().routing);
  return result;
}

Expected<LayerResult> Evaluator::layer(int64_t index, const Matrix &residual, KvStore &cache,
                                       const Step &step, const ExpertIds *routingIn) const {
  return runLayer(index, residual, &cache, step, routingIn, "");
}

Expected<Matrix> Evaluator::projections(int64_t index, const Matrix &residual,
                                        const Step &step) const {
  Expected<LayerResult> result =
      runLayer(index, residual, nullptr, step, nullptr, moe::QkvProjOp::getOperationName());
  if (!result)
    return result.takeError();
  return std::move(result->qkv);
}

Expected<Routing> Evaluator::route(int64_t index, const Matrix &logits, const Step &step) const {
  Expected<Context> context = contextOf(step, nullptr);
  if (!context)
    return context.takeError();
  Interpreter interpreter(*context, *weights, options.fault, index, nullptr, nullptr);
  if (Error error = interpreter.runTopK(layerFunctions[size_t(index)], logits))
    return error;
  return std::move(*interpreter.routing);
}

Expected<Matrix> Evaluator::head(const Matrix &residual, const Step &step) const {
  Expected<Context> context = contextOf(step, &residual);
  if (!context)
    return context.takeError();
  FunctionOpInterface function = headFunction;
  std::vector<Interpreter> all = interpreters(*context, numLayers(), {}, nullptr);
  for (Interpreter &one : all)
    one.define(function.getArgument(0), residual);
  if (Error error = Interpreter::run(all, function))
    return error;
  return replicated(all, firstResult(function));
}

Expected<StepResult> Evaluator::step(const Step &step, std::vector<KvStore> &caches,
                                     std::span<const ExpertIds> routingIn) const {
  if (int64_t(caches.size()) != numLayers() ||
      (!routingIn.empty() && int64_t(routingIn.size()) != numLayers()))
    return llvm::createStringError(
        "evaluator: the model has %lld layers, got caches of %zu and replayed ids of %zu",
        (long long)numLayers(), caches.size(), routingIn.size());
  StepResult result;
  Expected<Matrix> embedded = embed(step);
  if (!embedded)
    return embedded.takeError();
  result.embedded = std::move(*embedded);
  for (int64_t l = 0; l < numLayers(); ++l) {
    const Matrix &before = l == 0 ? result.embedded : result.layers.back().residual;
    const bool replay = !routingIn.empty() && !routingIn[size_t(l)].empty();
    Expected<LayerResult> layerResult =
        layer(l, before, caches[size_t(l)], step, replay ? &routingIn[size_t(l)] : nullptr);
    if (!layerResult)
      return layerResult.takeError();
    result.layers.push_back(std::move(*layerResult));
  }
  Expected<Matrix> logits = head(result.layers.back().residual, step);
  if (!logits)
    return logits.takeError();
  result.logits = std::move(*logits);
  return result;
}

} // namespace megalith::reference
