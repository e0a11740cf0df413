// task-choose-tiles and task-assign-sms: slices of static stages over the SMs.
#include "passes/graph/GraphPasses.h"
#include "passes/why/Why.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace megalith {
#define GEN_PASS_DEF_CHOOSETILES
#define GEN_PASS_DEF_ASSIGNSMS
#include "passes/graph/GraphPasses.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

/// Strips whose outputs' squares are one value (codegen/device/expert_norm.cuh).
constexpr int64_t kSquareStrips = 8;

/// From so many rows on those of a stream are dealt out among the SMs.
constexpr int64_t kDealtRows = 4;

/// Of a single row, every SM may read so many bytes of its pairs' outputs and add them for itself:
/// on an H200 that takes less than to add them somewhere and exchange the sums
/// (docs/performance.md). It is also what lanes have registers for, two vectors of each pair
/// (codegen/device/pair_row.cuh).
constexpr int64_t kPairBytes = 64 << 10, kPairChannels = 4096;

/// Channels of a sector of bf16 words.
constexpr int64_t kSectorChannels = 16;

/// What an SM spends among experts whose tiles are dealt out: products of packed bytes (measured on
/// an H200, docs/performance.md), and what of the way of an expert's activations from the exchange
/// the products of the unit before do not hide (with 600 and more, 16 rows of Muse Spark Open get
/// units of eight tiles, 1 % slower than four; with 150 and less two, 1 % slower as well).
constexpr double kProductBytesPerNs = 80;
constexpr double kActivationsNs = 500;

/// Shared memory for one expert's activations at most: wider ones come in parts of K, group by
/// group of a slice's tiles (task-plan-streams).
constexpr int64_t kActBytes = 160 << 10;

class ChooseTiles : public megalith::impl::ChooseTilesBase<ChooseTiles> {
  void runOnOperation() override {
    for (auto stage : llvm::make_early_inc_range(getOperation().getOps<StageOp>()))
      switch (stage.getKind()) {
      case StageKind::Linear:
      case StageKind::ExpertUp:
      case StageKind::ExpertDown:
        sliceGemv(stage);
        break;
      case StageKind::Combine:
        if (!replicateCombine(stage))
          dealCombine(stage);
        break;
      case StageKind::Embed:
        sliceEmbed(stage);
        break;
      case StageKind::Attention:
      case StageKind::Merge:
        recordReason(stage, {getArgumentName().str(), "tiles", "dealt out at run time",
                             "how many there are depends on the lengths of the step's sequences"});
        break;
      case StageKind::TopK:
        recordReason(stage,
                     {getArgumentName().str(), "tiles",
                      "replicated on all " + std::to_string(getOperation().getSms()) + " SMs",
                      "every SM needs the choice of all rows at once: choosing it again "
                      "saves an exchange"});
        break;
      case StageKind::Rows:
        dealRows(stage);
        break;
      case StageKind::LaunchEnd:
        break;
      }
  }

  /// Whether a stage takes its rows from where `rows` left them, itself or through another.
  bool shares(StageOp stage, StageOp rows) {
    auto from = stage.getConfig().getAs<FlatSymbolRefAttr>("shares_input");
    auto found = from ? getOperation().lookup<StageOp>(from) : StageOp();
    return found && (found == rows || shares(found, rows));
  }

  /// A few rows of a stream every SM reads and norms for itself: that saves an exchange. Of many,
  /// each is some SMs', who publish the normed row, and whoever multiplies reads it.
  void dealRows(StageOp stage) {
    KernelOp kernel = getOperation();
    MLIRContext *context = &getContext();
    Builder attributes(context);
    int64_t rows = kernel.getRows(), sms = kernel.getSms();
    int64_t k = stage.getConfig().getAs<IntegerAttr>("k").getInt();
    const int64_t bytes = rows * k * (stage.getReads().size() > 1 ? 6 : 4);
    if (rows < kDealtRows) {
      recordReason(stage,
                   {getArgumentName().str(), "rows", "all of them on every SM",
                    llvm::formatv("{0} bytes of branch and stream an SM, below {1} rows, are less "
                                  "than another exchange",
                                  bytes, kDealtRows)});
      return;
    }
    const int64_t each = std::max<int64_t>(1, sms / rows);
    NamedAttrList config(stage.getConfig());
    config.set("row_sms", attributes.getI64IntegerAttr(each));
    stage.setConfigAttr(config.getDictionary(context));
    SmallVector<StageOp> readers;
    for (auto other : kernel.getOps<StageOp>())
      if (shares(other, stage))
        readers.push_back(other);
    recordReason(
        stage, {getArgumentName().str(), "rows", llvm::formatv("each on {0} of {1} SMs", each, sms),
                llvm::formatv("{0} bytes of branch and stream of all {1} rows are too much for "
                              "every SM; the normed rows, {2} bytes, are another exchange",
                              bytes, rows, rows * k * 2)});
    if (readers.empty())
      return;
    AccessAttr normed = normedRows(stage, k);
    SmallVector<Attribute> writes(stage.getWrites().getValue());
    writes.push_back(normed);
    stage.setWritesAttr(ArrayAttr::get(context, writes));
    for (StageOp reader : readers) {
      NamedAttrList keys(reader.getConfig());
      keys.erase("shares_input");
      reader.setConfigAttr(keys.getDictionary(context));
      SmallVector<Attribute> reads = {normed};
      llvm::append_range(reads, reader.getReads().getValue());
      reader.setReadsAttr(ArrayAttr::get(context, reads));
    }
  }

  /// Where normed rows are published: behind the words of the stream where those are of this launch
  /// alone (slots of LaunchArgs are few), else in a value of their own.
  AccessAttr normedRows(StageOp stage, int64_t k) {
    KernelOp kernel = getOperation();
    MLIRContext *context = &getContext();
    int64_t rows = kernel.getRows();
    auto at = [&](int64_t column, int64_t columns, FlatSymbolRefAttr buffer) {
      AffineExpr zero = getAffineConstantExpr(0, context);
      return AccessAttr::get(
          context, buffer, affineMapAttr({zero, getAffineConstantExpr(column, context)}, context),
          rows, affineMapAttr({getAffineConstantExpr(columns, context)}, context), {},
          task::Set::Current);
    };
    if (!stage.getWrites().empty()) {
      auto write = cast<AccessAttr>(stage.getWrites()[0]);
      auto stream = kernel.lookup<BufferOp>(write.getBuffer());
      if (stream && !stream.getCrossing()) {
        stream.setShape({rows, k + k / 2}); // an fp32 word is two channels
        return at(k, k / 2, write.getBuffer());
      }
    }
    OpBuilder builder(stage);
    BufferOp::create(builder, stage.getLoc(), "x", ArrayRef<int64_t>{rows, k},
                     builder.getBF16Type(), Space::Global, Mutability::Value);
    return at(0, k, FlatSymbolRefAttr::get(context, "x"));
  }

  /// Columns [t * width, min((t + 1) * width, of the buffer)) of an access that covered all
  /// columns.
  AccessAttr columns(AccessAttr access, int64_t width, int64_t total) {
    MLIRContext *context = &getContext();
    AffineExpr tile = getAffineDimExpr(0, context);
    AffineExpr row = access.getAt().getValue().getResult(0);
    SmallVector<AffineExpr> cols = {getAffineConstantExpr(width, context)};
    if (total % width)
      cols.push_back(total - tile * width);
    return AccessAttr::get(context, access.getBuffer(), affineMapAttr({row, tile * width}, context),
                           access.getRows(), affineMapAttr(cols, context), access.getTable(),
                           access.getSet(), isOfRanks(access));
  }

  /// Slices of what ranks exchange are of a rank's share.
  bool isOfRanks(AccessAttr access) {
    auto value = getOperation().lookup<BufferOp>(access.getBuffer());
    return value && value.getPeers();
  }

  /// `what` is a unit's name; `channels` are those of one.
  /// `rounded`: why it is more than the least.
  void setSlices(StageOp stage, int64_t unit, int64_t units, StringRef what, int64_t channels,
                 StringRef rounded = "since sums of squares are of eight strips") {
    Builder builder(&getContext());
    int64_t tiles = llvm::divideCeil(units, unit), sms = getOperation().getSms();
    explain(stage, unit, units, tiles, sms, what, channels, rounded);
    stage.setTiles(tiles);
    stage.setSms(tiles);
    NamedAttrList config(stage.getConfig());
    config.set("unit", builder.getI64IntegerAttr(unit));
    stage.setConfigAttr(config.getDictionary(&getContext()));
  }

  static std::string counted(int64_t count, StringRef what) {
    return llvm::formatv("{0} {1}{2}", count, what, count == 1 ? "" : "s");
  }

  static void explain(StageOp stage, int64_t unit, int64_t units, int64_t tiles, int64_t sms,
                      StringRef what, int64_t channels, StringRef rounded) {
    int64_t least = llvm::divideCeil(units, sms), last = units - (tiles - 1) * unit;
    std::string because = llvm::formatv("{0} over {1} are at least {2} on one",
                                        counted(units, what), counted(sms, "SM"), least);
    if (unit != least)
      because += llvm::formatv(", made {0} {1}", unit, rounded);
    if (last != unit)
      because += llvm::formatv("; the last SM has {0}", last);
    if (tiles < sms)
      because += llvm::formatv("; {0} {1} no share", counted(sms - tiles, "SM"),
                               sms - tiles == 1 ? "has" : "have");
    because += llvm::formatv("; {0:f1} % of what all SMs could do in the time of the longest",
                             100.0 * double(units) / double(unit * sms));
    recordReason(stage, {getArgumentName().str(), "slice",
                         llvm::formatv("{0} ({1} channels) on each of {2} of {3} SMs",
                                       counted(unit, what), unit * channels, tiles, sms),
                         because});
  }

  void sliceGemv(StageOp stage) {
    KernelOp kernel = getOperation();
    MLIRContext *context = &getContext();
    WeightsOp weights;
    for (auto access : stage.getReads().getAsRange<AccessAttr>())
      if (auto found = kernel.lookup<WeightsOp>(access.getBuffer()))
        weights = found;
    // A strip is two output rows, or one gate and one up row that make one channel.
    StringRef epilogue;
    if (auto name = stage.getConfig().getAs<StringAttr>("epilogue"))
      epilogue = name.getValue();
    bool isGateUp = weights.getPairing() == Pairing::GateUp;
    int64_t channels = isGateUp ? 1 : 2, strips = weights.strips();
    if (int64_t tiles = tilesToDeal(stage, weights, epilogue)) {
      dealTiles(stage, weights, tiles);
      return;
    }
    int64_t unit = llvm::divideCeil(strips, kernel.getSms());
    if (isGateUp)
      unit = llvm::alignTo(unit, 2); // a word holds two channels
    if (weights.getNvfp4())
      unit = llvm::alignTo(unit, 8);                  // tiles are packed whole
    if (epilogue == "squares" || epilogue == "parts") // a value is of 16 channels; a sector
      unit = llvm::alignTo(unit, kSquareStrips);
    StringRef rounded = weights.getNvfp4()      ? "since tiles of eight strips are packed whole"
                        : epilogue == "squares" ? "since sums of squares are of eight strips"
                        : epilogue == "parts"   ? "since ranks store whole tiles to each other"
                                                : "since a word holds two channels";
    setSlices(stage, unit, strips, "strip", channels, rounded);

    int64_t width = unit * channels, total = strips * channels;
    AffineExpr tile = getAffineDimExpr(0, context);
    SmallVector<Attribute> reads, writes;
    for (auto access : stage.getReads().getAsRange<AccessAttr>()) {
      bool isResidual =
          epilogue.ends_with("residual") && access == stage.getReads().getValue().back();
      if (kernel.lookup<WeightsOp>(access.getBuffer()))
        access = AccessAttr::get(
            context, access.getBuffer(),
            affineMapAttr({tile * unit, getAffineConstantExpr(0, context)}, context),
            std::min(unit, strips), access.getCols(), access.getTable(), access.getSet());
      else if (isResidual)
        access = columns(access, width, total);
      reads.push_back(access);
    }
    for (auto access : stage.getWrites().getAsRange<AccessAttr>())
      writes.push_back(writes.empty() || epilogue == "parts"
                           ? columns(access, width, total)
                           : columns(access, unit / kSquareStrips,
                                     strips / kSquareStrips)); // sums of squares
    stage.setReadsAttr(ArrayAttr::get(context, reads));
    stage.setWritesAttr(ArrayAttr::get(context, writes));
  }

  static int64_t numberOf(StageOp stage, StringRef key) {
    return stage.getConfig().getAs<IntegerAttr>(key).getInt();
  }

  /// Experts that a step of as many rows activates if they choose independently.
  static int64_t activeExperts(StageOp stage, int64_t rows) {
    const double experts = double(numberOf(stage, "experts")), each = numberOf(stage, "top_k");
    const double active = experts * (1 - std::pow(1 - each / experts, double(rows)));
    return std::max<int64_t>(1, std::llround(active));
  }

  /// Neighbouring tiles of an expert's matrix that go to one SM, where tiles are dealt out over all
  /// active experts instead of sliced; 0 where slices serve.
  /// What an SM makes of tiles that are dealt out it must publish: of the down projection it does
  /// where each expert's output is normed.
  int64_t tilesToDeal(StageOp stage, WeightsOp weights, StringRef epilogue) {
    KernelOp kernel = getOperation();
    const int64_t sms = kernel.getSms(), rows = kernel.getRows();
    const bool isDown = stage.getKind() == StageKind::ExpertDown;
    if (!weights.getNvfp4() || stage.getKind() == StageKind::Linear ||
        (isDown && epilogue != "squares" && epilogue != "parts") ||
        weights.strips() % kSquareStrips)
      return 0;
    const int64_t k = numberOf(stage, "k");
    if (isDown && rows * (2 * int64_t(llvm::alignTo(k, 128)) + 32) > kActBytes)
      return 0;
    const int64_t tiles = weights.strips() / kSquareStrips, each = llvm::divideCeil(tiles, sms);
    const int64_t active = activeExperts(stage, rows);
    const double tileNs = 9 * double(k) / kProductBytesPerNs; // 16 rows of codes and scales
    const double actNs = isDown ? kActivationsNs : 0;
    auto nsOf = [&](int64_t turns, int64_t unit) {
      return double(turns) * (actNs + double(unit) * tileNs);
    };
    const double sliced = nsOf(active, each);
    int64_t best = 0, bestTurns = 0;
    double least = 0.95 * sliced; // not for little: slices need no dividing
    // Of units that cost the same, two tiles: their sixteen activations are one sector's.
    for (int64_t unit : {2, 1, 4, 8}) {
      const int64_t turns = llvm::divideCeil(active * (tiles / unit), sms);
      if (tiles % unit == 0 && nsOf(turns, unit) < least) {
        best = unit;
        bestTurns = turns;
        least = nsOf(turns, unit);
      }
    }
    // One unit an SM: in two halves, the first is of an expert whose activations were made early,
    // and the others' are on their way meanwhile.
    const bool isInHalves = isDown && best > 1 && bestTurns == 1 &&
                            llvm::divideCeil(active * (tiles / (best / 2)), sms) == 2;
    if (isInHalves) {
      best /= 2;
      bestTurns = 2;
    }
    if (best)
      recordReason(
          stage,
          {getArgumentName().str(), "tiles of experts",
           llvm::formatv("{0} at a time dealt out over all {1} SMs, expert by expert",
                         counted(best, "tile"), sms),
           llvm::formatv("slices keep {0} of {1} SMs busy, {2:f1} us with {3} experts of {4} "
                         "tiles; at most {5} a SM take {6:f1} us{7}",
                         llvm::divideCeil(tiles, each), sms, sliced / 1000, active, tiles,
                         counted(bestTurns * best, "tile"), least / 1000,
                         isInHalves ? ", of two experts: the earlier one's activations need no wait"
                         : isDown   ? ", an expert's activations brought for each unit among it"
                                    : "")});
    return best;
  }

  /// Which SM has which tile depends on the step's experts: the stage as a whole reads and writes
  /// what it read and wrote before.
  void dealTiles(StageOp stage, WeightsOp weights, int64_t tiles) {
    MLIRContext *context = &getContext();
    Builder builder(context);
    stage.removeTilesAttr();
    stage.removeSmsAttr();
    NamedAttrList config(stage.getConfig());
    config.set("unit", builder.getI64IntegerAttr(tiles * kSquareStrips));
    config.set("dealt", builder.getBoolAttr(true));
    stage.setConfigAttr(config.getDictionary(context));
    const int64_t strips = weights.strips();
    const int64_t channels = weights.getPairing() == Pairing::GateUp ? 1 : 2;
    SmallVector<Attribute> writes;
    for (auto access : stage.getWrites().getAsRange<AccessAttr>()) {
      const int64_t width = writes.empty() ? strips * channels : strips / kSquareStrips;
      writes.push_back(
          AccessAttr::get(context, access.getBuffer(), access.getAt(), access.getRows(),
                          affineMapAttr({getAffineConstantExpr(width, context)}, context),
                          access.getTable(), access.getSet(), isOfRanks(access)));
    }
    stage.setWritesAttr(ArrayAttr::get(context, writes));
  }

  /// The only reader of what `stage` writes, if it is a linear stage that takes it as it is.
  StageOp linearBehind(StageOp stage) {
    StageOp found;
    auto sum = cast<AccessAttr>(stage.getWrites()[0]);
    for (auto reader : getOperation().getOps<StageOp>())
      for (auto [index, read] : llvm::enumerate(reader.getReads().getAsRange<AccessAttr>())) {
        if (read.getBuffer() != sum.getBuffer())
          continue;
        auto norm = reader.getConfig().getAs<StringAttr>("norm");
        if (found || index > 0 || reader.getKind() != StageKind::Linear ||
            (norm && norm.getValue() != "none"))
          return {};
        found = reader;
      }
    return found;
  }

  /// A single row's pairs every SM adds for itself where it multiplies their sum, from outputs that
  /// all ranks have stored to it: an exchange less. Returns whether it does.
  bool replicateCombine(StageOp stage) {
    KernelOp kernel = getOperation();
    MLIRContext *context = &getContext();
    const DictionaryAttr given = stage.getConfig();
    auto outputs = cast<AccessAttr>(stage.getReads()[0]);
    auto value = kernel.lookup<BufferOp>(outputs.getBuffer());
    const int64_t pairs = numberOf(stage, "top_k"), ranks = kernel.getRanks();
    const int64_t columns = numberOf(stage, "n") * ranks, bytes = pairs * columns * 2;
    StageOp linear = linearBehind(stage);
    if (kernel.getRows() > 1 || given.contains("parts") || bytes > kPairBytes ||
        columns > kPairChannels || !linear)
      return false;
    auto sums = linear.getConfig().getAs<IntegerAttr>("k");
    if (!sums || sums.getInt() != columns)
      return false;
    recordReason(linear, {getArgumentName().str(), "rows", "added by every SM from all pairs",
                          llvm::formatv("{0} bytes of outputs an SM, at most {1}, and a single "
                                        "row: less than another exchange, of the sum",
                                        bytes, kPairBytes)});
    if (ranks > 1) { // outputs no longer stay
      value.setShape({value.rows(), columns});
      value.removeRankPartsAttr();
      value.setPeers(true);
      for (auto writer : kernel.getOps<StageOp>()) {
        SmallVector<Attribute> writes;
        for (auto write : writer.getWrites().getAsRange<AccessAttr>())
          writes.push_back(write.getBuffer() == outputs.getBuffer() ? write.withOwn(true) : write);
        writer.setWritesAttr(ArrayAttr::get(context, writes));
      }
    }
    SmallVector<Attribute> reads = {
        AccessAttr::get(context, outputs.getBuffer(), outputs.getAt(), value.rows(),
                        affineMapAttr({getAffineConstantExpr(columns, context)}, context), {},
                        outputs.getSet()),
        stage.getReads()[1]};
    llvm::append_range(reads, linear.getReads().getValue().drop_front());
    linear.setReadsAttr(ArrayAttr::get(context, reads));
    NamedAttrList config(linear.getConfig());
    config.set("pairs", Builder(context).getI64IntegerAttr(pairs));
    config.set("pairs_eps", given.get("eps"));
    linear.setConfigAttr(config.getDictionary(context));
    auto sum = cast<AccessAttr>(stage.getWrites()[0]).getBuffer();
    stage.erase();
    kernel.lookup<BufferOp>(sum).erase();
    return true;
  }

  /// Pairs of one row are added together: a row's columns on as many SMs as there are for it, who
  /// then read that row's pairs alone.
  void dealCombine(StageOp stage) {
    KernelOp kernel = getOperation();
    MLIRContext *context = &getContext();
    const int64_t n = numberOf(stage, "n"), rows = kernel.getRows(), sms = kernel.getSms();
    const int64_t most = std::max<int64_t>(1, sms / rows);
    const int64_t share = llvm::alignTo(llvm::divideCeil(n, most), kSectorChannels);
    const int64_t each = llvm::divideCeil(n, share);
    NamedAttrList config(stage.getConfig());
    config.set("row_sms", Builder(context).getI64IntegerAttr(each));
    stage.setConfigAttr(config.getDictionary(context));
    stage.setSms(std::min(rows, sms / each) * each);
    SmallVector<Attribute> writes(stage.getWrites().getValue());
    auto write = cast<AccessAttr>(writes[0]);
    writes[0] = AccessAttr::get(context, write.getBuffer(), write.getAt(), write.getRows(),
                                affineMapAttr({getAffineConstantExpr(n, context)}, context),
                                write.getTable(), write.getSet(), isOfRanks(write));
    stage.setWritesAttr(ArrayAttr::get(context, writes));
    recordReason(
        stage,
        {getArgumentName().str(), "rows",
         llvm::formatv("each on {0} of {1} SMs, {2} channels an SM", each, sms, share),
         llvm::formatv("{0} rows; whole sectors of {1} channels, and of sums of squares only those "
                       "of the row's own pairs",
                       rows, kSectorChannels)});
  }

  void sliceEmbed(StageOp stage) {
    KernelOp kernel = getOperation();
    auto access = cast<AccessAttr>(stage.getWrites()[0]);
    BufferOp target = kernel.lookup<BufferOp>(access.getBuffer());
    if (target.getElement().isF32()) // a share of words for each SM; task-lower-to-roles says which
      return;
    int64_t ranks = isOfRanks(access) ? kernel.getRanks() : 1;
    int64_t pairs = kernel.lookup<BufferOp>(access.getBuffer()).cols() / ranks / 2;
    int64_t unit = llvm::divideCeil(pairs, kernel.getSms());
    setSlices(stage, unit, pairs, "word", 2);
    stage.setWritesAttr(ArrayAttr::get(&getContext(), {columns(access, 2 * unit, 2 * pairs)}));
  }
};

class AssignSms : public megalith::impl::AssignSmsBase<AssignSms> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    auto own = AffineMap::get(
        1, 0, {getAffineDimExpr(0, context), getAffineConstantExpr(0, context)}, context);
    for (auto stage : getOperation().getOps<StageOp>())
      if (stage.getTiles())
        stage.setAssignAttr(AffineMapAttr::get(own));
  }
};

} // namespace
