// Which of many missed deadlines is the cause.

#include "runtime/fault.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::runtime;

namespace {

enum : uint32_t { kFull, kFree, kWords, kHere, kRouted, kPart };
constexpr uint32_t kProducer = 0, kPoller = 1, kConsumer = 2, kEpilogue = 10;

/// A ring, words that pollers of all SMs wait for, and what hands them on.
Kernel kernel() {
  Kernel kernel;
  kernel.edges = {
      {kFull, "w_full", "producer", "consumer", "bytes", {kFull, kFree, kRouted}},
      {kFree, "w_free", "consumer", "producer", "credit", {kFull, kHere}},
      {kWords, "words", "epilogue", "poller", "words", {kPart}},
      {kHere, "here", "poller", "consumer", "mbarrier", {kWords}},
      {kRouted, "routed", "consumer", "producer", "mbarrier", {kFull, kHere}},
      {kPart, "part", "consumer", "epilogue", "mbarrier", {kFull}},
  };
  return kernel;
}

FaultRecord missed(uint32_t edge, uint32_t sm, uint32_t warp, uint64_t launch = 5) {
  return {
      .valid = 1, .edge = edge, .sm = sm, .warp = warp, .launch = launch, .expected = 1, .seen = 0};
}

FaultRecord rootIn(const std::vector<FaultRecord> &faults) {
  const Kernel known = kernel();
  auto root = rootOf(faults, [&](uint64_t) { return &known; });
  REQUIRE(root);
  CHECK(root->others == int64_t(faults.size()) - 1);
  return root->record;
}

} // namespace

TEST_CASE("the wait at the end of a chain is the cause, whoever gave up first") {
  // SM 3's consumers never signal `part`: its words are missing everywhere.
  const FaultRecord root =
      rootIn({missed(kHere, 0, kConsumer), missed(kWords, 0, kPoller), missed(kWords, 3, kPoller),
              missed(kFree, 0, kProducer), missed(kPart, 3, kEpilogue)});
  CHECK(root.edge == kPart);
  CHECK(root.sm == 3);
}

TEST_CASE("a role of another SM explains words, not what an SM's own roles signal") {
  CHECK(rootIn({missed(kWords, 0, kPoller), missed(kPart, 1, kEpilogue)}).edge == kPart);
  // Consumers of SM 1 wait, those of SM 0 do not: nothing explains SM 0's `part`.
  const FaultRecord root = rootIn(
      {missed(kFull, 1, kConsumer), missed(kFree, 1, kProducer), missed(kPart, 0, kEpilogue)});
  CHECK(root.edge == kPart);
  CHECK(root.sm == 0);
}

TEST_CASE("what a role waits for after its last signal explains nothing") {
  // The poller hands on before it waits for `part` (say); so the missing hand-over is its own.
  Kernel known = kernel();
  known.edges.push_back({6, "later", "epilogue", "poller", "mbarrier", {kPart}});
  const std::vector<FaultRecord> faults = {missed(6, 0, kPoller), missed(kHere, 0, kConsumer)};
  auto root = rootOf(faults, [&](uint64_t) { return &known; });
  REQUIRE(root);
  CHECK(root->record.edge == kHere);
}

TEST_CASE("in a circle words come first and the ring last") {
  CHECK(rootIn({missed(kFull, 2, kConsumer), missed(kRouted, 2, kProducer)}).edge == kRouted);
  CHECK(rootIn({missed(kFull, 2, kConsumer), missed(kFree, 2, kProducer)}).edge == kFree);
  CHECK(
      rootIn({missed(kHere, 0, kConsumer), missed(kWords, 0, kPoller), missed(kPart, 0, kEpilogue),
              missed(kFree, 0, kProducer), missed(kFull, 0, kConsumer + 1)})
          .edge == kWords);
}

TEST_CASE("a launch is stuck because the one before is") {
  const FaultRecord root = rootIn({missed(kWords, 0, kPoller, 6), missed(kHere, 4, kConsumer, 5)});
  CHECK(root.launch == 5);
  CHECK(root.edge == kHere);
}

TEST_CASE("records of unknown kernels and edges are told as they are") {
  const std::vector<FaultRecord> faults = {missed(99, 1, kPoller)};
  const Kernel known = kernel();
  CHECK(rootOf(faults, [&](uint64_t) { return &known; })->record.edge == 99);
  CHECK(rootOf(faults, [](uint64_t) -> const Kernel * { return nullptr; })->record.edge == 99);
  CHECK_FALSE(rootOf({}, [&](uint64_t) { return &known; }));
}
