//===- Compile.h - From kernels to an artifact on disk -----------*- C++ -*-===//
//
// Writes what DESIGN section 2.5 lists: sources, cubins, plan.json, build.log, IR. All of it or
// nothing: files appear in a folder beside the final one, which is then renamed.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_COMPILE_H
#define MEGALITH_CODEGEN_COMPILE_H

#include "codegen/Emitter.h"
#include "codegen/PlanBuilder.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace megalith {

struct CompileOptions {
  std::string outDir; ///< the artifact is `<outDir>/<target>/` and runtime::artifactName
  EmitOptions emit;   ///< what banners say
  bool cubins = true; ///< false: no NVRTC; the plan then has no cubins and no resources
  bool cache = false; ///< take cubins from the user's cache and keep them there (kernel_cache.h)
  /// Told at the start of each piece of work: "print", "nvrtc", "write".
  std::function<void(llvm::StringRef)> progress;
  /// (pass, IR after it), in order, saved as ir/NN-<pass>.mlir. None: no folder ir.
  std::vector<std::pair<std::string, std::string>> snapshots;
  /// (name, text) of further files.
  std::vector<std::pair<std::string, std::string>> files;
  /// The same of the plan as it is written, with resources.
  std::function<std::vector<std::pair<std::string, std::string>>(const runtime::Plan &)> filesOf;
};

struct Artifact {
  std::string folder; ///< `<outDir>/<target>/rows<N>`, or `…-per-stage`
  runtime::Plan plan; ///< as written, with resources
};

/// Kernels as text, and what the runtime must know of them.
struct PrintedKernels {
  runtime::Plan plan;               ///< without cubins and resources
  std::vector<std::string> sources; ///< in the order of plan.kernels
};

/// Emits the role-level kernels of `module` without writing anything; otherwise as compileKernels.
llvm::Expected<PrintedKernels> printKernels(mlir::ModuleOp module, const ModelFacts &facts,
                                            const EmitOptions &options);

/// Emits, compiles and writes the role-level kernels of `module`, which are of one target, SM count
/// and rows bucket. The module's attribute `megalith.launches` names the kernel of each launch;
/// without it each kernel is launched once, in order. An artifact that is there already is
/// replaced as a whole. The error is one line, or has the compiler's first lines below it; nothing
/// is left on disk then.
llvm::Expected<Artifact> compileKernels(mlir::ModuleOp module, const ModelFacts &facts,
                                        const CompileOptions &options);

} // namespace megalith

#endif // MEGALITH_CODEGEN_COMPILE_H
