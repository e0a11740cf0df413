//===- Session.cpp - Calibration kernels on a GPU -------------------------===//

#include "tools/calibrate/Session.h"

#include "runtime/error.h"
#include "runtime/kernel_cache.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <optional>
#include <thread>

using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using megalith::runtime::Driver;
using megalith::runtime::problem;

namespace megalith::calibrate {

constexpr unsigned kSmem = 232448; ///< all of an SM's: one CTA each
constexpr int64_t kLeastData = int64_t{4} << 30, kMostData = int64_t{16} << 30,
                  kWordBytes = int64_t{256} << 20;
constexpr int64_t kEmptyBytes = int64_t{16} << 20; ///< what the hops of one launch may take
constexpr int64_t kCounterBytes = 64 * 1024, kMostSamples = 32768;
constexpr uint64_t kDeadlineNs = 500'000'000;

#define MEGALITH_TRY(variable, expression)                                                         \
  auto variable = expression;                                                                      \
  if (!variable)                                                                                   \
  return variable.takeError()

Expected<std::unique_ptr<Session>> Session::create(int ordinal, StringRef target,
                                                   const Progress &progress) {
  MEGALITH_TRY(driver, Driver::open(ordinal));
  MEGALITH_TRY(nvrtc, runtime::Nvrtc::load());
  std::unique_ptr<Session> session(new Session(std::move(*driver)));
  session->nvrtc = nvrtc->versionText();
  if (Error error = runtime::checkDevice(session->device(), target, 1, kSmem, nvrtc->version()))
    return error;
  progress("compile the kernels");
  if (Error error = session->load(*nvrtc, target))
    return error;
  progress("fill the data");
  if (Error error = session->allocate())
    return error;
  Job job = {.sms = uint32_t(session->device().sms),
             .piece = kPieceBytes,
             .pieces = uint32_t(session->bytes / kPieceBytes)};
  if (auto samples = session->run("calibrate_fill", job); !samples)
    return samples.takeError();
  return session;
}

Session::~Session() {
  if (from)
    driver->destroyEvent(from);
  if (to)
    driver->destroyEvent(to);
  for (Driver::Module module : modules)
    driver->unloadModule(module);
  for (Driver::Address address : allocations)
    driver->release(address);
  if (left)
    driver->releasePinned(left);
}

Error Session::load(const runtime::Nvrtc &compiler, StringRef target) {
  const auto &sources = kernelSources();
  struct Unit {
    StringRef name, text;
    std::optional<Expected<runtime::Compiled>> compiled;
  };
  std::vector<Unit> units;
  for (const auto &[name, text] : sources)
    if (name.ends_with(".cu"))
      units.push_back({name, text, std::nullopt});
  std::vector<std::thread> threads;
  for (Unit &unit : units)
    threads.emplace_back([&] {
      unit.compiled.emplace(
          runtime::compileCached(compiler, unit.text, unit.name, sources, target));
    });
  for (std::thread &thread : threads)
    thread.join();
  Error errors = Error::success();
  for (Unit &unit : units) {
    if (!*unit.compiled) {
      errors = llvm::joinErrors(std::move(errors), unit.compiled->takeError());
      continue;
    }
    const runtime::Compiled &compiled = **unit.compiled;
    auto module = driver->loadModule(compiled.cubin, unit.name, compiler.version());
    if (!module)
      return llvm::joinErrors(std::move(errors), module.takeError());
    modules.push_back(*module);
    for (const auto &kernel : compiled.resources) {
      auto function = driver->function(*module, kernel.first, kSmem);
      if (!function)
        return llvm::joinErrors(std::move(errors), function.takeError());
      functions[kernel.first] = *function;
    }
  }
  return errors;
}

Error Session::allocate() {
  MEGALITH_TRY(available, driver->freeBytes());
  bytes = std::min(kMostData, *available - (int64_t{1} << 30)) / (1 << 20) * (1 << 20);
  if (bytes < kLeastData)
    return problem("expected {0} MiB of free device memory but got {1}; end other programs on this "
                   "GPU",
                   (kLeastData >> 20) + 1024, *available >> 20);
  const std::pair<Driver::Address *, int64_t> parts[] = {
      {&step, kSteps * int64_t(sizeof(StepDescriptor))},
      {&jobs, sizeof(Job)},
      {&samples, kMostSamples * int64_t(sizeof(Sample))},
      {&data, bytes},
      {&words, kWordBytes},
      {&counters, kCounterBytes}};
  for (auto [address, size] : parts) {
    MEGALITH_TRY(got, driver->allocate(size));
    *address = *got;
    allocations.push_back(*got);
  }
  StepDescriptor steps[kSteps];
  describe(steps);
  if (Error error = driver->copyToDevice(step, steps, sizeof steps))
    return error;
  MEGALITH_TRY(pinned, driver->allocatePinned(sizeof(OneFault), faultOnDevice));
  left = new (*pinned) OneFault;
  MEGALITH_TRY(first, driver->createEvent());
  from = *first;
  MEGALITH_TRY(second, driver->createEvent());
  to = *second;
  return Error::success();
}

Expected<Driver::Function> Session::find(StringRef kernel) {
  auto found = functions.find(kernel.str());
  if (found == functions.end())
    return problem("there is no kernel '{0}'", kernel);
  return found->second;
}

Error Session::launchAll(Driver::Function function, const Job &job, Chain chain) {
  LaunchArgs args = {};
  args.step = reinterpret_cast<const StepDescriptor *>(step);
  args.deadline_ns = kDeadlineNs;
  args.fault = reinterpret_cast<FaultTable *>(faultOnDevice);
  const Driver::Address buffers[] = {jobs, samples, data, words, counters, peerWords};
  for (size_t i = 0; i < std::size(buffers); ++i)
    args.buffer[i] = reinterpret_cast<void *>(buffers[i]);
  for (int i = 0; i < chain.launches; ++i) {
    args.launch_in_step = uint32_t(i);
    if (Error error = driver->launch(function,
                                     {.ctas = job.sms,
                                      .threads = kThreadsPerCta,
                                      .smemBytes = kSmem,
                                      .programmatic = chain.programmatic},
                                     &args))
      return error;
  }
  return Error::success();
}

Error Session::join(int ordinal, Driver::Address address, std::function<void()> call) {
  peerWords = address;
  meet = std::move(call);
  return driver->reach(ordinal);
}

Error Session::fault(StringRef kernel, Error error) {
  contextLost = true;
  const FaultRecord &record = left->record;
  if (!record.valid)
    return problem("{0}: {1}", kernel, llvm::toString(std::move(error)));
  llvm::consumeError(std::move(error));
  return problem(
      "{0}: a wait missed its deadline of {1} ms: edge {2}, SM {3}, warp {4}, round {5}, "
      "expected {6}, seen {7}",
      kernel, kDeadlineNs / 1000000, record.edge, record.sm, record.warp, record.launch,
      record.expected, record.seen);
}

Expected<std::vector<Sample>> Session::run(StringRef kernel, Job job, Chain chain) {
  if (contextLost)
    return problem("{0}: not run, for an earlier kernel lost the GPU's context", kernel);
  if (job.sms == 0 || int(job.sms) > device().sms)
    return problem("{0}: needs {1} SMs, the GPU has {2}", kernel, job.sms, device().sms);
  if (job.pieces == 0 && job.piece != 0) {
    job.pieces = std::bit_floor(uint32_t(bytes / job.piece));
    job.start = ++runs * 0x9E3779B1u; // data that the L2 of the run before does not hold
  }
  if (int64_t(job.pieces) * job.piece > bytes)
    return problem("{0}: needs {1} MiB of data, the GPU's memory had room for {2}", kernel,
                   (int64_t(job.pieces) * job.piece) >> 20, bytes >> 20);
  assert(int64_t(job.sms) * chain.launches <= kMostSamples);
  MEGALITH_TRY(function, find(kernel));
  if (Error error = driver->copyToDevice(jobs, &job, sizeof job))
    return error;
  if (Error error = driver->fill(samples, 0, kMostSamples * int64_t(sizeof(Sample))))
    return error;
  if (Error error =
          driver->fill(words, job.zeros ? 0 : 0xFFFFFFFF, job.zeros ? kWordBytes : kEmptyBytes))
    return error;
  if (Error error = driver->fill(counters, 0, kCounterBytes))
    return error;
  Driver::Graph graph = nullptr;
  if (chain.graph) {
    MEGALITH_TRY(captured, driver->capture([&] { return launchAll(*function, job, chain); }));
    graph = *captured;
  }
  if (meet) {
    if (Error error = driver->synchronize())
      return fault(kernel, std::move(error));
    meet();
  }
  if (Error error = driver->recordEvent(from))
    return error;
  if (Error error = graph ? driver->launchGraph(graph) : launchAll(*function, job, chain))
    return error;
  if (Error error = driver->recordEvent(to))
    return error;
  if (Error error = driver->synchronize())
    return fault(kernel, std::move(error));
  MEGALITH_TRY(milliseconds, driver->elapsed(from, to));
  microseconds = double(*milliseconds) * 1000;
  if (graph)
    driver->destroyGraph(graph);
  std::vector<Sample> result(size_t(job.sms) * size_t(chain.launches));
  if (Error error =
          driver->copyToHost(result.data(), samples, int64_t(result.size() * sizeof(Sample))))
    return error;
  for (size_t sm = 0; sm < result.size(); ++sm)
    if (result[sm].wrong)
      return problem("{0}: {1} words on SM {2} are not what was sent or stored", kernel,
                     result[sm].wrong, sm);
  return result;
}

} // namespace megalith::calibrate
