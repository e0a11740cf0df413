#include "passes/verify/Verify.h"

#include "passes/verify/Machine.h"

#include "passes/Passes.h"

#include "llvm/ADT/StringMap.h"

namespace megalith {
#define GEN_PASS_DEF_VERIFYTASK
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

// One role signals an edge, each of its warps once a use; a bulk copy's arrival is the producer's.
static LogicalResult verifyArrivals(KernelOp kernel) {
  LogicalResult result = success();
  for (EdgeOp edge : kernel.edges()) {
    int64_t expected = edge.getKind() == EdgeKind::Words ? 1 : warpsOf(edge.getFrom());
    if (edge.getArrivals() != expected)
      result =
          edge.emitOpError() << "expected " << expected << " arrivals a use, one per warp of the "
                             << stringifyRole(edge.getFrom()) << ", but got " << edge.getArrivals();
  }
  return result;
}

LogicalResult verify::verifyKernel(KernelOp kernel, int randomCases) {
  if (!kernel.isAtRoleLevel())
    return kernel.emitOpError() << "has no role regions to prove; run task-lower-to-roles first";
  Declarations names(kernel);
  if (failed(verifyArrivals(kernel)) || failed(Machine(kernel, names, Valuation::largest()).run()))
    return failure();
  for (int seed = 0; seed < randomCases; ++seed)
    if (failed(Machine(kernel, names, Valuation::random(seed)).run())) {
      kernel.emitRemark() << "the fault above needs a smaller case (seed " << seed
                          << "); the largest case passed";
      return failure();
    }
  return success();
}

LogicalResult verify::verifyPlan(ModuleOp module, int randomCases) {
  LogicalResult result = success();
  llvm::StringMap<ExchangeOp> exchanges;
  for (auto kernel : module.getOps<KernelOp>())
    for (auto exchange : kernel.getOps<ExchangeOp>())
      if (exchange.getWord() == WordKind::Sentinel)
        exchanges.try_emplace(exchange.getSymName(), exchange);
  for (auto kernel : module.getOps<KernelOp>()) {
    for (auto &entry : exchanges) {
      auto name = FlatSymbolRefAttr::get(module.getContext(), entry.getKey());
      auto own = kernel.lookup<ExchangeOp>(name);
      if (own && own.getShape() == entry.getValue().getShape() &&
          own.getSets() == entry.getValue().getSets())
        continue;
      result = kernel.emitOpError()
               << "expected exchange @" << entry.getKey()
               << " with the same shape and sets as in the plan's other kernels: every launch "
                  "re-arms every exchange";
    }
    if (failed(verifyKernel(kernel, randomCases)))
      result = failure();
  }
  return result;
}

namespace {
struct VerifyTask : megalith::impl::VerifyTaskBase<VerifyTask> {
  using VerifyTaskBase::VerifyTaskBase;
  void runOnOperation() override {
    if (failed(verify::verifyPlan(getOperation(), randomCases)))
      signalPassFailure();
  }
};
} // namespace
