//===- PlanFacts.cpp - what explain and report know of an artifact ----------===//

#include "tools/megalith/PlanFacts.h"

#include "codegen/headers.h"
#include "passes/costs/Builtin.h"
#include "runtime/kernel_cache.h"
#include "tools/explain/Code.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/ArtifactPlan.h"
#include "tools/megalith/Compilation.h"
#include "tools/megalith/Failure.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/Verification.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace llvm;

namespace megalith::cli {

/// The table to use, or none.
static Expected<std::optional<costs::CostTable>> readCosts(const Arguments &arguments,
                                                           StringRef target) {
  if (!arguments.has("costs")) {
    Expected<costs::CostTable> own = costs::builtinCostTable(target);
    if (own)
      return std::move(*own);
    consumeError(own.takeError());
    return std::nullopt;
  }
  Expected<costs::CostTable> table = costs::readCostTable(arguments.text("costs").str());
  if (!table)
    return with(Exit::Input, table.takeError());
  if (table->target != target)
    return failure(Exit::Input,
                   "{0}: expected costs of {1}, the plan's target, but got those of {2}; give "
                   "another table or leave --costs out",
                   arguments.text("costs"), target, table->target);
  return std::move(*table);
}

/// Whose the code of each kernel is. Line numbers do not change code; were it otherwise the kernel
/// would stay without.
static Error addCode(StringRef folder, explain::Facts &facts) {
  auto nvrtc = runtime::Nvrtc::load();
  if (!nvrtc)
    return with(Exit::Run, nvrtc.takeError());
  for (explain::KernelFacts &kernel : facts.kernels) {
    if (!kernel.resources)
      return failure(Exit::Input,
                     "--code: expected a plan with cubins but {0} has none; compile it without "
                     "--no-cubins",
                     kernel.name);
    SmallString<128> file(folder);
    sys::path::append(file, facts.plan.kernel(kernel.name)->file);
    Expected<std::string> source = readText(file, "a kernel's source");
    if (!source)
      return source.takeError();
    const std::string name = kernel.name + ".cu";
    errs() << "compiling " << name << " with line numbers\n";
    auto compiled = runtime::compileCached(*nvrtc, *source, name, deviceHeaders(),
                                           facts.plan.target, {.lineInfo = true});
    if (!compiled)
      return with(Exit::Run, compiled.takeError());
    const auto found = compiled->resources.find(kernel.name);
    if (found == compiled->resources.end() ||
        found->second.codeBytes != kernel.resources->codeBytes)
      continue;
    auto lines = runtime::readCodeLines(compiled->cubin, name);
    if (!lines)
      return with(Exit::Run, lines.takeError());
    kernel.code = explain::codeFacts(*source, *lines);
  }
  return Error::success();
}

int64_t usualContext(const runtime::Plan &plan) {
  return std::clamp<int64_t>(plan.maxPositions - 1, 0, 8192);
}

/// --context and --experts, as far as this plan can have them.
static Expected<explain::Step> readStep(const Arguments &arguments, mlir::ModuleOp module,
                                        const runtime::Plan &plan) {
  Expected<int64_t> context =
      arguments.integer("context", 0, plan.maxPositions - 1, usualContext(plan));
  if (!context)
    return context.takeError();
  explain::Step step = {.context = *context};
  if (!arguments.has("experts"))
    return step;
  const auto range = explain::expertRange(module);
  if (!range)
    return failure(Exit::CommandLine,
                   "--experts: expected with a plan of experts but {0} has none; leave it out",
                   plan.model);
  Expected<int64_t> experts = arguments.integer("experts", range->first, range->second, 0);
  if (!experts)
    return experts.takeError();
  step.experts = double(*experts);
  return step;
}

explain::Facts factsOf(mlir::ModuleOp module, const runtime::Plan &plan) {
  Expected<costs::CostTable> table = costs::builtinCostTable(plan.target);
  if (table)
    return explain::gather(module, plan, &*table, {.context = usualContext(plan)});
  consumeError(table.takeError());
  return explain::gather(module, plan, nullptr, {.context = usualContext(plan)});
}

Expected<PlanFacts> readFacts(const Arguments &arguments) {
  StringRef given = arguments.positional();
  PlanFacts out;
  out.folder = given.str();
  if (!sys::fs::is_directory(given) && sys::path::filename(given) == kPlanFile)
    out.folder = sys::path::parent_path(given).empty() ? "." : sys::path::parent_path(given).str();
  SmallString<128> planFile(out.folder), kernelsFile(out.folder);
  sys::path::append(planFile, kPlanFile);
  sys::path::append(kernelsFile, kKernelsFile);
  if (!sys::fs::exists(planFile))
    return failure(Exit::Input,
                   "{0}: expected the folder of a plan, <target>/rows<n> of megalith compile's "
                   "output, but it has no {1}",
                   given, kPlanFile);
  Expected<runtime::Plan> plan = runtime::readPlan(planFile);
  if (!plan)
    return with(Exit::Input, plan.takeError());
  Expected<std::string> text = readText(kernelsFile, "the plan's role regions");
  if (!text)
    return text.takeError();
  auto table = readCosts(arguments, plan->target);
  if (!table)
    return table.takeError();

  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext mlirContext(registry);
  auto module = parseKernels(mlirContext, *text, kernelsFile);
  if (!module)
    return module.takeError();
  if (Error error = checkArtifact(*plan, **module, out.folder))
    return error;
  Expected<explain::Step> step = readStep(arguments, **module, *plan);
  if (!step)
    return step.takeError();
  out.facts = explain::gather(**module, *plan, *table ? &**table : nullptr, *step);
  if (arguments.has("code"))
    if (Error error = addCode(out.folder, out.facts))
      return error;
  return out;
}

} // namespace megalith::cli
