// Attention with all that is fused into it: qk-norm, rope, the append to the cache; and the merge
// of its pieces, with the norm and the gate of its output.
#include "passes/graph/Converter.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::graph;
using task::Mutability;
using task::StageKind;

/// At most this many pieces of a sequence are merged (DESIGN section 5).
static constexpr int64_t kMaxSplits = 32;
/// Positions of a KV page.
static constexpr int64_t kPagePositions = 64;

/// Merge tiles of one query head (codegen/device/merge.cuh): more of them spread the reading of
/// partial results over more SMs.
int64_t Converter::mergePartsOf(int64_t heads) {
  return build.rows() * heads * 4 <= build.sms() * 2 ? 4 : 1;
}

FailureOr<Converter::GatedOutput> Converter::outputOf(moe::AttentionOp op) {
  GatedOutput output{op.getResult(), {}, {}};
  if (auto norm = onlyReader<moe::NormOp>(output.result);
      norm && norm.getOver() == moe::NormOver::Head) {
    auto cache = cast<moe::KVType>(op.getKv().getType());
    if (norm.getKind() != moe::NormKind::RmsWeightless ||
        int64_t(*norm.getHeadDim()) != cache.getHeadDim())
      return FailureOr<GatedOutput>(
          refuse(norm, "only an rms norm without weight of each head of attention's output"));
    output.norm = norm;
    output.result = norm.getResult();
  }
  if (auto gate = onlyReader<moe::OutputGateOp>(output.result);
      gate && gate.getInput() == output.result) {
    if (gate.getRoundGate() || width(gate.getGate()) != width(gate.getInput()))
      return FailureOr<GatedOutput>(
          refuse(gate, "only a gate for every channel that is not rounded"));
    output.gate = gate;
    output.result = gate.getResult();
  }
  if (output.norm && !output.gate)
    return FailureOr<GatedOutput>(refuse(output.norm, "only before an output gate"));
  bool isRoundedBetween =
      (output.gate && !isF32(op.getResult())) || (output.norm && !isF32(output.norm.getResult()));
  if (isRoundedBetween || isF32(output.result))
    return FailureOr<GatedOutput>(
        refuse(op, "only an output that is rounded to bf16 once, behind its norm and gate"));
  return output;
}

LogicalResult Converter::convertAttention(moe::AttentionOp op) {
  if (op.getMask() == moe::AttentionMask::Chunk || op.getSinks())
    return refuse(op, "chunks and sinks");
  auto append = op.getKv().getDefiningOp<moe::KvAppendOp>();
  auto rope = op.getQ().getDefiningOp<moe::RopeOp>();
  Value q = op.getQ(), k = append ? append.getK() : Value();
  if (rope) {
    if (!append || k != rope.getKOut())
      return refuse(op, "only queries over a cache to which the keys rotated with them were "
                        "appended");
    q = rope.getQ();
    k = rope.getK();
    if (rope.getPairing() != moe::RopePairing::HalfSplit || rope.getScaling() ||
        rope.getRotaryDims() != rope.getHeadDim())
      return refuse(rope, "only half-split pairs over the whole head, unscaled");
    if (rope.getTheta() <= 1.0)
      return refuse(rope, "a base of at most 1; expected one above 1");
  }
  if (!append)
    return refuse(op, "only over a cache to which this step's keys were appended");
  auto norm = q.getDefiningOp<moe::QkNormOp>();
  if (norm) {
    bool isWeighted = norm.getKind() == moe::NormKind::Rms;
    if ((!isWeighted && norm.getKind() != moe::NormKind::RmsWeightless) ||
        norm.getOver() != moe::NormOver::Head || norm.getGain() != moe::Gain::Absolute ||
        norm.getQScale() != 1.0)
      return refuse(norm, "only an rms norm of each head, by an absolute weight or none");
    if (k != norm.getKOut())
      return refuse(norm, "only of queries and the keys that are appended");
    q = norm.getQ();
    k = norm.getK();
  }
  FailureOr<Source> source = sourceOf(op, q);
  if (failed(source) || failed(sourceOf(op, k)) || failed(sourceOf(op, append.getV())))
    return failure();
  FailureOr<GatedOutput> output = outputOf(op);
  if (failed(output))
    return failure();

  auto cache = cast<moe::KVType>(op.getKv().getType());
  int64_t headDim = cache.getHeadDim(), heads = op.getHeads(), kvHeads = cache.getHeads();
  if (failed(expectMultiple(op, "a head size", headDim, 64)))
    return failure();
  // Pages that a window lets go of are kept apart: the runtime needs fewer of them.
  bool hasWindow = op.getMask() == moe::AttentionMask::Window;
  Ref pages = build.global(hasWindow ? "kv_window" : "kv", kvHeads, 2 * kPagePositions * headDim,
                           cache.getElement(), Mutability::Pages);
  int64_t parts = output->gate ? 1 : mergePartsOf(heads);
  Ref frequencies;
  if (rope)
    frequencies = build.global("inv_freq", 1, headDim / 2, build.f32(), Mutability::Immutable);
  Ref partials = build.value("partials", build.rows() * heads * parts * kMaxSplits,
                             headDim / parts + 2, build.f32(), false);
  Ref attn = build.value("attn", build.rows(), heads * headDim, build.bf16(), false);
  Keys keys = {build.key("q_heads", heads),
               build.key("kv_heads", kvHeads),
               build.key("head_dim", headDim),
               build.key("scale", op.getScale()),
               build.key("max_positions", cache.getPositions()),
               build.key("merge_parts", parts),
               build.key("qk_norm", norm ? "head" : "none")};
  if (rope) {
    keys.push_back(build.key("rope_theta", rope.getTheta()));
    keys.push_back(build.key("inv_freq", frequencies));
  }
  if (hasWindow)
    keys.push_back(build.key("window", int64_t(*op.getExtent())));
  if (op.getScoreBound())
    keys.push_back(build.key("bounded", Attribute(BoolAttr::get(op.getContext(), true))));
  for (auto [key, scale] :
       {std::pair("k_scale", append.getKScaleAttr()), std::pair("v_scale", append.getVScaleAttr())})
    if (scale) {
      moe::WeightOp tensor = weight(scale.getValue());
      if (!tensor.getFormat().isF32())
        return refuse(append, "only scales of keys and values that are fp32");
      keys.push_back(build.key(key, build.global(key, 1, 1, build.f32(), Mutability::Immutable,
                                                 tensor.getCheckpoint(), isNext(append))));
    }
  if (norm) {
    keys.push_back(build.key("eps", norm.getEps()));
    if (norm.getQWeight()) {
      keys.push_back(build.key("q_gain", gainOf(weight(*norm.getQWeight()), false, false)));
      keys.push_back(build.key("k_gain", gainOf(weight(*norm.getKWeight()), false, false)));
    }
  }
  auto attention =
      build.stage("attention", StageKind::Attention, op, {build.whole(*source), build.whole(pages)},
                  {build.whole(partials), build.whole(pages)}, keys, false);

  SmallVector<Attribute> reads = {build.whole(partials)};
  Keys merge = {build.key("q_heads", heads), build.key("head_dim", headDim),
                build.key("merge_parts", parts)};
  if (output->gate) {
    FailureOr<Source> gate = sourceOf(output->gate, output->gate.getGate());
    if (failed(gate))
      return failure();
    if (gate->buffer != source->buffer)
      return refuse(output->gate, "only a gate that was projected beside q, k and v");
    reads.push_back(build.whole(*gate));
    sources[output->gate.getResult()] = {attn};
  }
  if (output->norm) {
    merge.push_back(build.key("norm", "head"));
    merge.push_back(build.key("eps", output->norm.getEps()));
    sources[output->norm.getResult()] = {attn};
  }
  auto mergeStage =
      build.stage("merge", StageKind::Merge, op, reads, {build.whole(attn)}, merge, false);
  explainFused(attention, {norm, rope, append},
               "each tile has its heads' raw words at hand, and each new position one owning tile");
  explainFused(mergeStage, {output->norm, output->gate},
               "a merge tile has a whole head in registers, and its gates are there before it");
  explain(mergeStage, "parts", Twine(parts) + (parts == 1 ? " a query head" : " of a query head"),
          output->gate
              ? llvm::formatv("the gate takes whole heads of {0} channels", headDim).str()
              : llvm::formatv("{0} rows x {1} heads x 4 parts are {2} than 2 of {3} SMs each: {4}",
                              build.rows(), heads, parts == 1 ? "more" : "no more", build.sms(),
                              parts == 1 ? "more parts would not spread the reading further"
                                         : "parts spread the reading of partial results")
                    .str());
  rowsInSmem = {};
  sources[output->result] = {attn};
  return success();
}
