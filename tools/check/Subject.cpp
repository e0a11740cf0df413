//===- Subject.cpp - A model compiled to be checked -----------------------===//

#include "tools/check/Subject.h"

#include "codegen/Compile.h"
#include "passes/Pipelines.h"
#include "passes/graph/GraphPasses.h"
#include "passes/verify/Verify.h"
#include "runtime/error.h"

#include "mlir/IR/Diagnostics.h"

namespace megalith::check {

using llvm::Error;
using llvm::Expected;

/// Runs `work` and makes an error of the first diagnostic if it fails.
template <class Work>
static Error explain(mlir::MLIRContext &context, llvm::StringRef what, Work &&work) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && message.empty())
      message = diagnostic.str();
    return mlir::success();
  });
  if (mlir::succeeded(work()))
    return Error::success();
  return runtime::problem("{0}: {1}", what, message);
}

/// What the passes call it.
static LaunchMode passesMode(runtime::LaunchMode mode) {
  switch (mode) {
  case runtime::LaunchMode::Fused:
    return LaunchMode::Fused;
  case runtime::LaunchMode::PerStage:
    return LaunchMode::PerStage;
  case runtime::LaunchMode::Step:
    return LaunchMode::Step;
  }
  return LaunchMode::Fused;
}

Expected<std::unique_ptr<Subject>> compileSubject(const SubjectOptions &options) {
  auto subject = std::make_unique<Subject>();
  auto graph = models::importConfig(subject->context, options.config, options.name,
                                    {.rows = options.rows, .quantization = options.quantization});
  if (!graph)
    return graph.takeError();
  subject->graph = std::move(*graph);
  // Before reference and kernels part: whether scores are bounded decides how probabilities round.
  mlir::PassManager bounds(&subject->context);
  bounds.addPass(createBoundScores());
  if (mlir::failed(bounds.run(*subject->graph)))
    return llvm::createStringError(options.name + ": moe-bound-scores fails on the imported graph");
  subject->kernels = subject->graph->clone();
  mlir::ModuleOp kernels = *subject->kernels;
  const ModelFacts facts = collectFacts(kernels, options.name);
  for (auto &pass : pipelinePasses({.target = options.target,
                    .sms = options.sms,
                    .launch = passesMode(options.launch),
                    .ranks = options.tp,
                    .rankExperts = options.tpExperts,
                    .rankOutput = options.tpOutput,
                    .rankSums = options.tpSums})) {
    const std::string name = pass->getArgument().str();
    mlir::PassManager manager(&subject->context);
    addTo(manager, std::move(pass));
    if (Error error = explain(subject->context, name, [&] { return manager.run(kernels); }))
      return error;
  }
  if (options.prove)
    if (Error error =
            explain(subject->context, "task-verify", [&] { return verify::verifyPlan(kernels); }))
      return error;
  CompileOptions compile;
  compile.outDir = options.outDir;
  compile.cubins = options.cubins;
  compile.emit.origin = options.name;
  auto artifact = compileKernels(kernels, facts, compile);
  if (!artifact)
    return artifact.takeError();
  subject->plan = std::move(artifact->plan);
  subject->folder = std::move(artifact->folder);
  return subject;
}

} // namespace megalith::check
