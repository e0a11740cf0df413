//===- Calibrate.h - Measuring a target's cost table -------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CALIBRATE_CALIBRATE_H
#define MEGALITH_TOOLS_CALIBRATE_CALIBRATE_H

#include "passes/costs/CostTable.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <functional>
#include <string>
#include <vector>

namespace megalith::calibrate {

struct Options {
  std::string target = "sm_90a";
  int ordinal = 0;
  std::string only; ///< measure only costs whose name begins so; "" for all
};

struct Failure {
  std::string name; ///< the measure's first cost
  std::string reason;
};

struct Result {
  costs::CostTable table;
  /// The measures that failed; their costs are in the table without a value.
  std::vector<Failure> failures;
};

/// Runs the calibration program on a GPU. Fails if there is none, or its kernels do not compile;
/// what fails later is in the result. `progress` gets a line now and then.
llvm::Expected<Result> calibrate(const Options &options,
                                 const std::function<void(llvm::StringRef)> &progress);

} // namespace megalith::calibrate

#endif // MEGALITH_TOOLS_CALIBRATE_CALIBRATE_H
