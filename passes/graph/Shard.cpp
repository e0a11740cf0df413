// moe-shard: the functions of a model become those of one rank.
#include "passes/graph/GraphPasses.h"
#include "passes/graph/ShardSchemes.h"

#include "llvm/ADT/TypeSwitch.h"

namespace megalith {
#define GEN_PASS_DEF_SHARD
#include "passes/graph/GraphPasses.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;

namespace {

int64_t columns(Value value) {
  return cast<RankedTensorType>(value.getType()).getDimSize(1);
}

/// The canonical K chunk (DESIGN section 5).
int64_t canonicalChunk(int64_t k) {
  return llvm::divideCeil(llvm::divideCeil(k, 8), 16) * 16;
}

/// Does the value come from attention, by operations that keep channels apart?
bool isAttentionOutput(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isa<moe::AttentionOp>(op))
      return true;
    if (!isa<moe::NormOp, moe::OutputGateOp, moe::CastOp, moe::AllGatherOp>(op))
      return false;
    value = op->getOperand(0);
  }
  return false;
}

/// Rewrites functions in place, operation by operation. A value is either the same on every rank or
/// cut along its channels; `cut` holds the latter.
class Sharder {
public:
  Sharder(ModuleOp module, int64_t ranks, const ShardScheme &scheme)
      : module(module), builder(module.getContext()), ranks(ranks), scheme(scheme) {}

  LogicalResult run() {
    if (module->hasAttr(moe::kRanksAttr))
      return module.emitError() << "expected a module that is not sharded yet but got one for "
                                << module->getAttr(moe::kRanksAttr) << " ranks";
    auto steps = llvm::to_vector(module.getOps<moe::StepOp>());
    if (steps.size() != 1)
      return module.emitError() << "expected one moe.step to shard but got " << steps.size();
    for (func::FuncOp function : module.getOps<func::FuncOp>())
      if (failed(shard(function)))
        return failure();
    module->setAttr(moe::kRanksAttr, builder.getI64IntegerAttr(ranks));
    return success();
  }

private:
  LogicalResult shard(func::FuncOp function) {
    if (function.isExternal())
      return success();
    Block &body = function.getBody().front();
    for (BlockArgument argument : body.getArguments())
      if (auto kv = dyn_cast<moe::KVType>(argument.getType())) {
        if (failed(divides(function, "KV heads", kv.getHeads())))
          return failure();
        argument.setType(moe::KVType::get(kv.getContext(), kv.getHeads() / ranks, kv.getHeadDim(),
                                          kv.getElement(), kv.getPositions(), kv.getWindow()));
      }
    for (Operation &op : llvm::make_early_inc_range(body)) {
      if (auto back = dyn_cast<func::ReturnOp>(op)) {
        for (OpOperand &operand : back->getOpOperands())
          operand.set(whole(operand.get()));
        function.setType(builder.getFunctionType(body.getArgumentTypes(), back.getOperandTypes()));
        continue;
      }
      if (failed(visit(&op)))
        return failure();
    }
    return success();
  }

  LogicalResult visit(Operation *op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case<moe::EmbedOp, moe::NormOp, moe::QkvProjOp, moe::QkNormOp, moe::RopeOp,
              moe::KvAppendOp, moe::AttentionOp, moe::OutputGateOp, moe::CastOp, moe::QuantizeOp,
              moe::LinearOp, moe::LmHeadOp, moe::ExpertGateUpOp, moe::GluOp, moe::ExpertDownOp,
              moe::ExpertNormOp, moe::CombineOp>([&](auto concrete) { return shard(concrete); })
        .Case<moe::ResidualOp, moe::RouterOp, moe::TopKOp>([&](Operation *other) {
          for (OpOperand &operand : other->getOpOperands())
            operand.set(whole(operand.get()));
          return success();
        })
        .Default([](Operation *other) {
          return other->emitOpError() << "expected an operation that can be sharded";
        });
  }

  //===--------------------------------------------------------------------===//
  // Values and weights
  //===--------------------------------------------------------------------===//

  LogicalResult divides(Operation *op, const Twine &what, int64_t count) {
    if (count % ranks == 0)
      return success();
    return op->emitError() << "expected " << what << " to be a multiple of the ranks, " << ranks
                           << ", but got " << count;
  }

  /// All ranks' channels of a value; gathered once, where it is made.
  Value whole(Value value) {
    if (!cut.contains(value))
      return value;
    Value &all = gathered[value];
    if (!all) {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointAfterValue(value);
      auto type = cast<RankedTensorType>(value.getType());
      all = moe::AllGatherOp::create(
          builder, value.getLoc(),
          RankedTensorType::get({type.getDimSize(0), type.getDimSize(1) * ranks},
                                type.getElementType()),
          value, ranks);
    }
    return all;
  }

  /// The value now has a rank's part of its channels.
  LogicalResult setCut(Value value) {
    Operation *op = value.getDefiningOp();
    auto type = cast<RankedTensorType>(value.getType());
    if (failed(divides(op, "the result's channels", type.getDimSize(1))))
      return failure();
    int64_t local = type.getDimSize(1) / ranks;
    if (auto format = dyn_cast<moe::BlockFormatType>(type.getElementType()))
      if (local % format.getBlockCols() != 0)
        return op->emitError() << "expected a rank's channels to be whole blocks of "
                               << format.getBlockCols() << " but got " << local;
    value.setType(RankedTensorType::get({type.getDimSize(0), local}, type.getElementType()));
    cut.insert(value);
    return success();
  }

  /// The result has its input's state: nothing but channels by themselves.
  LogicalResult follow(Value input, Value result) {
    return cut.contains(input) ? setCut(result) : success();
  }

  LogicalResult setShard(Operation *op, FlatSymbolRefAttr ref, int64_t dim) {
    if (!ref)
      return success();
    moe::WeightOp weight = moe::lookupWeight(op, ref);
    auto attr = moe::ShardAttr::get(builder.getContext(), dim, ranks);
    if (weight.getShardAttr() && weight.getShardAttr() != attr)
      return op->emitError() << "expected " << ref << " to be cut in one way but got dimensions "
                             << weight.getShardAttr().getDim() << " and " << dim;
    int64_t extent = weight.getShape()[dim];
    if (failed(divides(op, "dimension " + Twine(dim) + " of @" + ref.getValue(), extent)))
      return failure();
    auto format = dyn_cast<moe::BlockFormatType>(weight.getFormat());
    if (format && dim == int64_t(weight.getShape().size()) - 1 &&
        extent / ranks % format.getBlockCols() != 0)
      return op->emitError() << "expected a rank's columns of " << ref << " to be whole blocks of "
                             << format.getBlockCols() << " but got " << extent / ranks;
    weight.setShardAttr(attr);
    return success();
  }

  /// Puts a reduction behind `value`, a rank's sums, which becomes of `type`.
  void reduce(Value value, RankedTensorType type, RankedTensorType sums, int64_t partials) {
    value.setType(sums);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfterValue(value);
    Value all = moe::AllReduceOp::create(builder, value.getLoc(), type, value, ranks, partials);
    value.replaceAllUsesExcept(all, all.getDefiningOp());
  }

  //===--------------------------------------------------------------------===//
  // The dense half
  //===--------------------------------------------------------------------===//

  LogicalResult shard(moe::EmbedOp op) {
    auto type = op.getType();
    if (failed(setShard(op, op.getWeightAttr(), 0)))
      return failure();
    // All but one rank add zeros: exact in any type.
    reduce(op.getResult(), type, type, 1);
    return success();
  }

  LogicalResult shard(moe::NormOp op) {
    if (op.getOver() == moe::NormOver::Head)
      return follow(op.getInput(), op.getResult());
    op.getInputMutable().set(whole(op.getInput()));
    return success();
  }

  LogicalResult shard(moe::QkvProjOp op) {
    op.getInputMutable().set(whole(op.getInput()));
    if (failed(divides(op, "KV heads", op.getKvHeads())))
      return failure();
    op.setHeads(op.getHeads() / ranks);
    op.setKvHeads(op.getKvHeads() / ranks);
    for (FlatSymbolRefAttr ref : {op.getQWeightAttr(), op.getKWeightAttr(), op.getVWeightAttr(),
                                  op.getQBiasAttr(), op.getKBiasAttr(), op.getVBiasAttr()})
      if (failed(setShard(op, ref, 0)))
        return failure();
    for (Value result : op.getResults())
      if (failed(setCut(result)))
        return failure();
    return success();
  }

  LogicalResult shard(moe::QkNormOp op) {
    if (op.getOver() == moe::NormOver::Row && cut.contains(op.getQ()))
      return op.emitError()
             << "expected a norm per head of q and k, which ranks share out, but got "
                "one over the whole row";
    if (failed(follow(op.getQ(), op.getQOut())))
      return failure();
    return follow(op.getK(), op.getKOut());
  }

  LogicalResult shard(moe::RopeOp op) {
    if (failed(follow(op.getQ(), op.getQOut())))
      return failure();
    return follow(op.getK(), op.getKOut());
  }

  LogicalResult shard(moe::KvAppendOp op) {
    op.getResult().setType(op.getKv().getType());
    return success();
  }

  LogicalResult shard(moe::AttentionOp op) {
    op.setHeads(op.getHeads() / ranks);
    if (failed(setShard(op, op.getSinksAttr(), 0)))
      return failure();
    return setCut(op.getResult());
  }

  LogicalResult shard(moe::OutputGateOp op) {
    const bool one = columns(op.getGate()) == 1; // a gate for the row
    if (!cut.contains(op.getInput())) {
      op.getGateMutable().set(whole(op.getGate()));
      return success();
    }
    if (!one && !cut.contains(op.getGate()))
      return op.emitError() << "expected the gate to be cut like its input";
    if (one)
      op.getGateMutable().set(whole(op.getGate()));
    return setCut(op.getResult());
  }

  LogicalResult shard(moe::CastOp op) { return follow(op.getInput(), op.getResult()); }
  LogicalResult shard(moe::QuantizeOp op) { return follow(op.getInput(), op.getResult()); }

  LogicalResult shard(moe::LinearOp op) {
    using Output = ShardScheme::OutputProjection;
    if (cut.contains(op.getInput()) && isAttentionOutput(op.getInput()) &&
        scheme.outputProjection != Output::N)
      return shardColumns(op, scheme.outputProjection == Output::KOrdered);
    op.getInputMutable().set(whole(op.getInput()));
    if (failed(setShard(op, op.getWeightAttr(), 0)) || failed(setShard(op, op.getBiasAttr(), 0)))
      return failure();
    return setCut(op.getResult());
  }

  /// x W^T with the columns of W that belong to a rank's channels of x.
  LogicalResult shardColumns(moe::LinearOp op, bool ordered) {
    if (op.getBiasAttr())
      return op.emitError()
             << "expected no bias behind a matrix that is cut by columns but got one";
    if (failed(setShard(op, op.getWeightAttr(), 1)))
      return failure();
    auto type = op.getType();
    int64_t local = columns(op.getInput()), chunk = canonicalChunk(local * ranks), partials = 1;
    if (ordered && (local % chunk != 0 || local * ranks % chunk != 0))
      return op.emitError() << "expected a rank's " << local << " columns to be whole chunks of "
                            << chunk << ", whose sums keep the order of one rank";
    if (ordered)
      partials = local / chunk;
    Type element =
        ordered || !scheme.bf16Sums ? Type(builder.getF32Type()) : Type(builder.getBF16Type());
    op.setPartials(partials);
    reduce(op.getResult(), type,
           RankedTensorType::get({type.getDimSize(0), type.getDimSize(1) * partials}, element),
           partials);
    return success();
  }

  LogicalResult shard(moe::LmHeadOp op) {
    op.getInputMutable().set(whole(op.getInput()));
    if (failed(setShard(op, op.getWeightAttr(), 0)) || failed(setShard(op, op.getBiasAttr(), 0)))
      return failure();
    return setCut(op.getResult());
  }

  //===--------------------------------------------------------------------===//
  // Experts
  //===--------------------------------------------------------------------===//

  LogicalResult shard(moe::ExpertGateUpOp op) {
    op.getInputMutable().set(whole(op.getInput()));
    for (FlatSymbolRefAttr ref :
         {op.getGateWeightAttr(), op.getUpWeightAttr(), op.getGateBiasAttr(), op.getUpBiasAttr()})
      if (failed(setShard(op, ref, 1)))
        return failure();
    if (failed(setCut(op.getGate())))
      return failure();
    return setCut(op.getUp());
  }

  LogicalResult shard(moe::GluOp op) {
    if (cut.contains(op.getGate()) && cut.contains(op.getUp()))
      return setCut(op.getResult());
    op.getGateMutable().set(whole(op.getGate()));
    op.getUpMutable().set(whole(op.getUp()));
    return success();
  }

  LogicalResult shard(moe::ExpertDownOp op) {
    if (scheme.experts == ShardScheme::Experts::NK && cut.contains(op.getInput())) {
      if (op.getBiasAttr())
        return op.emitError()
               << "expected no bias behind a matrix that is cut by columns but got one";
      if (failed(setShard(op, op.getWeightAttr(), 2)))
        return failure();
      Type element = scheme.bf16Sums ? Type(builder.getBF16Type()) : Type(builder.getF32Type());
      reduce(op.getResult(), op.getType(), RankedTensorType::get(op.getType().getShape(), element),
             1);
      return success();
    }
    op.getInputMutable().set(whole(op.getInput()));
    if (failed(setShard(op, op.getWeightAttr(), 1)) || failed(setShard(op, op.getBiasAttr(), 1)))
      return failure();
    return setCut(op.getResult());
  }

  /// The mean square is over all ranks: gather the rows, or the sums of their squares.
  LogicalResult shard(moe::ExpertNormOp op) {
    Value y = op.getInput();
    if (!cut.contains(y) || scheme.experts != ShardScheme::Experts::NNSums) {
      op.getInputMutable().set(whole(y));
      return success();
    }
    int64_t local = columns(y), width = local * ranks, chunk = canonicalChunk(width);
    if (local % chunk != 0)
      return op.emitError() << "expected a rank's " << local << " channels to be whole chunks of "
                            << chunk << ", whose sums keep the order of one rank";
    if (failed(setShard(op, op.getWeightAttr(), 0)))
      return failure();
    builder.setInsertionPoint(op);
    int64_t pairs = cast<RankedTensorType>(y.getType()).getDimSize(0);
    auto sumsType = [&](int64_t count) {
      return RankedTensorType::get({pairs, count}, builder.getF32Type());
    };
    // Only an input-scaled norm squares what its weight has been applied to.
    bool scaled = op.getKind() == moe::NormKind::RmsInputScaled;
    Value sums = moe::SquareSumsOp::create(builder, op.getLoc(), sumsType(local / chunk), y, chunk,
                                           scaled ? op.getWeightAttr() : FlatSymbolRefAttr(),
                                           scaled ? op.getGain() : moe::Gain::Absolute);
    sums = moe::AllGatherOp::create(builder, op.getLoc(), sumsType(width / chunk), sums, ranks);
    op.getSumsMutable().assign(sums);
    op.setWidth(width);
    return setCut(op.getResult());
  }

  LogicalResult shard(moe::CombineOp op) { return follow(op.getInput(), op.getResult()); }

  ModuleOp module;
  OpBuilder builder;
  const int64_t ranks;
  const ShardScheme scheme;
  DenseSet<Value> cut;
  DenseMap<Value, Value> gathered;
};

class Shard : public megalith::impl::ShardBase<Shard> {
public:
  using Base::Base;

private:
  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }

  LogicalResult run() {
    ModuleOp module = getOperation();
    auto wrong = [&](StringRef option, StringRef words, const Twine &got) {
      return module.emitError() << "moe-shard: expected " << option << " of " << words
                                << " but got " << got;
    };
    if (ranks < 1 || ranks > 64)
      return wrong("ranks", "1 to 64", Twine(ranks));
    auto wantedExperts = parseExperts(experts);
    auto wantedOutput = parseOutputProjection(outputProjection);
    if (!wantedExperts && experts != "auto")
      return wrong("experts", "auto, nn, nn-sums or nk", experts);
    if (!wantedOutput && outputProjection != "auto")
      return wrong("o-proj", "auto, n, k-ordered or k", outputProjection);
    if (sums != "f32" && sums != "bf16")
      return wrong("sums", "f32 or bf16", sums);
    if (ranks == 1)
      return success();

    // A scheme that is named may have any order; one that is not must keep that of one rank.
    auto allowed = [&](const ShardScheme &scheme) {
      using Output = ShardScheme::OutputProjection;
      bool isExpertsFree = scheme.experts == ShardScheme::Experts::NK;
      bool isOutputFree = scheme.outputProjection == Output::K;
      return (wantedExperts ? scheme.experts == *wantedExperts : freeOrder || !isExpertsFree) &&
             (wantedOutput ? scheme.outputProjection == *wantedOutput : freeOrder || !isOutputFree);
    };
    if (report) {
      auto all = [](const ShardScheme &) { return true; };
      llvm::outs() << describe(compareSchemes(module, ranks, all, sums == "bf16"), ranks);
    }
    std::vector<SchemeCost> schemes = compareSchemes(module, ranks, allowed, sums == "bf16");
    // If none can be done, the first one that was asked for says why.
    ShardScheme scheme = {wantedExperts.value_or(ShardScheme::Experts::NN),
                          wantedOutput.value_or(ShardScheme::OutputProjection::N), sums == "bf16"};
    return shardModule(module, ranks, schemes.empty() ? scheme : schemes.front().scheme);
  }
};

} // namespace

LogicalResult megalith::shardModule(ModuleOp module, int64_t ranks, const ShardScheme &scheme) {
  return Sharder(module, ranks, scheme).run();
}
