//===- Verify.cpp - megalith verify -----------------------------------------===//

#include "passes/verify/Verify.h"
#include "codegen/Emitter.h"
#include "runtime/kernel_cache.h"
#include "runtime/plan.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/ArtifactPlan.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Compilation.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/PtxLint.h"
#include "tools/megalith/Verification.h"

#include "mlir/IR/Diagnostics.h"
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
static Error checkSources(const PrintedKernels &printed, StringRef folder) {
  for (const auto &[kernel, expected] : zip_equal(printed.plan.kernels, printed.sources)) {
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

/// That the cubins are those of the plan's digests. Says what it found.
static Expected<std::string> checkCubins(const runtime::Plan &plan, StringRef folder) {
  size_t compared = 0;
  for (const runtime::Kernel &kernel : plan.kernels) {
    if (kernel.cubin.empty())
      continue;
    SmallString<128> file(folder);
    sys::path::append(file, kernel.cubin);
    Expected<std::string> bytes = readText(file, "a kernel's cubin");
    if (!bytes)
      return bytes.takeError();
    if (kernel.cubinDigest.empty())
      return failure(Exit::Proof,
                     "{0}: expected a digest of it in {1}, as of every cubin, but kernel '{2}' has "
                     "none; compile again",
                     file, kPlanFile, kernel.name);
    if (const std::string digest = runtime::digestOf(*bytes); digest != kernel.cubinDigest)
      return failure(Exit::Proof,
                     "{0}: expected the cubin of kernel '{1}', of digest {2} as {3} says, but got "
                     "{4} bytes of digest {5}; compile again",
                     file, kernel.name, kernel.cubinDigest, kPlanFile, bytes->size(), digest);
    ++compared;
  }
  if (compared == 0)
    return "; no cubins";
  return formatv("; {0} cubin{1} the plan's", compared, compared == 1 ? " is" : "s are").str();
}

/// The lint of what NVRTC makes of the sources, where there is NVRTC. Says what it did.
static Expected<std::string> lintAll(mlir::ModuleOp module, const PrintedKernels *printed,
                                     StringRef folder) {
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc) {
    if (!folder.empty())
      return with(Exit::Run, nvrtc.takeError());
    consumeError(nvrtc.takeError());
    return "; the PTX is not looked at: no NVRTC here";
  }
  std::vector<LintedSource> sources;
  std::string target;
  for (task::KernelOp kernel : module.getOps<task::KernelOp>()) {
    auto source = emitKernel(kernel, {});
    if (mlir::failed(source))
      return failure(Exit::Proof, "@{0} has no source, for the reasons above", kernel.getSymName());
    target = kernel.getTarget().str();
    sources.push_back({kernel.getSymName().str(), std::move(*source), kernel});
  }
  if (printed) // the kernel between steps
    for (const auto &[kernel, source] : zip_equal(printed->plan.kernels, printed->sources))
      if (none_of(sources, [&](const LintedSource &known) { return known.name == kernel.name; }))
        sources.push_back({kernel.name, source, {}});
  if (Error error = lintSources(*nvrtc, sources, target, folder))
    return error;
  return "; each edge stands in their PTX as it was proved";
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
  context.printOpOnDiagnostic(false); // a kernel is hundreds of lines
  SourceMgr sources;
  // Diagnostics keep their notes: they name both sides of a missing edge.
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  auto module = parseKernels(context, *text, file, &sources, Places::Text);
  if (!module)
    return module.takeError();
  if (mlir::failed(verify::verifyPlan(**module, int(*cases))))
    return failure(Exit::Proof, "{0}: not proved, for the reasons above", file);
  std::optional<PrintedKernels> printed;
  std::string cubins;
  if (isArtifact) {
    // Again: sources name the places that the passes wrote.
    auto written = parseKernels(context, *text, file);
    if (!written)
      return written.takeError();
    auto whole = printArtifact(**written, given);
    if (!whole)
      return whole.takeError();
    printed = std::move(*whole);
    if (Error error = checkSources(*printed, given))
      return error;
    SmallString<128> planFile(given);
    sys::path::append(planFile, kPlanFile);
    auto plan = runtime::readPlan(planFile);
    if (!plan)
      return with(Exit::Input, plan.takeError());
    if (Error error = checkPlan(*plan, printed->plan, planFile, Exit::Proof))
      return error;
    auto compared = checkCubins(*plan, given);
    if (!compared)
      return compared.takeError();
    cubins = std::move(*compared);
  }
  if (StringRef folder = arguments.text("ptx"); !folder.empty())
    if (auto code = sys::fs::create_directories(folder))
      return failure(Exit::Input,
                     "--ptx: {0}: expected a folder, or a place for a new one, but got: {1}; name "
                     "another",
                     folder, code.message());
  auto linted = lintAll(**module, printed ? &*printed : nullptr, arguments.text("ptx"));
  if (!linted)
    return linted.takeError();
  const auto kernels = range_size((*module)->getOps<task::KernelOp>());
  return writeText("", formatv("{0}: proved: {1} kernel{2} without deadlock or race{3}{4}{5}\n",
                               given, kernels, kernels == 1 ? "" : "s",
                               isArtifact ? ", and the sources are theirs" : "", cubins, *linted)
                           .str());
}

static constexpr Option kOptions[] = {
    {"cases", "<n>", "random cases beside the largest one, per kernel (8)"},
    {"ptx", "<folder>", "keep the PTX that was looked at, as <kernel>.ptx; made if need be"},
};

const Command kVerify = {
    {"verify", "prove that kernels neither deadlock nor race", "<file.mlir | folder>",
     "kernels with role regions, or <target>/rows<n> of megalith compile's output", kOptions,
     "megalith verify tests/ir/task/m0.mlir"},
    runVerify,
};

} // namespace megalith::cli
