//===- ConformanceTest.cpp - What threads did is what role regions say ----===//

#include "codegen/lint/Replay.h"
#include "tests/host/Bench.h"

#include "llvm/ADT/StringExtras.h"

#include <catch2/catch.hpp>
#include <set>

using namespace megalith;
using namespace megalith::test;
using Catch::Matchers::Contains;

namespace {

/// A plan on the host platform with a log; of several ranks all in one launch.
struct LoggedPlan {
  LoggedPlan(const std::string &config, int64_t rows, int64_t sms,
             runtime::LaunchMode launch = runtime::LaunchMode::Fused, int64_t tp = 1,
             const RankScheme &scheme = {})
      : bench(config, rows, sms, {}, launch, tp, {}, scheme),
        backend({.compile = {.includeFolder = deviceHeaderFolder()}, .log = true}) {
    auto made =
        check::Session::create(*bench.subject->graph, bench.subject->plan, bench.subject->folder,
                               backend, {.ranks = {.together = true}});
    if (!made)
      FAIL(llvm::toString(made.takeError()));
    session = std::move(*made);
  }

  /// Of a step that its launches overlap in.
  std::string log(const check::Workload &workload, uint64_t seed) {
    backend.reseed(seed);
    auto outcome = session->run(workload, /*launchBase=*/seed);
    if (!outcome)
      FAIL(llvm::toString(outcome.takeError()));
    return backend.takeLog();
  }
  /// The same, run from one of these launches to the next.
  std::string log(const check::Workload &workload, const std::vector<int64_t> &bounds) {
    runtime::RankGroup &executor = session->getExecutor();
    auto error = session->prepare(workload, /*launchBase=*/5);
    for (size_t i = 0; !error && i + 1 < bounds.size(); ++i)
      error = executor.runLaunches(bounds[i], bounds[i + 1] - bounds[i]);
    if (error)
      FAIL(llvm::toString(std::move(error)));
    return backend.takeLog();
  }
  lint::Replayed replay(llvm::StringRef log) { return lint::replay(*bench.subject->kernels, log); }

  Bench bench;
  runtime::HostBackend backend;
  std::unique_ptr<check::Session> session;
};

std::string all(const lint::Replayed &replayed) {
  std::string text;
  for (const lint::Finding &finding : replayed.findings)
    text += finding.text + "\n";
  return text;
}

check::Workload workloadOf(int64_t rows) {
  check::Workload workload{.sequences = {{.start = 129, .rows = 1, .content = 0}}};
  if (rows > 1)
    workload.sequences.push_back({.start = 0, .rows = rows - 1, .content = 1});
  return workload;
}

} // namespace

TEST_CASE("every warp does the steps of its role, on their slots and bytes") {
  struct Case {
    const char *config;
    int64_t rows, sms;
    runtime::LaunchMode launch;
    int64_t tp = 1;
    const char *experts = "auto";
  };
  for (const Case &each :
       {Case{"qwen3-moe-small.test.json", 2, 6, runtime::LaunchMode::Fused},
        {"mixtral-small.test.json", 1, 5, runtime::LaunchMode::Fused},
        {"muse-spark-tiny.test.json", 1, 3, runtime::LaunchMode::Fused},
        {"muse-spark-tiny.test.json", 4, 5, runtime::LaunchMode::Fused},
        {"qwen3-moe-small.test.json", 1, 3, runtime::LaunchMode::PerStage},
        {"qwen3-moe-small.test.json", 2, 4, runtime::LaunchMode::Step},
        {"qwen3-moe-small.test.json", 2, 3, runtime::LaunchMode::Fused, 2},
        {"muse-spark-tiny.test.json", 1, 4, runtime::LaunchMode::Fused, 2, "nk"}}) {
    LoggedPlan plan(each.config, each.rows, each.sms, each.launch, each.tp, {each.experts});
    for (uint64_t seed : {1, 2}) {
      const std::string log = plan.log(workloadOf(each.rows), seed);
      const lint::Replayed replayed = plan.replay(log);
      INFO(each.config << ", rows " << each.rows << ", seed " << seed);
      CHECK(all(replayed) == "");
      CHECK(replayed.launches ==
            (each.launch == runtime::LaunchMode::Step ? 1 : plan.session->launchesPerStep()));
      CHECK(replayed.steps > 1000);
      CHECK(replayed.slots > 1000);
      CHECK(replayed.ranges > 1000);
    }
  }
}

TEST_CASE("parts of a looping kernel's step are replayed as the launches that they ran") {
  LoggedPlan plan("qwen3-moe-small.test.json", 2, 4, runtime::LaunchMode::Step);
  const int64_t launches = plan.session->launchesPerStep();
  REQUIRE(launches == 4);
  const std::string log = plan.log(workloadOf(2), {0, 1, 3, launches});
  const lint::Replayed replayed = plan.replay(log);
  CHECK(all(replayed) == "");
  CHECK(replayed.launches == 3);
  CHECK(replayed.steps > 1000);

  const llvm::StringRef first = llvm::StringRef(log).split('\n').first;
  CHECK(first.ends_with(" 5 of 0 to 1"));
  const auto withRange = [&](const std::string &range) {
    return all(plan.replay(first.drop_back(6).str() + range + log.substr(first.size())));
  };
  CHECK(withRange("0 to 1") == "");
  CHECK_THAT(withRange("0 to 2"), Contains("where the role regions go on with"));
  CHECK_THAT(withRange("1 to 2"), Contains("comes where the role regions have"));
  CHECK_THAT(withRange("3 to 5"), Contains("line 1: launches 3 to 5 of a step of 4"));
}

/// Alters lines of a plan's log; how many.
static int alterLines(LoggedPlan &plan) {
  const std::string log = plan.log(workloadOf(2), 1);
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(log).split(lines, '\n');

  auto altered = [&](size_t line, const std::string &text) {
    std::string other;
    for (size_t i = 0; i < lines.size(); ++i)
      if (i != line)
        other += (lines[i] + "\n").str();
      else if (!text.empty())
        other += text + "\n";
    return all(plan.replay(other));
  };
  /// Adds to the number at a word of a line.
  auto moved = [&](size_t line, size_t word, int64_t by) {
    llvm::SmallVector<llvm::StringRef> words;
    lines[line].trim().split(words, ' ');
    int64_t number = 0;
    REQUIRE(!words[word].getAsInteger(10, number));
    const std::string text = std::to_string(number + by);
    words[word] = text;
    return altered(line, "  " + llvm::join(words, " "));
  };
  // Of every kind of line a few, spread over the log: what is altered, and how.
  std::map<std::string, int> seen;
  int alterations = 0;
  llvm::StringRef step;
  for (size_t i = 0; i < lines.size(); ++i) {
    const llvm::StringRef line = lines[i];
    auto refused = [&](const std::string &found, bool byLine = true) {
      ++alterations;
      INFO("line " << i + 1 << ": " << line.str() << "\n" << found.substr(0, 2000));
      CHECK(found != "");
      if (byLine)
        CHECK_THAT(found, Contains("line " + std::to_string(i + 1) + ": "));
    };
    auto isWanted = [&](const std::string &kind, int spread, int most) {
      const int number = seen[kind]++;
      return number % spread == 0 && number / spread < most;
    };
    if (!line.starts_with("  ")) {
      step = line;
      if (line.contains(" @") && !line.contains(" pace ") && isWanted("step", 397, 6)) {
        refused(altered(i, line.split('@').first.str() + "@nobody" +
                               line.substr(line.rfind(' ')).str()));
        refused(altered(i, ""), /*byLine=*/false);
      }
    } else if (line.starts_with("  barrier") && isWanted("barrier", 501, 6)) {
      refused(moved(i, 2, 8));
    } else if (line.starts_with("  copy") && isWanted("copy", 61, 3)) {
      refused(moved(i, 5, 65536));
      if (line.contains(" w_")) {
        refused(moved(i, 2, 4096 * 17)); // not to the same place of another expert's matrix
        refused(altered(i, "  copy other " + line.drop_front(7).split(' ').second.str()));
      }
    } else if (line.starts_with("  store") && step.contains(" signal ") &&
               isWanted("publish", 101, 4)) {
      refused(moved(i, 3, 1 << 22));
    } else if (line.starts_with("  store") && step.contains(" rearm ") &&
               isWanted("rearm", 11, 3)) {
      refused(moved(i, 3, 1 << 20));
    } else if (line.starts_with("  load") && step.contains(" wait ") && isWanted("poll", 101, 4)) {
      refused(moved(i, 3, 1 << 20));
    } else if (line.starts_with("  shared write") && isWanted("write", 301, 5)) {
      refused(altered(i, "  shared write 0 16")); // the barriers
    } else if (line.starts_with("  shared read") && isWanted("read", 301, 5)) {
      refused(moved(i, 3, 1 << 18));
    }
  }
  return alterations;
}

TEST_CASE("a log with an altered line is refused by that line") {
  int alterations = 0;
  SECTION("a launch a layer") {
    LoggedPlan plan("qwen3-moe-small.test.json", 2, 6);
    alterations = alterLines(plan);
  }
  SECTION("one launch for the step") {
    LoggedPlan plan("qwen3-moe-small.test.json", 2, 4, runtime::LaunchMode::Step);
    alterations = alterLines(plan);
  }
  SECTION("two ranks") {
    LoggedPlan plan("qwen3-moe-small.test.json", 2, 3, runtime::LaunchMode::Fused, /*tp=*/2);
    alterations = alterLines(plan);
  }
  CHECK(alterations > 30);
  WARN(alterations << " lines altered, each refused");
}

TEST_CASE("what is no log is refused by its line") {
  LoggedPlan plan("qwen3-moe-small.test.json", 1, 3, runtime::LaunchMode::PerStage);
  CHECK_THAT(all(plan.replay("launch 0 layer 1\n0 0 wait @x y\n  nonsense\n")),
             Contains("line 3: expected a line of a host log"));
}
