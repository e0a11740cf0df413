//===- Verification.h - kernels from text, to be proved ---------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_VERIFICATION_H
#define MEGALITH_TOOLS_MEGALITH_VERIFICATION_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/SourceMgr.h"

namespace megalith::cli {

/// Where parsed ops say that they are.
enum class Places {
  Written, ///< where loc(...) behind them says: an artifact's name the config
  Text,    ///< where they stand in the text, which whoever reads of a fault looks at
};

/// Parses a module and checks that it holds kernels, all with role regions. `file` is the text's
/// name. What the parser says goes to the context's diagnostics; the error is one line then, too.
/// With `sources`, which gets the text, a diagnostic handler can quote lines.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
parseKernels(mlir::MLIRContext &context, llvm::StringRef text, llvm::StringRef file,
             llvm::SourceMgr *sources = nullptr, Places places = Places::Written);

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_VERIFICATION_H
