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
    return problem("step: expected at least one sequence but got none; leave the step out");
  if (int64_t(sequences.size()) > limits.rows)
    return problem("step: expected at most {1} sequences, the plan's rows, but got {0}; use a plan "
                   "of more rows",
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
      return problem("step: sequence {0}: expected rows within the plan's {3} but got [{1}, {2}); "
                     "use a plan of more rows",
                     index, first, first + int64_t(rows), limits.rows);
    if (int64_t(sequence.pages.size()) > limits.maxPages)
      return problem(
          "step: sequence {0}: expected at most the {2} pages that a page table holds but "
          "got {1}; set up with larger page tables (maxPages)",
          index, sequence.pages.size(), limits.maxPages);
    step.rings.push_back(sequence.ring < 0 ? index : sequence.ring);
    d.seq[index] = {first, rows, sequence.start};
    for (int32_t i = 0; i < rows; ++i) {
      if (d.row_seq[first + i] >= 0)
        return problem("step: row {0}: expected one sequence but got {1} and {2}; give them rows "
                       "of their own (firstRow)",
                       first + i, d.row_seq[first + i], index);
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

int64_t pagesOf(int64_t length) {
  return (length + kPagePositions - 1) / kPagePositions;
}

/// The proof took no sequence for longer than the plan's positions: loops over keys would run on
/// beyond what it saw, rotations beyond what the model knows.
llvm::Error checkLength(int32_t index, int64_t length, const StepLimits &limits, const char *mend) {
  if (!limits.maxPositions || length <= limits.maxPositions)
    return llvm::Error::success();
  return problem(
      "step: sequence {0}: expected at most the plan's {1} positions, new rows included, "
      "but got {2}; {3}, or compile for longer ones (--least-context)",
      index, limits.maxPositions, length, mend);
}

/// Each sequence a ring of its own, and each ring with room for what a row still sees while the
/// step's new positions are written: the window of the first row, from the unit of 16 in which it
/// begins, and all new rows.
llvm::Error checkRings(const Step &step, const StepLimits &limits) {
  if (int64_t(step.rings.size()) != step.descriptor.sequences)
    return problem("step: expected a ring for each of {0} sequences but got {1}",
                   step.descriptor.sequences, step.rings.size());
  std::map<int32_t, int32_t> owners;
  for (int32_t index = 0; index < step.descriptor.sequences; ++index) {
    const int32_t ring = step.rings[size_t(index)];
    if (ring < 0 || ring >= limits.rings)
      return problem(
          "step: sequence {0}: expected a ring from 0 to {1} in layers with a window but "
          "got {2}; set up with more (rings)",
          index, limits.rings - 1, ring);
    auto [owner, isNew] = owners.try_emplace(ring, index);
    if (!isNew)
      return problem("step: sequence {0}: expected a ring of its own in layers with a window but "
                     "got {1}, which sequence {2} has; give each another",
                     index, ring, owner->second);
  }
  for (const WindowRing &ring : limits.windows)
    if (ring.pages * kPagePositions < ring.window + limits.rows + 14)
      return problem("step: layers with a window of {0}: expected rings of at least {1} positions, "
                     "for the window, {2} new rows and the unit where it begins, but got {3} pages "
                     "of {4}; keep larger rings",
                     ring.window, ring.window + limits.rows + 14, limits.rows, ring.pages,
                     kPagePositions);
  return llvm::Error::success();
}

llvm::Error checkSequence(const Step &step, int32_t index, const StepLimits &limits) {
  const SequenceEntry &entry = step.descriptor.seq[index];
  if (entry.rows < 1)
    return problem("step: sequence {0}: expected at least one new row but got none; leave it out",
                   index);
  if (entry.start < 0)
    return problem("step: sequence {0}: expected a start of at least 0 but got {1}; it is the "
                   "number of positions in its pages",
                   index, entry.start);
  if (entry.first_row < 0 || entry.first_row + int64_t(entry.rows) > step.descriptor.live_rows)
    return problem("step: sequence {0}: expected rows within the {3} live ones but got [{1}, {2}); "
                   "correct first_row, rows or live_rows",
                   index, entry.first_row, entry.first_row + int64_t(entry.rows),
                   step.descriptor.live_rows);
  const int64_t length = int64_t(entry.start) + entry.rows;
  if (auto error = checkLength(index, length, limits, "end the sequence"))
    return error;
  const int64_t pages = pagesOf(length);
  if (pages > limits.maxPages)
    return problem("step: sequence {0}: expected at most the {3} pages that a page table holds but "
                   "its {1} positions need {2}; set up with larger page tables (maxPages)",
                   index, length, pages, limits.maxPages);
  for (int64_t p = 0; p < pages; ++p) {
    const int32_t page = step.pageTable[index * limits.maxPages + p];
    if (page < 0)
      return problem(
          "step: sequence {0}: expected {2} pages for its {1} positions but its table has "
          "{3}; reserve more before the step",
          index, length, pages, p);
    if (page >= limits.poolPages)
      return problem("step: sequence {0}, page {1}: expected a page of the pool's {3} but got {2}; "
                     "set up with a larger pool (poolPages)",
                     index, p, page, limits.poolPages);
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
      return problem(
          "step: row {0}: expected one of the {2} sequences but got {1}; correct row_seq", row,
          sequence, d.sequences);
    const SequenceEntry &entry = d.seq[sequence];
    if (row < entry.first_row || row >= entry.first_row + entry.rows)
      return problem(
          "step: row {0}: expected one of the rows [{2}, {3}) of its sequence {1} but got "
          "{0}; correct row_seq, or first_row and rows",
          row, sequence, entry.first_row, entry.first_row + entry.rows);
    if (!seen.emplace(sequence, d.row_pos[row]).second)
      return problem("step: row {2}: expected a (sequence, position) of its own but another row is "
                     "position {0} of sequence {1} too; give each new position one row",
                     d.row_pos[row], sequence, row);
    if (d.row_pos[row] != entry.start + row - entry.first_row)
      return problem("step: row {0}: expected position {3} of sequence {2} but got {1}; positions "
                     "go on from start, row by row",
                     row, d.row_pos[row], sequence, entry.start + row - entry.first_row);
    if (limits.vocab && (d.row_token[row] < 0 || d.row_token[row] >= limits.vocab))
      return problem("step: row {0}: expected a token from 0 to {2} but got {1}; is it another "
                     "model's?",
                     row, d.row_token[row], limits.vocab - 1);
  }
  for (int32_t index = 0; index < d.sequences; ++index)
    for (int32_t row = d.seq[index].first_row; row < d.seq[index].first_row + d.seq[index].rows;
         ++row)
      if (d.row_seq[row] != index)
        return problem("step: row {0}: expected sequence {1}, in whose rows it lies, but got {2}; "
                       "correct row_seq",
                       row, index, d.row_seq[row]);
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
        return problem("step: page {0} of the pool: expected one place in the page tables, as this "
                       "step{5} writes it, but it is page {1} of sequence {2} and page {3} of "
                       "sequence {4}; copy it first",
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
    return problem("step: expected 0 to {1} live rows but got {0}; use a plan of more rows",
                   d.live_rows, std::min<int64_t>(limits.rows, kMaxRows));
  if (d.sequences < 0 || d.sequences > limits.rows)
    return problem("step: expected 0 to {1} sequences but got {0}; use a plan of more rows",
                   d.sequences, limits.rows);
  if (int64_t(step.pageTable.size()) != d.sequences * limits.maxPages)
    return problem(
        "step: expected page tables of {1} x {2} entries, sequences by maxPages, but got "
        "{0}",
        step.pageTable.size(), d.sequences, limits.maxPages);
  for (int32_t index = 0; index < d.sequences; ++index)
    if (auto error = checkSequence(step, index, limits))
      return error;
  if (auto error = checkRows(d, limits))
    return error;
  if (auto error = checkRings(step, limits))
    return error;
  return checkWrittenPages(step, limits, 0);
}

llvm::Error checkFurtherSteps(const Step &step, const StepLimits &limits, int64_t further) {
  for (int32_t index = 0; index < step.descriptor.sequences; ++index) {
    const SequenceEntry &entry = step.descriptor.seq[index];
    const int64_t length = int64_t(entry.start) + entry.rows + further;
    if (auto error = checkLength(index, length, limits, "generate fewer tokens"))
      return error;
    const int64_t pages = pagesOf(length);
    for (int64_t p = 0; p < pages; ++p) {
      const int32_t page = p < limits.maxPages ? step.pageTable[index * limits.maxPages + p] : -1;
      if (page < 0 || page >= limits.poolPages)
        return problem("step: sequence {0}: expected {2} pages for its {1} positions and {3} more "
                       "steps but {4} are reserved; reserve more or generate at most {5} more",
                       index, int64_t(entry.start) + entry.rows, pages, further, p,
                       p * kPagePositions - entry.start - entry.rows);
    }
  }
  return checkWrittenPages(step, limits, further);
}

} // namespace megalith::runtime
