//===- Session.cpp - A plan set up beside the reference -------------------===//

#include "tools/check/Session.h"

#include "ir/moe/Moe.h"
#include "models/weights/bf16.h"
#include "models/weights/philox.h"
#include "runtime/error.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace megalith::check {

using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
using reference::KvStore;
using reference::Matrix;
using runtime::problem;

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
  inputs.clear();
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
  Inputs &made = inputs[{workload.str(), workload.seed, index}];
  if (!made.residual.rows)
    if (Error error = makeInputs(workload, made))
      return error;
  input = made.residual;
  if (Error error = write(kResidual, firstLaunch - 1, input))
    return error;
  return write(kQkv, firstLaunch - 1, made.qkv);
}

Error Session::makeInputs(const Workload &workload, Inputs &made) {
  const std::string name = llvm::formatv("residual.{0}", *options.layer).str();
  const uint32_t hash = models::fnv1a32(name.data(), name.size());
  const int64_t hidden = plan().buffer(kResidual)->shape.back();
  made.residual = Matrix(plan().rows, hidden);
  for (int64_t r = 0; r < plan().rows; ++r) {
    const reference::Row &row = step.rows[size_t(r)];
    if (!row.live)
      continue;
    const int64_t content = workload.sequences[size_t(row.sequence)].content;
    for (int64_t c = 0; c < hidden; ++c)
      made.residual.at(r, c) = models::weightValue(
          workload.seed, hash, uint64_t(((content << 20) + row.position) * hidden + c), 1.0f);
  }
  auto qkv = evaluator->projections(*options.layer, made.residual, step);
  if (!qkv)
    return qkv.takeError();
  made.qkv = std::move(*qkv);
  return Error::success();
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

} // namespace megalith::check
