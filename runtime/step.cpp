//===- step.cpp - Building and checking steps -----------------------------===//

#include "runtime/step.h"

#include "runtime/error.h"
#include "runtime/packing.h"

#include <algorithm>
#include <map>
#include <set>

namespace megalith::runtime {

std::vector<int32_t> ringPagesOf(int32_t ring, int64_t window, int64_t count) {
  std::vector<int32_t> pages(static_cast<size_t>(count));
  const int64_t own = ringPages(window);
  for (int64_t p = 0; p < count; ++p)
    pages[size_t(p)] = int32_t(ring * own + p % own);
  return pages;
}

std::vector<int32_t> Step::ringTable(int64_t window, int64_t maxPages) const {
  std::vector<int32_t> table;
  for (int32_t ring : rings) {
    const std::vector<int32_t> pages = ringPagesOf(ring, window, maxPages);
    table.insert(table.end(), pages.begin(), pages.end());
  }
  return table;
}

llvm::Expected<Step> buildStep(std::span<const StepSequence> sequences, const StepLimits &limits) {
  if (sequences.empty())
    return problem("step: no sequences");
  if (int64_t(sequences.size()) > limits.rows)
    return problem("step: {0} sequences for a plan of {1} rows; use a plan with a larger rows "
                   "bucket",
                   sequences.size(), limits.rows);
  Step step;
  StepDescriptor &d = step.descriptor;
  std::fill(std::begin(d.row_seq), std::end(d.row_seq), -1);
  step.pageTable.assign(sequences.size() * limits.maxPages, -1);
  int32_t next = 0;
  for (const StepSequence &sequence : sequences) {
    const int32_t index = d.sequences++;
    const int32_t first = sequence.firstRow < 0 ? next : sequence.firstRow;
    const int32_t rows = int32_t(sequence.tokens.size());
    if (first + int64_t(rows) > limits.rows)
      return problem("step: sequence {0} has rows [{1}, {2}), the plan has {3}; use a plan with a "
                     "larger rows bucket",
                     index, first, first + int64_t(rows), limits.rows);
    if (int64_t(sequence.pages.size()) > limits.maxPages)
      return problem("step: sequence {0} has {1} pages, a page table holds {2}", index,
                     sequence.pages.size(), limits.maxPages);
    step.rings.push_back(sequence.ring < 0 ? index : sequence.ring);
    d.seq[index] = {first, rows, sequence.start};
    for (int32_t i = 0; i < rows; ++i) {
      if (d.row_seq[first + i] >= 0)
        return problem("step: row {0} belongs to sequences {1} and {2}", first + i,
                       d.row_seq[first + i], index);
      d.row_seq[first + i] = index;
      d.row_pos[first + i] = sequence.start + i;
      d.row_token[first + i] = sequence.tokens[i];
    }
    std::copy(sequence.pages.begin(), sequence.pages.end(),
              step.pageTable.begin() + index * limits.maxPages);
    next = std::max(next, first + rows);
    d.live_rows = next;
  }
  if (auto error = checkStep(step, limits))
    return error;
  return step;
}

namespace {

llvm::Error checkSequence(const Step &step, int32_t index, const StepLimits &limits) {
  const SequenceEntry &entry = step.descriptor.seq[index];
  if (entry.rows < 1)
    return problem("step: sequence {0} has no rows; leave it out", index);
  if (entry.start < 0)
    return problem("step: sequence {0} starts at {1}", index, entry.start);
  if (entry.first_row < 0 || entry.first_row + int64_t(entry.rows) > step.descriptor.live_rows)
    return problem("step: sequence {0} has rows [{1}, {2}), {3} rows are live", index,
                   entry.first_row, entry.first_row + int64_t(entry.rows),
                   step.descriptor.live_rows);
  const int64_t length = int64_t(entry.start) + entry.rows;
  const int64_t pages = (length + kPagePositions - 1) / kPagePositions;
  if (pages > limits.maxPages)
    return problem("step: sequence {0} of {1} positions needs {2} pages, a page table holds {3}",
                   index, length, pages, limits.maxPages);
  for (int64_t p = 0; p < pages; ++p) {
    const int32_t page = step.pageTable[index * limits.maxPages + p];
    if (page < 0)
      return problem("step: sequence {0} of {1} positions needs {2} pages, its table has {3}",
                     index, length, pages, p);
    if (page >= limits.poolPages)
      return problem("step: sequence {0}, page {1} is page {2} of the pool, which has {3}", index,
                     p, page, limits.poolPages);
  }
  return llvm::Error::success();
}

llvm::Error checkRows(const StepDescriptor &d, const StepLimits &limits) {
  std::set<std::pair<int32_t, int32_t>> seen;
  for (int32_t row = 0; row < d.live_rows; ++row) {
    const int32_t sequence = d.row_seq[row];
    if (sequence < 0)
      continue; // dead
    if (sequence >= d.sequences)
      return problem("step: row {0} is of sequence {1}, there are {2}", row, sequence, d.sequences);
    const SequenceEntry &entry = d.seq[sequence];
    if (row < entry.first_row || row >= entry.first_row + entry.rows)
      return problem("step: row {0} is of sequence {1}, whose rows are [{2}, {3})", row, sequence,
                     entry.first_row, entry.first_row + entry.rows);
    if (!seen.emplace(sequence, d.row_pos[row]).second)
      return problem("step: two rows are position {0} of sequence {1}", d.row_pos[row], sequence);
    if (d.row_pos[row] != entry.start + row - entry.first_row)
      return problem("step: row {0} is position {1} of sequence {2}, expected {3}", row,
                     d.row_pos[row], sequence, entry.start + row - entry.first_row);
    if (limits.vocab && (d.row_token[row] < 0 || d.row_token[row] >= limits.vocab))
      return problem("step: row {0} has token {1}, expected 0..{2}", row, d.row_token[row],
                     limits.vocab - 1);
  }
  for (int32_t index = 0; index < d.sequences; ++index)
    for (int32_t row = d.seq[index].first_row; row < d.seq[index].first_row + d.seq[index].rows;
         ++row)
      if (d.row_seq[row] != index)
        return problem("step: row {0} lies in sequence {1}, but is marked as of {2}", row, index,
                       d.row_seq[row]);
  return llvm::Error::success();
}

/// A page that this step or the `further` behind it write belongs to one place of one sequence;
/// pages that are only read (a common prefix) may be shared.
llvm::Error checkWrittenPages(const Step &step, const StepLimits &limits, int64_t further) {
  const StepDescriptor &d = step.descriptor;
  struct Use {
    int32_t sequence;
    int64_t place;
    bool written;
  };
  std::map<int32_t, Use> uses;
  for (int32_t index = 0; index < d.sequences; ++index) {
    const SequenceEntry &entry = d.seq[index];
    const int64_t last = (int64_t(entry.start) + entry.rows + further - 1) / kPagePositions;
    for (int64_t p = 0; p <= last; ++p) {
      const int32_t page = step.pageTable[index * limits.maxPages + p];
      const bool written = p >= entry.start / kPagePositions;
      auto [it, first] = uses.try_emplace(page, Use{index, p, written});
      if (!first && (written || it->second.written))
        return problem("step: page {0} of the pool is written by this step{5} and stands twice in "
                       "the page tables: page {1} of sequence {2} and page {3} of sequence {4}; "
                       "copy it first",
                       page, it->second.place, it->second.sequence, p, index,
                       further ? " or one behind it" : "");
    }
  }
  return llvm::Error::success();
}

} // namespace

llvm::Error checkStep(const Step &step, const StepLimits &limits) {
  const StepDescriptor &d = step.descriptor;
  if (d.live_rows < 0 || d.live_rows > limits.rows || limits.rows > kMaxRows)
    return problem("step: {0} live rows, expected 0..{1}", d.live_rows,
                   std::min<int64_t>(limits.rows, kMaxRows));
  if (d.sequences < 0 || d.sequences > limits.rows)
    return problem("step: {0} sequences, expected 0..{1}", d.sequences, limits.rows);
  if (int64_t(step.pageTable.size()) != d.sequences * limits.maxPages)
    return problem("step: page tables of {0} entries, expected {1} x {2}", step.pageTable.size(),
                   d.sequences, limits.maxPages);
  for (int32_t index = 0; index < d.sequences; ++index)
    if (auto error = checkSequence(step, index, limits))
      return error;
  if (auto error = checkRows(d, limits))
    return error;
  std::set<int32_t> rings;
  for (int32_t ring : step.rings)
    if (ring < 0 || ring >= limits.rings || !rings.insert(ring).second)
      return problem("step: a sequence has ring {0} of the layers with a window, expected one of "
                     "its own of {1}",
                     ring, limits.rings);
  return checkWrittenPages(step, limits, 0);
}

llvm::Error checkFurtherSteps(const Step &step, const StepLimits &limits, int64_t further) {
  for (int32_t index = 0; index < step.descriptor.sequences; ++index) {
    const SequenceEntry &entry = step.descriptor.seq[index];
    const int64_t length = int64_t(entry.start) + entry.rows + further;
    const int64_t pages = (length + kPagePositions - 1) / kPagePositions;
    for (int64_t p = 0; p < pages; ++p) {
      const int32_t page = p < limits.maxPages ? step.pageTable[index * limits.maxPages + p] : -1;
      if (page < 0 || page >= limits.poolPages)
        return problem("step: sequence {0} of {1} positions needs {2} pages for {3} more steps, "
                       "{4} are reserved; reserve more pages or generate at most {5} more",
                       index, int64_t(entry.start) + entry.rows, pages, further, p,
                       p * kPagePositions - entry.start - entry.rows);
    }
  }
  return checkWrittenPages(step, limits, further);
}

} // namespace megalith::runtime
