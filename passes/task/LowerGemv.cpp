// Stages that stream weights: m-tiles, activation rows, linear layers. LowerExperts.cpp has the
// experts' two projections.
#include "passes/task/Declare.h"
#include "passes/task/Handoffs.h"
#include "passes/task/Lowering.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace megalith::task {

std::string wordsEdge(AccessAttr access) {
  std::string edge = (access.getBuffer().getValue() + "_words").str();
  auto first = dyn_cast<AffineConstantExpr>(access.getAt().getValue().getResults().back());
  if (first && first.getValue() > 0) // behind other words of the row
    edge = "Behind<" + edge + ", " + std::to_string(first.getValue()) + ">";
  return access.getSet() == Set::Previous ? "Previous<" + edge + ">" : edge;
}

std::string floatText(double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.8e", value) << 'f';
  return text;
}

std::string slotText(StageOp stage, StringRef key) {
  FlatSymbolRefAttr symbol = configSymbol(stage, key);
  return symbol ? symbol.getValue().str() : "-1";
}

//===----------------------------------------------------------------------===//
// M-tiles
//===----------------------------------------------------------------------===//

/// The stage's slice, as one m-tile if its two are multiplied and handed on together.
static Slice tilesOf(StageOp stage) {
  Slice slice = sliceOf(stage);
  if (joinsTiles(stage))
    slice.tile = slice.unit;
  return slice;
}

/// What device functions call the layer whose m-tiles these are.
static std::string layerOf(StageOp stage) {
  const std::string name = stage.getSymName().str();
  return joinsTiles(stage) ? "WholeSlice<" + name + ">" : name;
}

// M-tiles of the SM's slice: fewer on the last SMs unless the slices are all equal. Of a unit that
// is dealt out, all.
SmallVector<AffineExpr> KernelLowering::tileTrips(StageOp stage) {
  const Slice slice = tilesOf(stage);
  AffineExpr most = c(llvm::divideCeil(slice.unit, slice.tile));
  if (dealsTiles(stage) || slice.unit * smsOf(stage) == slice.strips)
    return {most};
  return {most, (c(slice.strips + slice.tile - 1) - d(0) * slice.unit).floorDiv(slice.tile)};
}

/// Of a stage that deals tiles out, inside forExperts: the first unit of the step's d(1)-th expert
/// that this SM has; none if it is beyond the last.
AffineExpr KernelLowering::firstUnit(StageOp stage) {
  Slice slice = sliceOf(stage);
  const int64_t sms = kernel.getSms(), units = slice.strips / slice.unit;
  return (d(0) + d(1) * ((sms - 1) * units % sms)) % sms;
}

/// How many it has. Without differences, which C++ would have to divide with more care: what
/// firstUnit leaves over of the SMs is such a remainder too.
AffineExpr KernelLowering::dealtUnits(StageOp stage) {
  Slice slice = sliceOf(stage);
  const int64_t sms = kernel.getSms(), units = slice.strips / slice.unit;
  AffineExpr behind = (d(0) * (sms - 1) + d(1) * (units % sms) + (sms - 1)) % sms;
  return (behind + units).floorDiv(sms);
}

/// The number of this SM's slice, or of the d(2)-th unit that it has of the expert.
AffineExpr KernelLowering::unitOf(StageOp stage) {
  return dealsTiles(stage) ? firstUnit(stage) + d(2) * kernel.getSms() : d(0);
}

/// First strip of m-tile d(`loop`) of that.
AffineExpr KernelLowering::firstStrip(StageOp stage, unsigned loop) {
  const Slice slice = tilesOf(stage);
  return unitOf(stage) * slice.unit + d(loop) * slice.tile;
}

/// What device functions call m-tile `mtile`: its place in the slice, or in the matrix.
StringRef KernelLowering::tileText(StageOp stage) {
  return dealsTiles(stage) ? "first + mtile" : "mtile";
}

/// Columns that m-tile d(`loop`) makes, `perStrip` of each strip and `outputs` in all.
AccessAttr KernelLowering::tileWrite(StageOp stage, unsigned loop, int64_t perStrip,
                                     int64_t outputs) {
  const Slice slice = tilesOf(stage);
  auto write = cast<AccessAttr>(stage.getWrites()[0]);
  int64_t width = slice.tile * perStrip, unit = perStrip * slice.unit;
  SmallVector<AffineExpr> cols = {c(std::min(width, unit))};
  if (slice.unit > slice.tile && slice.unit % slice.tile)
    cols.push_back(c(unit) - d(loop) * width);
  if (!dealsTiles(stage) && slice.unit * perStrip * smsOf(stage) != outputs)
    cols.push_back(c(outputs) - d(0) * unit - d(loop) * width);
  SmallVector<AffineExpr> at = {c(0), unitOf(stage) * unit + d(loop) * width};
  int64_t rows = write.getRows();
  StringRef table;
  if (stage.getKind() != StageKind::Linear) {
    at.insert(at.begin(), d(1));
    rows = kernel.getRows();
    table = "expert_id";
  }
  return rectangle(write.getBuffer().getValue(), at, rows, cols, table);
}

/// The loop over an m-tile's pieces: blocks, or several of them at a time.
static StringRef pieceIndex(int64_t blocks) {
  return blocks > 1 ? "piece" : "block";
}

/// What device functions call the piece of that index, counted from piece `first` on.
static std::string pieceText(int64_t blocks, int64_t first) {
  const StringRef index = pieceIndex(blocks);
  return first ? (Twine(first) + " + " + index).str() : index.str();
}

// M-tiles with equal pieces: all of a slice, or all but the last and the last.
SmallVector<KernelLowering::TileRun> KernelLowering::tileRuns(StageOp stage) {
  const Slice slice = tilesOf(stage);
  const std::string name = layerOf(stage);
  TileRun all{0, tileTrips(stage), tileText(stage).str(), slice.top(), pieceBlocksOf(stage), name};
  const int64_t blocks = lastPieceBlocksOf(stage), whole = slice.unit / slice.tile;
  if (!blocks)
    return {all};
  all.trips = {c(whole)};
  return {all,
          {whole,
           {c(1)},
           (llvm::Twine(whole) + " + mtile").str(),
           slice.unit % slice.tile,
           blocks,
           ("LastTile<" + llvm::Twine(name) + ", " + llvm::Twine(blocks) + ">").str()}};
}

// Pieces `first` .. first + count - 1 of each m-tile of a run, at most `window` under way.
void KernelLowering::streamPieces(StageOp stage, Steps &steps, bool isExpert, const TileRun &run,
                                  int64_t first, int64_t count, std::optional<int64_t> window) {
  const std::string piece = pieceText(run.blocks, first);
  steps.loop(pieceIndex(run.blocks), {c(count)}, [&] {
    unsigned m = steps.depth() - 1;
    SmallVector<AffineExpr> at = {firstStrip(stage, m) + run.first * sliceOf(stage).tile,
                                  (d(m + 1) + first) * run.blocks};
    SmallVector<StringRef> args = {run.tile, piece};
    if (isExpert) {
      at.insert(at.begin(), d(1)); // the entry of the routing table
      args.push_back("expert.id");
    }
    steps.acquire(names::kFree);
    steps.pace(ring(), window);
    steps.copy("copy_piece<" + names::kFull + ", " + names::kRing + ", " + run.config + ">", args,
               rectangle(weightsOf(stage).getSymName(), at, run.strips, {c(run.blocks)},
                         isExpert ? "expert_id" : ""));
  });
}

void KernelLowering::stream(StageOp stage, Steps &steps, bool isExpert) {
  for (const TileRun &run : tileRuns(stage))
    steps.loop("mtile", run.trips, [&] {
      // What the ring has room for before the stage's products is streamed while exchanges are
      // waited for; what comes later is waited for itself.
      const int64_t pieces = sliceOf(stage).blocks / run.blocks;
      const int64_t early =
          lateWindowOf(stage) == windowOf(stage) ? pieces : std::min(pieces, ring().getSlots());
      streamPieces(stage, steps, isExpert, run, 0, early, windowOf(stage));
      if (early < pieces)
        streamPieces(stage, steps, isExpert, run, early, pieces - early, lateWindowOf(stage));
    });
}

void KernelLowering::multiplyPiece(StageOp stage, Steps &steps, StringRef sum, StringRef tile,
                                   AccessAttr rows, const TileRun &run, int64_t first) {
  const std::string name = stage.getSymName().str();
  const StringRef several = run.blocks > 1 ? "s<" : "<";
  const std::string index = pieceText(run.blocks, first);
  if (weightsOf(stage).getWide())
    steps.compute("wide_block" + several + run.config + ", " + names::kRing + ", " + name + "::In>",
                  {sum, "slot", tile, index}, {rows}, {}, {}, /*readsRing=*/true);
  else
    steps.compute("gemv_block" + several + run.config + ", " + names::kRing + ">",
                  {sum, "slot", tile, index, "column"}, {rows}, {}, {}, /*readsRing=*/true);
}

// Both m-tiles of a slice at once. What a piece brings is multiplied while the next one's operands
// come: waiting for a piece and reading it are hidden behind the chains of products.
void KernelLowering::multiplyJoined(StageOp stage, Steps &steps, AccessAttr rows) {
  const TileRun run = tileRuns(stage).front();
  steps.loop("mtile", run.trips, [&] {
    steps.local("sum", "ChunkSum", "{}");
    steps.local("rest", "ChunkSum", "{}");
    steps.local("held", "Held<" + run.config + ">");
    steps.loop("block", {c(sliceOf(stage).blocks)}, [&] {
      steps.wait(names::kFull, "const int slot");
      steps.compute("gemv_ahead<" + run.config + ", " + names::kRing + ">",
                    {"sum", "rest", "held", "slot", run.tile, "block", "column"}, {rows}, {}, {},
                    /*readsRing=*/true);
      steps.release(names::kFree);
    });
    steps.compute("gemv_held<" + run.config + ">", {"sum", "rest", "held", "column"}, {}, {});
    steps.acquire("p_free", "const int place");
    steps.compute("store_part<" + names::kPart + ">", {"place", "sum", "rest"}, {},
                  {whole(names::kPart)});
    steps.signal("p_full");
  });
}

// The first `held` pieces of an m-tile are in registers (LowerHeld.cpp).
void KernelLowering::multiply(StageOp stage, Steps &steps, AccessAttr rows, int64_t held) {
  if (joinsTiles(stage))
    return multiplyJoined(stage, steps, rows);
  Slice slice = sliceOf(stage);
  const bool isWide = weightsOf(stage).getWide();
  const StringRef name = stage.getSymName();
  for (const TileRun &run : tileRuns(stage)) {
    steps.loop("mtile", run.trips, [&] {
      if (isWide)
        steps.local("sums", ("WideSums<" + name + ", Cta>").str(), "{}");
      else
        steps.local("sum", Operands(kernel).chunkSum(), "{}");
      if (held)
        multiplyHeld(stage, steps, rows);
      steps.loop(pieceIndex(run.blocks), {c(slice.blocks / run.blocks - held)}, [&] {
        steps.wait(names::kFull, "const int slot");
        multiplyPiece(stage, steps, isWide ? "sums" : "sum", run.tile, rows, run, held);
        steps.release(names::kFree);
      });
      steps.acquire("p_free", "const int place");
      if (isWide)
        steps.compute("store_wide_part<" + names::kPart + ", " + name + ">", {"place", "sums"}, {},
                      {whole(names::kPart)});
      else
        steps.compute("store_part<" + names::kPart + ">", {"place", "sum"}, {},
                      {whole(names::kPart)});
      steps.signal("p_full");
    });
  }
}

void KernelLowering::finishTiles(StageOp stage, Steps &steps, function_ref<void()> epilogue) {
  // An NVFP4 matrix's own factors, asked for before the wait.
  bool hasFactors = weightsOf(stage).getNvfp4(), isExpert = stage.getKind() != StageKind::Linear;
  if (hasFactors)
    steps.local("factors", "const FloatPair",
                ((quantizesInput(stage) ? "quantized_factors<" : "weight_factors<") +
                 stage.getSymName() + ">(cta" + (isExpert ? ", expert.id)" : ")"))
                    .str());
  const bool isJoined = joinsTiles(stage);
  StringRef sum = hasFactors ? "sum_scaled<" : isJoined ? "sum_slice<" : "sum_chunks<";
  StringRef type = isJoined ? "SliceSums" : Operands(kernel).sum();
  steps.loop("mtile", tileTrips(stage), [&] {
    if (configString(stage, "epilogue") == "squares")
      steps.local("gain", "const uint32_t",
                  ("output_gain<" + stage.getSymName() + ", " + slotText(stage, "gain") +
                   ">(cta, " + tileText(stage) + ")")
                      .str());
    steps.wait("p_full", "const int place");
    SmallVector<StringRef> args = {"place"};
    if (hasFactors)
      args.push_back("factors");
    steps.compute(sum + names::kPart + ">", args, {whole(names::kPart)}, {},
                  ("const " + type + " sum").str());
    steps.release("p_free");
    epilogue();
  });
}

//===----------------------------------------------------------------------===//
// Activation rows
//===----------------------------------------------------------------------===//

AccessAttr rowsOf(StageOp stage, AccessAttr buffer) {
  MLIRContext *context = stage.getContext();
  return AccessAttr::get(
      context, buffer.getBuffer(), buffer.getAt(), buffer.getRows(),
      affineMapAttr({getAffineConstantExpr(*configInt(stage, "k"), context)}, context), {},
      Set::Current);
}

// All rows of an exchange to shared memory: words as they arrive, or copies of what an earlier
// launch wrote, which the signal of `full` hands on.
void KernelLowering::pollRows(Steps &steps, AccessAttr source, StringRef rows, StringRef full,
                              AccessAttr target) {
  std::string edge = wordsEdge(source), name = source.getBuffer().getValue().str();
  bool isProof = exchange(name).isSelfValidating();
  steps.poll(isProof ? "poll_rows<" + edge + ", " + rows + ">"
                     : "fetch_rows<" + edge + ", " + rows + ", " + full + ">",
             {}, name + "_words", source, target, isProof ? StringRef() : full);
}

// Whether `stage`, right behind its kernel's routing, gets its rows while that goes on: nothing in
// this launch is waited for, so they cannot hold it up.
bool KernelLowering::loadsBehind(StageOp stage, StageOp router) {
  AccessAttr input = stage.getKind() == StageKind::ExpertUp ? inputOf(stage) : AccessAttr();
  ExchangeOp source = input ? exchange(input.getBuffer().getValue()) : ExchangeOp();
  return router && source && !source.isSelfValidating() && router->getNextNode() == stage;
}

// Rows that launches hand on come through the poller, which has them before they are wanted.
void KernelLowering::loadRows(StageOp stage, StageOp at) {
  AccessAttr input = inputOf(stage);
  if (!input || !rowsComeByLaunch(kernel))
    return;
  Steps steps(at, Role::Poller);
  steps.acquire("x_free");
  StringRef source = input.getBuffer().getValue();
  std::string rows = (stage.getSymName() + "::In").str();
  AccessAttr target = rowsOf(stage, whole(names::kInput));
  if (exchange(source))
    pollRows(steps, input, rows, "x_full", target);
  else
    steps.compute("read_rows<" + rows + ", " + source + ">", {}, {input}, {target});
  steps.signal("x_full");
}

// The consumers' rows: from the poller, or, the shortest way from SM to SM, polled by themselves,
// each warp the chunk of K that it multiplies. They norm them in place.
void KernelLowering::takeRows(StageOp stage, Steps &consumer) {
  AccessAttr input = inputOf(stage);
  if (!input)
    return;
  if (pairsOf(stage)) {
    takePairs(stage, consumer);
    return;
  }
  std::string name = stage.getSymName().str(), rows = name + "::In";
  StringRef norm = configString(stage, "norm"), source = input.getBuffer().getValue();
  bool hasNorm = !norm.empty() && norm != "none";
  AccessAttr target = rowsOf(stage, whole(names::kInput));
  if (hasNorm) {
    FlatSymbolRefAttr gain = configSymbol(stage, "gain");
    SmallVector<AccessAttr> gains;
    if (gain)
      gains.push_back(whole(gain.getValue()));
    set(stage, "Norm",
        "RmsNorm<In, " + (gain ? gain.getValue() : StringRef("kWeightless")) + ", " +
            floatText(*configFloat(stage, "eps")) + ">");
    consumer.compute("load_gains<" + name + "::Norm>", {}, gains, {}, "const auto gains");
  }
  if (rowsComeByLaunch(kernel)) {
    consumer.wait("x_full");
  } else {
    if (exchange(source) && input.getSet() == Set::Current)
      requireLaunchWait(stage, Role::Consumer, consumer);
    consumer.refill(names::kInput);
    if (exchange(source))
      consumer.poll("poll_chunk<" + wordsEdge(input) + ", " + rows + ">", {},
                    (source + "_words").str(), input, target);
    else
      consumer.compute("read_chunk<" + rows + ", " + source + ">", {}, {input}, {target});
  }
  if (hasNorm)
    consumer.compute("rms_norm<" + name + "::Norm>", {"gains"}, {target}, {target});
}

void KernelLowering::releaseRows(StageOp stage, Steps &steps) {
  if (rowsComeByLaunch(kernel) && lastSharer(loaderOf(stage)) == stage)
    steps.release("x_free");
}

//===----------------------------------------------------------------------===//
// Linear
//===----------------------------------------------------------------------===//

// The epilogue brings the residual's slice to where its sums are added.
void KernelLowering::fetchResidual(StageOp stage, Steps &steps) {
  AccessAttr residual = residualOf(stage);
  if (!residual || stage->hasAttr(kKept))
    return;
  if (residual.getSet() == Set::Current)
    requireLaunchWait(stage, Role::Epilogue, steps);
  std::string kept = keptName(stage);
  int64_t width = 2 * sliceOf(stage).unit, n = *configInt(stage, "n");
  SmallVector<AffineExpr> cols = {c(width)};
  if (width * smsOf(stage) != n)
    cols.push_back(c(n) - d(0) * width);
  StringRef name = residual.getBuffer().getValue();
  AccessAttr read =
      rectangle(name, {c(0), d(0) * width}, residual.getRows(), cols, {}, residual.getSet());
  steps.poll("fetch_slice<" + stage.getSymName() + ", " + wordsEdge(residual) + ", " + kept + ">",
             {}, (name + "_words").str(), read, whole(kept));
}

// What the head does to its sums, as a template argument behind others; nothing if nothing.
static std::string logitRule(StageOp stage, int64_t ranks) {
  std::optional<double> multiplier = configFloat(stage, "multiplier"),
                        softcap = configFloat(stage, "softcap");
  std::optional<int64_t> valid = configInt(stage, "valid");
  if (!multiplier && !softcap && !valid)
    return "";
  return ", LogitRule<" + floatText(multiplier.value_or(1)) + ", " +
         floatText(softcap.value_or(0)) + ", " +
         std::to_string(valid.value_or(*configInt(stage, "n") * ranks)) + ">";
}

LogicalResult KernelLowering::publishTile(StageOp stage, Steps &steps) {
  auto write = cast<AccessAttr>(stage.getWrites()[0]);
  StringRef target = write.getBuffer().getValue();
  const std::string name = layerOf(stage);
  AccessAttr tile = tileWrite(stage, steps.depth(), 2, *configInt(stage, "n"));
  if (ExchangeOp words = exchange(target)) {
    std::string edge = (target + "_words").str();
    if (residualOf(stage)) {
      std::string kept = keptName(stage);
      steps.compute("epilogue_residual<" + name + ", " + edge + ", " + kept + ">", {"mtile", "sum"},
                    {whole(kept)}, {tile, whole(kept)});
    } else if (words.getWord() == WordKind::Epoch) {
      return stage.emitOpError() << "writes epoch words of @" << target
                                 << ", which linear stages cannot: a set of its words must not "
                                    "exceed 64 KB";
    } else {
      StringRef callee = words.getElement().isF32() ? "epilogue_logits<" : "epilogue_words<";
      std::string factor = floatText(configFloat(stage, "multiplier").value_or(1));
      SmallVector<StringRef> args = {"mtile", "sum"};
      if (configFloat(stage, "multiplier"))
        args.push_back(factor);
      steps.compute(callee + name + ", " + edge + ">", args, {}, {tile});
    }
    return success();
  }
  auto buffer = kernel.lookup<BufferOp>(write.getBuffer());
  if (residualOf(stage) || !buffer || buffer.getMutability() != Mutability::Written)
    return stage.emitOpError() << "expected a linear stage to write an exchange or, without a "
                                  "residual, a written buffer, but it writes @"
                               << target;
  StringRef callee = buffer.getElement().isF32() ? "epilogue_head<" : "epilogue_store_bf16<";
  SmallVector<StringRef> args = {"mtile", "sum"};
  if (choosesTokens(stage))
    args.push_back("best");
  steps.compute(callee + name + ", " + target + logitRule(stage, kernel.getRanks()) + ">", args, {},
                {tile});
  return success();
}

// The head also says which token is best, so that a step can follow without the host.
bool KernelLowering::choosesTokens(StageOp stage) {
  return configString(stage, "epilogue") == "head";
}

// Beside the logits, each SM's best token of every row, with its rank: two words (argmax.cuh).
LogicalResult KernelLowering::storeCandidates(StageOp stage, Steps &steps) {
  const StringRef name = "candidates";
  std::optional<int64_t> slot = freeSlot(kernel);
  if (!slot)
    return stage.emitOpError() << "expected a free buffer slot for @" << name
                               << ", but the kernel binds all " << kMaxBuffers;
  OpBuilder builder = declarations(kernel);
  int64_t rows = kernel.getRows(), sms = smsOf(stage);
  auto buffer = BufferOp::create(builder, stage.getLoc(), name, ArrayRef<int64_t>{rows, 2 * sms},
                                 builder.getI32Type(), Space::Global, Mutability::Written);
  buffer.setSlot(*slot);
  steps.compute("store_candidates<" + Twine(sms) + ", " + name + ">", {"best"}, {},
                {rectangle(name, {c(0), d(0) * 2}, rows, {c(2)})});
  return success();
}

std::string linearBase(StageOp stage) {
  std::string base;
  if (dealsTiles(stage)) {
    llvm::raw_string_ostream(base)
        << "Nvfp4<" << weightsOf(stage).getSymName() << ", " << *configInt(stage, "n") << ", "
        << *configInt(stage, "k") << ", " << sliceOf(stage).unit / sliceOf(stage).tile << ">";
    return base;
  }
  StringRef form = weightsOf(stage).getNvfp4()  ? "Nvfp4Slices<"
                   : weightsOf(stage).getWide() ? "WideLinear<"
                                                : "Linear<";
  llvm::raw_string_ostream(base) << form << weightsOf(stage).getSymName() << ", "
                                 << *configInt(stage, "n") << ", " << *configInt(stage, "k") << ", "
                                 << *configInt(stage, "unit");
  if (const int64_t blocks = pieceBlocksOf(stage); blocks > 1)
    base += ", " + std::to_string(blocks);
  return base + ">";
}

std::string inputType(StageOp stage) {
  return (names::kInput + "::kOffset, Config::kRows, " +
          Twine(*configInt(stage, "k") / partsOf(stage)))
      .str();
}

// Ranks have divided K: what each makes of this SM's slice goes to all, and here all parts of it
// become its outputs, for the SMs of this rank.
void KernelLowering::addSliceParts(StageOp stage, Steps &epilogue) {
  const std::string name = stage.getSymName().str(), kept = keptName(stage);
  StringRef parts = cast<AccessAttr>(stage.getWrites()[0]).getBuffer().getValue();
  StringRef target = cast<AccessAttr>(stage.getWrites()[1]).getBuffer().getValue();
  const int64_t width = 2 * sliceOf(stage).unit, n = *configInt(stage, "n");
  const int64_t rows = kernel.getRows();
  SmallVector<AffineExpr> cols = {c(width)};
  if (width * smsOf(stage) != n)
    cols.push_back(c(n) - d(0) * width);
  SmallVector<AccessAttr> found;
  for (int64_t rank = 0; rank < kernel.getRanks(); ++rank)
    found.push_back(rectangle(parts, {c(0), d(0) * width + rank * n}, rows, cols).withOwn(false));
  epilogue.poll("poll_slice_parts<" + name + ", " + parts + "_words, " + kept + ">", {},
                (parts + "_words").str(), found, whole(kept));
  epilogue.compute("publish_slice<" + name + ", " + target + "_words, " + kept + ">", {},
                   {whole(kept)}, {rectangle(target, {c(0), d(0) * width}, rows, cols)});
}

LogicalResult KernelLowering::lowerLinear(StageOp stage) {
  set(stage, "base", linearBase(stage));
  set(stage, "In", "Rows<" + inputType(stage) + ">");
  AccessAttr rows = rowsOf(stage, whole(names::kInput));

  Steps producer(stage, Role::Producer), consumer(stage, Role::Consumer);
  if (partsOf(stage) > 1) {
    streamParts(stage, producer, /*isExpert=*/false);
    if (failed(multiplyParts(stage, consumer)))
      return failure();
  } else {
    stream(stage, producer, /*isExpert=*/false);
    loadRows(stage);
    holdPieces(stage, consumer);
    takeRows(stage, consumer);
    std::string name = stage.getSymName().str();
    if (!weightsOf(stage).getWide())
      consumer.local("column", Operands(kernel).columnLocal(),
                     Operands(kernel).column("dense", name + ", " + name + "::In") + "(cta)");
    multiply(stage, consumer, rows, heldPieces(stage));
    releaseRows(stage, consumer);
  }

  Steps epilogue(stage, Role::Epilogue);
  fetchResidual(stage, epilogue);
  requireLaunchWait(stage, Role::Epilogue, epilogue);
  if (choosesTokens(stage))
    epilogue.local("best", Operands(kernel).best(), "{}");
  LogicalResult published = success();
  finishTiles(stage, epilogue, [&] { published = publishTile(stage, epilogue); });
  if (addsParts(stage))
    addSliceParts(stage, epilogue);
  if (failed(published) || !choosesTokens(stage))
    return published;
  return storeCandidates(stage, epilogue);
}

} // namespace megalith::task
