//===- Compilation.h - from a config to an artifact -------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_COMPILATION_H
#define MEGALITH_TOOLS_MEGALITH_COMPILATION_H

#include "codegen/Compile.h"
#include "models/Import.h"
#include "passes/Pipelines.h"
#include "tools/megalith/Arguments.h"

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
/// What megalith report writes, without timelines; of megalith compile only.
inline constexpr llvm::StringLiteral kReportFile = "report.html";

struct CompileRequest {
  std::string config; ///< text
  std::string source; ///< its file, for messages
  models::Quantization quantization = {};
  std::string target; ///< "sm_90a"
  int64_t rows = 1;
  int64_t sms = 0;
  runtime::LaunchMode launch = runtime::LaunchMode::Fused;
  bool saveIr = false; ///< write the IR after each pass too
  bool cubins = true;  ///< compile the sources with NVRTC
  bool cache = false;  ///< take proofs and cubins from the user's cache and keep them there
  bool trace = false;  ///< kernels record what their warps do
  int64_t tp = 1;      ///< ranks
  /// How ranks divide experts and the matrix behind attention, and the type of parts of sums: words
  /// of task-split-ranks.
  std::string tpExperts = "auto", tpOutput = "auto", tpSums = "f32";
  /// Positions of a sequence, where the config's max_position_embeddings are fewer.
  int64_t leastContext = 0;
  bool prove = true; ///< false: the caller proves kernels() itself
};

/// Told at the start of each piece of work: "task-plan-memory".
using Progress = std::function<void(llvm::StringRef)>;

/// A config on its way to one artifact. Errors carry exit codes.
class Compilation {
public:
  /// Imports, runs the passes and proves the kernels; writes nothing.
  static llvm::Expected<std::unique_ptr<Compilation>> create(CompileRequest request,
                                                             Progress progress);

  /// Writes `outDir`/<target>/rows<n>, or rows<n>-step, whole or not at all.
  llvm::Expected<Artifact> write(llvm::StringRef outDir) {
    return write(outDir, request.cubins, request.saveIr);
  }
  llvm::Expected<Artifact> write(llvm::StringRef outDir, bool cubins, bool saveIr);

  /// The sources and the plan that `write` would write, without cubins. `digests`: as in
  /// EmitOptions.
  llvm::Expected<PrintedKernels> print(bool digests = true) const;

  /// Of the plan as it is written, (name, text) of files to write beside it.
  void setFilesOf(decltype(CompileOptions::filesOf) files) { options.filesOf = std::move(files); }

  const CompileRequest &getRequest() const { return request; }
  mlir::MLIRContext &getContext() { return context; }
  mlir::ModuleOp graph() const { return *imported; } ///< in the moe dialect, as imported
  mlir::ModuleOp kernels() const { return *module; } ///< role regions
  /// (pass, IR after it), in order.
  llvm::ArrayRef<std::pair<std::string, std::string>> snapshots() const { return afterPass; }
  /// The graph's text: model.mlir.
  llvm::StringRef graphText() const { return options.files.front().second; }

private:
  Compilation(CompileRequest request, Progress progress);
  llvm::Error import();
  llvm::Error runPasses();
  llvm::Error prove();
  std::string printed(bool locations = false) const;

  CompileRequest request;
  Progress progress;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> imported, module;
  std::vector<std::pair<std::string, std::string>> afterPass;
  ModelFacts facts;
  CompileOptions options;
};

/// Whether the artifact's place below `outDir` can be written and holds nothing but an earlier
/// artifact, to be asked before the work.
llvm::Error checkPlace(llvm::StringRef outDir, const CompileRequest &request);

/// SMs of a target's usual GPU: 132 for sm_90a (H100 and H200, SXM), 148 for sm_100a (B200).
int64_t defaultSms(llvm::StringRef target);

/// What --target and --rows take. Kernels have one or two column tiles of 8 rows.
llvm::ArrayRef<llvm::StringRef> targets();
llvm::ArrayRef<llvm::StringRef> rowsBuckets();
/// --tp, --tp-experts, --tp-o-proj and --tp-sums.
struct RankChoices {
  int64_t count;
  std::string experts, output, sums;
};
llvm::Expected<RankChoices> readRanks(const Arguments &arguments);
/// One of these as a number.
int64_t countOf(llvm::StringRef choice);

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_COMPILATION_H
