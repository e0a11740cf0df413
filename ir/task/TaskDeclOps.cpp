// Verifiers and methods of a kernel and its declarations: symbols, buffers, weights, rings,
// exchanges, edges.
#include "ir/task/TaskVerify.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace megalith::task;
using namespace megalith::task::detail;

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
