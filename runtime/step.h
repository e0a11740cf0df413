//===- step.h - What a step computes: rows, sequences, pages -----*- C++ -*-===//
//
// Builds the step descriptor (runtime/abi.h) and checks the preconditions that the compiler's
// proofs rest on (DESIGN section 4): distinct (sequence, position) rows, written pages unshared,
// lengths within page tables and the plan's
// positions, rings of a window large enough. Every step of every backend comes this way.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_STEP_H
#define MEGALITH_RUNTIME_STEP_H

#include "runtime/abi.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <span>
#include <vector>

namespace megalith::runtime {

/// One sequence of a step.
struct StepSequence {
  int32_t start = 0;           ///< positions that are in its pages already
  std::vector<int32_t> tokens; ///< of its rows, at positions start, start + 1, ...
  std::vector<int32_t> pages;  ///< its page table
  int32_t firstRow = -1;       ///< -1: behind the sequence before it; rows left free are dead
  /// Which ring of pages it has in the pools of layers with a window, the same from step to step;
  /// -1: that of its index in the step.
  int32_t ring = -1;
};

/// Pages of a window's ring. A step writes up to kMaxRows positions from `start` on, while its rows
/// see positions from start - window + 1 on, read from that one's unit of 16 on: none of the new
/// ones may take the place of one that is read.
constexpr int64_t ringPages(int64_t window) {
  return (window + kMaxRows + 14 + 63) / 64;
}

/// The ring of pages that layers with a window keep of a sequence.
struct WindowRing {
  int64_t window = 0; ///< positions that a row sees, its own included
  int64_t pages = 0;  ///< of the ring
};

/// What bounds a step.
struct StepLimits {
  int64_t rows = 0;     ///< the plan's rows bucket
  int64_t maxPages = 0; ///< of one sequence
  int64_t poolPages = 0;
  int64_t maxPositions = 0; ///< of one sequence, new rows included; 0: lengths are not checked
  int64_t vocab = 0;        ///< 0: tokens are not checked
  int64_t rings = kMaxRows; ///< in the pools of layers with a window
  std::vector<WindowRing> windows = {};
};

/// A step as kernels see it.
struct Step {
  StepDescriptor descriptor = {};
  std::vector<int32_t> pageTable; ///< [sequence][maxPages]; -1 behind a sequence's last page
  std::vector<int32_t> rings;     ///< [sequence]

  /// The page table of layers with that window: page p of a sequence is page p % n of its ring.
  std::vector<int32_t> ringTable(int64_t window, int64_t maxPages) const;
};

/// Pages 0 .. count - 1 of a sequence in pools of that window.
std::vector<int32_t> ringPagesOf(int32_t ring, int64_t window, int64_t count);

/// Builds and checks a step; launch_base is left 0.
llvm::Expected<Step> buildStep(std::span<const StepSequence> sequences, const StepLimits &limits);

/// Checks a step, however it was made. The error names the sequence, row or page.
llvm::Error checkStep(const Step &step, const StepLimits &limits);

/// Checks that `further` more steps can follow a step that checkStep took, each sequence going on
/// with one row behind its last: its positions are the plan's, its pages in the step's table, in
/// the pool, and its own.
llvm::Error checkFurtherSteps(const Step &step, const StepLimits &limits, int64_t further);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_STEP_H
