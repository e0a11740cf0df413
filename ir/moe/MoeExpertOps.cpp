//===- MoeExpertOps.cpp - verifiers of routing and experts ------------------===//

#include "ir/moe/MoeVerify.h"

#include <cmath>

using namespace mlir;
using namespace megalith::moe::detail;

namespace megalith::moe {

LogicalResult RouterOp::verify() {
  if (failed(expectFinite(*this, "multiplier", getMultiplier())))
    return failure();
  return expectShape(*this, "result", getLogits(), {rows(getInput()), columns(getLogits())});
}

LogicalResult RouterOp::verifySymbolUses(SymbolTableCollection &symbols) {
  int64_t experts = columns(getLogits());
  if (failed(
          expectWeight(*this, symbols, getWeightAttr(), "weight", {experts, columns(getInput())})))
    return failure();
  return expectWeight(*this, symbols, getBiasAttr(), "bias", {experts});
}

/// Both of groups and top_groups or neither; k experts must fit into the groups kept.
static LogicalResult verifyGroups(TopKOp op, int64_t experts) {
  bool grouped = !!op.getGroupsAttr();
  if (failed(expectPresence(op, "top_groups", !!op.getTopGroupsAttr(), grouped,
                            grouped ? "with groups" : "without groups")))
    return failure();
  if (!grouped)
    return success();
  int64_t groups = *op.getGroups(), top = *op.getTopGroups();
  if (failed(expectDivides(op, "groups", groups, "experts", experts)))
    return failure();
  if (top < 1 || top > groups)
    return op.emitOpError() << "expected top_groups of 1 to groups " << groups << " but got "
                            << top;
  int64_t candidates = top * (experts / groups);
  if (op.getK() > candidates)
    return op.emitOpError() << "expected k of at most the " << candidates
                            << " experts of the top groups but got " << op.getK();
  return success();
}

LogicalResult TopKOp::verify() {
  int64_t r = rows(getLogits()), experts = columns(getLogits()), k = getK();
  if (k < 1 || k > experts)
    return emitOpError() << "expected k of 1 to " << experts << " experts but got " << k;
  if (failed(expectShape(*this, "result ids", getIds(), {r, k})) ||
      failed(expectShape(*this, "result weights", getWeights(), {r, k})))
    return failure();
  if (getOver() == ScoreOver::Selected && getScore() != Score::Softmax)
    return emitOpError() << "expected score softmax over selected experts but got "
                         << stringifyEnum(getScore());
  double eps = getRenormalizeEps();
  if (!(eps >= 0 && std::isfinite(eps)))
    return emitOpError() << "expected renormalize_eps to be finite and at least 0 but got " << eps;
  if (failed(expectFinite(*this, "scale", getScale())))
    return failure();
  return verifyGroups(*this, experts);
}

LogicalResult TopKOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return expectWeight(*this, symbols, getSelectionBiasAttr(), "selection_bias",
                      {columns(getLogits())});
}

/// Dimension 0 of an expert weight, which alone knows the number of experts; 0 when unknown, and
/// then the check against it reports why.
static int64_t expertsOf(Operation *op, SymbolTableCollection &symbols, FlatSymbolRefAttr ref) {
  auto weight = symbols.lookupNearestSymbolFrom<WeightOp>(op, ref);
  return weight ? weight.getLocalShape().front() : 0;
}

LogicalResult ExpertGateUpOp::verify() {
  int64_t r = rows(getInput()), pairs = r * columns(getIds());
  if (failed(expectShape(*this, "ids", getIds(), {r, columns(getIds())})) ||
      failed(expectShape(*this, "result gate", getGate(), {pairs, columns(getGate())})) ||
      failed(expectShape(*this, "result up", getUp(), {pairs, columns(getGate())})))
    return failure();
  bool biased = !!getGateBiasAttr();
  return expectPresence(*this, "bias of up", !!getUpBiasAttr(), biased,
                        biased ? "as gate has one" : "as gate has none");
}

LogicalResult ExpertGateUpOp::verifySymbolUses(SymbolTableCollection &symbols) {
  int64_t experts = expertsOf(*this, symbols, getGateWeightAttr());
  int64_t inner = columns(getGate()), in = columns(getInput());
  if (failed(expectWeight(*this, symbols, getGateWeightAttr(), "weight of gate",
                          {experts, inner, in})) ||
      failed(
          expectWeight(*this, symbols, getUpWeightAttr(), "weight of up", {experts, inner, in})) ||
      failed(expectWeight(*this, symbols, getGateBiasAttr(), "bias of gate", {experts, inner})))
    return failure();
  return expectWeight(*this, symbols, getUpBiasAttr(), "bias of up", {experts, inner});
}

LogicalResult GluOp::verify() {
  ArrayRef<int64_t> shape = getGate().getType().getShape();
  bool alpha = getActivation() == Activation::ScaledSilu;
  if (failed(expectShape(*this, "up", getUp(), shape)) ||
      failed(expectShape(*this, "result", getResult(), shape)) ||
      failed(expectPresence(*this, "alpha", !!getAlphaAttr(), alpha,
                            ("for " + stringifyEnum(getActivation())).str())) ||
      failed(expectFinite(*this, "up_offset", getUpOffset())))
    return failure();
  if (alpha && failed(expectPositive(*this, "alpha", *getAlpha())))
    return failure();
  if (std::optional<double> clamp = getClamp())
    return expectPositive(*this, "clamp", *clamp);
  return success();
}

LogicalResult ExpertDownOp::verify() {
  int64_t pairs = getIds().getType().getNumElements();
  if (failed(expectShape(*this, "input", getInput(), {pairs, columns(getInput())})))
    return failure();
  return expectShape(*this, "result", getResult(), {pairs, columns(getResult())});
}

LogicalResult ExpertDownOp::verifySymbolUses(SymbolTableCollection &symbols) {
  int64_t experts = expertsOf(*this, symbols, getWeightAttr());
  int64_t out = columns(getResult());
  if (failed(expectWeight(*this, symbols, getWeightAttr(), "weight",
                          {experts, out, columns(getInput())})))
    return failure();
  return expectWeight(*this, symbols, getBiasAttr(), "bias", {experts, out});
}

LogicalResult ExpertNormOp::verify() {
  NormKind kind = getKind();
  if (kind == NormKind::Layer || kind == NormKind::LayerBias)
    return emitOpError() << "expected kind rms, rms_input_scaled or rms_weightless but got "
                         << stringifyEnum(kind);
  if (failed(expectShape(*this, "result", getResult(), getInput().getType().getShape())) ||
      failed(expectPositive(*this, "eps", getEps())))
    return failure();
  if (failed(expectPresence(*this, "width", !!getWidthAttr(), !!getSums(),
                            getSums() ? "with sums" : "without sums")))
    return failure();
  if (getSums() &&
      (failed(expectPositive(*this, "width", *getWidth())) ||
       failed(expectShape(*this, "sums", getSums(), {rows(getInput()), columns(getSums())}))))
    return failure();
  return expectPresence(*this, "weight", !!getWeightAttr(), kind != NormKind::RmsWeightless,
                        ("for kind " + stringifyEnum(kind)).str());
}

LogicalResult ExpertNormOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return expectWeight(*this, symbols, getWeightAttr(), "weight", {columns(getInput())});
}

LogicalResult CombineOp::verify() {
  int64_t r = rows(getWeights()), k = columns(getWeights());
  if (failed(expectShape(*this, "input", getInput(), {r * k, columns(getInput())})))
    return failure();
  return expectShape(*this, "result", getResult(), {r, columns(getInput())});
}

} // namespace megalith::moe
