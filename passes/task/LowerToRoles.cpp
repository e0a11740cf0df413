//===- LowerToRoles.cpp - a planned kernel's stages become role regions -----===//
#include "passes/Passes.h"
#include "passes/task/Declare.h"
#include "passes/task/Handoffs.h"
#include "passes/task/Lowering.h"

namespace megalith {
#define GEN_PASS_DEF_LOWERTOROLES
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {
struct LowerToRoles : megalith::impl::LowerToRolesBase<LowerToRoles> {
  void runOnOperation() override {
    if (failed(checkStages(getOperation())) || failed(KernelLowering(getOperation()).run()))
      signalPassFailure();
  }
};
} // namespace

LogicalResult KernelLowering::run() {
  if (failed(checkPlanned()))
    return failure();
  widen();
  if (failed(placePrologues()))
    return failure();
  for (auto stage : kernel.getOps<StageOp>()) {
    auto found = prologues.find(stage);
    bool isFirst = found != prologues.end() && found->second;
    if (isFirst) {
      Steps steps(stage, Role::Poller);
      prologue(steps);
    }
    LogicalResult lowered = success();
    switch (stage.getKind()) {
    case StageKind::Embed:
      lowered = lowerEmbed(stage);
      break;
    case StageKind::Linear:
      lowered = lowerLinear(stage);
      break;
    case StageKind::Attention:
      lowered = lowerAttention(stage);
      break;
    case StageKind::Merge:
      lowered = lowerMerge(stage);
      break;
    case StageKind::TopK:
      lowered = lowerTopK(stage);
      break;
    case StageKind::ExpertUp:
      lowered = lowerExpertUp(stage);
      break;
    case StageKind::ExpertDown:
      lowered = lowerExpertDown(stage);
      break;
    case StageKind::Rows:
      lowered = lowerRows(stage);
      break;
    case StageKind::Combine:
      lowered = lowerCombine(stage);
      break;
    case StageKind::LaunchEnd:
      lowerLaunchEnd(stage);
      break;
    }
    if (failed(lowered))
      return failure();
    if (found != prologues.end() && !isFirst) {
      Steps steps(stage, Role::Poller);
      prologue(steps);
    }
  }
  return success();
}

LogicalResult KernelLowering::checkPlanned() {
  if (kernel.isAtRoleLevel())
    return kernel.emitOpError() << "expected stages without role regions, but it is at role level";
  for (auto value : kernel.getOps<BufferOp>())
    if (value.getMutability() == Mutability::Value)
      return value.emitOpError() << "expected exchanges in place of values: run "
                                    "task-materialize-exchanges first";
  if (!kernel.getSmemBytes())
    return kernel.emitOpError() << "expected planned memory: run task-plan-memory first";
  for (const Handoff &handoff : handoffsOf(kernel))
    if (!kernel.lookup<BufferOp>(ref(handoff.name)))
      return kernel.emitOpError() << "expected memory planning to have declared @" << handoff.name;
  return success();
}

//===----------------------------------------------------------------------===//
// Who takes part
//===----------------------------------------------------------------------===//

StageOp KernelLowering::loaderOf(StageOp stage) {
  if (auto shared = configSymbol(stage, "shares_input"))
    return loaderOf(kernel.lookup<StageOp>(shared));
  return stage;
}

StageOp KernelLowering::lastSharer(StageOp loader) {
  StageOp last = loader;
  for (auto stage : kernel.getOps<StageOp>())
    if (isGemv(stage) && loaderOf(stage) == loader)
      last = stage;
  return last;
}

/// Where the weights of pairs are (`weights_of`): with the lists, or apart.
AccessAttr KernelLowering::pairWeights() {
  return whole(pollerRoutes(kernel) ? names::kWeights : names::kRouting);
}

StageOp KernelLowering::topK() {
  for (auto stage : kernel.getOps<StageOp>())
    if (stage.getKind() == StageKind::TopK)
      return stage;
  return {};
}

// Stages that share rows run on the same SMs: rows must be loaded wherever one of them needs them
// and freed wherever they were loaded. SMs without a slice run loops of no iterations.
void KernelLowering::widen() {
  for (auto loader : kernel.getOps<StageOp>()) {
    if (!isGemv(loader) || loaderOf(loader) != loader)
      continue;
    int64_t sms = smsOf(loader);
    for (auto stage : kernel.getOps<StageOp>())
      if (isGemv(stage) && loaderOf(stage) == loader)
        sms = std::max(sms, smsOf(stage));
    for (auto stage : kernel.getOps<StageOp>())
      if (isGemv(stage) && loaderOf(stage) == loader)
        stage.setSms(sms);
  }
}

//===----------------------------------------------------------------------===//
// Order rules
//===----------------------------------------------------------------------===//

bool KernelLowering::pollsCurrent(StageOp stage) {
  for (auto access : stage.getReads().getAsRange<AccessAttr>())
    if (access != residualOf(stage) && access.getSet() == task::Set::Current &&
        kernel.lookup<ExchangeOp>(access.getBuffer()))
      return true;
  return false;
}

// The prologue comes right after the polls of what the previous launch wrote: at the end of the
// last stage before the first poll of this launch's words. It must run on every SM.
LogicalResult KernelLowering::placePrologues() {
  for (int64_t launch = 0; launch < kernel.getLaunches().value_or(1); ++launch) {
    StageOp before, found;
    bool isFirst = false;
    for (auto stage : kernel.getOps<StageOp>()) {
      if (!stage.runsIn(launch))
        continue;
      if (pollsCurrent(stage)) {
        isFirst = !before;
        found = before ? before : stage;
        break;
      }
      before = stage;
    }
    if (!found)
      found = before;
    if (found)
      prologues[found] = isFirst;
  }
  for (auto [found, isFirst] : prologues) {
    if (kernel.isLooping() &&
        !llvm::is_contained({StageKind::Embed, StageKind::Attention}, found.getKind()))
      return found.emitOpError() << "expected every launch of a looping kernel to begin with an "
                                    "embed or attention stage";
    if (isGemv(found)) {
      StageOp loader = loaderOf(found);
      for (auto stage : kernel.getOps<StageOp>())
        if (isGemv(stage) && loaderOf(stage) == loader)
          stage.setSms(kernel.getSms());
    } else {
      found.removeSmsAttr();
    }
  }
  return success();
}

void KernelLowering::prologue(Steps &steps) {
  steps.launchWait();
  for (auto exchange : kernel.getOps<ExchangeOp>())
    if (exchange.getWord() == WordKind::Sentinel)
      RearmOp::create(steps.builder(), exchange.getLoc(), ref(exchange.getSymName()));
  if (kernel.getRanks() > 1)
    tellArmed(steps);
  if (!kernel.isLooping())
    LaunchDependentsOp::create(steps.builder(), kernel.getLoc());
}

void KernelLowering::requireLaunchWait(StageOp stage, Role role, Steps &steps) {
  if (kernel.isLooping()) {
    // Once a launch, in the stage that it begins with.
    if (role != Role::Epilogue || !prologues.count(stage))
      return;
    steps.launchWait();
    steps.signal(names::kLaunched);
    return;
  }
  int64_t &waited = launchWaited[static_cast<int>(role)];
  if (smsOf(stage) <= waited)
    return;
  steps.launchWait();
  waited = smsOf(stage);
}

bool KernelLowering::isAliased() {
  return static_cast<bool>(kernel.lookup<EdgeOp>(ref(names::kAttentionDone)));
}

//===----------------------------------------------------------------------===//
// Accesses and declarations
//===----------------------------------------------------------------------===//

AccessAttr KernelLowering::rectangle(StringRef buffer, ArrayRef<AffineExpr> at, int64_t rows,
                                     ArrayRef<AffineExpr> cols, StringRef table, task::Set set) {
  // Of an exchange of ranks roles poll all, or what varies with the SM: of this rank's share.
  ExchangeOp words = exchange(buffer);
  bool isOwn = words && words.getPeers() && at.back().isFunctionOfDim(0);
  return AccessAttr::get(context, ref(buffer), affineMapAttr(at, context), rows,
                         affineMapAttr(cols, context),
                         table.empty() ? FlatSymbolRefAttr() : ref(table), set, isOwn);
}

AccessAttr KernelLowering::whole(StringRef buffer) {
  auto decl = kernel.lookup<BufferOp>(ref(buffer));
  return rectangle(buffer, {c(0), c(0)}, decl.rows(), {c(decl.cols())});
}

ExchangeOp KernelLowering::exchange(StringRef name) {
  return kernel.lookup<ExchangeOp>(ref(name));
}

RingOp KernelLowering::ring() {
  return kernel.lookup<RingOp>(ref(names::kRing));
}

void KernelLowering::set(StageOp stage, StringRef key, const Twine &text) {
  setConfig(stage, key, StringAttr::get(context, text));
}

void KernelLowering::setSymbol(StageOp stage, StringRef key, StringRef symbol) {
  setConfig(stage, key, ref(symbol));
}

// Loops' bounds and index functions; stages of one shape share them.
LogicalResult KernelLowering::declareBounds(StageOp stage) {
  const Bounds bounds = boundsOf(stage);
  if (bounds.symbols.empty() && bounds.tables.empty())
    return stage.emitOpError()
           << "expected a shape whose loops have bounds: kv_heads, head_dim and "
              "max_positions of at least 1 and at most 2^31 - 1, or top_k of at "
              "most as many experts as there are and a top_k stage before";
  OpBuilder builder = declarations(kernel);
  for (const SymbolBound &symbol : bounds.symbols)
    if (!kernel.lookup<SymbolOp>(ref(symbol.name)))
      SymbolOp::create(builder, kernel.getLoc(), builder.getStringAttr(symbol.name),
                       builder.getI64IntegerAttr(0), builder.getI64IntegerAttr(symbol.max),
                       builder.getStringAttr(symbol.expr),
                       symbol.perSm ? builder.getUnitAttr() : UnitAttr(),
                       symbol.after.empty() ? FlatSymbolRefAttr() : ref(symbol.after));
  for (const TableBound &table : bounds.tables)
    if (!kernel.lookup<TableOp>(ref(table.name)))
      TableOp::create(builder, kernel.getLoc(), table.name, table.size, table.axiom, table.expr);
  return success();
}
