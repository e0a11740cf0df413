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

/// What a measure may be: what the contract leaves open counts too.
static double allowed(const LaunchReport &report, const Measure &measure) {
  std::optional<double> open;
  if (measure.error == &LaunchReport::whole)
    open = report.open;
  else if (measure.error == &LaunchReport::residual)
    open = report.openResidual;
  return std::max(measure.tolerance, 2 * open.value_or(0));
}

/// Whether every error is within `factor` tolerances; a NaN is not.
static bool within(const LaunchReport &report, double factor) {
  return llvm::all_of(kMeasures, [&](const Measure &measure) {
    const std::optional<double> error = report.*measure.error;
    return !error || *error <= factor * allowed(report, measure);
  });
}

bool LaunchReport::passes() const {
  return within(*this, 2) && wrongRows == 0 && difference.empty();
}

/// The larger of each error.
static void widen(LaunchReport &most, const LaunchReport &launch) {
  for (const Measure &measure : kMeasures)
    if (const std::optional<double> error = launch.*measure.error;
        error && !(error <= most.*measure.error))
      most.*measure.error = error;
  most.open = std::max(most.open, launch.open);
  most.openResidual = std::max(most.openResidual, launch.openResidual);
}

std::vector<LaunchReport> Report::meansOverSteps() const {
  std::map<int64_t, LaunchReport> means; // sums of squares first
  std::map<int64_t, int> steps;
  for (const LaunchReport &launch : launches) {
    LaunchReport &mean = means[launch.launch];
    ++steps[launch.launch];
    for (const Measure &measure : kMeasures)
      if (const std::optional<double> error = launch.*measure.error)
        mean.*measure.error = (mean.*measure.error).value_or(0) + *error * *error;
    mean.open = std::max(mean.open, launch.open);
    mean.openResidual = std::max(mean.openResidual, launch.openResidual);
  }
  std::vector<LaunchReport> result;
  for (auto &[launch, mean] : means) {
    for (const Measure &measure : kMeasures)
      if (std::optional<double> &error = mean.*measure.error)
        error = std::sqrt(*error / steps[launch]);
    result.push_back(mean);
  }
  return result;
}

bool Report::passes() const {
  return !launches.empty() &&
         llvm::all_of(launches, [](const LaunchReport &launch) { return launch.passes(); }) &&
         llvm::all_of(meansOverSteps(), [](const LaunchReport &mean) { return within(mean, 1); });
}

LaunchReport Report::overSteps() const {
  LaunchReport most;
  for (const LaunchReport &mean : meansOverSteps())
    widen(most, mean);
  return most;
}

LaunchReport Report::largest() const {
  LaunchReport most;
  for (const LaunchReport &launch : launches) {
    widen(most, launch);
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
  const bool isWithin =
      llvm::all_of(meansOverSteps(), [](const LaunchReport &launch) { return within(launch, 1); });
  text += llvm::formatv("  {0,-37}{1}\n  {2,-37}{3}{4}\n", "largest", cells(largest()),
                        "largest root mean square over steps", cells(overSteps()),
                        isWithin ? "" : "  FAILS")
              .str();
  LaunchReport most = overSteps(), limits;
  for (const Measure &measure : kMeasures)
    limits.*measure.error = allowed(most, measure);
  text += llvm::formatv("  {0,-37}{1}\n", "allowed", cells(limits)).str();
  if (most.open)
    text += llvm::formatv("  {0,-37}{1,10}{2,50}\n", "open by the contract, largest",
                          number(most.openResidual), number(most.open))
                .str();
  return text;
}

} // namespace megalith::check
