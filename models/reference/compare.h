//===- compare.h - A kernel against the evaluator ----------------*- C++ -*-===//
//
// DESIGN section 5: router logits within tolerance; expert ids against top-k of the kernel's own
// logits; residuals against the reference given those ids, with weights from its own logits.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_REFERENCE_COMPARE_H
#define MEGALITH_MODELS_REFERENCE_COMPARE_H

#include "models/reference/evaluator.h"

namespace megalith::reference {

/// Relative RMS differences that are accepted. Change them only with a written reason.
constexpr double kLayerTolerance = 4e-3;
constexpr double kLogitsTolerance = 1e-2;

/// RMS of actual - expected over RMS of expected, over the step's live rows; 0 if both are zero,
/// infinity if something is not finite or the shapes differ.
double relativeRms(const Matrix &actual, const Matrix &expected, const Step &step);

/// What a kernel computed for one layer. Of a layer without experts only the residual counts.
struct KernelLayer {
  Matrix residual; ///< [R, H]
  Matrix logits;   ///< router logits [R, E], or empty
  ExpertIds ids;   ///< [R, k]
  Matrix weights;  ///< [R, k]
};

struct LayerComparison {
  double residual = 0;   ///< relative RMS, for the kernel's ids
  double logits = 0;     ///< of router logits
  double weights = 0;    ///< of expert weights
  int64_t wrongRows = 0; ///< live rows whose ids are not top-k of the kernel's own logits
  int64_t nearTies = 0;  ///< live rows for which the reference would choose other experts

  bool passes() const {
    return residual <= kLayerTolerance && logits <= kLayerTolerance && weights <= kLayerTolerance &&
           wrongRows == 0;
  }
  /// "residual 1.2e-04, logits 3.0e-05, weights 1.0e-05 (tolerance 4e-03), 0 rows with wrong ids, 1
  /// near tie".
  std::string str() const;
};

/// Compares layer `index`, started from the residual before it and the cache before the step;
/// appends the step's keys and values to the cache as the evaluator has them.
llvm::Expected<LayerComparison> compareLayer(const Evaluator &evaluator, int64_t index,
                                             const Matrix &residual, KvStore &cache,
                                             const Step &step, const KernelLayer &kernel);

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_COMPARE_H
