//===- step.h - The inputs of one step ---------------------------*- C++ -*-===//
#ifndef MEGALITH_MODELS_REFERENCE_STEP_H
#define MEGALITH_MODELS_REFERENCE_STEP_H

#include "llvm/Support/Error.h"

#include <cstdint>
#include <span>
#include <vector>

namespace megalith::reference {

/// One row of the rows bucket.
struct Row {
  int32_t sequence = 0;
  int64_t position = 0;
  int32_t token = 0;
  bool live = false; ///< a dead row writes no KV, routes nowhere and computes zeros
};

/// The rows of one sequence: `rows` live rows from `firstRow`, at positions start, start + 1, ...
struct SequenceRows {
  int64_t firstRow = 0;
  int64_t rows = 0;
  int64_t start = 0; ///< positions already in the cache
};

/// What changes from step to step (DESIGN section 3, step descriptor).
struct Step {
  std::vector<Row> rows;
  std::vector<SequenceRows> sequences;

  /// Checks that rows and sequences say the same and that no position occurs twice.
  llvm::Error validate() const;
};

/// What one sequence brings to a step: its tokens at positions start, start + 1, ...
struct SequenceInput {
  int64_t start = 0;
  std::vector<int32_t> tokens;
};

/// Rows of the sequences one after another, then dead rows up to `bucket` (at least the live rows).
Step makeStep(std::span<const SequenceInput> sequences, int64_t bucket);

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_STEP_H
