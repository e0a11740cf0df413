//===- Builtin.h - the cost tables that the program carries ------*- C++ -*-===//
#ifndef MEGALITH_PASSES_COSTS_BUILTIN_H
#define MEGALITH_PASSES_COSTS_BUILTIN_H

#include "passes/costs/CostTable.h"

#include <map>

namespace megalith::costs {

/// Path in the repository -> text of every table of passes/costs.
const std::map<llvm::StringRef, llvm::StringRef> &builtinTables();

/// The table of `target`, "sm_90a". The error names the targets that have one.
llvm::Expected<CostTable> builtinCostTable(llvm::StringRef target);

} // namespace megalith::costs

#endif // MEGALITH_PASSES_COSTS_BUILTIN_H
