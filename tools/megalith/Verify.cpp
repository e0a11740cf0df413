//===- Verify.cpp - megalith verify -----------------------------------------===//

#include "passes/verify/Verify.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Compilation.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/Verification.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"

using namespace llvm;

namespace megalith::cli {

/// A source without its banner, which says where it comes from.
static StringRef body(StringRef source) {
  while (source.starts_with("//"))
    source = source.split('\n').second;
  return source;
}

/// That an artifact's sources are what the kernels that were proved print as; with them that of the
/// kernel between steps, which has no role regions.
static Error checkSources(mlir::ModuleOp module, StringRef folder) {
  SmallString<128> modelFile(folder);
  sys::path::append(modelFile, kModelFile);
  Expected<std::string> text = readText(modelFile, "the model's graph");
  if (!text)
    return text.takeError();
  auto model = mlir::parseSourceString<mlir::ModuleOp>(*text, module.getContext(), modelFile);
  if (!model)
    return failure(Exit::Input, "{0}: expected valid moe IR but got the errors above", modelFile);
  auto printed = printKernels(module, collectFacts(*model, sys::path::filename(folder)), {});
  if (!printed)
    return with(Exit::Proof, printed.takeError());
  for (const auto &[kernel, expected] : zip_equal(printed->plan.kernels, printed->sources)) {
    SmallString<128> file(folder);
    sys::path::append(file, kernel.file);
    Expected<std::string> source = readText(file, "a kernel's source");
    if (!source)
      return source.takeError();
    if (body(*source) != body(expected))
      return failure(
          Exit::Proof,
          "{0}: expected the source that {1} prints as but got another one, which is not "
          "proved; compile again",
          file, kKernelsFile);
  }
  return Error::success();
}

static Error runVerify(const Arguments &arguments) {
  Expected<int64_t> cases = arguments.integer("cases", 0, 10000, 8);
  if (!cases)
    return cases.takeError();
  StringRef given = arguments.positional();
  const bool isArtifact = sys::fs::is_directory(given);
  SmallString<128> file(given);
  if (isArtifact)
    sys::path::append(file, kKernelsFile);
  Expected<std::string> text =
      readText(file, "a .mlir file with kernels of the task dialect, or the folder of an artifact");
  if (!text)
    return text.takeError();

  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  SourceMgr sources;
  // Diagnostics keep their notes: they name both sides of a missing edge.
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  auto module = parseKernels(context, *text, file, &sources);
  if (!module)
    return module.takeError();
  if (mlir::failed(verify::verifyPlan(**module, int(*cases))))
    return failure(Exit::Proof, "{0}: not proved, for the reasons above", file);
  if (isArtifact)
    if (Error error = checkSources(**module, given))
      return error;
  const auto kernels = range_size((*module)->getOps<task::KernelOp>());
  return writeText("", formatv("{0}: proved: {1} kernel{2} without deadlock or race{3}\n", given,
                               kernels, kernels == 1 ? "" : "s",
                               isArtifact ? ", and the sources are theirs" : "")
                           .str());
}

static constexpr Option kOptions[] = {
    {"cases", "<n>", "random cases beside the largest one, per kernel (8)"},
};

const Command kVerify = {
    {"verify", "prove that kernels neither deadlock nor race", "<file.mlir | folder>",
     "kernels with role regions, or <target>/rows<n> of megalith compile's output", kOptions,
     "megalith verify tests/ir/task/m0.mlir"},
    runVerify,
};

} // namespace megalith::cli
