//===- check.cpp - Compiled models on a GPU against the reference ---------===//
//
// check prepare FOLDER          where NVRTC is: compiles the models below, every rows bucket
// check list FOLDER             the plans there, one a line: what `run` takes
// check run FOLDER/MODEL/sm_90a/rowsN [LAUNCHES]
//                               where a GPU is: compares every kind of step with the reference,
//                               then repeats LAUNCHES launches (1000), from poisoned scratch, with
//                               other launch numbers and start delays: the same bits each time
//
// Needs only a driver to run, if built with --config=static; tests/gpu/run.sh does it all. A line a
// plan; exit code 0 or 1. A process a plan: a trap loses the GPU's context.
//
//===----------------------------------------------------------------------===//

#include "models/Import.h"
#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "tests/host/Cells.h"
#include "tools/check/Session.h"
#include "tools/check/Subject.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <thread>

using namespace megalith;
using namespace megalith::check;
using runtime::problem;

namespace {

/// A config and how it is compiled.
struct Model {
  const char *name, *config;
  int64_t sms;
  int64_t layer; ///< -1: whole steps; else that layer's launch alone
  std::vector<int64_t> rows = {1, 2, 4, 8};
};

const std::vector<Model> &checkedModels() {
  static const std::vector<Model> list = {
      {"qwen3-moe-small", "models/configs/qwen3-moe-small.test.json", 16, -1},
      {"mixtral-small", "models/configs/mixtral-small.test.json", 16, -1},
      {"qwen3-moe-medium", "tests/gpu/qwen3-moe-medium.test.json", 132, -1},
      {"mixtral-medium", "tests/gpu/mixtral-medium.test.json", 132, -1},
      {"qwen3-30b-a3b", "models/configs/qwen3-30b-a3b.json", 132, 23},
      {"mixtral-8x7b", "models/configs/mixtral-8x7b.json", 132, 15, {1, 2, 4}},
  };
  return list;
}

llvm::Expected<std::string> readFile(const llvm::Twine &path) {
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    return problem("{0}: {1}", path.str(), file.getError().message());
  return (*file)->getBuffer().str();
}

/// Compiles into `<folder>/<model>/sm_90a/rows<N>`; run from the source tree's root.
llvm::Error prepare(const std::string &folder) {
  for (const Model &model : checkedModels()) {
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
    for (int64_t rows : model.rows) {
      auto subject = compileSubject({.config = *config,
                                     .name = model.name,
                                     .rows = rows,
                                     .sms = model.sms,
                                     .cubins = true,
                                     .outDir = out});
      if (!subject)
        return problem("{0}, rows {1}: {2}", model.name, rows, llvm::toString(subject.takeError()));
      llvm::outs() << (*subject)->folder << "\n";
      llvm::outs().flush();
    }
  }
  return llvm::Error::success();
}

llvm::Error list(const std::string &folder) {
  for (const Model &model : checkedModels())
    for (int64_t rows : model.rows) {
      const std::string plan =
          llvm::formatv("{0}/{1}/sm_90a/rows{2}", folder, model.name, rows).str();
      if (llvm::sys::fs::exists(plan + "/plan.json"))
        llvm::outs() << plan << "\n";
    }
  return llvm::Error::success();
}

/// A plan on the GPU, beside its model's graph.
struct Bench {
  runtime::Plan plan;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> graph;
  std::unique_ptr<runtime::CudaBackend> backend;
  std::unique_ptr<Session> session;

  llvm::Error load(const std::string &folder) {
    auto read = runtime::readPlan(folder + "/plan.json");
    if (!read)
      return read.takeError();
    plan = std::move(*read);
    auto config = readFile(folder + "/../../config.json");
    if (!config)
      return config.takeError();
    auto imported = models::importConfig(context, *config, plan.model, {.rows = plan.rows});
    if (!imported)
      return imported.takeError();
    graph = std::move(*imported);
    auto gpu = runtime::CudaBackend::create();
    if (!gpu)
      return gpu.takeError();
    backend = std::move(*gpu);
    SessionOptions options;
    options.maxPages = test::kMaxPages;
    options.poolPages = test::kPoolPages;
    options.launchFlags = kLaunchDelays;
    options.threads = std::max(1u, std::thread::hardware_concurrency());
    // A sanitizer makes everything slower, not wrong.
    options.deadlineNs = uint64_t(std::getenv("MEGALITH_SANITIZER") ? 200 : 2) * 1'000'000'000;
    for (const Model &model : checkedModels())
      if (plan.model == model.name && model.layer >= 0)
        options.layer = model.layer;
    auto made = Session::create(*graph, plan, folder, *backend, options);
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

llvm::Error run(const std::string &folder, int64_t launches) {
  Bench bench;
  if (auto error = bench.load(folder))
    return error;
  Report all;
  std::string failures;
  const std::vector<test::Cell> cells = test::cells(bench.plan.rows);
  for (const test::Cell &cell : cells) {
    auto report = bench.session->compare(cell.workload);
    if (!report)
      return problem("{0}: {1}", cell.name, llvm::toString(report.takeError()));
    if (!report->passes())
      failures += cell.name + "\n" + report->table();
    all.launches.insert(all.launches.end(), report->launches.begin(), report->launches.end());
  }
  int64_t done = 0;
  // The largest cell: every row lives. It comes first for a bucket.
  if (launches > 0)
    if (auto error = repeat(bench, cells.front().workload, launches, done))
      return error;
  const LaunchReport most = all.largest();
  const auto number = [](std::optional<double> error) {
    return error ? llvm::formatv("{0:e1}", *error).str() : std::string("-");
  };
  llvm::outs() << llvm::formatv(
      "{0,-18}{1,4}{2,5}{3,9}{4,10}{5,10}{6,10}{7,10}{8,10}{9,10}{10,6}{11,9}  {12}\n",
      bench.plan.model, bench.plan.rows, bench.plan.sms, all.launches.size(), number(most.residual),
      number(most.router), number(most.kv), number(most.qkv), number(most.head), number(most.whole),
      most.nearTies, done, failures.empty() ? "ok" : "FAILED");
  if (!failures.empty())
    return problem("{0}", failures);
  return llvm::Error::success();
}

void heading() {
  llvm::outs() << llvm::formatv(
      "{0,-18}{1,4}{2,5}{3,9}{4,10}{5,10}{6,10}{7,10}{8,10}{9,10}{10,6}{11,9}\n", "model", "rows",
      "SMs", "checked", "residual", "router", "kv", "qkv", "head", "whole", "ties", "repeated");
}

} // namespace

int main(int argc, char **argv) {
  const llvm::StringRef verb = argc > 1 ? argv[1] : "";
  int64_t launches = 1000;
  const bool hasCount = argc == 4 && verb == "run";
  if (hasCount && llvm::StringRef(argv[3]).getAsInteger(10, launches))
    argc = 0;
  llvm::Error error = llvm::Error::success();
  if (verb == "prepare" && argc == 3) {
    error = prepare(argv[2]);
  } else if (verb == "list" && argc == 3) {
    error = list(argv[2]);
  } else if (verb == "heading" && argc == 2) {
    heading();
  } else if (verb == "run" && (argc == 3 || hasCount)) {
    error = run(argv[2], launches);
  } else {
    llvm::errs() << "usage: check prepare FOLDER | list FOLDER | heading | run PLAN [LAUNCHES]\n";
    return 2;
  }
  if (error) {
    llvm::outs() << "FAILED " << argv[2] << ": " << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  return 0;
}
