//===- Workload.cpp - What a check computes -------------------------------===//

#include "tools/check/Workload.h"

#include "models/weights/philox.h"
#include "runtime/error.h"
#include "runtime/packing.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

namespace megalith::check {

using runtime::problem;

int64_t Workload::pages(const Sequence &sequence) const {
  return (length(sequence) + runtime::kPagePositions - 1) / runtime::kPagePositions;
}

int64_t Workload::maxPages() const {
  int64_t most = 1;
  for (const Sequence &sequence : sequences)
    most = std::max(most, pages(sequence));
  return most;
}

int64_t Workload::totalPages() const {
  int64_t total = 0;
  for (const Sequence &sequence : sequences)
    total += pages(sequence);
  return total;
}

llvm::Error Workload::check(const runtime::Plan &plan) const {
  const int64_t maxPositions = plan.maxPositions ? plan.maxPositions : INT64_MAX;
  if (sequences.empty())
    return problem("expected at least one sequence but got none");
  if (steps < 1)
    return problem("steps: expected at least 1 but got {0}", steps);
  std::vector<bool> taken(size_t(plan.rows));
  int64_t next = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Sequence &sequence = sequences[s];
    if (sequence.start < 0 || sequence.rows < 1 || sequence.content < 0)
      return problem("sequence {0}: expected a start of at least 0, at least 1 row and a content "
                     "of at least 0 but got {1}, {2} and {3}",
                     s, sequence.start, sequence.rows, sequence.content);
    if (sequence.start >= maxPositions || steps > (maxPositions - sequence.start) / sequence.rows)
      return problem("sequence {0}: expected at most the model's {1} positions, new rows included, "
                     "but got {2} and {3} step(s) of {4}",
                     s, maxPositions, sequence.start, steps, sequence.rows);
    const int64_t first = sequence.firstRow < 0 ? next : sequence.firstRow;
    if (first >= plan.rows || sequence.rows > plan.rows - first)
      return problem(
          "sequence {0}: expected rows within the {1} that the plan was compiled for but "
          "got {2} from row {3}; compile for more rows or run fewer",
          s, plan.rows, sequence.rows, first);
    next = std::max(next, first + sequence.rows);
    for (int64_t row = first; row < first + sequence.rows; ++row) {
      if (taken[size_t(row)])
        return problem("sequence {0}: expected rows of its own but row {1} is another's", s, row);
      taken[size_t(row)] = true;
    }
    const int64_t tokensNeeded = steps * sequence.rows;
    if (!sequence.tokens.empty() && int64_t(sequence.tokens.size()) != tokensNeeded)
      return problem("sequence {0}: expected {1} tokens, one for each new row of every step, but "
                     "got {2}",
                     s, tokensNeeded, sequence.tokens.size());
    for (int32_t token : sequence.tokens)
      if (token < 0 || token >= plan.vocab)
        return problem("sequence {0}: expected tokens from 0 to {1} but got {2}", s, plan.vocab - 1,
                       token);
  }
  return llvm::Error::success();
}

std::string Workload::str() const {
  std::string text = llvm::formatv("{0} step(s) of [", steps).str();
  for (const Sequence &sequence : sequences) {
    text += llvm::formatv("{0}{1}+{2} #{3}", text.back() == '[' ? "" : ", ", sequence.start,
                          sequence.rows, sequence.content)
                .str();
    if (sequence.firstRow >= 0)
      text += llvm::formatv(" at row {0}", sequence.firstRow).str();
  }
  return text + "]";
}

std::vector<runtime::StepSequence> sequencesOf(const Workload &workload, int64_t step,
                                               int64_t vocab) {
  std::vector<runtime::StepSequence> result;
  for (const Sequence &sequence : workload.sequences) {
    runtime::StepSequence entry;
    entry.start = int32_t(sequence.start + step * sequence.rows);
    entry.firstRow = int32_t(sequence.firstRow);
    for (int64_t i = 0; i < sequence.rows; ++i)
      entry.tokens.push_back(
          sequence.tokens.empty()
              ? int32_t(models::hashedToken(workload.seed, uint64_t(sequence.content),
                                            uint64_t(entry.start + i), uint32_t(vocab)))
              : sequence.tokens[size_t(step * sequence.rows + i)]);
    result.push_back(std::move(entry));
  }
  // Page p of all sequences, then page p + 1 of all: numbers fall from the pool's end.
  int32_t next = int32_t(workload.totalPages());
  for (int64_t page = 0; page < workload.maxPages(); ++page)
    for (size_t s = 0; s < result.size(); ++s)
      if (page < workload.pages(workload.sequences[s]))
        result[s].pages.push_back(--next);
  return result;
}

reference::Step stepOf(const std::vector<runtime::StepSequence> &sequences, int64_t rows) {
  reference::Step step;
  step.rows.resize(size_t(rows));
  int64_t next = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const runtime::StepSequence &sequence = sequences[s];
    const int64_t first = sequence.firstRow < 0 ? next : sequence.firstRow;
    const int64_t count = int64_t(sequence.tokens.size());
    step.sequences.push_back({first, count, sequence.start});
    for (int64_t i = 0; i < count && first + i < rows; ++i)
      step.rows[size_t(first + i)] = {int32_t(s), sequence.start + i, sequence.tokens[size_t(i)],
                                      /*live=*/true};
    next = std::max(next, first + count);
  }
  return step;
}

} // namespace megalith::check
