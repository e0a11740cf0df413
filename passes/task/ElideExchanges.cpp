//===- ElideExchanges.cpp - waits that others imply -------------------------===//
//
// Two linear stages of one SM often want the same rows: branches of one norm, or a router and a
// gate. The second need not poll, copy and norm them again.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/task/Stages.h"
#include "passes/why/Why.h"

namespace megalith {
#define GEN_PASS_DEF_ELIDEEXCHANGES
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

struct ElideExchanges : megalith::impl::ElideExchangesBase<ElideExchanges> {
  void runOnOperation() override {
    if (failed(checkStages(getOperation())))
      return signalPassFailure();
    StageOp loaded; // the stage that last brought rows
    for (auto stage : getOperation().getOps<StageOp>()) {
      AccessAttr input = inputOf(stage);
      if (!input || stage.getKind() != StageKind::Linear)
        continue;
      if (loaded && isSameInput(loaded, stage)) {
        share(stage, input, loaded);
        continue;
      }
      loaded = stage;
    }
  }

  /// Same rows of the same set, normed the same way, present on every SM of `stage`.
  static bool isSameInput(StageOp loaded, StageOp stage) {
    if (inputOf(loaded) != inputOf(stage) || smsOf(loaded) < smsOf(stage))
      return false;
    for (StringRef key : {"norm", "eps", "gain", "k"})
      if (loaded.getConfig().get(key) != stage.getConfig().get(key))
        return false;
    return true;
  }

  static void share(StageOp stage, AccessAttr input, StageOp loaded) {
    SmallVector<Attribute> reads(stage.getReads().begin(), stage.getReads().end());
    reads.erase(llvm::find(reads, input));
    stage.setReadsAttr(ArrayAttr::get(stage.getContext(), reads));
    setConfig(stage, "shares_input", FlatSymbolRefAttr::get(loaded.getSymNameAttr()));
    recordReason(stage, {getArgumentName().str(), "elided, input rows", "their read",
                         ("@" + loaded.getSymName() + " before it brought the same rows of @" +
                          input.getBuffer().getValue() + ", normed alike, to all of its SMs")
                             .str()});
  }
};

} // namespace
