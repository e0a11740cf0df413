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

// Barriers and the ring share their bytes with nothing; buffers may with each other, in order.
static LogicalResult verifyPlaces(KernelOp kernel) {
  struct Place {
    Operation *op;
    int64_t begin, end;
  };
  SmallVector<Place> alone, buffers;
  for (EdgeOp edge : kernel.edges())
    if (edge.getOffset())
      alone.push_back({edge, *edge.getOffset(), *edge.getOffset() + 8 * edge.getSlots()});
  for (auto ring : kernel.getOps<RingOp>())
    if (ring.getOffset())
      alone.push_back(
          {ring, *ring.getOffset(), *ring.getOffset() + ring.getSlots() * ring.getSlotBytes()});
  for (auto buffer : kernel.getOps<BufferOp>())
    if (buffer.getSpace() == Space::Smem && buffer.getOffset())
      buffers.push_back({buffer, *buffer.getOffset(), *buffer.getOffset() + buffer.byteSize()});
  LogicalResult result = success();
  auto keepApart = [&](const Place &a, const Place &b) {
    if (a.begin < b.end && b.begin < a.end)
      result = a.op->emitOpError()
               << "is placed at bytes " << a.begin << " to " << a.end
               << " of shared memory, some of which belong to @"
               << cast<SymbolOpInterface>(b.op).getName() << " at " << b.begin << " to " << b.end;
  };
  for (size_t i = 0; i < alone.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      keepApart(alone[i], alone[j]);
    for (const Place &buffer : buffers)
      keepApart(alone[i], buffer);
  }
  return result;
}

LogicalResult verify::verifyKernel(KernelOp kernel, int randomCases) {
  if (!kernel.isAtRoleLevel())
    return kernel.emitOpError() << "has no role regions to prove; run task-lower-to-roles first";
  Declarations names(kernel);
  if (failed(verifyArrivals(kernel)) || failed(verifyPlaces(kernel)) ||
      failed(Machine(kernel, names, Valuation::largest()).run()))
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
