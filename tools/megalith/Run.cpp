//===- Run.cpp - megalith run -----------------------------------------------===//

#include "codegen/headers.h"
#include "runtime/cuda_backend.h"
#include "runtime/host_backend.h"
#include "runtime/kernel_cache.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Compilation.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/Session.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace megalith::cli {

/// A folder that is gone at the end.
struct TemporaryFolder {
  SmallString<128> path;
  ~TemporaryFolder() {
    if (!path.empty())
      sys::fs::remove_directories(path);
  }
};

/// The artifact to run: the folder given, or one compiled from the config given.
static Expected<std::string> artifact(const Arguments &arguments, bool cubins,
                                      TemporaryFolder &temporary) {
  StringRef given = arguments.positional();
  if (sys::fs::is_directory(given)) {
    for (StringRef name : {"target", "rows", "sms"})
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
  Expected<std::string> config = readText(given, "a config.json or the folder of a plan");
  if (!config)
    return config.takeError();
  if (auto code = sys::fs::createUniqueDirectory("megalith", temporary.path))
    return failure(Exit::Run,
                   "cannot make a temporary folder: {0}; set TMPDIR to one that can be "
                   "written",
                   code.message());
  auto compilation =
      Compilation::create({.config = *config,
                           .source = given.str(),
                           .target = target->str(),
                           .rows = rows->front() - '0',
                           .sms = *sms,
                           .cubins = cubins},
                          [](StringRef work) { errs() << "compile: " << work << "\n"; });
  if (!compilation)
    return compilation.takeError();
  Expected<Artifact> artifact = (*compilation)->write(temporary.path);
  if (!artifact)
    return artifact.takeError();
  return artifact->folder;
}

static Expected<SessionOptions> sessionOptions(const Arguments &arguments) {
  SessionOptions options;
  Expected<int64_t> seed = arguments.integer("seed", 0, UINT32_MAX, 1);
  if (!seed)
    return seed.takeError();
  options.seed = uint32_t(*seed);
  if (arguments.has("layer")) {
    Expected<int64_t> layer = arguments.integer("layer", 0, 999, 0);
    if (!layer)
      return layer.takeError();
    options.layer = *layer;
  }
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
    options.sequences.push_back({(*contexts)[i], (*rows)[i], int64_t(i)});
  return options;
}

static Expected<std::unique_ptr<runtime::Backend>> makeBackend(StringRef name) {
  if (name == "cuda") {
    auto backend = runtime::CudaBackend::create();
    if (!backend)
      return with(Exit::Run, backend.takeError());
    return std::move(*backend);
  }
  auto headers = runtime::cacheEntry("", "headers", "device", deviceHeadersDigest());
  if (!headers)
    return with(Exit::Run, headers.takeError());
  if (Error error = writeDeviceHeaders(*headers))
    return with(Exit::Run, std::move(error));
  return std::make_unique<runtime::HostBackend>(
      runtime::HostBackendOptions{.compile = {.includeFolder = *headers}});
}

static std::string number(std::optional<double> error) {
  return error ? formatv("{0:e1}", *error).str() : "-";
}

static std::string table(const SessionReport &report) {
  std::string text = formatv("  {0,-8}{1,-20}{2,6}{3,12}{4,12}{5,12}{6,12}\n", "launch", "kernel",
                             "layer", "residual", "router", "q, k, v", "logits");
  for (const LaunchReport &launch : report.launches)
    text += formatv(
        "  {0,-8}{1,-20}{2,6}{3,12}{4,12}{5,12}{6,12}{7}{8}{9}{10}\n", launch.launch, launch.kernel,
        launch.layer < 0 ? "-" : std::to_string(launch.layer), number(launch.residual),
        number(launch.router), number(launch.qkv), number(launch.head),
        launch.nearTies ? formatv("  {0} near ties", launch.nearTies).str() : "",
        launch.wrongRows ? "  wrong experts" : "",
        launch.deadRowsAreZero ? "" : "  dead rows not zero", launch.passes() ? "" : "  FAILS");
  const LaunchReport most = report.largest();
  text += formatv("  largest error {0} of {1} allowed; logits {2} of {3}\n",
                  number(std::max({most.residual, most.router.value_or(0), most.qkv.value_or(0)})),
                  number(reference::kLayerTolerance), number(most.head),
                  number(reference::kLogitsTolerance));
  return text;
}

/// The whole again, `times` times; every run must give the same bits.
static Error repeat(Session &session, runtime::Backend &backend, int64_t times) {
  std::vector<unsigned char> first;
  for (int64_t i = 1; i <= times; ++i) {
    if (auto *host = dynamic_cast<runtime::HostBackend *>(&backend))
      host->reseed(uint64_t(i + 1));
    Expected<std::vector<unsigned char>> bits = session.run();
    if (!bits)
      return bits.takeError();
    if (i == 1)
      first = *bits;
    else if (*bits != first)
      return failure(Exit::Run, "run {0} of --repeat: expected the bits of run 1 but got others",
                     i);
  }
  return Error::success();
}

static Error runRun(const Arguments &arguments) {
  Expected<StringRef> backendName = arguments.choice("backend", {"host", "cuda"});
  if (!backendName)
    return backendName.takeError();
  Expected<int64_t> repeats = arguments.integer("repeat", 0, 1000000, 0);
  if (!repeats)
    return repeats.takeError();
  Expected<SessionOptions> options = sessionOptions(arguments);
  if (!options)
    return options.takeError();
  TemporaryFolder temporary;
  Expected<std::string> folder = artifact(arguments, *backendName == "cuda", temporary);
  if (!folder)
    return folder.takeError();
  auto backend = makeBackend(*backendName);
  if (!backend)
    return backend.takeError();
  auto session = Session::create(*folder, **backend, *options);
  if (!session)
    return session.takeError();
  const runtime::Plan &plan = (*session)->plan();
  std::string text =
      formatv("{0} for {1}, rows {2}, {3} SMs, on {4}; {5} sequence(s)\n", plan.model, plan.target,
              plan.rows, plan.sms, *backendName, options->sequences.size());
  Expected<SessionReport> report = (*session)->compare();
  if (!report)
    return report.takeError();
  if (Error error = writeText("", text + table(*report)))
    return error;
  if (!report->passes())
    return failure(Exit::Run, "expected results within tolerance of the reference but got the "
                              "lines marked FAILS; please report this as a fault of the compiler");
  if (Error error = repeat(**session, **backend, *repeats))
    return error;
  return *repeats
             ? writeText("", formatv("  {0} more runs, all with the same bits\n", *repeats).str())
             : Error::success();
}

static constexpr Option kOptions[] = {
    {"backend", "<name>", "host (the emitted source on this CPU) or cuda (host)"},
    {"context", "<list>", "positions that each sequence has already, by commas (129)"},
    {"new-rows", "<list>", "rows of each sequence in the step, by commas (1 each)"},
    {"layer", "<n>", "that layer's launch alone, from a made-up residual (the whole step)"},
    {"repeat", "<n>", "as often again, on the host each time with another schedule (0)"},
    {"seed", "<n>", "of the made-up weights, tokens and history (1)"},
    {"target", "<name>", "with a config: sm_90a or sm_100a (sm_90a)"},
    {"rows", "<n>", "with a config: most live rows, 1, 2, 4 or 8 (1)"},
    {"sms", "<n>", "with a config: SMs to use (132 for sm_90a, 148 for sm_100a)"},
};

const Command kRun = {
    {"run", "run a step with made-up weights and compare it with the reference",
     "<config.json | folder>", "a config, or <target>/rows<n> of megalith compile's output",
     kOptions, "megalith run models/configs/qwen3-moe-small.test.json --sms 8 --context 129"},
    runRun,
};

} // namespace megalith::cli
