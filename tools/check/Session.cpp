//===- Session.cpp - A plan set up beside the reference -------------------===//

#include "tools/check/Session.h"

#include "ir/moe/Moe.h"
#include "models/weights/bf16.h"
#include "runtime/error.h"
#include "tools/weights/OpenWeights.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
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

bool amplifies(mlir::ModuleOp model) {
  bool found = false;
  model.walk([&](mlir::Operation *op) {
    auto residual = llvm::dyn_cast<moe::ResidualOp>(op);
    found |= llvm::isa<moe::QuantizeOp>(op) ||
             (residual && residual.getKind() == moe::ResidualKind::Gated);
  });
  return found;
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

Expected<std::unique_ptr<Session>> Session::create(mlir::ModuleOp module, const runtime::Plan &plan,
                                                   StringRef folder, runtime::Backend &backend,
                                                   const SessionOptions &options) {
  std::unique_ptr<Session> session(new Session(options));
  if (options.layer && (*options.layer < 0 || *options.layer >= plan.layers))
    return problem("layer {0}: the plan has layers 0 to {1}", *options.layer, plan.layers - 1);
  for (const char *name : {kResidual, kQkv, kOutput})
    if (!plan.buffer(name))
      return problem("the plan has no buffer '{0}', which a decode step has", name);
  session->groups = plan.groups();
  if (options.layer)
    session->groups = {session->groups[size_t(*options.layer + 1)]};
  session->firstLaunch = session->groups.front().first;
  session->launchCount = session->groups.back().last() + 1 - session->firstLaunch;
  runtime::ExecuteOptions execute;
  execute.maxPages = options.maxPages;
  execute.poolPages = options.poolPages;
  execute.firstLaunch = session->firstLaunch;
  execute.launchCount = session->launchCount;
  execute.flags = options.launchFlags;
  execute.deadlineNs = options.deadlineNs;
  execute.chaining = options.chaining;
  execute.traced = options.traced;
  execute.tokenSteps = options.tokenSteps;
  const bool isMirrored = options.mirrored || options.ranks.mirror;
  const models::WeightSource *weights = &session->hashed;
  if (isMirrored)
    weights = &session->mirror.emplace(session->hashed, plan);
  auto executor = runtime::RankGroup::create(plan, folder, backend, openTensors(*weights), execute,
                                             options.ranks);
  if (!executor)
    return executor.takeError();
  session->executor = std::move(*executor);
  auto comparison = Comparison::create(module, session->plan(),
                                       {.weightSeed = options.weightSeed,
                                        .layer = options.layer,
                                        .fault = options.fault,
                                        .threads = options.threads,
                                        .mirrored = isMirrored,
                                        .open = options.open});
  if (!comparison)
    return comparison.takeError();
  session->comparison = std::move(*comparison);
  return session;
}

/// The layers whose pages the launches read.
std::vector<int64_t> Session::layersRun() const {
  std::vector<int64_t> layers;
  for (const runtime::LaunchGroup &group : groups)
    if (group.first != 0)
      layers.push_back(plan().launches[size_t(group.first)].layer);
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
  comparison->begin(workload);
  sequences = sequencesOf(workload, 0, plan().vocab);
  for (int64_t layer : layersRun())
    if (Error error = fillHistory(layer, workload))
      return error;
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

Error Session::fillHistory(int64_t layer, const Workload &workload) {
  if (options.fillHistory) {
    for (size_t s = 0; s < sequences.size(); ++s)
      if (Error error = options.fillHistory(layer, workload.seed, workload.sequences[s],
                                            executor->kvPages(layer, sequences[s], int64_t(s))))
        return error;
    return Error::success();
  }
  const KvStore &history = comparison->history(layer);
  const size_t width = size_t(history.heads * history.headDim);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const std::vector<int32_t> pages = executor->kvPages(layer, sequences[s], int64_t(s));
    for (int64_t position = 0; position < workload.sequences[s].start; ++position)
      if (Error error =
              executor->writeKv(layer, pages, position,
                                // Heads of a position lie one after another.
                                bits({history.key(int64_t(s), position, 0).data(), width}),
                                bits({history.value(int64_t(s), position, 0).data(), width})))
        return error;
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

Error Session::begin(const std::vector<runtime::StepSequence> &next) {
  sequences = next;
  if (Error error = comparison->beginStep(sequences))
    return error;
  if (Error error = executor->setStep(sequences))
    return error;
  return options.layer ? writeInputs() : Error::success();
}

Error Session::prepare(const Workload &workload, uint64_t launchBase, uint64_t delaySeed) {
  if (Error error = load(workload, launchBase, delaySeed))
    return error;
  return begin(sequencesOf(workload, 0, plan().vocab));
}

Error Session::writeInputs() {
  // Launches that are left out did not re-arm their sets.
  for (const runtime::Buffer &buffer : plan().buffers)
    if (buffer.kind == runtime::BufferKind::Words)
      if (Error error = executor->resetBuffer(buffer.name))
        return error;
  auto made = comparison->inputs();
  if (!made)
    return made.takeError();
  if (Error error = write(kResidual, firstLaunch - 1, (*made)->residual))
    return error;
  return write(kQkv, firstLaunch - 1, (*made)->qkv);
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
  const auto writeAll = [&](const auto &numbers) {
    const std::span bytes(reinterpret_cast<const unsigned char *>(numbers.data()),
                          numbers.size() * sizeof numbers[0]);
    return executor->writeBuffer(name, bytes, 0,
                                 int64_t(executor->launchNumber(launch) % buffer.sets));
  };
  if (buffer.element == runtime::Element::F32)
    return writeAll(std::vector<float>(values.values.begin(), values.values.end()));
  return writeAll(bits(values.values));
}

//===----------------------------------------------------------------------===//
// Launch by launch
//===----------------------------------------------------------------------===//

/// What launches that have just run left.
Expected<LaunchValues> Session::valuesOf(const runtime::LaunchGroup &group) {
  const int64_t launch = group.last();
  LaunchValues values;
  const auto take = [&](const char *name, Matrix &matrix) -> Error {
    auto taken = read(name, launch);
    if (!taken)
      return taken.takeError();
    matrix = std::move(*taken);
    return Error::success();
  };
  if (Error error = take(kResidual, values.residual))
    return error;
  if (Error error = take(isLast(launch) ? kOutput : kQkv, values.result))
    return error;
  if (group.first == 0)
    return values;
  if (plan().buffer(kRouterLogits))
    if (Error error = take(kRouterLogits, values.routerLogits))
      return error;
  auto kv = readNewKv(plan().launches[size_t(group.first)].layer);
  if (!kv)
    return kv.takeError();
  values.kv = std::move(*kv);
  return values;
}

Expected<Matrix> Session::readNewKv(int64_t layer) {
  const size_t width = size_t(plan().kvHeads * plan().headDim);
  Matrix kv(plan().rows, int64_t(2 * width));
  std::vector<uint16_t> key(width), value(width);
  const reference::Step &step = comparison->step();
  for (int64_t r = 0; r < plan().rows; ++r) {
    const reference::Row &row = step.rows[size_t(r)];
    if (!row.live)
      continue;
    const std::vector<int32_t> pages =
        executor->kvPages(layer, sequences[size_t(row.sequence)], row.sequence);
    if (Error error = executor->readKv(layer, pages, row.position, key, value))
      return error;
    std::transform(key.begin(), key.end(), kv.row(r).begin(), models::fromBf16);
    std::transform(value.begin(), value.end(), kv.row(r).begin() + ptrdiff_t(width),
                   models::fromBf16);
  }
  return kv;
}

Error Session::compareStep(int64_t index, Report &report, std::vector<LaunchValues> *all) {
  for (const runtime::LaunchGroup &group : groups) {
    if (Error error = executor->runLaunches(group.first, group.count))
      return error;
    auto values = valuesOf(group);
    if (!values)
      return values.takeError();
    auto compared = comparison->compare(group, *values);
    if (!compared)
      return compared.takeError();
    if (all)
      all->push_back(std::move(*values));
    compared->step = index;
    report.launches.push_back(std::move(*compared));
  }
  return Error::success();
}

Expected<Report> Session::compare(const Workload &workload, Outcome *outcome,
                                  std::vector<LaunchValues> *values) {
  if (Error error = load(workload, 0, 0))
    return error;
  Report report;
  for (int64_t index = 0; index < workload.steps; ++index) {
    if (Error error = begin(sequencesOf(workload, index, plan().vocab)))
      return error;
    if (Error error = compareStep(index, report, values))
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

Expected<std::vector<LaunchValues>> Session::record(const Workload &workload) {
  if (Error error = load(workload, 0, 0))
    return error;
  std::vector<LaunchValues> all;
  for (int64_t index = 0; index < workload.steps; ++index) {
    if (Error error = begin(sequencesOf(workload, index, plan().vocab)))
      return error;
    for (const runtime::LaunchGroup &group : groups) {
      if (Error error = executor->runLaunches(group.first, group.count))
        return error;
      auto values = valuesOf(group);
      if (!values)
        return values.takeError();
      all.push_back(std::move(*values));
    }
    if (Error error = executor->finishStep())
      return error;
  }
  return all;
}

//===----------------------------------------------------------------------===//
// In one go
//===----------------------------------------------------------------------===//

Expected<Outcome> Session::run(const Workload &workload, uint64_t launchBase, uint64_t delaySeed,
                               runtime::Trace *trace) {
  if (Error error = load(workload, launchBase, delaySeed))
    return error;
  Outcome result;
  for (int64_t index = 0; index < workload.steps; ++index) {
    if (Error error = begin(sequencesOf(workload, index, plan().vocab)))
      return error;
    if (Error error = executor->runLaunches(firstLaunch, launchCount))
      return error;
    auto after = stepOutcome();
    if (!after)
      return after.takeError();
    result.steps.push_back(std::move(*after));
    if (trace && index + 1 == workload.steps) {
      auto read = readTrace();
      if (!read)
        return read.takeError();
      *trace = std::move(*read);
    }
    if (Error error = executor->finishStep())
      return error;
  }
  return result;
}

Expected<runtime::Trace> Session::readTrace() {
  std::vector<runtime::LaunchRecord> records;
  const int64_t end = firstLaunch + launchCount;
  for (int64_t launch = std::max(firstLaunch, end - options.traced); launch < end; ++launch) {
    if (!runtime::isRecorded(plan(), launch))
      continue;
    auto record = executor->readTrace(launch, executor->launchNumber(launch));
    if (!record)
      return record.takeError();
    records.push_back(std::move(*record));
  }
  return runtime::decodeTrace(plan(), records);
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
  for (size_t s = 0; s < sequences.size(); ++s) {
    const runtime::StepSequence &sequence = sequences[s];
    std::vector<uint16_t> &all = result.kv.emplace_back();
    std::vector<uint16_t> key(width), value(width);
    for (int64_t layer : layersRun()) {
      const std::vector<int32_t> pages = executor->kvPages(layer, sequence, int64_t(s));
      for (size_t i = 0; i < sequence.tokens.size(); ++i) {
        if (Error error = executor->readKv(layer, pages, sequence.start + int64_t(i), key, value))
          return error;
        all.insert(all.end(), key.begin(), key.end());
        all.insert(all.end(), value.begin(), value.end());
      }
    }
  }
  return result;
}

} // namespace megalith::check
