//===- EngineTest.cpp - Role regions played in time -----------------------===//
//
// Small kernels whose times can be added up by hand.
//
//===----------------------------------------------------------------------===//

#include "passes/simulate/Simulate.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <catch2/catch.hpp>

using namespace mlir;
using namespace megalith;
using namespace megalith::simulate;

namespace {

/// Two SMs hand words round: each publishes half of @h once its chunks are there, each polls all.
/// `waits`: what stands before the second stage's product.
std::string
exchanging(StringRef poller = "task.poll \"poll_rows\" [] waits @h_words reads [@h[0, 0] "
                              "1 x [32]] writes [@xs[0, 0] 1 x [32]]\n task.signal "
                              "@x_full") {
  return (R"(task.kernel @k "toy" target "sm_90a" sms 2 rows 1 smem 131072 {
  task.exchange @h [1, 32] bf16 sentinel sets 2 slot 0 edge @h_words
  task.buffer @xs [1, 32] bf16 smem scratch {row_bytes = 96, offset = 0, guard = @x_full}
  task.edge 0 @h_words words epilogue -> poller
  task.edge 1 @x_full mbarrier poller -> consumer {offset = 80000}
  task.edge 2 @p_full mbarrier consumer -> epilogue {arrivals = 8, offset = 80008}
  task.stage @first linear tiles 2 sms 2 assign affine_map<(t) -> (t, 0)>
      reads [] writes [@h[0, d0 * 16] 1 x [16]] config {} {
    task.role poller { task.launch_wait
                       task.rearm @h
                       task.launch_dependents }
    task.role consumer { task.compute "store_part<part>" [] reads [] writes []
                         task.signal @p_full }
    task.role epilogue { task.launch_wait
                         task.wait @p_full
                         task.compute "epilogue_words<first, h_words>" [] reads []
                             writes [@h[0, d0 * 16] 1 x [16]] }
  }
  task.stage @second linear tiles 2 sms 2 assign affine_map<(t) -> (t, 0)>
      reads [@h[0, 0] 1 x [32]] writes [] config {k = 2048} {
    task.role poller { )" +
          poller + R"( }
    task.role consumer { task.wait @x_full
                         task.compute "gemv_block<second, ring>" [] reads [] writes [] }
  }
})")
      .str();
}

/// A product of 100, storing 200, publishing 60; waits and signals 10, seen 70 later; words take
/// 1000 on their way, a look 400. Roles begin 300 after a CTA, that 500 after the one before.
Costs roundCosts() {
  Costs costs;
  costs.latency = 100;
  costs.smRate = 10;
  costs.capacity = Curve(100);
  costs.pollSlowdown = Curve(1);
  costs.handover = 70;
  costs.wait = costs.signal = 10;
  costs.barrier = 30;
  costs.product = 100;
  costs.parts = {{"rows1.store", 220},
                 {"rows1.words", 60},
                 {"rows1.three", 1},
                 {"rows1.store.near", 220},
                 {"rows1.words.near", 60}};
  costs.arrival[1][4096] = Curve(1000);
  costs.look = Curve(400);
  costs.setUp = 300;
  costs.gap = 500;
  costs.launchWait = 1400;
  return costs;
}

struct Parsed {
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  task::KernelOp kernel;

  explicit Parsed(StringRef text) {
    context.loadDialect<task::TaskDialect>();
    module = parseSourceString<ModuleOp>(text, &context);
    REQUIRE(module);
    kernel = *(*module).getOps<task::KernelOp>().begin();
  }
};

const WarpTimes &warpOf(const LaunchTimes &launch, int64_t sm, int64_t warp) {
  for (const WarpTimes &times : launch.warps)
    if (times.sm == sm && times.warp == warp)
      return times;
  FAIL("no such warp");
  return launch.warps.front();
}

} // namespace

TEST_CASE("words go from the last SM's store to every SM's product", "[simulate]") {
  Parsed parsed(exchanging());
  auto timeline = simulate::simulate({parsed.kernel}, roundCosts(), {{0}});
  REQUIRE(bool(timeline));
  for (int64_t sm : {0, 1}) {
    const LaunchTimes &launch = timeline->launches[0];
    // 300 + 200 to store; the signal is seen at 570; published at 630; here at 1630.
    const WarpTimes &epilogue = warpOf(launch, sm, 10);
    CHECK(epilogue.stages[0].ready == Approx(570));
    CHECK(epilogue.end == Approx(630));
    const WarpTimes &poller = warpOf(launch, sm, 1);
    CHECK(poller.stages[1].end == Approx(1640));
    const WarpTimes &consumer = warpOf(launch, sm, 2);
    CHECK(consumer.stages[1].begin == Approx(510));
    CHECK(consumer.stages[1].ready == Approx(1700));
    CHECK(consumer.stages[1].waited == Approx(1190));
    CHECK(consumer.end == Approx(1800));
    CHECK(launch.end == Approx(1800));
  }
  CHECK(timeline->unknown.empty());
}

TEST_CASE("a warp has its own words sooner than the last, but not before any are stored",
          "[simulate]") {
  std::string text = exchanging("");
  const auto replace = [&](const std::string &from, const std::string &to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace("epilogue -> poller", "epilogue -> consumer");
  replace("task.wait @x_full",
          "task.poll \"poll_chunk\" [] waits @h_words reads [@h[0, 0] 1 x [32]] "
          "writes [@xs[0, 0] 1 x [32]]");
  Parsed parsed(text);
  Costs costs = roundCosts();
  costs.oneWay = 600;
  // Stored at 630, all here at 1630; the mean warp has its own so much sooner, the first warp twice
  // that: at 1430, and not at -370.
  for (auto [early, soonest] : {std::pair(100., 1430.), std::pair(1000., 1230.)}) {
    costs.early[1][4096] = Curve(early);
    auto timeline = simulate::simulate({parsed.kernel}, costs, {{0}});
    REQUIRE(bool(timeline));
    for (int64_t sm : {0, 1}) {
      const LaunchTimes &launch = timeline->launches[0];
      CHECK(warpOf(launch, sm, 2).stages[1].ready == Approx(soonest));
      CHECK(warpOf(launch, sm, 9).stages[1].ready == Approx(1630));
    }
  }
}

TEST_CASE("a launch begins behind the one before, and its stores wait for that to be over",
          "[simulate]") {
  Parsed parsed(exchanging());
  auto timeline =
      simulate::simulate({parsed.kernel, parsed.kernel, parsed.kernel}, roundCosts(), {{0}});
  REQUIRE(bool(timeline));
  for (int i : {1, 2}) {
    const LaunchTimes &before = timeline->launches[size_t(i) - 1],
                      &launch = timeline->launches[size_t(i)];
    CHECK(launch.begin == Approx(before.end + 500));
    // griddepcontrol.wait ends 1400 after the launch before, later than the chunks are there.
    CHECK(warpOf(launch, 1, 10).end == Approx(launch.begin + 900 + 10 + 60));
    CHECK(launch.end == Approx(launch.begin + 970 + 1000 + 70 + 100));
  }
}

TEST_CASE("what waits for ever is named", "[simulate]") {
  Parsed parsed(exchanging("task.launch_wait")); // nobody signals @x_full
  auto timeline = simulate::simulate({parsed.kernel}, roundCosts(), {{0}});
  REQUIRE(!timeline);
  const std::string message = llvm::toString(timeline.takeError());
  CHECK(message.find("launch 0, SM 0, consumer: task.wait @x_full waits for ever") !=
        std::string::npos);
}

TEST_CASE("shapes that a kernel has no room for are refused", "[simulate]") {
  Parsed parsed(exchanging());
  auto timeline = simulate::simulate({parsed.kernel}, roundCosts(), {{0, 0}});
  REQUIRE(!timeline);
  CHECK(llvm::toString(timeline.takeError()) ==
        "expected 1 to 1 sequences, the rows of kernel @k, but got 2");
}

TEST_CASE("CTAs begin in the order of their numbers, where a place comes free", "[simulate]") {
  // SM 1 has no part in the second stage, so its place is the first to be free.
  std::string text = exchanging();
  const size_t second = text.rfind("tiles 2 sms 2");
  text.replace(second, 13, "tiles 1 sms 1");
  Parsed parsed(text);
  auto timeline = simulate::simulate({parsed.kernel, parsed.kernel}, roundCosts(), {{0}});
  REQUIRE(bool(timeline));
  const LaunchTimes &before = timeline->launches[0], &launch = timeline->launches[1];
  CHECK(warpOf(before, 1, 10).end == Approx(630));
  CHECK(before.end == Approx(1800)); // SM 0's
  CHECK(warpOf(launch, 0, 10).begin == Approx(630 + 500 + 300));
  CHECK(warpOf(launch, 1, 10).begin == Approx(1800 + 500 + 300));
}

TEST_CASE("parts cost what lies between near and far, by how large a kernel's code is",
          "[simulate]") {
  Costs costs;
  costs.parts = {{"rows1.norm", 1}, {"rows1.norm.near", 2}, {"rows1.norm.far", 4}};
  CHECK(costs.part("norm", 1) == 1);
  CHECK(costs.part("norm", 1, Heat::ofCode(0)) == 2);
  CHECK(costs.part("norm", 1, Heat::ofCode(80 * 1024)) == 2);
  CHECK(costs.part("norm", 1, Heat::ofCode(136 * 1024)) == Approx(3));
  CHECK(costs.part("norm", 1, Heat::ofCode(192 * 1024)) == 4);
  CHECK(costs.part("norm", 1, Heat::ofCode(1 << 20)) == 4);
}

TEST_CASE("parts go on with rows beyond those measured, if all were", "[simulate]") {
  Costs costs;
  costs.parts = {{"rows1.norm", 1}, {"rows2.norm", 2}, {"rows4.norm", 3},
                 {"rows8.norm", 5}, {"rows1.open", 1}, {"rows8.open", 8}};
  CHECK(costs.part("norm", 3) == Approx(2.5));
  CHECK(costs.part("norm", 16) == Approx(9));
  CHECK(costs.part("open", 16) == 8);
}

TEST_CASE("a step of whose launches some were played lasts as long as if all were", "[simulate]") {
  auto launch = [](int64_t number, double begin, double end) {
    LaunchTimes times;
    times.number = number;
    times.begin = begin;
    times.end = end;
    return times;
  };
  // 4 to 8 as long as from 2 to 3.
  const LaunchTimes played[] = {launch(0, 0, 12), launch(1, 10, 22), launch(2, 20, 34),
                                launch(3, 32, 46), launch(9, 44, 60)};
  CHECK(stepTime(played, 10) == Approx(60 + 5 * 12));
  CHECK(stepTime(played, 12) == Approx(60 + 5 * 12 + 2 * 12));
  CHECK(stepTime({}, 0) == 0);
}
