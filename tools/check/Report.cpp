//===- Report.cpp - A plan's launches against the reference ---------------===//

#include "tools/check/Report.h"

#include "models/reference/compare.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace megalith::check {

using reference::kLayerTolerance;
using reference::kLogitsTolerance;

bool LaunchReport::passes() const {
  const auto within = [](std::optional<double> error, double tolerance) {
    return !error || *error <= tolerance; // false for a NaN
  };
  return within(residual, kLayerTolerance) && within(router, kLayerTolerance) &&
         within(kv, kLayerTolerance) && within(qkv, kLayerTolerance) &&
         within(head, kLayerTolerance) && within(whole, kLogitsTolerance) && wrongRows == 0 &&
         difference.empty();
}

bool Report::passes() const {
  return !launches.empty() &&
         llvm::all_of(launches, [](const LaunchReport &launch) { return launch.passes(); });
}

LaunchReport Report::largest() const {
  LaunchReport most;
  for (const LaunchReport &launch : launches) {
    for (auto error : {&LaunchReport::residual, &LaunchReport::router, &LaunchReport::kv,
                       &LaunchReport::qkv, &LaunchReport::head, &LaunchReport::whole})
      most.*error = std::max(most.*error, launch.*error);
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
  return text + llvm::formatv("  {0,-37}{1}\n  {2,-37}{3,10}{3,10}{3,10}{3,10}{3,10}{4,10}\n",
                              "largest", cells(largest()), "allowed", number(kLayerTolerance),
                              number(kLogitsTolerance))
                    .str();
}

} // namespace megalith::check
