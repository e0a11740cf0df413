//===- check.cpp - Compiled models on a GPU against the reference ---------===//
//
// check prepare FOLDER [MODEL..] where NVRTC is: compiles the models below, every rows bucket; or
//                               those whose name begins with a MODEL
// check list FOLDER             the plans there, one a line: what `run` takes
// check run FOLDER/MODEL/sm_90a/rowsN [LAUNCHES]
//                               where a GPU is: compares every kind of step with the reference,
//                               then repeats LAUNCHES launches (1000), from poisoned scratch, with
//                               other launch numbers and start delays: the same bits each time;
//                               at last a few steps that feed each other
//
// check prepare-ranks FOLDER [MODEL..]
//                               likewise small models for 2, 4 and 8 ranks, for `run`: virtual ones
//                               on one GPU, or, where RANK, WORLD_SIZE, ... say so, one a process;
//                               $MEGALITH_HOP_NS: how much longer words of other ranks take
//
// and at real size, with weights and histories that the GPU makes up itself (needs NVRTC there); of
// plans of several ranks it is rank 0 alone, mirrored (runtime::RankOptions::mirror):
//
// check record PLAN OUT CONTEXTS         where a GPU is: runs one step a context, launch by launch,
//                                        and writes what each launch left to OUT/<name>.values;
//                                        launches overlapping must give the same bits
// check compare PLAN OUT CONTEXTS [LAUNCHES]
//                                        anywhere: compares these files with the reference, each
//                                        launch from what the one before left, and the whole step;
//                                        with LAUNCHES (0,3,10) only these, each alone: a third of
//                                        the work a launch
// check steps PLAN CONTEXT STEPS DELAYED where a GPU is: STEPS steps as a CUDA graph, then DELAYED
//                                        with start delays, from poisoned scratch every 20: the
//                                        same bits each time
//
// Needs only a driver to run, if built with --config=static; tests/gpu/run.sh and steps.sh do it
// all. A line a plan; exit code 0 or 1. A process a plan: a trap loses the GPU's context.
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "tests/gpu/Recorded.h"
#include "tests/gpu/Steps.h"
#include "tests/host/Cells.h"
#include "tools/check/Session.h"
#include "tools/check/Subject.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cstdlib>
#include <thread>

using namespace megalith;
using namespace megalith::check;
using runtime::problem;

namespace {

/// A config and how it is compiled: "…-nvfp4" and "…-w4a4" with experts of that kind, "…-kv8" with
/// keys and values in e4m3 (test::quantizationOf); "…-k…" with experts and o_proj divided by K
/// among ranks.
struct Model {
  const char *name, *config;
  int64_t sms;
  int64_t layer; ///< -1: whole steps; else that layer's launch alone
  std::vector<int64_t> rows = {1, 2, 4, 8};
  std::vector<int64_t> ranks = {1};
  bool byK = false;
};

const std::vector<Model> &checkedModels() {
  static const std::vector<Model> list = {
      {"qwen3-moe-small", "models/configs/qwen3-moe-small.test.json", 16, -1},
      {"mixtral-small", "models/configs/mixtral-small.test.json", 16, -1},
      {"qwen3-moe-medium", "tests/gpu/qwen3-moe-medium.test.json", 132, -1},
      {"mixtral-medium", "tests/gpu/mixtral-medium.test.json", 132, -1},
      {"qwen3-30b-a3b", "models/configs/qwen3-30b-a3b.json", 132, 23},
      {"mixtral-8x7b", "models/configs/mixtral-8x7b.json", 132, 15, {1, 2, 4}},
      {"qwen3-moe-small-nvfp4", "models/configs/qwen3-moe-small.test.json", 16, -1, {1, 8}},
      {"qwen3-moe-small-kv8", "models/configs/qwen3-moe-small.test.json", 16, -1, {1, 4, 16}},
      {"qwen3-moe-medium-kv8", "tests/gpu/qwen3-moe-medium.test.json", 132, -1, {1, 8}},
      {"qwen3-30b-a3b-kv8", "models/configs/qwen3-30b-a3b.json", 132, 23, {1, 8}},
      {"muse-spark-mini-kv8", "models/configs/muse-spark-mini.test.json", 16, -1, {1, 8}},
      {"qwen3-moe-small-w4a4", "models/configs/qwen3-moe-small.test.json", 16, -1, {1, 4}},
      {"muse-spark-mini-nvfp4", "models/configs/muse-spark-mini.test.json", 16, -1, {1, 8}},
      {"muse-spark-mini-w4a4", "models/configs/muse-spark-mini.test.json", 16, -1, {2}},
  };
  return list;
}

/// Six layers of random weights make up to 8e-2 of one bf16 that is rounded the other way: launches
/// are held to their tolerance, whole steps are not.
constexpr const char *kStream = "muse-spark";

/// Virtual ranks share the SMs of one GPU.
const std::vector<Model> &rankModels() {
  static const std::vector<Model> list = {
      {"qwen3-moe-small", "models/configs/qwen3-moe-small.test.json", 16, -1, {1, 8}, {2, 4, 8}},
      {"qwen3-moe-medium", "tests/gpu/qwen3-moe-medium.test.json", 33, -1, {1, 8}, {2, 4}},
      {"muse-spark-mini", "models/configs/muse-spark-mini.test.json", 16, -1, {1, 8}, {2, 4, 8}},
      {"muse-spark-mini-nvfp4",
       "models/configs/muse-spark-mini.test.json",
       16,
       -1,
       {1, 16},
       {2, 4}},
      // Consumers hold pieces in registers.
      {"muse-spark-held-nvfp4", "models/configs/muse-spark-held.test.json", 64, -1, {1}, {2}},
      {"muse-spark-mini-k",
       "models/configs/muse-spark-mini.test.json",
       16,
       -1,
       {1, 4},
       {2, 4},
       true},
      {"muse-spark-mini-k-nvfp4",
       "models/configs/muse-spark-mini.test.json",
       16,
       -1,
       {1, 16},
       {2},
       true},
  };
  return list;
}

llvm::Expected<std::string> readFile(const llvm::Twine &path) {
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    return problem("{0}: {1}", path.str(), file.getError().message());
  return (*file)->getBuffer().str();
}

/// Compiles into `<folder>/<model>/sm_90a/rows<N>`; run from the source tree's root. Of `models`
/// those whose name begins with one of `wanted`, all if there is none.
llvm::Error prepare(const std::string &folder, llvm::ArrayRef<std::string> wanted,
                    const std::vector<Model> &models) {
  const auto isWanted = [&](const Model &model) {
    return wanted.empty() || llvm::any_of(wanted, [&](llvm::StringRef name) {
             return llvm::StringRef(model.name).starts_with(name);
           });
  };
  if (llvm::none_of(models, isWanted))
    return problem(
        "expected the beginning of a model's name but got {0}; models are {1}",
        llvm::join(wanted, ", "),
        llvm::join(llvm::map_range(models, [](const Model &m) { return m.name; }), ", "));
  for (const Model &model : llvm::make_filter_range(models, isWanted)) {
    auto config = readFile(model.config);
    if (!config)
      return config.takeError();
    const std::string out = folder + "/" + model.name;
    if (auto code = llvm::sys::fs::create_directories(out))
      return problem("{0}: {1}", out, code.message());
    auto error = llvm::writeToOutput(out + "/config.json", [&](llvm::raw_ostream &os) {
      os << *config;
      return llvm::Error::success();
    });
    if (error)
      return error;
    for (int64_t ranks : model.ranks)
      for (int64_t rows : model.rows) {
        auto subject = compileSubject({.config = *config,
                                       .name = model.name,
                                       .rows = rows,
                                       .sms = model.sms,
                                       .tp = ranks,
                                       .tpExperts = model.byK ? "nk" : "auto",
                                       .tpOutput = model.byK ? "k" : "auto",
                                       .quantization = test::quantizationOf(model.name),
                                       .cubins = true,
                                       .outDir = out});
        if (!subject)
          return problem("{0}, rows {1}: {2}", model.name, rows,
                         llvm::toString(subject.takeError()));
        llvm::outs() << (*subject)->folder << "\n";
        llvm::outs().flush();
      }
  }
  return llvm::Error::success();
}

llvm::Error list(const std::string &folder) {
  for (const auto *models : {&checkedModels(), &rankModels()})
    for (const Model &model : *models)
      for (int64_t ranks : model.ranks)
        for (int64_t rows : model.rows) {
          const std::string plan =
              llvm::formatv("{0}/{1}/sm_90a/{2}", folder, model.name,
                            runtime::artifactName(rows, runtime::LaunchMode::Fused, ranks))
                  .str();
          if (llvm::sys::fs::exists(plan + "/plan.json"))
            llvm::outs() << plan << "\n";
        }
  return llvm::Error::success();
}

bool passes(const runtime::Plan &plan, Report &report) {
  if (!llvm::StringRef(plan.model).starts_with(kStream))
    return report.passes();
  bool pass = true;
  for (LaunchReport &launch : report.launches) {
    launch.whole.reset();
    if (llvm::StringRef(launch.difference).starts_with("logits of the whole step"))
      launch.difference.clear();
    pass &= launch.passes();
  }
  return pass;
}

/// At real size a GPU holds one rank.
runtime::RankOptions mirrorOf(const runtime::Plan &plan) {
  const char *hop = std::getenv("MEGALITH_HOP_NS");
  return {.hopNs = hop ? uint32_t(std::atoi(hop)) : 0, .mirror = plan.tp > 1};
}

/// A plan on the GPU, beside its model's graph.
struct Bench {
  std::unique_ptr<runtime::Rendezvous> others; ///< processes with the other ranks
  std::unique_ptr<test::Artifact> artifact;
  std::unique_ptr<runtime::CudaBackend> backend;
  std::unique_ptr<Session> session;
  SessionOptions options;

  const runtime::Plan &plan() const { return artifact->plan; }

  llvm::Error load(const std::string &folder) {
    auto loaded = test::Artifact::load(folder);
    if (!loaded)
      return loaded.takeError();
    artifact = std::move(*loaded);
    if (runtime::Rendezvous::isAsked()) {
      auto met = runtime::Rendezvous::fromEnvironment();
      if (!met)
        return met.takeError();
      others = std::move(*met);
      options.ranks.others = others.get();
    }
    auto gpu = runtime::CudaBackend::create(others ? int(others->localRank()) : 0);
    if (!gpu)
      return gpu.takeError();
    backend = std::move(*gpu);
    options.maxPages = test::kMaxPages;
    options.poolPages = test::kPoolPages;
    options.launchFlags = kLaunchDelays;
    options.threads = std::max(1u, std::thread::hardware_concurrency());
    // A sanitizer makes everything slower, not wrong.
    options.deadlineNs = uint64_t(std::getenv("MEGALITH_SANITIZER") ? 200 : 2) * 1'000'000'000;
    for (const Model &model : checkedModels())
      if (plan().model == model.name && model.layer >= 0)
        options.layer = model.layer;
    options.open = amplifies(*artifact->graph);
    // Ranks do not choose tokens together yet.
    options.tokenSteps = options.layer || plan().tp > 1 ? 0 : 6;
    if (const char *hop = std::getenv("MEGALITH_HOP_NS"))
      options.ranks.hopNs = uint32_t(std::atoi(hop));
    auto made = Session::create(*artifact->graph, plan(), folder, *backend, options);
    if (!made)
      return made.takeError();
    session = std::move(*made);
    return llvm::Error::success();
  }
};

/// Repeats a workload until `launches` launches have run; every outcome must be the first's.
llvm::Error repeat(Bench &bench, const Workload &workload, int64_t launches, int64_t &done) {
  Outcome first;
  for (uint64_t round = 0; done < launches; ++round) {
    auto outcome = bench.session->run(workload, 7 * round, round);
    if (!outcome)
      return outcome.takeError();
    if (round == 0)
      first = std::move(*outcome);
    else if (!(*outcome == first))
      return problem("round {0} of {1}: other bits than round 0", round, workload.str());
    done += workload.steps * bench.session->launchesPerStep();
  }
  return llvm::Error::success();
}

/// Steps that feed each other, across the border of a page: tokens must be the best of the same
/// steps' logits run launch by launch, which are compared with the reference.
llvm::Error generate(Bench &bench, int64_t &tokens) {
  Workload workload;
  for (int64_t row = 0; row < std::min<int64_t>(bench.plan().rows, 3); ++row)
    workload.sequences.push_back({.start = row ? 0 : 61, .content = row});
  if (bench.plan().rows > 3) // a prompt of two rows; others stay dead
    workload.sequences.back().rows = 2;
  auto generation = bench.session->generate(workload);
  if (!generation)
    return generation.takeError();
  if (!passes(bench.plan(), generation->report) || generation->wrongTokens > 0)
    return problem("{0} tokens that the reference would not choose\n{1}", generation->wrongTokens,
                   generation->report.table());
  tokens = int64_t(generation->tokens.size() * workload.sequences.size());
  return llvm::Error::success();
}

llvm::Error run(const std::string &folder, int64_t launches) {
  Bench bench;
  if (auto error = bench.load(folder))
    return error;
  Report all;
  std::string failures;
  const std::vector<test::Cell> cells = test::cells(bench.plan().rows);
  for (const test::Cell &cell : cells) {
    auto report = bench.session->compare(cell.workload);
    if (!report)
      return problem("{0}: {1}", cell.name, llvm::toString(report.takeError()));
    if (!passes(bench.plan(), *report))
      failures += cell.name + "\n" + report->table();
    all.launches.insert(all.launches.end(), report->launches.begin(), report->launches.end());
  }
  int64_t done = 0;
  // The largest cell: every row lives. It comes first for a bucket.
  if (launches > 0)
    if (auto error = repeat(bench, cells.front().workload, launches, done))
      return error;
  int64_t tokens = 0;
  if (bench.options.tokenSteps)
    if (auto error = generate(bench, tokens))
      return problem("steps that feed each other: {0}", llvm::toString(std::move(error)));
  if (bench.others && bench.others->rank() != 0)
    return failures.empty() ? llvm::Error::success() : problem("{0}", failures);
  const LaunchReport most = all.largest();
  const auto number = [](std::optional<double> error) {
    return error ? llvm::formatv("{0:e1}", *error).str() : std::string("-");
  };
  llvm::outs() << llvm::formatv(
      "{0,-18}{1,4}{2,5}{3,9}{4,10}{5,10}{6,10}{7,10}{8,10}{9,10}{10,6}{11,9}{12,7}  {13}\n",
      bench.plan().model, bench.plan().rows,
      (bench.plan().tp > 1 ? std::to_string(bench.plan().tp) + "x" : "") +
          std::to_string(bench.plan().sms),
      all.launches.size(), number(most.residual), number(most.router), number(most.kv),
      number(most.qkv), number(most.head), number(most.whole), most.nearTies, done, tokens,
      failures.empty() ? "ok" : "FAILED");
  if (!failures.empty())
    return problem("{0}", failures);
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// At real size
//===----------------------------------------------------------------------===//

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

llvm::Expected<std::vector<int64_t>> numbers(llvm::StringRef list) {
  std::vector<int64_t> result;
  for (llvm::StringRef word : llvm::split(list, ','))
    if (word.getAsInteger(10, result.emplace_back()) || result.back() < 0)
      return problem("expected numbers by commas but got '{0}'", list);
  return result;
}

llvm::Error record(const std::string &folder, const std::string &out,
                   const std::vector<int64_t> &contexts) {
  auto artifact = test::Artifact::load(folder);
  if (!artifact)
    return artifact.takeError();
  const runtime::Plan &plan = (*artifact)->plan;
  auto model = test::RealModel::create(**artifact);
  if (!model)
    return model.takeError();
  const auto from = Clock::now();
  const int64_t longest = *std::max_element(contexts.begin(), contexts.end());
  auto session = (*model)->session(test::steadyWorkload(plan.rows, longest),
                                   {.launchFlags = kLaunchDelays, .ranks = mirrorOf(plan)});
  if (!session)
    return session.takeError();
  for (int64_t context : contexts) {
    const Workload workload = test::steadyWorkload(plan.rows, context);
    auto values = (*session)->record(workload);
    if (!values)
      return problem("context {0}: {1}", context, llvm::toString(values.takeError()));
    if (auto error = writeValues(test::valuesFile(out, plan, context), *values))
      return error;
    for (uint64_t round = 1; round <= 3; ++round) {
      auto outcome = (*session)->run(workload, 7 * round, round);
      if (!outcome)
        return problem("context {0}: {1}", context, llvm::toString(outcome.takeError()));
      const Outcome::StepOutcome &after = outcome->steps.back();
      if (after.residual.values != values->back().residual.values ||
          after.result.values != values->back().result.values)
        return problem("context {0}: launches overlapping give other bits than one at a time",
                       context);
    }
    llvm::outs() << llvm::formatv("recorded {0}, rows {1}, context {2}: {3} launches, {4:F1} s\n",
                                  plan.model, plan.rows, context, values->size(),
                                  secondsSince(from));
    llvm::outs().flush();
  }
  return llvm::Error::success();
}

llvm::Error steps(const std::string &folder, int64_t context, int64_t count, int64_t delayed) {
  auto artifact = test::Artifact::load(folder);
  if (!artifact)
    return artifact.takeError();
  auto model = test::RealModel::create(**artifact);
  if (!model)
    return model.takeError();
  const runtime::Plan &plan = (*artifact)->plan;
  const Workload workload = test::steadyWorkload(plan.rows, context);
  uint64_t digest = 0;
  for (bool delays : {false, true}) {
    const int64_t wanted = delays ? delayed : count;
    if (wanted == 0)
      continue;
    auto result = test::repeatSteps(**model, workload,
                                    {.steps = wanted, .ranks = mirrorOf(plan), .delays = delays});
    if (!result)
      return problem("rows {0}, context {1}{2}: {3}", plan.rows, context,
                     delays ? ", start delays" : "", llvm::toString(result.takeError()));
    llvm::outs() << llvm::formatv(
        "{0}, rows {1}, context {2}: {3} steps{4}, all with digest {5:x}, "
        "{6:F1} s\n",
        plan.model, plan.rows, context, result->steps, delays ? " with start delays" : "",
        result->digest, result->seconds);
    llvm::outs().flush();
    if (digest && digest != result->digest)
      return problem("rows {0}, context {1}: start delays change the bits", plan.rows, context);
    digest = result->digest;
  }
  return llvm::Error::success();
}

void heading() {
  llvm::outs() << llvm::formatv(
      "{0,-18}{1,4}{2,5}{3,9}{4,10}{5,10}{6,10}{7,10}{8,10}{9,10}{10,6}{11,9}{12,7}\n", "model",
      "rows", "SMs", "checked", "residual", "router", "kv", "qkv", "head", "whole", "ties",
      "repeated", "tokens");
}

llvm::Error usage() {
  return problem("usage: check prepare FOLDER [MODEL...] | prepare-ranks FOLDER [MODEL...] | list "
                 "FOLDER | heading | run "
                 "PLAN [LAUNCHES] | "
                 "record PLAN OUT CONTEXTS | compare PLAN OUT CONTEXTS [LAUNCHES] | steps PLAN "
                 "CONTEXT STEPS DELAYED");
}

llvm::Error dispatch(llvm::StringRef verb, llvm::ArrayRef<std::string> words) {
  if (verb == "prepare" && !words.empty())
    return prepare(words[0], words.drop_front(), checkedModels());
  if (verb == "prepare-ranks" && !words.empty())
    return prepare(words[0], words.drop_front(), rankModels());
  if (verb == "list" && words.size() == 1)
    return list(words[0]);
  if (verb == "heading" && words.empty()) {
    heading();
    return llvm::Error::success();
  }
  if (verb == "run" && (words.size() == 1 || words.size() == 2)) {
    auto launches = numbers(words.size() == 2 ? words[1] : "1000");
    return launches ? run(words[0], launches->front()) : launches.takeError();
  }
  if (verb == "record" && words.size() == 3) {
    auto contexts = numbers(words[2]);
    return contexts ? record(words[0], words[1], *contexts) : contexts.takeError();
  }
  if (verb == "compare" && (words.size() == 3 || words.size() == 4)) {
    auto contexts = numbers(words[2]);
    if (!contexts)
      return contexts.takeError();
    std::vector<int64_t> launches;
    if (words.size() == 4) {
      auto named = numbers(words[3]);
      if (!named)
        return named.takeError();
      launches = std::move(*named);
    }
    return test::compareRecorded(words[0], words[1], *contexts, launches);
  }
  if (verb == "steps" && words.size() == 4) {
    auto values = numbers(words[1] + "," + words[2] + "," + words[3]);
    if (!values)
      return values.takeError();
    return steps(words[0], (*values)[0], (*values)[1], (*values)[2]);
  }
  return usage();
}

} // namespace

int main(int argc, char **argv) {
  const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  if (auto error = dispatch(argc > 1 ? argv[1] : "", words)) {
    llvm::outs() << "FAILED " << llvm::join(words, " ") << ": " << llvm::toString(std::move(error))
                 << "\n";
    return 1;
  }
  return 0;
}
