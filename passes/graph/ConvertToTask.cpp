// moe-convert-to-task: follows the data flow of a launch function and makes a stage of every op
// that needs an exchange of its own; norms, residuals, activations and KV writes join the stage
// that computes their input or output. What has no form yet is refused by name.
#include "passes/graph/StageBuilder.h"
#include "passes/graph/WeightFormats.h"
#include "passes/why/Why.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
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

namespace {

/// At most this many pieces of a sequence are merged (DESIGN section 5).
constexpr int64_t kMaxSplits = 32;
/// Positions of a KV page.
constexpr int64_t kPagePositions = 64;
/// What one warp's lanes hold of a row's logits and of its choice (codegen/device/router.cuh).
constexpr int64_t kMaxExperts = 512, kMaxTopK = 16;

class Converter {
public:
  Converter(func::FuncOp function, task::KernelOp kernel, int64_t rows)
      : function(function), module(function->getParentOfType<ModuleOp>()), build(kernel, rows) {}

  LogicalResult run() {
    kind = function->getAttrOfType<StringAttr>(kLaunchAttr).getValue();
    declareArguments();
    for (Operation &op : function.getBody().front())
      if (failed(convert(op)))
        return failure();
    return success();
  }

private:
  using Keys = SmallVector<NamedAttribute>;

  //===--------------------------------------------------------------------===//
  // Values
  //===--------------------------------------------------------------------===//

  static int64_t width(Value value) {
    return cast<RankedTensorType>(value.getType()).getDimSize(1);
  }
  bool isNext(Operation *op) { return op->hasAttr(kNextAttr); }
  bool isReturned(Value value) {
    return llvm::any_of(value.getUsers(),
                        [](Operation *user) { return isa<func::ReturnOp>(user); });
  }
  moe::WeightOp weight(StringRef name) { return module.lookupSymbol<moe::WeightOp>(name); }

  /// A layer function's arguments are what the previous launch left: the residual, raw q, k, v as
  /// column ranges of one value, and the pages. Any other function's arguments are immutable
  /// inputs.
  void declareArguments() {
    auto arguments = function.getArguments();
    bool isLayer = kind == "layer" || kind == "last";
    if (isLayer) {
      sources[arguments[0]] = {resid(width(arguments[0])), task::Set::Previous, {}};
      int64_t qkv = width(arguments[1]) + width(arguments[2]) + width(arguments[3]);
      Source source = {crossing("qkv", qkv), task::Set::Previous, {}};
      for (Value raw : arguments.slice(1, 3))
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

  FlatSymbolRefAttr crossing(StringRef name, int64_t cols) {
    FlatSymbolRefAttr &ref = crossings[name];
    if (!ref)
      ref = build.value(name, build.rows(), cols, build.bf16(), /*isCrossing=*/true);
    return ref;
  }
  FlatSymbolRefAttr resid(int64_t cols) { return crossing("resid", cols); }

  FailureOr<Source> sourceOf(Operation *reader, Value value) {
    auto it = sources.find(value);
    if (it != sources.end())
      return it->second;
    return reader->emitOpError() << "reads the result of "
                                 << (value.getDefiningOp()
                                         ? value.getDefiningOp()->getName().getStringRef()
                                         : StringRef("an argument"))
                                 << ", which no stage computes in this form yet";
  }

  /// Where a sum of residual and branch goes: across the boundary if the launch returns it.
  FlatSymbolRefAttr residualTarget(Value result) {
    if (isReturned(result))
      return resid(width(result));
    return build.value("mid", build.rows(), width(result), build.bf16(), false);
  }

  //===--------------------------------------------------------------------===//
  // Shared pieces of stages
  //===--------------------------------------------------------------------===//

  /// The rows a gemv stage reads: a read of them with the norm to apply, or the earlier stage that
  /// left the same rows in shared memory.
  LogicalResult addInput(Operation *op, Value input, StringRef stageName,
                         SmallVectorImpl<Attribute> &reads, Keys &keys) {
    FailureOr<Source> source = sourceOf(op, input);
    if (failed(source))
      return failure();
    if (rowsInSmem.value == input && rowsInSmem.stage) {
      keys.push_back(build.key("shares_input", rowsInSmem.stage));
      return success();
    }
    reads.push_back(build.whole(*source));
    rowsInSmem = {input, FlatSymbolRefAttr::get(op->getContext(), stageName)};
    moe::NormOp norm = source->norm;
    keys.push_back(build.key("norm", norm ? "rms" : "none"));
    if (norm) {
      auto gain = weight(*norm.getWeight());
      keys.push_back(build.key("eps", norm.getEps()));
      keys.push_back(build.key("gain", gainOf(gain, isNext(norm))));
    }
    return success();
  }

  FlatSymbolRefAttr gainOf(moe::WeightOp gain, bool isNext) {
    FlatSymbolRefAttr &ref = gains[{gain, unsigned(isNext)}];
    if (!ref)
      ref = build.global(gainName(gain), 1, gain.getShape()[0], build.bf16(), Mutability::Immutable,
                         gain.getCheckpoint(), isNext);
    return ref;
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

  /// A linear stage over `weights` from `input` to `target`.
  LogicalResult addLinear(Operation *op, StringRef name, Value input, FlatSymbolRefAttr weights,
                          int64_t n, int64_t k, StringRef epilogue, FlatSymbolRefAttr target,
                          const Source *residual = nullptr, Operation *sum = nullptr) {
    SmallVector<Attribute> reads;
    Keys keys = {build.key("n", n), build.key("k", k), build.key("epilogue", epilogue)};
    if (failed(addInput(op, input, name, reads, keys)))
      return failure();
    reads.push_back(build.whole(weights));
    if (residual)
      reads.push_back(build.whole(*residual));
    auto stage = build.stage(name, StageKind::Linear, op, reads, {build.whole(target)}, keys, true);
    explainInput(stage, keys, sourceOf(op, input)->norm);
    explainFused(stage, {sum},
                 "only this stage's result is added: its epilogue has the sum in "
                 "registers");
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Reasons
  //===--------------------------------------------------------------------===//

  static void explain(task::StageOp stage, StringRef what, const Twine &chose,
                      const Twine &because) {
    recordReason(stage, {"moe-convert-to-task", what.str(), chose.str(), because.str()});
  }

  /// `ops` of the graph that the stage computes beside its own.
  static void explainFused(task::StageOp stage, ArrayRef<Operation *> ops, const Twine &because) {
    SmallVector<StringRef> names;
    for (Operation *op : ops)
      if (op)
        names.push_back(op->getName().getStringRef());
    if (!names.empty())
      explain(stage, "fused", llvm::join(names, ", "), because);
  }

  /// Where the rows of a stage come from that addInput gave `keys`.
  static void explainInput(task::StageOp stage, const Keys &keys, moe::NormOp norm) {
    auto isShared = [](NamedAttribute key) { return key.getName() == "shares_input"; };
    for (NamedAttribute key : keys)
      if (isShared(key))
        explain(stage, "elided, input rows", "their read",
                llvm::formatv("@{0} before it left the same rows, normed alike, in shared memory",
                              cast<FlatSymbolRefAttr>(key.getValue()).getValue()));
    if (norm && llvm::none_of(keys, isShared))
      explain(
          stage, "norm", "each SM norms whole rows itself",
          llvm::formatv("every SM reads all {0} values of a row anyway: a norm of its own saves "
                        "an exchange",
                        width(norm.getInput())));
  }

  /// The plain residual that is the only reader of `branch`, with the stream it adds to.
  moe::ResidualOp onlyResidual(Value branch) {
    if (!branch.hasOneUse())
      return {};
    auto residual = dyn_cast<moe::ResidualOp>(*branch.getUsers().begin());
    if (!residual || residual.getKind() != moe::ResidualKind::Plain ||
        residual.getBranches().size() != 1 || residual.getBranches().front() != branch)
      return {};
    return residual;
  }

  LogicalResult refuse(Operation *op, const Twine &what) {
    return op->emitOpError() << "has no kernel form yet: " << what;
  }

  /// Refuses sizes that the device headers have no loop for: rows travel as vectors of 16 bytes,
  /// results as words.
  LogicalResult expectMultiple(Operation *op, StringRef what, int64_t size, int64_t of) {
    if (size % of == 0)
      return success();
    return refuse(op, what + " of " + Twine(size) + "; expected a multiple of " + Twine(of));
  }

  //===--------------------------------------------------------------------===//
  // Ops
  //===--------------------------------------------------------------------===//

  LogicalResult convert(Operation &op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
        .Case([&](moe::EmbedOp op) { return convertEmbed(op); })
        .Case([&](moe::NormOp op) { return convertNorm(op); })
        .Case([&](moe::QkvProjOp op) { return convertQkv(op); })
        .Case([&](moe::AttentionOp op) { return convertAttention(op); })
        .Case([&](moe::LinearOp op) { return convertLinear(op); })
        .Case([&](moe::RouterOp op) { return convertRouter(op); })
        .Case([&](moe::TopKOp op) { return convertTopK(op); })
        .Case([&](moe::GluOp op) { return convertGlu(op); })
        .Case([&](moe::ExpertDownOp op) { return convertExpertDown(op); })
        .Case([&](moe::LmHeadOp op) { return convertHead(op); })
        .Case([&](func::ReturnOp op) { return convertReturn(op); })
        // Read by the op that they are fused into.
        .Case<moe::QkNormOp, moe::RopeOp, moe::KvAppendOp, moe::ExpertGateUpOp, moe::CombineOp>(
            [](auto) { return success(); })
        .Case([&](moe::ResidualOp op) -> LogicalResult {
          if (sources.contains(op.getResult()))
            return success(); // fused into its branch's stage
          return refuse(op,
                        "only a plain sum of the stream and one branch that nothing else reads");
        })
        .Default([&](Operation *op) { return refuse(op, "no stage computes it"); });
  }

  LogicalResult convertEmbed(moe::EmbedOp op) {
    if (op.getMultiplier() != 1.0)
      return refuse(op, "a multiplier other than 1");
    auto table = weight(op.getWeight());
    if (failed(expectMultiple(op, "a hidden size", table.getShape()[1], 8)))
      return failure();
    FlatSymbolRefAttr rows =
        build.global("embedding", table.getShape()[0], table.getShape()[1], build.bf16(),
                     Mutability::Immutable, table.getCheckpoint());
    FlatSymbolRefAttr target = resid(width(op.getResult()));
    build.stage("embed", StageKind::Embed, op, {build.whole(rows)}, {build.whole(target)},
                {build.key("hidden", table.getShape()[1]), build.key("vocab", table.getShape()[0])},
                true);
    sources[op.getResult()] = {target};
    return success();
  }

  LogicalResult convertNorm(moe::NormOp op) {
    if (op.getKind() != moe::NormKind::Rms || op.getOver() != moe::NormOver::Row ||
        op.getGain() != moe::Gain::Absolute)
      return refuse(op, "only an rms norm of whole rows by an absolute weight");
    FailureOr<Source> source = sourceOf(op, op.getInput());
    if (failed(source))
      return failure();
    if (source->norm)
      return refuse(op, "a norm of a norm");
    sources[op.getResult()] = {source->buffer, source->set, op};
    return success();
  }

  LogicalResult convertQkv(moe::QkvProjOp op) {
    if (op.getQBias() || op.getClip())
      return refuse(op, "bias and clip");
    moe::WeightOp parts[] = {weight(op.getQWeight()), weight(op.getKWeight()),
                             weight(op.getVWeight())};
    SmallVector<StringRef> names;
    int64_t n = 0, k = parts[0].getShape()[1];
    for (moe::WeightOp part : parts) {
      names.push_back(part.getCheckpoint());
      n += part.getShape()[0];
    }
    FlatSymbolRefAttr weights = build.weights("w_qkv", n, k, 1, Pairing::Rows, names, isNext(op));
    FlatSymbolRefAttr target = crossing("qkv", n);
    for (Value result : op.getResults())
      sources[result] = {target};
    return addLinear(op, "qkv_proj", op.getInput(), weights, n, k, "qkv", target);
  }

  /// Merge tiles of one query head (codegen/device/merge.cuh): more of them spread the reading of
  /// partial results over more SMs.
  int64_t mergePartsOf(int64_t heads) {
    return build.rows() * heads * 4 <= build.sms() * 2 ? 4 : 1;
  }

  LogicalResult convertAttention(moe::AttentionOp op) {
    if (op.getMask() != moe::AttentionMask::Full || op.getSinks())
      return refuse(op, "windows, chunks and sinks");
    auto append = op.getKv().getDefiningOp<moe::KvAppendOp>();
    auto rope = op.getQ().getDefiningOp<moe::RopeOp>();
    if (!append || !rope || append.getK() != rope.getKOut())
      return refuse(op,
                    "only rotated queries over a cache to which the rotated keys were appended");
    if (rope.getPairing() != moe::RopePairing::HalfSplit || rope.getScaling() ||
        rope.getRotaryDims() != rope.getHeadDim())
      return refuse(rope, "only half-split pairs over the whole head, unscaled");
    auto norm = rope.getQ().getDefiningOp<moe::QkNormOp>();
    if (norm && (norm.getKind() != moe::NormKind::Rms || norm.getOver() != moe::NormOver::Head ||
                 norm.getGain() != moe::Gain::Absolute))
      return refuse(norm, "only an rms norm of each head by an absolute weight");
    Value rawQ = norm ? norm.getQ() : rope.getQ(), rawK = norm ? norm.getK() : rope.getK();
    FailureOr<Source> source = sourceOf(op, rawQ);
    if (failed(source) || failed(sourceOf(op, rawK)) || failed(sourceOf(op, append.getV())))
      return failure();

    auto cache = cast<moe::KVType>(op.getKv().getType());
    int64_t headDim = cache.getHeadDim(), heads = op.getHeads(), kvHeads = cache.getHeads();
    if (failed(expectMultiple(op, "a head size", headDim, 64)))
      return failure();
    if (rope.getTheta() <= 1.0)
      return refuse(rope, "a base of at most 1; expected one above 1");
    FlatSymbolRefAttr pages =
        build.global("kv", kvHeads, 2 * kPagePositions * headDim, build.bf16(), Mutability::Pages);
    FlatSymbolRefAttr frequencies =
        build.global("inv_freq", 1, headDim / 2, build.f32(), Mutability::Immutable);
    int64_t parts = mergePartsOf(heads);
    FlatSymbolRefAttr partials = build.value("partials", build.rows() * heads * parts * kMaxSplits,
                                             headDim / parts + 2, build.f32(), false);
    FlatSymbolRefAttr attn =
        build.value("attn", build.rows(), heads * headDim, build.bf16(), false);
    Keys keys = {build.key("q_heads", heads),
                 build.key("kv_heads", kvHeads),
                 build.key("head_dim", headDim),
                 build.key("scale", op.getScale()),
                 build.key("rope_theta", rope.getTheta()),
                 build.key("max_positions", cache.getPositions()),
                 build.key("merge_parts", parts),
                 build.key("inv_freq", frequencies),
                 build.key("qk_norm", norm ? "head" : "none")};
    if (norm) {
      keys.push_back(build.key("eps", norm.getEps()));
      keys.push_back(build.key("q_gain", gainOf(weight(*norm.getQWeight()), false)));
      keys.push_back(build.key("k_gain", gainOf(weight(*norm.getKWeight()), false)));
    }
    auto attention = build.stage("attention", StageKind::Attention, op,
                                 {build.whole(*source), build.whole(pages)},
                                 {build.whole(partials), build.whole(pages)}, keys, false);
    auto merge =
        build.stage("merge", StageKind::Merge, op, {build.whole(partials)}, {build.whole(attn)},
                    {build.key("q_heads", heads), build.key("head_dim", headDim),
                     build.key("merge_parts", parts)},
                    false);
    explainFused(attention, {norm, rope, append},
                 "each tile has its heads' raw words at hand, and each new position one owning "
                 "tile");
    explain(merge, "parts", Twine(parts) + (parts == 1 ? " a query head" : " of a query head"),
            llvm::formatv("{0} rows x {1} heads x 4 parts are {2} than 2 of {3} SMs each: "
                          "{4}",
                          build.rows(), heads, parts == 1 ? "more" : "no more", build.sms(),
                          parts == 1 ? "more parts would not spread the reading further"
                                     : "parts spread the reading of partial results"));
    rowsInSmem = {};
    sources[op.getResult()] = {attn};
    return success();
  }

  LogicalResult convertLinear(moe::LinearOp op) {
    if (op.getBias())
      return refuse(op, "a bias");
    auto matrix = weight(op.getWeight());
    int64_t n = matrix.getShape()[0], k = matrix.getShape()[1];
    StringRef short_ = matrix.getSymName();
    std::string name = short_.ends_with("o_proj") ? "o_proj" : short_.str();
    FlatSymbolRefAttr weights = build.weights(name == "o_proj" ? "w_o" : "w_" + name, n, k, 1,
                                              Pairing::Rows, {matrix.getCheckpoint()}, isNext(op));
    if (moe::ResidualOp residual = onlyResidual(op.getResult())) {
      FailureOr<Source> stream = sourceOf(residual, residual.getStream());
      if (failed(stream))
        return failure();
      if (!stream->norm) {
        FlatSymbolRefAttr target = residualTarget(residual.getResult());
        sources[residual.getResult()] = {target};
        return addLinear(op, name, op.getInput(), weights, n, k, "residual", target, &*stream,
                         residual);
      }
    }
    bool isResult = isReturned(op.getResult());
    FlatSymbolRefAttr target =
        isResult ? build.global("out", build.rows(), n, build.bf16(), Mutability::Written)
                 : build.value("y_" + name, build.rows(), n, build.bf16(), false);
    sources[op.getResult()] = {target};
    return addLinear(op, name, op.getInput(), weights, n, k, "store", target);
  }

  LogicalResult convertRouter(moe::RouterOp op) {
    if (op.getBias() || op.getMultiplier() != 1.0)
      return refuse(op, "a bias or a multiplier other than 1");
    auto matrix = weight(op.getWeight());
    int64_t n = matrix.getShape()[0], k = matrix.getShape()[1];
    if (failed(expectMultiple(op, "a number of experts", n, 4)))
      return failure();
    if (n > kMaxExperts)
      return refuse(op, Twine(n) + " experts; expected at most " + Twine(kMaxExperts));
    FlatSymbolRefAttr weights =
        build.weights("w_router", n, k, 1, Pairing::Rows, {matrix.getCheckpoint()}, isNext(op));
    FlatSymbolRefAttr logits = build.value("logits", build.rows(), n, build.f32(), false);
    sources[op.getLogits()] = {logits};
    return addLinear(op, "router", op.getInput(), weights, n, k, "logits", logits);
  }

  LogicalResult convertTopK(moe::TopKOp op) {
    if (op.getSelectionBias() || op.getGroups() || op.getScale() != 1.0 ||
        op.getRenormalizeEps() != 0.0)
      return refuse(op, "selection bias, groups, scale and renormalize_eps");
    if (int64_t(op.getK()) > kMaxTopK)
      return refuse(op, Twine(int64_t(op.getK())) + " experts a token; expected at most " +
                            Twine(kMaxTopK));
    FailureOr<Source> logits = sourceOf(op, op.getLogits());
    if (failed(logits))
      return failure();
    StringRef score = op.getScore() == moe::Score::Sigmoid       ? "sigmoid"
                      : op.getOver() == moe::ScoreOver::Selected ? "softmax_selected"
                                                                 : "softmax";
    build.stage(
        "top_k", StageKind::TopK, op, {build.whole(*logits)}, {},
        {build.key("experts", width(op.getLogits())), build.key("k", int64_t(op.getK())),
         build.key("score", score),
         build.key("renormalize", Attribute(BoolAttr::get(op.getContext(), op.getRenormalize())))},
        false);
    return success();
  }

  LogicalResult convertGlu(moe::GluOp op) {
    auto projection = op.getGate().getDefiningOp<moe::ExpertGateUpOp>();
    if (!projection || op.getUp() != projection.getUp())
      return refuse(op, "only of an expert's gate and up");
    if (op.getActivation() != moe::Activation::Silu || op.getClamp() || op.getUpOffset() != 0.0)
      return refuse(op, "only silu(gate) * up");
    if (projection.getGateBias())
      return refuse(projection, "expert biases");
    auto gate = weight(projection.getGateWeight()), up = weight(projection.getUpWeight());
    int64_t experts = gate.getShape()[0], inner = gate.getShape()[1], k = gate.getShape()[2];
    if (failed(expectMultiple(projection, "an intermediate size", inner, 8)))
      return failure();
    FlatSymbolRefAttr weights =
        build.weights("w_up", 2 * inner, k, experts, Pairing::GateUp,
                      {gate.getCheckpoint(), up.getCheckpoint()}, isNext(op));
    int64_t pairs = cast<RankedTensorType>(op.getResult().getType()).getDimSize(0);
    FlatSymbolRefAttr act = build.value("act", pairs, inner, build.bf16(), false);
    SmallVector<Attribute> reads;
    Keys keys = {build.key("n", 2 * inner), build.key("k", k), build.key("experts", experts),
                 build.key("top_k", pairs / build.rows()), build.key("activation", "silu")};
    if (failed(addInput(projection, projection.getInput(), "expert_up", reads, keys)))
      return failure();
    reads.push_back(build.whole(weights));
    auto stage = build.stage("expert_up", StageKind::ExpertUp, projection, reads,
                             {build.whole(act)}, keys, true);
    explainInput(stage, keys, sourceOf(projection, projection.getInput())->norm);
    explainFused(stage, {op}, "a strip holds a gate row and its up row: the epilogue has both");
    sources[op.getResult()] = {act};
    return success();
  }

  LogicalResult convertExpertDown(moe::ExpertDownOp op) {
    if (op.getBias())
      return refuse(op, "a bias");
    auto combine = op.getResult().hasOneUse()
                       ? dyn_cast<moe::CombineOp>(*op.getResult().getUsers().begin())
                       : moe::CombineOp();
    moe::ResidualOp residual = combine ? onlyResidual(combine.getResult()) : moe::ResidualOp();
    if (!residual)
      return refuse(op, "only with a combine and a plain residual right behind");
    FailureOr<Source> act = sourceOf(op, op.getInput()),
                      stream = sourceOf(op, residual.getStream());
    if (failed(act) || failed(stream))
      return failure();
    auto matrix = weight(op.getWeight());
    int64_t experts = matrix.getShape()[0], n = matrix.getShape()[1], k = matrix.getShape()[2];
    FlatSymbolRefAttr weights =
        build.weights("w_down", n, k, experts, Pairing::Rows, {matrix.getCheckpoint()}, isNext(op));
    FlatSymbolRefAttr target = residualTarget(residual.getResult());
    auto stage = build.stage(
        "expert_down", StageKind::ExpertDown, op,
        {build.whole(*act), build.whole(weights), build.whole(*stream)}, {build.whole(target)},
        {build.key("n", n), build.key("k", k), build.key("experts", experts),
         build.key("top_k", cast<RankedTensorType>(combine.getWeights().getType()).getDimSize(1)),
         build.key("epilogue", "combine_residual")},
        true);
    explainFused(stage, {combine, residual},
                 "an SM has the slice of all chosen experts, so it can weigh and add them itself");
    rowsInSmem = {};
    sources[residual.getResult()] = {target};
    return success();
  }

  LogicalResult convertHead(moe::LmHeadOp op) {
    if (op.getBias() || op.getSoftcap() || op.getValidVocab() || op.getMultiplier() != 1.0)
      return refuse(op, "bias, multiplier, softcap and masked ids");
    auto matrix = weight(op.getWeight());
    int64_t n = matrix.getShape()[0], k = matrix.getShape()[1];
    if (failed(expectMultiple(op, "a vocabulary", n, 2)))
      return failure();
    FlatSymbolRefAttr weights =
        build.weights("w_head", n, k, 1, Pairing::Rows, {matrix.getCheckpoint()}, isNext(op));
    FlatSymbolRefAttr out = build.global("out", build.rows(), n, build.f32(), Mutability::Written);
    sources[op.getResult()] = {out};
    return addLinear(op, "head", op.getInput(), weights, n, k, "head", out);
  }

  LogicalResult convertReturn(func::ReturnOp op) {
    for (Value value : op.getOperands())
      if (!isa<moe::KVType>(value.getType()) && failed(sourceOf(op, value)))
        return failure();
    return success();
  }

  func::FuncOp function;
  ModuleOp module;
  StageBuilder build;
  StringRef kind;
  llvm::DenseMap<Value, Source> sources;
  llvm::StringMap<FlatSymbolRefAttr> crossings;
  llvm::DenseMap<std::pair<Operation *, unsigned>, FlatSymbolRefAttr> gains;
  /// The activation rows the last gemv stage left in shared memory, and that stage.
  struct {
    Value value;
    FlatSymbolRefAttr stage;
  } rowsInSmem;
};

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
      kernel.getBody().emplaceBlock();
      mergeReasons(kernel, function);
      if (failed(Converter(function, kernel, *rows).run()))
        return signalPassFailure();
      function.erase();
    }
    if (failed(checkWeightFormats(module)))
      return signalPassFailure();
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
