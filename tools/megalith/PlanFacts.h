//===- PlanFacts.h - what explain and report know of an artifact -*- C++ -*-===//
#ifndef MEGALITH_TOOLS_MEGALITH_PLANFACTS_H
#define MEGALITH_TOOLS_MEGALITH_PLANFACTS_H

#include "tools/explain/Facts.h"
#include "tools/megalith/Arguments.h"

#include "llvm/Support/Error.h"

#include <string>

namespace megalith::cli {

/// Options that readFacts takes, for a command's table.
inline constexpr Option kContextOption = {"context", "<n>",
                                          "positions that each row's sequence has already (8192, "
                                          "or as many as the plan has)"};
inline constexpr Option kExpertsOption = {
    "experts", "<n>", "different experts that a layer's rows choose (as chance has it)"};
inline constexpr Option kCostsOption = {
    "costs", "<file>", "table of megalith calibrate (the program's own for the target)"};

inline constexpr Option kCodeOption = {
    "code", "", "bytes of code of each role and stage: compiles again with line numbers"};

/// Positions where a command is told nothing else: 8192, or as many as a row of the plan can have
/// already.
int64_t usualContext(const runtime::Plan &plan);

/// With the program's own table of costs, if the target has one, at the usual context.
explain::Facts factsOf(mlir::ModuleOp module, const runtime::Plan &plan);

struct PlanFacts {
  std::string folder; ///< of the artifact
  explain::Facts facts;
};

/// Of the artifact that the arguments name, by its folder or its plan.json. A target without a
/// table of costs has no times; --costs must be of the target. Refuses a plan that is not its
/// kernels', and a context and experts that it cannot have.
llvm::Expected<PlanFacts> readFacts(const Arguments &arguments);

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_PLANFACTS_H
