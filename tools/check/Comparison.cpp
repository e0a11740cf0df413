//===- Comparison.cpp - Launches against the evaluator --------------------===//

#include "tools/check/Comparison.h"

#include "ir/moe/Moe.h"
#include "models/reference/compare.h"
#include "models/weights/philox.h"
#include "runtime/error.h"
#include "tools/check/Difference.h"

#include "llvm/Support/FormatVariadic.h"

namespace megalith::check {

using llvm::Error;
using llvm::Expected;
using reference::kLayerTolerance;
using reference::kLogitsTolerance;
using reference::KvStore;
using reference::Matrix;
using runtime::problem;

Expected<std::unique_ptr<Comparison>> Comparison::create(mlir::ModuleOp module,
                                                         const runtime::Plan &plan,
                                                         const ComparisonOptions &options) {
  std::unique_ptr<Comparison> comparison(new Comparison(module, plan, options));
  if (options.mirrored)
    if (Error error = comparison->unmask())
      return error;
  comparison->comparesWhole =
      !options.layer && !options.launchesOnly &&
      !module.walk([](moe::QuantizeOp) { return mlir::WalkResult::interrupt(); }).wasInterrupted();
  if (Error error = comparison->plant(options.fault))
    return error;
  return comparison;
}

/// Ids that are masked are another rank's, of which rank 0 makes the logits of its own.
Error Comparison::unmask() {
  unmasked = module.clone();
  module = *unmasked;
  Error error = Error::success();
  module.walk([&](moe::LmHeadOp head) {
    if (!head.getValidVocab())
      return;
    const int64_t all = cast<mlir::RankedTensorType>(head.getResult().getType()).getShape().back();
    if (int64_t(*head.getValidVocab()) < all / plan.tp)
      error = llvm::joinErrors(std::move(error),
                               problem("{0} of {1} ids are valid: expected all of rank 0's to be",
                                       *head.getValidVocab(), all));
    head.removeValidVocabAttr();
  });
  return error;
}

Error Comparison::plant(reference::Fault fault) {
  auto created =
      reference::Evaluator::create(module, weights, {.threads = options.threads, .fault = fault});
  if (!created)
    return created.takeError();
  evaluator = std::move(*created);
  others.clear();
  if (options.open)
    for (reference::Inner inner : reference::kOtherInners) {
      auto other = reference::Evaluator::create(
          module, weights, {.threads = options.threads, .fault = fault, .inner = inner});
      if (!other)
        return other.takeError();
      others.push_back({std::move(*other)});
    }
  madeInputs.clear();
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Where a step starts
//===----------------------------------------------------------------------===//

void Comparison::begin(const Workload &next) {
  workload = next;
  cache.reset();
  for (auto *list : {&appended, &whole.appended})
    list->assign(size_t(plan.layers), {});
  for (Other &other : others)
    other.step.appended.assign(size_t(plan.layers), {});
}

Error Comparison::beginStep(const std::vector<runtime::StepSequence> &sequences) {
  now = stepOf(sequences, plan.rows);
  residual = whole.residual = {};
  for (Other &other : others)
    other.step.residual = {};
  if (Error error = now.validate())
    return error;
  if (!options.layer)
    return Error::success();
  auto made = inputs();
  if (!made)
    return made.takeError();
  residual = (*made)->residual;
  return Error::success();
}

Expected<const LayerInputs *> Comparison::inputs() {
  std::vector<int64_t> positions;
  for (const reference::Row &row : now.rows)
    positions.push_back(row.live ? row.position : -1);
  LayerInputs &made = madeInputs[{workload.str(), workload.seed, std::move(positions)}];
  if (!made.residual.rows)
    if (Error error = makeInputs(made))
      return error;
  return &made;
}

/// What the launch before the layer's would have left: a residual made up like a weight, and the
/// evaluator's projections of it.
Error Comparison::makeInputs(LayerInputs &made) const {
  const std::string name = llvm::formatv("residual.{0}", *options.layer).str();
  const uint32_t hash = models::fnv1a32(name.data(), name.size());
  const int64_t hidden = plan.buffer("resid")->shape.back();
  made.residual = Matrix(plan.rows, hidden);
  for (int64_t r = 0; r < plan.rows; ++r) {
    const reference::Row &row = now.rows[size_t(r)];
    if (!row.live)
      continue;
    const int64_t content = workload.sequences[size_t(row.sequence)].content;
    for (int64_t c = 0; c < hidden; ++c)
      made.residual.at(r, c) = models::weightValue(
          workload.seed, hash, uint64_t(((content << 20) + row.position) * hidden + c), 1.0f);
  }
  auto qkv = evaluator->projections(*options.layer, made.residual, now);
  if (!qkv)
    return qkv.takeError();
  made.qkv = std::move(*qkv);
  return Error::success();
}

KvStore &Comparison::history(int64_t layer) {
  // Memory of half a gigabyte is better kept; what later positions hold, nobody reads before it is
  // written again.
  const KvStore empty = evaluator->makeCache(layer);
  if (!cache || cache->heads != empty.heads || cache->headDim != empty.headDim)
    cache.emplace(empty);
  // Mirrored heads are those that a rank would make up for itself.
  KvStore own(std::max<int64_t>(1, cache->heads / plan.tp), cache->headDim);
  for (size_t s = 0; s < workload.sequences.size(); ++s) {
    const Sequence &sequence = workload.sequences[s];
    const auto fill = [&](KvStore &store) {
      store.fillHashed(workload.seed, layer, int64_t(s), sequence.start, sequence.content,
                       options.threads);
    };
    if (!options.mirrored)
      fill(*cache);
    else
      fill(own);
  }
  if (options.mirrored)
    for (int64_t head = 0; head < cache->heads; head += own.heads)
      cache->put(head, own);
  return *cache;
}

//===----------------------------------------------------------------------===//
// New positions
//===----------------------------------------------------------------------===//

/// Keys, then values, of the step's new positions as a cache has them.
Matrix Comparison::newKv(const KvStore &cache) const {
  const int64_t width = cache.heads * cache.headDim;
  Matrix kv(plan.rows, 2 * width);
  for (int64_t r = 0; r < plan.rows; ++r) {
    const reference::Row &row = now.rows[size_t(r)];
    if (!row.live)
      continue;
    // Heads of a position lie one after another.
    const double *keys = cache.key(row.sequence, row.position, 0).data();
    const double *values = cache.value(row.sequence, row.position, 0).data();
    std::copy_n(keys, width, kv.row(r).begin());
    std::copy_n(values, width, kv.row(r).begin() + width);
  }
  return kv;
}

void Comparison::append(std::vector<Appended> &list, const Matrix &kv) const {
  for (int64_t r = 0; r < plan.rows; ++r) {
    const reference::Row &row = now.rows[size_t(r)];
    const std::span<const double> values = kv.row(r);
    if (row.live)
      list.push_back({row.sequence, row.position, {values.begin(), values.end()}});
  }
}

void Comparison::restore(KvStore &cache, const std::vector<Appended> &list) const {
  const size_t width = size_t(cache.heads * cache.headDim);
  for (const Appended &entry : list)
    cache.write(entry.sequence, entry.position, std::span(entry.kv).first(width),
                std::span(entry.kv).last(width));
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

Expected<LaunchReport> Comparison::compare(const runtime::LaunchGroup &group,
                                           LaunchValues &values) {
  const int64_t launch = group.last();
  LaunchReport report;
  weights.drop();
  report.launch = launch;
  report.kernel = plan.launches[size_t(launch)].kernel;
  if (group.count > 1)
    report.kernel = plan.launches[size_t(group.first)].kernel + " .. " + report.kernel;
  if (group.first == 0) {
    auto expected = evaluator->embed(now);
    if (!expected)
      return expected.takeError();
    report.residual = measure("residual", values.residual, *expected, now, report);
    for (Other &other : others)
      other.step.residual = *expected;
    whole.residual = std::move(*expected);
  } else {
    report.layer = plan.launches[size_t(group.first)].layer;
    if (Error error = compareLayer(residual, values, report))
      return error;
  }
  demandZeros("residual", values.residual, now, report);
  if (Error error = compareResult(group, values, report))
    return error;
  residual = values.residual;
  if (!isLast(launch) || !comparesWhole)
    return report;
  auto logits = evaluator->head(whole.residual, now);
  if (!logits)
    return logits.takeError();
  whole.residual = std::move(*logits);
  double tolerance = kLogitsTolerance;
  for (const Other &other : others) {
    auto theirs = other.evaluator.head(other.step.residual, now);
    if (!theirs)
      return theirs.takeError();
    report.open = std::max(report.open.value_or(0), relativeRms(*theirs, whole.residual, now));
    tolerance = std::max(tolerance, 2 * *report.open);
  }
  report.whole =
      measure("logits of the whole step", values.result, whole.residual, now, report, tolerance);
  return report;
}

Error Comparison::compareLayer(const Matrix &before, LaunchValues &values, LaunchReport &report) {
  const int64_t layer = report.layer;
  reference::KernelLayer kernel{.residual = values.residual};
  const bool routes = values.routerLogits.rows != 0;
  if (routes) {
    // The choice itself stays in shared memory: that it is this one shows in the residual.
    auto chosen = evaluator->route(layer, values.routerLogits, now);
    if (!chosen)
      return chosen.takeError();
    values.routing = std::move(*chosen);
    kernel.logits = values.routerLogits;
    kernel.ids = values.routing.ids;
    kernel.weights = values.routing.weights;
  }
  const reference::ExpertIds *ids = routes ? &kernel.ids : nullptr;
  KvStore &cache = history(layer);
  restore(cache, appended[size_t(layer)]);
  auto compared = reference::compareLayer(*evaluator, layer, before, cache, now, kernel);
  if (!compared)
    return compared.takeError();
  if (options.open)
    if (Error error = measureOpen(before, cache, ids, report))
      return error;
  report.residual = compared->residual;
  report.nearTies = compared->nearTies;
  report.wrongRows = compared->wrongRows;
  if (routes)
    report.router = std::max(compared->logits, compared->weights);
  // KV first: what is wrong there explains everything after it.
  compareKv(cache, values, report);
  if (!report.passes() && report.difference.empty()) {
    // compareLayer gives numbers only; where it is comes from the same evaluation once more.
    auto expected = evaluator->layer(layer, before, cache, now, ids);
    if (!expected)
      return expected.takeError();
    if (routes) {
      measure("router logits", kernel.logits, expected->routing->logits, now, report);
      measure("expert weights", kernel.weights, expected->routing->weights, now, report);
    }
    measure("residual", values.residual, expected->residual, now, report);
  }
  if (!comparesWhole)
    return Error::success();
  if (Error error = follow(*evaluator, whole, layer, cache, ids))
    return error;
  for (Other &other : others)
    if (Error error = follow(other.evaluator, other.step, layer, cache, ids))
      return error;
  return Error::success();
}

/// How far other evaluators are from the evaluator behind this layer, from the same residual. Runs
/// the evaluator's last, so that the cache holds its new positions.
Error Comparison::measureOpen(const Matrix &before, KvStore &cache,
                              const reference::ExpertIds *routing, LaunchReport &report) {
  std::vector<Matrix> theirs;
  for (const Other &other : others) {
    auto after = other.evaluator.layer(report.layer, before, cache, now, routing);
    if (!after)
      return after.takeError();
    theirs.push_back(std::move(after->residual));
  }
  auto ascending = evaluator->layer(report.layer, before, cache, now, routing);
  if (!ascending)
    return ascending.takeError();
  report.openResidual = 0;
  for (const Matrix &residual : theirs)
    report.openResidual =
        std::max(*report.openResidual, relativeRms(residual, ascending->residual, now));
  return Error::success();
}

/// An own step goes on by a layer. `cache`: the layer's history, and anything where this step or
/// those before it put something.
Error Comparison::follow(const reference::Evaluator &with, OwnStep &own, int64_t layer,
                         KvStore &cache, const reference::ExpertIds *routing) {
  std::vector<Appended> &list = own.appended[size_t(layer)];
  restore(cache, list); // the same positions as the kernels'
  auto after = with.layer(layer, own.residual, cache, now, routing);
  if (!after)
    return after.takeError();
  own.residual = std::move(after->residual);
  if (workload.steps > 1)
    append(list, newKv(cache));
  return Error::success();
}

/// Compares the step's new positions with the cache, and keeps the kernel's: later steps start from
/// what is in the pages.
void Comparison::compareKv(const KvStore &cache, const LaunchValues &values, LaunchReport &report) {
  report.kv =
      measure("keys, then values, of the new positions", values.kv, newKv(cache), now, report);
  if (workload.steps > 1)
    append(appended[size_t(report.layer)], values.kv);
}

Error Comparison::compareResult(const runtime::LaunchGroup &group, const LaunchValues &values,
                                LaunchReport &report) {
  const int64_t launch = group.last();
  auto expected = isLast(launch) ? evaluator->head(values.residual, now)
                                 : evaluator->projections(report.layer + 1, values.residual, now);
  if (!expected)
    return expected.takeError();
  (isLast(launch) ? report.head : report.qkv) =
      measure(isLast(launch) ? "logits" : "projections", values.result, *expected, now, report);
  if (!isLast(launch))
    demandZeros("projections", values.result, now, report);
  return Error::success();
}

} // namespace megalith::check
