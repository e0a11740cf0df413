//===- Steps.h - The same step thousands of times ----------------*- C++ -*-===//
#ifndef MEGALITH_TESTS_GPU_STEPS_H
#define MEGALITH_TESTS_GPU_STEPS_H

#include "tests/gpu/RealModel.h"

#include <map>

namespace megalith::test {

/// Include name -> text of digest.cuh and what it includes.
const std::map<llvm::StringRef, llvm::StringRef> &digestHeaders();

struct StepsOptions {
  int64_t steps = 10'000;
  int64_t perRound = 20; ///< between two fresh starts: poisoned scratch, another launch number
  runtime::RankOptions ranks;
  bool delays = false; ///< SMs start up to 65 us late, other ones in every launch
};

struct StepsResult {
  int64_t steps = 0;
  uint64_t digest = 0; ///< of the logits and the residual behind the last layer
  double seconds = 0;  ///< from the first round to the last, fresh starts included
};

/// Runs a step as a CUDA graph, in place, over and over; logits and residual must have the same
/// bits each time. The error tells the first step that differs, or the wait that took too long.
llvm::Expected<StepsResult> repeatSteps(RealModel &model, const check::Workload &workload,
                                        const StepsOptions &options);

} // namespace megalith::test

#endif // MEGALITH_TESTS_GPU_STEPS_H
