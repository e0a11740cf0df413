// task-choose-tiles and task-assign-sms: slices of static stages over the SMs.
#include "passes/graph/GraphPasses.h"

namespace megalith {
#define GEN_PASS_DEF_CHOOSETILES
#define GEN_PASS_DEF_ASSIGNSMS
#include "passes/graph/GraphPasses.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

class ChooseTiles : public megalith::impl::ChooseTilesBase<ChooseTiles> {
  void runOnOperation() override {
    for (auto stage : getOperation().getOps<StageOp>())
      switch (stage.getKind()) {
      case StageKind::Linear:
      case StageKind::ExpertUp:
      case StageKind::ExpertDown:
        sliceGemv(stage);
        break;
      case StageKind::Embed:
        sliceEmbed(stage);
        break;
      case StageKind::Attention:
      case StageKind::Merge:
      case StageKind::TopK:
      case StageKind::LaunchEnd:
        break; // dynamic or replicated
      }
  }

  /// Columns [t * width, min((t + 1) * width, of the buffer)) of an access that covered all
  /// columns.
  AccessAttr columns(AccessAttr access, int64_t width, int64_t total) {
    MLIRContext *context = &getContext();
    AffineExpr tile = getAffineDimExpr(0, context);
    AffineExpr row = access.getAt().getValue().getResult(0);
    SmallVector<AffineExpr> cols = {getAffineConstantExpr(width, context)};
    if (total % width)
      cols.push_back(total - tile * width);
    return AccessAttr::get(context, access.getBuffer(), affineMapAttr({row, tile * width}, context),
                           access.getRows(), affineMapAttr(cols, context), access.getTable(),
                           access.getSet());
  }

  void setSlices(StageOp stage, int64_t unit, int64_t units) {
    Builder builder(&getContext());
    int64_t tiles = llvm::divideCeil(units, unit);
    stage.setTiles(tiles);
    stage.setSms(tiles);
    NamedAttrList config(stage.getConfig());
    config.set("unit", builder.getI64IntegerAttr(unit));
    stage.setConfigAttr(config.getDictionary(&getContext()));
  }

  void sliceGemv(StageOp stage) {
    KernelOp kernel = getOperation();
    MLIRContext *context = &getContext();
    WeightsOp weights;
    for (auto access : stage.getReads().getAsRange<AccessAttr>())
      if (auto found = kernel.lookup<WeightsOp>(access.getBuffer()))
        weights = found;
    // A strip is two output rows, or one gate and one up row that make one channel.
    bool isGateUp = weights.getPairing() == Pairing::GateUp;
    int64_t channels = isGateUp ? 1 : 2, strips = weights.strips();
    int64_t unit = llvm::divideCeil(strips, kernel.getSms());
    if (isGateUp)
      unit = llvm::alignTo(unit, 2); // a word holds two channels
    setSlices(stage, unit, strips);

    int64_t width = unit * channels, total = strips * channels;
    AffineExpr tile = getAffineDimExpr(0, context);
    StringRef epilogue;
    if (auto name = stage.getConfig().getAs<StringAttr>("epilogue"))
      epilogue = name.getValue();
    SmallVector<Attribute> reads, writes;
    for (auto access : stage.getReads().getAsRange<AccessAttr>()) {
      bool isResidual =
          epilogue.ends_with("residual") && access == stage.getReads().getValue().back();
      if (kernel.lookup<WeightsOp>(access.getBuffer()))
        access = AccessAttr::get(
            context, access.getBuffer(),
            affineMapAttr({tile * unit, getAffineConstantExpr(0, context)}, context),
            std::min(unit, strips), access.getCols(), access.getTable(), access.getSet());
      else if (isResidual)
        access = columns(access, width, total);
      reads.push_back(access);
    }
    for (auto access : stage.getWrites().getAsRange<AccessAttr>())
      writes.push_back(columns(access, width, total));
    stage.setReadsAttr(ArrayAttr::get(context, reads));
    stage.setWritesAttr(ArrayAttr::get(context, writes));
  }

  void sliceEmbed(StageOp stage) {
    KernelOp kernel = getOperation();
    auto access = cast<AccessAttr>(stage.getWrites()[0]);
    int64_t pairs = kernel.lookup<BufferOp>(access.getBuffer()).cols() / 2;
    int64_t unit = llvm::divideCeil(pairs, kernel.getSms());
    setSlices(stage, unit, pairs);
    stage.setWritesAttr(ArrayAttr::get(&getContext(), {columns(access, 2 * unit, 2 * pairs)}));
  }
};

class AssignSms : public megalith::impl::AssignSmsBase<AssignSms> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    auto own = AffineMap::get(
        1, 0, {getAffineDimExpr(0, context), getAffineConstantExpr(0, context)}, context);
    for (auto stage : getOperation().getOps<StageOp>())
      if (stage.getTiles())
        stage.setAssignAttr(AffineMapAttr::get(own));
  }
};

} // namespace
