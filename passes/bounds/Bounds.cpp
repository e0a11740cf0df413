#include "passes/bounds/Bounds.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace megalith::task {

static std::optional<int64_t> number(StageOp stage, StringRef key) {
  auto value = stage.getConfig().getAs<IntegerAttr>(key);
  return value ? std::optional(value.getInt()) : std::nullopt;
}

int64_t AttentionShape::tiles() const {
  return rows * llvm::divideCeil(kMaxSplits * kvHeads, sms);
}

int64_t AttentionShape::pieces() const {
  int64_t seen = positions;
  if (window) // and what comes of rounding its beginning down to a unit
    seen = std::min(seen, window + rows + kUnitPositions - 2);
  const int64_t units = llvm::divideCeil(llvm::divideCeil(seen, kUnitPositions), kMaxSplits);
  const int64_t pieces = llvm::divideCeil(units, pieceUnits);
  if (rows == 1)
    return pieces;
  // Several short splits to a tile: a pair of units for each of the consumers' warps.
  return std::max(pieces, warpsOf(Role::Consumer) * 2 / std::min<int64_t>(2, pieceUnits));
}

AttentionShape shapeOf(StageOp attention) {
  auto kernel = attention->getParentOfType<KernelOp>();
  return {.rows = kernel.getRows(),
          .sms = kernel.getSms(),
          .kvHeads = *number(attention, "kv_heads"),
          .positions = number(attention, "max_positions").value_or(kMaxPositions),
          .window = number(attention, "window").value_or(0),
          .pieceUnits = pieceUnitsOf(attention)};
}

BufferOp pagesOf(StageOp attention) {
  for (auto access : attention.getReads().getAsRange<AccessAttr>())
    if (auto pages = attention->getParentOfType<KernelOp>().lookup<BufferOp>(access.getBuffer());
        pages && pages.getMutability() == Mutability::Pages)
      return pages;
  return {};
}

int64_t unitBytesOf(StageOp attention) {
  BufferOp pages = pagesOf(attention);
  return 32 * *number(attention, "head_dim") * (pages ? pages.elementBytes() : 2);
}

int64_t pieceUnitsOf(StageOp attention) {
  // As codegen/device/attention_shape.cuh has them.
  BufferOp pages = pagesOf(attention);
  const bool isOneRow = attention->getParentOfType<KernelOp>().getRows() == 1;
  const int64_t most = (pages && pages.elementBytes() == 1) || !isOneRow ? 4 : 2;
  for (int64_t units = most; units > 1; units /= 2)
    if (units * unitBytesOf(attention) <= 16384)
      return units;
  return 1;
}

int64_t maxActive(KernelOp kernel, int64_t experts, int64_t topK) {
  return std::min(experts, kernel.getRows() * topK);
}

static Bounds boundsOfAttention(StageOp stage) {
  // Numbers that a hand has written may be anything; beyond these the products would overflow.
  for (StringRef key : {"kv_heads", "head_dim", "max_positions", "window"}) {
    const std::optional<int64_t> value = number(stage, key);
    const bool isOptional = key == "max_positions" || key == "window";
    if (value ? *value < (key != "window") || *value > INT32_MAX : !isOptional)
      return {};
  }
  const AttentionShape shape = shapeOf(stage);
  const std::string name = stage.getSymName().str();
  return {{{"attention_tiles", shape.tiles(),
            "AttentionTiles<" + name + ">(*cta.args.step, cta.sm).count()", /*perSm=*/true},
           {"full_pieces", shape.pieces(), "full_pieces<" + name + ">(tile)", /*perSm=*/true}},
          {{"attention_tile", shape.allTiles(), Axiom::Partition, "tile"},
           {"kv_piece", shape.allTiles() * shape.pieces(), Axiom::Injective,
            "units of a tile, below start"},
           {"kv_new", shape.allTiles(), Axiom::Injective, "units of a tile with new positions"}}};
}

/// A merge whose tiles are those of an attention stage of its kernel declares none; if that is in
/// an earlier launch, tiles are counted by the records that it left.
static Bounds boundsOfMerge(StageOp stage) {
  if (stage.getReads().empty())
    return {};
  auto kernel = stage->getParentOfType<KernelOp>();
  const auto read = cast<AccessAttr>(stage.getReads()[0]);
  for (auto other : kernel.getOps<StageOp>())
    for (auto access : other.getWrites().getAsRange<AccessAttr>())
      if (other.getKind() == StageKind::Attention && access.getBuffer() == read.getBuffer())
        return {};
  auto records = kernel.lookup<ExchangeOp>(read.getBuffer());
  if (!records)
    return {};
  return {{}, {{"attention_tile", records.rows(), Axiom::Partition, "tile"}}};
}

static Bounds boundsOfExperts(StageOp stage) {
  const std::optional<int64_t> experts = number(stage, "experts"), topK = number(stage, "top_k");
  if (!experts || !topK || *experts < 1 || *topK < 1 || *topK > *experts)
    return {};
  auto kernel = stage->getParentOfType<KernelOp>();
  for (auto router : kernel.getOps<StageOp>()) {
    if (router.getKind() != StageKind::TopK)
      continue;
    const std::string table = "routing_table<" + router.getSymName().str() + ">(cta)";
    return {{{"active", maxActive(kernel, *experts, *topK),
              "platform::ld_shared<int32_t>(&" + table + "->active)", /*perSm=*/false, "routed"}},
            {{"expert_id", *experts, Axiom::Uniform, table + "->expert"}}};
  }
  return {};
}

Bounds boundsOf(StageOp stage) {
  switch (stage.getKind()) {
  case StageKind::Attention:
    return boundsOfAttention(stage);
  case StageKind::Merge:
    return boundsOfMerge(stage);
  case StageKind::ExpertUp:
  case StageKind::ExpertDown:
    return boundsOfExperts(stage);
  case StageKind::Embed:
  case StageKind::Linear:
  case StageKind::TopK:
  case StageKind::Rows:
  case StageKind::Combine:
  case StageKind::LaunchEnd:
    return {};
  }
  llvm_unreachable("a kind of stage without bounds");
}

std::optional<int64_t> sharedMemoryOf(llvm::StringRef target) {
  return llvm::StringSwitch<std::optional<int64_t>>(target)
      .Cases({"sm_90", "sm_90a", "sm_100", "sm_100a"}, 227 * 1024)
      .Cases({"sm_80", "sm_87"}, 163 * 1024)
      .Cases({"sm_86", "sm_89", "sm_120", "sm_120a"}, 99 * 1024)
      .Default(std::nullopt);
}

std::optional<int64_t> sharedMemoryOf(llvm::StringRef target, int64_t residents) {
  std::optional<int64_t> all = sharedMemoryOf(target);
  if (all)
    *all = (*all + kReservedBytes) / residents - kReservedBytes;
  return all;
}

} // namespace megalith::task
