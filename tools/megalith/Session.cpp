//===- Session.cpp - a plan beside the reference ----------------------------===//

#include "tools/megalith/Session.h"

#include "models/weights/bf16.h"
#include "models/weights/philox.h"
#include "runtime/error.h"
#include "tools/megalith-opt/Registration.h"
#include "tools/megalith/Compilation.h"
#include "tools/megalith/Failure.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cstring>

using namespace llvm;

namespace megalith::cli {

using reference::kLayerTolerance;
using reference::kLogitsTolerance;
using reference::KvStore;
using reference::Matrix;

// Names that passes/graph fixes (docs/kernel-contract.md, section 7).
static constexpr StringRef kResidual = "resid", kQkv = "qkv", kRouterLogits = "logits",
                           kOutput = "out";

bool LaunchReport::passes() const {
  return residual <= kLayerTolerance && router.value_or(0) <= kLayerTolerance &&
         qkv.value_or(0) <= kLayerTolerance && head.value_or(0) <= kLogitsTolerance &&
         wrongRows == 0 && deadRowsAreZero;
}

bool SessionReport::passes() const {
  return all_of(launches, [](const LaunchReport &launch) { return launch.passes(); });
}

LaunchReport SessionReport::largest() const {
  LaunchReport most;
  for (const LaunchReport &launch : launches) {
    most.residual = std::max(most.residual, launch.residual);
    most.router = std::max(most.router, launch.router);
    most.qkv = std::max(most.qkv, launch.qkv);
    most.head = std::max(most.head, launch.head);
    most.nearTies += launch.nearTies;
    most.wrongRows += launch.wrongRows;
    most.deadRowsAreZero &= launch.deadRowsAreZero;
  }
  return most;
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

Expected<std::unique_ptr<Session>> Session::create(StringRef folder, runtime::Backend &backend,
                                                   const SessionOptions &options) {
  std::unique_ptr<Session> session(new Session(options));
  SmallString<128> file(folder);
  sys::path::append(file, kPlanFile);
  auto plan = runtime::readPlan(file);
  if (!plan)
    return with(Exit::Input, plan.takeError());
  if (Error error = session->load(folder))
    return error;
  if (plan->vocab == 0 || !plan->buffer(kResidual) || !plan->buffer(kQkv) || !plan->buffer(kOutput))
    return failure(Exit::Input,
                   "{0}: expected the plan of a model's step, from embedding to logits, but got "
                   "another one; give OUT/<target>/rows<n> of megalith compile -o OUT",
                   file);
  if (options.layer && *options.layer >= plan->layers)
    return failure(Exit::CommandLine, "--layer: expected 0 to {0} but got '{1}'", plan->layers - 1,
                   *options.layer);
  session->firstLaunch = options.layer ? *options.layer + 1 : 0;
  session->launchCount = options.layer ? 1 : int64_t(plan->launches.size());
  if (Error error = session->makeStep(*plan))
    return error;

  runtime::ExecuteOptions execute;
  execute.maxPages = 1;
  execute.poolPages = 0;
  for (const runtime::StepSequence &sequence : session->sequences) {
    execute.maxPages = std::max(execute.maxPages, int64_t(sequence.pages.size()));
    execute.poolPages += int64_t(sequence.pages.size());
  }
  execute.firstLaunch = session->firstLaunch;
  execute.launchCount = session->launchCount;
  execute.delaySeed = options.delaySeed;
  auto executor =
      runtime::Executor::create(*plan, folder, backend, openHashed(session->weights), execute);
  if (!executor)
    return with(Exit::Run, executor.takeError());
  session->executor = std::move(*executor);
  if (Error error = session->fillCaches())
    return error;
  return session;
}

Error Session::load(StringRef folder) {
  SmallString<128> file(folder);
  sys::path::append(file, kModelFile);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
  if (!sys::fs::exists(file))
    return failure(Exit::Input,
                   "{0}: expected the folder of a plan but got one without {1}; give "
                   "OUT/<target>/rows<n> of megalith compile -o OUT",
                   folder, kModelFile);
  module = mlir::parseSourceFile<mlir::ModuleOp>(file, &context);
  if (!module)
    return failure(Exit::Input, "{0}: expected valid moe IR but got the errors above", file);
  auto created = reference::Evaluator::create(*module, weights, {.fault = options.fault});
  if (!created)
    return with(Exit::Input, created.takeError());
  evaluator = std::move(*created);
  return Error::success();
}

Error Session::makeStep(const runtime::Plan &plan) {
  std::vector<reference::SequenceInput> inputs;
  int64_t live = 0, pages = 0;
  auto pagesOf = [](const SessionSequence &sequence) {
    return (sequence.start + sequence.rows + runtime::kPagePositions - 1) / runtime::kPagePositions;
  };
  for (const SessionSequence &sequence : options.sequences) {
    live += sequence.rows;
    pages += pagesOf(sequence);
  }
  if (live > plan.rows)
    return failure(Exit::CommandLine,
                   "expected at most {0} rows in a step, as the plan was compiled for, but got "
                   "{1}; compile for more --rows or run fewer",
                   plan.rows, live);
  for (const SessionSequence &sequence : options.sequences) {
    reference::SequenceInput input{sequence.start, {}};
    for (int64_t i = 0; i < sequence.rows; ++i)
      input.tokens.push_back(
          int32_t(models::hashedToken(options.seed, uint64_t(sequence.content),
                                      uint64_t(sequence.start + i), uint32_t(plan.vocab))));
    runtime::StepSequence entry{.start = int32_t(sequence.start), .tokens = input.tokens};
    // Pages in falling order: a kernel that forgets the page table reads another page.
    for (int64_t i = 0; i < pagesOf(sequence); ++i)
      entry.pages.push_back(int32_t(--pages));
    sequences.push_back(std::move(entry));
    inputs.push_back(std::move(input));
  }
  step = reference::makeStep(inputs, plan.rows);
  return with(Exit::CommandLine, step.validate());
}

/// The bf16 bits of evaluator values, which are bf16 numbers.
static std::vector<uint16_t> bits(std::span<const double> values) {
  std::vector<uint16_t> result;
  for (double value : values)
    result.push_back(models::toBf16(float(value)));
  return result;
}

Error Session::fillCaches() {
  const std::vector<KvStore> empty = evaluator->makeCaches();
  for (int64_t launch = firstLaunch; launch < firstLaunch + launchCount; ++launch) {
    const int64_t layer = plan().launches[launch].layer;
    if (launch == 0)
      continue;
    KvStore cache = empty[layer];
    std::vector<double> key(cache.heads * cache.headDim), value(key.size());
    for (size_t s = 0; s < sequences.size(); ++s) {
      const SessionSequence &sequence = options.sequences[s];
      cache.fillHashed(options.seed, layer, int64_t(s), sequence.start, sequence.content);
      for (int64_t position = 0; position < sequence.start; ++position) {
        for (int64_t head = 0; head < cache.heads; ++head) {
          copy(cache.key(int64_t(s), position, head), key.begin() + head * cache.headDim);
          copy(cache.value(int64_t(s), position, head), value.begin() + head * cache.headDim);
        }
        if (Error error =
                executor->writeKv(layer, sequences[s].pages, position, bits(key), bits(value)))
          return with(Exit::Run, std::move(error));
      }
    }
    caches.emplace(layer, std::move(cache));
  }
  if (options.layer) {
    const std::string name = formatv("residual.{0}", *options.layer);
    const uint32_t hash = models::fnv1a32(name.data(), name.size());
    const int64_t hidden = plan().buffer(kResidual)->shape.back();
    input = Matrix(plan().rows, hidden);
    int64_t row = 0;
    for (const SessionSequence &sequence : options.sequences)
      for (int64_t i = 0; i < sequence.rows; ++i, ++row)
        for (int64_t c = 0; c < hidden; ++c)
          input.at(row, c) = models::weightValue(
              options.seed, hash,
              uint64_t(((sequence.content << 20) + sequence.start + i) * hidden + c), 1.0f);
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// Makes the step current; a layer alone gets what the launch before it would have left.
Error Session::begin() {
  if (Error error = executor->setStep(sequences))
    return with(Exit::Run, std::move(error));
  if (!options.layer)
    return Error::success();
  // Launches left out did not re-arm their sets.
  for (const runtime::Buffer &buffer : plan().buffers)
    if (buffer.kind == runtime::BufferKind::Words)
      if (Error error = executor->resetBuffer(buffer.name))
        return with(Exit::Run, std::move(error));
  Expected<Matrix> qkv = evaluator->projections(*options.layer, input, step);
  if (!qkv)
    return with(Exit::Run, qkv.takeError());
  if (Error error = write(kResidual, firstLaunch - 1, input))
    return error;
  return write(kQkv, firstLaunch - 1, *qkv);
}

Expected<Matrix> Session::read(StringRef name, int64_t launch) {
  const runtime::Buffer &buffer = *plan().buffer(name);
  auto bytes = executor->readBuffer(name, 0, int64_t(executor->launchNumber(launch) % buffer.sets));
  if (!bytes)
    return with(Exit::Run, bytes.takeError());
  Matrix result(buffer.shape.front(), buffer.shape.back());
  for (size_t i = 0; i < result.values.size(); ++i) {
    if (buffer.element == runtime::Element::F32) {
      float value;
      std::memcpy(&value, bytes->data() + 4 * i, 4);
      result.values[i] = value;
    } else {
      uint16_t value;
      std::memcpy(&value, bytes->data() + 2 * i, 2);
      result.values[i] = models::fromBf16(value);
    }
  }
  return result;
}

Error Session::write(StringRef name, int64_t launch, const Matrix &values) {
  const runtime::Buffer &buffer = *plan().buffer(name);
  const std::vector<uint16_t> words = bits(values.values);
  const std::span bytes(reinterpret_cast<const unsigned char *>(words.data()), words.size() * 2);
  return with(
      Exit::Run,
      executor->writeBuffer(name, bytes, 0, int64_t(executor->launchNumber(launch) % buffer.sets)));
}

static bool deadRowsAreZero(const Matrix &matrix, const reference::Step &step) {
  for (size_t row = 0; row < step.rows.size(); ++row)
    if (!step.rows[row].live && any_of(matrix.row(row), [](double value) { return value != 0; }))
      return false;
  return true;
}

Expected<LaunchReport> Session::compareLaunch(int64_t launch, Matrix &residual) {
  LaunchReport report;
  report.launch = launch;
  report.kernel = plan().launches[launch].kernel;
  Expected<Matrix> left = read(kResidual, launch);
  if (!left)
    return left.takeError();
  report.deadRowsAreZero = deadRowsAreZero(*left, step);
  if (launch == 0) {
    Expected<Matrix> expected = evaluator->embed(step);
    if (!expected)
      return with(Exit::Run, expected.takeError());
    report.residual = relativeRms(*left, *expected, step);
  } else {
    report.layer = plan().launches[launch].layer;
    reference::KernelLayer kernel{.residual = *left};
    if (has(kRouterLogits)) {
      Expected<Matrix> logits = read(kRouterLogits, launch);
      if (!logits)
        return logits.takeError();
      // Routing stays in shared memory: that the experts are these shows in the residual.
      auto routing = evaluator->route(report.layer, *logits, step);
      if (!routing)
        return with(Exit::Run, routing.takeError());
      kernel.logits = std::move(*logits);
      kernel.ids = std::move(routing->ids);
      kernel.weights = std::move(routing->weights);
    }
    KvStore cache = caches.at(report.layer);
    auto compared =
        reference::compareLayer(*evaluator, report.layer, residual, cache, step, kernel);
    if (!compared)
      return with(Exit::Run, compared.takeError());
    report.residual = compared->residual;
    report.router = std::max(compared->logits, compared->weights);
    report.nearTies = compared->nearTies;
    report.wrongRows = compared->wrongRows;
  }
  const bool last = launch + 1 == int64_t(plan().launches.size());
  Expected<Matrix> actual = last ? read(kOutput, launch) : read(kQkv, launch);
  if (!actual)
    return actual.takeError();
  Expected<Matrix> expected =
      last ? evaluator->head(*left, step) : evaluator->projections(launch, *left, step);
  if (!expected)
    return with(Exit::Run, expected.takeError());
  (last ? report.head : report.qkv) = relativeRms(*actual, *expected, step);
  residual = std::move(*left);
  return report;
}

Expected<SessionReport> Session::compare() {
  if (Error error = begin())
    return error;
  SessionReport report;
  Matrix residual = input;
  for (int64_t launch = firstLaunch; launch < firstLaunch + launchCount; ++launch) {
    if (Error error = executor->runLaunches(launch, 1))
      return with(Exit::Run, std::move(error));
    Expected<LaunchReport> compared = compareLaunch(launch, residual);
    if (!compared)
      return compared.takeError();
    report.launches.push_back(std::move(*compared));
  }
  if (Error error = executor->finishStep())
    return with(Exit::Run, std::move(error));
  return report;
}

Expected<std::vector<unsigned char>> Session::run() {
  if (Error error = begin())
    return error;
  if (Error error = executor->runLaunches(firstLaunch, launchCount))
    return with(Exit::Run, std::move(error));
  const int64_t last = firstLaunch + launchCount - 1;
  std::vector<unsigned char> all;
  for (StringRef name : {kResidual, last + 1 == int64_t(plan().launches.size()) ? kOutput : kQkv}) {
    auto bytes = executor->readBuffer(
        name, 0, int64_t(executor->launchNumber(last) % plan().buffer(name)->sets));
    if (!bytes)
      return with(Exit::Run, bytes.takeError());
    all.insert(all.end(), bytes->begin(), bytes->end());
  }
  if (Error error = executor->finishStep())
    return with(Exit::Run, std::move(error));
  return all;
}

} // namespace megalith::cli
