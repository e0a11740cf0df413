//===- Builtin.cpp - the cost tables that the program carries ---------------===//

#include "passes/costs/Builtin.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace megalith::costs {

llvm::Expected<CostTable> builtinCostTable(llvm::StringRef target) {
  std::string there;
  for (const auto &[file, text] : builtinTables()) {
    llvm::Expected<CostTable> table = parseCostTable(text, file);
    if (!table)
      return table.takeError();
    if (table->target == target)
      return table;
    there += (there.empty() ? "" : ", ") + table->target;
  }
  return llvm::createStringError(
      llvm::formatv("no cost table for {0}: expected one of {1}; make one on such a GPU with "
                    "megalith calibrate -o costs.json and give it with --costs",
                    target, there)
          .str());
}

} // namespace megalith::costs
