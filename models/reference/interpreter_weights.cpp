//===- interpreter_weights.cpp - What operations do with their weights ----===//

#include "models/reference/interpreter.h"

#include <functional>
#include <map>

using namespace mlir;

namespace megalith::reference {

using llvm::Error;
using llvm::Expected;
using models::TensorRole;

Expected<WeightView> Interpreter::open(Operation *op, FlatSymbolRefAttr ref, TensorRole role,
                                       int64_t expert) {
  moe::WeightOp weight = moe::lookupWeight(op, ref);
  if (!weight)
    return opError(op, "no weight @" + ref.getValue());
  auto blocks = dyn_cast<moe::BlockFormatType>(weight.getFormat());
  // Codes are rounded already, and their values are no bf16 numbers.
  Expected<Element> element = blocks ? Element::F32 : elementOf(weight, weight.getFormat());
  if (!element)
    return element.takeError();
  models::TensorSpec spec{weight.getTensorName(layer, expert), {}, role};
  // One tensor an expert: dimension 0 counts the tensors. Otherwise an expert is a part of rows.
  const ArrayRef<int64_t> shape = weight.getShape();
  const SmallVector<int64_t> whole = weight.getCheckpointShape();
  const ArrayRef<int64_t> own =
      weight.isPerExpert() ? ArrayRef(whole).drop_front() : ArrayRef(whole);
  spec.shape.assign(own.begin(), own.end());
  WeightView view{nullptr, 0, spec.rows(), spec.columns()};
  view.element = *element;
  view.tensorColumns = view.columns;
  if (blocks) {
    auto tensor = weights.openBlocks(spec, formatOf(blocks));
    if (!tensor)
      return tensor.takeError();
    view.blocks = tensor->get();
    opened.push_back(std::move(*tensor));
  } else {
    auto tensor = weights.open(spec);
    if (!tensor)
      return tensor.takeError();
    opened.push_back(std::move(*tensor));
  }
  view.tensor = opened.back().get();
  if (shape.size() == 3) {
    view.rows = shape[1];
    view.firstRow = weight.isPerExpert() ? 0 : expert * whole[1];
  }
  if (moe::PartAttr part = weight.getPartAttr()) {
    // Rows of a matrix, alone or among others: all that a checkpoint has put into one tensor.
    if (shape.size() < 2 || part.getDim() != int64_t(shape.size()) - 2)
      return opError(weight, "the reference evaluator knows parts along the rows of a matrix only");
    view.rows = shape[shape.size() - 2];
    view.firstRow += part.getIndex() * view.rows;
  }
  if (moe::ShardAttr shard = weight.getShardAttr()) {
    auto ranks = weight->getParentOfType<ModuleOp>()->getAttrOfType<IntegerAttr>(moe::kRanksAttr);
    if (!ranks || ranks.getInt() != shard.getRanks())
      return opError(weight, "expected a weight for the module's " +
                                 Twine(ranks ? ranks.getInt() : 1) + " rank(s), got one for " +
                                 Twine(shard.getRanks()));
    const int64_t dim = int64_t(shard.getDim()), last = int64_t(shape.size()) - 1;
    if (dim == last) {
      view.columns /= shard.getRanks();
      view.firstColumn = rank * view.columns;
    } else if (dim == last - 1) {
      view.rows /= shard.getRanks();
      view.firstRow += rank * view.rows;
    } else {
      return opError(weight, "the reference evaluator knows matrices that are sharded along their "
                             "rows or columns, not whole experts");
    }
  }
  return view;
}

Expected<std::vector<double>> Interpreter::vectorOf(Operation *op, FlatSymbolRefAttr ref,
                                                    TensorRole role) {
  if (!ref)
    return std::vector<double>();
  Expected<WeightView> view = open(op, ref, role);
  if (!view)
    return view.takeError();
  return readVector(*view, context);
}

Error Interpreter::linearInto(Operation *op, Value result, Value input, FlatSymbolRefAttr weight,
                              FlatSymbolRefAttr bias, const LinearRule &rule,
                              WeightPrecision precision) {
  Expected<WeightView> view = open(op, weight);
  if (!view)
    return view.takeError();
  view->precision = precision;
  Expected<std::vector<double>> offsets = vectorOf(op, bias);
  if (!offsets)
    return offsets.takeError();
  Expected<Element> element = elementOf(op, result.getType());
  if (!element)
    return element.takeError();
  define(result, linear(matrixOf(input), *view, *offsets, rule, *element, context));
  return Error::success();
}

Error Interpreter::expertsInto(Operation *op, Value result, Value input, Value ids,
                               FlatSymbolRefAttr weight, FlatSymbolRefAttr bias) {
  Expected<Element> element = elementOf(op, result.getType());
  if (!element)
    return element.takeError();
  const ExpertIds &experts = idsOf.find(ids)->second;
  moe::WeightOp symbol = moe::lookupWeight(op, weight);
  if (!symbol)
    return opError(op, "no weight @" + weight.getValue());
  const int64_t count = symbol.getShape().front();
  // Opened first, so that what can fail does so before anything is computed.
  std::map<int32_t, WeightView> views;
  std::map<int32_t, std::vector<double>> biases;
  for (int32_t expert : experts) {
    if (expert < 0 || views.count(expert))
      continue;
    if (expert >= count)
      return opError(op, "expert " + Twine(expert) + " was routed to, the model has " +
                             Twine(count) + " experts");
    Expected<WeightView> view = open(op, weight, TensorRole::Matrix, expert);
    if (!view)
      return view.takeError();
    views[expert] = *view;
    if (!bias)
      continue;
    Expected<WeightView> offsets = open(op, bias, TensorRole::Matrix, expert);
    if (!offsets)
      return offsets.takeError();
    // Of a tensor [E, n], row `expert`; of one tensor an expert, its only row.
    if (offsets->rows > 1)
      offsets->firstRow = expert;
    biases[expert] = readVector(*offsets, context);
  }
  std::function<std::vector<double>(int32_t)> biasOf;
  if (bias)
    biasOf = [&](int32_t expert) { return biases[expert]; };
  const int64_t k = cast<RankedTensorType>(ids.getType()).getDimSize(1);
  const int64_t outputs = cast<RankedTensorType>(result.getType()).getDimSize(1);
  define(result, expertLinear(
                     matrixOf(input), experts, k, outputs,
                     [&](int32_t expert) { return views[expert]; }, biasOf, *element, context));
  return Error::success();
}

Error Interpreter::normInto(Operation *op, Value result, Value input, NormRule rule,
                            FlatSymbolRefAttr weight, FlatSymbolRefAttr bias,
                            bool ofQueriesAndKeys) {
  plant(fault, rule, ofQueriesAndKeys);
  Expected<std::vector<double>> gains =
      vectorOf(op, weight, rule.onePlus ? TensorRole::CentredGain : TensorRole::Gain);
  if (!gains)
    return gains.takeError();
  Expected<std::vector<double>> offsets = vectorOf(op, bias);
  if (!offsets)
    return offsets.takeError();
  Expected<Element> element = elementOf(op, result.getType());
  if (!element)
    return element.takeError();
  define(result, norm(matrixOf(input), rule, *gains, *offsets, *element, context));
  return Error::success();
}

} // namespace megalith::reference
