// Several ranks: how each tells the others that they may store to it (docs/kernel-contract.md
// section 12).
#include "passes/task/Handoffs.h"
#include "passes/task/Lowering.h"

using namespace mlir;

namespace megalith::task {

// Launch n + 1 of another rank stores to sets that this SM's poller has just emptied; that it does
// so later is known because every rank ends launch n only when it has heard of it.
void KernelLowering::tellArmed(Steps &steps) {
  std::string edge = (names::kArmed + "_words").str();
  steps.compute("tell_armed<" + edge + ">", {}, {},
                {rectangle(names::kArmed, {c(0), d(0)}, 1, {c(1)})});
}

// SM i of every rank hears of SM i of all: together they hear of everybody.
void KernelLowering::lowerRanksEnd(StageOp stage) {
  std::string edge = (names::kArmed + "_words").str();
  Steps poller(stage, Role::Poller);
  poller.loop("peer", {c(kernel.getRanks())}, [&] {
    AccessAttr word = AccessAttr::get(context, ref(names::kArmed),
                                      affineMapAttr({c(0), d(1) * kernel.getSms() + d(0)}, context),
                                      1, affineMapAttr({c(1)}, context), {}, task::Set::Current);
    poller.poll("await_armed<" + edge + ">", {"peer"}, edge, {word}, {});
  });
}

} // namespace megalith::task
