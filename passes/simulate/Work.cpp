//===- Work.cpp - Copies and products -------------------------------------===//

#include "passes/simulate/Engine.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace megalith::task;
using megalith::verify::Access;
using megalith::verify::Instr;

namespace megalith::simulate {

const Tile *Engine::tileOf(const Launch &launch, const Warp &warp) const {
  const Facts &facts = factsOf(launch, warp);
  if (facts.tiles.empty() || warp.frames.empty())
    return nullptr;
  const std::vector<Tile> &own = facts.tiles[size_t(warp.sm)];
  const auto index = size_t(warp.dims[1]);
  return index < own.size() ? &own[index] : nullptr;
}

/// Bytes of what a copy reads: a piece of weights, or of a tile's keys and values.
int64_t Engine::bytesOf(const Launch &launch, const Warp &warp, const Instr &instr,
                        const Access &access) const {
  const verify::Global &global = launch.program->globals[size_t(access.decl)];
  verify::Rect rect = access.at(warp.dims.data());
  if (auto weights = dyn_cast<WeightsOp>(global.op)) {
    if (!access.slices.empty()) {
      const verify::Rect slice =
          launch.program->accesses[size_t(access.slices.front())].at(warp.dims.data());
      rect.rows = std::min(rect.row + rect.rows, slice.row + slice.rows) - rect.row;
    }
    return std::max<int64_t>(rect.rows, 0) * rect.cols * weights.stripBytes();
  }
  if (const Tile *tile = tileOf(launch, warp); tile && instr.kind == Instr::Copy) {
    const Facts &facts = factsOf(launch, warp);
    const Units units = tile->unitsOf(warp.dims[2], facts.pieceUnits);
    return (units.end - units.first) * facts.unitBytes;
  }
  return rect.rows * rect.cols * 2;
}

/// A number in (0, 1], the same for the same seed: splitmix64.
static double evenly(uint64_t seed) {
  seed += 0x9e3779b97f4a7c15ull;
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9ull;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebull;
  return std::ldexp(double(((seed ^ (seed >> 31)) >> 11) + 1), -53);
}

/// Pieces are not served alike, so SMs that read alike are not done alike; besides one is ahead
/// throughout a launch, another one in the next. Drawn from an exponential distribution for launch,
/// turn and SM, whose last of 128 is four deviations behind (hbm.spread.*.late), and from a normal
/// one for the piece, `token`.
double Engine::slownessOf(const Warp &warp, uint64_t token) const {
  const double ofLaunch = -std::log(evenly(uint64_t(warp.launch) << 32 | uint64_t(warp.turn) << 16 |
                                           uint64_t(warp.sm))) -
                          1;
  const double ofPiece =
      std::sqrt(-2 * std::log(evenly(token))) * std::cos(2 * M_PI * evenly(~token));
  const double load = memory.inFlight();
  return std::max(1 + costs.unevenness.at(load, /*holds=*/true) * ofLaunch +
                      costs.pieceUnevenness.at(load, /*holds=*/true) * ofPiece,
                  0.5);
}

Engine::Outcome Engine::copy(int64_t id, const Instr &instr) {
  if (!isNow(id))
    return Outcome::Blocked;
  Warp &warp = warps[size_t(id)];
  const Launch &launch = launches[size_t(warp.launch)];
  const int64_t place = launch.sms[size_t(warp.sm)].place;
  const auto use = uint64_t(warp.uses[size_t(instr.edge)]++);
  const int64_t bytes = bytesOf(launch, warp, instr, launch.program->accessesOf(instr).front());
  const uint64_t token =
      uint64_t(warp.launch) << 56 | uint64_t(warp.sm) << 44 | uint64_t(instr.edge) << 32 | use;
  memory.issue(now, place, std::max<int64_t>(bytes, 1), token, slownessOf(warp, token));
  warp.time += costs.issue;
  return Outcome::Next;
}

/// Splits of the row whose merge tile a warp is at; the tiles are dealt to SMs in turn.
int64_t Engine::splitsOf(const Facts &facts, const Warp &warp) const {
  const int64_t tile = warp.sm + warp.dims[1] * sms;
  const auto row = size_t(tile / facts.mergeParts / facts.qHeads);
  return row < facts.splits.size() ? facts.splits[row] : 0;
}

Engine::Outcome Engine::compute(int64_t id, const Instr &instr) {
  Warp &warp = warps[size_t(id)];
  Launch &launch = launches[size_t(warp.launch)];
  const Prices &prices = *launch.prices;
  const Tile *tile = tileOf(launch, warp);
  const Price &price = prices.of(warp.role, warp.at, tile);
  if (warp.phase == 0 && price.meets && warp.role == kConsumer)
    return meet(id);
  if (warp.phase < 2) {
    if (instr.publishes && warp.role == kConsumer && warp.inStage)
      warp.times.stages.back().last = warp.time;
    int pairs = 1; // of units, or what else it does; 0: another warp does it
    if (prices.isByRow(warp.role, warp.at))
      pairs =
          int((int64_t(KernelOp(launch.program->kernel).getRows()) - warp.number + kConsumers - 1) /
              kConsumers);
    if (tile && prices.isPiece(warp.role, warp.at)) {
      const Facts &facts = factsOf(launch, warp);
      const int64_t columns =
          std::min<int64_t>(llvm::divideCeil(facts.qHeads / facts.kvHeads, 8), 8);
      const Units units = tile->unitsOf(warp.dims[2], facts.pieceUnits);
      pairs = 0; // a piece of four units has two, each at the price of bf16's
      for (int64_t unit = units.first; unit < units.end; unit += 2)
        pairs += warp.number / columns == tile->chunkOf(unit, 8 / columns);
      if (pairs == 0)
        warp.time += prices.passing(warp.role, warp.at, tile->splits);
    }
    for (int i = 0; i < pairs; ++i) {
      warp.time += warp.seen[warp.at] ? price.warm : std::max(price.first, price.warm);
      warp.seen[warp.at] = true;
    }
    if (const double perSplit = prices.perSplit(warp.role, warp.at); perSplit > 0)
      warp.time += perSplit * double(splitsOf(factsOf(launch, warp), warp));
    warp.phase = 2;
  }
  if (!instr.publishes)
    return Outcome::Next;
  if (!isNow(id))
    return Outcome::Blocked;
  publish(launch, warp, instr);
  return Outcome::Next;
}

} // namespace megalith::simulate
