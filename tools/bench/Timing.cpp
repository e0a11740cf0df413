//===- Timing.cpp - The ways to run a step, timed ---------------------------===//

#include "tools/bench/Timing.h"

#include "runtime/error.h"
#include "tools/trace/Export.h"
#include "tools/trace/Path.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

using llvm::Error;
using llvm::Expected;
using namespace megalith::runtime;

namespace megalith::bench {

// Names that every plan has (docs/kernel-contract.md section 7).
constexpr const char *kRouterLogits = "logits", *kActivations = "act", *kOutput = "out",
                     *kRouterBias = "router_bias"; // only where a bias chooses

/// Takes an error out of a function of Expected<T>.
#define MEGALITH_TRY(variable, expression)                                                         \
  auto variable = expression;                                                                      \
  if (!variable)                                                                                   \
  return variable.takeError()

Times summarise(std::vector<double> values) {
  if (values.empty())
    return {};
  std::sort(values.begin(), values.end());
  const size_t last = values.size() - 1;
  const double median = (values[last / 2] + values[(last + 1) / 2]) / 2;
  return {median, values.front(), values[size_t(std::lround(double(last) * 0.9))]};
}

Error Timing::measure(std::span<const StepSequence> stepSequences, Cell &cell) {
  sequences = stepSequences;
  if (Error error = begin())
    return error;
  if (Error error = route(cell))
    return error;
  cell.traffic =
      stepTraffic(whole, cell.activeExperts, {cell.workload.histories, cell.workload.context});

  if (Error error = timeSeparate(cell))
    return error;
  if (Error error = demandSameLogits("separate launches"))
    return error;

  const Prepared step = wholeStep(/*feedback=*/false);
  MEGALITH_TRY(stream, timeSteps([&] {
                 advanced += launches;
                 return cuda.enqueue(step, Chaining::Programmatic);
               }));
  cell.stream = summarise(*stream);
  if (Error error = demandSameLogits("a stream of programmatic launches"))
    return error;

  MEGALITH_TRY(graph, timeGraph(wholeStep(/*feedback=*/false), launches));
  cell.graph = summarise(*graph);
  if (Error error = demandSameLogits("a CUDA graph"))
    return error;

  if (Error error = timeRotating(cell))
    return error;
  if (options.trace)
    if (Error error = readRecords(cell))
      return error;
  return options.feedback ? timeFeedback(cell) : Error::success();
}

/// All launches of a step, and the one that moves the descriptor on.
Timing::Prepared Timing::wholeStep(bool feedback) const {
  Prepared step = executor.prepareLaunches(0, launches);
  step.push_back(executor.prepareAdvance(launches, feedback));
  return step;
}

Expected<std::vector<double>> Timing::timeGraph(const Prepared &step, int64_t count,
                                                const LaunchOf &launchOf) {
  Driver &driver = cuda.driver();
  MEGALITH_TRY(graph, driver.capture([&] { return cuda.enqueue(step, Chaining::Programmatic); }));
  auto replays = timeSteps(
      [&] {
        advanced += count;
        return driver.launchGraph(*graph);
      },
      launchOf);
  if (replays) // else with the context gone, so is the graph
    driver.destroyGraph(*graph);
  return replays;
}

/// Steps of the tokens that the steps before chose, each one position further.
Error Timing::timeFeedback(Cell &cell) {
  MEGALITH_TRY(tokens, executor.generate(options.warmUp + options.steps));
  if (Error error = begin())
    return error;
  MEGALITH_TRY(replays, timeGraph(wholeStep(/*feedback=*/true), launches));
  cell.feedback = summarise(*replays);
  if (Error error = executor.followDevice())
    return error;
  advanced = 0;
  cell.tokens = std::move(*tokens);
  const StepDescriptor &after = executor.descriptorNow();
  std::vector<int32_t> last;
  for (int32_t s = 0; s < after.sequences; ++s)
    last.push_back(after.row_token[after.seq[s].first_row]);
  if (cell.tokens.back() != last)
    return problem("a CUDA graph whose steps feed each other: expected the tokens of the run "
                   "before but got others; please report this as a fault of the kernels");
  return begin();
}

/// Uploads the step anew, with the launch counter where the GPU has left it and poisoned logits.
Error Timing::begin() {
  executor.restart(executor.launchBase() + uint64_t(advanced), 0);
  advanced = 0;
  if (executor.getPlan().buffer(kOutput))
    if (Error error = executor.resetBuffer(kOutput))
      return error;
  return executor.setStep(sequences);
}

/// fp32 values of bytes.
static std::vector<float> floats(const std::vector<unsigned char> &bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), 4 * values.size());
  return values;
}

/// Runs a step launch by launch and finds which experts its rows chose.
Error Timing::route(Cell &cell) {
  const Plan &plan = executor.getPlan();
  if (!executor.hasAdvance())
    return problem("the plan has no kernel that moves a step on; compile it again with this "
                   "version of megalith");
  const Buffer *router = plan.buffer(kRouterLogits), *act = plan.buffer(kActivations);
  if (!router || !act || !plan.buffer(kOutput))
    return problem("the plan has no buffers '{0}', '{1}' and '{2}', which a decode step has",
                   kRouterLogits, kActivations, kOutput);
  const int64_t experts = router->shape.back(), chosen = act->shape.front() / plan.rows;
  cell.activeExperts.assign(size_t(plan.layers), 0);
  for (int64_t i = 0; i < launches; ++i) {
    if (Error error = executor.runLaunches(i, 1))
      return error;
    const Launch &launch = plan.launches[size_t(i)];
    const Kernel &kernel = *plan.kernel(launch.kernel);
    const bool routes =
        std::any_of(kernel.slots.begin(), kernel.slots.end(), [&](const SlotBinding &slot) {
          const Weight *weight = plan.weight(slot.name);
          return weight && weight->experts && slot.isUsedIn(i);
        });
    if (!routes)
      continue;
    MEGALITH_TRY(bytes,
                 executor.readBuffer(kRouterLogits, launch.layer,
                                     int64_t(executor.launchNumber(i) % uint64_t(router->sets))));
    std::vector<float> bias;
    if (plan.weight(kRouterBias)) {
      MEGALITH_TRY(vector, executor.readVector(kRouterBias, launch.layer));
      bias = floats(*vector);
      if (int64_t(bias.size()) != experts)
        return problem("weight '{0}': expected {1} fp32 values, one an expert, but got {2}",
                       kRouterBias, experts, bias.size());
    }
    // Dead rows choose nothing; here all rows live.
    cell.activeExperts[size_t(launch.layer)] =
        distinctExperts(floats(*bytes), experts, chosen, bias);
  }
  if (Error error = executor.finishStep())
    return error;
  MEGALITH_TRY(bytes, executor.readBuffer(kOutput));
  logits = std::move(*bytes);
  cell.logits = int64_t(logits.size() / 4);
  cell.finiteLogits = 0;
  for (size_t i = 0; i + 4 <= logits.size(); i += 4) {
    float value;
    std::memcpy(&value, &logits[i], 4);
    cell.finiteLogits += std::isfinite(value);
  }
  return Error::success();
}

Error Timing::demandSameLogits(const char *mode) {
  MEGALITH_TRY(bytes, executor.readBuffer(kOutput));
  if (*bytes == logits)
    return begin();
  int64_t wrong = 0;
  for (size_t i = 0; i < logits.size(); i += 4)
    wrong += std::memcmp(&logits[i], &(*bytes)[i], 4) != 0;
  return problem("{0}: expected the logits of the launch-by-launch run but {1} of {2} have other "
                 "bits; please report this as a fault of the kernels",
                 mode, wrong, logits.size() / 4);
}

Error Timing::advance(int64_t count) {
  advanced += count;
  const PreparedLaunch launch = executor.prepareAdvance(count, /*feedback=*/false);
  return cuda.enqueue({&launch, 1}, Chaining::Separate);
}

/// Waits; a fault is told by what the launch with its number is in the plan.
Error Timing::synchronize(const LaunchOf &launchOf) {
  return executor.explain(cuda.driver().synchronize(), cuda.faults(), launchOf);
}

/// Microseconds of each of options.steps steps, back to back, after the warm-up.
Expected<std::vector<double>> Timing::timeSteps(const Enqueue &step, const LaunchOf &launchOf) {
  for (int64_t i = 0; i < options.warmUp; ++i)
    if (Error error = step())
      return error;
  std::vector<Event> events;
  for (int64_t i = 0; i <= options.steps; ++i) {
    MEGALITH_TRY(event, Event::create(cuda.driver()));
    events.push_back(std::move(*event));
  }
  for (int64_t i = 0; i <= options.steps; ++i) {
    if (Error error = events[size_t(i)].record())
      return error;
    if (i < options.steps)
      if (Error error = step())
        return error;
  }
  if (Error error = synchronize(launchOf))
    return error;
  std::vector<double> result;
  for (size_t i = 1; i < events.size(); ++i) {
    MEGALITH_TRY(microseconds, events[i].since(events[i - 1]));
    result.push_back(*microseconds);
  }
  return result;
}

/// What the last launches of a step among others recorded.
Error Timing::readRecords(Cell &cell) {
  const Plan &plan = executor.getPlan();
  const Prepared step = wholeStep(/*feedback=*/false);
  for (int64_t i = 0; i < options.warmUp; ++i) {
    if (Error error = cuda.enqueue(step, Chaining::Programmatic))
      return error;
    advanced += launches;
  }
  if (Error error = synchronize())
    return error;
  const uint64_t base = executor.launchBase() + uint64_t(advanced - launches);
  std::vector<LaunchRecord> records;
  for (int64_t i = std::max<int64_t>(0, launches - kTracedLaunches); i < launches; ++i) {
    if (!isRecorded(plan, i))
      continue;
    MEGALITH_TRY(one, executor.readTrace(i, base + uint64_t(i)));
    records.push_back(std::move(*one));
  }
  MEGALITH_TRY(decoded, decodeTrace(plan, records));
  const trace::Summary summary = trace::summarise(plan, *decoded);
  // Of a launch, where one computes a layer.
  const int64_t bytes =
      cell.launch == runtime::LaunchMode::Fused ? cell.rotatingTraffic.total() : 0;
  cell.traceTable = trace::table(*decoded, summary, bytes);
  if (const auto path = trace::criticalPath(plan, *decoded))
    cell.traceTable += "\n" + trace::table(*path);
  cell.traceJson = trace::toJson(plan, *decoded, summary);
  cell.perfetto = trace::toPerfetto(plan, *decoded);
  return demandSameLogits("recorded launches");
}

/// Launches one at a time, an event around each; of a looping kernel its turns.
Error Timing::timeSeparate(Cell &cell) {
  const Plan &plan = executor.getPlan();
  std::vector<Prepared> prepared;
  for (int64_t i = 0; i < launches; ++i)
    prepared.push_back(executor.prepareLaunches(i, 1));
  std::vector<Event> events;
  for (int64_t i = 0; i <= launches; ++i) {
    MEGALITH_TRY(event, Event::create(cuda.driver()));
    events.push_back(std::move(*event));
  }
  std::map<std::string, std::vector<double>> times;
  std::vector<double> steps;
  const int64_t count = std::max<int64_t>(3, options.steps / 3);
  for (int64_t step = -1; step < count; ++step) { // one to warm up
    for (int64_t i = 0; i <= launches; ++i) {
      if (Error error = events[size_t(i)].record())
        return error;
      if (i < launches)
        if (Error error = cuda.enqueue(prepared[size_t(i)], Chaining::Separate))
          return error;
    }
    if (Error error = advance(launches))
      return error;
    if (Error error = synchronize())
      return error;
    if (step < 0)
      continue;
    for (int64_t i = 0; i < launches; ++i) {
      MEGALITH_TRY(microseconds, events[size_t(i) + 1].since(events[size_t(i)]));
      times[plan.launches[size_t(i)].kernel].push_back(*microseconds);
    }
    MEGALITH_TRY(microseconds, events.back().since(events.front()));
    steps.push_back(*microseconds);
  }
  cell.separate = summarise(steps);
  for (const Kernel &kernel : plan.kernels) {
    if (!times.count(kernel.name))
      continue; // no launch of the step's
    KernelTimes &entry = cell.kernels.emplace_back();
    entry.kernel = kernel.name;
    entry.one = summarise(times[kernel.name]);
    for (int64_t i = 0; i < launches; ++i)
      if (plan.launches[size_t(i)].kernel == kernel.name) {
        ++entry.launches;
        entry.traffic += trafficOf(cell, i);
      }
  }
  return Error::success();
}

/// The longest row of layers whose launches are of the same kernels.
std::vector<LaunchGroup> Timing::equalLayers() const {
  const Plan &plan = executor.getPlan();
  const auto isLike = [&](const LaunchGroup &a, const LaunchGroup &b) {
    return std::equal(plan.launches.begin() + a.first, plan.launches.begin() + a.first + a.count,
                      plan.launches.begin() + b.first, plan.launches.begin() + b.first + b.count,
                      [](const Launch &x, const Launch &y) { return x.kernel == y.kernel; });
  };
  std::vector<LaunchGroup> best, row;
  for (const LaunchGroup &group : plan.groups()) {
    if (!row.empty() && !isLike(row.front(), group))
      row.clear();
    row.push_back(group);
    if (row.size() > best.size())
      best = row;
  }
  return best;
}

/// The layers that a kernel computes in a launch each.
std::vector<LaunchGroup> Timing::layersOf(const std::string &kernel) const {
  const Plan &plan = executor.getPlan();
  std::vector<LaunchGroup> layers;
  for (const LaunchGroup &group : plan.groups())
    if (group.count == 1 && plan.launches[size_t(group.first)].kernel == kernel)
      layers.push_back(group);
  return layers;
}

Traffic Timing::trafficOf(const Cell &cell, int64_t launch) const {
  return launchTraffic(whole, launch, cell.activeExperts,
                       {cell.workload.histories, cell.workload.context});
}

Error Timing::timeRotating(Cell &cell) {
  const Plan &plan = executor.getPlan();
  if (plan.loopingKernel())
    return Error::success(); // its turns follow each other in `stream` and `graph`
  if (Error error = rotate(equalLayers(), cell, cell.rotating, cell.rotatingTraffic))
    return error;
  std::vector<KindTimes> kinds;
  for (const Kernel &kernel : plan.kernels) {
    KindTimes kind{.kernel = kernel.name};
    std::optional<Times> times;
    if (Error error = rotate(layersOf(kernel.name), cell, times, kind.traffic))
      return error;
    if (!times)
      continue;
    kind.one = *times;
    kinds.push_back(std::move(kind));
  }
  if (kinds.size() > 1)
    cell.kinds = std::move(kinds);
  return Error::success();
}

/// The launches before the first layer, then `rounds` times these layers, every launch taking its
/// input from the one before, as a CUDA graph: microseconds of each of its replays. What it
/// computes is no model's step, but the same work.
Expected<std::vector<double>> Timing::timeRounds(const std::vector<int64_t> &indices,
                                                 int64_t rounds) {
  const int64_t first = executor.getPlan().groups()[1].first;
  Prepared all = executor.prepareLaunches(0, first);
  for (int64_t round = 0; round < rounds; ++round)
    for (int64_t index : indices) {
      PreparedLaunch &launch = all.emplace_back(executor.prepareLaunches(index, 1).front());
      launch.setLaunchInStep(uint32_t(all.size() - 1));
    }
  const auto count = int64_t(all.size());
  all.push_back(executor.prepareAdvance(count, /*feedback=*/false));
  return timeGraph(all, count, [&](uint64_t passed) {
    const int64_t launch = int64_t(passed % uint64_t(count));
    return launch < first ? launch : indices[size_t(launch - first) % indices.size()];
  });
}

/// What a layer takes among these: what more rounds cost in a graph that has them.
Error Timing::rotate(const std::vector<LaunchGroup> &groups, const Cell &cell,
                     std::optional<Times> &result, Traffic &each) {
  if (groups.size() < 2 || groups.front().first == 0)
    return Error::success();
  std::vector<int64_t> indices;
  for (const LaunchGroup &group : groups)
    for (int64_t i = group.first; i <= group.last(); ++i)
      indices.push_back(i);
  const auto layers = int64_t(groups.size()), more = (kTurns + layers - 1) / layers;
  MEGALITH_TRY(shorter, timeRounds(indices, 1));
  MEGALITH_TRY(longer, timeRounds(indices, 1 + more));
  // Either graph's replays differ: any of one less any of the other.
  const double one = double(more * layers);
  std::vector<double> differences;
  for (double time : *longer)
    for (double once : *shorter)
      differences.push_back((time - once) / one);
  result = summarise(std::move(differences));
  result->median = (summarise(*longer).median - summarise(*shorter).median) / one;
  Traffic all;
  for (int64_t index : indices)
    all += trafficOf(cell, index);
  each = {all.dense / layers, all.experts / layers, all.kv / layers};
  return begin();
}

#undef MEGALITH_TRY

} // namespace megalith::bench
