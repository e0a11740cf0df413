//===- EdgeWaits.cpp - What a role waits for before it signals --------------===//

#include "codegen/EdgeWaits.h"

#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;
using namespace megalith::task;

namespace megalith {

/// The edges that `op` waits for.
static SmallVector<FlatSymbolRefAttr, 2> awaitedBy(Operation *op) {
  using Edges = SmallVector<FlatSymbolRefAttr, 2>;
  return llvm::TypeSwitch<Operation *, Edges>(op)
      .Case<WaitOp, PeekOp, AcquireOp, PaceOp>([](auto wait) { return Edges{wait.getEdgeAttr()}; })
      .Case([](PollOp poll) { return poll.edges(); })
      .Case([](LaunchWaitOp wait) {
        return wait.getEdgeAttr() ? Edges{wait.getEdgeAttr()} : Edges();
      })
      .Default([](Operation *) { return Edges(); });
}

/// Whether `op` is or completes a signal of `edge`.
static bool signals(Operation *op, EdgeOp edge) {
  const StringRef name = edge.getSymName();
  auto kernel = edge->getParentOfType<KernelOp>();
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<SignalOp, ReleaseOp, CopyOp, LaunchDoneOp>(
          [&](auto signal) { return signal.getEdge() == name; })
      .Case([&](PollOp poll) { return poll.getJoins() == name; })
      .Case([&](ComputeOp compute) {
        return llvm::any_of(compute.getWrites().getAsRange<AccessAttr>(), [&](AccessAttr write) {
          auto exchange = kernel.lookup<ExchangeOp>(write.getBuffer());
          return exchange && exchange.getEdge() == name;
        });
      })
      .Default([](Operation *) { return false; });
}

std::vector<int64_t> edgesAwaitedBefore(KernelOp kernel, EdgeOp edge) {
  // Places in the role's program: of each edge's first wait, and where the last signal may come.
  std::map<std::string, int64_t> firstWait;
  int64_t place = 0, lastSignal = -1;
  for (auto stage : kernel.getOps<StageOp>()) {
    RoleOp region = stage.role(edge.getFrom());
    if (!region)
      continue;
    for (Operation &step : region.getBody().front()) {
      bool signalsWithin = false;
      step.walk<WalkOrder::PreOrder>([&](Operation *op) {
        ++place;
        for (FlatSymbolRefAttr awaited : awaitedBy(op))
          firstWait.try_emplace(awaited.getValue().str(), place);
        signalsWithin |= signals(op, edge);
      });
      if (signalsWithin)
        lastSignal = place; // a loop may come round to it again
    }
  }
  if (lastSignal >= 0 && kernel.isLooping())
    lastSignal = place;
  std::vector<int64_t> before;
  for (EdgeOp other : kernel.edges())
    if (auto wait = firstWait.find(other.getSymName().str());
        wait != firstWait.end() && wait->second <= lastSignal)
      before.push_back(other.getId());
  return before;
}

} // namespace megalith
