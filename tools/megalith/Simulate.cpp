//===- Simulate.cpp - megalith simulate -------------------------------------===//

#include "passes/simulate/Simulate.h"
#include "codegen/PlanBuilder.h"
#include "passes/costs/Builtin.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/ArtifactPlan.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Compilation.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/PlanFacts.h"
#include "tools/megalith/Prediction.h"
#include "tools/megalith/Verification.h"
#include "tools/report/Timeline.h"
#include "tools/trace/Export.h"
#include "tools/trace/Import.h"
#include "tools/trace/Path.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

#include <chrono>
#include <tuple>

using namespace llvm;

namespace megalith::cli {

/// An artifact: its plan, and the kernels that it was printed from.
struct SimulatedPlan {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  runtime::Plan plan;
  std::map<std::string, task::KernelOp> kernels;

  explicit SimulatedPlan(const mlir::DialectRegistry &registry) : context(registry) {}
};

static Error load(StringRef folder, SimulatedPlan &out) {
  SmallString<128> planFile(folder), kernelsFile(folder);
  sys::path::append(planFile, "plan.json");
  sys::path::append(kernelsFile, kKernelsFile);
  Expected<std::string> planText = readText(
      planFile, "the folder of an artifact, <target>/rows<n> of megalith compile's output");
  if (!planText)
    return planText.takeError();
  Expected<runtime::Plan> plan = runtime::parsePlan(*planText, planFile);
  if (!plan)
    return with(Exit::Input, plan.takeError());
  out.plan = std::move(*plan);
  Expected<std::string> text = readText(kernelsFile, "the artifact's kernels");
  if (!text)
    return text.takeError();
  auto module = parseKernels(out.context, *text, kernelsFile);
  if (!module)
    return module.takeError();
  out.module = std::move(*module);
  if (Error error = checkArtifact(out.plan, *out.module, folder))
    return error;
  SmallVector<task::KernelOp> all(out.module->getOps<task::KernelOp>());
  for (task::KernelOp kernel : all)
    out.kernels[kernel.getSymName().str()] = kernel;
  for (runtime::Kernel &kernel : out.plan.kernels)
    if (auto found = out.kernels.find(kernel.name); found != out.kernels.end())
      kernel.trace = traceLayoutOf(all, found->second);
  for (const runtime::Launch &launch : out.plan.launches)
    if (!out.kernels.count(launch.kernel))
      return failure(Exit::Input,
                     "{0}: expected the kernel '{1}' that the plan launches but it is not there; "
                     "compile again",
                     kernelsFile, launch.kernel);
  return Error::success();
}

/// Launches [first, first + count) of the plan: whole layers in its middle, where a layer's
/// launches repeat; all of a short one.
static std::pair<int64_t, int64_t> middleLaunches(const runtime::Plan &plan, int64_t layers) {
  const std::vector<runtime::LaunchGroup> groups = plan.groups();
  const auto count = int64_t(groups.size());
  // The first group is before layer 0, the last one has the head.
  const int64_t usable = std::max<int64_t>(count - 2, 1);
  const int64_t taken = std::min(layers, usable);
  const int64_t from = count > 2 ? 1 + (usable - taken) / 2 : 0;
  const int64_t first = groups[size_t(from)].first;
  return {first, groups[size_t(std::min(from + taken, count) - 1)].last() + 1 - first};
}

/// Launches [from, end) of those played, the first of which is the plan's `first`; in a kernel that
/// loops over a step's, turns of its one launch.
static runtime::Trace traceOf(const simulate::Timeline &timeline, int64_t first, size_t from,
                              size_t end, bool isLooping) {
  runtime::Trace trace;
  for (size_t i = from; i < end; ++i) {
    runtime::LaunchTrace &launch = trace.launches.emplace_back();
    launch.launch = isLooping ? first : first + int64_t(i);
    launch.number = uint64_t(timeline.launches[i].number);
    for (const simulate::WarpTimes &warp : timeline.launches[i].warps) {
      runtime::WarpTrace &out = launch.warps.emplace_back(
          runtime::WarpTrace{warp.sm, warp.warp, warp.begin, warp.end, {}});
      for (const simulate::WarpStage &stage : warp.stages)
        out.stages.push_back({stage.stage, stage.begin, stage.end, stage.waited, stage.stalled,
                              stage.ready, stage.first, stage.last});
    }
  }
  trace.timerStep = 0;
  return trace;
}

/// Of the turns played of a loop over `launches`, those that stand for most: the last two of a row
/// of which some were left out.
static std::pair<size_t, size_t> repeatedTurns(ArrayRef<simulate::LaunchTimes> played,
                                               int64_t launches) {
  std::pair<size_t, size_t> best = {0, played.size()};
  int64_t most = 0;
  for (size_t i = 1; i < played.size(); ++i) {
    const int64_t next = i + 1 < played.size() ? played[i + 1].number : launches;
    if (const int64_t left = next - played[i].number - 1; left > most) {
      most = left;
      best = {i - 1, i + 1};
    }
  }
  return best;
}

static Expected<costs::CostTable> costTable(const Arguments &arguments, StringRef target) {
  if (!arguments.has("costs")) {
    auto table = costs::builtinCostTable(target);
    return table ? std::move(table) : with(Exit::Input, table.takeError());
  }
  auto table = costs::readCostTable(arguments.text("costs").str());
  if (!table)
    return with(Exit::Input, table.takeError());
  if (table->target != target)
    return failure(Exit::Input, "--costs: expected a table of {0}, the plan's target, but got {1}",
                   target, table->target);
  return table;
}

/// A plan's middle launches, predicted.
struct Prediction {
  int64_t launches = 0; ///< that were played, or that a loop over a step's has
  double stepNs = 0;    ///< of them together
  simulate::Timeline timeline;
  runtime::Trace trace; ///< of those that count
  trace::Summary summary;
  double seconds = 0; ///< that it took
};

/// `layers`: of the plan's middle; 0 plays a whole step.
static Expected<Prediction> predict(const SimulatedPlan &simulated, const costs::CostTable &table,
                                    const simulate::StepShape &shape, int64_t layers) {
  const runtime::Plan &plan = simulated.plan;
  Expected<simulate::Costs> costs = simulate::Costs::of(table);
  if (!costs)
    return with(Exit::Input, costs.takeError());

  // One layer more, which finds nothing of a layer before it.
  const auto [first, count] = plan.loopingKernel() ? std::pair(int64_t{0}, int64_t{1})
                              : layers             ? middleLaunches(plan, layers + 1)
                                       : std::pair(int64_t{0}, int64_t(plan.launches.size()));
  SmallVector<task::KernelOp> launches;
  int64_t code = 0;
  for (int64_t i = first; i < first + count; ++i) {
    const std::string &name = plan.launches[size_t(i)].kernel;
    launches.push_back(simulated.kernels.at(name));
    if (const auto &resources = plan.kernel(name)->resources)
      code = std::max(code, resources->codeBytes);
  }
  const simulate::Heat heat = simulate::Heat::ofCode(code); // near where it was not compiled
  const auto begin = std::chrono::steady_clock::now();
  auto timeline = simulate::simulate(launches, *costs, shape, heat);
  if (!timeline)
    return with(Exit::Input, timeline.takeError());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;

  Prediction out;
  out.launches = count;
  out.timeline = std::move(*timeline);
  out.seconds = took.count();

  out.stepNs = simulate::stepTime(out.timeline.launches, count);
  auto skipped = layers ? size_t(std::min<int64_t>(count - 1, count / (layers + 1))) : size_t{0};
  size_t end = out.timeline.launches.size();
  if (const runtime::Kernel *looping = plan.loopingKernel()) {
    out.launches = looping->launches;
    out.stepNs = simulate::stepTime(out.timeline.launches, out.launches);
    std::tie(skipped, end) = repeatedTurns(out.timeline.launches, out.launches);
  }
  out.trace = traceOf(out.timeline, first, skipped, end, plan.loopingKernel());
  out.summary = trace::summarise(plan, out.trace);
  return out;
}

Expected<std::string> predictedTimeline(StringRef folder, int64_t context,
                                        const Arguments &arguments) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  SimulatedPlan simulated(registry);
  if (Error error = load(folder, simulated))
    return error;
  const runtime::Plan &plan = simulated.plan;
  Expected<costs::CostTable> table = costTable(arguments, plan.target);
  if (!table)
    return table.takeError();
  const std::vector<int64_t> contexts(size_t(plan.rows), context);
  Expected<Prediction> predicted = predict(simulated, *table, {contexts}, /*layers=*/4);
  if (!predicted)
    return predicted.takeError();
  return trace::toJson(plan, predicted->trace, predicted->summary, trace::Source::Predicted);
}

/// The prediction beside another timeline, and that one's critical path. Says so where it was not
/// measured.
static Expected<std::string> compare(StringRef file, const runtime::Plan &plan,
                                     const trace::Summary &predicted) {
  Expected<std::string> text = readText(file, "a timeline in JSON");
  if (!text)
    return text.takeError();
  auto checked = report::checkTimeline(*text, file, plan, report::Origin::Any);
  if (!checked)
    return with(Exit::Input, checked.takeError());
  Expected<trace::Recorded> measured = trace::fromJson(*text, file, plan);
  if (!measured)
    return with(Exit::Input, measured.takeError());
  const trace::Comparison compared = trace::comparison(*measured, predicted, plan);
  if (!compared.compared)
    return failure(Exit::Input,
                   "{0}: expected a timeline with a kernel that is predicted, as '{1}', but its "
                   "summary has none; record the middle of a step",
                   file, predicted.kernels.empty() ? "" : predicted.kernels.front().kernel);
  std::string out = "\n";
  if (measured->isPredicted)
    out += formatv("{0} is another prediction: nothing here was measured\n", file).str();
  out += compared.text;
  out += formatv("{0} of {1} within {2:F0} % a launch, {3:F0} % a stage, {4:F0} % of a path\n",
                 compared.compared - compared.beyond, compared.compared, trace::kLaunchLimit,
                 trace::kStageLimit, trace::kPathLimit);
  if (const auto path = trace::criticalPath(plan, measured->trace))
    out += (measured->isPredicted ? "\nanother: " : "\nmeasured: ") + trace::table(*path);
  return out;
}

static Error runSimulate(const Arguments &arguments) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  SimulatedPlan simulated(registry);
  if (Error error = load(arguments.positional(), simulated))
    return error;
  const runtime::Plan &plan = simulated.plan;
  Expected<std::vector<int64_t>> contexts = arguments.integers("context", 0, int64_t{1} << 24);
  if (!contexts)
    return contexts.takeError();
  if (contexts->empty())
    contexts->push_back(usualContext(plan));
  if (contexts->size() != 1 && int64_t(contexts->size()) != plan.rows)
    return failure(Exit::CommandLine,
                   "--context: expected one number or {0}, a row's each, but "
                   "got {1}",
                   plan.rows, contexts->size());
  contexts->resize(size_t(plan.rows), contexts->front());
  Expected<int64_t> seed = arguments.integer("seed", 0, int64_t{1} << 32, 1);
  if (!seed)
    return seed.takeError();
  Expected<int64_t> layers = arguments.integer("layers", 1, 32, 4);
  if (!layers)
    return layers.takeError();
  const bool isStep = arguments.has("step");
  if (arguments.has("layers") && plan.loopingKernel())
    return failure(Exit::CommandLine, "--layers: a launch of --scope=step has all layers; leave "
                                      "--layers out");
  if (isStep && arguments.has("layers"))
    return failure(Exit::CommandLine, "--step: a whole step has all layers; leave --layers out");
  simulate::StepShape shape{*contexts, uint64_t(*seed)};
  if (arguments.has("hop-ns")) {
    Expected<int64_t> hop = arguments.integer("hop-ns", 0, 1'000'000'000, 0);
    if (!hop)
      return hop.takeError();
    shape.hopNs = double(*hop);
  }
  if (arguments.has("experts")) {
    Expected<int64_t> experts = arguments.integer("experts", 1, 4096, 1);
    if (!experts)
      return experts.takeError();
    shape.activeExperts = *experts;
  }
  Expected<costs::CostTable> table = costTable(arguments, plan.target);
  if (!table)
    return table.takeError();
  Expected<Prediction> predicted = predict(simulated, *table, shape, isStep ? 0 : *layers);
  if (!predicted)
    return predicted.takeError();
  const runtime::Trace &trace = predicted->trace;
  const trace::Summary &summary = predicted->summary;
  std::string text =
      formatv("predicted: {0}, rows {1}, {2} positions, seed {3}, by the costs of {4}\n",
              plan.model, plan.rows, contexts->front(), *seed, table->device)
          .str();
  if (isStep || plan.loopingKernel())
    text +=
        formatv(
            "a whole step, {0} launches{1}: {2:F1} us\n", predicted->launches,
            plan.loopingKernel()
                ? formatv(" in one, {0} of them played", predicted->timeline.launches.size()).str()
                : "",
            predicted->stepNs / 1000)
            .str();
  text += trace::table(trace, summary);
  if (const auto path = trace::criticalPath(plan, trace))
    text += "\n" + trace::table(*path);
  auto list = [&](const char *what, const std::set<std::string> &names) {
    if (!names.empty())
      text += what + join(names, " ") + "\n";
  };
  list("\nestimated, by the cost of like functions: ", predicted->timeline.estimated);
  list("\nno cost is known for, so taken to take no time: ", predicted->timeline.unknown);
  if (arguments.has("against")) {
    Expected<std::string> compared = compare(arguments.text("against"), plan, summary);
    if (!compared)
      return compared.takeError();
    text += *compared;
  }
  if (arguments.has("timing"))
    text += formatv("\n{0} launches, {1} events in {2:F2} s\n", predicted->launches,
                    predicted->timeline.events, predicted->seconds);
  if (arguments.has("json"))
    if (Error error = writeText(arguments.text("json"),
                                trace::toJson(plan, trace, summary, trace::Source::Predicted)))
      return error;
  if (arguments.has("perfetto"))
    if (Error error = writeText(arguments.text("perfetto"), trace::toPerfetto(plan, trace)))
      return error;
  return writeText("", text);
}

static constexpr Option kOptions[] = {
    {"context", "<n>",
     "positions in the pages, one for all rows or by commas each row's (8192, "
     "or as many as the plan has)"},
    {"seed", "<n>", "of the experts that rows choose (1)"},
    {"experts", "<n>", "different ones that rows choose in a layer, as bench counts (by chance)"},
    {"layers", "<n>", "layers in a row, after one that only fills the pipeline (4)"},
    {"step", "", "a whole step in place of some layers"},
    {"hop-ns", "<n>", "how much later words come from another rank (the table's nvlink costs)"},
    {"costs", "<file>", "a table by megalith calibrate (the one of the plan's target)"},
    {"against", "<file>", "a timeline of bench --trace: show it beside the prediction"},
    {"json", "<file>", "the timeline, as docs/trace-json.md says"},
    {"perfetto", "<file>", "the same for ui.perfetto.dev"},
    {"timing", "", "how long the simulation itself took"},
};

const Command kSimulate = {
    {"simulate", "predict how long a plan's layers take, and why", "<folder>",
     "<target>/rows<n> of megalith compile's output", kOptions,
     "megalith simulate out/sm_90a/rows1 --context 8192"},
    runSimulate,
};

} // namespace megalith::cli
