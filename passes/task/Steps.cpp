#include "passes/task/Lowering.h"

#include "passes/task/Handoffs.h"

using namespace mlir;

namespace megalith::task {

Steps::Steps(StageOp stage, Role role) : ops(stage.getContext()), loc(stage.getLoc()) {
  RoleOp region = stage.role(role);
  if (!region) {
    if (stage.getBody().empty())
      stage.getBody().emplaceBlock();
    ops.setInsertionPointToEnd(&stage.getBody().front());
    region = RoleOp::create(ops, loc, role);
    region.getBody().emplaceBlock();
  }
  ops.setInsertionPointToEnd(&region.getBody().front());
}

FlatSymbolRefAttr Steps::ref(StringRef name) {
  return FlatSymbolRefAttr::get(ops.getContext(), name);
}

StringAttr Steps::optional(StringRef text) {
  return text.empty() ? StringAttr() : ops.getStringAttr(text);
}

ArrayAttr Steps::strings(Args args) {
  return ops.getStrArrayAttr(args);
}

ArrayAttr Steps::array(Accesses accesses) {
  return ops.getArrayAttr(SmallVector<Attribute>(accesses.begin(), accesses.end()));
}

void Steps::wait(StringRef edge, StringRef result) {
  WaitOp::create(ops, loc, ref(edge), optional(result));
}

void Steps::acquire(StringRef edge, StringRef result) {
  AcquireOp::create(ops, loc, ref(edge), optional(result));
}

void Steps::peek(StringRef edge) {
  PeekOp::create(ops, loc, ref(edge));
}

void Steps::signal(StringRef edge) {
  SignalOp::create(ops, loc, ref(edge));
}

void Steps::release(StringRef edge) {
  ReleaseOp::create(ops, loc, ref(edge));
}

void Steps::local(StringRef name, StringRef type, StringRef init) {
  LocalOp::create(ops, loc, ops.getStringAttr(name), ops.getStringAttr(type), optional(init));
}

void Steps::launchWait() {
  bool isLooping = ops.getInsertionBlock()->getParentOp()->getParentOfType<KernelOp>().isLooping();
  LaunchWaitOp::create(ops, loc, isLooping ? ref(names::kComplete) : FlatSymbolRefAttr());
}

void Steps::pace(RingOp ring, std::optional<int64_t> window) {
  if (window)
    PaceOp::create(ops, loc, ring.getFullAttr(),
                   ops.getI64IntegerAttr(std::min(*window, ring.getSlots())));
}

void Steps::refill(StringRef buffer) {
  RefillOp::create(ops, loc, ref(buffer));
}

void Steps::compute(const Twine &callee, Args args, Accesses reads, Accesses writes,
                    StringRef result, bool readsRing) {
  // A rank stores nothing but its share.
  auto kernel = ops.getInsertionBlock()->getParentOp()->getParentOfType<KernelOp>();
  SmallVector<AccessAttr> stored;
  for (AccessAttr write : writes) {
    auto exchange = kernel.lookup<ExchangeOp>(write.getBuffer());
    stored.push_back(write.withOwn(exchange && exchange.getPeers()));
  }
  ComputeOp::create(ops, loc, ops.getStringAttr(callee), strings(args), array(reads), array(stored),
                    readsRing ? ref(names::kRing) : FlatSymbolRefAttr(), optional(result),
                    MeetingAttr());
}

void Steps::computeMet(const Twine &callee, Args args, Accesses reads, Accesses writes,
                       Meeting when) {
  compute(callee, args, reads, writes);
  cast<ComputeOp>(ops.getInsertionBlock()->back()).setMeets(when);
}

void Steps::poll(const Twine &callee, Args args, StringRef edge, Accesses reads, Accesses writes,
                 StringRef joins, StringRef also) {
  PollOp::create(ops, loc, ops.getStringAttr(callee), strings(args), ref(edge),
                 also.empty() ? FlatSymbolRefAttr() : ref(also), array(reads), array(writes),
                 joins.empty() ? FlatSymbolRefAttr() : ref(joins));
}

void Steps::copy(const Twine &callee, Args args, AccessAttr source) {
  CopyOp::create(ops, loc, ops.getStringAttr(callee), strings(args), source, ref(names::kRing),
                 ref(names::kFull));
}

void Steps::loop(StringRef index, TripsAttr trips, function_ref<void()> body, StringRef iterate) {
  auto loop = ForOp::create(ops, loc, ops.getStringAttr(index), trips, optional(iterate));
  loop.getBody().emplaceBlock();
  OpBuilder::InsertionGuard guard(ops);
  ops.setInsertionPointToStart(&loop.getBody().front());
  ++loops;
  body();
  --loops;
}

void Steps::loop(StringRef index, ArrayRef<AffineExpr> trips, function_ref<void()> body,
                 StringRef iterate) {
  loop(index, TripsAttr::get(ops.getContext(), affineMapAttr(trips, ops.getContext()), {}), body,
       iterate);
}

void Steps::unrolled(StringRef index, ArrayRef<AffineExpr> trips, function_ref<void()> body) {
  loop(index, trips, body);
  Operation &made = ops.getInsertionBlock()->back();
  made.setAttr(kUnrolled, ops.getUnitAttr());
}

void Steps::loop(StringRef index, StringRef symbol, function_ref<void()> body, StringRef iterate) {
  loop(index, TripsAttr::get(ops.getContext(), {}, ref(symbol)), body, iterate);
}

void Steps::dealt(StringRef index, StringRef symbol, StringRef unit, AffineExpr trips,
                  int64_t units, function_ref<void()> body) {
  loop(index, symbol, [&] { loop(unit, {trips}, body); });
  ops.getInsertionBlock()->back().setAttr(kDealt, ops.getI64IntegerAttr(units));
}

} // namespace megalith::task
