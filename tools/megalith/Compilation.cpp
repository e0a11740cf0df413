//===- Compilation.cpp - from a config to an artifact -----------------------===//

#include "tools/megalith/Compilation.h"

#include "passes/Pipelines.h"
#include "passes/graph/GraphPasses.h"
#include "passes/verify/Verify.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/Failure.h"
#include "tools/megalith/LaunchModes.h"
#include "tools/megalith/ProofRecord.h"
#include "tools/megalith/Quantization.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace megalith::cli {

static constexpr StringRef kTargets[] = {"sm_90a", "sm_100a"};
static constexpr StringRef kRowsBuckets[] = {"1", "2", "4", "8", "16"};

ArrayRef<StringRef> targets() {
  return kTargets;
}

ArrayRef<StringRef> rowsBuckets() {
  return kRowsBuckets;
}

int64_t countOf(StringRef choice) {
  int64_t count = 0;
  [[maybe_unused]] const bool isNoNumber = choice.getAsInteger(10, count);
  assert(!isNoNumber && "choices are numbers");
  return count;
}

Expected<RankChoices> readRanks(const Arguments &arguments) {
  Expected<StringRef> tp = arguments.choice("tp", {"1", "2", "4", "8"});
  if (!tp)
    return tp.takeError();
  Expected<StringRef> experts = arguments.choice("tp-experts", {"auto", "nn", "nn-sums", "nk"});
  if (!experts)
    return experts.takeError();
  Expected<StringRef> output = arguments.choice("tp-o-proj", {"auto", "n", "k-ordered", "k"});
  if (!output)
    return output.takeError();
  Expected<StringRef> sums = arguments.choice("tp-sums", {"f32", "bf16"});
  if (!sums)
    return sums.takeError();
  return RankChoices{countOf(*tp), experts->str(), output->str(), sums->str()};
}

int64_t defaultSms(StringRef target) {
  return target == "sm_90a" ? 132 : 148;
}

Error checkPlace(StringRef out, const CompileRequest &request) {
  SmallString<128> place(out), plan;
  sys::path::append(place, request.target,
                    runtime::artifactName(request.rows, request.launch, request.tp));
  sys::path::append(plan, place, kPlanFile);
  if (sys::fs::exists(place) && !sys::fs::exists(plan))
    return failure(Exit::Input,
                   "{0}: expected nothing or an earlier artifact (with {1}) to replace, but got "
                   "something else; move it away or choose another -o",
                   place, kPlanFile);
  StringRef parent = place;
  while (!parent.empty() && !sys::fs::exists(parent))
    parent = sys::path::parent_path(parent);
  if (parent.empty())
    parent = ".";
  if (!sys::fs::is_directory(parent))
    return failure(Exit::Input, "{0}: expected a folder but got a file; choose another -o", parent);
  // Permissions do not tell all: try.
  SmallString<128> model(parent), probe;
  sys::path::append(model, ".megalith-%%%%%%%%");
  sys::fs::createUniquePath(model, probe, /*MakeAbsolute=*/false);
  if (auto code = sys::fs::create_directory(probe, /*IgnoreExisting=*/false))
    return failure(Exit::Input, "{0}: cannot write into this folder: {1}; choose another -o",
                   parent, code.message());
  sys::fs::remove(probe);
  return Error::success();
}

Compilation::Compilation(CompileRequest request, Progress progress)
    : request(std::move(request)), progress(std::move(progress)) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
}

Expected<std::unique_ptr<Compilation>> Compilation::create(CompileRequest request,
                                                           Progress progress) {
  if (request.trace && request.launch == runtime::LaunchMode::Step)
    return failure(
        Exit::CommandLine,
        "--trace: expected with a launch of a layer or less, but --scope says step: a loop "
        "over launches has no record of each yet; leave one of them out");
  if (request.tp > 1 && request.launch != runtime::LaunchMode::Fused)
    return failure(Exit::CommandLine,
                   "--tp {0}: expected with launches of a layer, which several ranks do not have "
                   "otherwise yet; leave out --scope and --launch",
                   request.tp);
  if (request.tp == 1 &&
      (request.tpExperts != "auto" || request.tpOutput != "auto" || request.tpSums != "f32"))
    return failure(Exit::CommandLine,
                   "--tp-experts, --tp-o-proj, --tp-sums: expected with several ranks, which "
                   "divide matrices so, but got one; add --tp 2, 4 or 8");
  if (request.tpSums != "f32" && request.tpExperts != "nk" && request.tpOutput != "k")
    return failure(Exit::CommandLine,
                   "--tp-sums {0}: expected with --tp-experts nk or --tp-o-proj k, whose ranks "
                   "exchange parts of sums, but got {1} and {2}",
                   request.tpSums, request.tpExperts, request.tpOutput);
  std::unique_ptr<Compilation> compilation(
      new Compilation(std::move(request), std::move(progress)));
  if (Error error = compilation->import())
    return error;
  if (Error error = compilation->runPasses())
    return error;
  if (compilation->request.prove)
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
  auto graph = models::importConfig(context, request.config, request.source,
                                    {.rows = request.rows,
                                     .leastContext = request.leastContext,
                                     .quantization = request.quantization});
  if (!graph)
    return with(Exit::Input, graph.takeError());
  module = std::move(*graph);
  // Before reference and kernels part: whether scores are bounded decides how probabilities round.
  mlir::PassManager manager(&context);
  manager.addPass(createBoundScores());
  if (mlir::failed(manager.run(*module)))
    return failure(Exit::Input, "{0}: moe-bound-scores fails on the imported graph",
                   request.source);
  facts = collectFacts(*module, sys::path::stem(request.source));
  (*module)->setAttr("megalith.model", mlir::StringAttr::get(&context, facts.model));
  imported = module->clone();
  options.files.emplace_back(kModelFile, printed());
  return Error::success();
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

/// Pass by pass, so that the IR after each can be saved as a whole module.
Error Compilation::runPasses() {
  std::vector<std::string> names;
  for (auto &pass : pipelinePasses({.target = request.target,
                    .sms = request.sms,
                    .launch = passesMode(request.launch),
                    .trace = request.trace,
                    .ranks = request.tp,
                    .rankExperts = request.tpExperts,
                    .rankOutput = request.tpOutput,
                    .rankSums = request.tpSums})) {
    const std::string name = pass->getArgument().str();
    progress(name);
    mlir::PassManager manager(&context);
    addTo(manager, std::move(pass));
    // The first error is the message; what follows from it is noise.
    std::string message;
    mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && message.empty())
        message = diagnostic.str();
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Warning)
        progress("warning: " + diagnostic.str());
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
    afterPass.emplace_back(name, printed());
  }
  options.emit.pipeline = join(names, ",");
  options.emit.origin = sys::path::filename(request.source).str();
  options.emit.regenerate =
      formatv("megalith compile {0} --target {1} --rows {2} --sms {3}{4} -o out",
              options.emit.origin, request.target, request.rows, request.sms,
              optionsOf(request.quantization) + optionOf(request.launch) +
                  (request.trace ? " --trace" : "") +
                  (request.tp == 1 ? "" : formatv(" --tp {0}", request.tp).str()) +
                  (request.tpExperts == "auto" ? "" : " --tp-experts " + request.tpExperts) +
                  (request.tpOutput == "auto" ? "" : " --tp-o-proj " + request.tpOutput) +
                  (request.tpSums == "f32" ? "" : " --tp-sums " + request.tpSums));
  options.files.emplace_back(kKernelsFile, printed(/*locations=*/true));
  return Error::success();
}

Error Compilation::prove() {
  std::optional<ProofRecord> record;
  if (request.cache)
    record.emplace(facts.model, afterPass.back().second, verify::kRandomCases);
  if (record && record->isThere()) {
    progress("proof, done before");
    return Error::success();
  }
  progress("proof");
  // Diagnostics go to stderr whole: they name both sides of a missing edge.
  if (mlir::failed(verify::verifyPlan(*module)))
    return failure(Exit::Proof,
                   "{0}: rows {1}, {2}: not proved, for the reasons above; please report this as a "
                   "fault of the compiler",
                   request.source, request.rows, request.target);
  if (record)
    record->keep();
  return Error::success();
}

Expected<PrintedKernels> Compilation::print(bool digests) const {
  EmitOptions emit = options.emit;
  emit.digests = digests;
  Expected<PrintedKernels> kernels = printKernels(*module, facts, emit);
  if (!kernels)
    return with(Exit::Run, kernels.takeError());
  return kernels;
}

Expected<Artifact> Compilation::write(StringRef outDir, bool cubins, bool saveIr) {
  options.outDir = outDir.str();
  options.cubins = cubins;
  options.cache = request.cache;
  options.progress = progress;
  options.snapshots = saveIr ? afterPass : decltype(afterPass)();
  Expected<Artifact> artifact = compileKernels(*module, facts, options);
  if (!artifact)
    return with(Exit::Run, artifact.takeError());
  return artifact;
}

} // namespace megalith::cli
