//===- Compilation.h - from a config to an artifact -------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_COMPILATION_H
#define MEGALITH_TOOLS_MEGALITH_COMPILATION_H

#include "codegen/Compile.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace megalith::cli {

// Files that an artifact has beside those of codegen/Compile.h.
inline constexpr llvm::StringLiteral kPlanFile = "plan.json";
/// The graph that was compiled, in the moe dialect: what results are compared with.
inline constexpr llvm::StringLiteral kModelFile = "model.mlir";
/// The role regions that were proved and printed, with the locations that sources name.
inline constexpr llvm::StringLiteral kKernelsFile = "kernels.mlir";

struct CompileRequest {
  std::string config; ///< text
  std::string source; ///< its file, for messages
  std::string target; ///< "sm_90a"
  int64_t rows = 1;
  int64_t sms = 0;
  bool saveIr = false;
  bool cubins = true; ///< compile the sources with NVRTC
};

/// Told at the start of each piece of work: "task-plan-memory".
using Progress = std::function<void(llvm::StringRef)>;

/// A config on its way to one artifact. Errors carry exit codes.
class Compilation {
public:
  /// Imports, runs the passes and proves the kernels; writes nothing.
  static llvm::Expected<std::unique_ptr<Compilation>> create(CompileRequest request,
                                                             Progress progress);

  /// Writes `outDir`/<target>/rows<n>, whole or not at all.
  llvm::Expected<Artifact> write(llvm::StringRef outDir);

private:
  Compilation(CompileRequest request, Progress progress);
  llvm::Error import();
  llvm::Error runPasses();
  llvm::Error prove();
  std::string printed(bool locations = false) const;

  CompileRequest request;
  Progress progress;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  ModelFacts facts;
  CompileOptions options;
};

/// SMs of a target's usual GPU: 132 for sm_90a (H100 and H200, SXM), 148 for sm_100a (B200).
int64_t defaultSms(llvm::StringRef target);

/// What --target and --rows take. A fragment of the kernels' matrix products has room for 8 rows.
llvm::ArrayRef<llvm::StringRef> targets();
llvm::ArrayRef<llvm::StringRef> rowsBuckets();

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_COMPILATION_H
