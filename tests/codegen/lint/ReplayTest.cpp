//===- ReplayTest.cpp - Logs by hand: what no device function does --------===//

#include "codegen/lint/Replay.h"

#include "ir/task/Task.h"

#include "mlir/Parser/Parser.h"

#include <catch2/catch.hpp>

using namespace mlir;
using namespace megalith;
using Catch::Matchers::Contains;

namespace {

/// What a replay of the log on a module's kernels finds.
std::string found(StringRef kernels, const std::string &log) {
  MLIRContext context;
  context.loadDialect<task::TaskDialect>();
  auto module = parseSourceString<ModuleOp>(kernels, &context);
  REQUIRE(module);
  std::string text;
  for (const lint::Finding &finding : lint::replay(*module, log).findings)
    text += finding.text + "\n";
  return text;
}

} // namespace

TEST_CASE("a rank touches its own memory, but for words that it stores") {
  const StringRef kernel = R"(
    task.kernel @layer "toy" target "sm_90a" sms 1 rows 1 attributes {ranks = 2 : i64} {
      task.exchange @h [1, 4] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
      task.edge 0 @h_words words poller -> poller
      task.stage @s linear reads [] writes [] config {} {
        task.role poller {
          task.launch_wait
          task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [2] own]
          task.poll "poll" [] waits @h_words reads [@h[0, 0] 1 x [4]] writes []
        }
      }
    }
  )";
  auto log = [](const std::string &inPoll, const std::string &behind) {
    auto ofRank = [&](const std::string &rank, const std::string &share, const std::string &more,
                      const std::string &last) {
      const std::string warp = rank + " 1 ", own = "rank_" + rank + "'s_";
      return warp + "launch_wait\n" + warp + "signal @h_words relaxed.sys\n" +
             "  store rank_0's_h " + share + " relaxed system\n" + "  store rank_1's_h " + share +
             " relaxed system\n" + warp + "wait @h_words relaxed.sys\n" + "  load " + own +
             "h 0 8 relaxed system\n  load " + own + "gain 0 16 constant\n" + more + warp +
             "between\n  load " + own + "step 0 16 constant\n" + last;
    };
    return "launch 0 layer 0\n" + ofRank("0", "0 4", inPoll, behind) + ofRank("1", "4 8", "", "");
  };
  CHECK(found(kernel, log("", "")) == "");
  CHECK_THAT(found(kernel, log("  load rank_1's_h 0 8 relaxed system\n", "")),
             Contains("line 9: 'wait @h_words relaxed.sys' loads bytes [0, 8) of rank_1's_h"));
  CHECK_THAT(found(kernel, log("  load rank_1's_gain 0 16 constant\n", "")),
             Contains("line 9: 'wait @h_words relaxed.sys' loads bytes [0, 16) of rank_1's_gain, "
                      "expected nothing of it"));
  CHECK_THAT(found(kernel, log("", "  load rank_0's_h 0 8 weak\n")),
             Contains("line 11: reads exchange @h between marks"));
  for (const std::string name : {"h", "gain"})
    CHECK_THAT(found(kernel, log("", "  load rank_1's_" + name + " 0 8 weak\n")),
               Contains("line 11: reads rank_1's_" + name + ", which another rank has"));
}

TEST_CASE("a poll looks at the exchanges that it waits for") {
  auto kernel = [](const std::string &waits, const std::string &more) {
    return R"(
    task.kernel @layer "toy" target "sm_90a" sms 1 rows 1 {
      task.exchange @t [1, 4] bf16 sentinel sets 2 slot 0 edge @t_words
      task.exchange @squares [1, 4] f32 sentinel sets 2 slot 1 edge @squares_words
      task.edge 0 @t_words words poller -> poller
      task.edge 1 @squares_words words poller -> poller
      task.stage @s linear reads [] writes [] config {} {
        task.role poller {
          task.poll "poll" [] waits )" +
           waits + " reads [@t[0, 0] 1 x [4]" + more + R"(] writes []
        }
      }
    }
  )";
  };
  const std::string log = "launch 0 layer 0\n0 1 wait @t_words relaxed.gpu\n"
                          "  load t 0 8 relaxed\n  load squares 0 16 relaxed\n";
  CHECK(found(kernel("@t_words and @squares_words", ", @squares[0, 0] 1 x [4]"), log) == "");
  CHECK_THAT(
      found(kernel("@t_words", ""), log),
      Contains("line 4: 'wait @t_words relaxed.gpu' loads bytes [0, 16) of squares, expected "
               "nothing of it"));
}

TEST_CASE("launches of a step are joined by their own counter") {
  const StringRef kernel = R"(
    task.kernel @step "step" target "sm_90a" sms 1 rows 1 attributes {launches = 2 : i64, layered = 0 : i64} {
      task.edge 0 @complete launches poller -> poller {slot = 1 : i64}
      task.stage @s linear reads [] writes [] config {} {
        task.role poller {
          task.launch_wait @complete
          task.launch_done @complete
        }
      }
    }
  )";
  auto log = [](const std::string &waited, const std::string &counted) {
    const std::string wait = "0 1 wait @complete acquire.gpu\n",
                      done = "0 1 signal @complete release.gpu\n  store ";
    return "launch 0 step 0 of 0 to 2\n" + wait + done + "complete 0 4 release\n" + wait +
           "  load " + waited + " 0 4 acquire\n" + done + counted + " 0 4 release\n";
  };
  CHECK(found(kernel, log("complete", "complete")) == "");
  CHECK_THAT(found(kernel, log("other", "complete")),
             Contains("'wait @complete acquire.gpu' of launch 1 of the step: expected the "
                      "counter's first word with acquire"));
  CHECK_THAT(found(kernel, log("complete", "other")),
             Contains("'signal @complete release.gpu' of launch 1 of the step: expected the "
                      "counter's first word with release"));
}
