//===- Prices.cpp - What a step of a role region costs --------------------===//

#include "passes/simulate/Prices.h"

#include "codegen/device/tiles.cuh"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith::simulate {

/// "gemv_block" of "gemv_block<o_proj, ring>".
static StringRef functionOf(StringRef callee) {
  return callee.take_until([](char c) { return c == '<'; });
}

/// The function whose parts stand for one that was not measured: of the same loop, or at least of
/// the same reads and writes. Empty: it was measured itself, or nothing is like it.
static StringRef likeOf(StringRef name) {
  return llvm::StringSwitch<StringRef>(name)
      .Case("wide_block", "gemv_block")         // as many bytes; FMAs in place of mma
      .Case("wide_blocks", "gemv_blocks")       // likewise
      .Case("route_row", "select_experts")      // its lists are made of eight ids
      .Case("store_wide_part", "store_part")    // shuffles besides
      .Case("merge_gated", "merge_splits")      // a norm and a gate besides
      .Case("combine_normed", "combine")        // a scale a slot besides
      .Case("store_pairs", "combine")           // with add_pairs: of all channels, by eight warps
      .Case("epilogue_parts", "epilogue_glu")   // fp32 words of pairs, to all ranks
      .Case("epilogue_outputs", "epilogue_glu") // words of pairs, and a sum of squares besides
      .Default("");
}

static int64_t configInt(StageOp stage, StringRef key, int64_t otherwise) {
  auto value = stage.getConfig().getAs<IntegerAttr>(key);
  return value ? value.getInt() : otherwise;
}

/// k16 steps of a chunk in one block (docs/kernel-contract.md section 1).
static int64_t blockSteps(int64_t k) {
  const int64_t chunk = llvm::divideCeil(llvm::divideCeil(k, 8), 16);
  return chunk % 4 == 0 ? 4 : chunk % 3 == 0 ? 3 : chunk % 2 == 0 ? 2 : 1;
}

/// Blocks of K in a piece of weights (task-plan-streams), which `callee` multiplies.
static int64_t pieceBlocks(StageOp stage, StringRef callee) {
  auto stream = stage->getAttrOfType<DictionaryAttr>("stream");
  const StringRef key = callee.contains("LastTile<") ? "last_blocks" : "blocks";
  auto blocks = stream ? stream.getAs<IntegerAttr>(key) : IntegerAttr();
  return blocks ? blocks.getInt() : 1;
}

/// Pieces that consumers hold of the stage whose product `call` is: the trips of the loop in which
/// they come to registers.
static int64_t heldPieces(ComputeOp call, StageOp stage) {
  int64_t pieces = 0;
  call->getParentOfType<RoleOp>().walk([&](ComputeOp other) {
    auto loop = dyn_cast<ForOp>(other->getParentOp());
    if (loop && other.getCallee().starts_with(("hold_piece<" + stage.getSymName() + ",").str()))
      pieces =
          cast<AffineConstantExpr>(loop.getTrips().getMap().getValue().getResult(0)).getValue();
  });
  return pieces;
}

/// One part of the table, warm and first.
static Price partPrice(const Costs &costs, StringRef part, int64_t rows, Heat heat,
                       double factor = 1, double extra = 0) {
  return {.warm = factor * costs.part(part, rows) + extra,
          .first = factor * costs.part(part, rows, heat) + extra};
}

static Price operator+(const Price &a, double b) {
  return {a.warm + b, a.first + b, a.meets};
}
static Price operator-(const Price &a, double b) {
  return {std::max(a.warm - b, 0.0), std::max(a.first - b, 0.0), a.meets};
}

/// The product of one piece: a stage's first has its code to fetch.
Price Prices::productPrice(StageOp stage, const Costs &costs, Heat heat) const {
  const double cold = std::max(costs.part("first", rows, heat) - costs.part("first", rows), 0.0);
  if (const int64_t bytes = nvfp4Pieces.lookup(stage)) { // as many rows as there are cost the same
    const double warm = costs.codeScale * double(bytes) / costs.nvfp4Rate;
    return {warm, warm + cold};
  }
  // The parts have rows and heat; the rate, measured without looks at the clock, the time.
  const double one = costs.part("three", 1);
  // Eight rows are the columns of one mma.
  const auto columns = double(llvm::divideCeil(rows, 8));
  const double warm = columns * costs.product *
                      (one > 0 ? costs.part("three", std::min<int64_t>(rows, 8)) / one : 1);
  const int64_t steps = blockSteps(configInt(stage, "k", 2048));
  return Price{warm, warm + cold} - costs.productPerStep * double(4 - steps);
}

/// A part of a row of an fp32 stream, by its width: straight on from the two that were measured.
static Price streamPrice(const Costs &costs, StringRef part, int64_t width, Heat heat) {
  auto at = [&](Heat heat) {
    const double narrow = costs.part(("stream4096." + part).str(), 1, heat);
    const double wide = costs.part(("stream8192." + part).str(), 1, heat);
    return std::max(narrow + (wide - narrow) * double(width - 4096) / 4096, 0.0);
  };
  return {at(kWarm), std::max(at(heat), at(kWarm))};
}

/// A row of the stream: its words are scaled when they are there, and the branch's taken.
static Price pollPrice(const verify::Instr &instr, StageOp stage, const Costs &costs, Heat heat) {
  const StringRef name = functionOf(cast<PollOp>(instr.op).getCallee());
  const int64_t width = configInt(stage, "k", 2048);
  auto norm = stage.getConfig().getAs<StringAttr>("branch_norm");
  // A warp has an eighth of the row; the look itself is the poll's.
  if (name == "poll_stream")
    return streamPrice(costs, norm && norm.getValue() == "absent" ? "alone" : "words", width,
                       heat) -
           costs.sweepOf(4 * width / 8, 8, 0);
  if (name == "poll_branch")
    return streamPrice(costs, "branch", width, heat) - costs.sweepOf(2 * width / 8, 8, 0);
  return {};
}

/// A tile's loop over pieces in which a warp has one itself, less the loop's end; by the bytes of
/// two units of keys and values, of 128 channels in the table's shape.
static Price piecePrice(const Costs &costs, int64_t channels, int64_t rows, Heat heat) {
  const Price end = partPrice(costs, "attention.pieces0.pieces", rows, heat);
  const Price one = partPrice(costs, "attention.pieces1.pieces", rows, heat);
  const double edges = costs.wait + costs.signal; // steps of their own
  const double warm = std::max(one.warm - end.warm - edges, 0.0);
  const double share = double(channels) / 128;
  return {share * warm, share * std::max(one.first - end.first - edges, warm)};
}

/// `get(of)` of tiles with `of` splits were measured: a number for each count.
template <class Get> static std::array<Price, 8> ofSplits(Get get) {
  std::array<Price, 8> prices;
  for (int64_t low = 1; low < 8; low *= 2) {
    const Price less = get(low), more = get(2 * low);
    for (int64_t n = low; n <= 2 * low; ++n) {
      const double share = double(n - low) / double(low);
      prices[size_t(n - 1)] = {less.warm + share * (more.warm - less.warm),
                               less.first + share * (more.first - less.first), less.meets};
    }
  }
  return prices;
}

/// As the table names tiles of eight pieces, of so many splits.
static std::string splitPart(int64_t splits, StringRef part) {
  if (splits == 1)
    return ("attention.pieces8." + part).str();
  return llvm::formatv("attention.splits{0}x{1}.{2}", splits, 8 / splits, part).str();
}

void Prices::setBySplits(Entry &entry, const Costs &costs, StringRef part, Heat heat) const {
  entry.dependsOnSplits = rows > 1; // one row has no such tiles
  if (entry.dependsOnSplits)
    entry.bySplits = ofSplits(
        [&](int64_t splits) { return partPrice(costs, splitPart(splits, part), rows, heat); });
}

const Price &Prices::of(int role, uint32_t at, const Tile *tile) const {
  const Entry &entry = prices[size_t(role)][at];
  if (!tile)
    return entry.usual;
  if (entry.onward && tile->goesOn)
    return tile->isNew ? entry.usual : *entry.onward;
  if (entry.old && tile->hasOld)
    return *entry.old;
  if (entry.dependsOnSplits && tile->splits > 1)
    return entry.bySplits[size_t(tile->splits - 1)];
  return tile->isNew ? entry.fresh : entry.usual;
}

Prices::Prices(const verify::Program &program, const Costs &costs, Heat heat)
    : rows(task::KernelOp(program.kernel).getRows()) {
  findNvfp4(program);
  for (int role = 0; role < verify::kRoles; ++role) {
    StageOp stage;
    for (const verify::Instr &instr : program.code[role]) {
      if (instr.kind == verify::Instr::Stage)
        stage = cast<StageOp>(instr.op);
      switch (instr.kind) {
      case verify::Instr::Compute:
        prices[role].push_back(price(instr, stage, costs, heat));
        break;
      case verify::Instr::Poll:
        prices[role].push_back({.usual = pollPrice(instr, stage, costs, heat)});
        break;
      case verify::Instr::LoopBegin:
        prices[role].push_back(opening(program, instr, stage, role, costs, heat));
        break;
      default:
        prices[role].push_back({});
      }
    }
  }
}

void Prices::findNvfp4(const verify::Program &program) {
  StageOp stage;
  const std::vector<int64_t> dims(program.maxDepth + 1, 0);
  for (const verify::Instr &instr : program.code[int(task::Role::Producer)]) {
    if (instr.kind == verify::Instr::Stage)
      stage = cast<StageOp>(instr.op);
    if (instr.kind != verify::Instr::Copy)
      continue;
    const verify::Access &read = program.accessesOf(instr).front();
    auto weights = dyn_cast<WeightsOp>(program.globals[size_t(read.decl)].op);
    if (!weights || !weights.getNvfp4())
      continue;
    const verify::Rect rect = read.at(dims.data());
    nvfp4Pieces[stage] = rect.rows * rect.cols * weights.stripBytes();
  }
}

/// Tiles of attention are a list that every role makes from the step's descriptor; consumers load
/// gains and frequencies besides, which come from HBM.
Prices::Entry Prices::opening(const verify::Program &program, const verify::Instr &instr,
                              StageOp stage, int role, const Costs &costs, Heat heat) const {
  task::ForOp loop = program.loops[size_t(instr.loop)].op;
  if (!loop.getIterate().value_or("").starts_with("AttentionTiles<"))
    return {};
  static constexpr const char *kParts[verify::kRoles] = {
      "attention.open.producer", "attention.open.poller", "attention.open.consumer", nullptr};
  if (!kParts[role])
    return {};
  // Consumers have waited for the launch before, which empties the SM's cache of the descriptor;
  // the part was measured where there was none to wait for. Of one row whose tiles are an SM's each
  // the list is over without a look at it (next_of_row).
  task::KernelOp kernel(program.kernel);
  const bool isOnce = rows == 1 && kMaxSplits * configInt(stage, "kv_heads", 1) <= kernel.getSms();
  const double next = costs.part("attention.open.next", rows);
  const double emptied = role == int(task::Role::Consumer) && !isOnce ? costs.read : 0;
  return {.usual = {.first = costs.part(kParts[role], rows, heat)},
          .fresh = {.warm = next, .first = next + emptied}};
}

Prices::Entry Prices::price(const verify::Instr &instr, StageOp stage, const Costs &costs,
                            Heat heat) {
  const StringRef callee = cast<ComputeOp>(instr.op).getCallee();
  StringRef name = functionOf(callee);
  if (const StringRef like = likeOf(name); !like.empty()) {
    estimatedNames.insert(name.str());
    name = like;
  }
  auto part = [&](StringRef which, double factor = 1, double extra = 0) {
    const Price price = partPrice(costs, which, rows, heat, factor, extra);
    return Entry{price, price};
  };
  // The part was measured with its meeting, which has a price of its own here.
  auto meeting = [&](Entry entry) {
    for (Price *price : {&entry.usual, &entry.fresh}) {
      *price = *price - costs.barrier;
      price->meets = true;
    }
    for (Price &price : entry.bySplits) {
      price = price - costs.barrier;
      price.meets = true;
    }
    return entry;
  };
  const int64_t k = configInt(stage, "k", 2048);
  if (name == "gemv_block") {
    const Price price = productPrice(stage, costs, heat);
    return {price, price};
  }
  if (name == "gemv_blocks") { // a block behind the first costs its steps: its loads are under way
    const int64_t steps = blockSteps(k);
    const double more = costs.productPerStep * double(steps * (pieceBlocks(stage, callee) - 1));
    Price price = productPrice(stage, costs, heat);
    price.warm += more;
    price.first += more;
    return {price, price};
  }
  // Of a product's parts (docs/window-layer.md) what is done before the column is there and what
  // then: half of an NVFP4 block's; all but the steps of bf16 pieces'.
  if (name == "decode_block" || name == "multiply_decoded") {
    const Price block = productPrice(stage, costs, heat);
    const double half = block.warm / 2;
    const Price price = {.warm = half, .first = name == "decode_block" ? block.first - half : half};
    return {price, price};
  }
  if (name == "hold_piece") {
    const Price price =
        productPrice(stage, costs, heat) - costs.productPerStep * double(blockSteps(k));
    return {price, price};
  }
  if (name == "multiply_held") {
    const int64_t pieces = heldPieces(cast<ComputeOp>(instr.op), stage);
    const double steps =
        costs.productPerStep * double(pieces * blockSteps(k) * pieceBlocks(stage, callee));
    return {{.warm = steps, .first = steps}, {.warm = steps, .first = steps}};
  }
  // What is read is on its way while the block before is multiplied: the steps alone, and the code.
  if (name == "gemv_ahead" || name == "gemv_held") {
    const Price block = productPrice(stage, costs, heat);
    const double warm = costs.productPerStep * double(blockSteps(k));
    const Price price = {.warm = warm, .first = warm + block.first - block.warm};
    return {price, price};
  }
  if (name == "store_part") { // its own acquire and signal are steps too
    const Price price = partPrice(costs, "store", rows, heat) - (costs.wait + costs.signal);
    return {price, price};
  }
  if (name == "rms_norm")
    return meeting(part("norm", 1, costs.normPerColumn * double((k - 2048) * rows)));
  if (name == "join_row" || name == "deal_row" || name == "norm_row" || name == "deal_norm_row") {
    const Price price = streamPrice(
        costs, name.starts_with("join") || name == "deal_row" ? "join" : "norm", k, heat);
    return {price, price};
  }
  if (name == "select_experts") {
    Curve byExperts;
    for (const auto &[experts, ns] : costs.topK)
      byExperts.add(double(experts), ns);
    const double all = byExperts.at(128);
    const double factor =
        all > 0 ? byExperts.at(double(configInt(stage, "experts", 128))) / all : 1;
    Entry entry = part("select", factor * double(k) / 8);
    entry.byRow = true;
    return entry;
  }
  if (name == "group_experts")
    return meeting(part("group"));
  if (name == "active_expert") { // half of the entry's cost; gathering the column the other
    const Price price{
        0.5 * std::max(costs.part("entry", rows) - costs.part("again", rows), 0.0),
        0.5 * std::max(costs.part("entry", rows, heat) - costs.part("again", rows, heat), 0.0)};
    return {price, price};
  }
  if (name == "gathered_column") {
    const Price price{
        0.5 * std::max(costs.part("entry", rows) - costs.part("again", rows), 0.0),
        0.5 * std::max(costs.part("entry", rows, heat) - costs.part("again", rows, heat), 0.0)};
    return {price, price};
  }
  if (name == "attention_prepare") {
    Entry entry = part("attention.pieces8.prepare");
    entry.fresh = partPrice(costs, "attention.new.prepare", rows, heat);
    setBySplits(entry, costs, "prepare", heat);
    entry = meeting(entry);
    // Its page's place first, then what is there; in the table's shape they are in L2.
    entry.old = entry.fresh + (costs.read + costs.readFar);
    return entry;
  }
  if (name == "attention_begin") {
    Entry entry = part("attention.pieces8.begin");
    entry.fresh = partPrice(costs, "attention.new.begin", rows, heat);
    entry.onward = Price(); // it has nothing to do, and nobody to meet
    return meeting(entry);
  }
  if (name == "attention_piece") {
    const Price own = piecePrice(costs, configInt(stage, "head_dim", 128), rows, heat);
    Entry entry{own, own};
    entry.piece = true;
    // Of eight pieces a warp has one and passes seven.
    const auto passing = [&](int64_t splits) -> Price {
      const double all = costs.part(splitPart(splits, "pieces"), rows);
      const double own = costs.part("attention.pieces1.pieces", rows);
      return {std::max((all - own) / 7 - costs.wait - costs.signal, 0.0)};
    };
    entry.bySplits.fill(passing(1));
    if (rows > 1)
      entry.bySplits = ofSplits(passing);
    return entry;
  }
  if (name == "attention_tail") // what it computes is with attention_finish
    return part("attention.pieces0.pieces");
  if (name == "attention_finish") {
    // Of a tile of one piece, where its warp finds the others waiting. Tail units are computed
    // here.
    Entry entry = part("attention.pieces1.finish");
    entry.fresh = partPrice(costs, "attention.new.finish", rows, heat);
    return meeting(entry);
  }
  if (name == "publish_partials") {
    Entry entry = part("attention.pieces8.publish");
    setBySplits(entry, costs, "publish", heat);
    // A vector's words, three floats each, 32 at a time: two times in the table's shape.
    const int64_t parts = configInt(stage, "merge_parts", 1);
    const int64_t words =
        parts * llvm::divideCeil(configInt(stage, "head_dim", 128) / parts + 2, 3);
    const double share = double(llvm::divideCeil(words, 32)) / 2;
    for (Price *price : {&entry.usual, &entry.fresh})
      *price = {share * price->warm, share * price->first};
    for (Price &price : entry.bySplits)
      price = {share * price.warm, share * price.first};
    return entry;
  }
  if (name == "attention_append") {
    Entry entry;
    entry.fresh = partPrice(costs, "attention.new.append", rows, heat);
    return entry;
  }
  if (name == "merge_splits") {
    // Splits of 32 channels at the first of the table's shapes, of 128 at the other, in both few
    // and many.
    const double channels =
        double(configInt(stage, "head_dim", 128)) / double(configInt(stage, "merge_parts", 1));
    const auto of = [&](StringRef part, Heat heat) {
      const double narrow = costs.part(part, 1, heat), wide = costs.part(part, 8, heat);
      return narrow + (wide - narrow) * (channels - 32) / 96;
    };
    constexpr double kFew = 8, kMany = 32; // the table's
    const double few = of("merge.few", kWarm), many = of("merge.splits", kWarm);
    Entry entry;
    entry.perSplit = std::max(many - few, 0.0) / (kMany - kFew);
    entry.usual.warm = std::max(few - kFew * entry.perSplit, 0.0);
    entry.usual.first = entry.usual.warm + std::max(of("merge.few", heat) - few, 0.0);
    return entry;
  }
  const StringRef part_ =
      llvm::StringSwitch<StringRef>(name)
          .Cases({"sum_chunks", "sum_scaled", "sum_slice"}, "chunks")
          .Cases({"epilogue_words", "epilogue_logits", "epilogue_head", "epilogue_store_bf16"},
                 "words")
          .Case("epilogue_residual", "residual")
          .Case("epilogue_glu", "glu")
          .Case("epilogue_down", "down")
          .Case("combine", "combine")
          .Default("");
  if (!part_.empty())
    return part(part_);
  if (name == "tell_armed") // one store a rank
    return {{costs.signal, costs.signal}, {costs.signal, costs.signal}};
  // Loads whose result is waited for later, a few stores, and what is priced with store_pairs or
  // route_row.
  if (name != "load_gains" && name != "load_bias" && name != "clear_words" && name != "add_pairs" &&
      name != "weigh_row")
    unknownNames.insert(name.str());
  return {};
}

} // namespace megalith::simulate
