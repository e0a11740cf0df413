//===- PtxLint.h - what NVRTC makes of kernels, against their role regions --===//
#ifndef MEGALITH_TOOLS_MEGALITH_PTXLINT_H
#define MEGALITH_TOOLS_MEGALITH_PTXLINT_H

#include "codegen/Compile.h"
#include "runtime/nvrtc.h"

#include "llvm/Support/Error.h"

namespace megalith::cli {

/// A kernel's source to be linted.
struct LintedSource {
  std::string name, source;
  task::KernelOp kernel; ///< null: it has no role regions
};

/// Compiles each source to PTX and lints it (codegen/lint). Findings go to stderr, by kernel and
/// line; the error is one line then. With `folder` the PTX is left there, as <kernel>.ptx.
llvm::Error lintSources(const runtime::Nvrtc &nvrtc, llvm::ArrayRef<LintedSource> sources,
                        llvm::StringRef target, llvm::StringRef folder = "");

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_PTXLINT_H
