//===- CommandLine.cpp - What megalith bench takes --------------------------===//

#include "tools/bench/CommandLine.h"

#include "tools/bench/Report.h"
#include "tools/megalith/LaunchModes.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <iterator>

using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using megalith::runtime::LaunchMode;

namespace megalith::bench {

static constexpr cli::Option kOptions[] = {
    {"rows", "<list>", "most live rows, 1, 2, 4, 8 or 16, a plan for each (1)"},
    {"launch", "<list>", "fused (a layer a launch), per-stage, or both (fused)"},
    {"scope", "<list>", "layer (as --launch says), step (a step a launch), or both (layer)"},
    {"context", "<list>", "positions that each sequence has already, by commas (8192)"},
    {"steps", "<n>", "timed steps of each mode, at least 20 (30)"},
    {"feedback", "", "time steps that feed each other too, each one position further"},
    {"json", "<file>", "write all figures there"},
    {"trace", "<file>", "write what warps did in the last launches (compile --trace)"},
    {"perfetto", "<file>", "the same for ui.perfetto.dev"},
    {"deadline-ms", "<n>", "how long one wait in a kernel may take (2000)"},
    {"seed", "<n>", "of the made-up weights, tokens and histories (1)"},
    {"device", "<n>", "number of the GPU (0)"},
    {"mirror-ranks", "",
     "time rank 0 of plans of several ranks alone, what it sends falling to itself"},
    {"hop", "<list>",
     "with --mirror-ranks: ns that words of other ranks take longer, by commas (0)"},
    {"tp", "<n>", "ranks, 1, 2, 4 or 8; with more than one --mirror-ranks (1)"},
    {"target", "<name>", "with a config: sm_90a or sm_100a (sm_90a)"},
    {"sms", "<n>", "with a config: SMs to use (132 for sm_90a, 148 for sm_100a)"},
    {"quant", "<what>", cli::kConfigQuantHelp},
    {"act", "<type>", cli::kConfigActHelp},
    {"kv", "<type>", cli::kConfigKvHelp},
};
static constexpr size_t kConfigOptions = 4; ///< the last ones

constinit const cli::Syntax kSyntax = {
    "bench",
    "time decode steps on a GPU, with made-up weights",
    "<config.json | folder>",
    "a config, or the <target> folder of megalith compile's output",
    kOptions,
    "megalith bench models/configs/qwen3-30b-a3b.json --rows 1,8 --context 129,8192"};

constinit const cli::Syntax kFolderSyntax = {
    "bench",
    kSyntax.summary,
    "<folder>",
    "the <target> folder of megalith compile's output",
    {kOptions, std::size(kOptions) - kConfigOptions},
    "megalith-bench out/sm_90a --rows 1,8 --context 129,8192 --json bench.json"};

/// rows<n> of `folder`, or `folder` itself where it is an artifact.
static Expected<std::string> artifact(StringRef folder, int64_t rows, LaunchMode mode, int64_t tp) {
  llvm::SmallString<256> own(folder), inside(folder);
  llvm::sys::path::append(own, "plan.json");
  if (llvm::sys::fs::exists(own))
    return folder.str();
  llvm::sys::path::append(inside, runtime::artifactName(rows, mode, tp));
  llvm::SmallString<256> plan(inside);
  llvm::sys::path::append(plan, "plan.json");
  if (!llvm::sys::fs::exists(plan))
    return cli::failure(cli::Exit::Input,
                        "expected {0} or {1} but neither is there; megalith compile <config.json> "
                        "--rows {2} -o out{3} makes out/<target>/{4}",
                        own, plan, rows,
                        cli::optionOf(mode) + (tp == 1 ? "" : " --tp " + std::to_string(tp)),
                        runtime::artifactName(rows, mode, tp));
  return inside.str().str();
}

static Error writeFile(StringRef file, StringRef text) {
  return llvm::writeToOutput(file, [&](llvm::raw_ostream &os) {
    os << text;
    return Error::success();
  });
}

/// FILE.json -> FILE.rows8-context129.json: one of several cells.
static std::string numbered(StringRef file, const Cell &cell) {
  llvm::SmallString<256> name(file);
  std::string mark = "rows" + std::to_string(cell.workload.rows) + "-context" +
                     std::to_string(cell.workload.context);
  if (cell.ranks > 1)
    mark += "-hop" + std::to_string(cell.hopNs);
  if (cell.launch != LaunchMode::Fused)
    mark += ("-" + str(cell.launch)).str();
  const std::string extension = llvm::sys::path::extension(file).str();
  llvm::sys::path::replace_extension(name, mark + extension);
  return name.str().str();
}

Expected<Request> readRequest(const cli::Arguments &arguments) {
  Request request;
  BenchOptions &options = request.options;
  auto rows = arguments.integers("rows", 1, kMaxRows);
  if (!rows)
    return rows.takeError();
  request.rows = rows->empty() ? std::vector<int64_t>{1} : *rows;
  auto modes = cli::launchModes(arguments);
  if (!modes)
    return modes.takeError();
  request.modes = std::move(*modes);
  auto contexts = arguments.integers("context", 0, (1 << 20) - 1);
  if (!contexts)
    return contexts.takeError();
  options.contexts = contexts->empty() ? std::vector<int64_t>{8192} : *contexts;
  auto steps = arguments.integer("steps", 20, 100000, options.steps);
  if (!steps)
    return steps.takeError();
  options.steps = *steps;
  options.feedback = arguments.has("feedback");
  auto deadline = arguments.integer("deadline-ms", 1, 1000000, 2000);
  if (!deadline)
    return deadline.takeError();
  options.deadlineNs = uint64_t(*deadline) * 1'000'000;
  auto seed = arguments.integer("seed", 0, UINT32_MAX, options.seed);
  if (!seed)
    return seed.takeError();
  options.seed = uint32_t(*seed);
  auto device = arguments.integer("device", 0, 1023, 0);
  if (!device)
    return device.takeError();
  options.ordinal = int(*device);
  auto ranks = arguments.choice("tp", {"1", "2", "4", "8"});
  if (!ranks)
    return ranks.takeError();
  request.ranks = ranks->front() - '0';
  auto hops = arguments.integers("hop", 0, 1000000);
  if (!hops)
    return hops.takeError();
  const bool mirrors = arguments.has("mirror-ranks");
  if (!mirrors && (request.ranks > 1 || !hops->empty()))
    return cli::failure(cli::Exit::CommandLine,
                        "--{0}: expected --mirror-ranks beside it: of several ranks this times one "
                        "alone; add it",
                        request.ranks > 1 ? "tp" : "hop");
  if (mirrors && options.feedback)
    return cli::failure(cli::Exit::CommandLine,
                        "--feedback: expected without --mirror-ranks, since ranks do not choose "
                        "tokens together yet; leave one of them out");
  if (mirrors)
    options.hops = hops->empty() ? std::vector<int64_t>{0} : *hops;
  request.json = arguments.text("json").str();
  request.trace = arguments.text("trace").str();
  request.perfetto = arguments.text("perfetto").str();
  options.trace = arguments.has("trace") || arguments.has("perfetto");
  return request;
}

Error run(Request request, StringRef folder) {
  for (int64_t rows : request.rows)
    for (LaunchMode mode : request.modes) {
      auto found = artifact(folder, rows, mode, request.ranks);
      if (!found)
        return found.takeError();
      request.options.folders.push_back(*found);
    }
  BenchResult result;
  Error error = run(request.options, result, [](StringRef line) {
    llvm::errs() << line << "\n";
    llvm::errs().flush();
  });
  const std::string message = error ? llvm::toString(std::move(error)) : "";
  // What was measured before a fault counts.
  if (!result.cells.empty())
    llvm::outs() << table(result);
  if (!request.json.empty())
    if (Error failed = writeFile(request.json, toJson(result, message)))
      return cli::with(cli::Exit::Input, std::move(failed));
  for (const Cell &cell : result.cells) {
    if (!cell.traceTable.empty())
      llvm::outs() << "\nrows " << cell.workload.rows << ", context " << cell.workload.context
                   << ", " << cell.traceTable;
    const bool several = result.cells.size() > 1;
    for (auto [file, text] :
         {std::pair(&request.trace, &cell.traceJson), std::pair(&request.perfetto, &cell.perfetto)})
      if (!file->empty())
        if (Error failed = writeFile(several ? numbered(*file, cell) : *file, *text))
          return cli::with(cli::Exit::Input, std::move(failed));
  }
  return message.empty() ? Error::success() : cli::failure(cli::Exit::Run, "{0}", message);
}

} // namespace megalith::bench
