//===- Verification.h - kernels from text, to be proved ---------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_VERIFICATION_H
#define MEGALITH_TOOLS_MEGALITH_VERIFICATION_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/SourceMgr.h"

namespace megalith::cli {

/// Parses a module and checks that it holds kernels, all with role regions. `file` is the text's
/// name. What the parser says goes to the context's diagnostics; the error is one line then, too.
/// With `sources`, which gets the text, a diagnostic handler can quote lines.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> parseKernels(mlir::MLIRContext &context,
                                                               llvm::StringRef text,
                                                               llvm::StringRef file,
                                                               llvm::SourceMgr *sources = nullptr);

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_VERIFICATION_H
