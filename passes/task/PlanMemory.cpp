//===- PlanMemory.cpp - where everything lies in shared memory --------------===//
//
// Barriers, then buffers, then the ring, which takes what is left. When the ring would be left with
// too little, or of one row with less than the widest slice that others wait for and much less than
// it could have, attention's buffers and those of the dense phase share bytes; edges then order the
// last use of the one before the first use of the other. When even so there is no room, the
// experts' activations come to where rows have been.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/task/Declare.h"
#include "passes/task/Handoffs.h"
#include "passes/task/Stages.h"
#include "passes/why/Why.h"

#include "llvm/Support/FormatVariadic.h"

namespace megalith {
#define GEN_PASS_DEF_PLANMEMORY
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

constexpr int64_t kAlignment = 128; // bulk copies land on whole lines
struct PlanMemory : megalith::impl::PlanMemoryBase<PlanMemory> {
  using PlanMemoryBase::PlanMemoryBase;

  /// How many slots buffers get.
  enum class Slots { Wanted, SingleInAttention, Single };

  /// Whose bytes are shared: attention's and the dense phase's; also those of activation rows, of
  /// the experts' activations, which follow them, and of the logits, which come between rows.
  enum class Sharing { None, Phases, PhasesAndRows };

  /// A plan being tried.
  struct Layout {
    std::vector<Handoff> buffers;
    std::vector<int64_t> offsets; // from the first byte after the barriers
    Slots slots = Slots::Wanted;
    Sharing sharing = Sharing::None;
    int64_t bytes = 0; // of all buffers
    bool isAliased() const { return sharing != Sharing::None; }
  };

  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (failed(checkStages(kernel)))
      return signalPassFailure();
    std::optional<int64_t> limit = sharedMemoryOf(kernel.getTarget());
    if (sharedBytes)
      limit = sharedBytes;
    if (!limit) {
      kernel.emitOpError() << "expected a target whose shared memory is known, but got "
                           << kernel.getTarget() << "; give shared-bytes";
      return signalPassFailure();
    }
    ring = {}; // one pass object serves several kernels
    for (auto found : kernel.getOps<RingOp>())
      ring = found;

    // With two CTAs on an SM the next launch fills its ring while this one computes. A ring of half
    // the bytes still covers the way to memory; less would not.
    std::optional<Layout> layout;
    because.clear();
    if (residents > 1) {
      budget = (*limit + kReservedBytes) / residents - kReservedBytes - reserve;
      layout = lay(Slots::Wanted, Sharing::None);
      if (used(*layout, leastSlots()) > budget ||
          (ring && slotsLeft(*layout) * ring.getSlotBytes() < ringFloor / 2))
        layout.reset();
      else
        kernel.setResidents(residents);
      recordReason(kernel,
                   {getArgumentName().str(), "CTAs on an SM", layout ? "2" : "1",
                    llvm::formatv("in half of the shared memory the ring would {0} {1} bytes, half "
                                  "of what covers the way to memory",
                                  layout ? "still have" : "have less than", ringFloor / 2)});
    }
    if (!layout) {
      budget = *limit - reserve;
      layout = choose();
    }
    if (!layout)
      return signalPassFailure();
    apply(*layout);
  }

  //===--------------------------------------------------------------------===//
  // Choosing
  //===--------------------------------------------------------------------===//

  /// Of one row, the most that an SM streams of a linear layer that others wait for: what the ring
  /// holds of it comes while its input is being made, the rest when everybody waits. (More rows
  /// take so long elsewhere that HBM catches up.)
  int64_t sliceBytes() {
    int64_t most = 0;
    if (getOperation().getRows() > 1)
      return most;
    for (auto stage : getOperation().getOps<StageOp>()) {
      auto stream = stage->getAttrOfType<DictionaryAttr>(kStream);
      const bool isWaitedFor =
          llvm::any_of(stage.getWrites().getAsRange<AccessAttr>(), [&](AccessAttr write) {
            return getOperation().lookup<ExchangeOp>(write.getBuffer()) != nullptr;
          });
      if (stage.getKind() == StageKind::Linear && stream && isWaitedFor)
        most = std::max(most, stream.getAs<IntegerAttr>("bytes").getInt());
    }
    return most;
  }

  /// Whether a ring that has what is wanted of it anyway would hold so much more of such a slice
  /// that two waits a launch are worth it.
  bool isWorthSharing(Sharing phases) {
    constexpr int64_t kSlots = 2;
    if (!ring || phases == Sharing::None)
      return false;
    const int64_t apart = slotsLeft(lay(Slots::Wanted, Sharing::None));
    return apart * ring.getSlotBytes() < sliceBytes() &&
           slotsLeft(lay(Slots::Wanted, phases)) >= apart + kSlots;
  }

  /// The first of ever tighter layouts that leaves the ring what is wanted of it, else the tightest
  /// that leaves it two slots. Sharing bytes costs two waits a launch, single slots in attention a
  /// wait a tile, in the dense phase one an expert.
  std::optional<Layout> choose() {
    struct Attempt {
      Slots slots;
      Sharing sharing;
      int64_t floor;
    };
    const Sharing phases = canAlias() ? Sharing::Phases : Sharing::None;
    const int64_t floor =
        isWorthSharing(phases) ? std::max(ringFloor.getValue(), sliceBytes()) : ringFloor;
    SmallVector<Attempt> attempts = {{Slots::Wanted, Sharing::None, floor},
                                     {Slots::Wanted, phases, ringFloor},
                                     {Slots::SingleInAttention, phases, ringFloor / 2},
                                     {Slots::Single, phases, 0}};
    if (canAlias() && hasExperts())
      attempts.push_back({Slots::Single, Sharing::PhasesAndRows, 0});
    std::optional<Layout> fitting;
    int64_t least = INT64_MAX;
    for (const Attempt &attempt : attempts) {
      Layout layout = lay(attempt.slots, attempt.sharing);
      least = std::min(least, used(layout, leastSlots()));
      if (used(layout, leastSlots()) > budget) {
        tried(layout, llvm::formatv("needs {0} of {1} bytes", used(layout, leastSlots()), budget));
        continue;
      }
      fitting = layout;
      if (!ring)
        return layout;
      const int64_t left = slotsLeft(layout) * ring.getSlotBytes();
      tried(layout,
            llvm::formatv("leaves the ring {0} bytes, {1} are wanted", left, attempt.floor));
      if (left >= attempt.floor)
        return layout;
    }
    if (fitting)
      return fitting;
    KernelOp kernel = getOperation();
    kernel.emitOpError() << "rows bucket " << kernel.getRows() << " of " << modelName()
                         << " does not fit " << kernel.getTarget() << ": needs " << least
                         << " bytes of shared memory of " << budget
                         << (kernel.getRows() > 1 ? "; compile smaller buckets"
                                                  : "; there is no smaller bucket");
    return std::nullopt;
  }

  static StringRef describe(const Layout &layout) {
    if (layout.sharing == Sharing::PhasesAndRows)
      return "experts' activations where rows were, single slots throughout";
    switch (layout.slots) {
    case Slots::Wanted:
      return layout.isAliased() ? "attention and the dense phase share bytes"
                                : "attention and the dense phase apart";
    case Slots::SingleInAttention:
      return "single slots in attention";
    case Slots::Single:
      return "single slots throughout";
    }
    return "";
  }

  void tried(const Layout &layout, const std::string &outcome) {
    StringRef name = describe(layout);
    if (because.find(name.str()) == std::string::npos) // what cannot share is tried once
      because += llvm::formatv("{0}{1}: {2}", because.empty() ? "" : "; ", name, outcome);
  }

  std::string modelName() {
    if (auto module = getOperation()->getParentOfType<ModuleOp>())
      if (auto name = module->getAttrOfType<StringAttr>("megalith.model"))
        return name.str();
    return ("kernel @" + getOperation().getSymName()).str();
  }

  /// Attention's buffers are dead once the first rows of the dense phase arrive, provided that no
  /// rows arrive earlier.
  bool canAlias() {
    bool isDense = false, hasAttention = false;
    for (auto stage : getOperation().getOps<StageOp>()) {
      bool isAttention =
          llvm::is_contained({StageKind::Attention, StageKind::Merge}, stage.getKind());
      if (isAttention && isDense)
        return false;
      hasAttention |= isAttention;
      isDense |= bringsRows(stage);
    }
    return hasAttention && isDense;
  }

  /// Whether the kernel has experts' activations and, earlier, activation rows.
  bool hasExperts() {
    return llvm::any_of(getOperation().getOps<StageOp>(),
                        [](StageOp stage) { return stage.getKind() == StageKind::ExpertDown; });
  }

  /// Whether nobody behind the routing takes rows that were there before.
  bool rowsEndBeforeRouting() {
    bool isRouted = false;
    SmallVector<StringRef> before;
    for (auto stage : getOperation().getOps<StageOp>()) {
      FlatSymbolRefAttr from = configSymbol(stage, "shares_input");
      if (isRouted && from && llvm::is_contained(before, from.getValue()))
        return false;
      isRouted |= stage.getKind() == StageKind::TopK;
      if (!isRouted)
        before.push_back(stage.getSymName());
    }
    return true;
  }

  Layout lay(Slots slots, Sharing sharing) {
    Layout layout{handoffsOf(getOperation()), {}, slots, sharing};
    const bool isAliased = layout.isAliased();
    int64_t at = 0;
    // Logits that consumers poll themselves (task-lower-to-roles lets them meet before).
    const bool areRowsOver = rowsEndBeforeRouting() && !pollerRoutes(getOperation());
    auto areLogits = [&](const Handoff &buffer) {
      return buffer.name == names::kLogits && buffer.full.empty() && areRowsOver;
    };
    auto isOfRows = [&](const Handoff &buffer) {
      return sharing == Sharing::PhasesAndRows &&
             (buffer.name == names::kInput || buffer.name == names::kAct || areLogits(buffer));
    };
    std::optional<int64_t> rowsAt; // where both of those are
    int64_t rowsBytes = 0;
    for (Handoff &buffer : layout.buffers)
      if (isOfRows(buffer)) {
        rowsBytes = std::max(rowsBytes, buffer.slotBytes());
        buffer.phase = Phase::Dense;
      }
    auto place = [&](int64_t &next, const Handoff &buffer) {
      if (isOfRows(buffer) && rowsAt)
        return *rowsAt;
      int64_t offset = llvm::alignTo(next, kAlignment);
      next = offset + (isOfRows(buffer) ? rowsBytes : buffer.slots * buffer.slotBytes());
      if (isOfRows(buffer))
        rowsAt = offset;
      return offset;
    };
    layout.offsets.resize(layout.buffers.size());
    for (auto [buffer, offset] : llvm::zip(layout.buffers, layout.offsets)) {
      const int64_t wanted = buffer.slots;
      if (slots == Slots::Single ||
          (slots == Slots::SingleInAttention && buffer.phase == Phase::Attention))
        buffer.slots = buffer.minSlots;
      if (isOfRows(buffer)) // as many as the bytes hold
        buffer.slots = std::clamp<int64_t>(rowsBytes / buffer.slotBytes(), 1, wanted);
      if (!isAliased || buffer.phase == Phase::Both)
        offset = place(at, buffer);
    }
    if (isAliased) {
      auto placeAll = [&](Phase phase) {
        int64_t end = at;
        for (auto [buffer, offset] : llvm::zip(layout.buffers, layout.offsets))
          if (buffer.phase == phase)
            offset = place(end, buffer);
        return end;
      };
      const int64_t dense = placeAll(Phase::Dense);
      int64_t attention = placeAll(Phase::Attention);
      // What the dense phase takes anyway is room for attention's slots.
      const Layout narrow = layout;
      for (auto [buffer, wanted] : llvm::zip(layout.buffers, handoffsOf(getOperation())))
        if (buffer.phase == Phase::Attention)
          buffer.slots = wanted.slots;
      if (const int64_t wide = placeAll(Phase::Attention); wide <= std::max(dense, attention))
        attention = wide;
      else
        layout = narrow;
      at = std::max(dense, attention);
    }
    layout.bytes = llvm::alignTo(at, kAlignment);
    return layout;
  }

  int64_t leastSlots() { return ring ? 2 : 0; }

  /// Bytes of the barriers when the ring has `ringSlots`.
  int64_t barrierBytes(const Layout &layout, int64_t ringSlots) {
    int64_t barriers = 2 * ringSlots +
                       (layout.isAliased() ? 2 - consumersAttend(getOperation()) : 0) +
                       (layout.sharing == Sharing::PhasesAndRows);
    if (getOperation().isLooping()) // edges of the loop (task-select-protocol), dense_done
      barriers += layout.isAliased() ? 5 : 4;
    for (const Handoff &buffer : layout.buffers)
      barriers += buffer.slots * (!buffer.full.empty() + !buffer.free.empty());
    return llvm::alignTo(8 * barriers, kAlignment);
  }

  int64_t used(const Layout &layout, int64_t ringSlots) {
    return barrierBytes(layout, ringSlots) + layout.bytes +
           (ring ? ringSlots * ring.getSlotBytes() : 0);
  }

  int64_t slotsLeft(const Layout &layout) {
    int64_t slots = leastSlots();
    while (slots < ringSlots && used(layout, slots + 1) <= budget)
      ++slots;
    return slots;
  }

  //===--------------------------------------------------------------------===//
  // Applying
  //===--------------------------------------------------------------------===//

  void apply(const Layout &layout) {
    KernelOp kernel = getOperation();
    int64_t slots = ring ? slotsLeft(layout) : 0;
    if (!because.empty())
      recordReason(kernel,
                   {getArgumentName().str(), "shared memory", describe(layout).str(), because});
    if (layout.isAliased()) {
      auto order = [&](StringRef name, Role from, ArrayRef<Role> to, StringRef later) {
        auto edge = declareEdge(kernel, name, EdgeKind::Mbarrier, from, to, 1, warpsOf(from));
        StringRef who = name == names::kRowsOver ? "rows and the experts' activations"
                                                 : "attention and the dense phase";
        recordReason(edge, {getArgumentName().str(), "protocol", "mbarrier",
                            (who + " share bytes: " + later).str()});
      };
      StringRef before = "the last use of one comes before the first of the other";
      order(names::kAttentionDone, Role::Consumer, {Role::Poller}, before);
      if (!consumersAttend(kernel))
        order(names::kMergeDone, Role::Epilogue, {Role::Poller, Role::Consumer}, before);
      if (kernel.isLooping()) // and back again
        order(names::kDenseDone, Role::Consumer, {Role::Poller},
              "the dense phase's last use comes before the next launch's attention");
      if (layout.sharing == Sharing::PhasesAndRows)
        order(names::kRowsOver, Role::Consumer, {Role::Poller}, before);
    }
    for (const Handoff &buffer : layout.buffers)
      for (StringRef name : {buffer.full, buffer.free})
        if (auto edge = kernel.lookup<EdgeOp>(ref(name)); edge && !name.empty())
          edge.setSlots(buffer.slots);
    explainSlots(layout);
    if (ring) {
      recordReason(
          ring,
          {getArgumentName().str(), "slots",
           llvm::formatv("{0}, {1} bytes", slots, slots * ring.getSlotBytes()),
           llvm::formatv("of {0} bytes buffers take {1} and barriers {2}; the ring has what is "
                         "left, but at most {3} slots",
                         budget, layout.bytes, barrierBytes(layout, slots), ringSlots.getValue())});
      ring.setSlots(slots);
      for (FlatSymbolRefAttr name : {ring.getFullAttr(), ring.getFreeAttr()})
        kernel.lookup<EdgeOp>(name).setSlots(slots);
    }
    int64_t at = 0;
    for (EdgeOp edge : kernel.edges())
      if (!edge.isGlobal()) {
        edge.setOffset(at);
        at += 8 * edge.getSlots();
      }
    int64_t base = llvm::alignTo(at, kAlignment);
    OpBuilder builder = declarations(kernel);
    for (auto [buffer, offset] : llvm::zip(layout.buffers, layout.offsets))
      declareBuffer(builder, buffer, base + offset, layout.isAliased());
    int64_t end = base + layout.bytes;
    if (ring) {
      ring.setOffset(end);
      end += slots * ring.getSlotBytes();
    }
    kernel.setSmemBytes(end);
  }

  /// Of buffers that are filled again while they are read.
  void explainSlots(const Layout &layout) {
    for (const auto &[buffer, wanted] : llvm::zip(layout.buffers, handoffsOf(getOperation())))
      if (auto edge = getOperation().lookup<EdgeOp>(ref(buffer.full)); edge && !buffer.full.empty())
        recordReason(
            edge,
            {getArgumentName().str(), "slots",
             llvm::formatv("{0}, {1} bytes", buffer.slots, buffer.slots * buffer.slotBytes()),
             buffer.slots == wanted.slots
                 ? "as many as its stage has a use for"
                 : llvm::formatv("instead of {0}: {1}", wanted.slots, describe(layout)).str()});
  }

  FlatSymbolRefAttr ref(StringRef name) { return FlatSymbolRefAttr::get(&getContext(), name); }

  void declareBuffer(OpBuilder &builder, const Handoff &buffer, int64_t offset, bool isAliased) {
    auto op =
        BufferOp::create(builder, getOperation().getLoc(), buffer.name, {buffer.rows, buffer.cols},
                         buffer.element, Space::Smem, Mutability::Scratch);
    if (buffer.rowBytes != op.rowStride())
      op.setRowBytes(buffer.rowBytes);
    op.setSlots(buffer.slots);
    op.setOffset(offset);
    op.setType(buffer.type);
    if (isAliased && buffer.phase != Phase::Both)
      op.setAlias(buffer.phase == Phase::Attention ? "attention" : "dense");
    if (!buffer.free.empty()) // filled more than once: a guard tells the fillings apart
      op.setGuardAttr(ref(buffer.full));
  }

  RingOp ring;
  int64_t budget = 0;
  std::string because; // layouts that were tried, and what became of them
};

} // namespace
