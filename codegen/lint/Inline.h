//===- Inline.h - Marks of outlined functions where they are called -*- C++ -*-===//
#ifndef MEGALITH_CODEGEN_LINT_INLINE_H
#define MEGALITH_CODEGEN_LINT_INLINE_H

#include "codegen/lint/Summary.h"

namespace megalith::lint {

/// `caller` with a copy of each called function that holds marks in the call's place, and of those
/// that it calls: the lint then sees each mark as often as roles may pass it, and behind what. What
/// a copy does with a parameter it does with the argument.
Function withMarksInlined(Function caller, llvm::ArrayRef<Function> functions,
                          Summaries &summaries);

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_INLINE_H
