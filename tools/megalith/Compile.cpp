//===- Compile.cpp - megalith compile ---------------------------------------===//

#include "tools/megalith/Commands.h"
#include "tools/megalith/Compilation.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/LaunchModes.h"
#include "tools/megalith/Phases.h"
#include "tools/megalith/PlanFacts.h"
#include "tools/megalith/Quantization.h"
#include "tools/report/Page.h"

#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace megalith::cli {

/// What NVRTC said of a plan's kernels, a line each.
static std::string resourceTable(const Artifact &artifact) {
  const runtime::Plan &plan = artifact.plan;
  const bool isLooping = plan.loopingKernel() != nullptr;
  std::string text = formatv("{0}, rows {1}, {2} SMs: {3} launch{4} a step, in {5}\n", plan.target,
                             plan.rows, plan.sms, isLooping ? 1 : plan.launches.size(),
                             isLooping ? "" : "es", artifact.folder);
  text += formatv("  {0,-24}{1,10}{2,8}{3,10}{4,10}\n", "kernel", "registers", "spills", "smem",
                  "code");
  for (const runtime::Kernel &kernel : plan.kernels) {
    if (kernel.resources)
      text +=
          formatv("  {0,-24}{1,10}{2,8}{3,10}{4,10}\n", kernel.name, kernel.resources->registers,
                  kernel.resources->spillBytes, kernel.smemBytes, kernel.resources->codeBytes);
    else
      text += formatv("  {0,-24}{1,10}{1,8}{2,10}{1,10}\n", kernel.name, "-", kernel.smemBytes);
  }
  return text;
}

static Expected<std::vector<CompileRequest>> readRequests(const Arguments &arguments) {
  Expected<std::vector<StringRef>> targetNames = arguments.choices("target", targets());
  if (!targetNames)
    return targetNames.takeError();
  Expected<std::vector<StringRef>> rows = arguments.choices("rows", rowsBuckets());
  if (!rows)
    return rows.takeError();
  Expected<int64_t> sms = arguments.integer("sms", 1, 1024, 0);
  if (!sms)
    return sms.takeError();
  Expected<RankChoices> ranks = readRanks(arguments);
  if (!ranks)
    return ranks.takeError();
  Expected<int64_t> leastContext = arguments.integer("least-context", 1, int64_t(1) << 27, 0);
  if (!leastContext)
    return leastContext.takeError();
  auto modes = launchModes(arguments);
  if (!modes)
    return modes.takeError();
  Expected<ConfigText> config = readConfig(arguments.positional(), "a Hugging Face config.json");
  if (!config)
    return config.takeError();
  auto quantization = readQuantization(*config, arguments);
  if (!quantization)
    return quantization.takeError();

  std::vector<CompileRequest> requests;
  for (StringRef target : *targetNames)
    for (StringRef bucket : *rows)
      for (runtime::LaunchMode mode : *modes)
        requests.push_back({.config = config->text,
                            .source = config->file,
                            .quantization = *quantization,
                            .target = target.str(),
                            .rows = countOf(bucket),
                            .sms = *sms ? *sms : defaultSms(target),
                            .launch = mode,
                            .saveIr = arguments.has("save-ir"),
                            .cubins = !arguments.has("no-cubins"),
                            .cache = !arguments.has("no-cache"),
                            .trace = arguments.has("trace"),
                            .tp = ranks->count,
                            .tpExperts = ranks->experts,
                            .tpOutput = ranks->output,
                            .tpSums = ranks->sums,
                            .leastContext = *leastContext});
  return requests;
}

static Error runCompile(const Arguments &arguments) {
  Phases phases;
  StringRef out = arguments.text("o");
  Expected<std::vector<CompileRequest>> requests = readRequests(arguments);
  if (!requests)
    return requests.takeError();
  for (const CompileRequest &request : *requests)
    if (Error error = checkPlace(out, request))
      return error;
  // All that can be refused comes before anything is written.
  std::vector<std::unique_ptr<Compilation>> compilations;
  for (const CompileRequest &request : *requests) {
    auto progress =
        [&phases,
         label = formatv("{0} rows {1}: ", request.target, request.rows).str()](StringRef work) {
          errs() << label << work << "\n";
          phases.start(label + work.str());
        };
    auto compilation = Compilation::create(request, progress);
    if (!compilation)
      return compilation.takeError();
    compilations.push_back(std::move(*compilation));
  }
  for (auto &compilation : compilations) {
    compilation->setFilesOf([&](const runtime::Plan &plan) {
      phases.start("report");
      const auto facts = factsOf(compilation->kernels(), plan);
      return std::vector<std::pair<std::string, std::string>>{
          {kReportFile.str(), report::page(facts, "", "")}};
    });
    Expected<Artifact> artifact = compilation->write(out);
    if (!artifact)
      return artifact.takeError();
    if (Error error = writeText("", resourceTable(*artifact)))
      return error;
  }
  if (arguments.has("timing"))
    errs() << phases.table();
  return Error::success();
}

static constexpr Option kOptions[] = {
    {"target", "<list>", "architectures, by commas: sm_90a, sm_100a", true},
    {"rows", "<list>", "most live rows of a step, by commas: 1, 2, 4, 8, 16", true},
    {"o", "<folder>",
     "output: <target>/rows<n>/ (rows<n>-tp<m>/) in it, written whole or not at all", true},
    {"quant", "<what>", kQuantHelp},
    {"act", "<type>", kActHelp},
    {"kv", "<type>", kKvHelp},
    {"launch", "<list>",
     "fused (a layer a launch), per-stage (rows<n>-per-stage/), or both (fused)"},
    {"sms", "<n>", "SMs to use (132 for sm_90a, 148 for sm_100a)"},
    {"scope", "<name>", "one launch a layer, or one a step: layer or step (layer)"},
    {"tp", "<n>", "ranks of tensor parallelism: 1, 2, 4 or 8 (1)"},
    {"tp-experts", "<scheme>",
     "how ranks divide experts: auto (nn or nn-sums), nn, nn-sums, nk (down by K)"},
    {"tp-o-proj", "<scheme>", "how ranks divide the matrix behind attention: auto (n), n, k"},
    {"tp-sums", "<type>", "with nk or k: parts of sums travel as f32 or bf16 (f32)"},
    {"least-context", "<n>",
     "sequences may be so long, be it longer than the config's max_position_embeddings"},
    {"save-ir", "", "also write the IR after each pass"},
    {"no-cubins", "", "sources only, without NVRTC"},
    {"no-cache", "", "prove and compile again what the cache has ($MEGALITH_CACHE)"},
    {"timing", "", "how long each piece of work takes, at the end"},
    {"trace", "", "kernels that record stages, waits and stalls (for bench and run --trace)"},
};

const Command kCompile = {
    {"compile", "from a config to proved kernels: sources, cubins, plan.json", "<config.json>",
     "a Hugging Face config of type qwen3_moe or mixtral", kOptions,
     "megalith compile models/configs/qwen3-30b-a3b.json --target sm_90a --rows 1 -o out"},
    runCompile,
};

} // namespace megalith::cli
