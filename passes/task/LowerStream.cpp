// Rows of an fp32 stream that a branch joins, and experts whose outputs are normed before they are
// added (codegen/device/stream_rows.cuh, expert_norm.cuh, rank_sums.cuh).
#include "passes/task/Handoffs.h"
#include "passes/task/Lowering.h"

using namespace mlir;

namespace megalith::task {

/// Words of a sector: what share_of (codegen/device/exchange.cuh) rounds shares up to.
static constexpr int64_t kSectorWords = 8;

/// Channels of a sector of bf16 words: what shares of dealt rows are made of (stream_rows.cuh).
static constexpr int64_t kDealtChannels = 16;

/// Channels of a row of which a lane of the consumers has one vector, and vectors that a lane can
/// wait for at once (kMostOfLane, gather.cuh).
static constexpr int64_t kLaneVectorChannels = 8 * 8 * 32, kLaneVectors = 8;

LogicalResult KernelLowering::lowerRows(StageOp stage) {
  AccessAttr branch = branchOf(stage), stream = streamOf(stage);
  if (!exchange(stream.getBuffer().getValue()) ||
      (branch && !exchange(branch.getBuffer().getValue())))
    return stage.emitOpError() << "expected to read exchanges";
  int64_t k = *configInt(stage, "k"), rows = kernel.getRows(), sms = kernel.getSms();
  auto isRounded = stage.getConfig().getAs<BoolAttr>("round_stream");
  std::string name = stage.getSymName().str();
  const bool isDealt = configInt(stage, "row_sms").has_value();
  set(stage, "base",
      "StreamRows<Rows<" + names::kInput + "::kOffset, " + (isDealt ? "1" : "Config::kRows") +
          ", " + Twine(k) + ">, " + names::kRowSums +
          ", BranchNorm::" + configString(stage, "branch_norm") + ", " +
          floatText(configFloat(stage, "branch_eps").value_or(0)) + ", " +
          slotText(stage, "branch_gain") + ", " + slotText(stage, "gate") + ", " +
          floatText(*configFloat(stage, "eps")) + ", " + slotText(stage, "gain") + ", " +
          (isRounded && isRounded.getValue() ? "true" : "false") + ">");

  if (isDealt) {
    lowerDealtRows(stage);
    return success();
  }
  Steps consumer(stage, Role::Consumer);
  if (branch || stream.getSet() == Set::Current)
    requireLaunchWait(stage, Role::Consumer, consumer);
  consumer.refill(names::kInput);
  consumer.refill(names::kRowSums);
  consumer.loop("row", {c(rows)}, [&] {
    AffineExpr row = d(consumer.depth());
    SmallVector<AccessAttr> writes = {rectangle(names::kInput, {row, c(0)}, 1, {c(k)}),
                                      rectangle(names::kRowSums, {row * 2, c(0)}, 2, {c(8)})};
    pollRow(stage, consumer, row, "row");
    if (!branch) {
      consumer.compute("norm_row<" + name + ">", {"row", "stream"}, gainsOf(stage), writes);
      return;
    }
    StringRef target = cast<AccessAttr>(stage.getWrites()[0]).getBuffer().getValue();
    int64_t share = llvm::alignTo(llvm::divideCeil(k, sms), kSectorWords);
    SmallVector<AffineExpr> cols = {c(share)};
    if (share * sms != k)
      cols.push_back(c(k) - d(0) * share);
    writes.push_back(rectangle(target, {row, d(0) * share}, 1, cols));
    consumer.compute("join_row<" + name + ", " + target + "_words>", {"row", "stream", "branch"},
                     gainsOf(stage), writes);
  });
  return success();
}

SmallVector<AccessAttr> KernelLowering::gainsOf(StageOp stage) {
  if (FlatSymbolRefAttr gain = configSymbol(stage, "gain"))
    return {whole(gain.getValue())};
  return {};
}

// The stream's words were written long ago, so they and what the branch will meet come first.
void KernelLowering::pollRow(StageOp stage, Steps &consumer, AffineExpr row, StringRef rowText) {
  const int64_t k = *configInt(stage, "k");
  const std::string name = stage.getSymName().str();
  auto rowOf = [&](AccessAttr access) {
    return rectangle(access.getBuffer().getValue(), {row, c(0)}, 1, {c(k)}, {}, access.getSet());
  };
  auto edgeOf = [](AccessAttr access) { return (access.getBuffer().getValue() + "_words").str(); };
  AccessAttr branch = branchOf(stage), stream = streamOf(stage);
  SmallVector<AccessAttr> reads = {rowOf(stream)};
  for (StringRef key : {"branch_gain", "gate"})
    if (FlatSymbolRefAttr buffer = configSymbol(stage, key))
      reads.push_back(whole(buffer.getValue()));
  consumer.local("stream", "StreamWords<" + name + ">");
  consumer.poll("poll_stream<" + name + ", " + wordsEdge(stream) + ">", {rowText, "stream"},
                edgeOf(stream), reads, {});
  if (!branch)
    return;
  consumer.local("branch", "BranchWords<" + name + ">");
  consumer.poll("poll_branch<" + name + ", " + wordsEdge(branch) + ">", {rowText, "branch"},
                edgeOf(branch), rowOf(branch), {});
}

// Many rows: `row_sms` SMs do a row together. Each has all of it, since norms are of whole rows and
// their bits must not depend on how many SMs there are, and publishes its share of the stream and
// of the normed row.
void KernelLowering::lowerDealtRows(StageOp stage) {
  AccessAttr branch = branchOf(stage), normed = normedOf(stage);
  const int64_t k = *configInt(stage, "k"), rows = kernel.getRows(), sms = kernel.getSms();
  const int64_t each = *configInt(stage, "row_sms"), groups = std::min(rows, sms / each);
  const std::string name = stage.getSymName().str(), by = std::to_string(each);
  Steps consumer(stage, Role::Consumer);
  requireLaunchWait(stage, Role::Consumer, consumer);
  auto deal = [&](AffineExpr row, std::string rowText) {
    consumer.refill(names::kRowSums);
    pollRow(stage, consumer, row, rowText);
    SmallVector<AccessAttr> writes = {whole(names::kRowSums)};
    const int64_t share = llvm::alignTo(llvm::divideCeil(k, each), kDealtChannels);
    AffineExpr part = each == 1 ? c(0) : d(0) % each;
    auto shareOf = [&](AccessAttr access) {
      // Rows behind an fp32 stream count in its words, of two channels each.
      const bool isBehind =
          access == normed && exchange(access.getBuffer().getValue()).getElement().isF32();
      const int64_t perColumn = isBehind ? 2 : 1;
      SmallVector<AffineExpr> cols = {c(share / perColumn)};
      if (share * each != k)
        cols.push_back(c(k / perColumn) - part * (share / perColumn));
      AffineExpr first = access.getAt().getValue().getResults().back();
      return rectangle(access.getBuffer().getValue(), {row, first + part * (share / perColumn)}, 1,
                       cols);
    };
    std::string callee = "deal_norm_row<" + name;
    const std::string partText = each == 1 ? "0" : "cta.sm % " + by;
    SmallVector<StringRef> args = {rowText, partText, "stream"};
    if (branch) {
      auto target = cast<AccessAttr>(stage.getWrites()[0]);
      writes.push_back(shareOf(target));
      callee = "deal_row<" + name + ", " + wordsEdge(target);
      args.push_back("branch");
    }
    if (normed)
      writes.push_back(shareOf(normed));
    callee += ", " + (normed ? wordsEdge(normed) : "void") + ", " + by + ">";
    consumer.compute(callee, args, normed ? gainsOf(stage) : SmallVector<AccessAttr>(), writes);
  };
  const std::string row = each == 1 ? "cta.sm" : "cta.sm / " + by;
  AffineExpr first = d(0).floorDiv(each);
  if (each * rows == sms) {
    deal(first, row);
    return;
  }
  consumer.loop("turn", {(c(rows + groups - 1) - first).floorDiv(groups)}, [&] {
    deal(first + d(consumer.depth()) * groups, row + " + turn * " + std::to_string(groups));
  });
}

// Each tile of outputs as it is there: the words of its pairs and the sums of their squares, or
// this rank's part of them.
void KernelLowering::publishOutputs(StageOp stage, Steps &epilogue) {
  StringRef target = cast<AccessAttr>(stage.getWrites()[0]).getBuffer().getValue();
  if (configString(stage, "epilogue") == "parts") {
    requireLaunchWait(stage, Role::Epilogue, epilogue);
    forExperts(stage, epilogue, [&] {
      finishTiles(stage, epilogue, [&] {
        epilogue.compute("epilogue_parts<" + stage.getSymName() + ", " + target + "_words>",
                         {tileText(stage), "sum", "expert.pairs", "expert.count"},
                         {whole(names::kRouting)},
                         {tileWrite(stage, epilogue.depth(), 2, *configInt(stage, "n"))});
      });
    });
    return;
  }
  StringRef squares = cast<AccessAttr>(stage.getWrites()[1]).getBuffer().getValue();
  SmallVector<AccessAttr> reads = {whole(names::kRouting)};
  if (FlatSymbolRefAttr gain = configSymbol(stage, "gain"))
    reads.push_back(whole(gain.getValue()));
  requireLaunchWait(stage, Role::Epilogue, epilogue);
  forExperts(stage, epilogue, [&] {
    finishTiles(stage, epilogue, [&] {
      const unsigned loop = epilogue.depth();
      // Slices and units are whole tiles, of one sum each.
      AffineExpr tile = unitOf(stage) * (sliceOf(stage).unit / sliceOf(stage).tile) + d(loop);
      epilogue.compute(
          "epilogue_outputs<" + stage.getSymName() + ", " + target + "_words, " + squares +
              "_words, " + slotText(stage, "gain") + ">",
          {tileText(stage), "sum", "gain", "expert.pairs", "expert.count"}, reads,
          {tileWrite(stage, loop, 2, *configInt(stage, "n")),
           rectangle(squares, {d(1), c(0), tile}, kernel.getRows(), {c(1)}, "expert_id")});
    });
  });
}

// A row's pairs, column by column: each row on `row_sms` SMs, as rows of a stream that are dealt
// out. Outputs come first, since nobody waits longer for them than for the sums of other ranks.
// Where ranks made parts of them each SM adds its columns' and publishes the sums of their squares.
LogicalResult KernelLowering::lowerCombine(StageOp stage) {
  auto outputs = cast<AccessAttr>(stage.getReads()[0]),
       sums = cast<AccessAttr>(stage.getReads()[1]);
  auto write = cast<AccessAttr>(stage.getWrites()[0]);
  StringRef source = outputs.getBuffer().getValue(), squares = sums.getBuffer().getValue();
  StringRef target = write.getBuffer().getValue();
  if (!exchange(source) || !exchange(squares) || !exchange(target))
    return stage.emitOpError() << "expected to add outputs of experts from exchanges to another";
  const int64_t n = *configInt(stage, "n"), pairs = *configInt(stage, "top_k");
  const int64_t each = *configInt(stage, "row_sms"), share = combineShare(stage);
  const int64_t rows = kernel.getRows(), groups = smsOf(stage) / each;
  const std::string by = std::to_string(each);
  const std::optional<int64_t> parts = configInt(stage, "parts");
  const FlatSymbolRefAttr gain = configSymbol(stage, "gain");
  const int64_t allColumns = exchange(squares).cols() * 16; // n of all ranks
  set(stage, "base",
      "Combine<" + names::kDown + ", " + names::kScales + ", " + Twine(allColumns) + ", " +
          floatText(*configFloat(stage, "eps")) + ">");
  AccessAttr down = whole(names::kDown), scales = whole(names::kScales);
  const std::string name = stage.getSymName().str();
  const std::string poll = (parts ? "poll_parts<" : "poll_outputs<") + name + ", " + source.str() +
                           "_words" + (parts ? ", " + slotText(stage, "gain") : "") + ">";
  Steps epilogue(stage, Role::Epilogue);
  requireLaunchWait(stage, Role::Epilogue, epilogue);
  auto add = [&](AffineExpr row, const std::string &rowText) {
    AffineExpr part = each == 1 ? c(0) : d(0) % each;
    const std::string partText = each == 1 ? "0" : "cta.sm % " + by;
    SmallVector<AffineExpr> cols = {c(share)};
    if (share * each != n)
      cols.push_back(c(n) - part * share);
    SmallVector<AccessAttr> found; // of every rank, where each has made a part
    for (int64_t rank = 0; rank < parts.value_or(1); ++rank)
      found.push_back(
          rectangle(source, {row * pairs, rank * n + part * share}, pairs, cols).withOwn(false));
    if (gain)
      found.push_back(whole(gain.getValue()));
    epilogue.poll(poll, {rowText, partText}, (source + "_words").str(), found, down);
    if (parts) {
      SmallVector<AffineExpr> sumCols = {c(share / 16)};
      if (share * each != n)
        sumCols.push_back(c(n / 16) - part * (share / 16));
      epilogue.compute("publish_squares<" + name + ", " + squares + "_words>", {rowText, partText},
                       {down},
                       {rectangle(squares, {row * pairs, part * (share / 16)}, pairs, sumCols)});
    }
    epilogue.poll(
        "poll_scales<" + name + ", " + squares + "_words>", {rowText}, (squares + "_words").str(),
        rectangle(squares, {row * pairs, c(0)}, pairs, {c(exchange(squares).cols())}), scales);
    AccessAttr sum = rectangle(target, {row, part * share}, 1, cols);
    epilogue.compute("combine_normed<" + name + ", " + target + "_words>",
                     {rowText, partText, ("weights_of<" + topK().getSymName() + ">(cta)").str()},
                     {down, scales, pairWeights()}, {sum.withOwn(exchange(target).getPeers())});
  };
  const std::string row = each == 1 ? "cta.sm" : "cta.sm / " + by;
  AffineExpr first = d(0).floorDiv(each);
  if (groups == rows) {
    add(first, row);
    return success();
  }
  epilogue.loop("turn", {(c(rows + groups - 1) - first).floorDiv(groups)}, [&] {
    add(first + d(epilogue.depth()) * groups, row + " + turn * " + std::to_string(groups));
  });
  return success();
}

/// Pairs that come together: half of them, or as few as a lane can take at once.
static int64_t pairsTogether(int64_t pairs, int64_t k) {
  const int64_t vectors = llvm::divideCeil(k, kLaneVectorChannels); // of a lane, of every pair
  int64_t groups = pairs > 1 ? 2 : 1;
  while (pairs % groups != 0 || pairs / groups * vectors > kLaneVectors)
    ++groups;
  return pairs / groups;
}

// The row that a linear stage multiplies, where every SM adds its pairs for itself: those of the
// first experts while the last are at work.
void KernelLowering::takePairs(StageOp stage, Steps &consumer) {
  auto outputs = cast<AccessAttr>(stage.getReads()[0]),
       sums = cast<AccessAttr>(stage.getReads()[1]);
  StringRef source = outputs.getBuffer().getValue(), squares = sums.getBuffer().getValue();
  const std::string type = (stage.getSymName() + "::Pairs").str();
  const int64_t k = *configInt(stage, "k"), pairs = pairsOf(stage),
                together = pairsTogether(pairs, k);
  set(stage, "Pairs",
      "PairRow<In, " + names::kScales + ", " + Twine(pairs) + ", " + Twine(together) + ", " +
          floatText(*configFloat(stage, "pairs_eps")) + ">");
  requireLaunchWait(stage, Role::Consumer, consumer);
  consumer.refill(names::kInput);
  consumer.local("row", "PairRowSums<" + type + ">", "{}");
  consumer.loop("group", {c(pairs / together)}, [&] {
    AffineExpr first = d(consumer.depth()) * together;
    auto groupOf = [&](StringRef words) {
      return rectangle(words, {first, c(0)}, together, {c(exchange(words).cols())});
    };
    AccessAttr scales = rectangle(names::kScales, {c(0), first}, 1, {c(together)});
    consumer.local("words", "PairWords<" + type + ">");
    consumer.poll("poll_pair_words<" + type + ", " + squares.str() + "_words, " + source.str() +
                      "_words>",
                  {"group", "words"}, (source + "_words").str(),
                  {groupOf(squares), groupOf(source)}, scales, /*joins=*/"",
                  /*also=*/(squares + "_words").str());
    consumer.computeMet(
        "add_pairs<" + type + ">",
        {"group", "words", ("weights_of<" + topK().getSymName() + ">(cta)").str(), "row"},
        {scales, pairWeights()}, {});
  });
  // Of all groups, as their scales show.
  consumer.compute("store_pairs<" + type + ">", {"row"}, whole(names::kScales),
                   {rectangle(names::kInput, {c(0), c(0)}, 1, {c(k)})});
}

} // namespace megalith::task
