// Attention tiles and the merge of their partial results (codegen/device/attention.md).
#include "passes/task/Handoffs.h"
#include "passes/task/Lowering.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace megalith::task {

/// Query vectors of a round (codegen/device/attention_shape.cuh).
static constexpr int64_t kRoundVectors = 64;
/// Groups of partial results, by tile (passes/bounds/Bounds.cpp).
static constexpr StringLiteral kTileTable = "attention_tile";

// The stage's config struct.
void KernelLowering::declareAttention(StageOp stage) {
  int64_t rows = kernel.getRows(), sms = kernel.getSms(), dim = *configInt(stage, "head_dim");
  int64_t kvHeads = *configInt(stage, "kv_heads"), qHeads = *configInt(stage, "q_heads");
  auto buffer = [&](StringRef key) {
    FlatSymbolRefAttr symbol = configSymbol(stage, key);
    return symbol ? symbol.getValue() : StringRef("-1");
  };
  BufferOp pool = pagesOf(stage);
  StringRef pages = pool ? pool.getSymName() : StringRef();
  bool hasNorm = configString(stage, "qk_norm") == "head";
  StringRef norm = !hasNorm ? "none" : configSymbol(stage, "q_gain") ? "weighted" : "plain";
  bool hasRope = configFloat(stage, "rope_theta").has_value();
  int64_t ropeDim = configInt(stage, "rope_dim").value_or(hasRope ? dim : 0);
  std::string base;
  llvm::raw_string_ostream(base) << "Attention<Config, " << llvm::divideCeil(sms, rows) << ", "
                                 << qHeads << ", " << kvHeads << ", " << dim << ", " << ropeDim
                                 << ", " << mergePartsOf(stage) << ", QkNorm::" << norm << ", "
                                 << llvm::format("%.8ef", configFloat(stage, "eps").value_or(0))
                                 << ", " << llvm::format("%.8ef", *configFloat(stage, "scale"))
                                 << ", " << pages << ", " << (ropeDim ? buffer("inv_freq") : "-1")
                                 << ", " << buffer("q_gain") << ", " << buffer("k_gain");
  std::optional<int64_t> sharing = configInt(stage, "head_ranks"),
                         window = configInt(stage, "window");
  auto bounded = stage.getConfig().getAs<BoolAttr>("bounded");
  const bool isBounded = bounded && bounded.getValue();
  const bool isE4m3 = pool && isa<Float8E4M3FNType>(pool.getElement());
  if (sharing || window || isBounded || isE4m3)
    base += ", " + std::to_string(sharing.value_or(1));
  if (window || isBounded || isE4m3)
    base += ", " + std::to_string(window.value_or(0));
  if (isBounded || isE4m3)
    base += isBounded ? ", true" : ", false";
  if (isE4m3)
    base += ", KvFormat::e4m3";
  if (configSymbol(stage, "k_scale"))
    base += (", " + buffer("k_scale") + ", " + buffer("v_scale")).str();
  base += ">";
  set(stage, "base", base);
  if (kernel.lookup<BufferOp>(ref(names::kQkvIn)))
    setSymbol(stage, "QkvIn", names::kQkvIn);
  setSymbol(stage, "Query", names::kQuery);
  setSymbol(stage, "Tail", names::kTail);
  setSymbol(stage, "Apart", names::kApart);
  if (kernel.lookup<BufferOp>(ref(names::kMparts))) // the merge is in this kernel too
    setSymbol(stage, "Mparts", names::kMparts);
}

LogicalResult KernelLowering::lowerAttention(StageOp stage) {
  AccessAttr projections, pages;
  for (auto access : stage.getReads().getAsRange<AccessAttr>())
    (exchange(access.getBuffer().getValue()) ? projections : pages) = access;
  AccessAttr partials;
  for (auto access : stage.getWrites().getAsRange<AccessAttr>())
    if (exchange(access.getBuffer().getValue()))
      partials = access;
  if (!projections || !pages || !partials)
    return stage.emitOpError() << "expected to read an exchange of projections and KV pages, and "
                                  "to write an exchange of partial results";
  int64_t parts = mergePartsOf(stage), dim = *configInt(stage, "head_dim");
  ExchangeOp results = exchange(partials.getBuffer().getValue());
  int64_t records = kernel.getRows() * *configInt(stage, "q_heads") * parts * kMaxSplits;
  if (dim % (2 * parts) || results.rows() != records || results.cols() != dim / parts + 2)
    return stage.emitOpError() << "expected @" << results.getSymName() << " to hold " << records
                               << " records (row, query head, merge part, split) of "
                               << dim / parts + 2 << " values for " << parts
                               << " merge parts of an even number of channels, but got "
                               << results.rows() << " x " << results.cols();
  declareAttention(stage);
  if (failed(declareBounds(stage)))
    return failure();
  std::string name = stage.getSymName().str(), list = "AttentionTiles<" + name + ">";
  int64_t pieces = kernel.lookup<SymbolOp>(ref("full_pieces")).getMax();
  StringRef pool = pages.getBuffer().getValue(), qkv = projections.getBuffer().getValue();
  AffineExpr unitBytes = c(2 * kUnitPositions * dim);
  auto tiles = [&](Steps &steps, function_ref<void()> body) {
    steps.loop("tile", "attention_tiles", body, list);
  };

  Steps producer(stage, Role::Producer);
  tiles(producer, [&] {
    producer.loop("piece", "full_pieces", [&] {
      producer.acquire(names::kFree);
      producer.pace(ring(), windowOf(stage));
      producer.copy("copy_units<" + name + ", " + names::kRing + ", " + names::kFull + ">",
                    {"tile", "piece"},
                    rectangle(pool, {d(1) * pieces + d(2), c(0), c(0)}, 1,
                              {unitBytes * pieceUnitsOf(stage)}, "kv_piece"));
    });
  });

  std::string words = (qkv + "_words").str();
  std::string edge = projections.getSet() == Set::Previous ? "Previous<" + words + ">" : words;
  const bool isAlone = consumersAttend(kernel); // nobody hands words on to the consumers
  if (!isAlone) {
    Steps poller(stage, Role::Poller);
    tiles(poller, [&] {
      poller.acquire("qkv_free", "const int slot");
      poller.poll("poll_qkv_tile<" + name + ", " + edge + ">", {"tile", "slot"}, words, projections,
                  whole(names::kQkvIn));
      poller.signal("qkv_full");
    });
  }

  Steps consumer(stage, Role::Consumer);
  AccessAttr query = whole(names::kQuery), tail = whole(names::kTail), apart = whole(names::kApart);
  StringRef out = partials.getBuffer().getValue();
  AccessAttr newUnit = rectangle(pool, {d(1), c(0), c(0)}, 1, {unitBytes}, "kv_new");
  consumer.local("constants", "const auto", "attention_constants<" + name + ">(cta)");
  consumer.local("state", "AttentionState<" + name + ">");
  tiles(consumer, [&] {
    consumer.computeMet("attention_prepare<" + name + ">", {"tile", "constants", "state"},
                        {newUnit}, {tail});
    const std::string begin = "attention_begin<" + name + ">";
    if (isAlone) {
      consumer.local("words", "HeadWords<" + name + ">");
      consumer.poll("poll_heads<" + name + ", " + edge + ">", {"tile", "words"}, words, projections,
                    {});
      consumer.compute(begin, {"tile", "words", "constants", "state"}, {tail}, {query, tail});
    } else {
      consumer.wait("qkv_full", "const int words");
      consumer.compute(begin, {"tile", "words", "constants", "state"}, {whole(names::kQkvIn), tail},
                       {query, tail});
      consumer.release("qkv_free");
    }
    consumer.loop("piece", "full_pieces", [&] {
      consumer.wait(names::kFull, "const int slot");
      consumer.compute("attention_piece<" + name + ", " + names::kRing + ">",
                       {"tile", "slot", "piece", "state"}, {query}, {apart}, {},
                       /*readsRing=*/true);
      consumer.release(names::kFree);
    });
    consumer.compute("attention_tail<" + name + ">", {"tile", "state"}, {query, tail}, {apart});
    // What was found passes through shared memory for 64 query vectors at a time.
    const int64_t vectors = vectorsOf(stage), rounds = llvm::divideCeil(vectors, kRoundVectors);
    for (int64_t round = 0; round < rounds; ++round) {
      const int64_t first = round * kRoundVectors;
      const std::string number = std::to_string(round);
      SmallVector<StringRef> args = {"tile", "state"};
      if (rounds > 1)
        args.push_back(number);
      const std::string finish = "attention_finish<" + name + ">";
      if (round == 0)
        consumer.compute(finish, args, {}, {apart});
      else
        consumer.computeMet(finish, args, {}, {apart}, Meeting::Writing);
      if (kernel.isLooping())
        consumer.peek(names::kLaunched);
      else if (round == 0)
        consumer.launchWait(); // as late as can be; costs nothing when repeated
      consumer.compute("publish_partials<" + name + ", " + out + "_words>", args, {apart},
                       {rectangle(out, {d(1), c(first * parts), c(0)},
                                  std::min(kRoundVectors, vectors - first) * parts,
                                  {c(exchange(out).cols())}, kTileTable)});
    }
    consumer.compute("attention_append<" + name + ">", {"tile"}, {tail}, {newUnit});
  });
  if (kernel.isLooping()) {
    consumer.wait(names::kLaunched); // once a launch, on SMs without a tile too
    Steps epilogue(stage, Role::Epilogue);
    requireLaunchWait(stage, Role::Epilogue, epilogue);
  }
  if (isAliased() && !isAlone)
    consumer.signal(names::kAttentionDone);
  return success();
}

// Attention is in another kernel: of its config only the sizes of records and heads matter here.
LogicalResult KernelLowering::declareMerge(StageOp stage) {
  int64_t heads = *configInt(stage, "q_heads"), dim = *configInt(stage, "head_dim");
  std::string base;
  llvm::raw_string_ostream(base) << "Attention<Config, 0, " << heads << ", " << heads << ", " << dim
                                 << ", 0, " << mergePartsOf(stage)
                                 << ", QkNorm::none, 0.0f, 1.0f, -1>";
  set(stage, "base", base);
  setSymbol(stage, "Mparts", names::kMparts);
  return declareBounds(stage);
}

LogicalResult KernelLowering::lowerMerge(StageOp stage) {
  auto read = cast<AccessAttr>(stage.getReads()[0]);
  auto write = cast<AccessAttr>(stage.getWrites()[0]);
  StageOp attention;
  for (auto other : kernel.getOps<StageOp>())
    for (auto access : other.getWrites().getAsRange<AccessAttr>())
      if (other.getKind() == StageKind::Attention && access.getBuffer() == read.getBuffer())
        attention = other;
  ExchangeOp records = exchange(read.getBuffer().getValue());
  bool isAlone = !attention && records && !records.isSelfValidating();
  if ((!attention && !isAlone) || !exchange(write.getBuffer().getValue()))
    return stage.emitOpError() << "expected to read the partial results of an attention stage and "
                                  "to write an exchange";
  int64_t parts = mergePartsOf(stage);
  if (!isAlone && mergePartsOf(attention) != parts)
    return stage.emitOpError() << "expected merge_parts of the attention stage, "
                               << mergePartsOf(attention) << ", but got " << parts;
  if (isAlone && failed(declareMerge(stage)))
    return failure();
  StageOp shape = isAlone ? stage : attention;
  std::string config = shape.getSymName().str(), list = "MergeTiles<" + config + ">";
  StringRef partials = read.getBuffer().getValue(), out = write.getBuffer().getValue();
  int64_t heads = *configInt(stage, "q_heads"), dim = *configInt(stage, "head_dim");
  int64_t width = dim / parts;
  int64_t total = kernel.getRows() * heads * parts, sms = kernel.getSms();
  // Of one row behind the SMs with attention tiles (attention_shape.cuh).
  const int64_t first =
      kernel.getRows() > 1 || isAlone ? 0 : kMaxSplits * *configInt(attention, "kv_heads") % sms;
  AffineExpr place = first == 0 ? d(0) : (d(0) + (sms - first)) % sms;
  SmallVector<AffineExpr> trips = {(c(total + sms - 1) - place).floorDiv(sms)};
  if (total % sms == 0)
    trips = {c(total / sms)};
  AffineExpr tile = d(1) * sms + place;
  AffineExpr row = tile.floorDiv(heads * parts), column = (tile % (heads * parts)) * width;
  AccessAttr pieces = rectangle(partials, {d(1), c(0), c(0)}, kMaxSplits,
                                {c(exchange(partials).cols())}, kTileTable),
             written = rectangle(out, {row, column}, 1, {c(width)});
  const std::string pollPieces = "poll_partials<" + config + ", " + partials.str() + "_words>";
  const bool isGated = stage.getReads().size() > 1;
  if (isGated && configString(stage, "norm") == "head")
    set(stage, "kEps", floatText(*configFloat(stage, "eps")));
  auto fetchGate = [&](Steps &steps) { // an earlier launch's words: here while the pieces come
    if (!isGated)
      return;
    auto gate = cast<AccessAttr>(stage.getReads()[1]);
    StringRef source = gate.getBuffer().getValue();
    int64_t at = exchange(source).cols() - heads * dim;
    steps.local("gate", "HeadGate<" + config + ">");
    steps.poll("fetch_gate<" + config + ", " + wordsEdge(gate) + ">", {"piece", "gate"},
               (source + "_words").str(),
               rectangle(source, {row, column + at}, 1, {c(width)}, {}, gate.getSet()), {});
  };
  auto mergePieces = [&](Steps &steps, SmallVector<StringRef> args) {
    const std::string edge = out.str() + "_words>";
    if (isGated)
      args.push_back("gate");
    steps.compute(isGated ? "merge_gated<" + config + ", " + stage.getSymName().str() + ", " + edge
                          : "merge_splits<" + config + ", " + edge,
                  args, {whole(names::kMparts)}, {written});
  };

  if (consumersAttend(kernel)) {
    Steps consumer(stage, Role::Consumer);
    requireLaunchWait(stage, Role::Consumer, consumer);
    consumer.loop(
        "piece", trips,
        [&] {
          fetchGate(consumer);
          consumer.refill(names::kMparts);
          consumer.poll(pollPieces, {"piece"}, (partials + "_words").str(), pieces,
                        whole(names::kMparts));
          mergePieces(consumer, {"piece"});
        },
        list);
    if (isAliased()) { // before the first rows overwrite them; here, because merge is on every SM
      consumer.signal(names::kAttentionDone);
      Steps(stage, Role::Poller).wait(names::kAttentionDone);
    }
    return success();
  }

  Steps poller(stage, Role::Poller);
  poller.loop(
      "piece", trips,
      [&] {
        poller.acquire("mparts_free", "const int slot");
        poller.poll(pollPieces, {"piece", "slot"}, (partials + "_words").str(), pieces,
                    whole(names::kMparts));
        poller.signal("mparts_full");
      },
      list);
  if (isAliased()) { // as above
    poller.wait(names::kAttentionDone);
    poller.wait(names::kMergeDone);
    Steps(stage, Role::Consumer).wait(names::kMergeDone);
  }

  Steps epilogue(stage, Role::Epilogue);
  requireLaunchWait(stage, Role::Epilogue, epilogue);
  epilogue.loop(
      "piece", trips,
      [&] {
        fetchGate(epilogue);
        epilogue.wait("mparts_full", "const int slot");
        mergePieces(epilogue, {"piece", "slot"});
        epilogue.release("mparts_free");
      },
      list);
  if (isAliased())
    epilogue.signal(names::kMergeDone);
  return success();
}

} // namespace megalith::task
