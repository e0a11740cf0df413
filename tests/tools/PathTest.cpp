//===- PathTest.cpp - The critical path of a timeline ---------------------===//

#include "tools/trace/Path.h"

#include <catch2/catch.hpp>

using namespace megalith::runtime;
using namespace megalith::trace;

namespace {

/// Kernel "layer": stage a feeds b by words, b feeds the next launch's a.
Plan twoStages() {
  Plan plan;
  plan.kernels.emplace_back();
  plan.kernels[0].name = "layer";
  plan.kernels[0].trace =
      KernelTrace{{{"a", 2, {{"consumer", {"b_words"}}}}, {"b", 2, {{"consumer", {"a_words"}}}}},
                  {{"a_words", "a", "b", false, false}, {"b_words", "b", "a", true, false}}};
  plan.launches = {{"layer", 0}, {"layer", 1}, {"layer", 2}};
  return plan;
}

/// A launch that begins at `at`: on SM s, a works from 10 (+ `late` on SM 1) to 100, hands its
/// words on, b has them at 150, a piece 20 later, and is done at 200.
LaunchTrace launchAt(int64_t number, double at, double late) {
  LaunchTrace launch{.launch = number, .number = uint64_t(number)};
  for (int64_t sm : {0, 1}) {
    const double l = sm == 1 ? late : 0;
    WarpTrace warp{sm, 2, at, at + 210 + late, {}};
    const double wait = number > 0 ? 10 : 0;
    warp.stages.push_back(
        {0, at, at + 110 + l, 160 + wait - 150, 0, at + 10, at + 10, at + 100 + l});
    warp.stages.push_back({1, at + 110 + l, at + 210 + late, 40 + late - l, 20, at + 150 + late,
                           at + 170 + late, at + 200 + late});
    launch.warps.push_back(std::move(warp));
  }
  return launch;
}

Trace threeLaunches(double late) {
  Trace trace;
  for (int64_t i = 0; i < 3; ++i)
    trace.launches.push_back(launchAt(i, double(i) * (230 + late), late));
  return trace;
}

double sumOf(const CriticalPath &path) {
  double sum = 0;
  for (const Segment &segment : path.segments)
    sum += segment.end - segment.begin;
  return sum;
}

} // namespace

TEST_CASE("segments join end to end, and add up to the time between the products", "[trace]") {
  for (double late : {0.0, 17.0, 333.0}) {
    const auto path = criticalPath(twoStages(), threeLaunches(late));
    REQUIRE(path);
    CHECK(path->launches == 2);
    CHECK(path->begin() == 200 + late);
    CHECK(path->end() == 200 + late + 2 * (230 + late));
    CHECK(sumOf(*path) == Approx(2 * (230 + late)));
    for (size_t i = 1; i < path->segments.size(); ++i)
      CHECK(path->segments[i].begin == path->segments[i - 1].end);
    double totals = 0;
    for (const PathTotal &total : path->totals)
      totals += total.ns;
    CHECK(totals == Approx(230 + late));
  }
}

TEST_CASE("a wait leads to the SM that stored last", "[trace]") {
  const auto path = criticalPath(twoStages(), threeLaunches(200));
  REQUIRE(path);
  // From the end: b's product, its stall and work, the wait for the words of SM 1's a.
  const auto &segments = path->segments;
  const Segment &last = segments.back();
  CHECK(last.kind == SegmentKind::Work);
  CHECK(last.stage == 1);
  bool waited = false;
  for (size_t i = 1; i < segments.size(); ++i)
    if (segments[i].kind == SegmentKind::Wait && segments[i].edge == "a_words" &&
        segments[i].sm == 0) { // the other SM's short look stays on it
      waited = true;
      CHECK(segments[i].stage == 1);
      CHECK(segments[i - 1].stage == 0);
      CHECK(segments[i - 1].sm == 1);
      CHECK(segments[i].end - segments[i].begin == Approx(50));
    }
  CHECK(waited);
  double stream = 0;
  for (const PathTotal &total : path->totals)
    if (total.kind == SegmentKind::Stream)
      stream += total.ns;
  CHECK(stream == Approx(20));
}

TEST_CASE("clocks that contradict each other leave no gap", "[trace]") {
  Trace trace = threeLaunches(50);
  for (LaunchTrace &launch : trace.launches)
    for (WarpTrace &warp : launch.warps)
      if (warp.sm == 1) // 90 ns behind the other SM's
        for (WarpStage &stage : warp.stages) {
          stage.begin += 90;
          stage.end += 90;
          *stage.ready += 90;
          *stage.last += 90;
        }
  const auto path = criticalPath(twoStages(), trace);
  REQUIRE(path);
  CHECK(sumOf(*path) == Approx(path->end() - path->begin()));
}

TEST_CASE("one launch, or one that computed nothing, has no path", "[trace]") {
  Trace one = threeLaunches(0);
  one.launches.resize(1);
  CHECK(!criticalPath(twoStages(), one));
  Trace none = threeLaunches(0);
  for (LaunchTrace &launch : none.launches)
    launch.warps.clear();
  CHECK(!criticalPath(twoStages(), none));
}
