//===- Workload.cpp - The dynamic facts of a simulated step ---------------===//

#include "passes/simulate/Workload.h"

#include "codegen/device/tiles.cuh"

#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <numeric>
#include <random>

using namespace mlir;
using namespace megalith::task;

namespace megalith::simulate {

static std::optional<int64_t> configInt(StageOp stage, StringRef key) {
  auto value = stage.getConfig().getAs<IntegerAttr>(key);
  return value ? std::optional(value.getInt()) : std::nullopt;
}

int64_t Tile::pieces(int64_t each) const {
  const int64_t whole = std::max<int64_t>(llvm::divideCeil(fullUnits, splitUnits) - 1, 0);
  return whole * llvm::divideCeil(splitUnits, each) +
         llvm::divideCeil(fullUnits - whole * splitUnits, each);
}

Units Tile::unitsOf(int64_t i, int64_t each) const {
  const int64_t ofSplit = llvm::divideCeil(splitUnits, each), begin = i / ofSplit * splitUnits;
  const int64_t first = begin + i % ofSplit * each, end = std::min(begin + splitUnits, fullUnits);
  return {std::min(first, end), std::min(first + each, end)};
}

int64_t Tile::chunkOf(int64_t unit, int64_t chunks) const {
  if (splits == 1)
    return unit / 2 % chunks;
  return unit / splitUnits * llvm::divideCeil(splitUnits, 2) + unit % splitUnits / 2;
}

/// Bytes of an element of the pages that an attention stage reads.
static int64_t kvBytesOf(KernelOp kernel, StageOp stage) {
  for (auto access : stage.getReads().getAsRange<AccessAttr>())
    if (auto pages = kernel.lookup<BufferOp>(access.getBuffer());
        pages && pages.getMutability() == Mutability::Pages)
      return pages.elementBytes();
  return 2;
}

/// The tiles of all sequences, dealt to SMs as codegen/device/tiles.cuh does.
static void addTiles(KernelOp kernel, StageOp stage, const StepShape &shape, Facts &facts) {
  const int64_t sms = kernel.getSms(), stride = llvm::divideCeil(sms, kernel.getRows());
  facts.kvHeads = configInt(stage, "kv_heads").value_or(1);
  facts.qHeads = configInt(stage, "q_heads").value_or(1);
  facts.headDim = configInt(stage, "head_dim").value_or(64);
  facts.mergeParts = configInt(stage, "merge_parts").value_or(1);
  const auto window = int(configInt(stage, "window").value_or(0));
  // As codegen/device/attention_shape.cuh has them.
  const int64_t kvBytes = kvBytesOf(kernel, stage);
  facts.unitBytes = 32 * facts.headDim * kvBytes;
  for (facts.pieceUnits = kvBytes == 1 || kernel.getRows() > 1 ? 4 : 2;
       facts.pieceUnits > 1 && facts.pieceUnits * facts.unitBytes > 16384; facts.pieceUnits /= 2)
    ;
  facts.tiles.resize(size_t(sms));
  int64_t total = 0, least = INT64_MAX, most = 0;
  for (size_t s = 0; s < shape.contexts.size(); ++s) {
    const int keys = visible_keys({int32_t(s), 1, int32_t(shape.contexts[s])}, window);
    const int64_t length = split_length(keys);
    total += split_count(keys) * facts.kvHeads;
    least = std::min(least, length);
    most = std::max(most, length);
  }
  const bool areNeighbours =
      kernel.getRows() > 1 && total > sms && 2 * most <= 3 * least && most <= kShortSplit;
  const int64_t vectors = facts.qHeads / facts.kvHeads;
  const int64_t columns = llvm::divideCeil(vectors * configInt(stage, "head_ranks").value_or(1), 8);
  int64_t number = 0;
  for (size_t s = 0; s < shape.contexts.size(); ++s) {
    const SequenceEntry sequence = {int32_t(s), 1, int32_t(shape.contexts[s])};
    const int64_t splits = split_count(visible_keys(sequence, window));
    facts.splits.push_back(splits);
    // An SM has its tiles of a sequence before those of the next.
    for (int64_t u = 0; u < splits * facts.kvHeads; ++u, ++number) {
      const int64_t head = areNeighbours ? u / splits : u % facts.kvHeads;
      const int64_t split = areNeighbours ? u % splits : u / facts.kvHeads;
      const AttentionTile tile = attention_tile(sequence, int(s), int(head), int(split), window);
      const bool isNew = tile.first_new() < tile.end;
      const bool hasOld = tile.tail_units > 0 && tile.start > tile.tail_first();
      const auto addTo = [&](std::vector<Tile> &own) {
        const bool goesOn =
            !own.empty() && own.back().sequence == int64_t(s) && own.back().kvHead == head;
        own.push_back(
            {int64_t(s), head, 1, tile.split_units, tile.full_units, isNew, hasOld, goesOn});
      };
      if (!areNeighbours) {
        addTo(facts.tiles[size_t((u + int64_t(s) * stride) % sms)]);
        continue;
      }
      // SM i has tiles from i total / sms on; several splits are one tile where warps suffice.
      auto &own = facts.tiles[size_t(((number + 1) * sms - 1) / total)];
      const int64_t warps = llvm::divideCeil(tile.split_units, 2);
      const bool areFew = vectors <= 8 && warps <= 4 && warps * columns <= 8;
      const int64_t atOnce = !areFew ? 1 : warps == 1 ? 8 : warps == 2 ? 4 : 2;
      if (!own.empty() && own.back().sequence == int64_t(s) && own.back().kvHead == head &&
          own.back().splits < atOnce) {
        ++own.back().splits;
        own.back().fullUnits += tile.full_units;
        own.back().isNew |= isNew;
        own.back().hasOld |= hasOld;
      } else {
        addTo(own);
      }
    }
  }
}

/// The first `count` of a shuffle of `all`.
static void shuffleFirst(std::vector<int64_t> &all, int64_t count, std::mt19937_64 &random) {
  for (int64_t i = 0; i < count; ++i)
    std::swap(all[size_t(i)], all[size_t(i) + random() % (all.size() - size_t(i))]);
}

static llvm::Error addEntries(StageOp stage, const StepShape &shape, uint64_t number,
                              Facts &facts) {
  const int64_t experts = configInt(stage, "experts").value_or(1);
  const int64_t k = std::min(configInt(stage, "k").value_or(1), experts);
  const auto rows = int64_t(shape.contexts.size());
  std::mt19937_64 random(shape.seed * 0x9E3779B97F4A7C15ull + number);
  std::map<int64_t, int64_t> pairs;
  std::vector<int64_t> all(static_cast<size_t>(experts));
  const auto reset = [&] { std::iota(all.begin(), all.end(), 0); };
  reset();
  if (shape.activeExperts) {
    const int64_t active = *shape.activeExperts, most = std::min(rows * k, experts);
    if (active < k || active > most)
      return llvm::createStringError(
          llvm::formatv("expected {0} to {1} active experts, those of one row and of all {2}, "
                        "but got {3}",
                        k, most, rows, active)
              .str());
    shuffleFirst(all, active, random);
    for (int64_t pair = 0; pair < rows * k; ++pair) // in turn: those of a row are not the same
      ++pairs[all[size_t(pair % active)]];
  } else {
    for (int64_t row = 0; row < rows; ++row, reset()) {
      shuffleFirst(all, k, random);
      for (int64_t slot = 0; slot < k; ++slot)
        ++pairs[all[size_t(slot)]];
    }
  }
  for (const auto &[expert, count] : pairs)
    facts.entries.push_back({expert, count});
  return llvm::Error::success();
}

std::optional<int64_t> Facts::symbol(llvm::StringRef name, int64_t sm, int64_t tile) const {
  if (name == "active")
    return int64_t(entries.size());
  if (tiles.empty())
    return std::nullopt;
  const std::vector<Tile> &own = tiles[size_t(sm)];
  if (name == "attention_tiles")
    return int64_t(own.size());
  if (name == "full_pieces")
    return tile < int64_t(own.size()) ? own[size_t(tile)].pieces(pieceUnits) : 0;
  return std::nullopt;
}

llvm::Expected<Facts> factsOf(KernelOp kernel, const StepShape &shape, uint64_t number) {
  if (shape.contexts.empty() || int64_t(shape.contexts.size()) > int64_t(kernel.getRows()))
    return llvm::createStringError(
        llvm::formatv("expected 1 to {0} sequences, the rows of kernel @{1}, but got {2}",
                      kernel.getRows(), kernel.getSymName(), shape.contexts.size())
            .str());
  Facts facts;
  for (StageOp stage : kernel.getOps<StageOp>()) {
    if (stage.getKind() == StageKind::Attention) {
      if (auto most = configInt(stage, "max_positions"))
        for (int64_t context : shape.contexts)
          if (context < 0 || context >= *most)
            return llvm::createStringError(
                llvm::formatv("expected contexts of 0 to {0} positions, which kernel @{1} has "
                              "pages for, but got {2}",
                              *most - 1, kernel.getSymName(), context)
                    .str());
      addTiles(kernel, stage, shape, facts);
    }
    if (stage.getKind() == StageKind::TopK && facts.entries.empty())
      if (llvm::Error error = addEntries(stage, shape, number, facts))
        return error;
  }
  return facts;
}

} // namespace megalith::simulate
