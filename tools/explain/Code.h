//===- Code.h - whose code a kernel's bytes are ------------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_EXPLAIN_CODE_H
#define MEGALITH_TOOLS_EXPLAIN_CODE_H

#include "runtime/code_lines.h"
#include "tools/explain/Facts.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <vector>

namespace megalith::explain {

/// Adds up lines of an emitted kernel's `source` by role and stage, in the order of the source:
/// codegen/Regions.cpp writes a function a role and a comment a stage. Code outside the roles comes
/// first, without either; then functions that are called, as role "called".
std::vector<CodeFacts> codeFacts(llvm::StringRef source, llvm::ArrayRef<runtime::CodeLine> lines);

} // namespace megalith::explain

#endif // MEGALITH_TOOLS_EXPLAIN_CODE_H
