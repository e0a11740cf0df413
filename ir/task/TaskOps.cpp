// Verifiers and custom syntax of the task dialect's ops: what can be said of one op or one kernel's
// declarations. Whether the waits suffice is the business of passes/task/Verify*.cpp.
#include "ir/task/Task.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace megalith::task;

// A loop's trip count reads as `4`, `@active` or `[4, 13 - d0]` (the least of these).
static ParseResult parseTrips(OpAsmParser &parser, TripsAttr &trips) {
  MLIRContext *context = parser.getContext();
  int64_t count;
  OptionalParseResult constant = parser.parseOptionalInteger(count);
  if (constant.has_value()) {
    if (failed(*constant))
      return failure();
    trips =
        TripsAttr::get(context, AffineMapAttr::get(AffineMap::getConstantMap(count, context)), {});
    return success();
  }
  StringAttr name;
  if (succeeded(parser.parseOptionalSymbolName(name))) {
    trips = TripsAttr::get(context, {}, FlatSymbolRefAttr::get(name));
    return success();
  }
  AffineMapAttr map;
  if (parseExprs(parser, AsmParser::Delimiter::Square, map))
    return failure();
  trips = TripsAttr::get(context, map, {});
  return success();
}

static void printTrips(OpAsmPrinter &printer, Operation *, TripsAttr trips) {
  if (FlatSymbolRefAttr symbol = trips.getSymbol())
    printer << symbol;
  else if (AffineMap map = trips.getMap().getValue(); map.isSingleConstant())
    printer << map.getSingleConstantResult();
  else {
    printer << '[';
    llvm::interleaveComma(map.getResults(), printer);
    printer << ']';
  }
}

// Accesses read as `[@x[0, 0] 1 x [512], …]`, without the attribute's own brackets.
static ParseResult parseAccess(OpAsmParser &parser, AccessAttr &access) {
  return AccessAttr::parseBody(parser, access);
}

static void printAccess(OpAsmPrinter &printer, Operation *, AccessAttr access) {
  access.printBody(printer);
}

static ParseResult parseAccesses(OpAsmParser &parser, ArrayAttr &accesses) {
  SmallVector<Attribute> list;
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&]() -> ParseResult {
        AccessAttr access;
        if (AccessAttr::parseBody(parser, access))
          return failure();
        list.push_back(access);
        return success();
      }))
    return failure();
  accesses = parser.getBuilder().getArrayAttr(list);
  return success();
}

static void printAccesses(OpAsmPrinter &printer, Operation *, ArrayAttr accesses) {
  printer << '[';
  llvm::interleaveComma(accesses.getAsRange<AccessAttr>(), printer,
                        [&](AccessAttr access) { access.printBody(printer); });
  printer << ']';
}

// The roles that wait on an edge read as `consumer, epilogue`.
static ParseResult parseRoles(OpAsmParser &parser, ArrayAttr &roles) {
  SmallVector<Attribute> list;
  auto parseRole = [&]() -> ParseResult {
    StringRef keyword;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<Role> role = symbolizeRole(keyword);
    if (!role)
      return parser.emitError(loc)
             << "expected producer, poller, consumer or epilogue, but got " << keyword;
    list.push_back(RoleAttr::get(parser.getContext(), *role));
    return success();
  };
  if (parser.parseCommaSeparatedList(parseRole))
    return failure();
  roles = parser.getBuilder().getArrayAttr(list);
  return success();
}

static void printRoles(OpAsmPrinter &printer, Operation *, ArrayAttr roles) {
  llvm::interleaveComma(roles.getAsRange<RoleAttr>(), printer,
                        [&](RoleAttr role) { printer << stringifyRole(role.getValue()); });
}

#define GET_OP_CLASSES
#include "ir/task/TaskOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Shared checks
//===----------------------------------------------------------------------===//

static KernelOp kernelOf(Operation *op) {
  return op->getParentOfType<KernelOp>();
}

/// The declaration `ref` names in op's kernel; an error on `op` if there is none of that kind.
template <typename OpT>
static OpT expectDecl(Operation *op, FlatSymbolRefAttr ref, StringRef what) {
  Operation *found = SymbolTable::lookupSymbolIn(kernelOf(op), ref);
  if (!found) {
    op->emitOpError() << "expected " << ref << " to be " << what
                      << " declared in this kernel, but nothing has that name";
    return {};
  }
  if (auto decl = dyn_cast<OpT>(found))
    return decl;
  op->emitOpError() << "expected " << ref << " to be " << what << ", but it is a "
                    << found->getName();
  return {};
}

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

// Far more than anything real, and so little that products of two with an element's bytes fit
// 64 bits.
static constexpr int64_t kMaxElements = int64_t(1) << 44;
static constexpr int64_t kMaxSlots = int64_t(1) << 16;
static constexpr int64_t kMaxSmemBytes = int64_t(1) << 31;

/// That a count or place is not negative and not beyond anything real.
static LogicalResult verifyAtMost(Operation *op, StringRef what, int64_t value, int64_t most) {
  if (value >= 0 && value <= most)
    return success();
  return op->emitOpError() << "expected " << what << " of 0 to " << most << ", but got " << value;
}

static LogicalResult verifyShape(Operation *op, ArrayRef<int64_t> shape, Type element) {
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1)
    return op->emitOpError() << "expected a shape of two positive sizes [rows, columns], but got ["
                             << shape << "]";
  if (shape[0] > kMaxElements / shape[1])
    return op->emitOpError() << "expected at most " << kMaxElements
                             << " elements, more than GPUs hold, but a shape of [" << shape
                             << "] has more";
  if (!element.isIntOrFloat())
    return op->emitOpError() << "expected an integer or float element type, but got " << element;
  return success();
}

/// Pairs of a width and the ranks that share it.
static LogicalResult verifyRankParts(Operation *op, std::optional<ArrayRef<int64_t>> parts,
                                     int64_t cols) {
  if (!parts)
    return success();
  int64_t sum = 0, ranks = kernelOf(op).getRanks();
  bool isFine = parts->size() % 2 == 0;
  for (size_t i = 0; isFine && i < parts->size(); i += 2) {
    sum += (*parts)[i];
    isFine = (*parts)[i] > 0 && (*parts)[i + 1] > 0 && ranks % (*parts)[i + 1] == 0;
  }
  if (!isFine || sum != cols)
    return op->emitOpError() << "expected rank_parts to be pairs (columns, ranks that share them) "
                                "of "
                             << cols << " columns in all, but got [" << *parts << "]";
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

//===----------------------------------------------------------------------===//
// Kernel and declarations
//===----------------------------------------------------------------------===//

SmallVector<EdgeOp> KernelOp::edges() {
  SmallVector<EdgeOp> edges(getOps<EdgeOp>());
  llvm::sort(edges, [](EdgeOp a, EdgeOp b) { return a.getId() < b.getId(); });
  return edges;
}

SmallVector<ExchangeOp> KernelOp::peerExchanges() {
  SmallVector<ExchangeOp> peers;
  for (auto exchange : getOps<ExchangeOp>())
    if (exchange.getPeers())
      peers.push_back(exchange);
  return peers;
}

bool KernelOp::isAtRoleLevel() {
  return llvm::any_of(getOps<StageOp>(), [](StageOp stage) {
    return !stage.getBody().empty() && !stage.getBody().front().empty();
  });
}

LogicalResult KernelOp::verify() {
  if (getSms() < 1 || getSms() > 1024)
    return emitOpError() << "expected 1 to 1024 SMs, but got " << getSms();
  if (getResidents() < 1 || getResidents() > 2)
    return emitOpError() << "expected 1 or 2 CTAs on an SM, but got " << getResidents();
  if (!llvm::is_contained({1, 2, 4, 8, 16}, getRows()))
    return emitOpError() << "expected a rows bucket of 1, 2, 4, 8 or 16, but got " << getRows();
  if (!llvm::is_contained({1, 2, 4, 8}, getRanks()))
    return emitOpError() << "expected 1, 2, 4 or 8 ranks, but got " << getRanks();
  if (isLooping() && getRanks() > 1)
    return emitOpError() << "expected one rank, since it loops over launches, but got "
                         << getRanks();
  if (isLooping() != getLayered().has_value() || (isLooping() && *getLaunches() < 1))
    return emitOpError() << "expected launches, at least 1, and layered, or neither";
  return success();
}

LogicalResult KernelOp::verifyRegions() {
  for (auto [index, edge] : llvm::enumerate(edges()))
    if (edge.getId() != static_cast<int64_t>(index))
      return edge.emitOpError() << "expected edge ids to count from 0 without gaps: expected id "
                                << index << " but got " << edge.getId();
  return success();
}

LogicalResult SymbolOp::verify() {
  if (getMin() < 0 || getMax() < getMin())
    return emitOpError() << "expected 0 <= min <= max, but got " << getMin() << " to " << getMax();
  return success();
}

void BufferOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                     ArrayRef<int64_t> shape, Type element, Space space, Mutability mutability) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.shape = builder.getDenseI64ArrayAttr(shape);
  properties.element = TypeAttr::get(element);
  properties.space = SpaceAttr::get(builder.getContext(), space);
  properties.mutability = MutabilityAttr::get(builder.getContext(), mutability);
  properties.slots = builder.getI64IntegerAttr(1);
  properties.layer_offset = builder.getI64IntegerAttr(0);
}

LogicalResult BufferOp::verify() {
  if (failed(verifyShape(*this, getShape(), getElement())))
    return failure();
  if (getRowBytes() && *getRowBytes() < cols() * elementBytes())
    return emitOpError() << "expected row_bytes to hold a row of " << cols() * elementBytes()
                         << " bytes, but got " << *getRowBytes();
  if (failed(verifyAtMost(*this, "slots", getSlots(), kMaxSlots)) ||
      failed(verifyAtMost(*this, "an offset", getOffset().value_or(0), kMaxSmemBytes)))
    return failure();
  if (rowStride() > (kMaxElements << 2) / rows())
    return emitOpError() << "expected a copy of at most " << (kMaxElements << 2) << " bytes, but "
                         << rows() << " rows of " << rowStride() << " bytes have more";
  bool isScratch = getMutability() == Mutability::Scratch;
  if ((getSpace() == Space::Smem) != isScratch)
    return emitOpError() << "expected shared memory to be scratch and global memory not to be";
  if (getSlots() < 1 || (getSlots() > 1 && !getGuard()))
    return emitOpError() << "expected a buffer of " << getSlots()
                         << " slots to name the edge that counts them: add guard = @edge";
  if (getGuardAttr() && !expectDecl<EdgeOp>(*this, getGuardAttr(), "an edge"))
    return failure();
  bool isValue = getMutability() == Mutability::Value;
  if (getPeers() && !isValue)
    return emitOpError() << "expected only a value to become an exchange of ranks";
  if (failed(verifyRankParts(*this, getRankParts(), cols())))
    return failure();
  if (getSpace() == Space::Global && !isValue && !getSlot())
    return emitOpError() << "expected a global buffer to have a slot in LaunchArgs::buffer";
  if ((getCrossing() || getByLaunch()) && !isValue)
    return emitOpError() << "expected only a value to cross into the next launch";
  if (getCrossing() && getByLaunch())
    return emitOpError() << "expected a value that crosses by words or by the end of its launch, "
                            "but not both";
  return success();
}

/// The rule of docs/kernel-contract.md section 1, "NVFP4 matrices".
static int64_t nvfp4BlockSteps(int64_t chunk16) {
  int64_t group = chunk16 % 4 == 0 ? 4 : chunk16 % 2 == 0 ? 2 : 1;
  auto first = [&](int64_t from, int64_t to, int64_t by) -> int64_t {
    for (int64_t steps = from; by > 0 ? steps <= to : steps >= to; steps += by)
      if (chunk16 % steps == 0)
        return steps;
    return 0;
  };
  int64_t few = first(16, group, -group), more = first(16 + group, 28, group);
  return few >= 8 || !more ? few : more;
}

int64_t WeightsOp::blockSteps() {
  if (getNvfp4())
    return nvfp4BlockSteps(chunk16());
  for (int64_t steps : {4, 3, 2})
    if (chunk16() % steps == 0)
      return steps;
  return 1;
}

LogicalResult WeightsOp::verify() {
  if (getN() < 1 || getK() < 1 || getExperts() < 1)
    return emitOpError() << "expected positive n, k and experts, but got " << getN() << ", "
                         << getK() << ", " << getExperts();
  if (getN() > kMaxElements || getK() > kMaxElements / getN() ||
      getExperts() > kMaxElements / (getN() * getK()))
    return emitOpError() << "expected at most " << kMaxElements
                         << " weights, more than GPUs hold, but n " << getN() << ", k " << getK()
                         << " and " << getExperts() << " experts make more";
  if (getPairing() == Pairing::GateUp && getN() % 4)
    return emitOpError()
           << "expected gate/up rows to split into two halves of an even size, but n is " << getN();
  if (getNvfp4() && (getN() % 16 || getK() % 16))
    return emitOpError() << "expected n and k of NVFP4 weights to be multiples of 16, but got "
                         << getN() << " and " << getK();
  return success();
}

LogicalResult RingOp::verify() {
  if (getSlots() < 2)
    return emitOpError() << "expected at least 2 slots, but got " << getSlots();
  if (getSlotBytes() < 16 || getSlotBytes() % 16)
    return emitOpError() << "expected slot bytes to be a positive multiple of 16, but got "
                         << getSlotBytes();
  if (failed(verifyAtMost(*this, "slots", getSlots(), kMaxSlots)) ||
      failed(verifyAtMost(*this, "slot bytes", getSlotBytes(), kMaxSmemBytes)) ||
      failed(verifyAtMost(*this, "an offset", getOffset().value_or(0), kMaxSmemBytes)))
    return failure();
  auto full = expectDecl<EdgeOp>(*this, getFullAttr(), "an edge");
  auto free = expectDecl<EdgeOp>(*this, getFreeAttr(), "an edge");
  if (!full || !free)
    return failure();
  if (full.getKind() != EdgeKind::Bytes || free.getKind() != EdgeKind::Credit)
    return emitOpError() << "expected a bytes edge (full) and a credit edge (free), but got "
                         << stringifyEdgeKind(full.getKind()) << " and "
                         << stringifyEdgeKind(free.getKind());
  for (EdgeOp edge : {full, free})
    if (edge.getSlots() != getSlots())
      return emitOpError() << "expected edge @" << edge.getSymName() << " to have the ring's "
                           << getSlots() << " slots, but got " << edge.getSlots();
  return success();
}

int64_t ExchangeOp::shareCols() {
  return getPeers() ? cols() / kernelOf(*this).getRanks() : cols();
}

int64_t ExchangeOp::wordsPerRow() {
  if (hasTriples())
    return llvm::divideCeil(cols(), 3) * 4;
  return llvm::divideCeil(cols() * getElement().getIntOrFloatBitWidth(), 32);
}

LogicalResult ExchangeOp::verify() {
  if (failed(verifyShape(*this, getShape(), getElement())))
    return failure();
  bool hasSets = getWord() == WordKind::Sentinel;
  if (hasSets ? getSets() != 2 && getSets() != 3 : getSets() != 1)
    return emitOpError() << "expected "
                         << (hasSets              ? "2 sets, or 3 when the next launch reads"
                             : isSelfValidating() ? "1 set (epochs tell uses apart)"
                                                  : "1 set (launches tell uses apart)")
                         << ", but got " << getSets();
  if (getWord() == WordKind::Number) {
    if (!getPeers() || !getElement().isInteger(32))
      return emitOpError() << "expected numbers to be i32 and for ranks (peers)";
  } else if (!getElement().isF32() && (hasTriples() || !getElement().isBF16())) {
    return emitOpError() << "expected element f32" << (hasTriples() ? "" : " or bf16")
                         << ", but got " << getElement();
  }
  if (getElement().isBF16() && cols() % 2)
    return emitOpError() << "expected an even number of bf16 columns (two a word), but got "
                         << cols();
  if (failed(verifyRankParts(*this, getRankParts(), cols())))
    return failure();
  if (getPeers()) {
    int64_t ranks = kernelOf(*this).getRanks();
    bool isWords = getWord() == WordKind::Sentinel || getWord() == WordKind::Number;
    int64_t share = getElement().isBF16() ? 2 * ranks : ranks;
    if (ranks < 2 || !isWords || cols() % share)
      return emitOpError() << "expected several ranks to share an exchange of sentinel words or "
                              "numbers in whole words, but got "
                           << ranks << " rank(s) and " << cols() << " columns of "
                           << stringifyWordKind(getWord()) << " words";
  }
  auto edge = expectDecl<EdgeOp>(*this, getEdgeAttr(), "an edge");
  EdgeKind kind = isSelfValidating() ? EdgeKind::Words : EdgeKind::Launch;
  if (edge && edge.getKind() != kind)
    return emitOpError() << "expected a " << stringifyEdgeKind(kind) << " edge, but "
                         << getEdgeAttr() << " is " << stringifyEdgeKind(edge.getKind());
  return success(edge);
}

LogicalResult EdgeOp::verify() {
  if (getSlots() < 1 || getArrivals() < 1)
    return emitOpError() << "expected at least 1 slot and 1 arrival, but got " << getSlots()
                         << " and " << getArrivals();
  if (failed(verifyAtMost(*this, "slots", getSlots(), kMaxSlots)) ||
      failed(verifyAtMost(*this, "an offset", getOffset().value_or(0), kMaxSmemBytes)))
    return failure();
  if (getTo().empty())
    return emitOpError() << "expected at least one waiting role";
  if ((getKind() == EdgeKind::Launches) != getSlot().has_value())
    return emitOpError() << "expected a launches edge, and no other, to have a slot";
  if (getKind() == EdgeKind::Launches && !kernelOf(*this).isLooping())
    return emitOpError() << "expected a kernel that loops over launches";
  return success();
}

//===----------------------------------------------------------------------===//
// Stages and steps
//===----------------------------------------------------------------------===//

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
