//===- Run.cpp - megalith run -----------------------------------------------===//

#include "codegen/lint/Replay.h"
#include "models/Import.h"
#include "runtime/host_backend.h"
#include "tools/check/Backends.h"
#include "tools/check/Session.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/ArtifactPlan.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Compilation.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/LaunchModes.h"
#include "tools/megalith/Quantization.h"
#include "tools/megalith/Verification.h"
#include "tools/trace/Export.h"
#include "tools/trace/Path.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace megalith::cli {

/// Whose records are read back, at the end of a step.
static constexpr int64_t kTracedLaunches = 16;

static bool wantsTrace(const Arguments &arguments) {
  return arguments.has("trace") || arguments.has("perfetto");
}

/// That no sequence grows longer than the model's positions. The runtime checks each step again.
static Error checkPositions(int64_t positions, const check::Workload &workload) {
  for (const check::Sequence &sequence : workload.sequences)
    if (workload.length(sequence) > positions)
      return failure(
          Exit::CommandLine,
          "--context: expected at most the model's {0} positions, new rows included, but "
          "got {1}",
          positions, workload.length(sequence));
  return Error::success();
}

/// The artifact to run: the folder given, or one compiled from the config given.
static Expected<std::string> artifact(const Arguments &arguments, bool cubins,
                                      const check::Workload &workload, TemporaryFolder &temporary) {
  StringRef given = arguments.positional();
  if (sys::fs::is_directory(given) && !isCheckpoint(given)) {
    for (StringRef name : {"target", "rows", "quant", "act", "kv", "launch", "scope", "sms", "tp",
                           "tp-experts", "tp-o-proj", "tp-sums"})
      if (arguments.has(name))
        return failure(Exit::CommandLine,
                       "--{0}: expected with a config only, but got the folder of a plan that is "
                       "compiled already; leave it out",
                       name);
    return given.str();
  }
  Expected<StringRef> target = arguments.choice("target", targets());
  if (!target)
    return target.takeError();
  Expected<StringRef> rows = arguments.choice("rows", rowsBuckets());
  if (!rows)
    return rows.takeError();
  Expected<int64_t> sms = arguments.integer("sms", 1, 1024, defaultSms(*target));
  if (!sms)
    return sms.takeError();
  Expected<RankChoices> ranks = readRanks(arguments);
  if (!ranks)
    return ranks.takeError();
  auto modes = launchModes(arguments);
  if (!modes)
    return modes.takeError();
  if (modes->size() != 1)
    return failure(Exit::CommandLine, "--launch, --scope: expected one of each but got several");
  Expected<ConfigText> config = readConfig(given, "a config.json or the folder of a plan");
  if (!config)
    return config.takeError();
  auto quantization = readQuantization(*config, arguments);
  if (!quantization)
    return quantization.takeError();
  // Before the work of compiling.
  mlir::MLIRContext context;
  auto model = models::importConfig(context, config->text, config->file,
                                    {.rows = countOf(*rows), .quantization = *quantization});
  if (!model)
    return with(Exit::Input, model.takeError());
  if (Error error = checkPositions(check::maxPositions(**model), workload))
    return error;
  if (Error error = temporary.create())
    return error;
  auto compilation =
      Compilation::create({.config = config->text,
                           .source = config->file,
                           .quantization = *quantization,
                           .target = target->str(),
                           .rows = countOf(*rows),
                           .sms = *sms,
                           .launch = modes->front(),
                           .cubins = cubins,
                           .cache = true,
                           .trace = wantsTrace(arguments),
                           .tp = ranks->count,
                           .tpExperts = ranks->experts,
                           .tpOutput = ranks->output,
                           .tpSums = ranks->sums},
                          [](StringRef work) { errs() << "compile: " << work << "\n"; });
  if (!compilation)
    return compilation.takeError();
  Expected<Artifact> artifact = (*compilation)->write(temporary.path());
  if (!artifact)
    return artifact.takeError();
  return artifact->folder;
}

/// That files can be written at the end of the work, before it begins.
static Error checkOutputs(const Arguments &arguments) {
  for (StringRef name : {"trace", "perfetto"}) {
    StringRef folder = sys::path::parent_path(arguments.text(name));
    if (!folder.empty() && !sys::fs::is_directory(folder))
      return failure(Exit::Input,
                     "--{0}: expected a file in a folder that exists but got {1}; make {2} first",
                     name, arguments.text(name), folder);
  }
  return Error::success();
}

static Expected<check::Workload> workloadOf(const Arguments &arguments) {
  check::Workload workload;
  Expected<int64_t> seed = arguments.integer("seed", 0, UINT32_MAX, 1);
  if (!seed)
    return seed.takeError();
  workload.seed = uint32_t(*seed);
  Expected<int64_t> steps = arguments.integer("steps", 1, 1000, 1);
  if (!steps)
    return steps.takeError();
  workload.steps = *steps;
  Expected<std::vector<int64_t>> contexts = arguments.integers("context", 0, (1 << 20) - 1);
  if (!contexts)
    return contexts.takeError();
  if (contexts->empty())
    contexts->push_back(129);
  Expected<std::vector<int64_t>> rows = arguments.integers("new-rows", 1, 16);
  if (!rows)
    return rows.takeError();
  if (rows->empty())
    rows->assign(contexts->size(), 1);
  if (rows->size() != contexts->size())
    return failure(Exit::CommandLine,
                   "--new-rows: expected one number for each of the {0} sequences of --context but "
                   "got {1}",
                   contexts->size(), rows->size());
  for (size_t i = 0; i < rows->size(); ++i)
    workload.sequences.push_back(
        {.start = (*contexts)[i], .rows = (*rows)[i], .content = int64_t(i)});
  return workload;
}

/// An artifact read back: the plan, and the graph that it was compiled from.
struct Loaded {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> model;
  runtime::Plan plan;

  Error load(StringRef folder) {
    SmallString<128> planFile(folder), modelFile(folder);
    sys::path::append(planFile, kPlanFile);
    sys::path::append(modelFile, kModelFile);
    Expected<runtime::Plan> read = runtime::readPlan(planFile);
    if (!read)
      return with(Exit::Input, read.takeError());
    plan = std::move(*read);
    if (plan.vocab == 0 || !sys::fs::exists(modelFile))
      return failure(
          Exit::Input,
          "{0}: expected an artifact of megalith compile, with {1} and a vocabulary, but "
          "got another plan; give OUT/<target>/rows<n>",
          folder, kModelFile);
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    model = mlir::parseSourceFile<mlir::ModuleOp>(modelFile, &context);
    if (!model)
      return failure(Exit::Input, "{0}: expected valid moe IR but got the errors above", modelFile);
    return checkPlan(folder, planFile);
  }

private:
  /// That the plan is what the kernels beside it and the model make it: an edited one fails here,
  /// not in the middle of the work. Where kernels were left behind, the runtime's checks must do.
  Error checkPlan(StringRef folder, StringRef planFile) {
    SmallString<128> file(folder);
    sys::path::append(file, kKernelsFile);
    if (!sys::fs::exists(file))
      return Error::success();
    Expected<std::string> text = readText(file, "the kernels' role regions");
    if (!text)
      return text.takeError();
    auto kernels = parseKernels(context, *text, file);
    if (!kernels)
      return kernels.takeError();
    auto printed = printArtifact(**kernels, *model);
    if (!printed)
      return with(Exit::Input, printed.takeError());
    return cli::checkPlan(plan, printed->plan, planFile, Exit::Input);
  }
};

/// What of the command line only the plan can tell to be wrong.
static Error checkAgainst(const runtime::Plan &plan, const check::Workload &workload,
                          std::optional<int64_t> layer) {
  int64_t rows = 0;
  for (const check::Sequence &sequence : workload.sequences)
    rows += sequence.rows;
  if (rows > plan.rows)
    return failure(Exit::CommandLine,
                   "expected at most {0} rows in a step, as the plan was compiled for, but got "
                   "{1}; compile for more --rows or run fewer",
                   plan.rows, rows);
  if (Error error = checkPositions(plan.maxPositions, workload))
    return error;
  if (layer && *layer >= plan.layers)
    return failure(Exit::CommandLine, "--layer: expected a number from 0 to {0} but got '{1}'",
                   plan.layers - 1, *layer);
  return Error::success();
}

/// The whole again, `times` times; every run must give the same bits.
static Error repeat(check::Session &session, runtime::Backend &backend,
                    const check::Workload &workload, int64_t times) {
  std::optional<check::Outcome> first;
  for (int64_t i = 1; i <= times; ++i) {
    if (auto *host = dynamic_cast<runtime::HostBackend *>(&backend))
      host->reseed(uint64_t(i + 1));
    // Another launch number, so that other sets are used; other delays of the SMs' starts.
    Expected<check::Outcome> outcome = session.run(workload, uint64_t(i), uint64_t(i));
    if (!outcome)
      return with(Exit::Run, outcome.takeError());
    if (!first)
      first = std::move(*outcome);
    else if (*outcome != *first)
      return failure(
          Exit::Run,
          "run {0} of --repeat: expected the bits of run 1 but got others; please report "
          "this as a fault of the compiler",
          i);
  }
  return Error::success();
}

/// The whole once more, launches overlapping: what its last launches recorded.
static Error record(const Arguments &arguments, check::Session &session,
                    const check::Workload &workload) {
  runtime::Trace trace;
  if (auto outcome = session.run(workload, 0, 0, &trace); !outcome)
    return with(Exit::Run, outcome.takeError());
  const runtime::Plan &plan = session.plan();
  const trace::Summary summary = trace::summarise(plan, trace);
  if (arguments.has("trace"))
    if (Error error = writeText(arguments.text("trace"), trace::toJson(plan, trace, summary)))
      return error;
  if (arguments.has("perfetto"))
    if (Error error = writeText(arguments.text("perfetto"), trace::toPerfetto(plan, trace)))
      return error;
  std::string text = "\n" + trace::table(trace, summary);
  if (const auto path = trace::criticalPath(plan, trace))
    text += "\n" + trace::table(*path);
  return writeText("", text);
}

/// Whether all that ran, with a log, did what the plan's role regions say; where to be said so.
static Error conform(Loaded &loaded, StringRef folder, runtime::Backend &backend) {
  SmallString<128> file(folder);
  sys::path::append(file, kKernelsFile);
  Expected<std::string> text = readText(file, "the kernels' role regions");
  if (!text)
    return text.takeError();
  auto kernels = parseKernels(loaded.context, *text, file);
  if (!kernels)
    return kernels.takeError();
  const std::string log = static_cast<runtime::HostBackend &>(backend).takeLog();
  const lint::Replayed replayed = lint::replay(**kernels, log);
  for (const lint::Finding &finding : ArrayRef(replayed.findings).take_front(20))
    errs() << finding.text << "\n";
  if (!replayed.findings.empty())
    return failure(Exit::Run,
                   "--conformance: expected every warp to do the steps of its role but {0} did "
                   "not, the first of them above; please report this as a fault of the compiler",
                   replayed.findings.size());
  return writeText("", formatv("  conforms to the role regions: {0} launches, {1} steps, {2} uses "
                               "of barriers, {3} ranges of memory\n",
                               replayed.launches, replayed.steps, replayed.slots, replayed.ranges)
                           .str());
}

static Error writeReport(const check::Workload &workload, const runtime::Plan &plan,
                         StringRef backend, const check::Report &report, bool isMirrored = false) {
  return writeText(
      "", formatv("{0} for {1}, rows {2}, {3} SMs{4}{5}, on {6}: {7}\n{8}", plan.model, plan.target,
                  plan.rows, plan.sms,
                  plan.tp == 1 ? std::string()
                  : isMirrored ? formatv(", rank 0 of {0} mirrored", plan.tp).str()
                               : formatv(" for each of {0} ranks", plan.tp).str(),
                  plan.launchMode == runtime::LaunchMode::PerStage ? ", a launch a stage" : "",
                  backend, workload.str(), report.table())
              .str());
}

static Error notWithin() {
  return failure(Exit::Run, "expected results within tolerance of the reference but got the lines "
                            "marked FAILS; please report this as a fault of the compiler");
}

/// Steps that feed each other: launch by launch against the reference, then without the host.
static Error generate(check::Session &session, const check::Workload &workload,
                      StringRef backendName) {
  Expected<check::Generation> generation = session.generate(workload);
  if (!generation)
    return with(Exit::Run, generation.takeError());
  if (Error error = writeReport(workload, session.plan(), backendName, generation->report))
    return error;
  std::string text;
  raw_string_ostream os(text);
  for (size_t s = 0; s < workload.sequences.size(); ++s) {
    os << formatv("  tokens of sequence {0}:", s);
    for (const std::vector<int32_t> &step : generation->tokens)
      os << " " << step[s];
    os << "\n";
  }
  os << formatv("  the same without the host between steps; the reference would have chosen {0} "
                "other(s) at a near tie, {1} otherwise\n",
                generation->nearTies, generation->wrongTokens);
  if (Error error = writeText("", text))
    return error;
  return generation->passes() ? Error::success() : notWithin();
}

static Error runRun(const Arguments &arguments) {
  Expected<StringRef> backendName = arguments.choice("backend", {"host", "cuda"});
  if (!backendName)
    return backendName.takeError();
  Expected<int64_t> repeats = arguments.integer("repeat", 0, 1000000, 0);
  if (!repeats)
    return repeats.takeError();
  check::SessionOptions options;
  Expected<int64_t> hop = arguments.integer("hop-ns", 0, 1000000, 0);
  if (!hop)
    return hop.takeError();
  if (*hop && *backendName != "cuda")
    return failure(Exit::CommandLine, "--hop-ns: expected with --backend cuda only: the host's "
                                      "schedules hold words up anyway; leave it out");
  options.ranks.hopNs = uint32_t(*hop);
  options.ranks.mirror = arguments.has("mirror-ranks");
  if (arguments.has("layer")) {
    Expected<int64_t> layer = arguments.integer("layer", 0, 999, 0);
    if (!layer)
      return layer.takeError();
    options.layer = *layer;
  }
  Expected<check::Workload> workload = workloadOf(arguments);
  if (!workload)
    return workload.takeError();
  if (Error error = checkOutputs(arguments))
    return error;
  const bool conforms = arguments.has("conformance");
  if (conforms && *backendName != "host")
    return failure(Exit::CommandLine,
                   "--conformance: expected --backend host, which alone sees what every thread "
                   "does, but got {0}",
                   *backendName);
  // As one of several processes, each with a rank.
  std::unique_ptr<runtime::Rendezvous> others;
  if (runtime::Rendezvous::isAsked()) {
    auto met = runtime::Rendezvous::fromEnvironment();
    if (!met)
      return with(Exit::Run, met.takeError());
    others = std::move(*met);
    options.ranks.others = others.get();
  }
  const bool isSpeaker = !others || others->rank() == 0;
  auto backend = check::openBackend(*backendName, /*seed=*/1 + (others ? others->rank() : 0),
                                    /*log=*/conforms, others ? int(others->localRank()) : 0);
  if (!backend)
    return with(Exit::Run, backend.takeError());
  TemporaryFolder temporary;
  Expected<std::string> folder = artifact(arguments, *backendName == "cuda", *workload, temporary);
  if (!folder)
    return folder.takeError();
  Loaded loaded;
  if (Error error = loaded.load(*folder))
    return error;
  const runtime::Plan &plan = loaded.plan;
  if (Error error = checkAgainst(plan, *workload, options.layer))
    return error;

  if (options.ranks.mirror && (plan.tp == 1 || others))
    return failure(Exit::CommandLine,
                   "--mirror-ranks: expected a plan of several ranks, compiled with --tp, in one "
                   "process, but got {0}",
                   others ? "several processes" : "a plan of one");
  if (conforms && (others || options.ranks.mirror))
    return failure(
        Exit::CommandLine,
        "--conformance: expected launches of all ranks in one process but got {0}; leave "
        "out one of them",
        others ? "several processes" : "one rank alone (--mirror-ranks)");
  options.ranks.together |= conforms; // one log of all
  const bool feedback = arguments.has("feedback");
  if (feedback && (*repeats || options.layer))
    return failure(Exit::CommandLine,
                   "--feedback: expected neither --repeat nor --layer beside it; "
                   "leave out one of them");
  options.tokenSteps = feedback ? workload->steps : 0;
  options.weightSeed = workload->seed;
  options.open = check::amplifies(*loaded.model);
  options.maxPages = workload->maxPages();
  options.poolPages = workload->totalPages();
  // The host platform's scheduler has delays of its own.
  if (*repeats && *backendName == "cuda")
    options.launchFlags = kLaunchDelays;
  if (wantsTrace(arguments))
    options.traced = kTracedLaunches;
  auto session = check::Session::create(*loaded.model, plan, *folder, **backend, options);
  if (!session)
    return with(Exit::Run, session.takeError());
  if (feedback)
    return generate(**session, *workload, *backendName);
  Expected<check::Report> report = (*session)->compare(*workload);
  if (!report)
    return with(Exit::Run, report.takeError());
  if (isSpeaker)
    if (Error error = writeReport(*workload, plan, *backendName, *report, options.ranks.mirror))
      return error;
  if (!report->passes())
    return notWithin();
  if (Error error = repeat(**session, **backend, *workload, *repeats))
    return error;
  if (*repeats && isSpeaker)
    if (Error error = writeText("", formatv("  {0} more runs, launches overlapping, all with the "
                                            "same bits\n",
                                            *repeats)
                                        .str()))
      return error;
  if (conforms)
    if (Error error = conform(loaded, *folder, **backend))
      return error;
  return wantsTrace(arguments) ? record(arguments, **session, *workload) : Error::success();
}

static constexpr Option kOptions[] = {
    {"backend", "<name>", "host (the emitted source on this CPU) or cuda (host)"},
    {"context", "<list>", "positions that each sequence has already, by commas (129)"},
    {"new-rows", "<list>", "rows of each sequence in the step, by commas (1 each)"},
    {"layer", "<n>", "that layer's launches alone, from a made-up residual (the whole step)"},
    {"steps", "<n>", "steps in a row, each with new rows (1)"},
    {"feedback", "", "each step goes on with the tokens that the step before chose"},
    {"repeat", "<n>", "as often again, on the host each time with another schedule (0)"},
    {"conformance", "", "check each thread's steps, slots and addresses against the role regions"},
    {"seed", "<n>", "of the made-up weights, tokens and history (1)"},
    {"trace", "<file>", "write what warps did in the last launches (compile --trace)"},
    {"perfetto", "<file>", "the same for ui.perfetto.dev"},
    {"target", "<name>", "with a config: sm_90a or sm_100a (sm_90a)"},
    {"rows", "<n>", "with a config: most live rows, 1, 2, 4, 8 or 16 (1)"},
    {"quant", "<what>", kConfigQuantHelp},
    {"act", "<type>", kConfigActHelp},
    {"kv", "<type>", kConfigKvHelp},
    {"tp", "<n>", "with a config: ranks, 1, 2, 4 or 8; virtual, or one a process of torchrun (1)"},
    {"tp-experts", "<scheme>", "with a config: how ranks divide experts, as of compile (auto)"},
    {"tp-o-proj", "<scheme>", "the same of the matrix behind attention (auto)"},
    {"tp-sums", "<type>", "with nk or k: parts of sums travel as f32 or bf16 (f32)"},
    {"hop-ns", "<n>", "words of other ranks arrive so much later, on cuda (0)"},
    {"mirror-ranks", "", "rank 0 alone, of a model whose tensors repeat its share: for real sizes"},
    {"launch", "<name>", "with a config: fused (a layer a launch) or per-stage (fused)"},
    {"sms", "<n>", "with a config: SMs to use (132 for sm_90a, 148 for sm_100a)"},
    {"scope", "<name>", "with a config: one launch a layer or one a step, layer or step (layer)"},
};

const Command kRun = {
    {"run", "run a step with made-up weights and compare it with the reference",
     "<config.json | folder>", "a config, or <target>/rows<n> of megalith compile's output",
     kOptions, "megalith run models/configs/qwen3-moe-small.test.json --sms 8 --context 129"},
    runRun,
};

} // namespace megalith::cli
