//===- PlanStreams.cpp - what the producer streams, in which order ----------===//
#include "passes/Passes.h"
#include "passes/task/Declare.h"
#include "passes/task/Handoffs.h"
#include "passes/task/Stages.h"
#include "passes/why/Why.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace megalith {
#define GEN_PASS_DEF_PLANSTREAMS
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

/// Slots before memory planning gives the ring what is left.
constexpr int64_t kLeastSlots = 2;

/// Columns that eight warps' chunks are a multiple of, and bytes behind a row in shared memory
/// (codegen/device/rows.cuh).
constexpr int64_t kChunkColumns = 128, kRowPadding = 32;

/// Shared memory for one expert's activations at most, whatever its pairs.
constexpr int64_t kActBytes = 160 << 10;

/// Bytes of a piece at most, where it could have more blocks.
constexpr int64_t kPieceBytes = 16 << 10;

/// Pieces of no more bytes than these are a slice's last m-tile, in more blocks if possible.
constexpr int64_t kLeastBytes = 4 << 10;

/// One piece lands while another is asked for.
constexpr int64_t kLeastWindow = 2;

/// Bytes that an SM has in flight: enough for HBM, and no more, since what is under way delays the
/// SM's exchanges. Measured with a whole layer on an H200 (docs/performance.md).
constexpr int64_t kNearExchange = 32 << 10; ///< the stage's input is waited for meanwhile
constexpr int64_t kBehindRanks = 16 << 10;  ///< the same of words of other ranks, a longer way
constexpr int64_t kExperts = 54 << 10;      ///< one exchange, mostly hidden, in a long stream
constexpr int64_t kAlone = 64 << 10;        ///< nobody waits for what the stage makes

struct InFlight {
  int64_t bytes;
  StringRef because;
  int64_t leastWindow = kLeastWindow;
  /// Of pieces that find no room in the ring before the stage's own products make it: these are
  /// waited for, and no exchange is; 0: as of the others.
  int64_t lateBytes = 0;
};

/// Whether all of the stage's pieces are of one run, m-tile by m-tile side by side if it has two.
bool isOneRun(StageOp stage, bool isJoined) {
  const Slice slice = sliceOf(stage);
  return stage.getKind() == StageKind::Linear && partsOf(stage) == 1 &&
         (isJoined || slice.unit <= slice.tile);
}

/// Whether the rows that the stage multiplies come from other ranks, while the ring has had time
/// to be filled: another stage of the launch streamed weights before.
bool isBehindRanks(StageOp stage) {
  auto kernel = stage->getParentOfType<KernelOp>();
  auto stages = kernel.getOps<StageOp>();
  if (*llvm::find_if(stages, isGemv) == stage)
    return false;
  StageOp source = stage;
  while (FlatSymbolRefAttr from = configSymbol(source, "shares_input"))
    source = kernel.lookup<StageOp>(from);
  return llvm::any_of(source.getReads().getAsRange<AccessAttr>(), [&](AccessAttr read) {
    auto words = kernel.lookup<ExchangeOp>(read.getBuffer());
    return words && words.getPeers();
  });
}

InFlight bytesInFlight(StageOp stage, bool isJoined) {
  auto kernel = stage->getParentOfType<KernelOp>();
  if (llvm::any_of(kernel.getOps<ExchangeOp>(),
                   [](ExchangeOp words) { return !words.isSelfValidating(); }))
    return {kAlone, "launches hand on all that SMs exchange: nothing is polled meanwhile"};
  if (stage.getKind() == StageKind::ExpertUp && pollerRoutes(kernel))
    return {kNearExchange, "routed before the rows are there, which wait behind what is in flight"};
  if (stage.getKind() == StageKind::ExpertUp || stage.getKind() == StageKind::ExpertDown)
    return {kExperts, "among experts, a long stream with one exchange, mostly hidden"};
  bool isWaitedFor = llvm::none_of(stage.getWrites().getAsRange<AccessAttr>(), [&](auto write) {
    auto buffer = kernel.template lookup<BufferOp>(write.getBuffer());
    return buffer && buffer.getMutability() == Mutability::Written;
  });
  if (isWaitedFor && isGemv(stage) && isOneRun(stage, isJoined) && isBehindRanks(stage))
    return {kBehindRanks, "words of other ranks are waited for, the longer the more is in flight",
            1, kExperts};
  if (isWaitedFor)
    return {kNearExchange, "near exchanges, which wait behind what is in flight"};
  return {kAlone, "nobody waits for what the stage makes"};
}

struct PlanStreams : megalith::impl::PlanStreamsBase<PlanStreams> {
  using PlanStreamsBase::PlanStreamsBase;

  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (failed(checkStages(kernel)))
      return signalPassFailure();
    cutRows();
    int64_t slotBytes = 0;
    StringRef widest;
    for (auto stage : kernel.getOps<StageOp>())
      if (int64_t bytes = slotBytesOf(stage); bytes > slotBytes) {
        slotBytes = bytes;
        widest = stage.getSymName();
      }
    for (auto stage : kernel.getOps<StageOp>())
      plan(stage, slotBytes);
    if (!slotBytes)
      return; // nothing streams
    declareEdge(kernel, names::kFull, EdgeKind::Bytes, Role::Producer, {Role::Consumer},
                kLeastSlots, 1);
    declareEdge(kernel, names::kFree, EdgeKind::Credit, Role::Consumer, {Role::Producer},
                kLeastSlots, warpsOf(Role::Consumer));
    OpBuilder builder = declarations(kernel);
    auto ring =
        RingOp::create(builder, kernel.getLoc(), names::kRing, kLeastSlots,
                       llvm::alignTo(slotBytes, 128), IntegerAttr(), names::kFull, names::kFree);
    recordReason(ring, {getArgumentName().str(), "slot", llvm::formatv("{0} bytes", slotBytes),
                        "room for the widest piece, of @" + widest.str()});
  }

  /// Stages that find the activation rows of `stage` in shared memory.
  SmallVector<StageOp> sharersOf(StageOp stage) {
    SmallVector<StageOp> sharers;
    for (auto other : getOperation().getOps<StageOp>()) {
      FlatSymbolRefAttr from = configSymbol(other, "shares_input");
      auto found = from ? getOperation().lookup<StageOp>(from) : StageOp();
      if (found && (found == stage || llvm::is_contained(sharers, found)))
        sharers.push_back(other);
    }
    return sharers;
  }

  /// Whether the stage, and all that share its activation rows, can have them part by part: nothing
  /// needs a whole row.
  bool canCutRows(StageOp stage) {
    AccessAttr input = inputOf(stage);
    auto isWhole = [](StageOp of) {
      StringRef norm = configString(of, "norm");
      return of.getKind() != StageKind::Linear || (!norm.empty() && norm != "none");
    };
    if (!input || isWhole(stage) || *configInt(stage, "k") % kChunkColumns)
      return false;
    auto source = getOperation().lookup<ExchangeOp>(input.getBuffer());
    return source && source.isSelfValidating() && llvm::none_of(sharersOf(stage), isWhole);
  }

  /// A stage that shared rows reads them itself.
  void unshare(StageOp stage, AccessAttr input) {
    NamedAttrList config(stage.getConfig());
    config.erase("shares_input");
    stage.setConfigAttr(config.getDictionary(&getContext()));
    SmallVector<Attribute> reads = {input};
    llvm::append_range(reads, stage.getReads().getValue());
    stage.setReadsAttr(ArrayAttr::get(&getContext(), reads));
  }

  /// The least number of parts of K, each whole blocks, that take no more than `room` bytes.
  static int64_t partsFor(StageOp stage, int64_t room, function_ref<int64_t(int64_t)> bytesOf) {
    const int64_t k = *configInt(stage, "k"), blocks = sliceOf(stage).blocks;
    if (bytesOf(k) <= room || k % kChunkColumns)
      return 1;
    int64_t parts = blocks;
    for (int64_t count = blocks; count > 1; --count)
      if (blocks % count == 0 && bytesOf(k / count) <= room)
        parts = count;
    return parts;
  }

  /// The activations of an expert that all rows chose, if they are too wide.
  void cutActivations(StageOp stage, function_ref<int64_t(int64_t)> bytesOf) {
    const int64_t k = *configInt(stage, "k"), parts = partsFor(stage, kActBytes, bytesOf);
    AccessAttr input = inputOf(stage);
    auto source = input ? getOperation().lookup<ExchangeOp>(input.getBuffer()) : ExchangeOp();
    if (parts == 1 || !source || !source.isSelfValidating() || quantizesInput(stage))
      return;
    setConfig(stage, "k_parts", Builder(&getContext()).getI64IntegerAttr(parts));
    recordReason(stage,
                 {getArgumentName().str(), "activation rows",
                  llvm::formatv("in {0} parts of K, {1} bytes each", parts, bytesOf(k / parts)),
                  llvm::formatv("an expert's {0} rows of {1} channels may be {2} bytes, over {3}",
                                getOperation().getRows(), k, bytesOf(k), kActBytes)});
  }

  /// Rows too wide for shared memory come in parts of K.
  void cutRows() {
    const int64_t rows = getOperation().getRows();
    auto bytesOf = [&](int64_t k) {
      return rows * (2 * int64_t(llvm::alignTo(k, kChunkColumns)) + kRowPadding);
    };
    int64_t room = inputBytes;
    SmallVector<StageOp> wide;
    for (auto stage : getOperation().getOps<StageOp>()) {
      if (stage.getKind() == StageKind::ExpertDown)
        cutActivations(stage, bytesOf);
      if (!bringsRows(stage) || stage.getKind() == StageKind::ExpertDown ||
          configInt(stage, "row_sms")) // rows that are dealt out come one at a time
        continue;
      if (canCutRows(stage))
        wide.push_back(stage);
      else // has them whole, so the others have that room too
        room = std::max(room, bytesOf(*configInt(stage, "k")));
    }
    for (StageOp stage : wide) {
      const int64_t k = *configInt(stage, "k"), parts = partsFor(stage, room, bytesOf);
      if (parts == 1)
        continue;
      SmallVector<StageOp> readers = sharersOf(stage);
      for (StageOp sharer : readers)
        unshare(sharer, inputOf(stage));
      readers.push_back(stage);
      for (StageOp reader : readers) {
        setConfig(reader, "k_parts", Builder(&getContext()).getI64IntegerAttr(parts));
        recordReason(reader,
                     {getArgumentName().str(), "activation rows",
                      llvm::formatv("in {0} parts of K, {1} bytes each", parts, bytesOf(k / parts)),
                      llvm::formatv("{0} rows of {1} channels are {2} bytes, and {3} are for them; "
                                    "part after part, each meets all m-tiles",
                                    rows, k, bytesOf(k), room)});
      }
    }
  }

  /// Bytes of a ring slot that the stage's pieces need, 0 if it streams nothing.
  static int64_t slotBytesOf(StageOp stage) {
    if (stage.getKind() == StageKind::Attention) // 16 positions of K, then of V, are a unit
      return pieceUnitsOf(stage) * unitBytesOf(stage);
    if (!isGemv(stage))
      return 0;
    // Device functions expect room for a whole m-tile.
    return sliceOf(stage).tile * weightsOf(stage).stripBytes();
  }

  /// Blocks of a piece of `strips` strips: as many as fill a slot, of equal pieces that no part of
  /// K cuts.
  static int64_t blocksOf(StageOp stage, int64_t strips, int64_t slotBytes) {
    if (weightsOf(stage).getNvfp4()) // whole tiles
      return 1;
    const int64_t block = strips * weightsOf(stage).stripBytes();
    const int64_t all = sliceOf(stage).blocks / partsOf(stage);
    int64_t count = std::clamp<int64_t>(std::min(slotBytes, kPieceBytes) / block, 1, all);
    while (all % count)
      --count;
    return count;
  }

  /// Whether a block of a whole slice, of more than one m-tile but not of more than two, fits a
  /// slot: then it is a piece. Of one row, whose stages everybody waits for: two chains of products
  /// side by side take no longer than one, and the ring holds more of the slice.
  static bool joins(StageOp stage, int64_t slotBytes) {
    const Slice slice = sliceOf(stage);
    auto kernel = stage->getParentOfType<KernelOp>();
    return stage.getKind() == StageKind::Linear && kernel.getRows() == 1 &&
           !weightsOf(stage).getNvfp4() && !weightsOf(stage).getWide() && partsOf(stage) == 1 &&
           slice.unit > slice.tile && slice.unit <= 2 * slice.tile &&
           slice.unit * smsOf(stage) == slice.strips && // each SM has both
           slice.unit * weightsOf(stage).stripBytes() <= slotBytes;
  }

  /// Blocks of a piece of the last m-tile of a slice, if what one of the others' pieces has of it
  /// is so little that its way counts and not its bytes; else 0.
  static int64_t lastBlocksOf(StageOp stage, int64_t blocks, int64_t slotBytes) {
    const Slice slice = sliceOf(stage);
    const int64_t last = slice.unit % slice.tile;
    const bool isEven = slice.unit * smsOf(stage) == slice.strips; // each SM has such a tile
    if (slice.unit < slice.tile || last == 0 || !isEven || partsOf(stage) > 1 ||
        dealsTiles(stage) || blocks * last * weightsOf(stage).stripBytes() > kLeastBytes)
      return 0;
    const int64_t count = blocksOf(stage, last, slotBytes);
    return count > blocks ? count : 0;
  }

  /// Marks what the stage streams.
  void plan(StageOp stage, int64_t slotBytes) {
    if (stage.getKind() == StageKind::Attention) {
      // 16 positions of K, then of V, are a unit.
      const int64_t units = pieceUnitsOf(stage), bytes = units * unitBytesOf(stage);
      const char *numbers[] = {"", "", "two", "", "four"};
      mark(stage, {"tile", "piece"}, bytes, bytes,
           llvm::formatv("{0} unit{1} of 16 positions, K and V of {2} channels: {3}", units,
                         units == 1 ? "" : "s", *configInt(stage, "head_dim"),
                         units == 1 ? std::string("two would have more than 16 KB")
                                    : std::string(numbers[units]) + " fit 16 KB"));
      return;
    }
    if (!isGemv(stage))
      return;
    Slice slice = sliceOf(stage);
    int64_t stripBytes = weightsOf(stage).stripBytes();
    if (joins(stage, slotBytes)) {
      const int64_t piece = slice.unit * stripBytes;
      mark(stage, {"mtile", "block"}, piece, piece * slice.blocks,
           llvm::formatv("the slice's {0} strips of one of {1} blocks of K, {2} bytes each: two "
                         "m-tiles, multiplied side by side",
                         slice.unit, slice.blocks, stripBytes),
           1, 0, /*joined=*/true);
      return;
    }
    const int64_t blocks = blocksOf(stage, slice.top(), slotBytes);
    const int64_t last = lastBlocksOf(stage, blocks, slotBytes);
    SmallVector<StringRef> order = {"mtile", blocks > 1 ? "piece" : "block"};
    if (partsOf(stage) > 1)
      order.insert(order.begin(), "k_part");
    if (stage.getKind() != StageKind::Linear)
      order.insert(order.begin(), "expert");
    mark(stage, order, blocks * slice.top() * stripBytes, slice.unit * slice.blocks * stripBytes,
         llvm::formatv("{0} strips of {5} of {1} blocks of K, {2} bytes each: an m-tile has {4}, "
                       "the slice {3}{6}",
                       slice.top(), slice.blocks, stripBytes, slice.unit, slice.tile,
                       blocks > 1 ? std::to_string(blocks) : "one",
                       blocks > 1 ? llvm::formatv("; a slot has room for {0} bytes",
                                                  std::min(slotBytes, kPieceBytes))
                                        .str()
                                  : ""),
         blocks, last);
    if (last)
      recordReason(
          stage,
          {getArgumentName().str(), "last m-tile", llvm::formatv("pieces of {0} blocks", last),
           llvm::formatv("its {0} strips of {1} would be {2} bytes", slice.unit % slice.tile,
                         blocks > 1 ? std::to_string(blocks) + " blocks" : "a block",
                         blocks * (slice.unit % slice.tile) * stripBytes)});
  }

  /// `order`: loops, outermost first. `piece`: bytes of the largest copy. `bytes`: of one SM's
  /// share of one matrix, or of a unit. `window`: most pieces under way. `blocks`: of K, in a
  /// piece, if several; `last`: in one of a slice's last m-tile, if that has others; `joined`:
  /// m-tiles of a slice come together.
  void mark(StageOp stage, ArrayRef<StringRef> order, int64_t piece, int64_t bytes,
            const std::string &pieceReason, int64_t blocks = 1, int64_t last = 0,
            bool joined = false) {
    Builder builder(&getContext());
    InFlight inFlight = bytesInFlight(stage, joined);
    int64_t window = std::max(inFlight.leastWindow, inFlight.bytes / piece);
    recordReason(
        stage, {getArgumentName().str(), "piece", llvm::formatv("{0} bytes", piece), pieceReason});
    recordReason(stage,
                 {getArgumentName().str(), "window",
                  llvm::formatv("{0} pieces, {1} bytes in flight an SM", window, window * piece),
                  llvm::formatv("{0}: at most {1} bytes, and at least {2} piece{3}",
                                inFlight.because, inFlight.bytes, inFlight.leastWindow,
                                inFlight.leastWindow == 1 ? "" : "s")});
    SmallVector<NamedAttribute> stream = {
        builder.getNamedAttr("order", builder.getStrArrayAttr(order)),
        builder.getNamedAttr("piece", builder.getI64IntegerAttr(piece)),
        builder.getNamedAttr("bytes", builder.getI64IntegerAttr(bytes)),
        builder.getNamedAttr("window", builder.getI64IntegerAttr(window))};
    if (int64_t late = inFlight.lateBytes / piece; late > window) {
      stream.push_back(builder.getNamedAttr("late_window", builder.getI64IntegerAttr(late)));
      recordReason(stage,
                   {getArgumentName().str(), "window of late pieces",
                    llvm::formatv("{0} pieces", late),
                    llvm::formatv("those that the ring has no room for before the stage's own "
                                  "products are waited for themselves: at most {0} bytes",
                                  inFlight.lateBytes)});
    }
    if (blocks > 1)
      stream.push_back(builder.getNamedAttr("blocks", builder.getI64IntegerAttr(blocks)));
    if (last)
      stream.push_back(builder.getNamedAttr("last_blocks", builder.getI64IntegerAttr(last)));
    if (joined)
      stream.push_back(builder.getNamedAttr("joined", builder.getUnitAttr()));
    stage->setAttr(kStream, builder.getDictionaryAttr(stream));
  }
};

} // namespace
