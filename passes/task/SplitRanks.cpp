//===- SplitRanks.cpp - kernels of one rank of several ----------------------===//
//
// Tensor parallelism without sums across ranks: every matrix is divided by output rows, each rank
// multiplies whole rows of activations by its share, and what all ranks read next is stored to all
// of them. So a result's bits do not depend on the number of ranks (docs/kernel-contract.md section
// 12). Heads stay whole: attention, its pages and its partial results are a rank's own.
// With experts `nk` their down projection, with o-proj `k` the one behind attention is divided by K
// instead: ranks exchange parts of sums.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/task/Declare.h"
#include "passes/task/Handoffs.h"
#include "passes/task/Stages.h"
#include "passes/why/Why.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

namespace megalith {
#define GEN_PASS_DEF_SPLITRANKS
#include "passes/Passes.h.inc"
} // namespace megalith

using namespace mlir;
using namespace megalith;
using namespace megalith::task;

namespace {

/// Query and KV heads of the model, and what a rank has of them.
struct Heads {
  int64_t queries = 0, keys = 0, dim = 0;
  int64_t ownQueries = 0, ownKeys = 0;
  int64_t sharing = 1; ///< ranks that have the same KV head
};

struct SplitRanks : megalith::impl::SplitRanksBase<SplitRanks> {
  using SplitRanksBase::SplitRanksBase;

  void runOnOperation() override {
    if (ranks == 1)
      return;
    heads.clear();
    peers.clear();
    parts.clear();
    if (failed(checkOptions()))
      return signalPassFailure();
    for (auto kernel : getOperation().getOps<KernelOp>())
      for (auto stage : kernel.getOps<StageOp>())
        if (stage.getKind() == StageKind::Attention && failed(findHeads(stage)))
          return signalPassFailure();
    for (auto kernel : getOperation().getOps<KernelOp>()) {
      kernel.setRanks(ranks);
      for (auto stage : kernel.getOps<StageOp>())
        if (failed(split(stage)))
          return signalPassFailure();
    }
    // A value is the same in the kernel that writes it and in that which reads what it left.
    for (auto kernel : getOperation().getOps<KernelOp>()) {
      for (auto value : kernel.getOps<BufferOp>())
        if (value.getMutability() == Mutability::Value)
          spread(value);
      for (auto stage : kernel.getOps<StageOp>()) {
        stage.setReadsAttr(resized(kernel, stage.getReads()));
        stage.setWritesAttr(resized(kernel, stage.getWrites()));
      }
      if (failed(declareArmed(kernel)))
        return signalPassFailure();
    }
  }

  LogicalResult checkOptions() {
    auto wrong = [&](StringRef option, StringRef words, StringRef got) {
      return getOperation().emitError() << getArgumentName() << ": expected " << option << " of "
                                        << words << " but got " << got;
    };
    if (!llvm::is_contained({"auto", "nn", "nn-sums", "nk"}, StringRef(experts)))
      return wrong("experts", "auto, nn, nn-sums or nk", experts);
    if (outputProjection == "k-ordered")
      return getOperation().emitError()
             << getArgumentName()
             << ": o-proj k-ordered has no kernels: a rank's columns are packed in chunks of their "
                "own, so its sums are not those of one rank's chunks; expected o-proj "
                "(--tp-o-proj) n, whose bits are those of one rank, or k";
    if (!llvm::is_contained({"auto", "n", "k"}, StringRef(outputProjection)))
      return wrong("o-proj", "auto, n or k", outputProjection);
    if (sums != "f32" && sums != "bf16")
      return wrong("sums", "f32 or bf16", sums);
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Stages
  //===--------------------------------------------------------------------===//

  LogicalResult findHeads(StageOp stage) {
    Heads &found = heads.emplace_back();
    found.queries = *configInt(stage, "q_heads");
    found.keys = *configInt(stage, "kv_heads");
    found.dim = *configInt(stage, "head_dim");
    bool isEven = ranks % found.keys == 0 || found.keys % ranks == 0;
    if (found.queries % ranks || !isEven)
      return stage.emitOpError() << "has " << found.queries << " query heads and " << found.keys
                                 << " KV heads, which " << ranks.getValue()
                                 << " ranks cannot divide; expected a number of ranks that divides "
                                    "the query heads and divides or is a multiple of the KV heads";
    found.ownQueries = found.queries / ranks;
    found.ownKeys = std::max<int64_t>(1, found.keys / ranks);
    found.sharing = std::max<int64_t>(1, ranks / found.keys);
    return success();
  }

  LogicalResult split(StageOp stage) {
    StringRef epilogue = configString(stage, "epilogue");
    switch (stage.getKind()) {
    case StageKind::Embed:
      if (configString(stage, "norm") != "rms")
        return splitColumns(stage, kSectorBytes);
      explainWhole(stage, "an fp32 stream is kept by every rank: its rows are normed whole");
      return success();
    case StageKind::Linear:
      if (epilogue == "qkv")
        return splitProjections(stage);
      if (dividesOutputByK() && isBehindAttention(stage))
        return splitOutputByK(stage);
      if (epilogue == "logits") {
        explainWhole(stage, "small, and every rank wants all of it at once");
        return success();
      }
      return splitGemv(stage);
    case StageKind::Attention:
      return splitAttention(stage);
    case StageKind::Merge:
      setConfig(stage, "q_heads", integer(*configInt(stage, "q_heads") / ranks));
      if (dividesOutputByK()) { // heads' outputs stay
        auto attn =
            kernelOf(stage).lookup<BufferOp>(cast<AccessAttr>(stage.getWrites()[0]).getBuffer());
        parts[attn.getSymName()] = {{attn.cols() / ranks, 1}};
      }
      return splitColumns(stage, kSectorBytes);
    case StageKind::Combine: // of the columns that its experts' outputs have
      if (dividesDownByK()) {
        explainWhole(stage, "every rank has all parts of the sums and adds them for itself");
        addParts(stage);
        return success();
      }
      setConfig(stage, "n", integer(*configInt(stage, "n") / ranks));
      return splitColumns(stage, kSectorBytes);
    case StageKind::TopK:
      return success();
    case StageKind::Rows:
      explainWhole(stage, "whole rows are normed and the stream stays where they are: what each "
                          "rank computes it need not wait for");
      return success();
    case StageKind::ExpertUp:
      return splitGemv(stage);
    case StageKind::ExpertDown:
      if (failed(checkExperts(stage)))
        return failure();
      return dividesDownByK() ? splitDownByK(stage) : splitGemv(stage);
    case StageKind::LaunchEnd:
      break;
    }
    return stage.emitOpError() << "has no form for several ranks yet";
  }

  static void explain(StageOp stage, const std::string &chose, const std::string &because) {
    recordReason(stage, {getArgumentName().str(), "a rank's share", chose, because});
  }

  static void explainWhole(StageOp stage, const std::string &because) {
    explain(stage, "the whole of it on each", because);
  }

  /// What the stage writes is exchanged between ranks, who each write columns of it: whole pieces
  /// of `pieceBytes`. Sectors of 32 bytes are never stored to by two ranks; where there are few
  /// words, whole vectors of 16 bytes still suffice.
  LogicalResult splitColumns(StageOp stage, int64_t pieceBytes) {
    for (auto write : stage.getWrites().getAsRange<AccessAttr>()) {
      auto buffer = kernelOf(stage).lookup<BufferOp>(write.getBuffer());
      if (!buffer || (buffer.getMutability() != Mutability::Value &&
                      buffer.getMutability() != Mutability::Written))
        continue;
      if (parts.count(buffer.getSymName())) // each rank's own
        continue;
      int64_t cols = buffer.cols(), multiple = pieceBytes / buffer.elementBytes();
      if (cols % (ranks * multiple))
        return stage.emitOpError()
               << "writes " << cols << " columns of @" << buffer.getSymName() << ", which "
               << ranks.getValue() << " ranks cannot divide; expected a "
               << "multiple of " << ranks.getValue() * multiple;
      if (buffer.getMutability() == Mutability::Value)
        peers[buffer.getSymName()] = true;
      else
        setColumns(buffer, {{cols / ranks, 1}});
    }
    return success();
  }

  LogicalResult splitGemv(StageOp stage) {
    WeightsOp weights = weightsOf(stage);
    int64_t tensors = weights.getCheckpoint().size();
    // Strips are two rows, and a word of activations two strips; what is packed or added in tiles
    // is divided in tiles.
    const bool isSquares = configString(stage, "epilogue") == "squares";
    int64_t multiple = ranks * (weights.getNvfp4() || isSquares           ? kTileRows
                                : weights.getPairing() == Pairing::GateUp ? 4
                                                                          : 2);
    if (weights.getN() % multiple || (weights.getPairing() == Pairing::Rows && tensors != 1))
      return stage.emitOpError() << "has " << weights.getN() << " output rows, which "
                                 << ranks.getValue()
                                 << " ranks cannot divide; expected a multiple of " << multiple;
    int64_t n = weights.getN() / ranks;
    setRows(weights, n, SmallVector<int64_t>(tensors, n / tensors));
    explain(stage, llvm::formatv("{0} of {1} output rows", n, n * ranks),
            "divided by output rows no sum crosses ranks, so bits do not depend on their number");
    setConfig(stage, "n", integer(n));
    if (FlatSymbolRefAttr gain = configSymbol(stage, "gain"); gain && isSquares) {
      // Of its own columns; nobody else norms with it.
      auto buffer = kernelOf(stage).lookup<BufferOp>(gain);
      setColumns(buffer, {{buffer.cols() / ranks, 1}});
    }
    StringRef target = cast<AccessAttr>(stage.getWrites()[0]).getBuffer().getValue();
    if (isSquares) // outputs stay: a rank adds the columns that it made
      parts[target] = {{n, 1}};
    if (stage.getKind() == StageKind::ExpertUp && dividesDownByK()) // so do activations
      parts[target] = {{n / 2, 1}};
    return splitColumns(stage, isSquares ? kVectorBytes : kSectorBytes);
  }

  bool dividesDownByK() const { return experts == "nk"; }

  /// Whether the experts can be divided as they are to be.
  LogicalResult checkExperts(StageOp stage) {
    const bool isNormed = configString(stage, "epilogue") == "squares";
    if (experts == "nn-sums" && !isNormed)
      return stage.emitOpError()
             << "has outputs that are not normed one by one, so there are no "
                "sums of squares to exchange; expected experts (--tp-experts) nn or auto";
    if (experts == "nn" && isNormed)
      return stage.emitOpError()
             << "has outputs that are normed one by one: kernels exchange sums of their squares, "
                "not the outputs; expected experts (--tp-experts) nn-sums, auto or nk";
    if (!dividesDownByK())
      return success();
    if (!isNormed)
      return stage.emitOpError()
             << "adds outputs to the residual where it makes them, for which ranks that divide K "
                "have no form yet; expected experts (--tp-experts) nn or auto, or a model that "
                "norms each output";
    const int64_t k = weightsOf(stage).getK(), multiple = ranks * kTileRows;
    if (k % multiple)
      return stage.emitOpError() << "multiplies " << k << " activations, which " << ranks.getValue()
                                 << " ranks cannot divide; expected a multiple of " << multiple;
    return success();
  }

  bool dividesOutputByK() const { return outputProjection == "k"; }

  /// Whether a linear reads what heads made.
  static bool isBehindAttention(StageOp linear) {
    AccessAttr input = inputOf(linear);
    return input && llvm::any_of(kernelOf(linear).getOps<StageOp>(), [&](StageOp stage) {
             return stage.getKind() == StageKind::Merge &&
                    cast<AccessAttr>(stage.getWrites()[0]).getBuffer() == input.getBuffer();
           });
  }

  /// Each rank multiplies its heads' outputs by its columns of the matrix, stores its part of all
  /// outputs to all ranks, and each SM adds all parts of its own slice.
  LogicalResult splitOutputByK(StageOp stage) {
    if (configString(stage, "epilogue") != "store")
      return stage.emitOpError()
             << "adds its outputs to the residual where it makes them, for which ranks that divide "
                "K have no form yet; expected o-proj (--tp-o-proj) n or auto, or a model whose "
                "branches are normed";
    WeightsOp weights = weightsOf(stage);
    const int64_t n = weights.getN(), all = weights.getK(), k = all / ranks;
    if (all % (ranks * kTileRows) || n % kTileRows)
      return stage.emitOpError() << "multiplies by " << n << " x " << all << ", whose columns "
                                 << ranks.getValue()
                                 << " ranks cannot divide; expected a multiple of " << kTileRows
                                 << " rows and of " << ranks * kTileRows << " columns";
    weights.setK(k);
    explain(stage, llvm::formatv("{0} of {1} columns", k, all),
            "o-proj k: heads' outputs stay where they were made, parts of sums are exchanged");
    setConfig(stage, "k", integer(k));
    setConfig(stage, "epilogue", StringAttr::get(&getContext(), "parts"));
    auto outputs = cast<AccessAttr>(stage.getWrites()[0]);
    declareParts(stage, kOutputParts, outputs, n);
    AccessAttr made = inPlaceOf(outputs, kOutputParts);
    SmallVector<Attribute> reads(stage.getReads().getValue());
    reads.push_back(made);
    stage.setReadsAttr(ArrayAttr::get(&getContext(), reads));
    stage.setWritesAttr(ArrayAttr::get(&getContext(), {made, outputs}));
    return success();
  }

  /// The value through which ranks exchange parts of `outputs`, n of each row.
  void declareParts(StageOp stage, StringRef name, AccessAttr outputs, int64_t n) {
    auto value = kernelOf(stage).lookup<BufferOp>(outputs.getBuffer());
    OpBuilder builder(value);
    Type element = sums == "bf16" ? Type(builder.getBF16Type()) : Type(builder.getF32Type());
    BufferOp::create(builder, value.getLoc(), name, ArrayRef<int64_t>{value.rows(), ranks * n},
                     element, Space::Global, Mutability::Value);
    peers[name] = true;
  }

  /// Each rank multiplies the activations that it made by its columns of the matrix: all outputs,
  /// a part of each one's sum. All parts go to all ranks.
  LogicalResult splitDownByK(StageOp stage) {
    WeightsOp weights = weightsOf(stage);
    const int64_t k = weights.getK() / ranks, n = weights.getN();
    weights.setK(k);
    explain(stage, llvm::formatv("{0} of {1} columns", k, k * ranks),
            "experts nk: activations stay where they were made, parts of sums are exchanged");
    setConfig(stage, "k", integer(k));
    setConfig(stage, "epilogue", StringAttr::get(&getContext(), "parts"));
    auto outputs = cast<AccessAttr>(stage.getWrites()[0]);
    declareParts(stage, kDownParts, outputs, n);
    stage.setWritesAttr(ArrayAttr::get(&getContext(), {inPlaceOf(outputs, kDownParts)}));
    return success();
  }

  /// What norms and adds outputs gets their parts in their place; so it squares them too.
  void addParts(StageOp stage) {
    KernelOp kernel = kernelOf(stage);
    auto outputs = cast<AccessAttr>(stage.getReads()[0]);
    setConfig(stage, "parts", integer(ranks));
    for (auto down : kernel.getOps<StageOp>())
      if (FlatSymbolRefAttr gain = configSymbol(down, "gain");
          gain && down.getKind() == StageKind::ExpertDown) {
        setConfig(stage, "gain", gain);
        NamedAttrList config(down.getConfig());
        config.erase("gain");
        down.setConfigAttr(config.getDictionary(&getContext()));
      }
    stage.setReadsAttr(
        ArrayAttr::get(&getContext(), {inPlaceOf(outputs, kDownParts), stage.getReads()[1]}));
    stage.setWritesAttr(ArrayAttr::get(&getContext(), {stage.getWrites()[0], stage.getReads()[1]}));
    kernel.lookup<BufferOp>(outputs.getBuffer()).erase();
  }

  /// The same access of another buffer; `resized` makes it whole.
  AccessAttr inPlaceOf(AccessAttr access, StringRef buffer) {
    return AccessAttr::get(&getContext(), FlatSymbolRefAttr::get(&getContext(), buffer),
                           access.getAt(), access.getRows(), access.getCols(), access.getTable(),
                           access.getSet());
  }

  LogicalResult splitProjections(StageOp stage) {
    WeightsOp weights = weightsOf(stage);
    // q, k, v, and behind them what else there is of each query head, such as its gate.
    const int64_t beside = int64_t(weights.getCheckpoint().size()) - 3;
    auto found = llvm::find_if(heads, [&](const Heads &heads) {
      return weights.getN() == ((1 + beside) * heads.queries + 2 * heads.keys) * heads.dim;
    });
    if (found == heads.end() || beside < 0)
      return stage.emitOpError() << "projects " << weights.getN()
                                 << " rows, but no attention stage has heads of so many";
    int64_t queries = found->ownQueries * found->dim, keys = found->ownKeys * found->dim;
    const int64_t n = (1 + beside) * queries + 2 * keys;
    SmallVector<int64_t> rows = {queries, keys, keys};
    rows.append(beside, queries);
    setRows(weights, n, rows);
    explain(stage,
            llvm::formatv("{0} of {1} query heads, {2} of {3} KV heads", found->ownQueries,
                          found->queries, found->ownKeys, found->keys),
            "heads stay whole: attention and its pages are a rank's own");
    setConfig(stage, "n", integer(n));
    Parts list = {{queries, 1}, {keys, found->sharing}, {keys, found->sharing}};
    list.append(beside, {queries, 1});
    for (auto write : stage.getWrites().getAsRange<AccessAttr>())
      parts[write.getBuffer().getValue()] = list;
    return success();
  }

  LogicalResult splitAttention(StageOp stage) {
    auto found = llvm::find_if(heads, [&](const Heads &heads) {
      return configInt(stage, "q_heads") == heads.queries &&
             configInt(stage, "kv_heads") == heads.keys;
    });
    setConfig(stage, "q_heads", integer(found->ownQueries));
    setConfig(stage, "kv_heads", integer(found->ownKeys));
    if (found->sharing > 1)
      setConfig(stage, "head_ranks", integer(found->sharing));
    for (auto write : stage.getWrites().getAsRange<AccessAttr>()) {
      auto buffer = kernelOf(stage).lookup<BufferOp>(write.getBuffer());
      bool isPages = buffer.getMutability() == Mutability::Pages;
      int64_t rows = isPages ? found->ownKeys : buffer.rows() / ranks;
      buffer.setShape({rows, buffer.cols()});
    }
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Declarations
  //===--------------------------------------------------------------------===//

  using Parts = SmallVector<std::pair<int64_t, int64_t>, 3>; ///< (columns, ranks that share them)

  IntegerAttr integer(int64_t value) { return Builder(&getContext()).getI64IntegerAttr(value); }
  static KernelOp kernelOf(StageOp stage) { return stage->getParentOfType<KernelOp>(); }

  /// Parts of outputs, rank by rank.
  static constexpr StringLiteral kDownParts = "down_parts", kOutputParts = "o_parts";
  static constexpr int64_t kSectorBytes = 32, kVectorBytes = 16, kTileRows = 16;

  void setRows(WeightsOp weights, int64_t n, ArrayRef<int64_t> rows) {
    weights.setN(n);
    weights.setRankRows(rows);
  }

  /// A buffer whose replicas differ has the columns of one rank.
  void setColumns(BufferOp buffer, const Parts &list) {
    SmallVector<int64_t> flat;
    int64_t cols = 0;
    for (auto [width, sharing] : list) {
      flat.append({width, sharing});
      cols += width;
    }
    buffer.setShape({buffer.rows(), cols});
    buffer.setRankParts(flat);
  }

  void spread(BufferOp value) {
    if (peers.count(value.getSymName()))
      value.setPeers(true);
    if (auto it = parts.find(value.getSymName()); it != parts.end())
      setColumns(value, it->second);
  }

  /// Accesses of the one tile that a stage has yet cover all there is.
  ArrayAttr resized(KernelOp kernel, ArrayAttr accesses) {
    SmallVector<Attribute> list;
    for (auto access : accesses.getAsRange<AccessAttr>()) {
      int64_t rows, cols;
      if (auto buffer = kernel.lookup<BufferOp>(access.getBuffer())) {
        rows = buffer.rows();
        cols = buffer.cols();
      } else {
        auto weights = kernel.lookup<WeightsOp>(access.getBuffer());
        rows = weights.strips();
        cols = weights.blocks();
      }
      list.push_back(AccessAttr::get(
          &getContext(), access.getBuffer(), access.getAt(), rows,
          affineMapAttr({getAffineConstantExpr(cols, &getContext())}, &getContext()),
          access.getTable(), access.getSet()));
    }
    return ArrayAttr::get(&getContext(), list);
  }

  /// Through @armed every SM tells the SMs of its number on all ranks that it has emptied its share
  /// of the sets that the next launch stores to; stage @launch_end is where those wait for it.
  LogicalResult declareArmed(KernelOp kernel) {
    std::optional<int64_t> slot = freeSlot(kernel);
    if (!slot)
      return kernel.emitOpError() << "expected at most " << kMaxBuffers
                                  << " buffers and weights, but finds no free "
                                     "slot for what ranks tell each other";
    std::string edge = (names::kArmed + "_words").str();
    declareEdge(kernel, edge, EdgeKind::Words, Role::Poller, {Role::Poller}, 1, 1);
    OpBuilder builder = declarations(kernel);
    ExchangeOp::create(builder, kernel.getLoc(), names::kArmed,
                       ArrayRef<int64_t>{1, ranks * kernel.getSms()}, builder.getI32Type(),
                       WordKind::Number, 1, *slot, edge, /*peers=*/true,
                       /*rank_parts=*/DenseI64ArrayAttr());
    builder = OpBuilder::atBlockEnd(&kernel.getBody().front());
    StageOp::create(builder, kernel.getLoc(), builder.getStringAttr("launch_end"),
                    StageKindAttr::get(&getContext(), StageKind::LaunchEnd), IntegerAttr(),
                    IntegerAttr(), AffineMapAttr(), builder.getArrayAttr({}),
                    builder.getArrayAttr({}), builder.getDictionaryAttr({}), StringAttr(),
                    DenseI64ArrayAttr());
    return success();
  }

  SmallVector<Heads> heads;     ///< of every attention stage
  llvm::StringMap<bool> peers;  ///< values that ranks exchange
  llvm::StringMap<Parts> parts; ///< values of which each rank has its own
};

} // namespace
