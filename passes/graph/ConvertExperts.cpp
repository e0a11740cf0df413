// Routing and the experts.
#include "passes/graph/Converter.h"
#include "passes/graph/WeightFormats.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::graph;
using task::Mutability;
using task::Pairing;
using task::StageKind;

/// What one warp's lanes hold of a row's logits and of its choice (codegen/device/router.cuh).
static constexpr int64_t kMaxExperts = 512, kMaxTopK = 16;

LogicalResult Converter::convertRouter(moe::RouterOp op) {
  if (op.getBias())
    return refuse(op, "a bias");
  if (op.getPrecision() != moe::RouterPrecision::F32)
    return refuse(op, "only fp32");
  auto matrix = weight(op.getWeight());
  int64_t n = matrix.getShape()[0], k = matrix.getShape()[1];
  if (failed(expectMultiple(op, "a number of experts", n, 4)))
    return failure();
  if (n > kMaxExperts)
    return refuse(op, Twine(n) + " experts; expected at most " + Twine(kMaxExperts));
  FailureOr<Ref> weights = build.weights("w_router", n, k, 1, Pairing::Rows, matrix, isNext(op),
                                         /*isWide=*/matrix.getFormat().isF32());
  if (failed(weights))
    return failure();
  Ref logits = build.value("logits", build.rows(), n, build.f32(), false);
  sources[op.getLogits()] = {logits};
  Keys keys;
  if (op.getMultiplier() != 1.0)
    keys.push_back(build.key("multiplier", op.getMultiplier()));
  return addLinear(op, "router", op.getInput(), *weights, n, k, "logits", logits, nullptr, keys);
}

// Right before the experts: until then every SM may do what needs no routing.
LogicalResult Converter::convertTopK(moe::TopKOp op) {
  if (op.getGroups())
    return refuse(op, "groups");
  bool isSigmoid = op.getScore() == moe::Score::Sigmoid;
  if (!isSigmoid && (op.getSelectionBias() || op.getRenormalizeEps() != 0.0))
    return refuse(op, "selection bias and renormalize_eps of a softmax");
  if (int64_t(op.getK()) > kMaxTopK)
    return refuse(op, Twine(int64_t(op.getK())) + " experts a token; expected at most " +
                          Twine(kMaxTopK));
  FailureOr<Source> logits = sourceOf(op, op.getLogits());
  if (failed(logits))
    return failure();
  StringRef score = isSigmoid                                  ? "sigmoid"
                    : op.getOver() == moe::ScoreOver::Selected ? "softmax_selected"
                                                               : "softmax";
  Keys keys = {
      build.key("experts", width(op.getLogits())), build.key("k", int64_t(op.getK())),
      build.key("score", score),
      build.key("renormalize", Attribute(BoolAttr::get(op.getContext(), op.getRenormalize())))};
  if (op.getRenormalizeEps() != 0.0)
    keys.push_back(build.key("renormalize_eps", op.getRenormalizeEps()));
  if (op.getScale() != 1.0)
    keys.push_back(build.key("scale", op.getScale()));
  if (op.getSelectionBias()) {
    auto bias = weight(*op.getSelectionBias());
    keys.push_back(
        build.key("bias", build.global(bias.getSymName(), 1, bias.getShape()[0], build.f32(),
                                       Mutability::Immutable, bias.getCheckpoint(), isNext(op))));
  }
  build.stage("top_k", StageKind::TopK, op, {build.whole(*logits)}, {}, keys, false);
  return success();
}

/// The checkpoint's name for the calibrated scale of what a weight meets.
static std::string inputScaleName(StringRef weight) {
  return weight.consume_back(".weight") ? (weight + ".input_scale").str()
                                        : (weight + "_input_scale").str();
}

// Kernels quantise where the rows are read, with the scale that is packed with the weights.
FailureOr<bool> Converter::readsQuantized(Value &rows, Value ids, ArrayRef<moe::WeightOp> weights) {
  auto quantize = rows.getDefiningOp<moe::QuantizeOp>();
  if (!quantize)
    return false;
  if (!isNvfp4(weights))
    return refuse(quantize, "but before NVFP4 weights");
  auto scale = quantize.getGlobal() ? weight(*quantize.getGlobal()) : moe::WeightOp();
  if (!scale || quantize.getIds() != ids || llvm::none_of(weights, [&](moe::WeightOp each) {
        return inputScaleName(each.getCheckpoint()) == scale.getCheckpoint();
      }))
    return refuse(quantize, "a scale other than the weights' own input scale, of all experts "
                            "before gate and up, of the pair's before down");
  rows = quantize.getInput();
  return true;
}

void Converter::explainQuantized(task::StageOp stage) {
  explain(stage, "quantised input", "each SM quantises what it reads",
          "a block's 16 values come from several SMs, so that no one else has them together");
}

LogicalResult Converter::convertGlu(moe::GluOp op) {
  auto projection = op.getGate().getDefiningOp<moe::ExpertGateUpOp>();
  if (!projection || op.getUp() != projection.getUp())
    return refuse(op, "only of an expert's gate and up");
  if (op.getActivation() != moe::Activation::Silu || op.getClamp() || op.getUpOffset() != 0.0)
    return refuse(op, "only silu(gate) * up");
  if (projection.getGateBias())
    return refuse(projection, "expert biases");
  auto gate = weight(projection.getGateWeight()), up = weight(projection.getUpWeight());
  auto isPart = [](moe::WeightOp weight, int64_t index) {
    moe::PartAttr part = weight.getPartAttr();
    return !part || (part.getDim() == 1 && part.getIndex() == index && part.getCount() == 2);
  };
  if (!isPart(gate, 0) || !isPart(up, 1) ||
      (gate.getPartAttr() != nullptr) != (gate.getCheckpoint() == up.getCheckpoint()))
    return refuse(projection, "gate and up as parts of a tensor, unless they are its halves");
  int64_t experts = gate.getShape()[0], inner = gate.getShape()[1], k = gate.getShape()[2];
  if (failed(expectMultiple(projection, "an intermediate size", inner, 8)))
    return failure();
  if (waitingTopK && failed(convertTopK(waitingTopK)))
    return failure();
  waitingTopK = {};
  FailureOr<Ref> weights =
      build.weights("w_up", 2 * inner, k, experts, Pairing::GateUp, {gate, up}, isNext(op));
  if (failed(weights))
    return failure();
  int64_t pairs = cast<RankedTensorType>(op.getResult().getType()).getDimSize(0);
  Ref act = build.value("act", pairs, inner, build.bf16(), false);
  Value rows = projection.getInput();
  FailureOr<bool> isQuantized = readsQuantized(rows, Value(), {gate, up});
  if (failed(isQuantized))
    return failure();
  SmallVector<Attribute> reads;
  Keys keys = {build.key("n", 2 * inner), build.key("k", k), build.key("experts", experts),
               build.key("top_k", pairs / build.rows()), build.key("activation", "silu")};
  // What others read of the same rows is not quantised: these are brought once more.
  if (*isQuantized)
    rowsInSmem = {};
  if (failed(addInput(projection, rows, "expert_up", reads, keys)))
    return failure();
  if (*isQuantized) {
    rowsInSmem = {};
    keys.push_back(build.key("quantize", Attribute(BoolAttr::get(op.getContext(), true))));
  }
  reads.push_back(build.whole(*weights));
  auto stage = build.stage("expert_up", StageKind::ExpertUp, projection, reads, {build.whole(act)},
                           keys, true);
  explainInput(stage, keys, sourceOf(projection, rows)->norm);
  if (*isQuantized)
    explainQuantized(stage);
  explainFused(stage, {op}, "a strip holds a gate row and its up row: the epilogue has both");
  sources[op.getResult()] = {act};
  return success();
}

LogicalResult Converter::convertExpertDown(moe::ExpertDownOp op) {
  if (op.getBias())
    return refuse(op, "a bias");
  auto matrix = weight(op.getWeight());
  Value rows = op.getInput();
  FailureOr<bool> isQuantized = readsQuantized(rows, op.getIds(), matrix);
  if (failed(isQuantized))
    return failure();
  FailureOr<Source> act = sourceOf(op, rows);
  if (failed(act))
    return failure();
  int64_t experts = matrix.getShape()[0], n = matrix.getShape()[1], k = matrix.getShape()[2];
  Keys keys = {build.key("n", n), build.key("k", k), build.key("experts", experts)};
  if (*isQuantized)
    keys.push_back(build.key("quantize", Attribute(BoolAttr::get(op.getContext(), true))));
  auto declareWeights = [&] {
    return build.weights("w_down", n, k, experts, Pairing::Rows, matrix, isNext(op));
  };
  rowsInSmem = {};
  if (onlyReader<moe::ExpertNormOp>(op.getResult())) {
    FailureOr<Ref> weights = declareWeights();
    return failed(weights) ? failure() : convertNormedExperts(op, *act, *weights, keys);
  }

  auto combine = onlyReader<moe::CombineOp>(op.getResult());
  moe::ResidualOp residual = combine ? onlyResidual(combine.getResult()) : moe::ResidualOp();
  if (!residual || combine.getRoundEach())
    return refuse(op, "only with a combine and a plain residual right behind, or with a norm of "
                      "each expert's output and a combine");
  FailureOr<Source> stream = sourceOf(op, residual.getStream());
  if (failed(stream))
    return failure();
  FailureOr<Ref> weights = declareWeights();
  if (failed(weights))
    return failure();
  Ref target = residualTarget(residual.getResult());
  keys.push_back(
      build.key("top_k", cast<RankedTensorType>(combine.getWeights().getType()).getDimSize(1)));
  keys.push_back(build.key("epilogue", "combine_residual"));
  auto stage = build.stage("expert_down", StageKind::ExpertDown, op,
                           {build.whole(*act), build.whole(*weights), build.whole(*stream)},
                           {build.whole(target)}, keys, true);
  if (*isQuantized)
    explainQuantized(stage);
  explainFused(stage, {combine, residual},
               "an SM has the slice of all chosen experts, so it can weigh and add them itself");
  sources[residual.getResult()] = {target};
  return success();
}

/// Every pair's output stays on its rank, sums of its squares go round, and what comes of both is
/// the weighted sum of a row's pairs.
LogicalResult Converter::convertNormedExperts(moe::ExpertDownOp op, const Source &act, Ref weights,
                                              Keys keys) {
  auto norm = onlyReader<moe::ExpertNormOp>(op.getResult());
  auto combine = onlyReader<moe::CombineOp>(norm.getResult());
  bool isScaled = norm.getKind() == moe::NormKind::RmsInputScaled;
  if (norm.getSums() || (!isScaled && norm.getKind() != moe::NormKind::RmsWeightless))
    return refuse(norm, "only an rms norm of whole rows, its weight before it or none");
  if (!combine || combine.getRoundEach() || !isF32(norm.getResult()) || isF32(combine.getResult()))
    return refuse(norm, "only before a combine that adds in fp32 and rounds to bf16");
  int64_t n = width(op.getResult()), pairs = cast<RankedTensorType>(op.getType()).getDimSize(0);
  if (failed(expectMultiple(norm, "an experts' width", n, 64)))
    return failure();
  int64_t topK = pairs / build.rows();
  keys.push_back(build.key("top_k", topK));
  keys.push_back(build.key("epilogue", "squares"));
  if (isScaled)
    keys.push_back(build.key("gain", gainOf(weight(*norm.getWeight()), isNext(norm),
                                            norm.getGain() == moe::Gain::OnePlus)));
  Ref outputs = build.value("t", pairs, n, build.bf16(), false);
  Ref squares = build.value("squares", pairs, n / 16, build.f32(), false);
  Ref sum = build.value("m", build.rows(), n, build.bf16(), false);
  auto down = build.stage("expert_down", StageKind::ExpertDown, op,
                          {build.whole(act), build.whole(weights)},
                          {build.whole(outputs), build.whole(squares)}, keys, true);
  build.stage("combine_experts", StageKind::Combine, combine,
              {build.whole(outputs), build.whole(squares)}, {build.whole(sum)},
              {build.key("n", n), build.key("top_k", topK), build.key("eps", norm.getEps())},
              /*hasStaticTiles=*/false);
  explainFused(
      down, {norm},
      "of a tile's channels it adds the squares; a row's scale is known when all are there");
  sources[combine.getResult()] = {sum};
  return success();
}
