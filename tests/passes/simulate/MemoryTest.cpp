//===- MemoryTest.cpp - HBM in a simulation -------------------------------===//

#include "passes/simulate/Memory.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <map>

using namespace megalith::simulate;

namespace {

/// A copy takes 100 to begin to flow; an SM gets 10 bytes a ns, HBM gives 16.
Costs roundCosts() {
  Costs costs;
  costs.latency = 100;
  costs.smRate = 10;
  costs.capacity = Curve(16);
  costs.pollSlowdown = Curve(0.5);
  return costs;
}

/// When each token landed, until nothing is under way.
std::map<uint64_t, double> drain(Memory &memory) {
  std::map<uint64_t, double> landed;
  for (double at = memory.next(); !std::isinf(at); at = memory.next())
    for (uint64_t token : memory.advance(at))
      landed[token] = at;
  return landed;
}

} // namespace

TEST_CASE("one copy has its latency and its SM's rate", "[simulate]") {
  const Costs costs = roundCosts();
  Memory memory(costs, 2);
  memory.issue(0, 0, 1000, 7);
  CHECK(memory.inFlight() == 1000);
  CHECK(drain(memory).at(7) == Approx(200));
  CHECK(memory.inFlight() == 0);
}

TEST_CASE("SMs share what HBM gives, and later ones what is left", "[simulate]") {
  const Costs costs = roundCosts();
  Memory memory(costs, 3);
  memory.issue(0, 0, 1000, 1); // 8 a ns each
  memory.issue(0, 1, 1000, 2);
  auto landed = drain(memory);
  CHECK(landed.at(1) == Approx(225));
  CHECK(landed.at(2) == Approx(225));
  memory.issue(300, 0, 1000, 1);
  memory.issue(350, 1, 1000, 2); // from 450 on: 500 bytes of the first are left
  landed = drain(memory);
  CHECK(landed.at(1) == Approx(450 + 500 / 8.0));
  CHECK(landed.at(2) == Approx(landed.at(1) + 500 / 10.0));
}

TEST_CASE("of an SM's pieces two flow at once, the third after one of them", "[simulate]") {
  const Costs costs = roundCosts();
  Memory memory(costs, 1);
  for (uint64_t i = 0; i < 3; ++i)
    memory.issue(0, 0, 1000, i);
  const auto landed = drain(memory);
  CHECK(landed.at(0) == Approx(300)); // 5 a ns each
  CHECK(landed.at(1) == Approx(300));
  CHECK(landed.at(2) == Approx(400));
}

TEST_CASE("polling slows the stream by its share", "[simulate]") {
  const Costs costs = roundCosts();
  Memory memory(costs, 2);
  memory.issue(0, 0, 800, 0);
  memory.issue(0, 1, 800, 1);
  memory.setPolling(0, 1);
  CHECK(drain(memory).at(0) == Approx(100 + 800 / 4.0));
}

TEST_CASE("bytes are neither lost nor made: no rate above HBM's", "[simulate]") {
  Costs costs = roundCosts();
  Memory memory(costs, 64);
  double time = 0, last = 0;
  int64_t bytes = 0;
  std::map<uint64_t, double> landed;
  for (uint64_t i = 0; i < 500; ++i) {
    time += double(i * 7919 % 13);
    while (memory.next() <= time) {
      const double at = memory.next();
      for (uint64_t token : memory.advance(at))
        landed[token] = at;
    }
    memory.issue(time, int64_t(i * 31 % 64), int64_t(100 + i % 300), i);
    bytes += int64_t(100 + i % 300);
  }
  for (const auto &[token, at] : drain(memory))
    landed[token] = at;
  CHECK(landed.size() == 500);
  for (const auto &[token, at] : landed)
    last = std::max(last, at);
  CHECK(last >= double(bytes) / 16);
  CHECK(memory.inFlight() == Approx(0).margin(1e-3));
}

TEST_CASE("a slower SM's bytes take longer, its latency does not", "[simulate]") {
  const Costs costs = roundCosts();
  Memory memory(costs, 2);
  memory.issue(0, 0, 1000, 7, /*slowness=*/1.5);
  CHECK(memory.inFlight() == 1000);
  CHECK(drain(memory).at(7) == Approx(100 + 150));
}
