//===- Workload.cpp - What a check computes -------------------------------===//

#include "tools/check/Workload.h"

#include "models/weights/philox.h"
#include "runtime/packing.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

namespace megalith::check {

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
      entry.tokens.push_back(int32_t(models::hashedToken(
          workload.seed, uint64_t(sequence.content), uint64_t(entry.start + i), uint32_t(vocab))));
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
