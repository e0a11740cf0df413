#include "passes/task/Declare.h"

#include "llvm/ADT/BitVector.h"

using namespace mlir;

namespace megalith::task {

OpBuilder declarations(KernelOp kernel) {
  Block &body = kernel.getBody().front();
  for (Operation &op : body)
    if (isa<StageOp>(op))
      return OpBuilder(&op);
  return OpBuilder::atBlockEnd(&body);
}

EdgeOp declareEdge(KernelOp kernel, StringRef name, EdgeKind kind, Role from, ArrayAttr to,
                   int64_t slots, int64_t arrivals, std::optional<int64_t> counterSlot) {
  OpBuilder builder = declarations(kernel);
  IntegerAttr slot = counterSlot ? builder.getI64IntegerAttr(*counterSlot) : IntegerAttr();
  return EdgeOp::create(builder, kernel.getLoc(), name, static_cast<int64_t>(kernel.edges().size()),
                        kind, from, to, slots, arrivals, /*offset=*/IntegerAttr(), slot);
}

EdgeOp declareEdge(KernelOp kernel, StringRef name, EdgeKind kind, Role from, ArrayRef<Role> to,
                   int64_t slots, int64_t arrivals, std::optional<int64_t> counterSlot) {
  SmallVector<Attribute> roles;
  for (Role role : to)
    roles.push_back(RoleAttr::get(kernel.getContext(), role));
  return declareEdge(kernel, name, kind, from, ArrayAttr::get(kernel.getContext(), roles), slots,
                     arrivals, counterSlot);
}

std::optional<int64_t> freeSlot(KernelOp kernel) {
  llvm::BitVector taken(kMaxBuffers);
  auto take = [&](std::optional<int64_t> slot) {
    if (slot && *slot >= 0 && *slot < kMaxBuffers)
      taken.set(*slot);
  };
  for (auto buffer : kernel.getOps<BufferOp>())
    take(buffer.getSlot());
  for (auto weights : kernel.getOps<WeightsOp>())
    take(weights.getSlot());
  for (auto exchange : kernel.getOps<ExchangeOp>())
    take(exchange.getSlot());
  for (auto edge : kernel.getOps<EdgeOp>())
    take(edge.getSlot());
  int free = taken.find_first_unset();
  return free < 0 ? std::nullopt : std::optional<int64_t>(free);
}

} // namespace megalith::task
