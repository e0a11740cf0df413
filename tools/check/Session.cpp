//===- Session.cpp - A plan set up beside the reference -------------------===//

#include "tools/check/Session.h"

#include "ir/moe/Moe.h"
#include "models/reference/compare.h"
#include "models/weights/bf16.h"
#include "models/weights/philox.h"
#include "runtime/error.h"
#include "tools/check/Difference.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace megalith::check {

using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using reference::kLayerTolerance;
using reference::kLogitsTolerance;
using reference::KvStore;
using reference::Matrix;
using runtime::problem;

// Names that passes/graph fixes (docs/kernel-contract.md, section 7).
static constexpr const char *kResidual = "resid", *kQkv = "qkv", *kRouterLogits = "logits",
                            *kOutput = "out";

int64_t maxPositions(mlir::ModuleOp model) {
  int64_t positions = INT64_MAX;
  model.walk([&](moe::KvAppendOp op) {
    positions = std::min(positions, op.getKv().getType().getPositions());
  });
  return positions;
}

//===----------------------------------------------------------------------===//
// Outcomes
//===----------------------------------------------------------------------===//

bool Outcome::StepOutcome::operator==(const StepOutcome &other) const {
  return residual.values == other.residual.values && result.values == other.result.values &&
         kv == other.kv;
}

bool Outcome::sameRow(int64_t row, const Outcome &other, int64_t otherRow) const {
  if (steps.size() != other.steps.size())
    return false;
  for (size_t s = 0; s < steps.size(); ++s)
    if (!std::ranges::equal(steps[s].residual.row(row), other.steps[s].residual.row(otherRow)) ||
        !std::ranges::equal(steps[s].result.row(row), other.steps[s].result.row(otherRow)))
      return false;
  return true;
}

//===----------------------------------------------------------------------===//
// Setting up
//===----------------------------------------------------------------------===//

/// Hashed weights as the packer wants them.
static runtime::OpenTensor openHashed(const models::HashedWeights &weights) {
  return [&weights](const std::string &name, const std::vector<int64_t> &shape,
                    bool gain) -> Expected<runtime::TensorRow> {
    auto tensor =
        weights.open({name, shape, gain ? models::TensorRole::Gain : models::TensorRole::Matrix});
    if (!tensor)
      return tensor.takeError();
    return [shared = std::shared_ptr<models::WeightTensor>(std::move(*tensor))](
               int64_t row, std::span<uint16_t> out) { shared->row(row, out); };
  };
}

Expected<std::unique_ptr<Session>> Session::create(mlir::ModuleOp module, const runtime::Plan &plan,
                                                   StringRef folder, runtime::Backend &backend,
                                                   const SessionOptions &options) {
  std::unique_ptr<Session> session(new Session(module, options));
  if (Error error = session->plant(options.fault))
    return error;
  if (options.layer && (*options.layer < 0 || *options.layer >= plan.layers))
    return problem("layer {0}: the plan has layers 0 to {1}", *options.layer, plan.layers - 1);
  for (const char *name : {kResidual, kQkv, kOutput})
    if (!plan.buffer(name))
      return problem("the plan has no buffer '{0}', which a decode step has", name);
  session->firstLaunch = options.layer ? *options.layer + 1 : 0;
  session->launchCount = options.layer ? 1 : int64_t(plan.launches.size());
  runtime::ExecuteOptions execute;
  execute.maxPages = options.maxPages;
  execute.poolPages = options.poolPages;
  execute.firstLaunch = session->firstLaunch;
  execute.launchCount = session->launchCount;
  execute.flags = options.launchFlags;
  execute.deadlineNs = options.deadlineNs;
  execute.chaining = options.chaining;
  auto executor =
      runtime::Executor::create(plan, folder, backend, openHashed(session->weights), execute);
  if (!executor)
    return executor.takeError();
  session->executor = std::move(*executor);
  return session;
}

Error Session::plant(reference::Fault fault) {
  auto created =
      reference::Evaluator::create(module, weights, {.threads = options.threads, .fault = fault});
  if (!created)
    return created.takeError();
  evaluator = std::move(*created);
  return Error::success();
}

/// The layers whose pages the launches read.
std::vector<int64_t> Session::layersRun() const {
  std::vector<int64_t> layers;
  for (int64_t launch = std::max<int64_t>(firstLaunch, 1); launch < firstLaunch + launchCount;
       ++launch)
    layers.push_back(plan().launches[launch].layer);
  return layers;
}

Error Session::load(const Workload &workload, uint64_t launchBase, uint64_t delaySeed) {
  if (workload.maxPages() > options.maxPages || workload.totalPages() > options.poolPages)
    return problem("{0}: needs {1} pages a sequence and {2} in all, the session has {3} and {4}",
                   workload.str(), workload.maxPages(), workload.totalPages(), options.maxPages,
                   options.poolPages);
  executor->restart(launchBase, delaySeed);
  for (const runtime::Buffer &buffer : plan().buffers) {
    if (Error error = executor->resetBuffer(buffer.name))
      return error;
    if (buffer.kind == runtime::BufferKind::Epoch)
      if (Error error = poison(buffer))
        return error;
  }
  sequences = sequencesOf(workload, 0, plan().vocab);
  caches = evaluator->makeCaches();
  for (int64_t layer : layersRun())
    if (Error error = fillCache(layer, workload))
      return error;
  wholeCaches = std::vector<KvStore>(caches); // stores can be copied, not assigned
  return Error::success();
}

/// Any epoch that is not the current one means that the word is not there yet.
Error Session::poison(const runtime::Buffer &buffer) {
  const std::vector<uint32_t> words(size_t(buffer.bytes / 4), runtime::kPoisonWord);
  return executor->writeBuffer(
      buffer.name, {reinterpret_cast<const unsigned char *>(words.data()), words.size() * 4});
}

/// The bf16 bits of values that are bf16 numbers.
static std::vector<uint16_t> bits(std::span<const double> values) {
  std::vector<uint16_t> result;
  for (double value : values)
    result.push_back(models::toBf16(float(value)));
  return result;
}

Error Session::fillCache(int64_t layer, const Workload &workload) {
  KvStore &cache = caches[size_t(layer)];
  const size_t width = size_t(cache.heads * cache.headDim);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Sequence &sequence = workload.sequences[s];
    cache.fillHashed(workload.seed, layer, int64_t(s), sequence.start, sequence.content);
    for (int64_t position = 0; position < sequence.start; ++position)
      if (Error error =
              executor->writeKv(layer, sequences[s].pages, position,
                                // Heads of a position lie one after another.
                                bits({cache.key(int64_t(s), position, 0).data(), width}),
                                bits({cache.value(int64_t(s), position, 0).data(), width})))
        return error;
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

Error Session::begin(const Workload &workload, int64_t index) {
  sequences = sequencesOf(workload, index, plan().vocab);
  step = stepOf(sequences, plan().rows);
  if (Error error = step.validate())
    return error;
  routing.assign(size_t(plan().layers), {});
  if (Error error = executor->setStep(sequences))
    return error;
  return options.layer ? writeInputs(workload, index) : Error::success();
}

/// A layer alone gets what the launch before it would have left: a residual made up like a weight,
/// and the evaluator's projections of it.
Error Session::writeInputs(const Workload &workload, int64_t index) {
  // Launches that are left out did not re-arm their sets.
  for (const runtime::Buffer &buffer : plan().buffers)
    if (buffer.kind == runtime::BufferKind::Words)
      if (Error error = executor->resetBuffer(buffer.name))
        return error;
  const std::string name = llvm::formatv("residual.{0}", *options.layer).str();
  const uint32_t hash = models::fnv1a32(name.data(), name.size());
  const int64_t hidden = plan().buffer(kResidual)->shape.back();
  input = Matrix(plan().rows, hidden);
  for (int64_t r = 0; r < plan().rows; ++r) {
    const reference::Row &row = step.rows[size_t(r)];
    if (!row.live)
      continue;
    const int64_t content = workload.sequences[size_t(row.sequence)].content;
    for (int64_t c = 0; c < hidden; ++c)
      input.at(r, c) = models::weightValue(
          workload.seed, hash, uint64_t(((content << 20) + row.position) * hidden + c), 1.0f);
  }
  auto qkv = evaluator->projections(*options.layer, input, step);
  if (!qkv)
    return qkv.takeError();
  if (Error error = write(kResidual, firstLaunch - 1, input))
    return error;
  return write(kQkv, firstLaunch - 1, *qkv);
}

/// The values of a bf16 or fp32 buffer.
static Matrix toMatrix(const runtime::Buffer &buffer, const std::vector<unsigned char> &bytes) {
  Matrix result(buffer.shape.front(), buffer.shape.back());
  for (size_t i = 0; i < result.values.size(); ++i) {
    if (buffer.element == runtime::Element::F32) {
      float value;
      std::memcpy(&value, bytes.data() + 4 * i, 4);
      result.values[i] = value;
    } else {
      uint16_t value;
      std::memcpy(&value, bytes.data() + 2 * i, 2);
      result.values[i] = models::fromBf16(value);
    }
  }
  return result;
}

Expected<Matrix> Session::read(StringRef name, int64_t launch) {
  const runtime::Buffer &buffer = *plan().buffer(name);
  auto bytes = executor->readBuffer(name, 0, int64_t(executor->launchNumber(launch) % buffer.sets));
  if (!bytes)
    return bytes.takeError();
  return toMatrix(buffer, *bytes);
}

Error Session::write(StringRef name, int64_t launch, const Matrix &values) {
  const runtime::Buffer &buffer = *plan().buffer(name);
  const std::vector<uint16_t> words = bits(values.values);
  const std::span bytes(reinterpret_cast<const unsigned char *>(words.data()), words.size() * 2);
  return executor->writeBuffer(name, bytes, 0,
                               int64_t(executor->launchNumber(launch) % buffer.sets));
}

Expected<Outcome> Session::run(const Workload &workload, uint64_t launchBase, uint64_t delaySeed) {
  if (Error error = load(workload, launchBase, delaySeed))
    return error;
  Outcome result;
  for (int64_t index = 0; index < workload.steps; ++index) {
    if (Error error = begin(workload, index))
      return error;
    if (Error error = executor->runLaunches(firstLaunch, launchCount))
      return error;
    auto after = stepOutcome();
    if (!after)
      return after.takeError();
    result.steps.push_back(std::move(*after));
    if (Error error = executor->finishStep())
      return error;
  }
  return result;
}

Expected<Outcome::StepOutcome> Session::stepOutcome() {
  const int64_t last = firstLaunch + launchCount - 1;
  Outcome::StepOutcome result;
  auto residual = read(kResidual, last);
  if (!residual)
    return residual.takeError();
  result.residual = std::move(*residual);
  auto values = read(isLast(last) ? kOutput : kQkv, last);
  if (!values)
    return values.takeError();
  result.result = std::move(*values);
  const size_t width = size_t(plan().kvHeads * plan().headDim);
  for (const runtime::StepSequence &sequence : sequences) {
    std::vector<uint16_t> &all = result.kv.emplace_back();
    std::vector<uint16_t> key(width), value(width);
    for (int64_t layer : layersRun())
      for (size_t i = 0; i < sequence.tokens.size(); ++i) {
        if (Error error =
                executor->readKv(layer, sequence.pages, sequence.start + int64_t(i), key, value))
          return error;
        all.insert(all.end(), key.begin(), key.end());
        all.insert(all.end(), value.begin(), value.end());
      }
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Comparing
//===----------------------------------------------------------------------===//

/// Adds what is wrong with `actual`, if it exceeds twice the tolerance, to the report.
static double measure(const char *what, const Matrix &actual, const Matrix &expected,
                      const reference::Step &step, LaunchReport &report,
                      double tolerance = kLayerTolerance) {
  const double error = relativeRms(actual, expected, step);
  if (!(error <= 2 * tolerance) && report.difference.empty()) {
    const std::string where = locate(actual, expected, step, tolerance);
    report.difference =
        std::string(what) + ": " + (where.empty() ? "many values differ by a little" : where);
  }
  return error;
}

static void demandZeros(const char *what, const Matrix &actual, const reference::Step &step,
                        LaunchReport &report) {
  const std::string where = locateInDeadRows(actual, step);
  if (!where.empty() && report.difference.empty())
    report.difference = std::string(what) + ": " + where;
}

Expected<Report> Session::compare(const Workload &workload, Outcome *outcome,
                                  std::vector<LaunchValues> *allValues) {
  if (Error error = load(workload, 0, 0))
    return error;
  Report report;
  for (int64_t index = 0; index < workload.steps; ++index) {
    if (Error error = begin(workload, index))
      return error;
    Matrix residual = input;
    for (int64_t launch = firstLaunch; launch < firstLaunch + launchCount; ++launch) {
      if (Error error = executor->runLaunches(launch, 1))
        return error;
      LaunchValues values;
      auto compared = compareLaunch(launch, residual, values);
      if (!compared)
        return compared.takeError();
      if (allValues)
        allValues->push_back(std::move(values));
      compared->step = index;
      report.launches.push_back(std::move(*compared));
    }
    if (!options.layer)
      if (Error error = compareWhole(report.launches.back()))
        return error;
    if (outcome) {
      auto after = stepOutcome();
      if (!after)
        return after.takeError();
      outcome->steps.push_back(std::move(*after));
    }
    if (Error error = executor->finishStep())
      return error;
  }
  return report;
}

/// `residual`: what the launch before left, in and out.
Expected<LaunchReport> Session::compareLaunch(int64_t launch, Matrix &residual,
                                              LaunchValues &values) {
  LaunchReport report;
  report.launch = launch;
  report.kernel = plan().launches[launch].kernel;
  auto after = read(kResidual, launch);
  if (!after)
    return after.takeError();
  values.residual = std::move(*after);
  if (launch == 0) {
    auto expected = evaluator->embed(step);
    if (!expected)
      return expected.takeError();
    report.residual = measure("residual", values.residual, *expected, step, report);
  } else {
    report.layer = plan().launches[launch].layer;
    if (Error error = compareLayer(launch, residual, values, report))
      return error;
  }
  demandZeros("residual", values.residual, step, report);
  if (Error error = compareResult(launch, values, report))
    return error;
  residual = values.residual;
  return report;
}

Error Session::compareLayer(int64_t launch, const Matrix &before, LaunchValues &values,
                            LaunchReport &report) {
  const int64_t layer = report.layer;
  const Matrix &after = values.residual;
  reference::KernelLayer kernel{.residual = after};
  if (plan().buffer(kRouterLogits)) {
    auto logits = read(kRouterLogits, launch);
    if (!logits)
      return logits.takeError();
    // The choice itself stays in shared memory: that it is this one shows in the residual.
    auto chosen = evaluator->route(layer, *logits, step);
    if (!chosen)
      return chosen.takeError();
    values.routerLogits = std::move(*logits);
    values.routing = std::move(*chosen);
    kernel.logits = values.routerLogits;
    kernel.ids = values.routing.ids;
    kernel.weights = values.routing.weights;
    routing[size_t(layer)] = kernel.ids;
  }
  const KvStore cacheBefore = caches[size_t(layer)];
  auto compared =
      reference::compareLayer(*evaluator, layer, before, caches[size_t(layer)], step, kernel);
  if (!compared)
    return compared.takeError();
  report.residual = compared->residual;
  report.nearTies = compared->nearTies;
  report.wrongRows = compared->wrongRows;
  if (kernel.logits.rows)
    report.router = std::max(compared->logits, compared->weights);
  // KV first: what is wrong there explains everything after it.
  if (Error error = compareKv(layer, report))
    return error;
  if (report.passes() || !report.difference.empty())
    return Error::success();
  // compareLayer gives numbers only; where it is comes from the same evaluation once more.
  KvStore cache = cacheBefore;
  auto expected =
      evaluator->layer(layer, before, cache, step, kernel.logits.rows ? &kernel.ids : nullptr);
  if (!expected)
    return expected.takeError();
  if (kernel.logits.rows) {
    measure("router logits", kernel.logits, expected->routing->logits, step, report);
    measure("expert weights", kernel.weights, expected->routing->weights, step, report);
  }
  measure("residual", after, expected->residual, step, report);
  return Error::success();
}

/// Compares the step's new positions with the cache, then puts the kernel's own values there: later
/// steps start from what is in the pages.
Error Session::compareKv(int64_t layer, LaunchReport &report) {
  KvStore &cache = caches[size_t(layer)];
  const int64_t width = cache.heads * cache.headDim;
  Matrix actual(plan().rows, 2 * width), expected(plan().rows, 2 * width);
  std::vector<uint16_t> key(static_cast<size_t>(width)), value(static_cast<size_t>(width));
  for (int64_t r = 0; r < plan().rows; ++r) {
    const reference::Row &row = step.rows[size_t(r)];
    if (!row.live)
      continue;
    if (Error error = executor->readKv(layer, sequences[size_t(row.sequence)].pages, row.position,
                                       key, value))
      return error;
    const double *keys = cache.key(row.sequence, row.position, 0).data();
    const double *values = cache.value(row.sequence, row.position, 0).data();
    for (int64_t i = 0; i < width; ++i) {
      actual.at(r, i) = models::fromBf16(key[size_t(i)]);
      actual.at(r, width + i) = models::fromBf16(value[size_t(i)]);
      expected.at(r, i) = keys[i];
      expected.at(r, width + i) = values[i];
    }
    cache.write(row.sequence, row.position, actual.row(r).first(size_t(width)),
                actual.row(r).last(size_t(width)));
  }
  report.kv = measure("keys, then values, of the new positions", actual, expected, step, report);
  return Error::success();
}

Error Session::compareResult(int64_t launch, LaunchValues &values, LaunchReport &report) {
  auto actual = read(isLast(launch) ? kOutput : kQkv, launch);
  if (!actual)
    return actual.takeError();
  auto expected = isLast(launch) ? evaluator->head(values.residual, step)
                                 : evaluator->projections(launch, values.residual, step);
  if (!expected)
    return expected.takeError();
  (isLast(launch) ? report.head : report.qkv) =
      measure(isLast(launch) ? "logits" : "projections", *actual, *expected, step, report);
  if (!isLast(launch))
    demandZeros("projections", *actual, step, report);
  values.result = std::move(*actual);
  return Error::success();
}

/// The step's logits against a whole step of the evaluator, given the kernels' routing.
Error Session::compareWhole(LaunchReport &report) {
  auto expected = evaluator->step(step, wholeCaches, routing);
  if (!expected)
    return expected.takeError();
  auto actual = read(kOutput, firstLaunch + launchCount - 1);
  if (!actual)
    return actual.takeError();
  report.whole = measure("logits of the whole step", *actual, expected->logits, step, report,
                         kLogitsTolerance);
  return Error::success();
}

} // namespace megalith::check
