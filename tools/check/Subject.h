//===- Subject.h - A model compiled to be checked ----------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_CHECK_SUBJECT_H
#define MEGALITH_TOOLS_CHECK_SUBJECT_H

#include "models/Import.h"
#include "runtime/plan.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace megalith::check {

struct SubjectOptions {
  std::string config; ///< text of a config.json
  std::string name;   ///< the config's, for messages
  std::string target = "sm_90a";
  int64_t rows = 1;
  int64_t sms = 4;
  runtime::LaunchMode launch = runtime::LaunchMode::Fused;
  int64_t tp = 1;
  std::string tpExperts = "auto", tpOutput = "auto", tpSums = "f32"; ///< words of task-split-ranks
  models::Quantization quantization = {};
  bool cubins = false; ///< compile with NVRTC too
  bool prove = true;   ///< run task-verify on the role regions
  std::string outDir;  ///< the artifact is written to `<outDir>/<target>/`, runtime::artifactName
};

/// A model's graph and what the compiler made of it.
struct Subject {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> graph;   ///< in the moe dialect, as imported
  mlir::OwningOpRef<mlir::ModuleOp> kernels; ///< role regions
  runtime::Plan plan;
  std::string folder; ///< of the artifact
};

/// Imports, runs every pass, proves and writes the artifact. The error is the first that a pass
/// reports.
llvm::Expected<std::unique_ptr<Subject>> compileSubject(const SubjectOptions &options);

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_SUBJECT_H
