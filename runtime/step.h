//===- step.h - What a step computes: rows, sequences, pages -----*- C++ -*-===//
//
// Builds the step descriptor (runtime/abi.h) and checks the preconditions that the compiler's
// proofs rest on (DESIGN section 4): distinct (sequence, position) rows, written pages unshared,
// lengths within page tables.
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
};

/// What bounds a step.
struct StepLimits {
  int64_t rows = 0;     ///< the plan's rows bucket
  int64_t maxPages = 0; ///< of one sequence
  int64_t poolPages = 0;
  int64_t vocab = 0; ///< 0: tokens are not checked
};

/// A step as kernels see it.
struct Step {
  StepDescriptor descriptor = {};
  std::vector<int32_t> pageTable; ///< [sequence][maxPages]; -1 behind a sequence's last page
};

/// Builds and checks a step; launch_base is left 0.
llvm::Expected<Step> buildStep(std::span<const StepSequence> sequences, const StepLimits &limits);

/// Checks a step, however it was made. The error names the sequence, row or page.
llvm::Error checkStep(const Step &step, const StepLimits &limits);

/// Checks that `further` more steps can follow a step that checkStep took, each sequence going on
/// with one row behind its last: its pages are in the step's table, in the pool, and its own.
llvm::Error checkFurtherSteps(const Step &step, const StepLimits &limits, int64_t further);

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_STEP_H
