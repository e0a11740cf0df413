//===- Compare.cpp - Launches against the evaluator -----------------------===//

#include "models/reference/compare.h"
#include "models/weights/bf16.h"
#include "tools/check/Difference.h"
#include "tools/check/Session.h"

namespace megalith::check {

using llvm::Error;
using llvm::Expected;
using reference::kLayerTolerance;
using reference::kLogitsTolerance;
using reference::KvStore;
using reference::Matrix;

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
