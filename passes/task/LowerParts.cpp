// Linear layers whose activation rows are too wide to lie in shared memory whole: K goes by in
// parts (docs/kernel-contract.md section 14).
//
// A part is a range of blocks, and so of each warp's chunk the columns of their steps. It meets all
// m-tiles before the next part comes, so the tiles' sums stay in registers meanwhile; where an SM
// has more tiles than registers, groups of them, each with all parts. Blocks meet a sum in the same
// order as ever: bits do not depend on the parts.
#include "passes/task/Handoffs.h"
#include "passes/task/Lowering.h"

using namespace mlir;

namespace megalith::task {

/// fp32 sums of a lane that registers hold beside the operands of a product.
static constexpr int64_t kSums = 48;

/// M-tiles that the parts of K pass at once.
struct KernelLowering::TileGroup {
  SmallVector<AffineExpr> trips; ///< the least of them; the first is constant
  AffineExpr first;              ///< number of its first m-tile in the slice
  std::string tile;              ///< C++ of the number of m-tile `mtile` of the group
  int64_t most;                  ///< m-tiles
};

/// Most m-tiles of a group.
static int64_t tilesAtOnce(StageOp stage, int64_t rows) {
  const Slice slice = sliceOf(stage);
  const int64_t each =
      weightsOf(stage).getWide() ? slice.tile * rows : 8 * llvm::divideCeil(rows, 8);
  return std::clamp<int64_t>(kSums / each, 1, llvm::divideCeil(slice.unit, slice.tile));
}

void KernelLowering::forGroups(StageOp stage, Steps &steps,
                               function_ref<void(const TileGroup &)> body) {
  const Slice slice = sliceOf(stage);
  const int64_t tiles = llvm::divideCeil(slice.unit, slice.tile);
  const int64_t most = tilesAtOnce(stage, kernel.getRows());
  SmallVector<AffineExpr> all = tileTrips(stage);
  if (most >= tiles) {
    body({all, c(0), "mtile", most});
    return;
  }
  SmallVector<AffineExpr> groups;
  for (AffineExpr count : all)
    groups.push_back((count + most - 1).floorDiv(most));
  steps.loop("group", groups, [&] {
    AffineExpr first = d(steps.depth()) * most;
    SmallVector<AffineExpr> trips = {c(most)};
    for (AffineExpr count : all)
      if (count != c(tiles) || tiles % most)
        trips.push_back(count - first);
    body({trips, first, "group * " + std::to_string(most) + " + mtile", most});
  });
}

void KernelLowering::streamParts(StageOp stage, Steps &producer, bool isExpert) {
  const Slice slice = sliceOf(stage);
  const int64_t parts = partsOf(stage), each = pieceBlocksOf(stage);
  const int64_t pieces = slice.blocks / parts / each;
  const StringRef index = each > 1 ? "piece" : "block";
  const std::string piece = ("k_part * " + llvm::Twine(pieces) + " + " + index).str();
  forGroups(stage, producer, [&](const TileGroup &group) {
    producer.loop("k_part", {c(parts)}, [&] {
      producer.loop("mtile", group.trips, [&] {
        producer.loop(index, {c(pieces)}, [&] {
          const unsigned part = producer.depth() - 2;
          AffineExpr tile = group.first + d(part + 1);
          SmallVector<AffineExpr> at = {d(0) * slice.unit + tile * slice.tile,
                                        (d(part) * pieces + d(part + 2)) * each};
          SmallVector<StringRef> args = {group.tile, piece};
          if (isExpert) {
            at.insert(at.begin(), d(1)); // the entry of the routing table
            args.push_back("expert.id");
          }
          producer.acquire(names::kFree);
          producer.pace(ring(), windowOf(stage));
          producer.copy("copy_piece<" + names::kFull + ", " + names::kRing + ", " +
                            stage.getSymName() + ">",
                        args,
                        rectangle(weightsOf(stage).getSymName(), at, slice.top(), {c(each)},
                                  isExpert ? "expert_id" : ""));
        });
      });
    });
  });
}

// All parts of a group of m-tiles; `take` brings a part of the rows to `rows`, `release` is over
// with it.
void KernelLowering::multiplyGroup(StageOp stage, Steps &consumer, const TileGroup &group,
                                   AccessAttr rows, function_ref<void()> take,
                                   function_ref<void()> release) {
  const bool isWide = weightsOf(stage).getWide();
  const int64_t parts = partsOf(stage);
  const std::string name = stage.getSymName().str();
  const std::string sums = "sums[" + std::to_string(group.most) + "]";
  consumer.local(sums, isWide ? "WideSums<" + name + ", Cta>" : Operands(kernel).chunkSum().str(),
                 "{}");
  consumer.loop("k_part", {c(parts)}, [&] {
    take();
    consumer.unrolled("mtile", group.trips, [&] {
      const int64_t each = pieceBlocksOf(stage);
      consumer.loop(each > 1 ? "piece" : "block", {c(sliceOf(stage).blocks / parts / each)}, [&] {
        consumer.wait(names::kFull, "const int slot");
        multiplyPiece(stage, consumer, "sums[mtile]", group.tile, rows, tileRuns(stage).front());
        consumer.release(names::kFree);
      });
    });
    release();
  });
  consumer.unrolled("mtile", group.trips, [&] {
    consumer.acquire("p_free", "const int place");
    consumer.compute(isWide ? "store_wide_part<" + names::kPart + ", " + name + ">"
                            : ("store_part<" + names::kPart + ">").str(),
                     {"place", "sums[mtile]"}, {}, {whole(names::kPart)});
    consumer.signal("p_full");
  });
}

LogicalResult KernelLowering::multiplyParts(StageOp stage, Steps &consumer) {
  AccessAttr input = inputOf(stage);
  StringRef norm = configString(stage, "norm");
  if (!input || !exchange(input.getBuffer().getValue()) || (!norm.empty() && norm != "none"))
    return stage.emitOpError()
           << "expected rows of an exchange, as they are, to come in parts of K";
  if (rowsComeByLaunch(kernel))
    return stage.emitOpError() << "has rows in parts of K, which have no form yet where launches "
                                  "hand them on; expected a smaller bucket";
  const int64_t k = *configInt(stage, "k"), parts = partsOf(stage), width = k / parts;
  const int64_t rows = kernel.getRows(), warps = warpsOf(Role::Consumer);
  const std::string name = stage.getSymName().str(), in = name + "::In";
  const StringRef source = input.getBuffer().getValue();
  // Rows behind an fp32 stream count in its words, of two channels each.
  const int64_t perWord = exchange(source).getElement().isF32() ? 2 : 1;
  AffineExpr first = input.getAt().getValue().getResults().back();
  AccessAttr target = rectangle(names::kInput, {c(0), c(0)}, rows, {c(width)});

  if (input.getSet() == Set::Current)
    requireLaunchWait(stage, Role::Consumer, consumer);
  auto take = [&] {
    // Of each warp's chunk, the columns of this part.
    AffineExpr part = d(consumer.depth());
    SmallVector<AccessAttr> reads;
    for (int64_t warp = 0; warp < warps; ++warp)
      reads.push_back(rectangle(
          source, {c(0), first + part * (width / warps / perWord) + warp * (k / warps / perWord)},
          rows, {c(width / warps / perWord)}, {}, input.getSet()));
    consumer.refill(names::kInput);
    consumer.poll("poll_chunk_part<" + wordsEdge(input) + ", " + in + ", " + Twine(parts) + ">",
                  {"k_part"}, (source + "_words").str(), reads, target);
    // Behind the poll, whose loads leave no registers for it beside the sums.
    if (!weightsOf(stage).getWide())
      consumer.local("column", Operands(kernel).columnLocal(),
                     Operands(kernel).column("dense", name + ", " + in) + "(cta)");
  };
  forGroups(stage, consumer, [&](const TileGroup &group) {
    multiplyGroup(stage, consumer, group, target, take, [] {});
  });
  return success();
}

// An expert's activations, part by part through the slots of act_rows.
void KernelLowering::lowerExpertParts(StageOp stage, Steps &poller, Steps &consumer) {
  const int64_t k = *configInt(stage, "k"), parts = partsOf(stage);
  const int64_t rows = kernel.getRows(), warps = warpsOf(Role::Consumer);
  const std::string name = stage.getSymName().str(), by = std::to_string(parts);
  const StringRef source = inputOf(stage).getBuffer().getValue();
  AccessAttr acts = whole(names::kAct);
  forExperts(stage, poller, [&] {
    forGroups(stage, poller, [&](const TileGroup &) {
      poller.loop("k_part", {c(parts)}, [&] {
        AffineExpr part = d(poller.depth());
        SmallVector<AccessAttr> reads;
        for (int64_t warp = 0; warp < warps; ++warp)
          reads.push_back(rectangle(source,
                                    {d(1), c(0), part * (k / parts / warps) + warp * (k / warps)},
                                    rows, {c(k / parts / warps)}, "expert_id"));
        poller.acquire("act_free", "const int slot");
        poller.poll("poll_expert_part<" + source + "_words, " + names::kAct + ", " + by + ">",
                    {"slot", "expert.pairs", "expert.count", "k_part"}, (source + "_words").str(),
                    reads, acts);
        poller.signal("act_full");
      });
    });
  });
  auto take = [&] {
    consumer.wait("act_full", "const int acts");
    consumer.local("column", Operands(kernel).columnLocal(),
                   Operands(kernel).column("slot", name + ", " + names::kAct + ", " + by) +
                       "(cta, acts, expert.count)");
  };
  forExperts(stage, consumer, [&] {
    forGroups(stage, consumer, [&](const TileGroup &group) {
      multiplyGroup(stage, consumer, group, acts, take, [&] { consumer.release("act_free"); });
    });
  });
}

} // namespace megalith::task
