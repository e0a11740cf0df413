//===- Costs.cpp - which measured cost a stage or an exchange has -----------===//

#include "tools/explain/Costs.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

using llvm::StringRef;

namespace megalith::explain {

namespace {

constexpr double kBytesPerGb = 1e3; // of a GB/s in a microsecond
/// Pieces that bulk reads were measured with.
constexpr int64_t kPiece = 16 << 10, kSmallPiece = 12 << 10;

/// The number behind `prefix` at the end of a cost's name, or nothing.
std::optional<int64_t> numberAfter(StringRef name, StringRef prefix) {
  int64_t number = 0;
  if (!name.consume_front(prefix) || name.getAsInteger(10, number))
    return std::nullopt;
  return number;
}

/// Of the costs `prefix`N that were measured the one with the largest N up to `most`, else the
/// smallest.
const costs::Cost *nearest(const costs::CostTable &table, StringRef prefix, int64_t most) {
  const costs::Cost *best = nullptr;
  int64_t bestNumber = 0;
  for (const costs::Cost &cost : table.costs)
    if (auto number = numberAfter(cost.name, prefix); number && cost.measured) {
      const bool isBetter = !best || (*number <= most ? bestNumber > most || *number > bestNumber
                                                      : bestNumber > most && *number < bestNumber);
      if (isBetter) {
        best = &cost;
        bestNumber = *number;
      }
    }
  return best;
}

} // namespace

std::optional<Estimate> Costs::entry(const std::string &name, double perUs) const {
  const costs::Cost *cost = table ? table->find(name) : nullptr;
  if (!cost || !cost->measured)
    return std::nullopt;
  return Estimate{cost->measured->value / perUs, name};
}

std::optional<Estimate> Costs::read(double bytes) const {
  if (!table || !(bytes > 0))
    return std::nullopt;
  const costs::Cost *best = nullptr;
  for (const costs::Cost &cost : table->costs)
    if (StringRef(cost.name).starts_with("hbm.read.") && cost.unit == "GB/s" && cost.measured &&
        (!best || cost.measured->value > best->measured->value))
      best = &cost;
  if (!best)
    return std::nullopt;
  return Estimate{bytes / (best->measured->value * kBytesPerGb), best->name};
}

std::optional<Estimate> Costs::read(double bytes, int64_t piece, int64_t window,
                                    int64_t sms) const {
  if (!table || !(bytes > 0) || piece <= 0 || sms <= 0)
    return std::nullopt;
  // Small pieces count by the bytes that are under way.
  const bool isSmall = piece < kPiece && piece >= kSmallPiece;
  const int64_t counted =
      isSmall ? window : std::max<int64_t>(1, (piece * window + kPiece / 2) / kPiece);
  const std::string family =
      llvm::formatv("hbm.read.sms128.piece{0}k.window", isSmall ? 12 : 16).str();
  const costs::Cost *all = nearest(*table, family, counted);
  if (!all)
    return std::nullopt;
  double rate = all->measured->value;
  // A few SMs are not held up by memory but by the way there.
  if (const costs::Cost *one = nearest(*table, "hbm.read.sms128.piece16k.window", 1))
    rate = std::min(rate, one->measured->value / 128 * double(sms) * double(piece * window) /
                              double(kPiece));
  return Estimate{bytes / (rate * kBytesPerGb), all->name};
}

std::optional<Estimate> Costs::hop(int64_t bytes, int64_t inFlight, bool byConsumers) const {
  if (!table)
    return std::nullopt;
  const int64_t windows = (inFlight + kPiece / 2) / kPiece;
  for (int64_t size : {4, 8, 16})
    if (bytes <= size << 10 || size == 16) {
      // What emitted kernels do: tight sweeps (codegen/device/gather.cuh).
      const char *how = byConsumers || size == 16 ? "tight" : "tight_one";
      const costs::Cost *cost =
          nearest(*table, llvm::formatv("hop.{0}k.{1}.window", size, how).str(), windows);
      return cost ? std::optional<Estimate>({cost->measured->value, cost->name}) : std::nullopt;
    }
  return std::nullopt;
}

std::optional<Estimate> Costs::logits() const {
  return entry("route.tight.pieces1.logits", 1e3);
}

std::optional<Estimate> Costs::merge() const {
  return entry("merge.32x11", 1);
}

} // namespace megalith::explain
