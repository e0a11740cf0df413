//===- Workload.h - What a check computes ------------------------*- C++ -*-===//
//
// Rows, sequences, histories and tokens of a few steps in a row, made up from a seed (DESIGN
// section 5), in the two forms that they are needed in: the evaluator's and the runtime's.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_CHECK_WORKLOAD_H
#define MEGALITH_TOOLS_CHECK_WORKLOAD_H

#include "models/reference/step.h"
#include "runtime/plan.h"
#include "runtime/step.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace megalith::check {

/// One sequence: `rows` new rows in every step, behind `start` positions that are in its pages
/// before the first.
struct Sequence {
  int64_t start = 0;
  int64_t rows = 1;
  /// The sequence whose made-up tokens and history it has: two with the same are identical.
  int64_t content = 0;
  int64_t firstRow = -1; ///< -1: behind the sequence before it; rows left free are dead
  /// Tokens of the new rows of all steps, instead of made-up ones.
  std::vector<int32_t> tokens = {};
};

struct Workload {
  uint32_t seed = 1; ///< of tokens and KV contents
  int64_t steps = 1;
  std::vector<Sequence> sequences;

  /// Positions of a sequence after all steps.
  int64_t length(const Sequence &sequence) const { return sequence.start + steps * sequence.rows; }
  /// Pages that a sequence needs, the longest of them and all together.
  int64_t pages(const Sequence &sequence) const;
  int64_t maxPages() const;
  int64_t totalPages() const;
  /// What is wrong with it for a plan, as one line: counts, rows, positions, tokens. A sequence has
  /// at most the plan's positions.
  llvm::Error check(const runtime::Plan &plan) const;
  /// "2 steps of [129+1 #0, 0+3 #1 at row 4]": start, rows, content.
  std::string str() const;
};

/// The sequences of step `step` for the runtime; tokens are below `vocab`. Pages lie in falling
/// order, those of different sequences interleaved: a kernel that forgets the page table reads
/// another page.
std::vector<runtime::StepSequence> sequencesOf(const Workload &workload, int64_t step,
                                               int64_t vocab);

/// The same step for the evaluator, with `rows` rows.
reference::Step stepOf(const std::vector<runtime::StepSequence> &sequences, int64_t rows);

} // namespace megalith::check

#endif // MEGALITH_TOOLS_CHECK_WORKLOAD_H
