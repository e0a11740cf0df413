// How the proof's time grows: kernels of 10^3, 10^4 and 10^5 tile instances, each of which is
// streamed, multiplied, handed over, published and polled. CPU time, since machines are shared.
#include "passes/verify/Verify.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string>

using namespace mlir;
using namespace megalith::task;
using llvm::formatv;

namespace {

constexpr int64_t kSms = 100;

/// Declarations that every stage shares, and `exchanges` exchanges of `rows` x `cols`.
std::string declarations(int64_t exchanges, int64_t rows, int64_t cols) {
  std::string text = R"(
    task.edge 0 @w_full bytes producer -> consumer {slots = 4}
    task.edge 1 @w_free credit consumer -> producer {slots = 4, arrivals = 8}
    task.edge 2 @x_full mbarrier poller -> consumer
    task.edge 3 @x_free credit consumer -> poller {arrivals = 8}
    task.edge 4 @p_full mbarrier consumer -> epilogue {slots = 2, arrivals = 8}
    task.edge 5 @p_free credit epilogue -> consumer {slots = 2}
    task.ring @ring 4 x 16384 full @w_full free @w_free
    task.buffer @part [128, 8] f32 smem scratch {slots = 2, guard = @p_full}
)";
  text += formatv("    task.buffer @xs [1, {0}] bf16 smem scratch {{guard = @x_full}\n", cols);
  for (int64_t i = 0; i < exchanges; ++i)
    text += formatv("    task.edge {1} @h{0}_words words epilogue -> poller\n"
                    "    task.exchange @h{0} [{4}, {2}] bf16 sentinel sets {3} slot 0 edge "
                    "@h{0}_words\n"
                    "    task.weights @w{0} n {2} k 128 slot 1 rows [\"w\"]\n",
                    i, 6 + i, cols, i + 1 == exchanges ? 3 : 2, rows);
  return text;
}

/// What the tiles of a stage do, d0 being the SM and d1 the tile on it.
struct Tiles {
  std::string trips;  ///< how many on an SM
  std::string source; ///< what each streams
  std::string result; ///< what each publishes
  std::string input;  ///< what the stage polls of the exchange before; "": nothing
  std::string extra;  ///< steps of the consumer
};

std::string stage(int64_t index, const Tiles &tiles, int64_t exchanges) {
  std::string poll = "task.launch_wait\n";
  for (int64_t i = 0; index == 0 && i < exchanges; ++i)
    poll += formatv("        task.rearm @h{0}\n", i);
  if (index == 0)
    poll += "        task.launch_dependents\n";
  if (tiles.input.empty())
    poll += "        task.acquire @x_free\n"
            "        task.compute \"zero\" [] reads [] writes [@xs[0, 0] 1 x [16]]\n";
  else
    poll += formatv("        task.acquire @x_free\n"
                    "        task.poll \"poll\" [] waits @h{0}_words reads [@h{0}{1}] "
                    "writes [@xs[0, 0] 1 x [16]]\n",
                    index - 1, tiles.input);
  return formatv(R"(
    task.stage @s{0} linear reads [] writes [] config {{} {{
      task.role producer {{
        task.for "m" in {1} {{
          task.acquire @w_free
          task.copy "copy" [] {2} to @ring signals @w_full
        }
      }
      task.role poller {{
        {3}        task.signal @x_full
      }
      task.role consumer {{
        task.wait @x_full
        {5}task.for "m" in {1} {{
          task.wait @w_full
          task.compute "gemv" [] reads [@xs[0, 0] 1 x [16]] writes [] ring @ring
          task.release @w_free
          task.acquire @p_free
          task.compute "store" [] reads [] writes [@part[0, 0] 128 x [8]]
          task.signal @p_full
        }
        task.release @x_free
      }
      task.role epilogue {{
        task.launch_wait
        task.for "m" in {1} {{
          task.wait @p_full
          task.compute "sum" [] reads [@part[0, 0] 128 x [8]] writes []
          task.release @p_free
          task.compute "publish" [] reads [] writes [{4}]
        }
      }
    }
)",
                 index, tiles.trips, tiles.source, poll, tiles.result, tiles.extra);
}

std::string kernel(const std::string &body) {
  return formatv("task.kernel @k \"toy\" target \"sm_90a\" sms {0} rows 1 {{{1}}\n", kSms, body);
}

/// One stage of many tiles on every SM.
std::string longLoops(int64_t tiles) {
  const int64_t each = tiles / kSms;
  return kernel(declarations(1, 1, tiles * 16) +
                stage(0,
                      {.trips = std::to_string(each),
                       .source = formatv("@w0[d0 * {0} + d1 * 8, 0] 8 x [1]", each * 8),
                       .result = formatv("@h0[0, d0 * {0} + d1 * 16] 1 x [16]", each * 16)},
                      1));
}

/// A tile an SM and stage, each stage reading all of the one before.
std::string manyStages(int64_t tiles) {
  const int64_t stages = tiles / kSms, cols = kSms * 16;
  std::string body = declarations(stages, 1, cols);
  for (int64_t i = 0; i < stages; ++i)
    body += stage(i,
                  {.trips = "1",
                   .source = formatv("@w{0}[d0 * 8, 0] 8 x [1]", i),
                   .result = formatv("@h{0}[0, d0 * 16] 1 x [16]", i),
                   .input = i ? formatv("[0, 0] 1 x [{0}]", cols).str() : ""},
                  stages);
  return kernel(body);
}

/// No two SMs alike, tiles that no rule joins to rectangles, and a symbol: nothing can be shared
/// between SMs or cases. Row r of the exchange is begun by SM r and ended by the SM opposite.
std::string unlikeSms(int64_t tiles) {
  const int64_t base = tiles / kSms - kSms / 2, each = std::max<int64_t>(base, 1) + kSms;
  const std::string column = "(d1 floordiv 2) * 32 + (d1 mod 2) * 16";
  std::string body = declarations(1, kSms, each * 16);
  body += "    task.symbol @n in 1 to 4 per_sm = \"n\"\n"
          "    task.table @unit size 1000 injective = \"unit\"\n"
          "    task.buffer @kv [1, 1000] bf16 global pages {slot = 2}\n";
  const std::string extra = "task.for \"s\" in @n {\n"
                            "          task.compute \"f\" [] reads [] writes []\n"
                            "        }\n        ";
  const std::string source = "@kv[d1, 0, d1 mod 7] 1 x [1] table @unit";
  body += stage(0,
                {.trips = formatv("[d0 + {0}]", each - kSms),
                 .source = source,
                 .result = formatv("@h0[d0, {0}] 1 x [16]", column),
                 .extra = extra},
                1);
  body += stage(1,
                {.trips = "[d0 + 1]",
                 .source = source,
                 .result = formatv("@h0[{0} - d0, ({1} - d0) * 16 + {2}] 1 x [16]", kSms - 1,
                                   each - 1, column),
                 .extra = extra},
                1);
  return kernel(body);
}

/// CPU seconds of a proof, the least of three.
double secondsOf(const std::string &text, int64_t tiles, const char *what) {
  MLIRContext context;
  context.loadDialect<TaskDialect>();
  auto module = parseSourceString<ModuleOp>(text, ParserConfig(&context, false));
  REQUIRE(module);
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t begin = std::clock();
    REQUIRE(succeeded(megalith::verify::verifyPlan(*module)));
    least = std::min(least, double(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  std::printf("%-12s %7lld tiles  %.4f s\n", what, static_cast<long long>(tiles), least);
  return least;
}

void checkGrowth(const char *what, std::string (*make)(int64_t)) {
  double before = 0;
  for (int64_t tiles : {1000, 10000, 100000}) {
    const double seconds = secondsOf(make(tiles), tiles, what);
    INFO(what << ", " << tiles << " tiles: " << seconds << " s, a tenth of them: " << before);
    if (tiles == 100000) {
      CHECK(seconds < 2);
      // n log n, twice over for caches and noise.
      CHECK(seconds < before * 10 * std::log(1e5) / std::log(1e4) * 2);
    }
    before = seconds;
  }
}

} // namespace

TEST_CASE("a stage of long loops") {
  checkGrowth("long loops", longLoops);
}

TEST_CASE("many stages") {
  checkGrowth("many stages", manyStages);
}

TEST_CASE("SMs that share nothing") {
  checkGrowth("unlike SMs", unlikeSms);
}
