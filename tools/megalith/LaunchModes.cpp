//===- LaunchModes.cpp - what --launch and --scope say ----------------------===//

#include "tools/megalith/LaunchModes.h"

#include "tools/megalith/Failure.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace megalith::cli {

using runtime::LaunchMode;

Expected<std::vector<LaunchMode>> launchModes(const Arguments &arguments) {
  Expected<std::vector<StringRef>> launches = arguments.choices("launch", {"fused", "per-stage"});
  if (!launches)
    return launches.takeError();
  Expected<std::vector<StringRef>> scopes = arguments.choices("scope", {"layer", "step"});
  if (!scopes)
    return scopes.takeError();
  const bool isStep = is_contained(*scopes, "step");
  if (!launches->empty() && isStep && !is_contained(*scopes, "layer"))
    return failure(Exit::CommandLine,
                   "--launch: expected only where a launch computes a layer or less, but --scope "
                   "says step; leave one of them out, or say --scope layer,step");
  std::vector<LaunchMode> modes;
  for (StringRef launch : *launches)
    modes.push_back(launch == "fused" ? LaunchMode::Fused : LaunchMode::PerStage);
  if (modes.empty() && (!isStep || is_contained(*scopes, "layer")))
    modes.push_back(LaunchMode::Fused);
  if (isStep)
    modes.push_back(LaunchMode::Step);
  return modes;
}

std::string optionOf(LaunchMode mode) {
  switch (mode) {
  case LaunchMode::Fused:
    return "";
  case LaunchMode::PerStage:
    return " --launch per-stage";
  case LaunchMode::Step:
    return " --scope step";
  }
  return "";
}

} // namespace megalith::cli
