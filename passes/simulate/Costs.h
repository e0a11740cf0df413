//===- Costs.h - A cost table as a simulation reads it -----------*- C++ -*-===//
//
// Times in nanoseconds, rates in bytes a nanosecond. Everything comes from the target's table
// (passes/costs), by the names that docs/calibration.md describes; what a kernel's shape is not in
// the table for is taken between the nearest that are.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_SIMULATE_COSTS_H
#define MEGALITH_PASSES_SIMULATE_COSTS_H

#include "passes/costs/CostTable.h"

#include <map>
#include <utility>
#include <vector>

namespace megalith::simulate {

/// Straight lines between points in order of x, the outer ones continued: below the first it stays,
/// above the last it goes on as it went unless `holds`.
class Curve {
public:
  Curve() = default;
  explicit Curve(double y) : points{{0, y}} {}
  void add(double x, double y) { points.push_back({x, y}); }
  double at(double x, bool holds = false) const;
  bool isEmpty() const { return points.empty(); }

private:
  std::vector<std::pair<double, double>> points;
};

/// By rows, then (bytes of a row), then bytes in flight.
using HopCurves = std::map<int64_t, std::map<int64_t, Curve>>;

/// How much other code has passed through an SM's instruction caches when a warp comes to a step
/// for the first time in a launch: what the table calls near, far, or so much between.
struct Heat {
  double far = 0;      ///< 0: near; 1: far
  bool isWarm = false; ///< none at all

  /// Of a kernel of so many bytes, all of which a launch comes through.
  static Heat ofCode(int64_t bytes);
};
inline constexpr Heat kWarm = {0, true}, kNear = {0}, kFar = {1};

struct Costs {
  // Memory. `capacity` is by bytes that are asked for and have not landed, on all SMs.
  double latency = 0;       ///< of a copy of nothing
  double smRate = 0;        ///< most that one SM gets
  Curve capacity;           ///< of HBM
  Curve pollSlowdown;       ///< factor on it while all SMs poll; by the same bytes
  double issue = 0;         ///< the producer's time for a copy
  double oldestShare = 0.5; ///< of an SM's rate, that its older piece gets beside the next
  /// Standard deviations over the mean: of a piece's time, and of SMs' in a launch besides.
  Curve pieceUnevenness, unevenness;

  // On an SM.
  double handover = 0;  ///< from a signal to its waiter's going on
  double wait = 0;      ///< a wait that finds what it waits for
  double signal = 0;    ///< a signal, for who gives it
  double barrier = 0;   ///< of the eight consumer warps
  double codeScale = 1; ///< of parts: the clock they were measured at over that of a full stream
  std::map<std::string, double> parts; ///< "rows8.norm.near", without "part."

  // Between SMs, by the same bytes.
  double oneWay = 0;  ///< of a word
  double read = 0;    ///< of a word that L2 has
  double readFar = 0; ///< of one that only HBM has
  HopCurves arrival;  ///< from stored to polled and at hand, with the last of eight warps
  HopCurves early;    ///< how much sooner they are with the mean of these
  /// Words that consumer warps poll for themselves, from stored to at hand: a merge tile's records,
  /// by (bytes of all), and a row's heads; rows of logits by their number, with nothing in flight.
  std::map<int64_t, Curve> records;
  Curve heads;
  std::map<int64_t, double> ownRows;
  Curve hop;       ///< that words come later from another rank, by bytes; empty: not measured
  Curve look;      ///< a warp's loads of words that are there, three a lane
  Curve lookMore;  ///< each further one
  Curve epochs;    ///< the same of epoch words, four a lane
  Curve epochMore; ///< each further one

  // Launches.
  double setUp = 0;      ///< from a CTA's begin to its roles'
  double gap = 0;        ///< from the end of an SM's CTA to the begin of its next
  double launchWait = 0; ///< from the end of the launch before to griddepcontrol.wait's

  // Other shapes than the parts'.
  double normPerColumn = 0;       ///< of one row
  double product = 0;             ///< of a piece of four k16 steps, one row
  double nvfp4Rate = 1;           ///< bytes a ns of products with NVFP4 codes
  double productPerStep = 0;      ///< of a step
  std::map<int64_t, double> topK; ///< by experts, one row

  /// The error names the first cost that the table lacks.
  static llvm::Expected<Costs> of(const costs::CostTable &table);

  /// `name` without rows and heat: "norm", "attention.pieces8.begin"; rows between those measured.
  double part(llvm::StringRef name, int64_t rows, Heat heat = kWarm) const;
  /// Of `rows` rows of `bytes`.
  double arrivalOf(int64_t rows, int64_t bytes, double inFlight) const;
  double earlyOf(int64_t rows, int64_t bytes, double inFlight) const;
  /// Of a merge tile's records, `bytes` in all, that the warps of an SM gather among them.
  double recordsOf(int64_t bytes, double inFlight) const;
  /// Of `rows` rows that a warp each polls.
  double ownRowsOf(int64_t rows, double inFlight) const;
  /// One warp's gather of so many bytes that are there, at most `batch` loads a lane at once.
  double sweepOf(int64_t bytes, int64_t batch, double inFlight, bool epochs = false) const;
};

} // namespace megalith::simulate

#endif // MEGALITH_PASSES_SIMULATE_COSTS_H
