//===- interpreter_dense.cpp - Operations on whole rows -------------------===//

#include "models/reference/interpreter.h"

#include <algorithm>

using namespace mlir;

namespace megalith::reference {

using llvm::Error;
using llvm::Expected;
using models::TensorRole;

Error Interpreter::visit(moe::EmbedOp op) {
  Expected<WeightView> table = open(op, op.getWeightAttr());
  if (!table)
    return table.takeError();
  Expected<Element> element = elementOf(op, op.getType());
  if (!element)
    return element.takeError();
  const int64_t vocabulary = moe::lookupWeight(op, op.getWeightAttr()).getShape().front();
  for (const Row &row : context.step->rows)
    if (row.live && (row.token < 0 || row.token >= vocabulary))
      return opError(op, "token " + Twine(row.token) + " is not in the vocabulary of " +
                             Twine(vocabulary));
  const int64_t first = table->rows == vocabulary ? 0 : rank * table->rows;
  define(op.getResult(), embed(*table, op.getMultiplier(), first, *element, context));
  return Error::success();
}

Error Interpreter::visit(moe::NormOp op) {
  return normInto(op, op.getResult(), op.getInput(), ruleOf(op, widthOf(op.getInput())),
                  op.getWeightAttr(), op.getBiasAttr(), /*ofQueriesAndKeys=*/false);
}

Error Interpreter::visit(moe::CastOp op) {
  Expected<Element> element = elementOf(op, op.getType());
  if (!element)
    return element.takeError();
  define(op.getResult(), cast(matrixOf(op.getInput()), *element, context));
  return Error::success();
}

Error Interpreter::visit(moe::LinearOp op) {
  if (op.getPartials() > 1) {
    Expected<WeightView> view = open(op, op.getWeightAttr());
    if (!view)
      return view.takeError();
    define(op.getResult(), partialSums(matrixOf(op.getInput()), *view, op.getPartials(), context));
    return Error::success();
  }
  return linearInto(op, op.getResult(), op.getInput(), op.getWeightAttr(), op.getBiasAttr(), {});
}

Error Interpreter::visit(moe::ResidualOp op) {
  ResidualRule rule = ruleOf(op);
  plant(fault, rule);
  Expected<std::vector<double>> gate = vectorOf(op, op.getGateAttr());
  if (!gate)
    return gate.takeError();
  Expected<Element> element = elementOf(op, op.getType());
  if (!element)
    return element.takeError();
  SmallVector<const Matrix *> branches;
  for (Value branch : op.getBranches())
    branches.push_back(&matrixOf(branch));
  define(op.getResult(), residual(matrixOf(op.getStream()), {branches.data(), branches.size()},
                                  rule, *gate, *element, context));
  return Error::success();
}

Error Interpreter::visit(moe::LmHeadOp op) {
  Expected<WeightView> view = open(op, op.getWeightAttr());
  if (!view)
    return view.takeError();
  Expected<std::vector<double>> bias = vectorOf(op, op.getBiasAttr());
  if (!bias)
    return bias.takeError();
  HeadRule rule = ruleOf(op);
  plant(fault, rule);
  const bool sharded = !!moe::lookupWeight(op, op.getWeightAttr()).getShardAttr();
  define(op.getResult(), head(matrixOf(op.getInput()), *view, *bias, rule,
                              sharded ? rank * view->rows : 0, context));
  return Error::success();
}

Error Interpreter::visit(moe::SquareSumsOp op) {
  const NormRule rule = ruleOf(op);
  Expected<std::vector<double>> gains =
      vectorOf(op, op.getWeightAttr(), rule.onePlus ? TensorRole::CentredGain : TensorRole::Gain);
  if (!gains)
    return gains.takeError();
  define(op.getResult(), squareSums(matrixOf(op.getInput()), rule, op.getChunk(), *gains, context));
  return Error::success();
}

Error Interpreter::visit(moe::QuantizeOp op) {
  auto type = cast<moe::BlockFormatType>(op.getType().getElementType());
  if (type != moe::BlockFormatType::getNVFP4(op.getContext()))
    return opError(op, "the reference evaluator quantises activations to NVFP4 only");
  // Largest of each expert; a vector is one row of one scale an expert, and an expert may have a
  // tensor of its own.
  moe::WeightOp weight = moe::lookupWeight(op, op.getGlobalAttr());
  const bool perExpert = weight.isPerExpert(), vector = weight.getShape().size() == 1;
  std::vector<double> ofExpert;
  for (int64_t tensor = 0; tensor < (perExpert ? weight.getShape()[0] : 1); ++tensor) {
    Expected<WeightView> scales = open(op, op.getGlobalAttr(), TensorRole::InputScale, tensor);
    if (!scales)
      return scales.takeError();
    std::vector<float> row(static_cast<size_t>(scales->columns));
    for (int64_t e = 0; e < scales->rows; ++e) {
      scales->tensor->row(e, std::span<float>(row));
      if (vector)
        ofExpert.assign(row.begin(), row.end());
      else
        ofExpert.push_back(*std::ranges::max_element(row));
    }
  }
  const Matrix &x = matrixOf(op.getInput());
  std::vector<double> globals(size_t(x.rows), *std::ranges::max_element(ofExpert));
  if (op.getIds())
    for (const auto &[pair, id] : llvm::enumerate(idsOf.find(op.getIds())->second))
      if (id >= 0 && id < int64_t(ofExpert.size()))
        globals[pair] = ofExpert[size_t(id)];
  for (double global : globals)
    if (!(global > 0))
      return opError(op, "expected input scales above zero, got " + std::to_string(global));
  define(op.getResult(), quantize(x, globals));
  return Error::success();
}

} // namespace megalith::reference
