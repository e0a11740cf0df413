//===- Costs.cpp - A cost table as a simulation reads it ------------------===//

#include "passes/simulate/Costs.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>

using llvm::Error;
using llvm::Expected;
using llvm::formatv;
using llvm::StringRef;

namespace megalith::simulate {

double Curve::at(double x, bool holds) const {
  if (points.empty())
    return 0;
  if (x <= points.front().first)
    return points.front().second;
  for (size_t i = 1; i < points.size(); ++i)
    if (x <= points[i].first || (i + 1 == points.size() && !holds)) {
      const auto &[x0, y0] = points[i - 1];
      const auto &[x1, y1] = points[i];
      return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
    }
  return points.back().second;
}

namespace {

// Shapes that the table's names stand for: tests/gpu/calibrate.
constexpr double kPiece = 16384, kSms = 128;
constexpr int64_t kPartRows[] = {1, 2, 4, 8};

/// Bytes in flight at a window of `pieces` on each SM.
double inFlightAt(int64_t pieces) {
  return double(pieces) * kPiece * kSms;
}

/// Reads costs one after another; the first that is missing ends it.
class Reader {
public:
  explicit Reader(const costs::CostTable &table) : table(table) {}

  double operator()(const std::string &name) {
    if (missing)
      return 1;
    Expected<double> value = table.value(name);
    if (value)
      return *value;
    missing = value.takeError();
    return 1;
  }
  /// The first that was missing.
  Error take() {
    Error error = Error::success();
    std::swap(error, missing);
    return error;
  }
  ~Reader() { llvm::consumeError(std::move(missing)); }

private:
  const costs::CostTable &table;
  Error missing = Error::success();
};

} // namespace

static void readMemory(Reader &read, Costs &costs) {
  costs.latency = read("restart.alone.piece128.first");
  costs.smRate = kPiece / (read("restart.alone.piece16384.first") - costs.latency);
  for (int64_t window : {2, 3, 4, 6, 8, 12})
    costs.capacity.add(inFlightAt(window),
                       read(formatv("hbm.read.sms128.piece16k.window{0}", window)));
  // SMs' times of a few pieces differ as sums of so many that each do; of many there is besides
  // what is the same throughout a launch.
  for (auto [kilobytes, window] : {std::pair(16, 2), {12, 4}, {16, 4}}) {
    auto spread = [&](int64_t pieces) {
      const std::string name =
          formatv("hbm.spread.piece{0}k.window{1}.pieces{2}", kilobytes, window, pieces);
      return read(name + ".sd") / read(name + ".mean");
    };
    const double few = spread(8), many = spread(128), bytes = 1024.0 * kilobytes * window * kSms;
    costs.pieceUnevenness.add(bytes, std::sqrt(8) * few);
    costs.unevenness.add(bytes, std::sqrt(std::max(many * many - few * few * 8 / 128, 0.0)));
  }
  costs.issue = (read("restart.experts.burst12.issue") - read("restart.experts.burst2.issue")) / 10;
  // Two pieces asked for at once: what the first gets until it is there.
  const double rate = std::min(costs.smRate, costs.capacity.at(0) / kSms);
  const double beside = read("restart.experts.burst2.first") - costs.latency - costs.issue;
  costs.oldestShare =
      std::clamp((kPiece - rate * costs.issue) / (rate * std::max(beside, 1.0)), 0.5, 0.95);
  for (int64_t window : {2, 4})
    costs.pollSlowdown.add(inFlightAt(window),
                           std::min(read(formatv("hop.4k.emitted_rows1.window{0}.stream", window)) /
                                        read(formatv("hbm.read.sms128.piece16k.window{0}", window)),
                                    1.0));
}

static void readUnits(Reader &read, Costs &costs) {
  costs.codeScale = read("clock.idle") / read("clock.streaming");
  costs.handover = costs.codeScale * read("mbarrier.signal_to_wait");
  costs.barrier = costs.codeScale * read("barrier.consumers");
  // A piece's wait and release are what the ring's edges add to its product.
  costs.product = costs.codeScale * kPiece / read("drain.gemv.16k.bare");
  costs.wait = costs.signal =
      (costs.codeScale * kPiece / read("drain.gemv.16k") - costs.product) / 2;
  costs.productPerStep = // four steps less three
      costs.product - costs.codeScale * 0.75 * kPiece / read("drain.gemv.8x768.bare");
  costs.nvfp4Rate = read("drain.nvfp4.bare");
  costs.normPerColumn = costs.codeScale * (read("norm.4096") - read("norm.2048")) / 2048;
  for (int64_t experts : {64, 128, 256, 512})
    costs.topK[experts] = read(formatv("topk.{0}", experts));
}

static void readParts(Reader &read, const costs::CostTable &table, Costs &costs) {
  for (const costs::Cost &cost : table.costs)
    if (StringRef name = cost.name; name.consume_front("part.") && cost.measured)
      costs.parts[name.str()] = cost.measured->value;
  // Those that every simulation may need.
  for (int64_t rows : kPartRows)
    for (StringRef part : {"norm", "select", "group", "first", "three", "store", "chunks", "words",
                           "residual", "glu", "down", "combine", "entry", "again"})
      for (StringRef heat : {"", ".near", ".far"})
        read(formatv("part.rows{0}.{1}{2}", rows, part, heat));
  for (int64_t width : {4096, 8192})
    for (StringRef part : {"words", "branch", "join", "alone", "norm"})
      for (StringRef heat : {"", ".near", ".far"})
        read(formatv("part.rows1.stream{0}.{1}{2}", width, part, heat));
  for (int64_t rows : {1, 8})
    for (StringRef part :
         {"merge.few", "merge.splits", "attention.open.producer", "attention.open.poller",
          "attention.open.consumer", "attention.open.next", "attention.pieces0.pieces",
          "attention.pieces1.pieces", "attention.pieces1.finish", "attention.pieces8.prepare",
          "attention.pieces8.begin", "attention.pieces8.pieces", "attention.pieces8.publish",
          "attention.new.prepare", "attention.new.begin", "attention.new.finish",
          "attention.new.append"})
      for (StringRef heat : {"", ".near", ".far"})
        read(formatv("part.rows{0}.{1}{2}", rows, part, heat));
  for (StringRef shape : {"2x4", "4x2", "8x1"})
    for (StringRef part : {"prepare", "pieces", "publish"})
      for (StringRef heat : {"", ".near", ".far"})
        read(formatv("part.rows8.attention.splits{0}.{1}{2}", shape, part, heat));
}

static void readExchanges(Reader &read, Costs &costs) {
  const double oneWay = costs.oneWay = read("word.one_way");
  const double handover = read("mbarrier.signal_to_wait");
  costs.read = read("word.resident.read");
  costs.readFar = read("word.evicted.read");
  for (int64_t rows : kPartRows) {
    // What a hop of the calibration is besides: a product, its chunks to the epilogue, which adds
    // them up and stores words.
    for (int64_t kilobytes : {4, 8})
      for (int64_t window : {0, 2, 4}) {
        const std::string hop =
            formatv("hop.{0}k.emitted_rows{1}.window{2}", kilobytes, rows, window);
        costs.arrival[rows][1024 * kilobytes].add(
            inFlightAt(window),
            std::max(1000 * read(hop) - read(hop + ".rest") - handover, oneWay));
        // From a warp's chunk sums stored to all with the epilogue.
        costs.early[rows][1024 * kilobytes].add(inFlightAt(window),
                                                std::max(read(hop + ".early") - handover, 0.0));
      }
  }
  // Consumers poll these for themselves and meet; epilogues are told before they store.
  auto own = [&](const std::string &hop, double besides) {
    return std::max(1000 * read(hop) - read(hop + ".rest") - read("barrier.consumers") - besides,
                    oneWay);
  };
  for (int64_t window : {0, 2, 4}) {
    for (int64_t words : {3, 12})
      costs.records[32 * words * 16].add(
          inFlightAt(window), own(formatv("merge.own.32x{0}.window{1}", words, window), 0));
    costs.heads.add(inFlightAt(window), own(formatv("heads.own.window{0}", window), handover));
  }
  for (int64_t rows : kPartRows)
    costs.ownRows[rows] = own(formatv("logits.own.rows{0}", rows), handover);
  // One row is three loads a lane, two rows are six at once.
  for (int64_t window : {0, 2, 4}) {
    const double three = read(formatv("sweep.rows1.window{0}", window));
    const double six = read(formatv("sweep.rows2.window{0}", window));
    costs.look.add(inFlightAt(window), three);
    costs.lookMore.add(inFlightAt(window), std::max(six - three, 0.0) / 3);
    const double four = read(formatv("sweep.epochs4.window{0}", window));
    const double twelve = read(formatv("sweep.epochs12.window{0}", window));
    costs.epochs.add(inFlightAt(window), four);
    costs.epochMore.add(inFlightAt(window), std::max(twelve - four, 0.0) / 8);
  }
}

/// Only machines with two GPUs measure it.
static void readLinks(const costs::CostTable &table, Costs &costs) {
  for (int64_t kilobytes : {4, 16, 64}) {
    auto far = table.value(formatv("nvlink.hop.{0}k", kilobytes).str());
    auto near = table.value(formatv("nvlink.local.{0}k", kilobytes).str());
    if (far && near)
      costs.hop.add(double(1024 * kilobytes), std::max(*far - *near, 0.0));
    llvm::consumeError(far.takeError());
    llvm::consumeError(near.takeError());
  }
}

static void readLaunches(Reader &read, Costs &costs) {
  costs.setUp = read("boundary.stream.pieces8.set_up");
  costs.gap = read("boundary.stream.pieces8.gap");
  // After launches of fewer pieces it is over before a warp comes to it.
  costs.launchWait = read("boundary.programmatic.pieces8.wait");
}

Expected<Costs> Costs::of(const costs::CostTable &table) {
  Costs costs;
  Reader read(table);
  readMemory(read, costs);
  readUnits(read, costs);
  readParts(read, table, costs);
  readExchanges(read, costs);
  readLinks(table, costs);
  readLaunches(read, costs);
  if (Error missing = read.take())
    return missing;
  return costs;
}

/// get(key) between the nearest of `keys`. Above the last it goes on as between the last two, if
/// all of kPartRows were measured; else it stays.
template <class Get> static double between(int64_t key, llvm::ArrayRef<int64_t> keys, Get get) {
  if (key > keys.back() && keys.size() == std::size(kPartRows)) {
    const int64_t last = keys.back(), before = keys[keys.size() - 2];
    const double slope = (get(last) - get(before)) / double(last - before);
    return get(last) + std::max(slope, 0.0) * double(key - last);
  }
  int64_t below = keys.front(), above = keys.back();
  for (int64_t k : keys) {
    if (k <= key)
      below = std::max(below, k);
    if (k >= key)
      above = std::min(above, k);
  }
  if (key <= keys.front())
    return get(keys.front());
  if (below >= above)
    return get(below);
  const double low = get(below), high = get(above);
  return low + (high - low) * double(key - below) / double(above - below);
}

Heat Heat::ofCode(int64_t bytes) {
  constexpr double kNearBytes = 80 * 1024, kFarBytes = 192 * 1024; // the table's
  return {std::clamp((double(bytes) - kNearBytes) / (kFarBytes - kNearBytes), 0.0, 1.0)};
}

double Costs::part(StringRef name, int64_t rows, Heat heat) const {
  if (!heat.isWarm && heat.far > 0 && heat.far < 1)
    return (1 - heat.far) * part(name, rows, kNear) + heat.far * part(name, rows, kFar);
  const char *const suffix = heat.isWarm ? "" : heat.far > 0 ? ".far" : ".near";
  auto find = [&](int64_t at) {
    auto it = parts.find(formatv("rows{0}.{1}{2}", at, name, suffix).str());
    return it == parts.end() ? std::optional<double>() : it->second;
  };
  std::vector<int64_t> known;
  for (int64_t at : kPartRows)
    if (find(at))
      known.push_back(at);
  if (known.empty())
    return 0;
  return codeScale * between(rows, known, [&](int64_t at) { return *find(at); });
}

double Costs::recordsOf(int64_t bytes, double inFlight) const {
  const auto &[few, below] = *records.begin();
  const auto &[many, above] = *records.rbegin();
  const double less = below.at(inFlight), more = std::max(above.at(inFlight), less);
  return less + (more - less) * std::max(double(bytes - few), 0.0) / double(many - few);
}

double Costs::ownRowsOf(int64_t rows, double inFlight) const {
  // What is in flight holds them up as it does a row of an exchange.
  constexpr int64_t kRow = 4096;
  return between(rows, kPartRows, [&](int64_t at) { return ownRows.at(at); }) +
         arrivalOf(1, kRow, inFlight) - arrivalOf(1, kRow, 0);
}

/// Between the rows and row widths that were measured.
static double hopCost(const HopCurves &curves, int64_t rows, int64_t bytes, double inFlight) {
  std::vector<int64_t> known;
  for (const auto &[at, sizes] : curves)
    known.push_back(at);
  if (known.empty())
    return 0;
  return between(rows, known, [&](int64_t at) {
    const auto &sizes = curves.at(at);
    std::vector<int64_t> widths;
    for (const auto &[width, curve] : sizes)
      widths.push_back(width);
    return between(bytes, widths, [&](int64_t width) { return sizes.at(width).at(inFlight); });
  });
}

double Costs::arrivalOf(int64_t rows, int64_t bytes, double inFlight) const {
  return hopCost(arrival, rows, bytes, inFlight);
}

double Costs::earlyOf(int64_t rows, int64_t bytes, double inFlight) const {
  return std::max(hopCost(early, rows, bytes, inFlight), 0.0);
}

double Costs::sweepOf(int64_t bytes, int64_t batch, double inFlight, bool epochs) const {
  const int64_t loads = llvm::divideCeil(bytes, 16 * 32); // of a lane
  const double look_ = (epochs ? this->epochs : look).at(inFlight);
  const double more = (epochs ? epochMore : lookMore).at(inFlight);
  auto batchOf = [&](int64_t count) {
    return std::max(look_ + more * double(count - (epochs ? 4 : 3)), 0.0);
  };
  return double(loads / batch) * batchOf(batch) + (loads % batch ? batchOf(loads % batch) : 0);
}

} // namespace megalith::simulate
