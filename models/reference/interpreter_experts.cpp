//===- interpreter_experts.cpp - Routing and the experts ------------------===//

#include "models/reference/interpreter.h"

#include <utility>

using namespace mlir;

namespace megalith::reference {

using llvm::Error;
using llvm::Expected;
using models::TensorRole;

Error Interpreter::visit(moe::RouterOp op) {
  LinearRule rule{0, op.getMultiplier()};
  plant(fault, rule);
  return linearInto(op, op.getLogits(), op.getInput(), op.getWeightAttr(), op.getBiasAttr(), rule,
                    ruleOf(op));
}

Error Interpreter::visit(moe::TopKOp op) {
  Expected<TopKRule> rule = ruleOf(op);
  if (!rule)
    return rule.takeError();
  plant(fault, *rule);
  Expected<std::vector<double>> bias = vectorOf(op, op.getSelectionBiasAttr());
  if (!bias)
    return bias.takeError();
  const Matrix &logits = matrixOf(op.getLogits());
  if (routingIn) {
    if (int64_t(routingIn->size()) != logits.rows * rule->k)
      return opError(op, "expected " + Twine(logits.rows * rule->k) + " replayed ids, got " +
                             Twine(routingIn->size()));
    for (int64_t p = 0; p < int64_t(routingIn->size()); ++p) {
      const int32_t id = (*routingIn)[size_t(p)];
      if (context.live(p / rule->k) && (id < 0 || id >= logits.columns))
        return opError(op, "replayed id " + Twine(id) + " of row " + Twine(p / rule->k) +
                               " is not one of " + Twine(logits.columns) + " experts");
    }
  }
  routing = topK(logits, *rule, *bias, routingIn, context);
  idsOf[op.getIds()] = routing->ids;
  define(op.getWeights(), routing->weights);
  return Error::success();
}

Error Interpreter::visit(moe::ExpertGateUpOp op) {
  if (Error error = expertsInto(op, op.getGate(), op.getInput(), op.getIds(),
                                op.getGateWeightAttr(), op.getGateBiasAttr()))
    return error;
  return expertsInto(op, op.getUp(), op.getInput(), op.getIds(), op.getUpWeightAttr(),
                     op.getUpBiasAttr());
}

Error Interpreter::visit(moe::GluOp op) {
  GluRule rule = ruleOf(op);
  plant(fault, rule);
  Expected<Element> element = elementOf(op, op.getType());
  if (!element)
    return element.takeError();
  define(op.getResult(),
         glu(matrixOf(op.getGate()), matrixOf(op.getUp()), rule, *element, context));
  return Error::success();
}

Error Interpreter::visit(moe::ExpertDownOp op) {
  return expertsInto(op, op.getResult(), op.getInput(), op.getIds(), op.getWeightAttr(),
                     op.getBiasAttr());
}

Error Interpreter::visit(moe::ExpertNormOp op) {
  if (fault == Fault::NormAfterWeighting) {
    deferredNorm = op;
    define(op.getResult(), matrixOf(op.getInput()));
    return Error::success();
  }
  if (op.getSums()) {
    NormRule rule = ruleOf(op, widthOf(op.getInput()));
    plant(fault, rule, /*ofQueriesAndKeys=*/false);
    Expected<std::vector<double>> gains =
        vectorOf(op, op.getWeightAttr(), rule.onePlus ? TensorRole::CentredGain : TensorRole::Gain);
    if (!gains)
      return gains.takeError();
    Expected<Element> element = elementOf(op, op.getType());
    if (!element)
      return element.takeError();
    define(op.getResult(), normWithSums(matrixOf(op.getInput()), rule, matrixOf(op.getSums()),
                                        *op.getWidth(), *gains, *element, context));
    return Error::success();
  }
  return normInto(op, op.getResult(), op.getInput(), ruleOf(op, widthOf(op.getInput())),
                  op.getWeightAttr(), {}, /*ofQueriesAndKeys=*/false);
}

Error Interpreter::visit(moe::CombineOp op) {
  CombineRule rule = ruleOf(op);
  plant(fault, rule);
  Expected<Element> element = elementOf(op, op.getType());
  if (!element)
    return element.takeError();
  define(op.getResult(),
         combine(matrixOf(op.getWeights()), matrixOf(op.getInput()), rule, *element, context));
  if (moe::ExpertNormOp norm = std::exchange(deferredNorm, {}))
    return normInto(norm, op.getResult(), op.getResult(), ruleOf(norm, widthOf(op.getResult())),
                    norm.getWeightAttr(), {}, /*ofQueriesAndKeys=*/false);
  return Error::success();
}

} // namespace megalith::reference
