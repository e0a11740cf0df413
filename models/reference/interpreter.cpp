//===- interpreter.cpp - Walks one function of the moe graph --------------===//

#include "models/reference/interpreter.h"

#include "models/reference/attention.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <map>

using namespace mlir;

namespace megalith::reference {

using llvm::Error;
using llvm::Expected;
using models::TensorRole;

Error Interpreter::run(MutableArrayRef<Interpreter> ranks, FunctionOpInterface function,
                       StringRef stopAfter) {
  if (function.isExternal())
    return opError(function, "the function has no body to evaluate");
  Block &body = function.getFunctionBody().front();
  for (Operation &op : body) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      break;
    if (isa<moe::AllGatherOp, moe::AllReduceOp>(op)) {
      if (Error error = exchange(ranks, &op))
        return error;
    } else {
      for (Interpreter &one : ranks)
        if (Error error = one.visit(&op))
          return error;
    }
    if (op.getName().getStringRef() == stopAfter)
      return Error::success();
  }
  if (!stopAfter.empty())
    return opError(function, "expected a " + stopAfter + " in this function, found none");
  return Error::success();
}

Error Interpreter::exchange(MutableArrayRef<Interpreter> ranks, Operation *op) {
  const int64_t wanted = isa<moe::AllGatherOp>(op) ? cast<moe::AllGatherOp>(op).getRanks()
                                                   : cast<moe::AllReduceOp>(op).getRanks();
  if (wanted != int64_t(ranks.size()))
    return opError(op,
                   "expected the module's " + Twine(ranks.size()) + " ranks, got " + Twine(wanted));
  SmallVector<const Matrix *> parts;
  for (Interpreter &one : ranks)
    parts.push_back(&one.matrixOf(op->getOperand(0)));
  Matrix all;
  if (auto reduce = dyn_cast<moe::AllReduceOp>(op)) {
    Expected<Element> element = elementOf(op, reduce.getType());
    if (!element)
      return element.takeError();
    all = allReduce(parts, reduce.getPartials(), *element, ranks.front().context);
  } else {
    all = allGather(parts);
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    if (!isa<moe::BlockFormatType>(type.getElementType())) {
      Expected<Element> element = elementOf(op, type);
      if (!element)
        return element.takeError();
      all = reference::cast(all, *element, ranks.front().context);
    }
  }
  for (Interpreter &one : ranks)
    one.define(op->getResult(0), all);
  return Error::success();
}

Error Interpreter::runTopK(FunctionOpInterface function, const Matrix &logits) {
  for (moe::TopKOp op : function.getFunctionBody().getOps<moe::TopKOp>()) {
    const auto type = op.getLogits().getType();
    if (logits.rows != context.rows() || logits.columns != type.getDimSize(1))
      return opError(op, "expected logits of " + Twine(context.rows()) + " rows of " +
                             Twine(type.getDimSize(1)) + " experts, got " + Twine(logits.rows) +
                             " of " + Twine(logits.columns));
    define(op.getLogits(), logits);
    return visit(op);
  }
  return opError(function, "expected a moe.top_k in this function, found none");
}

Error Interpreter::visit(Operation *op) {
  return llvm::TypeSwitch<Operation *, Error>(op)
      .Case<moe::EmbedOp, moe::NormOp, moe::QkvProjOp, moe::QkNormOp, moe::RopeOp, moe::KvAppendOp,
            moe::AttentionOp, moe::OutputGateOp, moe::CastOp, moe::LinearOp, moe::ResidualOp,
            moe::LmHeadOp, moe::RouterOp, moe::TopKOp, moe::ExpertGateUpOp, moe::GluOp,
            moe::ExpertDownOp, moe::ExpertNormOp, moe::CombineOp, moe::QuantizeOp,
            moe::SquareSumsOp>([&](auto concrete) { return visit(concrete); })
      .Default([](Operation *other) {
        return opError(other, "not supported by the reference evaluator");
      });
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

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

//===----------------------------------------------------------------------===//
// What several operations share
//===----------------------------------------------------------------------===//

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

/// Channels of a row.
static int64_t widthOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getDimSize(1);
}

//===----------------------------------------------------------------------===//
// The dense half
//===----------------------------------------------------------------------===//

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

//===----------------------------------------------------------------------===//
// Routing and the experts
//===----------------------------------------------------------------------===//

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
