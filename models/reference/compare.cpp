//===- compare.cpp - A kernel against the evaluator -----------------------===//

#include "models/reference/compare.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <limits>

namespace megalith::reference {

double relativeRms(const Matrix &actual, const Matrix &expected, const Step &step) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (actual.rows != expected.rows || actual.columns != expected.columns ||
      expected.rows != int64_t(step.rows.size()))
    return kInfinity;
  double difference = 0, size = 0;
  for (int64_t r = 0; r < expected.rows; ++r) {
    if (!step.rows[size_t(r)].live)
      continue;
    for (int64_t c = 0; c < expected.columns; ++c) {
      // A masked id: infinite on both sides, and no part of the size.
      if (std::isinf(expected.at(r, c)) && actual.at(r, c) == expected.at(r, c))
        continue;
      difference += std::pow(actual.at(r, c) - expected.at(r, c), 2);
      size += std::pow(expected.at(r, c), 2);
    }
  }
  if (!std::isfinite(difference) || !std::isfinite(size))
    return kInfinity;
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

std::string LayerComparison::str() const {
  return llvm::formatv("residual {0:e1}, logits {1:e1}, weights {2:e1} (tolerance {3:e0}), {4} "
                       "row(s) with wrong ids, {5} near tie(s)",
                       residual, logits, weights, kLayerTolerance, wrongRows, nearTies)
      .str();
}

/// Live rows in which two lists of ids differ.
static int64_t differingRows(const ExpertIds &a, const ExpertIds &b, const Step &step) {
  const size_t k = a.size() / step.rows.size();
  int64_t count = 0;
  for (size_t r = 0; r < step.rows.size(); ++r)
    if (step.rows[r].live &&
        !std::equal(a.begin() + r * k, a.begin() + (r + 1) * k, b.begin() + r * k))
      ++count;
  return count;
}

llvm::Expected<LayerComparison> compareLayer(const Evaluator &evaluator, int64_t index,
                                             const Matrix &residual, KvStore &cache,
                                             const Step &step, const KernelLayer &kernel) {
  LayerComparison comparison;
  const bool routes = kernel.logits.rows != 0;
  llvm::Expected<LayerResult> expected =
      evaluator.layer(index, residual, cache, step, routes ? &kernel.ids : nullptr);
  if (!expected)
    return expected.takeError();
  comparison.residual = relativeRms(kernel.residual, expected->residual, step);
  if (!routes)
    return comparison;
  const Routing &replayed = *expected->routing;
  comparison.logits = relativeRms(kernel.logits, replayed.logits, step);
  comparison.weights = relativeRms(kernel.weights, replayed.weights, step);
  llvm::Expected<Routing> own = evaluator.route(index, kernel.logits, step);
  if (!own)
    return own.takeError();
  llvm::Expected<Routing> chosen = evaluator.route(index, replayed.logits, step);
  if (!chosen)
    return chosen.takeError();
  comparison.wrongRows = differingRows(own->ids, kernel.ids, step);
  comparison.nearTies = differingRows(chosen->ids, own->ids, step);
  return comparison;
}

} // namespace megalith::reference
