//===- MoeAttentionOps.cpp - verifiers of the dense half and the ends -------===//

#include "ir/moe/MoeVerify.h"

using namespace mlir;
using namespace megalith::moe::detail;

namespace megalith::moe {

//===----------------------------------------------------------------------===//
// embed, linear, lm_head
//===----------------------------------------------------------------------===//

LogicalResult EmbedOp::verify() {
  int64_t tokens = getTokens().getType().getDimSize(0);
  if (failed(expectShape(*this, "result", getResult(), {tokens, columns(getResult())})))
    return failure();
  return expectFinite(*this, "multiplier", getMultiplier());
}

LogicalResult EmbedOp::verifySymbolUses(SymbolTableCollection &symbols) {
  // The vocabulary is the weight's own: any number of rows will do.
  auto weight = symbols.lookupNearestSymbolFrom<WeightOp>(*this, getWeightAttr());
  SmallVector<int64_t> shape = weight ? weight.getLocalShape() : SmallVector<int64_t>{0};
  return expectWeight(*this, symbols, getWeightAttr(), "weight",
                      {shape.front(), columns(getResult())});
}

LogicalResult LinearOp::verify() {
  int64_t partials = getPartials();
  if (failed(expectPositive(*this, "partials", partials)) ||
      failed(expectShape(*this, "result", getResult(), {rows(getInput()), columns(getResult())})))
    return failure();
  if (partials == 1)
    return success();
  if (getBiasAttr())
    return emitOpError() << "expected no bias with partials " << partials
                         << ", where it would be added to every sum, but got one";
  if (!getResult().getType().getElementType().isF32())
    return emitOpError() << "expected partial sums of f32 but got " << getResult().getType();
  if (failed(
          expectDivides(*this, "partials", partials, "the result's width", columns(getResult()))))
    return failure();
  return expectDivides(*this, "partials", partials, "the input's width", columns(getInput()));
}

LogicalResult LinearOp::verifySymbolUses(SymbolTableCollection &symbols) {
  int64_t out = columns(getResult()) / getPartials();
  if (failed(expectWeight(*this, symbols, getWeightAttr(), "weight", {out, columns(getInput())})))
    return failure();
  return expectWeight(*this, symbols, getBiasAttr(), "bias", {out});
}

LogicalResult LmHeadOp::verify() {
  int64_t vocabulary = columns(getResult());
  if (failed(expectShape(*this, "result", getResult(), {rows(getInput()), vocabulary})) ||
      failed(expectFinite(*this, "multiplier", getMultiplier())))
    return failure();
  if (std::optional<double> cap = getSoftcap())
    if (failed(expectPositive(*this, "softcap", *cap)))
      return failure();
  if (std::optional<int64_t> valid = getValidVocab())
    if (*valid < 1)
      return emitOpError() << "expected valid_vocab of at least 1 but got " << *valid;
  return success();
}

LogicalResult LmHeadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  int64_t out = columns(getResult());
  // Ids are those of the whole vocabulary, of which a rank may have a part.
  if (auto weight = symbols.lookupNearestSymbolFrom<WeightOp>(*this, getWeightAttr()))
    if (std::optional<int64_t> valid = getValidVocab(); valid && *valid > weight.getShape().front())
      return emitOpError() << "expected valid_vocab of 1 to " << weight.getShape().front()
                           << " but got " << *valid;
  if (failed(expectWeight(*this, symbols, getWeightAttr(), "weight", {out, columns(getInput())})))
    return failure();
  return expectWeight(*this, symbols, getBiasAttr(), "bias", {out});
}

//===----------------------------------------------------------------------===//
// norm, qk_norm
//===----------------------------------------------------------------------===//

LogicalResult NormOp::verify() {
  NormKind kind = getKind();
  int64_t width = columns(getInput());
  bool overHead = getOver() == NormOver::Head;
  if (failed(expectShape(*this, "result", getResult(), {rows(getInput()), width})) ||
      failed(expectPositive(*this, "eps", getEps())) ||
      failed(expectPresence(*this, "weight", !!getWeightAttr(), kind != NormKind::RmsWeightless,
                            ("for kind " + stringifyEnum(kind)).str())) ||
      failed(expectPresence(*this, "bias", !!getBiasAttr(), kind == NormKind::LayerBias,
                            ("for kind " + stringifyEnum(kind)).str())) ||
      failed(expectPresence(*this, "head_dim", !!getHeadDimAttr(), overHead,
                            overHead ? "over head" : "over row")))
    return failure();
  if (overHead)
    return expectDivides(*this, "head_dim", *getHeadDim(), "the row's width", width);
  return success();
}

LogicalResult NormOp::verifySymbolUses(SymbolTableCollection &symbols) {
  int64_t width = getHeadDim().value_or(columns(getInput()));
  if (failed(expectWeight(*this, symbols, getWeightAttr(), "weight", {width})))
    return failure();
  return expectWeight(*this, symbols, getBiasAttr(), "bias", {width});
}

/// q and k are rows of whole heads, and keep their shapes.
template <typename OpT> static LogicalResult verifyQkShapes(OpT op, int64_t headDim) {
  if (failed(expectPositive(op, "head_dim", headDim)) ||
      failed(expectDivides(op, "head_dim", headDim, "the width of q", columns(op.getQ()))) ||
      failed(expectDivides(op, "head_dim", headDim, "the width of k", columns(op.getK()))))
    return failure();
  int64_t r = rows(op.getQ());
  if (failed(expectShape(op, "k", op.getK(), {r, columns(op.getK())})) ||
      failed(expectShape(op, "result q", op.getQOut(), {r, columns(op.getQ())})))
    return failure();
  return expectShape(op, "result k", op.getKOut(), {r, columns(op.getK())});
}

LogicalResult QkNormOp::verify() {
  NormKind kind = getKind();
  if (kind != NormKind::Rms && kind != NormKind::RmsWeightless)
    return emitOpError() << "expected kind rms or rms_weightless but got " << stringifyEnum(kind);
  std::string when = ("for kind " + stringifyEnum(kind)).str();
  if (failed(verifyQkShapes(*this, getHeadDim())) ||
      failed(expectPositive(*this, "eps", getEps())) ||
      failed(expectPresence(*this, "weight of q", !!getQWeightAttr(), kind == NormKind::Rms, when)))
    return failure();
  if (failed(expectPresence(*this, "weight of k", !!getKWeightAttr(), kind == NormKind::Rms, when)))
    return failure();
  return expectPositive(*this, "q_scale", getQScale());
}

LogicalResult QkNormOp::verifySymbolUses(SymbolTableCollection &symbols) {
  bool overHead = getOver() == NormOver::Head;
  int64_t qWidth = overHead ? getHeadDim() : columns(getQ());
  int64_t kWidth = overHead ? getHeadDim() : columns(getK());
  if (failed(expectWeight(*this, symbols, getQWeightAttr(), "weight of q", {qWidth})))
    return failure();
  return expectWeight(*this, symbols, getKWeightAttr(), "weight of k", {kWidth});
}

//===----------------------------------------------------------------------===//
// qkv_proj, rope, kv_append, attention, output_gate
//===----------------------------------------------------------------------===//

LogicalResult QkvProjOp::verify() {
  int64_t heads = getHeads(), kvHeads = getKvHeads(), dim = getHeadDim();
  if (failed(expectPositive(*this, "heads", heads)) ||
      failed(expectPositive(*this, "kv_heads", kvHeads)) ||
      failed(expectPositive(*this, "head_dim", dim)) ||
      failed(expectDivides(*this, "kv_heads", kvHeads, "heads", heads)))
    return failure();
  int64_t r = rows(getInput());
  if (failed(expectShape(*this, "result q", getQ(), {r, heads * dim})) ||
      failed(expectShape(*this, "result k", getK(), {r, kvHeads * dim})) ||
      failed(expectShape(*this, "result v", getV(), {r, kvHeads * dim})))
    return failure();
  bool biased = !!getQBiasAttr();
  StringRef when = biased ? "as q has one" : "as q has none";
  if (failed(expectPresence(*this, "bias of k", !!getKBiasAttr(), biased, when)) ||
      failed(expectPresence(*this, "bias of v", !!getVBiasAttr(), biased, when)))
    return failure();
  if (std::optional<double> clip = getClip())
    return expectPositive(*this, "clip", *clip);
  return success();
}

LogicalResult QkvProjOp::verifySymbolUses(SymbolTableCollection &symbols) {
  int64_t in = columns(getInput()), q = columns(getQ()), kv = columns(getK());
  if (failed(expectWeight(*this, symbols, getQWeightAttr(), "weight of q", {q, in})) ||
      failed(expectWeight(*this, symbols, getKWeightAttr(), "weight of k", {kv, in})) ||
      failed(expectWeight(*this, symbols, getVWeightAttr(), "weight of v", {kv, in})) ||
      failed(expectWeight(*this, symbols, getQBiasAttr(), "bias of q", {q})) ||
      failed(expectWeight(*this, symbols, getKBiasAttr(), "bias of k", {kv})))
    return failure();
  return expectWeight(*this, symbols, getVBiasAttr(), "bias of v", {kv});
}

LogicalResult RopeOp::verify() {
  int64_t dim = getHeadDim(), rotary = getRotaryDims();
  if (failed(verifyQkShapes(*this, dim)))
    return failure();
  if (rotary < 0 || rotary > dim || rotary % 2 != 0)
    return emitOpError() << "expected rotary_dims to be even and from 0 to head_dim " << dim
                         << " but got " << rotary;
  return expectPositive(*this, "theta", getTheta());
}

LogicalResult KvAppendOp::verify() {
  KVType kv = getKv().getType();
  int64_t width = kv.getHeads() * kv.getHeadDim();
  if (failed(expectShape(*this, "k", getK(), {rows(getK()), width})))
    return failure();
  if (failed(expectShape(*this, "v", getV(), {rows(getK()), width})))
    return failure();
  if (bool(getKScaleAttr()) != bool(getVScaleAttr()))
    return emitOpError() << "expected both k_scale and v_scale or neither, but got "
                         << (getKScaleAttr() ? "k_scale" : "v_scale") << " alone";
  if (getKScaleAttr() && !isa<Float8E4M3FNType>(kv.getElement()))
    return emitOpError() << "expected scales of a cache of f8E4M3FN, but got one of "
                         << kv.getElement();
  return success();
}

LogicalResult KvAppendOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(expectWeight(*this, symbols, getKScaleAttr(), "k_scale", {1})))
    return failure();
  return expectWeight(*this, symbols, getVScaleAttr(), "v_scale", {1});
}

LogicalResult AttentionOp::verify() {
  KVType kv = getKv().getType();
  int64_t width = getHeads() * kv.getHeadDim();
  bool full = getMask() == AttentionMask::Full;
  if (failed(expectPositive(*this, "heads", getHeads())) ||
      failed(expectDivides(*this, "the cache's heads", kv.getHeads(), "heads", getHeads())) ||
      failed(expectShape(*this, "q", getQ(), {rows(getQ()), width})) ||
      failed(expectShape(*this, "result", getResult(), {rows(getQ()), width})) ||
      failed(expectPositive(*this, "scale", getScale())) ||
      failed(expectPresence(*this, "extent", !!getExtentAttr(), !full,
                            ("for mask " + stringifyEnum(getMask())).str())))
    return failure();
  if (!full && failed(expectPositive(*this, "extent", *getExtent())))
    return failure();
  if (std::optional<double> bound = getScoreBound())
    if (failed(expectPositive(*this, "score_bound", *bound)))
      return failure();
  // A ring that forgets positions can only serve queries that look no further back.
  if (kv.getWindow() > 0 && (full || *getExtent() > kv.getWindow()))
    return emitOpError() << "expected an extent within the cache's window " << kv.getWindow()
                         << " but got "
                         << (full ? "mask full" : "extent " + std::to_string(*getExtent()));
  return success();
}

LogicalResult AttentionOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return expectWeight(*this, symbols, getSinksAttr(), "sinks", {getHeads()});
}

LogicalResult OutputGateOp::verify() {
  int64_t r = rows(getInput()), width = columns(getInput());
  if (failed(expectShape(*this, "gate", getGate(), {r, columns(getGate())})) ||
      failed(
          expectDivides(*this, "the gate's width", columns(getGate()), "the row's width", width)))
    return failure();
  return expectShape(*this, "result", getResult(), {r, width});
}

//===----------------------------------------------------------------------===//
// cast, quantize
//===----------------------------------------------------------------------===//

LogicalResult CastOp::verify() {
  return expectShape(*this, "result", getResult(), getInput().getType().getShape());
}

LogicalResult QuantizeOp::verify() {
  auto format = cast<BlockFormatType>(getResult().getType().getElementType());
  int64_t width = columns(getInput());
  if (failed(expectShape(*this, "result", getResult(), getInput().getType().getShape())) ||
      failed(expectPresence(*this, "global", !!getGlobalAttr(), !!format.getGlobal(),
                            format.getGlobal() ? "with a global scale in the format"
                                               : "without a global scale in the format")))
    return failure();
  if (format.getBlockRows() != 1)
    return emitOpError() << "expected blocks within a row but got blocks of "
                         << format.getBlockRows() << " rows";
  if (failed(expectDivides(*this, "the block's width", format.getBlockCols(), "the row's width",
                           width)))
    return failure();
  if (!getIds())
    return success();
  if (!getGlobalAttr())
    return emitOpError()
           << "expected ids only with a global scale, which they choose, but got some";
  int64_t pairs = getIds().getType().getNumElements();
  if (pairs != rows(getInput()))
    return emitOpError() << "expected ids of as many pairs as there are rows, " << rows(getInput())
                         << ", but got " << pairs;
  return success();
}

LogicalResult QuantizeOp::verifySymbolUses(SymbolTableCollection &symbols) {
  FlatSymbolRefAttr ref = getGlobalAttr();
  if (!ref)
    return success();
  // One scale an expert, or several; how many experts there are is the weight's own affair.
  auto weight = symbols.lookupNearestSymbolFrom<WeightOp>(*this, ref);
  SmallVector<int64_t> shape = weight ? weight.getLocalShape() : SmallVector<int64_t>{0};
  if (failed(expectWeight(*this, symbols, ref, "global", shape)))
    return failure();
  if (shape.size() > 2 || !weight.getFormat().isF32())
    return emitOpError() << "expected global to be f32 of shape [experts] or [experts, n] but got "
                         << ref << " of " << weight.getFormat() << ' ' << formatShape(shape);
  return success();
}

//===----------------------------------------------------------------------===//
// residual, collectives
//===----------------------------------------------------------------------===//

LogicalResult ResidualOp::verify() {
  ResidualKind kind = getKind();
  bool gated = kind == ResidualKind::Gated;
  std::string when = ("for kind " + stringifyEnum(kind)).str();
  if (getBranches().empty() || (gated && getBranches().size() != 1))
    return emitOpError() << "expected " << (gated ? "1 branch" : "at least 1 branch") << " " << when
                         << " but got " << getBranches().size();
  for (Value branch : getBranches())
    if (failed(expectShape(*this, "branch", branch, getStream().getType().getShape())))
      return failure();
  if (failed(expectSameType(*this, "result", getResult(), getStream().getType())) ||
      failed(
          expectPresence(*this, "scale", !!getScaleAttr(), kind == ResidualKind::Scaled, when)) ||
      failed(expectPresence(*this, "gate", !!getGateAttr(), gated, when)) ||
      failed(expectPresence(*this, "temperature", !!getTemperatureAttr(), gated, when)) ||
      failed(expectPresence(*this, "floor", !!getFloorAttr(), gated, when)))
    return failure();
  if (kind == ResidualKind::Scaled)
    return expectFinite(*this, "scale", *getScale());
  if (!gated)
    return success();
  if (failed(expectPositive(*this, "temperature", *getTemperature())))
    return failure();
  return expectPositive(*this, "floor", *getFloor());
}

LogicalResult ResidualOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return expectWeight(*this, symbols, getGateAttr(), "gate", {columns(getStream())});
}

LogicalResult AllGatherOp::verify() {
  int64_t ranks = getRanks();
  if (failed(expectPositive(*this, "ranks", ranks)) ||
      failed(expectShape(*this, "result", getResult(),
                         {rows(getInput()), columns(getInput()) * ranks})))
    return failure();
  Type in = getInput().getType().getElementType(), out = getResult().getType().getElementType();
  if ((isa<BlockFormatType>(in) || isa<BlockFormatType>(out)) && in != out)
    return emitOpError() << "expected a block format to be gathered as it is, " << in
                         << ", but got " << out;
  if (auto format = dyn_cast<BlockFormatType>(in))
    return expectDivides(*this, "the block's width", format.getBlockCols(), "the rank's channels",
                         columns(getInput()));
  return success();
}

LogicalResult AllReduceOp::verify() {
  int64_t partials = getPartials();
  if (failed(expectPositive(*this, "ranks", getRanks())) ||
      failed(expectPositive(*this, "partials", partials)) ||
      failed(expectDivides(*this, "partials", partials, "the input's width", columns(getInput()))))
    return failure();
  return expectShape(*this, "result", getResult(),
                     {rows(getInput()), columns(getInput()) / partials});
}

LogicalResult SquareSumsOp::verify() {
  int64_t width = columns(getInput());
  if (failed(expectPositive(*this, "chunk", getChunk())) ||
      failed(expectDivides(*this, "chunk", getChunk(), "the row's width", width)))
    return failure();
  return expectShape(*this, "result", getResult(), {rows(getInput()), width / getChunk()});
}

LogicalResult SquareSumsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return expectWeight(*this, symbols, getWeightAttr(), "weight", {columns(getInput())});
}

} // namespace megalith::moe
