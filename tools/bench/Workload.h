//===- Workload.h - The sequences of a timed step ----------------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_BENCH_WORKLOAD_H
#define MEGALITH_TOOLS_BENCH_WORKLOAD_H

#include "runtime/step.h"

#include <cstdint>
#include <vector>

namespace megalith::bench {

/// A step of `rows` sequences with one new row each behind `context` positions. Where memory cannot
/// hold so many, sequences share histories: all pages but those that steps write.
struct Workload {
  int64_t rows = 1;
  int64_t context = 0;
  int64_t histories = 1; ///< different ones, at most `rows`
  int64_t further = 0;   ///< positions behind the step's that sequences have pages for

  /// Pages of one sequence that only hold history, and all that it has.
  int64_t sharedPages() const;
  int64_t pagesPerSequence() const;
  /// Pages that all sequences take in each layer's pool.
  int64_t pages() const {
    return histories * sharedPages() + rows * (pagesPerSequence() - sharedPages());
  }
  /// Which made-up history a sequence has.
  int64_t content(int64_t sequence) const { return sequence % histories; }

  /// The sequences with made-up tokens below `vocab`; pages of different sequences interleave.
  std::vector<runtime::StepSequence> sequences(uint32_t seed, int64_t vocab) const;
};

/// The workload with as many histories as fit into `poolPages`; histories = 0: none fits.
Workload fit(Workload workload, int64_t poolPages);

} // namespace megalith::bench

#endif // MEGALITH_TOOLS_BENCH_WORKLOAD_H
