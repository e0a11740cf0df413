//===- StreamCells.h - Steps of the family with an fp32 stream ---*- C++ -*-===//
#ifndef MEGALITH_TESTS_HOST_STREAMCELLS_H
#define MEGALITH_TESTS_HOST_STREAMCELLS_H

#include "tests/host/Bench.h"

#include <vector>

namespace megalith::test {

inline constexpr const char *kStreamConfig = "muse-spark-mini.test.json";
/// Of the config.
inline constexpr int64_t kStreamWindow = 256;
/// Positions that the ring of its windows holds: from there on a position takes an old one's place.
inline constexpr int64_t kStreamRing = 320;

/// A step of these sequences.
check::Workload streamStep(uint32_t seed, std::vector<check::Sequence> sequences);

/// Room for each of the workloads.
check::SessionOptions roomFor(const std::vector<check::Workload> &workloads);

/// Each launch started from what the one before left, within a layer's tolerance; one launch alone
/// may be twice off. A whole step's logits are not held to their 1e-2 (StreamTest.cpp).
void checkLaunches(const check::Report &report);

} // namespace megalith::test

#endif // MEGALITH_TESTS_HOST_STREAMCELLS_H
