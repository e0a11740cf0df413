//===- interpreter_attention.cpp - The operations of attention ------------===//

#include "models/reference/interpreter.h"

#include <cmath>

using namespace mlir;

namespace megalith::reference {

using llvm::Error;
using llvm::Expected;
using models::TensorRole;

Error Interpreter::visit(moe::QkvProjOp op) {
  LinearRule rule;
  if (auto clip = op.getClip())
    rule.clip = *clip;
  struct Part {
    Value result;
    FlatSymbolRefAttr weight, bias;
  };
  const Part parts[] = {{op.getQ(), op.getQWeightAttr(), op.getQBiasAttr()},
                        {op.getK(), op.getKWeightAttr(), op.getKBiasAttr()},
                        {op.getV(), op.getVWeightAttr(), op.getVBiasAttr()}};
  for (const Part &part : parts)
    if (Error error = linearInto(op, part.result, op.getInput(), part.weight, part.bias, rule))
      return error;
  // What is projected beside them crosses to the next launch too.
  for (auto beside : op->getBlock()->getOps<moe::LinearOp>())
    if (beside.getInput() == op.getInput())
      if (Error error = visit(beside))
        return error;
  return Error::success();
}

Error Interpreter::visit(moe::QkNormOp op) {
  NormRule ofQueries = ruleOf(op, widthOf(op.getQ()));
  ofQueries.scale = op.getQScale();
  if (Error error = normInto(op, op.getQOut(), op.getQ(), ofQueries, op.getQWeightAttr(), {},
                             /*ofQueriesAndKeys=*/true))
    return error;
  return normInto(op, op.getKOut(), op.getK(), ruleOf(op, widthOf(op.getK())), op.getKWeightAttr(),
                  {}, /*ofQueriesAndKeys=*/true);
}

Error Interpreter::visit(moe::RopeOp op) {
  Expected<RopeRule> rule = ruleOf(op);
  if (!rule)
    return rule.takeError();
  plant(fault, *rule);
  for (auto [from, to] : {std::pair(op.getQ(), op.getQOut()), {op.getK(), op.getKOut()}}) {
    Expected<Element> element = elementOf(op, to.getType());
    if (!element)
      return element.takeError();
    define(to, rope(matrixOf(from), *rule, *element, context));
  }
  return Error::success();
}

Expected<KvScales> Interpreter::scalesOf(moe::KvAppendOp op) {
  KvScales scales;
  for (auto [weight, to] :
       {std::pair(op.getKScaleAttr(), &scales.key), std::pair(op.getVScaleAttr(), &scales.value)}) {
    if (!weight)
      continue;
    Expected<std::vector<double>> values = vectorOf(op, weight, TensorRole::Gain);
    if (!values)
      return values.takeError();
    *to = values->front();
    if (!(*to > 0) || !std::isfinite(*to))
      return opError(op, "expected scales above zero, got " + std::to_string(*to));
  }
  return scales;
}

Error Interpreter::visit(moe::KvAppendOp op) {
  auto type = cast<moe::KVType>(op.getKv().getType());
  if (!cache || cache->heads != type.getHeads() || cache->headDim != type.getHeadDim())
    return opError(op, "expected a cache of " + Twine(type.getHeads()) + " heads of " +
                           Twine(type.getHeadDim()) + " channels");
  Expected<Element> element = elementOf(op, type.getElement());
  if (!element)
    return element.takeError();
  for (const Row &row : context.step->rows)
    if (row.live && row.position >= type.getPositions())
      return opError(op, "position " + Twine(row.position) + " lies beyond the cache's " +
                             Twine(type.getPositions()) + " positions");
  for (const auto &[index, sequence] : llvm::enumerate(context.step->sequences))
    if (cache->positions(int64_t(index)) < sequence.start)
      return opError(op, "sequence " + Twine(index) + " starts at position " +
                             Twine(sequence.start) + ", its cache holds " +
                             Twine(cache->positions(int64_t(index))));
  Expected<KvScales> scales = scalesOf(op);
  if (!scales)
    return scales.takeError();
  appendKv(*cache, matrixOf(op.getK()), matrixOf(op.getV()), *element, *scales, context);
  return Error::success();
}

Error Interpreter::visit(moe::AttentionOp op) {
  AttentionRule rule = ruleOf(op);
  plant(fault, rule);
  if (auto append = op.getKv().getDefiningOp<moe::KvAppendOp>()) {
    Expected<KvScales> scales = scalesOf(append);
    if (!scales)
      return scales.takeError();
    rule.keyScale = scales->key;
    rule.valueScale = scales->value;
  }
  Expected<std::vector<double>> sinks = vectorOf(op, op.getSinksAttr());
  if (!sinks)
    return sinks.takeError();
  Expected<Element> element = elementOf(op, op.getType());
  if (!element)
    return element.takeError();
  define(op.getResult(), attention(matrixOf(op.getQ()), *cache, rule, *sinks, *element, context));
  return Error::success();
}

Error Interpreter::visit(moe::OutputGateOp op) {
  Expected<OutputGateRule> rule = ruleOf(op);
  if (!rule)
    return rule.takeError();
  plant(fault, *rule);
  Expected<Element> element = elementOf(op, op.getType());
  if (!element)
    return element.takeError();
  define(op.getResult(),
         outputGate(matrixOf(op.getInput()), matrixOf(op.getGate()), *rule, *element, context));
  return Error::success();
}

} // namespace megalith::reference
