//===- Bench.cpp - Timing compiled plans at real size -----------------------===//

#include "tools/bench/Bench.h"

#include "models/weights/weights.h"
#include "runtime/error.h"
#include "runtime/packing.h"
#include "runtime/ranks.h"
#include "runtime/step.h"
#include "runtime/weight_packer.h"
#include "tools/bench/DeviceTools.h"
#include "tools/bench/FilledBackend.h"
#include "tools/bench/Report.h"
#include "tools/bench/Timing.h"
#include "tools/weights/OpenWeights.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <tuple>

using llvm::Error;
using llvm::Expected;
using namespace megalith::runtime;

namespace megalith::bench {

namespace {

constexpr int64_t kGiB = int64_t(1) << 30;
constexpr int64_t kCeilingBytes = 4 * kGiB;
/// Left free: exchanges, logits, kernels, the driver's own.
constexpr int64_t kMargin = kGiB;

/// A plan with what its kernels lie in.
struct Compiled {
  Plan plan;
  std::string folder;
};

/// Bytes of all weights that the plan's launches bind, in memory.
int64_t boundWeights(const Plan &plan) {
  std::set<std::pair<std::string, int64_t>> seen;
  int64_t bytes = 0;
  for (const Launch &launch : plan.launches)
    for (const SlotBinding &slot : plan.kernel(launch.kernel)->slots)
      if (const Weight *weight = plan.weight(slot.name))
        if (seen.emplace(slot.name, weight->perLayer ? launch.layer + slot.layerOffset : -1).second)
          bytes += weightBytes(*weight);
  return bytes;
}

/// Bytes of one page in the pools of all layers; or of what pools of windows hold, which have as
/// many pages as the window wants for each row.
int64_t poolBytes(const Plan &plan, bool ofWindows) {
  std::set<std::pair<std::string, int64_t>> seen;
  int64_t bytes = 0;
  for (const Launch &launch : plan.launches)
    for (const SlotBinding &slot : plan.kernel(launch.kernel)->slots)
      if (const Buffer *buffer = plan.buffer(slot.name);
          buffer && buffer->kind == BufferKind::Kv &&
          seen.emplace(slot.name, buffer->perLayer ? launch.layer + slot.layerOffset : -1).second) {
        const bool isRing = buffer->window && !plan.loopingKernel();
        if (isRing == ofWindows)
          bytes += buffer->bytes * (isRing ? ringPages(buffer->window) * plan.rows : 1);
      }
  return bytes;
}
int64_t pageBytes(const Plan &plan) {
  return poolBytes(plan, /*ofWindows=*/false);
}

/// In whatever order they are listed.
bool haveSameWeights(const Plan &a, const Plan &b) {
  return a.weights.size() == b.weights.size() &&
         std::all_of(a.weights.begin(), a.weights.end(), [&](const Weight &weight) {
           const Weight *other = b.weight(weight.name);
           return other && *other == weight;
         });
}

class Bench {
public:
  Bench(const BenchOptions &options, BenchResult &result,
        const std::function<void(llvm::StringRef)> &progress)
      : options(options), result(result), progress(progress), weights(options.seed) {}

  Error run();

private:
  Error open();
  Error measureCeiling();
  /// Positions that steps write behind the first.
  Workload workload(int64_t rows, int64_t context) const {
    return {.rows = rows, .context = context, .histories = rows, .further = options.further()};
  }
  Expected<int64_t> poolPages();
  Error runPlan(const Compiled &compiled, int64_t pages, int64_t hopNs);
  Error demandSameLogits(const Cell &cell, const std::vector<unsigned char> &bits);
  Error fillHistories(const Executor &executor, const Workload &workload,
                      std::span<const StepSequence> sequences);

  const BenchOptions &options;
  BenchResult &result;
  const std::function<void(llvm::StringRef)> &progress;
  models::HashedWeights weights;
  std::vector<Compiled> plans;
  /// Of a step, by rows, context and histories.
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<unsigned char>> logits;
  std::unique_ptr<CudaBackend> cuda; // the rest holds on to it
  std::unique_ptr<DeviceFill> fill;
  std::unique_ptr<DeviceTools> tools;
  std::unique_ptr<FilledBackend> backend;
  Driver::Address ceiling = 0, table = 0; ///< memory to read; a page table for fills
};

Error Bench::open() {
  for (const std::string &folder : options.folders) {
    auto plan = readPlan(folder + "/plan.json");
    if (!plan)
      return plan.takeError();
    if (!plans.empty() && (plan->model != plans[0].plan.model ||
                           !haveSameWeights(*plan, plans[0].plan) || plan->target != result.target))
      return problem("{0}: expected a plan of {1} for {2} as in {3}, got {4} for {5}", folder,
                     plans[0].plan.model, result.target, plans[0].folder, plan->model,
                     plan->target);
    if ((plan->tp > 1) != !options.hops.empty())
      return problem("{0}: {1}", folder,
                     plan->tp > 1 ? "expected a plan of one rank but got one of " +
                                        std::to_string(plan->tp) +
                                        "; say --mirror-ranks to time its rank 0 alone"
                                  : "expected a plan of several ranks, as --mirror-ranks says, but "
                                    "got one of one; compile with --tp");
    result.model = plan->model;
    result.target = plan->target;
    result.sms = plan->sms;
    plans.push_back({std::move(*plan), folder});
  }
  if (plans.empty() || options.contexts.empty())
    return problem("expected at least one plan and one context");
  auto opened = CudaBackend::create(options.ordinal);
  if (!opened)
    return opened.takeError();
  cuda = std::move(*opened);
  for (const Compiled &compiled : plans) // before kernels are made for a GPU that is not there
    if (Error error = cuda->check(compiled.plan))
      return error;
  Driver &driver = cuda->driver();
  result.device = driver.info();
  result.steps = options.steps;
  auto nvrtc = Nvrtc::load();
  if (!nvrtc)
    return nvrtc.takeError();
  result.nvrtc = nvrtc->versionText();
  auto filler = DeviceFill::create(driver, *nvrtc, result.target);
  if (!filler)
    return filler.takeError();
  fill = std::move(*filler);
  auto made = DeviceTools::create(driver, *nvrtc, result.target);
  if (!made)
    return made.takeError();
  tools = std::move(*made);
  backend = std::make_unique<FilledBackend>(*cuda, *fill, options.seed);

  // Noise to read: a constant could be read faster than weights.
  auto memory = cuda->allocate("memory for the read ceiling", kCeilingBytes, BufferSpace::Device);
  if (!memory)
    return memory.takeError();
  ceiling = *memory;
  const Weight noise = {.name = "noise",
                        .form = WeightForm::Table,
                        .n = kCeilingBytes / 4096,
                        .k = 2048,
                        .parts = {{.tensor = "noise", .shape = {kCeilingBytes / 4096, 2048}}}};
  auto segment = fillSegment(noise, 0, 0, options.seed, reinterpret_cast<unsigned char *>(ceiling));
  return fill->fill(*segment);
}

Error Bench::measureCeiling() {
  auto rates = tools->measureRead(ceiling, kCeilingBytes, 7);
  if (!rates)
    return rates.takeError();
  result.ceilingBytes = kCeilingBytes;
  result.ceilingRuns.push_back(summarise(*rates).median);
  result.ceiling = std::max(result.ceiling, result.ceilingRuns.back());
  progress(ceilingLine(result.ceilingRuns.back()));
  return Error::success();
}

/// Pages of each layer's pool: what the largest workload wants, or what fits beside the weights.
Expected<int64_t> Bench::poolPages() {
  auto free = cuda->driver().freeBytes();
  if (!free)
    return free.takeError();
  const Plan &plan = plans[0].plan;
  int64_t room = *free - boundWeights(plan) - kMargin, rings = 0;
  for (const Compiled &compiled : plans)
    rings = std::max(rings, poolBytes(compiled.plan, /*ofWindows=*/true));
  room -= rings;
  if (room < std::max<int64_t>(1, pageBytes(plan)))
    return problem("GPU memory: {0} has {1} bytes of weights, of the GPU's {2} bytes {3} are free; "
                   "expected room for KV pages and {4} bytes besides: free memory, or bench a "
                   "smaller model",
                   plan.model, boundWeights(plan), result.device.memoryBytes, *free, kMargin);
  int64_t wanted = 1;
  for (const Compiled &compiled : plans)
    for (int64_t context : options.contexts)
      wanted = std::max(wanted, workload(compiled.plan.rows, context).pages());
  return std::min(wanted, room / std::max<int64_t>(1, pageBytes(plan)));
}

Error Bench::fillHistories(const Executor &executor, const Workload &workload,
                           std::span<const StepSequence> sequences) {
  const Plan &plan = executor.getPlan();
  for (size_t s = 0; s < sequences.size(); ++s) {
    std::vector<int32_t> pages; ///< that the table holds
    for (int64_t layer = 0; layer < plan.layers; ++layer) {
      auto pool = backend->pool(layer);
      if (!pool)
        return pool.takeError();
      std::vector<int32_t> own = executor.kvPages(layer, sequences[s], int64_t(s));
      own.resize(std::min(own.size(), sequences[s].pages.size()));
      // The stream keeps the order: the fills before have read the table.
      if (own != pages)
        if (Error error = cuda->write(table, own.data(), int64_t(own.size()) * 4))
          return error;
      pages = std::move(own);
      FillPages job = fillPages(plan, layer, options.seed, reinterpret_cast<unsigned char *>(*pool),
                                reinterpret_cast<const int32_t *>(table), int64_t(pages.size()),
                                workload.context);
      job.content = workload.content(int64_t(s));
      if (Error error = fill->fill(job))
        return error;
    }
  }
  return cuda->driver().synchronize();
}

/// Whatever a launch computes, the order of sums is the same, and so are the bits.
Error Bench::demandSameLogits(const Cell &cell, const std::vector<unsigned char> &bits) {
  const Workload &workload = cell.workload;
  auto [it, isNew] =
      logits.try_emplace({workload.rows, workload.context, workload.histories}, bits);
  if (isNew || it->second == bits)
    return Error::success();
  int64_t wrong = 0;
  for (size_t i = 0; i < bits.size(); i += 4)
    wrong += !std::equal(&bits[i], &bits[i] + 4, &it->second[i]);
  return problem("rows {0}, context {1}, launches {2}: {3} of {4} logits have other bits than with "
                 "the launch mode before; please report this as a fault of the kernels",
                 workload.rows, workload.context, str(cell.launch), wrong, bits.size() / 4);
}

Error Bench::runPlan(const Compiled &compiled, int64_t pages, int64_t hopNs) {
  const Plan &plan = compiled.plan;
  ExecuteOptions execute;
  for (int64_t context : options.contexts)
    execute.maxPages = std::max(execute.maxPages, workload(1, context).pagesPerSequence());
  // Plans share their pools, those of windows too.
  for (const Compiled &other : plans)
    execute.rings = std::max(execute.rings, other.plan.rows);
  execute.tokenSteps = options.further();
  execute.poolPages = pages;
  execute.deadlineNs = options.deadlineNs;
  execute.traced = options.trace ? kTracedLaunches : 0;
  execute.mirror = plan.tp > 1;
  execute.hopNs = uint32_t(hopNs);
  const auto begin = std::chrono::steady_clock::now();
  auto executor = Executor::create(planOfRank(plan, 0), compiled.folder, *backend,
                                   openTensors(weights), execute);
  if (!executor)
    return executor.takeError();
  if (!table) {
    auto memory = cuda->allocate("page table of fills", execute.maxPages * 4, BufferSpace::Device);
    if (!memory)
      return memory.takeError();
    table = *memory;
  }
  if (Error error = cuda->driver().synchronize())
    return error;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  result.setUpSeconds += took.count();
  result.weightBytes = backend->weightBytesPlaced();
  progress(setUpLine(plan, took.count(), result.weightBytes));

  for (int64_t context : options.contexts) {
    Cell cell;
    cell.launch = plan.launchMode;
    cell.ranks = plan.tp;
    cell.hopNs = hopNs;
    cell.workload = fit(workload(plan.rows, context), pages);
    if (cell.workload.histories < 1)
      return problem("rows {0}, context {1}: one history needs {2} pages of {3} bytes, memory "
                     "beside the weights has {4}; expected a shorter context",
                     plan.rows, context, cell.workload.pagesPerSequence(), pageBytes(plan), pages);
    const std::vector<StepSequence> sequences = cell.workload.sequences(options.seed, plan.vocab);
    if (Error error = fillHistories(**executor, cell.workload, sequences))
      return error;
    Timing timing(*cuda, **executor, plan, options);
    if (Error error = timing.measure(sequences, cell))
      return problem("rows {0}, context {1}: {2}", plan.rows, context,
                     llvm::toString(std::move(error)));
    if (Error error = demandSameLogits(cell, timing.logitsOfStep()))
      return error;
    result.cells.push_back(cell);
    progress(cellLine(result, result.cells.back()));
  }
  return Error::success();
}

Error Bench::run() {
  if (Error error = open())
    return error;
  if (Error error = measureCeiling())
    return error;
  auto pages = poolPages();
  if (!pages)
    return pages.takeError();
  const std::vector<int64_t> hops = options.hops.empty() ? std::vector<int64_t>{0} : options.hops;
  for (const Compiled &compiled : plans)
    for (int64_t hop : hops)
      if (Error error = runPlan(compiled, *pages, hop))
        return error;
  return measureCeiling();
}

} // namespace

Error run(const BenchOptions &options, BenchResult &result,
          const std::function<void(llvm::StringRef)> &progress) {
  return Bench(options, result, progress).run();
}

} // namespace megalith::bench
