//===- Values.h - What launches leave ----------------------------*- C++ -*-===//
//
// Taken from a backend while a step runs, compared at once or, from a file, on another machine:
// a GPU's time is dear, the reference needs none of it.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_CHECK_VALUES_H
#define MEGALITH_TOOLS_CHECK_VALUES_H

#include "models/reference/experts.h"
#include "models/reference/matrix.h"

#include "llvm/Support/Error.h"

#include <vector>

namespace megalith::check {

/// What one launch left for others to read, in one step; rows that are dead are zero. Not there
/// (no rows): what the launch does not compute.
struct LaunchValues {
  reference::Matrix residual;     ///< [R, H]
  reference::Matrix result;       ///< projections for the next layer [R, …] or logits [R, vocab]
  reference::Matrix routerLogits; ///< [R, E]
  reference::Matrix kv;           ///< keys, then values, of the new positions [R, 2 * heads * dim]
  /// What top-k makes of the router logits: ids [R * k], weights [R, k]. Made by a comparison.
  reference::Routing routing;
};

/// Launches in order, of all steps.
llvm::Error writeValues(llvm::StringRef file, const std::vector<LaunchValues> &launches);
/// Exactly what was written, but for the routing.
llvm::Expected<std::vector<LaunchValues>> readValues(llvm::StringRef file);

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_VALUES_H
