//===- code_lines.h - Which source lines a cubin's code is from --*- C++ -*-===//
//
// A cubin compiled with --generate-line-info has a DWARF line table. NVRTC adds to its rows where
// their code was inlined (extended opcode 0x90: the row of the call), so that every instruction
// leads back to a line of the kernel's own source.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CODE_LINES_H
#define MEGALITH_RUNTIME_CODE_LINES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <vector>

namespace megalith::runtime {

/// A stretch of a kernel's code.
struct CodeLine {
  int64_t offset = 0, bytes = 0; ///< in the kernel's code
  /// Of the kernel's source: the code's own, or that of the call that was inlined there. 0: of a
  /// function that is called.
  int64_t line = 0;

  bool operator==(const CodeLine &) const = default;
};

/// Of a cubin that holds one kernel, compiled from `source` ("layer.cu", NVRTC's name of it), in
/// order of offset, without gaps. Errors: no such cubin, no line table, or a damaged one.
llvm::Expected<std::vector<CodeLine>> readCodeLines(llvm::StringRef cubin, llvm::StringRef source);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_CODE_LINES_H
