// The residual stream: where it begins, what joins it, what is read of it at the end.
#include "passes/graph/Converter.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::graph;
using task::Mutability;
using task::Pairing;
using task::StageKind;

LogicalResult Converter::convertEmbed(moe::EmbedOp op) {
  if (op.getMultiplier() != 1.0)
    return refuse(op, "a multiplier other than 1");
  auto table = weight(op.getWeight());
  if (failed(expectMultiple(op, "a hidden size", table.getShape()[1], 8)))
    return failure();
  // An fp32 stream begins with normed rows, rounded to bf16.
  Value result = op.getResult();
  auto norm = onlyReader<moe::NormOp>(result);
  auto cast = norm ? onlyReader<moe::CastOp>(norm.getResult()) : moe::CastOp();
  bool isNormed = cast && isF32(cast.getResult()) && !isF32(norm.getResult()) &&
                  norm.getKind() == moe::NormKind::RmsWeightless &&
                  norm.getOver() == moe::NormOver::Row;
  Ref rows = build.global("embedding", table.getShape()[0], table.getShape()[1], build.bf16(),
                          Mutability::Immutable, table.getCheckpoint());
  Keys keys = {build.key("hidden", table.getShape()[1]), build.key("vocab", table.getShape()[0])};
  if (isNormed) {
    keys.push_back(build.key("norm", "rms"));
    keys.push_back(build.key("eps", norm.getEps()));
    result = cast.getResult();
  } else if (isF32(result)) {
    return refuse(op, "an fp32 stream, but for rows that a norm without weight rounds to bf16");
  }
  Ref target = resid(result);
  build.stage("embed", StageKind::Embed, op, {build.whole(rows)}, {build.whole(target)}, keys,
              /*hasStaticTiles=*/!isNormed);
  sources[result] = {target};
  if (isNormed) // nobody else reads it
    sources[norm.getResult()] = {target};
  return success();
}

moe::ResidualOp Converter::onlyResidual(Value branch) {
  auto residual = onlyReader<moe::ResidualOp>(branch);
  if (!residual || residual.getKind() != moe::ResidualKind::Plain ||
      residual.getBranches().size() != 1 || residual.getBranches().front() != branch ||
      isF32(residual.getResult()))
    return {};
  return residual;
}

FlatSymbolRefAttr Converter::residualTarget(Value result) {
  if (isReturned(result))
    return resid(result);
  Type element = isF32(result) ? build.f32() : build.bf16();
  return build.value("mid", build.rows(), width(result), element, false);
}

LogicalResult Converter::convertResidual(moe::ResidualOp op) {
  if (sources.contains(op.getResult()))
    return success(); // fused into its branch's stage
  if (!isF32(op.getResult()) || op.getBranches().size() != 1 ||
      op.getKind() == moe::ResidualKind::Scaled)
    return refuse(op, "only a plain sum of the stream and one branch that nothing else reads, or "
                      "one branch, gated or not, of an fp32 stream");
  FailureOr<Source> stream = sourceOf(op, op.getStream());
  if (failed(stream))
    return failure();
  // The norm before the next projections: every SM has the rows at hand.
  moe::NormOp norm;
  bool isRounded = false;
  for (Operation *user : op.getResult().getUsers()) {
    auto found = dyn_cast<moe::NormOp>(user);
    auto cast = dyn_cast<moe::CastOp>(user);
    if (cast)
      found = onlyReader<moe::NormOp>(cast.getResult());
    if (!found)
      continue;
    if (norm)
      return refuse(op, "two norms of one stream");
    norm = found;
    isRounded = cast != nullptr;
  }
  if (!norm)
    return refuse(op, "an fp32 stream that no norm reads");
  return addRows(op, *stream, norm, isRounded, op);
}

LogicalResult Converter::addBranch(moe::ResidualOp residual, SmallVectorImpl<Attribute> &reads,
                                   Keys &keys) {
  Value branch = residual.getBranches().front();
  FailureOr<Source> source = sourceOf(residual, branch);
  if (failed(source))
    return failure();
  if (!source->buffer || isF32(branch))
    return refuse(residual, "a branch that is not bf16 rows of a stage");
  reads.push_back(build.whole(*source));
  StringRef kind = "none";
  if (moe::NormOp norm = source->norm) {
    kind = norm.getKind() == moe::NormKind::RmsInputScaled ? "input_scaled" : "rms";
    keys.push_back(build.key("branch_eps", norm.getEps()));
    if (norm.getWeight())
      keys.push_back(build.key("branch_gain", gainOf(weight(*norm.getWeight()), isNext(norm),
                                                     norm.getGain() == moe::Gain::OnePlus)));
  }
  keys.push_back(build.key("branch_norm", kind));
  if (residual.getKind() != moe::ResidualKind::Gated)
    return success();
  auto gate = weight(*residual.getGate());
  DictionaryAttr load =
      build.dictionary({build.key("kind", "residual_gate"),
                        build.key("temperature", residual.getTemperature().value()),
                        build.key("floor", residual.getFloor().value())});
  keys.push_back(build.key(
      "gate", build.global(("c_" + gate.getSymName()).str(), 2, gate.getShape()[0], build.f32(),
                           Mutability::Immutable, gate.getCheckpoint(), isNext(residual), load)));
  return success();
}

LogicalResult Converter::addRows(Operation *op, const Source &stream, moe::NormOp norm,
                                 bool isRounded, moe::ResidualOp residual) {
  if ((norm.getKind() != moe::NormKind::Rms && norm.getKind() != moe::NormKind::RmsWeightless) ||
      norm.getOver() != moe::NormOver::Row || isF32(norm.getResult()))
    return refuse(norm, "only an rms norm of whole rows of an fp32 stream, rounded to bf16");
  if (failed(expectMultiple(norm, "a hidden size", width(norm.getResult()), 8)))
    return failure();
  Keys keys = {build.key("k", width(norm.getResult())), build.key("eps", norm.getEps())};
  if (norm.getWeight())
    keys.push_back(build.key("gain", gainOf(weight(*norm.getWeight()), isNext(norm),
                                            norm.getGain() == moe::Gain::OnePlus)));
  if (isRounded)
    keys.push_back(build.key("round_stream", Attribute(BoolAttr::get(op->getContext(), true))));
  SmallVector<Attribute> reads, writes;
  if (residual) {
    if (failed(addBranch(residual, reads, keys)))
      return failure();
    Ref target = residualTarget(residual.getResult());
    writes.push_back(build.whole(target));
    sources[residual.getResult()] = {target};
  } else {
    keys.push_back(build.key("branch_norm", "absent"));
  }
  reads.push_back(build.whole(stream));
  bool isLast = residual && isReturned(residual.getResult());
  StringRef name = isLast           ? "out_rows"
                   : residual       ? "mid_rows"
                   : kind == "last" ? "final_rows"
                                    : "in_rows";
  auto stage = build.stage(name, StageKind::Rows, op, reads, writes, keys, false);
  // Only in shared memory: whoever reads them says so to addInput.
  sources[norm.getResult()] = {};
  rowsInSmem = {norm.getResult(), FlatSymbolRefAttr::get(stage.getSymNameAttr())};
  // What the last launch leaves of the stream is for the host; words that nobody polls would never
  // be known to have arrived, so the head takes its rows from them.
  if (isLast && kind == "last")
    return addRows(op, sources[residual.getResult()], norm, isRounded, {});
  return success();
}

LogicalResult Converter::convertHead(moe::LmHeadOp op) {
  if (op.getBias())
    return refuse(op, "a bias");
  auto matrix = weight(op.getWeight());
  int64_t n = matrix.getShape()[0], k = matrix.getShape()[1];
  if (failed(expectMultiple(op, "a vocabulary", n, 2)))
    return failure();
  FailureOr<Ref> weights = build.weights("w_head", n, k, 1, Pairing::Rows, matrix, isNext(op));
  if (failed(weights))
    return failure();
  Ref out = build.global("out", build.rows(), n, build.f32(), Mutability::Written);
  sources[op.getResult()] = {out};
  Keys keys;
  if (double multiplier = op.getMultiplier(); multiplier != 1.0)
    keys.push_back(build.key("multiplier", multiplier));
  if (op.getSoftcap())
    keys.push_back(build.key("softcap", *op.getSoftcap()));
  if (op.getValidVocab())
    keys.push_back(build.key("valid", int64_t(*op.getValidVocab())));
  return addLinear(op, "head", op.getInput(), *weights, n, k, "head", out, nullptr, keys);
}
