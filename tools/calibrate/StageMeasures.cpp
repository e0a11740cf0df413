//===- StageMeasures.cpp - Hops of routing and merging --------------------===//

#include "tools/calibrate/Measures.h"

#include "llvm/Support/FormatVariadic.h"

using llvm::Expected;
using llvm::formatv;

namespace megalith::calibrate {

constexpr uint32_t kSms = 128;

/// us a hop, and ns of its parts.
static Expected<std::vector<double>> route(Session &session, const char *kernel, uint32_t pieces) {
  const Job job = {.sms = kSms, .rounds = 200, .warmup = 10, .piece = kPieceBytes, .burst = pieces};
  auto samples = session.run(kernel, job);
  if (!samples)
    return samples.takeError();
  const auto between = [&](int from, int to) {
    // Sums of times: only their difference is small.
    double sum = 0;
    for (const Sample &s : *samples)
      sum += double(int64_t(s.sum[to] - s.sum[from]));
    return std::max(sum / kSms / job.rounds, 0.0);
  };
  return std::vector<double>{meanOf(*samples, [](const Sample &s) { return s.end - s.begin; }) /
                                 job.rounds / 1000,
                             between(0, 1), between(1, 2), between(2, 3)};
}

static Expected<std::vector<double>> gather(Session &session, const char *kernel) {
  const Job job = {.sms = kSms, .rounds = 200, .warmup = 10};
  auto samples = session.run(kernel, job);
  if (!samples)
    return samples.takeError();
  return std::vector<double>{meanOf(*samples, [](const Sample &s) { return s.end - s.begin; }) /
                             job.rounds / 1000};
}

/// ns of a gather of `rows` rows that are there.
static void addSweep(Measures &measures, uint32_t rows, uint32_t window) {
  const Job job = {.sms = kSms,
                   .rounds = 400,
                   .warmup = 20,
                   .window = window,
                   .piece = window ? kPieceBytes : 0,
                   .burst = rows,
                   .zeros = 1};
  measures.push_back(
      {{{formatv("sweep.rows{0}.window{1}", rows, window), "ns"}},
       formatv("one warp of each of 128 SMs gathers {0} scattered rows of 1.5 KB of words that are "
               "there, gather after gather; {1} pieces of 16 KB always in flight an SM",
               rows, window),
       [=](Session &session) -> Expected<std::vector<double>> {
         auto samples = session.run("calibrate_sweep_1536", job);
         if (!samples)
           return samples.takeError();
         return std::vector<double>{
             meanOf(*samples, [](const Sample &s) { return s.end - s.begin; }) / job.rounds};
       }});
}

/// The same of `loads` epoch words a lane, in a row.
static void addEpochSweep(Measures &measures, uint32_t loads, uint32_t window) {
  const Job job = {.sms = kSms,
                   .rounds = 400,
                   .warmup = 20,
                   .window = window,
                   .piece = window ? kPieceBytes : 0,
                   .burst = loads,
                   .variant = 1,
                   .zeros = 1};
  measures.push_back(
      {{{formatv("sweep.epochs{0}.window{1}", loads, window), "ns"}},
       formatv("one warp of each of 128 SMs gathers {0} epoch words a lane that are there, in a "
               "row; {1} pieces of 16 KB always in flight an SM",
               loads, window),
       [=](Session &session) -> Expected<std::vector<double>> {
         auto samples = session.run("calibrate_sweep_1536", job);
         if (!samples)
           return samples.takeError();
         return std::vector<double>{
             meanOf(*samples, [](const Sample &s) { return s.end - s.begin; }) / job.rounds};
       }});
}

/// us a hop that consumers poll for themselves, and ns of it that are not its words' way: those of
/// the consumers, or of who stores, and the warps' meeting.
static void addOwnHop(Measures &measures, const std::string &name, const std::string &kernel,
                      int restIn, uint32_t pause, uint32_t window, std::string how) {
  const Job job = {.sms = kSms,
                   .rounds = 200,
                   .warmup = 10,
                   .window = window,
                   .piece = window ? kPieceBytes : 0,
                   .pause = pause};
  measures.push_back({{{name, "us"}, {name + ".rest", "ns"}},
                      std::move(how),
                      [=](Session &session) -> Expected<std::vector<double>> {
                        auto samples = session.run(kernel, job);
                        if (!samples)
                          return samples.takeError();
                        double us = 0, rest = 0;
                        int storing = 0;
                        for (const Sample &s : *samples) {
                          const double ns = double(s.end - s.begin);
                          us += ns / kSms / job.rounds / 1000;
                          if (s.sum[restIn] == 0) // it stores nothing
                            continue;
                          rest += double(s.sum[restIn]) * ns /
                                  double(std::max<uint64_t>(s.sum[7], 1)) / job.rounds;
                          ++storing;
                        }
                        return std::vector<double>{us, rest / std::max(storing, 1)};
                      }});
}

void addStages(Measures &measures) {
  constexpr uint32_t kPause = 1000;
  for (uint32_t words : {3u, 12u})
    for (uint32_t window : {0u, 2u, 4u})
      addOwnHop(
          measures, formatv("merge.own.32x{0}.window{1}", words, window),
          formatv("calibrate_own_records_32x{0}", words), 5, 0, window,
          formatv("partial results of a KV head's 32 SMs, {0} epoch words from each, stored and "
                  "gathered by the consumers, who then meet; {1} pieces of 16 KB always in "
                  "flight an SM; ns of it for storing",
                  words, window));
  for (uint32_t window : {0u, 2u, 4u})
    addOwnHop(
        measures, formatv("heads.own.window{0}", window), "calibrate_own_heads", 6, kPause, window,
        formatv("raw projections of one row, 10 KB; each consumer warp polls a query head, "
                "one a key and a value besides, and all meet, {1} ns before more are stored; {0} "
                "pieces of 16 KB always in flight an SM; ns of it to all stored",
                window, kPause));
  for (uint32_t rows : {1u, 2u, 4u, 8u})
    addOwnHop(measures, formatv("logits.own.rows{0}", rows), formatv("calibrate_own_rows{0}", rows),
              6, kPause, 0,
              formatv("128 logits of {0} rows, all to all, a row polled by a consumer warp, which "
                      "then meet, {1} ns before more are stored; ns of it to all stored",
                      rows, kPause));
  for (uint32_t loads : {4u, 12u, 44u})
    for (uint32_t window : {0u, 2u, 4u})
      addEpochSweep(measures, loads, window);
  for (uint32_t rows : {1u, 2u, 4u, 8u})
    for (uint32_t window : {0u, 2u, 4u})
      addSweep(measures, rows, window);
  const struct {
    const char *name, *kernel, *how;
    uint32_t pieces;
  } routes[] = {
      {"route.pieces1", "calibrate_route", "", 1},
      {"route.pieces4", "calibrate_route", "", 4},
      {"route.tight.pieces1", "calibrate_route_tight", ", polled tightly", 1},
  };
  for (const auto &r : routes) {
    const std::string name = r.name;
    measures.push_back(
        {{{name, "us"},
          {name + ".logits", "ns"},
          {name + ".topk", "ns"},
          {name + ".first_piece", "ns"}},
         formatv("128 logits all to all{0}, top 8, table, {1} pieces of 16 KB of the first expert "
                 "an SM; then published to polled, polled to the producer knowing the expert, that "
                 "to its first piece",
                 r.how, r.pieces),
         [=](Session &session) { return route(session, r.kernel, r.pieces); }});
  }
  measures.push_back({{{"merge.32x11", "us"}},
                      "partial results of a KV head's 32 SMs: 5.6 KB of epoch words published and "
                      "5.6 KB gathered an SM",
                      [](Session &session) { return gather(session, "calibrate_gather_32x11"); }});
  measures.push_back({{{"merge.32x6", "us"}}, "the same with 3 KB", [](Session &session) {
                        return gather(session, "calibrate_gather_32x6");
                      }});
}

} // namespace megalith::calibrate
