//===- StreamCells.cpp - Steps of the family with an fp32 stream ----------===//

#include "tests/host/StreamCells.h"

#include "models/reference/compare.h"
#include "runtime/step.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>

namespace megalith::test {

static_assert(kStreamRing == 64 * runtime::ringPages(kStreamWindow));

check::Workload streamStep(uint32_t seed, std::vector<check::Sequence> sequences) {
  return {.seed = seed, .steps = 1, .sequences = std::move(sequences)};
}

check::SessionOptions roomFor(const std::vector<check::Workload> &workloads) {
  check::SessionOptions options{.maxPages = 1, .poolPages = 1};
  for (const check::Workload &each : workloads) {
    options.maxPages = std::max(options.maxPages, each.maxPages());
    options.poolPages = std::max(options.poolPages, each.totalPages());
  }
  return options;
}

void checkLaunches(const check::Report &report) {
  CHECK(report.launches.size() == 7);
  for (const check::LaunchReport &launch : report.launches) {
    INFO("launch " << launch.launch);
    CHECK(launch.wrongRows == 0);
    for (const std::optional<double> &error :
         {launch.residual, launch.router, launch.kv, launch.qkv, launch.head})
      if (error)
        CHECK(*error <= 2 * reference::kLayerTolerance);
  }
}

} // namespace megalith::test
