//===- Prediction.h - a plan's predicted timeline ----------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_MEGALITH_PREDICTION_H
#define MEGALITH_TOOLS_MEGALITH_PREDICTION_H

#include "tools/megalith/Arguments.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>

namespace megalith::cli {

/// What `megalith simulate --json` writes of the artifact in `folder`, each row with `context`
/// positions, by the table of --costs or the program's own. Errors: a plan of one launch a step, a
/// target without a table, a table without a cost.
llvm::Expected<std::string> predictedTimeline(llvm::StringRef folder, int64_t context,
                                              const Arguments &arguments);

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_PREDICTION_H
