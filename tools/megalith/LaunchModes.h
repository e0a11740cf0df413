//===- LaunchModes.h - what --launch and --scope say ------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_LAUNCHMODES_H
#define MEGALITH_TOOLS_MEGALITH_LAUNCHMODES_H

#include "runtime/plan.h"
#include "tools/megalith/Arguments.h"

#include <vector>

namespace megalith::cli {

/// The plans that --launch (fused, per-stage) and --scope (layer, step) ask for, in this order;
/// fused if neither is given. --scope step alone asks for no other.
llvm::Expected<std::vector<runtime::LaunchMode>> launchModes(const Arguments &arguments);

/// The options that compile such a plan: "", " --launch per-stage", " --scope step".
std::string optionOf(runtime::LaunchMode mode);

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_LAUNCHMODES_H
