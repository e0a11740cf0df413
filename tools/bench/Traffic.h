//===- Traffic.h - Bytes that a step cannot do without -----------*- C++ -*-===//
#ifndef MEGALITH_TOOLS_BENCH_TRAFFIC_H
#define MEGALITH_TOOLS_BENCH_TRAFFIC_H

#include "runtime/plan.h"

#include <cstdint>
#include <span>
#include <vector>

namespace megalith::bench {

/// Bytes that must come out of the GPU's memory, each once: weights without padding, experts only
/// where a row chose them, keys and values of different histories. Exchanges stay in the L2 cache
/// and are not counted, nor is what a step writes.
struct Traffic {
  int64_t dense = 0;   ///< all weights but the experts'
  int64_t experts = 0; ///< of experts that some row chose
  int64_t kv = 0;

  int64_t total() const { return dense + experts + kv; }
  Traffic &operator+=(const Traffic &other);
};

/// What launch `launch` of a step reads. `activeExperts` has a number for each layer;
/// `positionsRead` are positions of different histories (Workload).
Traffic launchTraffic(const runtime::Plan &plan, int64_t launch,
                      std::span<const int64_t> activeExperts, int64_t positionsRead);

/// The whole step.
Traffic stepTraffic(const runtime::Plan &plan, std::span<const int64_t> activeExperts,
                    int64_t positionsRead);

/// How many different experts the rows choose: each the `k` largest of its `experts` logits, the
/// lower index first among equals. `logits` has a row of `experts` for each row.
int64_t distinctExperts(std::span<const float> logits, int64_t experts, int64_t k);

} // namespace megalith::bench

#endif // MEGALITH_TOOLS_BENCH_TRAFFIC_H
