// Verifiers of stages and of the steps in their role regions: what can be said of one op.
// Whether the waits suffice is the business of passes/verify.
#include "ir/task/TaskVerify.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace megalith::task;
using namespace megalith::task::detail;

/// Rows and columns of what an access names; failure if it names nothing accessible.
static FailureOr<std::pair<int64_t, int64_t>> extentOf(Operation *op, FlatSymbolRefAttr ref) {
  Operation *found = SymbolTable::lookupSymbolIn(kernelOf(op), ref);
  if (auto buffer = dyn_cast_or_null<BufferOp>(found))
    return std::pair(buffer.rows(), buffer.cols());
  if (auto exchange = dyn_cast_or_null<ExchangeOp>(found))
    return std::pair(exchange.rows(), exchange.cols());
  if (auto weights = dyn_cast_or_null<WeightsOp>(found))
    return std::pair(weights.strips(), weights.blocks());
  return op->emitOpError() << "expected an access to " << ref
                           << " to name a buffer, exchange or weights of this kernel";
}

static LogicalResult verifyAccesses(Operation *op, ArrayAttr accesses) {
  for (auto access : accesses.getAsRange<AccessAttr>()) {
    auto extent = extentOf(op, access.getBuffer());
    if (failed(extent))
      return failure();
    unsigned results = access.getAt().getValue().getNumResults();
    if (results != (access.getTable() ? 3 : 2))
      return op->emitOpError() << "expected the place of access " << access.getBuffer() << " to be "
                               << (access.getTable() ? "[table argument, row, column]"
                                                     : "[row, column]")
                               << ", but got " << results << " results";
    if (access.getRows() < 1 || access.getRows() > extent->first)
      return op->emitOpError() << "expected an access of " << access.getBuffer()
                               << " to cover 1 to " << extent->first << " rows, but got "
                               << access.getRows();
    if (access.getTable() && !expectDecl<TableOp>(op, access.getTable(), "a table"))
      return failure();
    if (access.getOwn()) {
      auto exchange = kernelOf(op).lookup<ExchangeOp>(access.getBuffer());
      auto value = kernelOf(op).lookup<BufferOp>(access.getBuffer());
      if (!(exchange && exchange.getPeers()) && !(value && value.getPeers()))
        return op->emitOpError() << "expected " << access.getBuffer()
                                 << " to be an exchange of ranks (peers), since a rank's own share "
                                    "of it is meant";
    }
    if (access.getSet() == Set::Previous) {
      auto exchange = kernelOf(op).lookup<ExchangeOp>(access.getBuffer());
      auto value = kernelOf(op).lookup<BufferOp>(access.getBuffer());
      if (!(exchange && exchange.isCrossing()) && !(value && value.getCrossing()))
        return op->emitOpError() << "expected " << access.getBuffer()
                                 << " to be a crossing exchange (3 sets), since the previous "
                                    "launch's set is read";
    }
  }
  return success();
}

static Role roleOf(Operation *op) {
  return op->getParentOfType<RoleOp>().getRole();
}

static LogicalResult verifySignaller(Operation *op, FlatSymbolRefAttr ref,
                                     ArrayRef<EdgeKind> kinds) {
  auto edge = expectDecl<EdgeOp>(op, ref, "an edge");
  if (!edge)
    return failure();
  if (!llvm::is_contained(kinds, edge.getKind()))
    return op->emitOpError() << "does not signal a " << stringifyEdgeKind(edge.getKind())
                             << " edge like " << ref;
  if (roleOf(op) != edge.getFrom())
    return op->emitOpError() << "expected edge " << ref << " to be signalled by its source role "
                             << stringifyRole(edge.getFrom()) << ", but this is the "
                             << stringifyRole(roleOf(op));
  return success();
}

static LogicalResult verifyWaiter(Operation *op, FlatSymbolRefAttr ref, ArrayRef<EdgeKind> kinds) {
  auto edge = expectDecl<EdgeOp>(op, ref, "an edge");
  if (!edge)
    return failure();
  if (!llvm::is_contained(kinds, edge.getKind()))
    return op->emitOpError() << "does not wait on a " << stringifyEdgeKind(edge.getKind())
                             << " edge like " << ref;
  auto waits = [&](Attribute role) { return cast<RoleAttr>(role).getValue() == roleOf(op); };
  if (llvm::none_of(edge.getTo(), waits))
    return op->emitOpError() << "expected edge " << ref << " to list the "
                             << stringifyRole(roleOf(op)) << " among the roles that wait on it";
  return success();
}

RoleOp StageOp::role(Role role) {
  if (!getBody().empty())
    for (RoleOp op : getBody().getOps<RoleOp>())
      if (op.getRole() == role)
        return op;
  return {};
}

LogicalResult StageOp::verify() {
  if (failed(verifyAccesses(*this, getReads())) || failed(verifyAccesses(*this, getWrites())))
    return failure();
  if (auto during = getDuring()) {
    int64_t launches = kernelOf(*this).getLaunches().value_or(0);
    if (during->size() != 2 || (*during)[0] < 0 || (*during)[0] >= (*during)[1] ||
        (*during)[1] > launches)
      return emitOpError() << "expected during = [first, end) within the kernel's " << launches
                           << " launches, but got [" << *during << "]";
  }
  int64_t sms = kernelOf(*this).getSms();
  if (getSms() && (*getSms() < 1 || *getSms() > sms))
    return emitOpError() << "expected 1 to " << sms << " SMs, but got " << *getSms();
  if (getAssign() && getAssign()->getNumResults() != 2)
    return emitOpError() << "expected assign to give (SM, order), but it has "
                         << getAssign()->getNumResults() << " results";
  SmallVector<bool, 4> seen(4);
  if (!getBody().empty())
    for (Operation &op : getBody().front()) {
      auto role = dyn_cast<RoleOp>(op);
      if (!role)
        return op.emitOpError() << "expected a stage to hold role regions only";
      bool &present = seen[static_cast<int>(role.getRole())];
      if (present)
        return role.emitOpError() << "expected one region for the " << stringifyRole(role.getRole())
                                  << ", but this is the second";
      present = true;
    }
  return success();
}

LogicalResult WaitOp::verify() {
  return verifyWaiter(*this, getEdgeAttr(), {EdgeKind::Mbarrier, EdgeKind::Bytes});
}
LogicalResult PeekOp::verify() {
  return verifyWaiter(*this, getEdgeAttr(), {EdgeKind::Mbarrier});
}
LogicalResult AcquireOp::verify() {
  return verifyWaiter(*this, getEdgeAttr(), {EdgeKind::Credit});
}
LogicalResult SignalOp::verify() {
  return verifySignaller(*this, getEdgeAttr(), {EdgeKind::Mbarrier});
}
LogicalResult ReleaseOp::verify() {
  return verifySignaller(*this, getEdgeAttr(), {EdgeKind::Credit});
}

LogicalResult CopyOp::verify() {
  auto ring = expectDecl<RingOp>(*this, getRingAttr(), "a ring");
  if (!ring || failed(verifySignaller(*this, getEdgeAttr(), {EdgeKind::Bytes})))
    return failure();
  if (ring.getFullAttr() != getEdgeAttr())
    return emitOpError() << "expected a copy into " << getRingAttr() << " to signal its full edge "
                         << ring.getFullAttr() << ", but got " << getEdgeAttr();
  return verifyAccesses(*this, ArrayAttr::get(getContext(), {getSource()}));
}

LogicalResult PaceOp::verify() {
  if (failed(verifySignaller(*this, getEdgeAttr(), {EdgeKind::Bytes})))
    return failure();
  int64_t slots = kernelOf(*this).lookup<EdgeOp>(getEdgeAttr()).getSlots();
  if (getWindow() < 1 || getWindow() > slots)
    return emitOpError() << "expected a window of 1 to " << slots << " copies, the slots of "
                         << getEdgeAttr() << ", but got " << getWindow();
  return success();
}

LogicalResult RefillOp::verify() {
  auto buffer = expectDecl<BufferOp>(*this, getBufferAttr(), "a buffer");
  if (!buffer)
    return failure();
  if (buffer.getSpace() != Space::Smem || buffer.getGuardAttr())
    return emitOpError() << "expected a shared-memory buffer without a guard, but "
                         << getBufferAttr()
                         << (buffer.getGuardAttr() ? " has one" : " is in global memory");
  if (roleOf(*this) != Role::Consumer)
    return emitOpError()
           << "expected the consumers, the only role of several warps, but this is the "
           << stringifyRole(roleOf(*this));
  return success();
}

/// That nobody stores to the set of an earlier launch.
static LogicalResult verifyStores(Operation *op, ArrayAttr writes) {
  for (auto access : writes.getAsRange<AccessAttr>())
    if (access.getSet() == Set::Previous)
      return op->emitOpError() << "stores to the previous set of " << access.getBuffer()
                               << "; expected the current one, as only the launch that owns a set "
                                  "writes it";
  return success();
}

SmallVector<FlatSymbolRefAttr, 2> PollOp::edges() {
  SmallVector<FlatSymbolRefAttr, 2> edges = {getEdgeAttr()};
  if (getAlsoAttr())
    edges.push_back(getAlsoAttr());
  return edges;
}

LogicalResult PollOp::verify() {
  if (failed(verifyWaiter(*this, getEdgeAttr(), {EdgeKind::Words, EdgeKind::Launch})) ||
      (getAlsoAttr() && failed(verifyWaiter(*this, getAlsoAttr(), {EdgeKind::Words}))) ||
      failed(verifyAccesses(*this, getReads())) || failed(verifyAccesses(*this, getWrites())))
    return failure();
  if (FlatSymbolRefAttr joins = getJoinsAttr()) {
    if (failed(verifySignaller(*this, joins, {EdgeKind::Mbarrier})))
      return failure();
    if (kernelOf(*this).lookup<EdgeOp>(getEdgeAttr()).getKind() != EdgeKind::Launch)
      return emitOpError() << "expected bulk copies only over a launch edge, since they cannot "
                              "look at words, but "
                           << getEdgeAttr() << " is a words edge";
  }
  if (getAlsoAttr() && (getAlsoAttr() == getEdgeAttr() ||
                        kernelOf(*this).lookup<EdgeOp>(getEdgeAttr()).getKind() != EdgeKind::Words))
    return emitOpError() << "expected a poll of two edges to wait for words of each, but got "
                         << getEdgeAttr() << " and " << getAlsoAttr();
  if (failed(verifyStores(*this, getWrites())))
    return failure();
  SmallVector<FlatSymbolRefAttr, 2> unread = edges();
  for (auto access : getReads().getAsRange<AccessAttr>()) {
    auto exchange = kernelOf(*this).lookup<ExchangeOp>(access.getBuffer());
    // What the words meet when they come: shared memory, constants.
    auto buffer = kernelOf(*this).lookup<BufferOp>(access.getBuffer());
    if (buffer &&
        (buffer.getSpace() == Space::Smem || buffer.getMutability() == Mutability::Immutable))
      continue;
    if (!exchange || !llvm::is_contained(edges(), exchange.getEdgeAttr()))
      return emitOpError() << "expected a poll of " << getEdgeAttr()
                           << (getAlso() ? " and @" + getAlso()->str() : std::string())
                           << " to read the exchange of "
                           << (getAlso() ? "one of these edges" : "that edge") << ", but it reads "
                           << access.getBuffer();
    llvm::erase(unread, exchange.getEdgeAttr());
  }
  if (!unread.empty())
    return emitOpError() << "expected to read words of " << unread.front();
  return success();
}

LogicalResult ComputeOp::verify() {
  if (failed(verifyAccesses(*this, getReads())) || failed(verifyAccesses(*this, getWrites())))
    return failure();
  if (failed(verifyStores(*this, getWrites())))
    return failure();
  if (getRingAttr() && !expectDecl<RingOp>(*this, getRingAttr(), "a ring"))
    return failure();
  for (auto access : getReads().getAsRange<AccessAttr>())
    if (kernelOf(*this).lookup<ExchangeOp>(access.getBuffer()))
      return emitOpError() << "expected exchange " << access.getBuffer()
                           << " to be read by a poll, which waits for its words";
  for (auto access : getWrites().getAsRange<AccessAttr>())
    if (auto exchange = kernelOf(*this).lookup<ExchangeOp>(access.getBuffer()))
      if (failed(
              verifySignaller(*this, exchange.getEdgeAttr(), {EdgeKind::Words, EdgeKind::Launch})))
        return failure();
  return success();
}

LogicalResult LaunchWaitOp::verify() {
  if (kernelOf(*this).isLooping() != getEdgeAttr().operator bool())
    return emitOpError()
           << "expected an edge in a kernel that loops over launches, and in no other";
  return getEdgeAttr() ? verifyWaiter(*this, getEdgeAttr(), {EdgeKind::Launches}) : success();
}
LogicalResult LaunchDoneOp::verify() {
  return verifySignaller(*this, getEdgeAttr(), {EdgeKind::Launches});
}

LogicalResult RearmOp::verify() {
  auto exchange = expectDecl<ExchangeOp>(*this, getExchangeAttr(), "an exchange");
  if (exchange && exchange.getWord() != WordKind::Sentinel)
    return emitOpError() << "does not apply to " << getExchangeAttr() << ": "
                         << (exchange.getWord() == WordKind::Epoch    ? "epochs never repeat"
                             : exchange.getWord() == WordKind::Number ? "numbers never fall"
                                                                      : "its words prove nothing");
  return success(exchange);
}
