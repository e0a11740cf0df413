//===- Compilation.cpp - from a config to an artifact -----------------------===//

#include "tools/megalith/Compilation.h"

#include "models/Import.h"
#include "passes/Pipelines.h"
#include "passes/verify/Verify.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/Failure.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace megalith::cli {

static constexpr StringRef kTargets[] = {"sm_90a", "sm_100a"};
static constexpr StringRef kRowsBuckets[] = {"1", "2", "4", "8"};

ArrayRef<StringRef> targets() {
  return kTargets;
}

ArrayRef<StringRef> rowsBuckets() {
  return kRowsBuckets;
}

int64_t defaultSms(StringRef target) {
  return target == "sm_90a" ? 132 : 148;
}

Compilation::Compilation(CompileRequest request, Progress progress)
    : request(std::move(request)), progress(std::move(progress)) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
}

Expected<std::unique_ptr<Compilation>> Compilation::create(CompileRequest request,
                                                           Progress progress) {
  std::unique_ptr<Compilation> compilation(
      new Compilation(std::move(request), std::move(progress)));
  if (Error error = compilation->import())
    return error;
  if (Error error = compilation->runPasses())
    return error;
  if (Error error = compilation->prove())
    return error;
  return compilation;
}

std::string Compilation::printed(bool locations) const {
  std::string text;
  raw_string_ostream os(text);
  mlir::ModuleOp(*module).print(os, mlir::OpPrintingFlags().enableDebugInfo(locations));
  os << "\n";
  return text;
}

Error Compilation::import() {
  progress("import");
  auto imported =
      models::importConfig(context, request.config, request.source, {.rows = request.rows});
  if (!imported)
    return with(Exit::Input, imported.takeError());
  module = std::move(*imported);
  facts = collectFacts(*module, sys::path::stem(request.source));
  (*module)->setAttr("megalith.model", mlir::StringAttr::get(&context, facts.model));
  options.files.emplace_back(kModelFile, printed());
  return Error::success();
}

/// Pass by pass, so that the IR after each can be saved as a whole module.
Error Compilation::runPasses() {
  std::vector<std::string> names;
  for (auto &pass : pipelinePasses({.target = request.target, .sms = request.sms})) {
    const std::string name = pass->getArgument().str();
    progress(name);
    mlir::PassManager manager(&context);
    addTo(manager, std::move(pass));
    // The first error is the message; what follows from it is noise.
    std::string message;
    mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && message.empty())
        message = diagnostic.str();
      return mlir::success();
    });
    const bool failed = mlir::failed(manager.run(*module));
    // Without the operation's name that MLIR puts in front.
    if (StringRef(message).starts_with("'"))
      message = StringRef(message).split("' op ").second.str();
    if (failed)
      return failure(Exit::Input, "{0}: rows {1}, {2}: {3} ({4})", request.source, request.rows,
                     request.target, message, name);
    names.push_back(name);
    if (request.saveIr)
      options.snapshots.emplace_back(name, printed());
  }
  options.emit.pipeline = join(names, ",");
  options.files.emplace_back(kKernelsFile, printed(/*locations=*/true));
  return Error::success();
}

Error Compilation::prove() {
  progress("proof");
  // Diagnostics go to stderr whole: they name both sides of a missing edge.
  if (mlir::failed(verify::verifyPlan(*module)))
    return failure(Exit::Proof,
                   "{0}: rows {1}, {2}: not proved, for the reasons above; please report this as a "
                   "fault of the compiler",
                   request.source, request.rows, request.target);
  return Error::success();
}

Expected<Artifact> Compilation::write(StringRef outDir) {
  progress(request.cubins ? "print, nvrtc" : "print");
  options.outDir = outDir.str();
  options.cubins = request.cubins;
  options.emit.origin = sys::path::filename(request.source).str();
  options.emit.regenerate = formatv("megalith compile {0} --target {1} --rows {2} --sms {3} -o out",
                                    options.emit.origin, request.target, request.rows, request.sms);
  Expected<Artifact> artifact = compileKernels(*module, facts, options);
  if (!artifact)
    return with(Exit::Run, artifact.takeError());
  return artifact;
}

} // namespace megalith::cli
