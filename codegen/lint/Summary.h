//===- Summary.h - What a function of PTX does about memory order -*- C++ -*-===//
#ifndef MEGALITH_CODEGEN_LINT_SUMMARY_H
#define MEGALITH_CODEGEN_LINT_SUMMARY_H

#include "codegen/lint/Ptx.h"

#include "llvm/ADT/StringMap.h"

#include <string>
#include <vector>

namespace megalith::lint {

/// Whether an instruction orders memory, goes by the async proxy or synchronises with others than
/// the warp. Weak loads and stores, hints and barriers of warps of the CTA do not.
bool isStrong(llvm::StringRef opcode);

/// A function as a call of it looks from outside.
struct Summary {
  std::vector<std::string> strong; ///< opcodes, each once
  std::vector<std::string> always; ///< those of them on every way to its return
  bool hasMarks = false;
  bool isNoReturn = false; ///< it reports a fault and ends the kernel
  /// Which of its arguments are edges that a missed deadline may name.
  std::vector<int> edgeParameters;
};

class Summaries {
public:
  explicit Summaries(llvm::ArrayRef<Function> functions) : functions(functions) {}
  /// Of the function of that name; an empty one if the module does not define it.
  const Summary &of(llvm::StringRef name);

private:
  Summary make(const Function &function);

  llvm::ArrayRef<Function> functions;
  llvm::StringMap<Summary> known;
};

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_SUMMARY_H
