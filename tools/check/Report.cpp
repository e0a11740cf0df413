//===- Report.cpp - A plan's launches against the reference ---------------===//

#include "tools/check/Report.h"

#include "models/reference/compare.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <map>

namespace megalith::check {

using reference::kLayerTolerance;
using reference::kLogitsTolerance;

// All measures, with what each may be.
static constexpr struct Measure {
  std::optional<double> LaunchReport::*error;
  double tolerance;
} kMeasures[] = {
    {&LaunchReport::residual, kLayerTolerance}, {&LaunchReport::router, kLayerTolerance},
    {&LaunchReport::kv, kLayerTolerance},       {&LaunchReport::qkv, kLayerTolerance},
    {&LaunchReport::head, kLayerTolerance},     {&LaunchReport::whole, kLogitsTolerance},
};

/// Whether every error is within `factor` tolerances; a NaN is not.
static bool within(const LaunchReport &report, double factor) {
  return llvm::all_of(kMeasures, [&](const Measure &measure) {
    const std::optional<double> error = report.*measure.error;
    return !error || *error <= factor * measure.tolerance;
  });
}

bool LaunchReport::passes() const {
  return within(*this, 2) && wrongRows == 0 && difference.empty();
}

bool Report::passes() const {
  return !launches.empty() && within(overSteps(), 1) &&
         llvm::all_of(launches, [](const LaunchReport &launch) { return launch.passes(); });
}

LaunchReport Report::overSteps() const {
  LaunchReport most;
  for (const Measure &measure : kMeasures) {
    std::map<int64_t, std::pair<double, int>> squares; // by launch: their sum and number
    for (const LaunchReport &launch : launches)
      if (const std::optional<double> error = launch.*measure.error) {
        squares[launch.launch].first += *error * *error;
        ++squares[launch.launch].second;
      }
    for (const auto &[launch, sum] : squares) {
      const double mean = std::sqrt(sum.first / sum.second);
      std::optional<double> &largest = most.*measure.error;
      if (!largest || !(mean <= *largest))
        largest = mean;
    }
  }
  return most;
}

LaunchReport Report::largest() const {
  LaunchReport most;
  for (const LaunchReport &launch : launches) {
    for (const Measure &measure : kMeasures)
      most.*measure.error = std::max(most.*measure.error, launch.*measure.error);
    most.nearTies += launch.nearTies;
    most.wrongRows += launch.wrongRows;
    if (most.difference.empty() && !launch.difference.empty())
      most.difference = llvm::formatv("step {0}, launch {1} ({2}, layer {3}): {4}", launch.step,
                                      launch.launch, launch.kernel, launch.layer, launch.difference)
                            .str();
  }
  return most;
}

static std::string number(std::optional<double> error) {
  return error ? llvm::formatv("{0:e1}", *error).str() : "-";
}

static std::string cells(const LaunchReport &launch) {
  return llvm::formatv("{0,10}{1,10}{2,10}{3,10}{4,10}{5,10}", number(launch.residual),
                       number(launch.router), number(launch.kv), number(launch.qkv),
                       number(launch.head), number(launch.whole))
      .str();
}

std::string Report::table() const {
  std::string text =
      llvm::formatv("  {0,-5}{1,-7}{2,-20}{3,5}{4,10}{5,10}{6,10}{7,10}{8,10}{9,10}\n", "step",
                    "launch", "kernel", "layer", "residual", "router", "kv", "qkv", "head", "whole")
          .str();
  for (const LaunchReport &launch : launches) {
    text +=
        llvm::formatv("  {0,-5}{1,-7}{2,-20}{3,5}{4}", launch.step, launch.launch, launch.kernel,
                      launch.layer < 0 ? "-" : std::to_string(launch.layer), cells(launch))
            .str();
    if (launch.nearTies)
      text += llvm::formatv("  {0} near tie(s)", launch.nearTies).str();
    if (launch.wrongRows)
      text += llvm::formatv("  {0} row(s) with wrong experts", launch.wrongRows).str();
    text += launch.passes() ? "\n" : "  FAILS " + launch.difference + "\n";
  }
  text += llvm::formatv("  {0,-37}{1}\n  {2,-37}{3}\n", "largest", cells(largest()),
                        "largest root mean square over steps", cells(overSteps()))
              .str();
  LaunchReport allowed;
  for (const Measure &measure : kMeasures)
    allowed.*measure.error = measure.tolerance;
  return text + llvm::formatv("  {0,-37}{1}\n", "allowed", cells(allowed)).str();
}

} // namespace megalith::check
