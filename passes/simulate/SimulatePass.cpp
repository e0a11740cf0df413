//===- SimulatePass.cpp - task-simulate as a pass -------------------------===//

#include "passes/costs/Builtin.h"
#include "passes/simulate/Simulate.h"
#include "passes/simulate/SimulatePasses.h"

#include "llvm/Support/FormatVariadic.h"

namespace megalith {
#define GEN_PASS_DEF_SIMULATETASK
#include "passes/simulate/SimulatePasses.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

/// Means of a role's warps in one stage.
struct RoleMeans {
  double begin = 0, end = 0, waited = 0, stalled = 0;
  int64_t warps = 0;

  void add(const simulate::WarpStage &stage, double launchBegin) {
    begin += stage.begin - launchBegin;
    end += stage.end - launchBegin;
    waited += stage.waited;
    stalled += stage.stalled;
    ++warps;
  }
};

Role roleOf(int64_t warp) {
  return warp == 0   ? Role::Producer
         : warp == 1 ? Role::Poller
         : warp < 10 ? Role::Consumer
                     : Role::Epilogue;
}

void tell(KernelOp kernel, const simulate::LaunchTimes &launch) {
  int64_t number = 0;
  for (StageOp stage : kernel.getOps<StageOp>()) {
    std::array<RoleMeans, 4> roles;
    for (const simulate::WarpTimes &warp : launch.warps)
      for (const simulate::WarpStage &part : warp.stages)
        if (part.stage == number)
          roles[size_t(roleOf(warp.warp))].add(part, launch.begin);
    for (Role role : {Role::Producer, Role::Poller, Role::Consumer, Role::Epilogue})
      if (const RoleMeans &means = roles[size_t(role)]; means.warps) {
        const auto count = double(means.warps);
        std::string text = llvm::formatv("predicted, {0}: {1:F1} to {2:F1} ns", stringifyRole(role),
                                         means.begin / count, means.end / count);
        if (role == Role::Consumer)
          text += llvm::formatv(", waited {0:F1}, stalled {1:F1}", means.waited / count,
                                means.stalled / count);
        stage.emitRemark() << text;
      }
    ++number;
  }
}

struct SimulateTask : megalith::impl::SimulateTaskBase<SimulateTask> {
  using SimulateTaskBase::SimulateTaskBase;

  void runOnOperation() override {
    for (KernelOp kernel : getOperation().getOps<KernelOp>())
      if (llvm::Error error = run(kernel)) {
        kernel.emitOpError() << "cannot be simulated: " << llvm::toString(std::move(error));
        return signalPassFailure();
      }
  }

  llvm::Error run(KernelOp kernel) {
    auto table = costs.empty() ? megalith::costs::builtinCostTable(kernel.getTarget())
                               : megalith::costs::readCostTable(costs);
    if (!table)
      return table.takeError();
    auto known = simulate::Costs::of(*table);
    if (!known)
      return known.takeError();
    const std::vector<KernelOp> all(size_t(std::max<int64_t>(launches, 1)), kernel);
    const std::vector<int64_t> contexts(size_t(int64_t(kernel.getRows())), context);
    auto timeline = simulate::simulate(all, *known, {contexts, uint64_t(seed)});
    if (!timeline)
      return timeline.takeError();
    tell(kernel, timeline->launches.back());
    for (const std::string &name : timeline->estimated)
      kernel.emitRemark() << "no cost is known for " << name << ": that of a like function taken";
    for (const std::string &name : timeline->unknown)
      kernel.emitRemark() << "no cost is known for " << name << ": taken to take no time";
    return llvm::Error::success();
  }
};

} // namespace
