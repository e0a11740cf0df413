//===- step.cpp - The inputs of one step ----------------------------------===//

#include "models/reference/step.h"

#include <algorithm>

namespace megalith::reference {

llvm::Error Step::validate() const {
  std::vector<bool> covered(rows.size(), false);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows &sequence = sequences[s];
    if (sequence.start < 0 || sequence.rows < 0 || sequence.firstRow < 0 ||
        sequence.firstRow + sequence.rows > int64_t(rows.size()))
      return llvm::createStringError("step: sequence %zu: rows %lld..+%lld do not fit %zu rows", s,
                                     (long long)sequence.firstRow, (long long)sequence.rows,
                                     rows.size());
    for (int64_t i = 0; i < sequence.rows; ++i) {
      const size_t r = size_t(sequence.firstRow + i);
      const Row &row = rows[r];
      if (covered[r] || !row.live || row.sequence != int32_t(s) ||
          row.position != sequence.start + i)
        return llvm::createStringError(
            "step: row %zu: expected a live row of sequence %zu at position %lld, owned once; got "
            "%s row of sequence %d at position %lld",
            r, s, (long long)(sequence.start + i), row.live ? "a live" : "a dead", row.sequence,
            (long long)row.position);
      covered[r] = true;
    }
  }
  for (size_t r = 0; r < rows.size(); ++r)
    if (rows[r].live && !covered[r])
      return llvm::createStringError("step: row %zu is live but belongs to no sequence's rows", r);
  return llvm::Error::success();
}

Step makeStep(std::span<const SequenceInput> sequences, int64_t bucket) {
  Step step;
  for (const SequenceInput &input : sequences) {
    step.sequences.push_back(
        {int64_t(step.rows.size()), int64_t(input.tokens.size()), input.start});
    for (size_t i = 0; i < input.tokens.size(); ++i)
      step.rows.push_back({int32_t(step.sequences.size() - 1), input.start + int64_t(i),
                           input.tokens[i], /*live=*/true});
  }
  step.rows.resize(size_t(std::max(bucket, int64_t(step.rows.size()))));
  return step;
}

} // namespace megalith::reference
