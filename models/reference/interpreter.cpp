//===- interpreter.cpp - Walks one function of the moe graph --------------===//

#include "models/reference/interpreter.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace megalith::reference {

using llvm::Error;
using llvm::Expected;

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

} // namespace megalith::reference
