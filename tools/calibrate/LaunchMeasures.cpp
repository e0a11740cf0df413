//===- LaunchMeasures.cpp - Launches, the clock, cold code ----------------===//

#include "tools/calibrate/Measures.h"

#include "llvm/Support/FormatVariadic.h"

using llvm::Expected;
using llvm::formatv;
using llvm::StringRef;

namespace megalith::calibrate {

constexpr uint32_t kSms = 128;
constexpr int kLaunches = 24;

/// us from the first CTA's begin to the last one's end, a launch.
static double perLaunch(const std::vector<Sample> &samples) {
  return span(samples) / kLaunches / 1000;
}

static Expected<std::vector<Sample>> chain(Session &session, uint32_t hops, uint32_t pieces,
                                           bool programmatic, bool graph) {
  return session.run("calibrate_boundary",
                     {.sms = kSms, .rounds = hops, .piece = kPieceBytes, .burst = pieces},
                     {.launches = kLaunches, .programmatic = programmatic, .graph = graph});
}

/// What a boundary adds to a launch of `pieces` pieces an SM; then, from a CTA's begin, the first
/// piece landed, and the words of the launch before there; and from the SM's last CTA's end.
static Expected<std::vector<double>> boundary(Session &session, uint32_t pieces, bool programmatic,
                                              bool graph) {
  constexpr uint32_t kMoreHops = 9;
  auto one = chain(session, 1, pieces, programmatic, graph);
  if (!one)
    return one.takeError();
  auto more = chain(session, 1 + kMoreHops, pieces, programmatic, graph);
  if (!more)
    return more.takeError();
  const double hop = (perLaunch(*more) - perLaunch(*one)) / kMoreHops;
  double gap = 0, setUp = 0, landed = 0, words = 0, over = 0;
  for (size_t i = kSms; i < one->size(); ++i) {
    const Sample &now = (*one)[i], &before = (*one)[i - kSms];
    uint64_t lastEnd = 0;
    for (size_t sm = 0; sm < kSms; ++sm)
      lastEnd = std::max<uint64_t>(lastEnd, (*one)[i / kSms * kSms - kSms + sm].end);
    over += double(int64_t(now.sum[3] - lastEnd));
    gap += double(int64_t(now.begin - before.end));
    setUp += double(now.sum[2] - now.begin);
    landed += double(now.sum[0] - now.begin);
    words += double(now.sum[1] - now.begin);
  }
  const auto count = double(one->size() - kSms);
  return std::vector<double>{perLaunch(*one) - hop,
                             setUp / count,
                             landed / count,
                             words / count,
                             std::max(gap / count, 0.0),
                             std::max(over / count, 0.0)};
}

static void addBoundaries(Measures &measures) {
  const struct {
    const char *name, *how;
    bool programmatic, graph;
  } ways[] = {
      {"plain", "a CUDA graph of plain launches", false, true},
      {"programmatic", "programmatic launches in a CUDA graph", true, true},
      {"stream", "programmatic launches in a stream", true, false},
  };
  for (const auto &way : ways)
    for (uint32_t pieces : {1u, 8u}) {
      const std::string name = formatv("boundary.{0}.pieces{1}", way.name, pieces);
      measures.push_back(
          {{{name, "us"},
            {name + ".set_up", "ns"},
            {name + ".first_piece", "ns"},
            {name + ".first_words", "ns"},
            {name + ".gap", "ns"},
            {name + ".wait", "ns"}},
           formatv(
               "{0}, each of {1} pieces of 16 KB an SM and one exchange of 4 KB with the launch "
               "before: a launch less a hop; from a CTA's begin to its first piece, to its "
               "first words; from the end of an SM's CTA to the begin of its next; from the "
               "last CTA's end to the end of griddepcontrol.wait in a warp that does nothing else",
               way.how, pieces),
           [=](Session &session) {
             return boundary(session, pieces, way.programmatic, way.graph);
           }});
    }
}

enum class Load { None, Stream, All };

static Expected<std::vector<double>> clockRate(Session &session, Load load) {
  Job job = {
      .sms = uint32_t(session.device().sms), .piece = kPieceBytes, .burst = 1, .pause = 20'000'000};
  if (load != Load::None) {
    job.window = 4;
    job.variant = 1;
  }
  if (load == Load::Stream)
    job.stride = 480; // a piece's time at full bandwidth
  auto samples = session.run("calibrate_clocks", job);
  if (!samples)
    return samples.takeError();
  return std::vector<double>{
      meanOf(*samples, [](const Sample &s) { return double(s.sum[0]) / double(s.sum[1]) * 1000; })};
}

/// ns that a KB of code costs more on its first pass than on its second.
static Expected<std::vector<double>> coldCode(Session &session, uint32_t sms) {
  const Job job = {.sms = sms, .rounds = 3};
  // Other code through the instruction caches, other data through L2.
  if (auto other = session.run("calibrate_code_256", job); !other)
    return other.takeError();
  const Job read = {.sms = kSms, .rounds = 64, .window = 4, .piece = kPieceBytes, .burst = 1};
  if (auto other = session.run("calibrate_read", read); !other)
    return other.takeError();
  auto samples = session.run("calibrate_code_64", job);
  if (!samples)
    return samples.takeError();
  const double first = meanOf(*samples, [](const Sample &s) { return s.sum[0]; });
  const double second = meanOf(*samples, [](const Sample &s) { return s.sum[1]; });
  return std::vector<double>{std::max(first - second, 0.0) / 64, second / 64};
}

void addLaunches(Measures &measures) {
  addBoundaries(measures);
  const struct {
    const char *name, *how;
    Load load;
  } clocks[] = {
      {"clock.idle", "SM clock, all SMs waiting for 20 ms", Load::None},
      {"clock.streaming",
       "SM clock, all SMs streaming and multiplying a piece of 16 KB every 480 ns for 20 ms",
       Load::Stream},
      {"clock.loaded", "SM clock, all SMs streaming and multiplying for 20 ms", Load::All},
  };
  for (const auto &clock : clocks)
    measures.push_back({{{clock.name, "MHz"}},
                        clock.how,
                        [=](Session &session) { return clockRate(session, clock.load); },
                        5});
  for (uint32_t sms : {1u, kSms}) {
    const std::string name = sms == 1 ? "code.one_sm" : "code.all_sms";
    measures.push_back(
        {{{name + ".cold", "ns/KB"}, {name + ".warm", "ns/KB"}},
         formatv(
             "one warp on {0} SMs through 64 KB of code without jumps, after other code and "
             "data went through all caches: what the first pass costs more than the second, and "
             "the second",
             sms),
         [=](Session &session) { return coldCode(session, sms); }});
  }
}

} // namespace megalith::calibrate
