//===- Steps.cpp - The same step thousands of times -----------------------===//

#include "tests/gpu/Steps.h"

#include "runtime/error.h"
#include "tests/gpu/digest.cuh"

#include <algorithm>
#include <chrono>

namespace megalith::test {

using llvm::Error;
using llvm::Expected;
using runtime::problem;

namespace {

/// Sums of memory, made by the GPU.
class Digests {
public:
  static Expected<std::unique_ptr<Digests>> create(RealModel &model, llvm::StringRef target,
                                                   int64_t count) {
    std::unique_ptr<Digests> digests(new Digests(model.backend()));
    auto compiled = model.compiler().compile("#include \"tests/gpu/digest.cuh\"\n", "digest.cu",
                                             digestHeaders(), target);
    if (!compiled)
      return compiled.takeError();
    runtime::Driver &driver = model.backend().driver();
    auto module = driver.loadModule(compiled->cubin, "digest.cubin", model.compiler().version());
    if (!module)
      return module.takeError();
    auto kernel = driver.function(*module, "megalith_digest", 0);
    if (!kernel)
      return kernel.takeError();
    digests->kernel = *kernel;
    auto memory = model.backend().allocate("digests", count * 8, runtime::BufferSpace::Device);
    if (!memory)
      return memory.takeError();
    digests->sums = *memory;
    digests->count = count;
    return digests;
  }

  Error clear() { return cuda.fill(sums, 0, count * 8); }
  /// Adds what `bytes` at `address` hold by then to sum `index`.
  Error add(int64_t index, runtime::Backend::Address address, int64_t bytes) {
    const DigestJob job = {.words = reinterpret_cast<const uint32_t *>(address),
                           .count = uint64_t(bytes / 4),
                           .sum = reinterpret_cast<uint64_t *>(sums) + index};
    return cuda.driver().launch(kernel, {.ctas = 64, .threads = kDigestThreads}, &job);
  }
  Expected<std::vector<uint64_t>> read() {
    std::vector<uint64_t> values(static_cast<size_t>(count));
    if (Error error = cuda.read(values.data(), sums, count * 8))
      return error;
    return values;
  }

private:
  explicit Digests(runtime::CudaBackend &cuda) : cuda(cuda) {}
  runtime::CudaBackend &cuda;
  runtime::Driver::Function kernel = nullptr;
  runtime::Backend::Address sums = 0;
  int64_t count = 0;
};

/// Launch numbers to start from: all sets of words, and epochs across the wrap of 32 bits.
uint64_t launchBase(int64_t round) {
  return round % 5 == 4 ? (uint64_t(1) << 32) - 100 : uint64_t(977 * round);
}

} // namespace

Expected<StepsResult> repeatSteps(RealModel &model, const check::Workload &workload,
                                  const StepsOptions &options) {
  auto session =
      model.session(workload, {.launchFlags = options.delays ? uint32_t(kLaunchDelays) : 0u,
                               .ranks = options.ranks});
  if (!session)
    return session.takeError();
  runtime::Executor &executor = (*session)->getExecutor().member(0);
  const runtime::Plan &plan = executor.getPlan();
  const int64_t launches = int64_t(plan.launches.size());
  auto digests = Digests::create(model, plan.target, options.perRound);
  if (!digests)
    return digests.takeError();
  if (Error error = (*session)->prepare(workload))
    return error;
  std::vector<runtime::PreparedLaunch> step = executor.prepareLaunches(0, launches);
  step.push_back(executor.prepareAdvance(launches, /*feedback=*/false));
  runtime::Driver &driver = model.backend().driver();
  auto graph = driver.capture(
      [&] { return model.backend().enqueue(step, runtime::Chaining::Programmatic); });
  if (!graph)
    return graph.takeError();

  StepsResult result;
  const auto from = std::chrono::steady_clock::now();
  const auto enqueueRound = [&](int64_t count) -> Error {
    if (Error error = (*digests)->clear())
      return error;
    for (int64_t i = 0; i < count; ++i) {
      if (Error error = driver.launchGraph(*graph))
        return error;
      const runtime::Buffer &residual = *plan.buffer("resid"), &logits = *plan.buffer("out");
      const uint64_t last = executor.launchNumber(launches - 1) + uint64_t(i * launches);
      auto residualAt = executor.addressOf("resid", 0, int64_t(last % uint64_t(residual.sets)));
      auto logitsAt = executor.addressOf("out");
      if (!residualAt || !logitsAt)
        return llvm::joinErrors(residualAt.takeError(), logitsAt.takeError());
      if (Error error = (*digests)->add(i, *residualAt, residual.bytes))
        return error;
      if (Error error = (*digests)->add(i, *logitsAt, logits.bytes))
        return error;
    }
    return driver.synchronize();
  };
  for (int64_t round = 0; result.steps < options.steps; ++round) {
    if (round)
      if (Error error = (*session)->prepare(workload, launchBase(round)))
        return error;
    const int64_t count = std::min(options.perRound, options.steps - result.steps);
    if (Error error = enqueueRound(count))
      return executor.explain(std::move(error), model.backend().faults());
    auto sums = (*digests)->read();
    if (!sums)
      return sums.takeError();
    if (round == 0)
      result.digest = sums->front();
    for (int64_t i = 0; i < count; ++i)
      if ((*sums)[size_t(i)] != result.digest)
        return problem("step {0} (number {1} of round {2}): expected logits and residual with the "
                       "digest of the first step, {3:x}, but got {4:x}",
                       result.steps + i, i, round, result.digest, (*sums)[size_t(i)]);
    result.steps += count;
  }
  driver.destroyGraph(*graph);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  return result;
}

} // namespace megalith::test
