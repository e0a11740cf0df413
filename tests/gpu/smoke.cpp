//===- smoke.cpp - The runtime on a GPU -----------------------------------===//
//
// smoke prepare FOLDER   where NVRTC is: compiles the chain kernel and writes its plan
// smoke run FOLDER       where a GPU is: runs it and checks the sums; needs only the driver
//
// The last line is "smoke: passed" or "smoke: FAILED: why"; exit code 0 or 1.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/ChainPlan.h"

#include "codegen/headers.h"
#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "runtime/execute.h"
#include "runtime/nvrtc.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>

using namespace megalith;
using namespace megalith::runtime;

namespace {

constexpr uint64_t kRounds = 500;

llvm::Error write(const std::string &file, llvm::StringRef text) {
  return llvm::writeToOutput(file, [&](llvm::raw_ostream &os) {
    os << text;
    return llvm::Error::success();
  });
}

llvm::Error prepare(const std::string &folder) {
  auto nvrtc = Nvrtc::load();
  if (!nvrtc)
    return nvrtc.takeError();
  auto compiled = nvrtc->compile(kChainSource, "chain.cu", deviceHeaders(), "sm_90a");
  if (!compiled)
    return compiled.takeError();
  if (auto error = llvm::sys::fs::create_directories(folder))
    return problem("{0}: {1}", folder, error.message());
  Plan plan = chainPlan();
  plan.cudaVersion = nvrtc->version();
  plan.kernels[0].cubin = "chain.cubin";
  plan.kernels[0].resources = compiled->resources.at("chain");
  if (auto error = write(folder + "/chain.cubin", compiled->cubin))
    return error;
  if (auto error = write(folder + "/chain.cu", kChainSource))
    return error;
  return writePlan(plan, folder + "/plan.json");
}

/// What word s of a layer's output must be after `steps` steps with expert `expert`.
uint32_t expected(uint64_t steps, int layer, uint32_t expert, uint32_t s) {
  const uint64_t first = 10 * expert + s + 1, second = 100 + 10 * expert + s + 1;
  return uint32_t(layer ? steps * (first + second) : (steps - 1) * (first + second) + first);
}

llvm::Error checkSums(Executor &executor, uint64_t steps, const char *what) {
  for (int layer = 0; layer < 2; ++layer) {
    auto bytes = executor.readBuffer("out", layer);
    if (!bytes)
      return bytes.takeError();
    for (uint32_t s = 0; s < 4; ++s) {
      uint32_t word;
      std::memcpy(&word, bytes->data() + 4 * s, 4);
      if (word != expected(steps, layer, 2, s))
        return problem("{0}, after {1} steps: layer {2}, SM {3}: {4}, expected {5}", what, steps,
                       layer, s, word, expected(steps, layer, 2, s));
    }
  }
  llvm::outs() << what << ": " << steps << " steps, sums right\n";
  return llvm::Error::success();
}

const std::vector<StepSequence> kStep = {{.tokens = {2}, .pages = {0}}};

llvm::Error runSteps(const Plan &plan, const std::string &folder, CudaBackend &backend,
                     Chaining chaining) {
  auto executor = Executor::create(plan, folder, backend, chainNumbers(), {.chaining = chaining});
  if (!executor)
    return executor.takeError();
  if (auto error = (*executor)->setStep(kStep))
    return error;
  for (uint64_t step = 0; step < kRounds; ++step)
    if (auto error = (*executor)->runStep())
      return error;
  return checkSums(**executor, kRounds,
                   chaining == Chaining::Programmatic ? "programmatic launches"
                                                      : "separate launches");
}

llvm::Error replayGraph(const Plan &plan, const std::string &folder, CudaBackend &backend) {
  auto executor = Executor::create(plan, folder, backend, chainNumbers(), {});
  if (!executor)
    return executor.takeError();
  if (auto error = (*executor)->setStep(kStep))
    return error;
  Driver &driver = backend.driver();
  const auto launches = (*executor)->prepareLaunches(0, 2);
  auto graph = driver.capture([&] { return backend.enqueue(launches, Chaining::Programmatic); });
  if (!graph)
    return graph.takeError();
  auto from = driver.createEvent(), to = driver.createEvent();
  if (!from || !to)
    return llvm::joinErrors(from.takeError(), to.takeError());
  if (auto error = driver.recordEvent(*from))
    return error;
  for (uint64_t step = 0; step < kRounds; ++step) {
    if (auto error = driver.launchGraph(*graph))
      return error;
    if (auto error = (*executor)->finishStep()) // ordered behind the graph by the stream
      return error;
  }
  if (auto error = driver.recordEvent(*to))
    return error;
  auto milliseconds = driver.elapsed(*from, *to);
  if (!milliseconds)
    return milliseconds.takeError();
  driver.destroyEvent(*from);
  driver.destroyEvent(*to);
  driver.destroyGraph(*graph);
  llvm::outs() << llvm::formatv("graph: {0:F2} us a step, counter update included\n",
                                *milliseconds * 1000 / kRounds);
  return checkSums(**executor, kRounds, "graph");
}

/// Loses the context, so it comes last.
llvm::Error missDeadline(const Plan &plan, const std::string &folder, CudaBackend &backend) {
  auto executor = Executor::create(plan, folder, backend, chainNumbers(),
                                   {.firstLaunch = 1, .deadlineNs = 50'000'000, .launchBase = 6});
  if (!executor)
    return executor.takeError();
  if (auto error = (*executor)->setStep(kStep))
    return error;
  const std::string text = llvm::toString((*executor)->runLaunches(1, 1)); // nobody wrote its words
  llvm::outs() << "deadline: " << text << "\n";
  if (!llvm::StringRef(text).contains("edge 1 'sums'"))
    return problem("the deadline's error does not name edge 1 'sums'");
  return llvm::Error::success();
}

llvm::Error run(const std::string &folder) {
  auto plan = readPlan(folder + "/plan.json");
  if (!plan)
    return plan.takeError();
  auto backend = CudaBackend::create();
  if (!backend)
    return backend.takeError();
  const DeviceInfo &info = (*backend)->driver().info();
  llvm::outs() << llvm::formatv("{0}, sm_{1}{2}, {3} SMs, driver for CUDA {4}\n", info.name,
                                info.computeMajor, info.computeMinor, info.sms,
                                cudaVersionText(info.driverVersion));
  for (Chaining chaining : {Chaining::Separate, Chaining::Programmatic})
    if (auto error = runSteps(*plan, folder, **backend, chaining))
      return error;
  if (auto error = replayGraph(*plan, folder, **backend))
    return error;
  return missDeadline(*plan, folder, **backend);
}

} // namespace

int main(int argc, char **argv) {
  const llvm::StringRef verb = argc == 3 ? argv[1] : "";
  if (verb != "prepare" && verb != "run") {
    llvm::errs() << "usage: smoke prepare|run FOLDER\n";
    return 2;
  }
  llvm::Error error = verb == "prepare" ? prepare(argv[2]) : run(argv[2]);
  if (error) {
    llvm::outs() << "smoke: FAILED: " << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  llvm::outs() << "smoke: passed\n";
  return 0;
}
