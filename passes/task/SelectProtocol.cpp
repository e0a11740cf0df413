//===- SelectProtocol.cpp - how each dependence synchronises ----------------===//
#include "passes/Passes.h"
#include "passes/task/Declare.h"
#include "passes/task/Handoffs.h"
#include "passes/task/Stages.h"
#include "passes/why/Why.h"

#include "llvm/Support/FormatVariadic.h"

namespace megalith {
#define GEN_PASS_DEF_SELECTPROTOCOL
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

/// Sets larger than this cost too much to re-arm in every launch.
constexpr int64_t kMaxRearmedBytes = 64 * 1024;

struct SelectProtocol : megalith::impl::SelectProtocolBase<SelectProtocol> {
  void runOnOperation() override {
    SmallVector<KernelOp> kernels(getOperation().getOps<KernelOp>());
    for (KernelOp kernel : kernels) {
      if (failed(checkStages(kernel)))
        return signalPassFailure();
      for (auto exchange : kernel.getOps<ExchangeOp>())
        selectWords(exchange);
    }
    for (KernelOp kernel : kernels)
      for (KernelOp other : kernels)
        for (auto exchange : other.getOps<ExchangeOp>())
          if (exchange.getWord() == WordKind::Sentinel && failed(rearmToo(kernel, exchange)))
            return signalPassFailure();
    for (KernelOp kernel : kernels) {
      declareHandoffs(kernel);
      if (kernel.isLooping() && failed(declareLoop(kernel)))
        return signalPassFailure();
    }
  }

  /// Epochs where nobody can tell at compile time which words a launch writes, and where a set is
  /// too large to re-arm. Only fp32 has room for an epoch beside it, and only this launch may read.
  static void selectWords(ExchangeOp exchange) {
    bool isDynamic = false, isMerged = false, isStream = exchange.getPeers();
    for (auto stage : exchange->getParentOfType<KernelOp>().getOps<StageOp>()) {
      auto touches = [&](ArrayAttr accesses) {
        return llvm::any_of(accesses.getAsRange<AccessAttr>(), [&](AccessAttr access) {
          return access.getBuffer().getValue() == exchange.getSymName();
        });
      };
      isDynamic |= stage.getKind() == StageKind::Attention && touches(stage.getWrites());
      isMerged |=
          stage.getKind() == StageKind::Merge &&
          cast<AccessAttr>(stage.getReads()[0]).getBuffer().getValue() == exchange.getSymName();
      // Words of a stream and of sums have readers that know sentinels only; so have ranks' words.
      isStream |=
          (stage.getKind() == StageKind::Rows && touches(stage.getWrites())) ||
          ((stage.getKind() == StageKind::Combine || pairsOf(stage)) && touches(stage.getReads()));
    }
    if (exchange.getWord() == WordKind::Plain) {
      if (isDynamic || isMerged) // records lie as they do with epochs
        exchange.setWord(WordKind::Triple);
      explain(exchange, "handed on by the end of a launch: words need not prove themselves");
      return;
    }
    if (exchange.getWord() == WordKind::Number) {
      explain(exchange, "it only grows, so a later one says as much and nothing need be emptied");
      return;
    }
    const int64_t setBytes = exchange.rows() * exchange.wordsPerRow() * 4;
    bool isLarge = setBytes > kMaxRearmedBytes;
    if (!exchange.getElement().isF32() || exchange.isCrossing() ||
        !(isDynamic || (isLarge && !isStream))) {
      explain(exchange,
              llvm::formatv("{0}: empty words show by themselves, and re-arming {1} bytes a launch "
                            "is cheap (at most {2})",
                            !exchange.getElement().isF32() ? "bf16 has no room for an epoch"
                            : exchange.isCrossing()        ? "the next launch reads them too"
                                                           : "which words a launch writes is known",
                            setBytes, kMaxRearmedBytes)
                  .str());
      return;
    }
    exchange.setWord(WordKind::Epoch);
    exchange.setSets(1);
    explain(exchange, isDynamic ? "which words a launch writes depends on its sequences, so none "
                                  "can be re-armed; each carries the number of its launch"
                                : llvm::formatv("a set of {0} bytes is too large to re-arm (over "
                                                "{1}); each word carries the number of its launch",
                                                setBytes, kMaxRearmedBytes)
                                      .str());
    recordReason(exchange, {getArgumentName().str(), "sets", "1",
                            "a word of another launch never matches: no set is emptied"});
  }

  static void explain(ExchangeOp exchange, const Twine &because) {
    recordReason(exchange, {getArgumentName().str(), "words",
                            stringifyWordKind(exchange.getWord()).str(), because.str()});
  }

  /// Launch n empties the set that launch n+1 writes, whichever kernels these are.
  static LogicalResult rearmToo(KernelOp kernel, ExchangeOp exchange) {
    if (kernel.lookup<ExchangeOp>(FlatSymbolRefAttr::get(exchange.getSymNameAttr())))
      return success();
    std::optional<int64_t> slot = freeSlot(kernel);
    if (!slot)
      return kernel.emitOpError() << "expected at most " << kMaxBuffers
                                  << " buffers and weights, but finds no free "
                                     "slot to re-arm @"
                                  << exchange.getSymName();
    OpBuilder builder = declarations(kernel);
    auto copy = cast<ExchangeOp>(builder.clone(*exchange));
    copy.setSlot(*slot);
    copy->removeAttr(kWhy);
    recordReason(copy, {getArgumentName().str(), "re-armed", "in this kernel too",
                        ("sets follow the number of the launch, whichever kernel it is of; @" +
                         exchange->getParentOfType<KernelOp>().getSymName() + " uses it")
                            .str()});
    declareEdge(kernel, exchange.getEdge(), EdgeKind::Words, Role::Epilogue, {Role::Poller}, 1, 1);
    return success();
  }

  /// Launch n of a looping kernel may re-arm, and store over what n-1 read, when every SM is over
  /// with n-1: on each the epilogue, told by the other roles, arrives on a counter. The poller and
  /// the epilogue wait for all SMs' arrivals, each for itself lest they wait for each other; the
  /// epilogue, first to know, tells the consumers.
  static LogicalResult declareLoop(KernelOp kernel) {
    std::optional<int64_t> slot = freeSlot(kernel);
    if (!slot)
      return kernel.emitOpError() << "expected at most " << kMaxBuffers
                                  << " buffers and weights, but finds no free "
                                     "slot to count launches in";
    declareEdge(kernel, names::kLaunched, EdgeKind::Mbarrier, Role::Epilogue, {Role::Consumer}, 1,
                warpsOf(Role::Epilogue));
    for (auto [name, from] : {std::pair(names::kProducerOver, Role::Producer),
                              std::pair(names::kPollerOver, Role::Poller),
                              std::pair(names::kConsumerOver, Role::Consumer)})
      declareEdge(kernel, name, EdgeKind::Mbarrier, from, {Role::Epilogue}, 1, warpsOf(from));
    declareEdge(kernel, names::kComplete, EdgeKind::Launches, Role::Epilogue,
                {Role::Poller, Role::Epilogue}, 1, 1, slot);
    return success();
  }

  /// On one SM roles hand each other shared memory by mbarriers: full and, where a slot is filled
  /// more than once, free.
  static void declareHandoffs(KernelOp kernel) {
    for (const Handoff &handoff : handoffsOf(kernel)) {
      if (!handoff.full.empty()) {
        auto full = declareEdge(kernel, handoff.full, EdgeKind::Mbarrier, handoff.from, handoff.to,
                                handoff.slots, warpsOf(handoff.from));
        recordReason(full,
                     {getArgumentName().str(), "protocol", "mbarrier",
                      "roles of one SM hand each other @" + handoff.name + " in shared memory"});
      }
      if (!handoff.free.empty()) {
        auto free = declareEdge(kernel, handoff.free, EdgeKind::Credit, handoff.to.front(),
                                {handoff.from}, handoff.slots, warpsOf(handoff.to.front()));
        recordReason(free, {getArgumentName().str(), "protocol", "credit",
                            "@" + handoff.name +
                                " is filled more than once a launch: a filling "
                                "waits until the last one there is read"});
      }
    }
  }
};

} // namespace
