// moe-convert-to-task: follows the data flow of a launch function and makes a stage of every op
// that needs an exchange of its own; norms, residuals, activations and KV writes join the stage
// that computes their input or output. What has no form yet is refused by name.
#include "passes/graph/Converter.h"
#include "passes/graph/WeightFormats.h"
#include "passes/why/Why.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

namespace megalith {
#define GEN_PASS_DEF_CONVERTTOTASK
#include "passes/graph/GraphPasses.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::graph;
using task::Mutability;
using task::Pairing;
using task::StageKind;

LogicalResult Converter::run() {
  kind = function->getAttrOfType<StringAttr>(kLaunchAttr).getValue();
  declareArguments();
  for (Operation &op : function.getBody().front())
    if (failed(convert(op)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// A layer function's arguments are what the previous launch left: the residual, raw q, k, v and
/// what else was projected beside them as column ranges of one value, and the pages. Any other
/// function's arguments are immutable inputs.
void Converter::declareArguments() {
  auto arguments = function.getArguments();
  if (kind == "layer" || kind == "last") {
    sources[arguments[0]] = {resid(arguments[0]), task::Set::Previous};
    auto projections = arguments.drop_front().drop_back();
    int64_t columns = 0;
    for (Value raw : projections)
      columns += width(raw);
    Source source = {crossing("qkv", columns, build.bf16()), task::Set::Previous};
    for (Value raw : projections)
      sources[raw] = source;
    return;
  }
  for (Value argument : arguments) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (type && type.getRank() == 2)
      sources[argument] = {build.global("x", type.getDimSize(0), type.getDimSize(1),
                                        type.getElementType(), Mutability::Immutable)};
  }
}

FlatSymbolRefAttr Converter::crossing(StringRef name, int64_t cols, Type element) {
  FlatSymbolRefAttr &ref = crossings[name];
  if (!ref)
    ref = build.value(name, build.rows(), cols, element, /*isCrossing=*/true);
  return ref;
}

FlatSymbolRefAttr Converter::resid(Value stream) {
  return crossing("resid", width(stream), isF32(stream) ? build.f32() : build.bf16());
}

FailureOr<Source> Converter::sourceOf(Operation *reader, Value value) {
  auto it = sources.find(value);
  if (it != sources.end())
    return it->second;
  return reader->emitOpError() << "reads the result of "
                               << (value.getDefiningOp()
                                       ? value.getDefiningOp()->getName().getStringRef()
                                       : StringRef("an argument"))
                               << ", which no stage computes in this form yet";
}

//===----------------------------------------------------------------------===//
// Shared pieces of stages
//===----------------------------------------------------------------------===//

LogicalResult Converter::addInput(Operation *op, Value input, StringRef stageName,
                                  SmallVectorImpl<Attribute> &reads, Keys &keys) {
  FailureOr<Source> source = sourceOf(op, input);
  if (failed(source))
    return failure();
  if (rowsInSmem.value == input && rowsInSmem.stage) {
    keys.push_back(build.key("shares_input", rowsInSmem.stage));
    return success();
  }
  if (!source->buffer)
    return refuse(op, "rows of an fp32 stream after other rows took their place");
  if (isF32(input))
    return refuse(op, "fp32 rows");
  reads.push_back(build.whole(*source));
  rowsInSmem = {input, FlatSymbolRefAttr::get(op->getContext(), stageName)};
  moe::NormOp norm = source->norm;
  keys.push_back(build.key("norm", norm ? "rms" : "none"));
  if (!norm)
    return success();
  if (norm.getKind() == moe::NormKind::RmsInputScaled)
    return refuse(norm, "an input-scaled norm, but for one before a residual");
  keys.push_back(build.key("eps", norm.getEps()));
  if (norm.getWeight())
    keys.push_back(build.key("gain", gainOf(weight(*norm.getWeight()), isNext(norm),
                                            norm.getGain() == moe::Gain::OnePlus)));
  return success();
}

/// "g_attn" for an attention norm and so on, by the tensor's own name.
static std::string gainName(moe::WeightOp gain) {
  StringRef name = gain.getCheckpoint();
  if (name.contains("q_norm"))
    return "g_q";
  if (name.contains("k_norm"))
    return "g_k";
  if (name.contains("input_layernorm"))
    return "g_attn";
  if (name.contains("post_attention_layernorm"))
    return "g_mlp";
  return name.contains("{layer}") ? "g_" + gain.getSymName().str() : "g_final";
}

FlatSymbolRefAttr Converter::gainOf(moe::WeightOp gain, bool isNext, bool isOnePlus) {
  FlatSymbolRefAttr &ref = gains[{gain, unsigned(isNext)}];
  if (!ref)
    ref =
        build.global(gainName(gain), 1, gain.getShape()[0], build.bf16(), Mutability::Immutable,
                     gain.getCheckpoint(), isNext,
                     isOnePlus ? build.dictionary({build.key("kind", "add1")}) : DictionaryAttr());
  return ref;
}

LogicalResult Converter::addLinear(Operation *op, StringRef name, Value input,
                                   FlatSymbolRefAttr weights, int64_t n, int64_t k,
                                   StringRef epilogue, FlatSymbolRefAttr target,
                                   const Source *residual, ArrayRef<NamedAttribute> more,
                                   Operation *sum) {
  SmallVector<Attribute> reads;
  Keys keys = {build.key("n", n), build.key("k", k), build.key("epilogue", epilogue)};
  llvm::append_range(keys, more);
  if (failed(addInput(op, input, name, reads, keys)))
    return failure();
  reads.push_back(build.whole(weights));
  if (residual)
    reads.push_back(build.whole(*residual));
  auto stage = build.stage(name, StageKind::Linear, op, reads, {build.whole(target)}, keys, true);
  explainInput(stage, keys, sourceOf(op, input)->norm);
  explainFused(stage, {sum},
               "only this stage's result is added: its epilogue has the sum in registers");
  return success();
}

//===----------------------------------------------------------------------===//
// Reasons
//===----------------------------------------------------------------------===//

void Converter::explain(task::StageOp stage, StringRef what, const Twine &chose,
                        const Twine &because) {
  recordReason(stage, {"moe-convert-to-task", what.str(), chose.str(), because.str()});
}

void Converter::explainFused(task::StageOp stage, ArrayRef<Operation *> ops, const Twine &because) {
  SmallVector<StringRef> names;
  for (Operation *op : ops)
    if (op)
      names.push_back(op->getName().getStringRef());
  if (!names.empty())
    explain(stage, "fused", llvm::join(names, ", "), because);
}

void Converter::explainInput(task::StageOp stage, ArrayRef<NamedAttribute> keys, moe::NormOp norm) {
  auto isShared = [](NamedAttribute key) { return key.getName() == "shares_input"; };
  for (NamedAttribute key : keys)
    if (isShared(key))
      explain(stage, "elided, input rows", "their read",
              llvm::formatv("@{0} before it left the same rows, normed alike, in shared memory",
                            cast<FlatSymbolRefAttr>(key.getValue()).getValue()));
  if (norm && llvm::none_of(keys, isShared))
    explain(stage, "norm", "each SM norms whole rows itself",
            llvm::formatv("every SM reads all {0} values of a row anyway: a norm of its own saves "
                          "an exchange",
                          width(norm.getInput())));
}

LogicalResult Converter::expectMultiple(Operation *op, StringRef what, int64_t size, int64_t of) {
  if (size % of == 0)
    return success();
  return refuse(op, what + " of " + Twine(size) + "; expected a multiple of " + Twine(of));
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

LogicalResult Converter::convert(Operation &op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](moe::EmbedOp op) { return convertEmbed(op); })
      .Case([&](moe::NormOp op) { return convertNorm(op); })
      .Case([&](moe::CastOp op) { return convertCast(op); })
      .Case([&](moe::QkvProjOp op) { return convertQkv(op); })
      .Case([&](moe::AttentionOp op) { return convertAttention(op); })
      .Case([&](moe::LinearOp op) { return convertLinear(op); })
      .Case([&](moe::RouterOp op) { return convertRouter(op); })
      .Case([&](moe::TopKOp op) {
        waitingTopK = op;
        return success();
      })
      .Case([&](moe::GluOp op) { return convertGlu(op); })
      .Case([&](moe::ExpertDownOp op) { return convertExpertDown(op); })
      .Case([&](moe::ResidualOp op) { return convertResidual(op); })
      .Case([&](moe::LmHeadOp op) { return convertHead(op); })
      .Case([&](func::ReturnOp op) { return convertReturn(op); })
      // Read by the op that they are fused into.
      .Case<moe::QkNormOp, moe::RopeOp, moe::KvAppendOp, moe::ExpertGateUpOp, moe::ExpertNormOp,
            moe::CombineOp>([](auto) { return success(); })
      .Case([&](moe::OutputGateOp op) -> LogicalResult {
        if (sources.contains(op.getResult()))
          return success(); // fused into the merge of attention
        return refuse(op, "only of attention's output");
      })
      .Case([&](moe::QuantizeOp op) -> LogicalResult {
        if (llvm::all_of(op.getResult().getUsers(), [](Operation *user) {
              return isa<moe::ExpertGateUpOp, moe::ExpertDownOp>(user);
            }))
          return success(); // by the stage that reads it
        return refuse(op, "but before experts' matrices");
      })
      .Default([&](Operation *op) { return refuse(op, "no stage computes it"); });
}

LogicalResult Converter::convertNorm(moe::NormOp op) {
  if (sources.contains(op.getResult()))
    return success(); // fused
  if (op.getKind() == moe::NormKind::Layer || op.getKind() == moe::NormKind::LayerBias ||
      op.getOver() != moe::NormOver::Row)
    return refuse(op, "only an rms norm of whole rows");
  FailureOr<Source> source = sourceOf(op, op.getInput());
  if (failed(source))
    return failure();
  if (source->norm || !source->buffer)
    return refuse(op, "a norm of a norm");
  if (build.elementOf(*source).isF32())
    return addRows(op, *source, op, source->isRounded, {});
  if (isF32(op.getResult()))
    return refuse(op, "a norm that is not rounded to bf16");
  sources[op.getResult()] = {source->buffer, source->set, op};
  return success();
}

LogicalResult Converter::convertCast(moe::CastOp op) {
  if (sources.contains(op.getResult()))
    return success(); // fused
  FailureOr<Source> source = sourceOf(op, op.getInput());
  if (failed(source))
    return failure();
  if (!source->buffer || !build.elementOf(*source).isF32() || isF32(op.getResult()))
    return refuse(op, "only an fp32 stream rounded to bf16, or normed embeddings widened");
  source->isRounded = true;
  sources[op.getResult()] = *source;
  return success();
}

SmallVector<moe::LinearOp> Converter::besideProjections(moe::QkvProjOp op) {
  SmallVector<moe::LinearOp> found;
  for (auto linear : function.getOps<moe::LinearOp>())
    if (linear.getInput() == op.getInput() && onlyReader<func::ReturnOp>(linear.getResult()))
      found.push_back(linear);
  return found;
}

LogicalResult Converter::convertQkv(moe::QkvProjOp op) {
  if (op.getQBias() || op.getClip())
    return refuse(op, "bias and clip");
  SmallVector<moe::WeightOp> parts = {weight(op.getQWeight()), weight(op.getKWeight()),
                                      weight(op.getVWeight())};
  SmallVector<moe::LinearOp> beside = besideProjections(op);
  for (moe::LinearOp linear : beside) {
    if (linear.getBias())
      return refuse(linear, "a bias");
    parts.push_back(weight(linear.getWeight()));
  }
  int64_t n = 0, k = parts[0].getShape()[1];
  for (moe::WeightOp part : parts)
    n += part.getShape()[0];
  FailureOr<Ref> weights = build.weights("w_qkv", n, k, 1, Pairing::Rows, parts, isNext(op));
  if (failed(weights))
    return failure();
  FlatSymbolRefAttr target = crossing("qkv", n, build.bf16());
  for (Value result : op.getResults())
    sources[result] = {target};
  for (moe::LinearOp linear : beside)
    sources[linear.getResult()] = {target};
  return addLinear(op, "qkv_proj", op.getInput(), *weights, n, k, "qkv", target);
}

LogicalResult Converter::convertLinear(moe::LinearOp op) {
  for (Operation *user : op.getInput().getUsers())
    if (auto projection = dyn_cast<moe::QkvProjOp>(user))
      if (llvm::is_contained(besideProjections(projection), op))
        return success(); // a part of the projections' stage
  if (op.getBias())
    return refuse(op, "a bias");
  auto matrix = weight(op.getWeight());
  int64_t n = matrix.getShape()[0], k = matrix.getShape()[1];
  StringRef short_ = matrix.getSymName();
  if (isNvfp4(matrix)) // what tells formats of one tensor apart
    short_.consume_back("_nvfp4");
  std::string name = short_.ends_with("o_proj") ? "o_proj" : short_.str();
  FailureOr<Ref> weights = build.weights(name == "o_proj" ? "w_o" : "w_" + name, n, k, 1,
                                         Pairing::Rows, matrix, isNext(op));
  if (failed(weights))
    return failure();
  if (moe::ResidualOp residual = onlyResidual(op.getResult())) {
    FailureOr<Source> stream = sourceOf(residual, residual.getStream());
    if (failed(stream))
      return failure();
    if (!stream->norm) {
      FlatSymbolRefAttr target = residualTarget(residual.getResult());
      sources[residual.getResult()] = {target};
      return addLinear(op, name, op.getInput(), *weights, n, k, "residual", target, &*stream, {},
                       residual);
    }
  }
  bool isResult = isReturned(op.getResult());
  FlatSymbolRefAttr target =
      isResult ? build.global("out", build.rows(), n, build.bf16(), Mutability::Written)
               : build.value("y_" + name, build.rows(), n, build.bf16(), false);
  sources[op.getResult()] = {target};
  return addLinear(op, name, op.getInput(), *weights, n, k, "store", target);
}

LogicalResult Converter::convertReturn(func::ReturnOp op) {
  if (waitingTopK)
    return refuse(waitingTopK, "only before experts");
  for (Value value : op.getOperands())
    if (!isa<moe::KVType>(value.getType()) && failed(sourceOf(op, value)))
      return failure();
  return success();
}

namespace {

class ConvertToTask : public megalith::impl::ConvertToTaskBase<ConvertToTask> {
  using ConvertToTaskBase::ConvertToTaskBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
      auto kind = function->getAttrOfType<StringAttr>(kLaunchAttr);
      if (!kind)
        continue;
      FailureOr<int64_t> rows = rowsOf(function);
      if (failed(rows))
        return signalPassFailure();
      StringAttr name = function.getSymNameAttr();
      SymbolTable::setSymbolName(function, ("moe." + name.getValue()).str());
      auto kernel =
          task::KernelOp::create(builder, function.getLoc(), name, kind,
                                 builder.getStringAttr(target), builder.getI64IntegerAttr(sms),
                                 builder.getI64IntegerAttr(*rows), /*smem_bytes=*/IntegerAttr(),
                                 /*residents=*/builder.getI64IntegerAttr(1), /*trace=*/UnitAttr(),
                                 /*launches=*/IntegerAttr(), /*layered=*/IntegerAttr(),
                                 /*ranks=*/builder.getI64IntegerAttr(1));
      mergeReasons(kernel, function);
      kernel.getBody().emplaceBlock();
      if (failed(Converter(function, kernel, *rows).run()))
        return signalPassFailure();
      function.erase();
    }
    for (auto weight : llvm::make_early_inc_range(module.getOps<moe::WeightOp>()))
      weight.erase();
  }

  /// The bucket: the leading size of the function's tensors.
  static FailureOr<int64_t> rowsOf(func::FuncOp function) {
    for (Type type : function.getArgumentTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type))
        return tensor.getDimSize(0);
    return function.emitError() << "expected an argument with a row for each live row";
  }
};

} // namespace
