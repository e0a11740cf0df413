//===- ArtifactPlan.h - an artifact's plan against its kernels and model ----===//
#ifndef MEGALITH_TOOLS_MEGALITH_ARTIFACTPLAN_H
#define MEGALITH_TOOLS_MEGALITH_ARTIFACTPLAN_H

#include "codegen/Compile.h"
#include "tools/megalith/Failure.h"

#include "mlir/IR/BuiltinOps.h"

namespace megalith::cli {

/// What an artifact's plan and sources should be, from its kernels (kernels.mlir) and its model
/// (model.mlir).
llvm::Expected<PrintedKernels> printArtifact(mlir::ModuleOp kernels, mlir::ModuleOp model);

/// The same with the model that lies in the artifact's folder.
llvm::Expected<PrintedKernels> printArtifact(mlir::ModuleOp kernels, llvm::StringRef folder);

/// That `plan`, which `file` holds, says of the kernels what they and the model say. Only what a
/// compiler reported of them is taken as it is. The error, of kind `exit`, names the first line
/// that differs.
llvm::Error checkPlan(const runtime::Plan &plan, runtime::Plan expected, llvm::StringRef file,
                      Exit exit);

/// That the plan of the artifact in `folder` is what its kernels, parsed already, and the model
/// beside them make it: an edited or mixed one is refused before anything is told of it.
llvm::Error checkArtifact(const runtime::Plan &plan, mlir::ModuleOp kernels,
                          llvm::StringRef folder);

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_ARTIFACTPLAN_H
