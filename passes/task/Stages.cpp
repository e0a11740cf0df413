#include "passes/task/Stages.h"

using namespace mlir;

namespace megalith::task {

std::optional<int64_t> configInt(StageOp stage, StringRef key) {
  if (auto value = stage.getConfig().getAs<IntegerAttr>(key))
    return value.getInt();
  return std::nullopt;
}

std::optional<double> configFloat(StageOp stage, StringRef key) {
  if (auto value = stage.getConfig().getAs<FloatAttr>(key))
    return value.getValueAsDouble();
  return std::nullopt;
}

StringRef configString(StageOp stage, StringRef key) {
  auto value = stage.getConfig().getAs<StringAttr>(key);
  return value ? value.getValue() : StringRef();
}

FlatSymbolRefAttr configSymbol(StageOp stage, StringRef key) {
  return stage.getConfig().getAs<FlatSymbolRefAttr>(key);
}

void setConfig(StageOp stage, StringRef key, Attribute value) {
  NamedAttrList config(stage.getConfig());
  config.set(key, value);
  stage.setConfigAttr(config.getDictionary(stage.getContext()));
}

bool isGemv(StageOp stage) {
  return llvm::is_contained({StageKind::Linear, StageKind::ExpertUp, StageKind::ExpertDown},
                            stage.getKind());
}

static KernelOp kernelOf(StageOp stage) {
  return stage->getParentOfType<KernelOp>();
}

WeightsOp weightsOf(StageOp stage) {
  for (auto access : stage.getReads().getAsRange<AccessAttr>())
    if (auto weights = kernelOf(stage).lookup<WeightsOp>(access.getBuffer()))
      return weights;
  return {};
}

// Reads other than the weights, in order.
static SmallVector<AccessAttr> activationsOf(StageOp stage) {
  SmallVector<AccessAttr> list;
  for (auto access : stage.getReads().getAsRange<AccessAttr>())
    if (!kernelOf(stage).lookup<WeightsOp>(access.getBuffer()))
      list.push_back(access);
  return list;
}

AccessAttr inputOf(StageOp stage) {
  if (!isGemv(stage) || configSymbol(stage, "shares_input"))
    return {};
  SmallVector<AccessAttr> list = activationsOf(stage);
  return list.empty() ? AccessAttr() : list.front();
}

AccessAttr residualOf(StageOp stage) {
  StringRef epilogue = configString(stage, "epilogue");
  if (epilogue != "residual" && epilogue != "combine_residual")
    return {};
  SmallVector<AccessAttr> list = activationsOf(stage);
  size_t index = configSymbol(stage, "shares_input") ? 0 : 1;
  return index < list.size() ? list[index] : AccessAttr();
}

Slice sliceOf(StageOp stage) {
  WeightsOp weights = weightsOf(stage);
  return {*configInt(stage, "unit"), weights.strips(), weights.blocks()};
}

Rectangle rectangleAt(AccessAttr access, int64_t tile) {
  SmallVector<int64_t> at = evalAll(access.getAt().getValue(), {tile});
  return {at[at.size() - 2], access.getRows(), at.back(),
          evalMin(access.getCols().getValue(), {tile})};
}

int64_t smsOf(StageOp stage) {
  return stage.getSms().value_or(kernelOf(stage).getSms());
}

bool hasStaticTiles(StageOp stage) {
  return stage.getTiles().has_value();
}

//===----------------------------------------------------------------------===//
// The form of a stage
//===----------------------------------------------------------------------===//

static ArrayRef<StringLiteral> keysOf(StageKind kind) {
  static constexpr StringLiteral kEmbed[] = {"hidden"};
  static constexpr StringLiteral kLinear[] = {"n", "k", "unit"};
  static constexpr StringLiteral kAttention[] = {"q_heads", "kv_heads", "head_dim"};
  static constexpr StringLiteral kMerge[] = {"q_heads", "head_dim"};
  static constexpr StringLiteral kTopK[] = {"experts", "k"};
  static constexpr StringLiteral kExpert[] = {"n", "k", "unit", "experts", "top_k"};
  switch (kind) {
  case StageKind::Embed:
    return kEmbed;
  case StageKind::Linear:
    return kLinear;
  case StageKind::Attention:
    return kAttention;
  case StageKind::Merge:
    return kMerge;
  case StageKind::TopK:
    return kTopK;
  case StageKind::ExpertUp:
  case StageKind::ExpertDown:
    return kExpert;
  }
  return {};
}

static LogicalResult checkGemv(StageOp stage) {
  WeightsOp weights = weightsOf(stage);
  if (!weights)
    return stage.emitOpError() << "expected a read of weights";
  int64_t n = *configInt(stage, "n"), k = *configInt(stage, "k");
  if (weights.getN() != n || weights.getK() != k)
    return stage.emitOpError() << "expected config to agree with weights @" << weights.getSymName()
                               << " (n = " << weights.getN() << ", k = " << weights.getK()
                               << "), but got n = " << n << ", k = " << k;
  Slice slice = sliceOf(stage);
  if (slice.unit < 1 || slice.unit * smsOf(stage) < slice.strips)
    return stage.emitOpError() << "expected slices of unit strips on " << smsOf(stage)
                               << " SMs to cover " << slice.strips << " strips, but unit is "
                               << slice.unit;
  if (!stage.getTiles() || stage.getTiles() != stage.getSms())
    return stage.emitOpError() << "expected as many tiles as SMs: a tile is an SM's slice";
  MLIRContext *context = stage.getContext();
  auto identity = AffineMap::get(
      1, 0, {getAffineDimExpr(0, context), getAffineConstantExpr(0, context)}, context);
  if (stage.getAssign() && stage.getAssign() != identity)
    return stage.emitOpError() << "expected tile t on SM t, first in its order: (t) -> (t, 0)";
  bool isShared = configSymbol(stage, "shares_input") != nullptr;
  if (!inputOf(stage) && !isShared)
    return stage.emitOpError() << "expected a read of activation rows, or shares_input";
  if (auto ref = configSymbol(stage, "shares_input")) {
    auto shared = kernelOf(stage).lookup<StageOp>(ref);
    if (!shared || !inputOf(shared) || !shared->isBeforeInBlock(stage))
      return stage.emitOpError() << "expected shares_input to name an earlier stage that reads "
                                    "activation rows, but got "
                                 << ref;
  }
  StringRef epilogue = configString(stage, "epilogue");
  if (epilogue.ends_with("residual") && !residualOf(stage))
    return stage.emitOpError() << "expected a read of the residual's slice, since its epilogue is '"
                               << epilogue << "'";
  return success();
}

LogicalResult checkStages(KernelOp kernel) {
  unsigned routers = 0;
  for (auto stage : kernel.getOps<StageOp>()) {
    for (StringRef key : keysOf(stage.getKind()))
      if (!configInt(stage, key))
        return stage.emitOpError() << "expected config to hold the integer '" << key << "'";
    if (isGemv(stage) && failed(checkGemv(stage)))
      return failure();
    if (stage.getKind() == StageKind::TopK && ++routers > 1)
      return stage.emitOpError() << "expected one top_k stage a kernel: there is one routing table";
    bool isExpert =
        llvm::is_contained({StageKind::ExpertUp, StageKind::ExpertDown}, stage.getKind());
    if (isExpert && !routers)
      return stage.emitOpError() << "expected a top_k stage before the experts";
    if (!isGemv(stage) && stage.getReads().empty())
      return stage.emitOpError() << "expected the stage to read something";
  }
  return success();
}

} // namespace megalith::task
