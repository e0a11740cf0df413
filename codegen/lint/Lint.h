//===- Lint.h - PTX against role regions -------------------------*- C++ -*-===//
//
// What was proved are role regions; what runs is what NVRTC made of the source printed from them.
// The lint closes the gap as far as PTX: every step that synchronises stands there between its
// marks, with the instruction that the table of memory orders asks for (passes/verify/MemoryOrder),
// in an order that the role regions allow, and nothing else synchronises. README.md says what is
// relied on behind that.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_LINT_LINT_H
#define MEGALITH_CODEGEN_LINT_LINT_H

#include "ir/task/Task.h"

#include <string>
#include <vector>

namespace megalith::lint {

/// One thing that is wrong: "line 861: wait @p_full acquire.cta: expected … but got …; to mend: …".
struct Finding {
  int line; ///< of the PTX; 0 where something is missing altogether
  std::string text;
};

/// What is wrong with a kernel's PTX, in the order of lines; nothing if it is what its role regions
/// say. `kernel` is at role level.
std::vector<Finding> lint(task::KernelOp kernel, llvm::StringRef ptx);

/// The same for a kernel without role regions (`advance`): it synchronises with the launch before
/// only, and stores nothing until then. `name` is its entry.
std::vector<Finding> lintAlone(llvm::StringRef name, llvm::StringRef ptx);

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_LINT_H
