//===- RealLayerTest.cpp - A layer of Qwen3-30B-A3B on the host platform --===//
//
// The unmodified plan for an H200: 132 SMs, real dimensions. One middle layer's launch alone, its
// weights made up when they are read, so that only the active experts ever exist.
//
//===----------------------------------------------------------------------===//

#include "tests/host/Bench.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <iostream>

using namespace megalith;

TEST_CASE("a middle layer of Qwen3-30B-A3B, rows 1, context 129") {
  const auto from = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  test::Bench bench("qwen3-30b-a3b.json", 1, 132, {.maxPages = 3, .poolPages = 3, .layer = 23});
  std::cerr << "compiled after " << seconds() << " s\n";
  const check::Workload workload{.seed = 1, .sequences = {{.start = 128}}};
  const check::Report report = bench.compare(workload, 1);
  std::cerr << report.table() << "done after " << seconds() << " s\n";
  CHECK(report.passes());
  REQUIRE(report.launches.size() == 1);
  CHECK(report.launches[0].layer == 23);
  CHECK(seconds() < 120);
}
