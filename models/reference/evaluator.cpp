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
  return KvStore(type.getHeads(), type.getHeadDim());
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

Expected<Matrix> Evaluator::embed(const Step &step) const {
  Expected<Context> context = contextOf(step, nullptr);
  if (!context)
    return context.takeError();
  Interpreter interpreter(*context, *weights, options.fault, 0, nullptr, nullptr);
  if (Error error = interpreter.run(embedFunction))
    return error;
  return interpreter.matrixOf(firstResult(embedFunction));
}

Expected<LayerResult> Evaluator::layer(int64_t index, const Matrix &residual, KvStore &cache,
                                       const Step &step, const ExpertIds *routingIn) const {
  Expected<Context> context = contextOf(step, &residual);
  if (!context)
    return context.takeError();
  FunctionOpInterface function = layerFunctions[size_t(index)];
  Interpreter interpreter(*context, *weights, options.fault, index, &cache, routingIn);
  interpreter.define(function.getArgument(0), residual);
  if (Error error = interpreter.run(function))
    return error;
  return LayerResult{interpreter.matrixOf(firstResult(function)), std::move(interpreter.routing),
                     std::move(interpreter.qkv)};
}

Expected<Matrix> Evaluator::projections(int64_t index, const Matrix &residual,
                                        const Step &step) const {
  Expected<Context> context = contextOf(step, &residual);
  if (!context)
    return context.takeError();
  FunctionOpInterface function = layerFunctions[size_t(index)];
  Interpreter interpreter(*context, *weights, options.fault, index, nullptr, nullptr);
  interpreter.define(function.getArgument(0), residual);
  if (Error error = interpreter.run(function, moe::QkvProjOp::getOperationName()))
    return error;
  return std::move(interpreter.qkv);
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
  Interpreter interpreter(*context, *weights, options.fault, numLayers(), nullptr, nullptr);
  interpreter.define(function.getArgument(0), residual);
  if (Error error = interpreter.run(function))
    return error;
  return interpreter.matrixOf(firstResult(function));
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
