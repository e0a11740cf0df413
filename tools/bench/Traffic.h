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
/// and are not counted, nor is what a step writes. Of several ranks: of one of them; what each has
/// whole (the router, gains) counts as divided among them, since one could read it for all.
struct Traffic {
  int64_t dense = 0;   ///< all weights but the experts'
  int64_t experts = 0; ///< of experts that some row chose
  int64_t kv = 0;

  int64_t total() const { return dense + experts + kv; }
  Traffic &operator+=(const Traffic &other);
};

/// The different histories that a step reads, and how long each is.
struct Histories {
  int64_t count = 0, positions = 0;
};

/// What launch `launch` of a step reads; `plan` with all shards, `activeExperts` with a number for
/// each layer. Layers with a window read so many of the last positions.
Traffic launchTraffic(const runtime::Plan &plan, int64_t launch,
                      std::span<const int64_t> activeExperts, const Histories &histories);

/// The whole step.
Traffic stepTraffic(const runtime::Plan &plan, std::span<const int64_t> activeExperts,
                    const Histories &histories);

/// How many different experts the rows choose: each the `k` largest of its `experts` selection
/// values, the lower index first among equals, as codegen/device/router.cuh does. These are the
/// logits or, with a bias for each expert, sigmoid(logit) + bias. `logits` has a row of `experts`
/// for each row.
int64_t distinctExperts(std::span<const float> logits, int64_t experts, int64_t k,
                        std::span<const float> bias = {});

} // namespace megalith::bench

#endif // MEGALITH_TOOLS_BENCH_TRAFFIC_H
