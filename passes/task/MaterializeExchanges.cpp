//===- MaterializeExchanges.cpp - values become exchanges -------------------===//
//
// A value is global memory that one stage writes and another, or the next launch, reads. Which
// tiles of a writer a reader's tile needs follows from the access maps alone, evaluated tile by
// tile, so branches of a graph that share no value get no dependence.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/task/Declare.h"
#include "passes/task/Handoffs.h"
#include "passes/task/Stages.h"
#include "passes/why/Why.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace megalith {
#define GEN_PASS_DEF_MATERIALIZEEXCHANGES
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

/// One access of a value by a stage.
struct Use {
  mutable StageOp stage; // ops' accessors are not const
  AccessAttr access;

  /// Tiles whose rectangles differ; a stage without static tiles counts as one.
  int64_t tiles() const { return hasStaticTiles(stage) ? *stage.getTiles() : 1; }
  bool isKnown() const {
    return hasStaticTiles(stage) || access.getAt().getValue().getNumDims() == 0;
  }
  /// By tile; where ranks have shares of their own, those of all ranks, rank by rank.
  SmallVector<Rectangle> rectangles() const {
    SmallVector<Rectangle> all;
    auto kernel = stage->getParentOfType<KernelOp>();
    int64_t ranks = access.getOwn() ? kernel.getRanks() : 1;
    int64_t share =
        access.getOwn() ? kernel.lookup<BufferOp>(access.getBuffer()).cols() / ranks : 0;
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t tile = 0, count = tiles(); tile < count; ++tile) {
        Rectangle rect = rectangleAt(access, tile);
        rect.col += rank * share;
        all.push_back(rect);
      }
    return all;
  }
};

struct Uses {
  SmallVector<Use> writes, reads; // reads of this launch's set
};

struct MaterializeExchanges : megalith::impl::MaterializeExchangesBase<MaterializeExchanges> {
  void runOnOperation() override {
    depends.clear(); // one pass object serves several kernels
    KernelOp kernel = getOperation();
    if (failed(checkStages(kernel)))
      return signalPassFailure();
    for (BufferOp value : llvm::make_early_inc_range(kernel.getOps<BufferOp>()))
      if (value.getMutability() == Mutability::Value && failed(materialize(value)))
        return signalPassFailure();
    for (auto &[stage, producers] : depends)
      stage->setAttr(kDepends, ArrayAttr::get(&getContext(), producers.takeVector()));
  }

  LogicalResult materialize(BufferOp value) {
    Uses uses = usesOf(value);
    if (failed(checkCoverage(value, uses)))
      return failure();
    for (const Use &read : uses.reads)
      for (const Use &write : uses.writes)
        if (meet(write, read)) {
          if (read.stage != write.stage) // else its SMs wait for one another
            depends[read.stage].insert(FlatSymbolRefAttr::get(write.stage.getSymNameAttr()));
          explainDependence(value, write, read);
        }
    for (const Use &read : uses.reads)
      if (uses.writes.size() == 1 && isKept(uses.writes.front(), read)) {
        StringRef keeper = uses.writes.front().stage.getSymName();
        read.stage->setAttr(kKept, FlatSymbolRefAttr::get(&getContext(), keeper));
        explain(read.stage, ("elided, slice of @" + value.getSymName()).str(), "its read",
                llvm::formatv("on all {0} SMs the tile reads just what the same SM's tile of @{1} "
                              "wrote: the slice stays in shared memory",
                              read.tiles(), keeper));
      }
    return replace(value);
  }

  static void explain(Operation *op, const std::string &what, const std::string &chose,
                      const std::string &because) {
    recordReason(op, {getArgumentName().str(), what, chose, because});
  }

  static void explainDependence(BufferOp value, const Use &write, const Use &read) {
    std::string because;
    if (!hasStaticTiles(write.stage) || !hasStaticTiles(read.stage)) {
      because = "tiles of one of them are dealt out at run time: any two may meet";
    } else {
      const SmallVector<Rectangle> written = write.rectangles(), wanted = read.rectangles();
      size_t least = written.size(), most = 0;
      for (const Rectangle &rect : wanted) {
        size_t met =
            llvm::count_if(written, [&](const Rectangle &other) { return other.overlaps(rect); });
        least = std::min(least, met);
        most = std::max(most, met);
      }
      because = llvm::formatv("a tile reads what {0}{1} of {2} tiles wrote", least,
                              least == most ? std::string() : llvm::formatv(" to {0}", most).str(),
                              written.size());
    }
    StageOp reader = read.stage, writer = write.stage;
    explain(reader, ("waits, @" + value.getSymName()).str(), ("for @" + writer.getSymName()).str(),
            because);
  }

  Uses usesOf(BufferOp value) {
    Uses uses;
    for (auto stage : getOperation().getOps<StageOp>()) {
      for (auto access : stage.getWrites().getAsRange<AccessAttr>())
        if (access.getBuffer().getValue() == value.getSymName())
          uses.writes.push_back({stage, access});
      for (auto access : stage.getReads().getAsRange<AccessAttr>())
        if (access.getBuffer().getValue() == value.getSymName() &&
            access.getSet() == task::Set::Current)
          uses.reads.push_back({stage, access});
    }
    return uses;
  }

  /// Each element is written once, and read only where it is written.
  LogicalResult checkCoverage(BufferOp value, const Uses &uses) {
    const int64_t rows = value.rows(), cols = value.cols();
    // A row at a time: the first column in [begin, end) that is written, or not, or -1.
    llvm::BitVector written(rows * cols);
    auto bitsOf = [&](const Rectangle &rect, int64_t row) {
      return std::pair<unsigned, unsigned>(row * cols + rect.col,
                                           row * cols + rect.col + rect.cols);
    };
    for (const Use &write : uses.writes) {
      if (!write.isKnown())
        return success();
      for (auto [tile, rect] : llvm::enumerate(write.rectangles()))
        for (int64_t row = rect.row; row < rect.row + rect.rows; ++row) {
          auto tell = [&](int64_t col) {
            return write.stage.emitOpError()
                   << "writes row " << row << ", column " << col << " of @" << value.getSymName()
                   << " in tile " << tile;
          };
          if (row >= rows || (rect.cols > 0 && rect.col + rect.cols > cols))
            return tell(row >= rows ? rect.col : std::max(rect.col, cols))
                   << ", but the value is " << rows << " x " << cols;
          auto [begin, end] = bitsOf(rect, row);
          if (int twice = written.find_first_in(begin, end); twice != -1)
            return tell(twice - row * cols) << ", which another tile writes too";
          written.set(begin, end);
        }
    }
    if (value.getByLaunch())
      return checkByLaunch(value, uses);
    for (const Use &read : uses.reads) {
      if (!read.isKnown())
        continue;
      for (auto [tile, rect] : llvm::enumerate(read.rectangles()))
        for (int64_t row = rect.row; row < rect.row + rect.rows; ++row) {
          int64_t missing = -1;
          if (row >= rows) {
            missing = rect.col;
          } else {
            Rectangle inside = rect;
            inside.cols = std::min(rect.cols, cols - rect.col);
            auto [begin, end] = bitsOf(inside, row);
            if (int at = inside.cols > 0 ? written.find_first_unset_in(begin, end) : -1; at != -1)
              missing = at - row * cols;
            else if (inside.cols < rect.cols)
              missing = std::max(rect.col, cols);
          }
          if (missing != -1)
            return read.stage.emitOpError()
                   << "reads row " << row << ", column " << missing << " of @" << value.getSymName()
                   << " in tile " << tile << ", but no stage of this launch writes it";
        }
    }
    return success();
  }

  /// Nothing in a kernel says when words that the end of a launch hands on are there.
  static LogicalResult checkByLaunch(BufferOp value, const Uses &uses) {
    if (uses.writes.empty() || uses.reads.empty())
      return success();
    return uses.reads.front().stage.emitOpError()
           << "reads @" << value.getSymName()
           << ", which this kernel writes; expected a value that launches hand on to be written or "
              "read in a kernel, but not both";
  }

  /// Does any tile of `read` need a word of `write`?
  static bool meet(const Use &write, const Use &read) {
    if (!write.isKnown() || !read.isKnown())
      return true;
    const SmallVector<Rectangle> written = write.rectangles();
    return llvm::any_of(read.rectangles(), [&](const Rectangle &rect) {
      return llvm::any_of(written, [&](const Rectangle &other) { return other.overlaps(rect); });
    });
  }

  /// Every tile reads exactly what the tile of the same SM wrote, and the writer is a stage whose
  /// epilogue keeps its slice (a residual sum).
  static bool isKept(const Use &write, const Use &read) {
    if (configString(write.stage, "epilogue") != "residual" ||
        residualOf(read.stage) != read.access || write.stage.getTiles() != read.stage.getTiles() ||
        !hasStaticTiles(read.stage))
      return false;
    for (int64_t tile = 0; tile < read.tiles(); ++tile)
      if (rectangleAt(write.access, tile) != rectangleAt(read.access, tile))
        return false;
    return true;
  }

  /// Whether the poller routes: a single row, whose experts read rows of their own, which the
  /// consumers bring and norm meanwhile, on all SMs: they wait for the routing only then.
  bool routesAside() {
    KernelOp kernel = getOperation();
    return kernel.getRows() == 1 && llvm::any_of(kernel.getOps<StageOp>(), [](StageOp stage) {
             return stage.getKind() == StageKind::ExpertUp && inputOf(stage) &&
                    smsOf(stage) == stage->getParentOfType<KernelOp>().getSms();
           });
  }

  /// Whether attention and merge are the consumers' alone: of a single row whose query heads have a
  /// warp each, whose words go to registers.
  bool attendsAlone() {
    KernelOp kernel = getOperation();
    auto isA = [](StageKind kind) {
      return [=](StageOp stage) { return stage.getKind() == kind; };
    };
    auto stages = kernel.getOps<StageOp>();
    return kernel.getRows() == 1 && llvm::any_of(stages, isA(StageKind::Merge)) &&
           llvm::any_of(stages, [&](StageOp stage) {
             return isA(StageKind::Attention)(stage) && vectorsOf(stage) <= warpsOf(Role::Consumer);
           });
  }

  /// Roles that poll the value. What consumers read once, they poll themselves, each warp its own
  /// share; what comes in tiles or expert by expert goes ahead of them through the poller, which
  /// may route, too; a residual's slice is the epilogue's own.
  ArrayAttr pollersOf(BufferOp value, std::string &because) {
    bool isRead = false, isPolled = false, isFetched = false;
    SmallVector<StringRef> whole, tiled, added, attended;
    for (auto stage : getOperation().getOps<StageOp>())
      for (auto access : stage.getReads().getAsRange<AccessAttr>())
        if (access.getBuffer().getValue() == value.getSymName()) {
          if (!value.getByLaunch() && attendsAlone() &&
              llvm::is_contained({StageKind::Attention, StageKind::Merge}, stage.getKind())) {
            isRead = true;
            attended.push_back(stage.getSymName());
            continue;
          }
          // The epilogue's own: a residual's slice, an output gate, sums of squares, parts of sums.
          bool isResidual = residualOf(stage) == access || stage.getKind() == StageKind::Combine ||
                            (addsParts(stage) && inputOf(stage) != access) ||
                            (stage.getKind() == StageKind::Merge && access != stage.getReads()[0]);
          bool isTiled =
              value.getByLaunch() || (stage.getKind() == StageKind::TopK && routesAside()) ||
              llvm::is_contained({StageKind::Attention, StageKind::Merge, StageKind::ExpertDown},
                                 stage.getKind());
          isPolled |= !isResidual && isTiled;
          isRead |= !isResidual && !isTiled;
          isFetched |= isResidual && !stage->hasAttr(kKept);
          if (!isResidual || !stage->hasAttr(kKept))
            (isResidual ? added : isTiled ? tiled : whole).push_back(stage.getSymName());
        }
    auto tell = [&](ArrayRef<StringRef> stages, StringRef reads, StringRef so) {
      if (!stages.empty())
        because += (because.empty() ? "" : "; ") +
                   llvm::formatv("@{0} {1}: {2}", llvm::join(stages, ", @"), reads, so).str();
    };
    tell(whole, "read whole rows, once", "each consumer warp polls the part that it multiplies");
    tell(attended, "take single words of one row", "each consumer warp polls what it needs");
    tell(tiled, value.getByLaunch() ? "read what an earlier launch left" : "read piece by piece",
         "the poller goes ahead of the consumers");
    tell(added, "add their own slice", "the epilogue polls it");
    if (because.empty())
      because = "no stage of this launch reads it";
    SmallVector<Attribute> roles;
    if (isPolled || !(isRead || isFetched))
      roles.push_back(RoleAttr::get(&getContext(), Role::Poller));
    if (isRead)
      roles.push_back(RoleAttr::get(&getContext(), Role::Consumer));
    if (isFetched)
      roles.push_back(RoleAttr::get(&getContext(), Role::Epilogue));
    return ArrayAttr::get(&getContext(), roles);
  }

  static std::string rolesOf(ArrayAttr roles) {
    SmallVector<StringRef> names;
    for (auto role : roles.getAsRange<RoleAttr>())
      names.push_back(stringifyRole(role.getValue()));
    return llvm::join(names, ", ");
  }

  /// Consumers publish what an attention tile found and the stream that a branch joined, since they
  /// add them up, and what they merge of one row; all else is the epilogue's.
  Role publisherOf(BufferOp value) {
    for (auto stage : getOperation().getOps<StageOp>())
      for (auto access : stage.getWrites().getAsRange<AccessAttr>())
        if ((llvm::is_contained({StageKind::Attention, StageKind::Rows}, stage.getKind()) ||
             (stage.getKind() == StageKind::Merge && !value.getByLaunch() && attendsAlone())) &&
            access.getBuffer().getValue() == value.getSymName())
          return Role::Consumer;
    return Role::Epilogue;
  }

  LogicalResult replace(BufferOp value) {
    KernelOp kernel = getOperation();
    std::optional<int64_t> slot = value.getSlot() ? value.getSlot() : freeSlot(kernel);
    if (!slot)
      return kernel.emitOpError() << "expected at most " << kMaxBuffers
                                  << " buffers and weights, but @" << value.getSymName()
                                  << " finds no free slot";
    std::string edge = (value.getSymName() + "_words").str();
    OpBuilder builder(value);
    bool isByLaunch = value.getByLaunch();
    const int64_t sets = isByLaunch ? 1 : value.getCrossing() ? 3 : 2;
    auto exchange =
        ExchangeOp::create(builder, value.getLoc(), value.getSymName(), value.getShape(),
                           value.getElement(), isByLaunch ? WordKind::Plain : WordKind::Sentinel,
                           sets, *slot, edge, value.getPeers(), value.getRankPartsAttr());
    std::string because;
    ArrayAttr pollers = pollersOf(value, because);
    auto words = declareEdge(kernel, edge, isByLaunch ? EdgeKind::Launch : EdgeKind::Words,
                             publisherOf(value), pollers, 1, 1);
    if (value.getPeers())
      explain(exchange, "ranks", "a replica on each",
              "each rank has a share of its columns, and all read all of them: words are stored to "
              "every replica");
    explain(words, "who polls", rolesOf(pollers), because);
    explain(exchange, "sets", std::to_string(sets),
            isByLaunch ? "launches hand it on: none is read while another is written"
            : value.getCrossing()
                ? "this launch and the next read it while a third set is emptied"
                : "only this launch reads it: one set is in use while the other is emptied");
    value.erase();
    return success();
  }

  llvm::MapVector<StageOp, llvm::SetVector<Attribute>> depends;
};

} // namespace
