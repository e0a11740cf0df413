//===- op_rules.cpp - Attributes of moe operations as rules ---------------===//

#include "models/reference/op_rules.h"

#include "llvm/ADT/Twine.h"

namespace megalith::reference {

llvm::Error opError(mlir::Operation *op, const llvm::Twine &text) {
  std::string message;
  llvm::raw_string_ostream stream(message);
  stream << op->getName() << " at " << op->getLoc() << ": " << text;
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<Element> elementOf(mlir::Operation *op, mlir::Type type) {
  if (auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(type))
    type = tensor.getElementType();
  if (type.isBF16())
    return Element::Bf16;
  if (type.isF32())
    return Element::F32;
  if (llvm::isa<mlir::Float8E4M3FNType>(type) && llvm::isa<moe::KvAppendOp>(op))
    return Element::E4m3;
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return opError(op, "the reference evaluator knows bf16 and f32, not " + text);
}

models::BlockFormat formatOf(moe::BlockFormatType type) {
  using models::BlockFormat;
  const auto scale = llvm::isa<mlir::Float8E4M3FNType>(type.getScale()) ? BlockFormat::Scale::E4m3
                     : llvm::isa<mlir::Float8E8M0FNUType>(type.getScale())
                         ? BlockFormat::Scale::E8m0
                     : type.getScale().isBF16() ? BlockFormat::Scale::Bf16
                                                : BlockFormat::Scale::F32;
  const auto code = llvm::isa<mlir::Float4E2M1FNType>(type.getCode()) ? BlockFormat::Code::E2m1
                                                                      : BlockFormat::Code::E4m3;
  return {code, type.getBlockRows(), type.getBlockCols(), scale, bool(type.getGlobal())};
}

namespace {

NormRule::Kind normKind(moe::NormKind kind) {
  switch (kind) {
  case moe::NormKind::Rms:
  case moe::NormKind::RmsWeightless: // without a weight the formula is the same
    return NormRule::Kind::Rms;
  case moe::NormKind::RmsInputScaled:
    return NormRule::Kind::RmsInputScaled;
  case moe::NormKind::Layer:
  case moe::NormKind::LayerBias:
    return NormRule::Kind::Layer;
  }
  llvm_unreachable("a norm kind without a formula");
}

template <class Op> NormRule normRule(Op op, mlir::Value input, int64_t group) {
  NormRule rule{normKind(op.getKind()), op.getEps(), group, op.getGain() == moe::Gain::OnePlus};
  const auto type = llvm::cast<mlir::RankedTensorType>(input.getType());
  rule.scaledAs = type.getElementType().isBF16() ? Element::Bf16 : Element::F32;
  return rule;
}

} // namespace

NormRule ruleOf(moe::NormOp op, int64_t rowWidth) {
  const bool heads = op.getOver() == moe::NormOver::Head;
  return normRule(op, op.getInput(), heads ? int64_t(*op.getHeadDim()) : rowWidth);
}

NormRule ruleOf(moe::QkNormOp op, int64_t rowWidth) {
  const bool heads = op.getOver() == moe::NormOver::Head;
  return normRule(op, op.getQ(), heads ? int64_t(op.getHeadDim()) : rowWidth);
}

NormRule ruleOf(moe::ExpertNormOp op, int64_t rowWidth) {
  return normRule(op, op.getInput(), rowWidth);
}

NormRule ruleOf(moe::SquareSumsOp op) {
  NormRule rule;
  rule.kind = op.getWeight() ? NormRule::Kind::RmsInputScaled : NormRule::Kind::Rms;
  rule.onePlus = op.getGain() == moe::Gain::OnePlus;
  rule.scaledAs = op.getInput().getType().getElementType().isBF16() ? Element::Bf16 : Element::F32;
  return rule;
}

llvm::Expected<RopeRule> ruleOf(moe::RopeOp op) {
  if (op.getScaling())
    return opError(op, "rope scaling is not supported by the reference evaluator");
  return RopeRule{op.getPairing() == moe::RopePairing::Adjacent ? RopeRule::Pairing::Adjacent
                                                                : RopeRule::Pairing::HalfSplit,
                  int64_t(op.getHeadDim()), int64_t(op.getRotaryDims()), op.getTheta()};
}

AttentionRule ruleOf(moe::AttentionOp op) {
  AttentionRule rule{int64_t(op.getHeads()), op.getScale()};
  if (op.getMask() == moe::AttentionMask::Window)
    rule.mask = AttentionRule::Mask::Window;
  else if (op.getMask() == moe::AttentionMask::Chunk)
    rule.mask = AttentionRule::Mask::Chunk;
  if (auto extent = op.getExtent())
    rule.extent = int64_t(*extent);
  rule.bounded = op.getScoreBound().has_value();
  return rule;
}

llvm::Expected<TopKRule> ruleOf(moe::TopKOp op) {
  if (op.getGroups())
    return opError(op, "groups of experts are not supported by the reference evaluator");
  TopKRule rule;
  if (op.getScore() == moe::Score::Sigmoid)
    rule.score = TopKRule::Score::Sigmoid;
  else if (op.getOver() == moe::ScoreOver::Selected)
    rule.score = TopKRule::Score::SoftmaxSelected;
  rule.k = int64_t(op.getK());
  rule.renormalize = op.getRenormalize();
  rule.renormalizeEps = op.getRenormalizeEps();
  rule.scale = op.getScale();
  return rule;
}

GluRule ruleOf(moe::GluOp op) {
  GluRule rule;
  if (op.getActivation() == moe::Activation::GeluTanh)
    rule.activation = GluRule::Activation::GeluTanh;
  else if (op.getActivation() == moe::Activation::ScaledSilu)
    rule.activation = GluRule::Activation::ScaledSilu;
  rule.clamp = op.getClamp();
  rule.alpha = op.getAlpha().value_or(1.0);
  rule.upOffset = op.getUpOffset();
  return rule;
}

llvm::Expected<OutputGateRule> ruleOf(moe::OutputGateOp op) {
  if (!op.getRoundGate())
    return OutputGateRule{};
  llvm::Expected<Element> element = elementOf(op, op.getGate().getType());
  if (!element)
    return element.takeError();
  return OutputGateRule{*element};
}

CombineRule ruleOf(moe::CombineOp op) {
  CombineRule rule;
  rule.roundEach = op.getRoundEach();
  return rule;
}

WeightPrecision ruleOf(moe::RouterOp op) {
  switch (op.getPrecision()) {
  case moe::RouterPrecision::F32:
    return WeightPrecision::AsStored;
  case moe::RouterPrecision::TF32:
    return WeightPrecision::TF32;
  case moe::RouterPrecision::BF16x2:
    return WeightPrecision::BF16x2;
  }
  llvm_unreachable("every precision returns above");
}

ResidualRule ruleOf(moe::ResidualOp op) {
  return {op.getKind() == moe::ResidualKind::Gated, op.getScale().value_or(1.0),
          op.getTemperature().value_or(1.0), op.getFloor().value_or(0.0)};
}

HeadRule ruleOf(moe::LmHeadOp op) {
  HeadRule rule{op.getMultiplier(), op.getSoftcap(), std::nullopt};
  if (auto valid = op.getValidVocab())
    rule.validVocab = int64_t(*valid);
  return rule;
}

} // namespace megalith::reference
