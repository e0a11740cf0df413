//===- HopMeasures.cpp - Exchanges between all SMs ------------------------===//

#include "tools/calibrate/Measures.h"

#include "llvm/Support/FormatVariadic.h"

using llvm::Expected;
using llvm::formatv;
using llvm::StringRef;

namespace megalith::calibrate {

constexpr uint32_t kSms = 128;

/// us a hop, and GB/s of the stream beside it; of emitted ones then the rest: ns from words there
/// to chunk sums with the epilogue, and from these to words stored; and how much earlier than the
/// epilogue has all sums a warp has handed its own on.
static Expected<std::vector<double>> hop(Session &session, StringRef kernel, Job job) {
  auto samples = session.run(kernel, job);
  if (!samples)
    return samples.takeError();
  const double us =
      meanOf(*samples, [](const Sample &s) { return s.end - s.begin; }) / job.rounds / 1000;
  std::vector<double> values = {us};
  if (job.burst != 0) {
    values.push_back(double(kSms) * job.burst * job.piece / (us * 1000));
  } else if (job.window != 0) {
    double rate = 0;
    for (const Sample &s : *samples)
      rate += double(s.pieces) * job.piece / double(std::max<uint64_t>(s.sum[0], 1));
    values.push_back(rate);
  }
  if (kernel.contains("emitted")) {
    auto nsOf = [&](auto clocks) {
      return meanOf(*samples,
                    [&](const Sample &s) {
                      const double nsOfClock =
                          double(s.end - s.begin) / double(std::max<uint64_t>(s.sum[7], 1));
                      return clocks(s) * nsOfClock;
                    }) /
             job.rounds;
    };
    values.push_back(nsOf([](const Sample &s) { return double(s.sum[5] + s.sum[6]); }));
    values.push_back(nsOf([](const Sample &s) {
      return double(int32_t(8 * uint32_t(s.sum[2]) - uint32_t(s.sum[4]))) / 8;
    }));
  }
  return values;
}

static void addHop(Measures &measures, StringRef size, StringRef polling, uint32_t window,
                   uint32_t piece, uint32_t pause = 0) {
  const std::string kernel = formatv("calibrate_hop_{0}_{1}", size, polling);
  const Job job = {.sms = kSms,
                   .rounds = 100,
                   .warmup = 10,
                   .window = window,
                   .piece = piece,
                   .burst = 0,
                   .pause = pause};
  std::string name = formatv("hop.{0}.{1}.window{2}", size, polling, window);
  if (pause)
    name += formatv(".pause{0}", pause).str();
  if (piece != kPieceBytes)
    name += formatv(".piece{0}k", piece / 1024).str();
  Measure measure = {{{name, "us"}},
                     formatv("all to all, {0} by {1}, last product to next product; {2} pieces of "
                             "{3} KB always in flight an SM",
                             size, polling, window, piece / 1024),
                     [=](Session &session) { return hop(session, kernel, job); }};
  if (window)
    measure.outputs.push_back({name + ".stream", "GB/s"});
  if (polling.starts_with("emitted")) {
    measure.outputs.push_back({name + ".rest", "ns"});
    measure.outputs.push_back({name + ".early", "ns"});
    measure.how += "; ns of it from words there to their product's chunk sums stored, and from "
                   "these with the epilogue to words stored; ns from a warp's chunk sums stored to "
                   "all of them with the epilogue";
  }
  measures.push_back(std::move(measure));
}

static void addChain(Measures &measures, StringRef size, StringRef polling, uint32_t pieces,
                     uint32_t window, uint32_t ahead) {
  const std::string kernel = formatv("calibrate_hop_{0}_{1}", size, polling);
  const Job job = {.sms = kSms,
                   .rounds = 100,
                   .warmup = 10,
                   .window = window,
                   .piece = kPieceBytes,
                   .burst = pieces,
                   .ahead = ahead};
  std::string name = formatv("chain.{0}.{1}.pieces{2}.window{3}", size, polling, pieces, window);
  if (ahead)
    name += formatv(".ahead{0}", ahead).str();
  measures.push_back({{{name, "us"}, {name + ".stream", "GB/s"}},
                      formatv("a chain of linear layers of {0} pieces of 16 KB an SM, exchange of "
                              "{1} by {2} between; {3} pieces in flight, L2 prefetch {4} ahead",
                              pieces, size, polling, window, ahead),
                      [=](Session &session) { return hop(session, kernel, job); }});
}

/// ns of the parts of a hop: words there -> chunks summed up -> published -> polled -> with the
/// consumers.
static Expected<std::vector<double>> parts(Session &session, StringRef kernel, Job job) {
  job.variant = 1;
  auto samples = session.run(kernel, job);
  if (!samples)
    return samples.takeError();
  const auto between = [&](int from, int to) {
    double sum = 0; // of times: only their difference is small
    for (const Sample &s : *samples)
      sum += double(int64_t(s.sum[to] - s.sum[from]));
    return sum / kSms / job.rounds;
  };
  // From the consumer's taking of a hop's words to its next product's chunks: the taking of the
  // hop before, so a hop less the rest.
  const double hop = meanOf(*samples, [](const Sample &s) { return s.end - s.begin; }) / job.rounds;
  return std::vector<double>{hop - between(2, 1), between(2, 3), between(3, 4), between(4, 1)};
}

static void addParts(Measures &measures, StringRef size, uint32_t window) {
  const std::string kernel = formatv("calibrate_hop_{0}_one", size);
  const Job job = {
      .sms = kSms, .rounds = 100, .warmup = 10, .window = window, .piece = kPieceBytes};
  const std::string name = formatv("hop.parts.{0}.window{1}", size, window);
  measures.push_back(
      {{{name + ".product", "ns"},
        {name + ".publish", "ns"},
        {name + ".visible", "ns"},
        {name + ".handover", "ns"}},
       formatv("parts of hop.{0}.one.window{1}, by stamps (which cost some "
               "themselves): words to chunk sums with the epilogue, those to stored, "
               "stored to polled, polled to the consumers",
               size, window),
       [=](Session &session) { return parts(session, kernel, job); }});
}

void addHops(Measures &measures) {
  for (StringRef size : {"4k", "16k"})
    for (uint32_t window : {0u, 2u, 4u})
      addParts(measures, size, window);
  for (StringRef size : {"4k", "8k", "16k"})
    for (StringRef polling : {"one", "hint", "two", "chunks", "chunks_hint", "tight", "tight_hint"})
      for (uint32_t window : {0u, 2u, 3u, 4u, 8u})
        addHop(measures, size, polling, window, kPieceBytes);
  for (StringRef size : {"4k", "8k"})
    for (StringRef polling : {"tight_one", "tight_one_hint"})
      for (uint32_t window : {0u, 2u, 3u, 4u})
        addHop(measures, size, polling, window, kPieceBytes);
  // As emitted, by rows: what cost models take.
  for (StringRef size : {"4k", "8k"})
    for (StringRef polling : {"emitted_rows1", "emitted_rows2", "emitted_rows4", "emitted_rows8"})
      for (uint32_t window : {0u, 2u, 4u})
        addHop(measures, size, polling, window, kPieceBytes);
  for (uint32_t pause : {100u, 300u})
    for (uint32_t window : {0u, 2u, 3u})
      addHop(measures, "4k", "tight", window, kPieceBytes, pause);
  for (uint32_t window : {2u, 3u, 4u})
    addHop(measures, "4k", "one", window, 12288);
  for (StringRef polling : {"tight_x4", "tight_x16"})
    for (uint32_t window : {0u, 2u, 3u})
      addHop(measures, "4k", polling, window, kPieceBytes);
  for (StringRef polling : {"one", "chunks_hint", "tight", "tight_hint", "tight_one_hint"})
    for (uint32_t pieces : {2u, 4u, 8u, 16u})
      for (uint32_t window : {2u, 3u, 4u, 10u})
        addChain(measures, "4k", polling, pieces, window, 0);
  for (uint32_t pieces : {4u, 8u})
    for (uint32_t window : {2u, 3u})
      for (uint32_t ahead : {12u, 16u, 24u})
        addChain(measures, "4k", "tight_hint", pieces, window, ahead);
}

} // namespace megalith::calibrate
