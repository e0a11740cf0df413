//===- MemoryMeasures.cpp - Rates and latencies of memory -----------------===//

#include "tools/calibrate/Measures.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using llvm::Expected;
using llvm::formatv;

namespace megalith::calibrate {

double span(const std::vector<Sample> &samples) {
  uint64_t begin = UINT64_MAX, end = 0;
  for (const Sample &sample : samples) {
    begin = std::min(begin, sample.begin);
    end = std::max(end, sample.end);
  }
  return double(end - begin);
}

/// GB/s of all SMs reading `bytesPerSm` each.
static Expected<std::vector<double>> readRate(Session &session, Job job, int64_t bytesPerSm) {
  job.burst = 1;
  job.unseen = 15;
  job.rounds = uint32_t(bytesPerSm / job.piece);
  auto samples = session.run("calibrate_read", job);
  if (!samples)
    return samples.takeError();
  return std::vector<double>{double(job.sms) * job.rounds * job.piece / span(*samples)};
}

static void addRead(Measures &measures, uint32_t sms, uint32_t window, uint32_t piece) {
  const Job job = {.sms = sms, .window = window, .piece = piece};
  measures.push_back(
      {{{formatv("hbm.read.sms{0}.piece{1}k.window{2}", sms, piece / 1024, window), "GB/s"}},
       formatv("{0} SMs read 8 GB, {1} pieces of {2} KB in flight an SM", sms, window,
               piece / 1024),
       [=](Session &session) { return readRate(session, job, (int64_t{8} << 30) / sms); },
       3});
}

/// How far apart SMs are that read as many pieces each, in ns: the mean of all, the standard
/// deviation between SMs, that of what is the same in the next launch, and how long after the mean
/// the last is done.
static Expected<std::vector<double>> spreadOfRead(Session &session, Job job) {
  std::vector<double> times[2];
  double mean = 0, late = 0;
  for (std::vector<double> &own : times) {
    auto samples = session.run("calibrate_read", job);
    if (!samples)
      return samples.takeError();
    for (const Sample &s : *samples)
      own.push_back(double(s.end - s.begin));
    const double ownMean = std::accumulate(own.begin(), own.end(), 0.0) / double(own.size());
    for (double &time : own)
      time -= ownMean;
    mean += ownMean / 2;
    late += *std::max_element(own.begin(), own.end()) / 2;
  }
  auto product = [&](const std::vector<double> &a, const std::vector<double> &b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0) / double(a.size());
  };
  return std::vector<double>{
      mean, std::sqrt((product(times[0], times[0]) + product(times[1], times[1])) / 2),
      std::sqrt(std::max(product(times[0], times[1]), 0.0)), late};
}

static void addSpread(Measures &measures, uint32_t window, uint32_t pieces, uint32_t piece) {
  const Job job = {.sms = 128,
                   .rounds = pieces / 4,
                   .window = window,
                   .piece = piece,
                   .burst = 4,
                   .walk = kExperts,
                   .unseen = 15};
  const std::string name =
      formatv("hbm.spread.piece{0}k.window{1}.pieces{2}", piece / 1024, window, pieces);
  measures.push_back(
      {{{name + ".mean", "ns"},
        {name + ".sd", "ns"},
        {name + ".same", "ns"},
        {name + ".late", "ns"}},
       formatv("128 SMs read {0} pieces of {1} KB each, every four from a new place, {2} in flight "
               "an SM: mean time; standard deviation between SMs; of it what is the same in two "
               "launches; how long after the mean the last is done",
               pieces, piece / 1024, window),
       [=](Session &session) { return spreadOfRead(session, job); },
       15});
}

static void addL2(Measures &measures, uint32_t window) {
  constexpr uint32_t kSms = 128;
  const Job job = {.sms = kSms, .window = window, .piece = kPieceBytes, .pieces = 8 * kSms};
  measures.push_back({{{formatv("l2.read.window{0}", window), "GB/s"}},
                      formatv("{0} SMs read the same 16 MB again and again, {1} pieces of 16 KB in "
                              "flight an SM",
                              kSms, window),
                      [=](Session &session) { return readRate(session, job, 32 << 20); },
                      3});
}

/// ns from a known address to the first and to the last piece of a burst, and to all issued.
static Expected<std::vector<double>> burst(Session &session, Job job) {
  job.rounds = 200;
  job.warmup = 10;
  auto samples = session.run("calibrate_restart", job);
  if (!samples)
    return samples.takeError();
  std::vector<double> result;
  for (int i : {0, 1, 2})
    result.push_back(meanOf(*samples, [&](const Sample &s) { return s.sum[i]; }) / job.rounds);
  return result;
}

static void addRestart(Measures &measures, const std::string &name, Job job, std::string how) {
  measures.push_back({{{"restart." + name + ".first", "ns"},
                       {"restart." + name + ".all", "ns"},
                       {"restart." + name + ".issue", "ns"}},
                      std::move(how),
                      [=](Session &session) { return burst(session, job); }});
}

/// The same span of the data over and over: address translation is part of what memory costs.
static void addSpan(Measures &measures, uint32_t gigabytes) {
  const Job job = {.sms = 132, .window = 8, .piece = kPieceBytes, .pieces = gigabytes << 16};
  measures.push_back(
      {{{formatv("hbm.span{0}g", gigabytes), "GB/s"}},
       formatv("132 SMs read 16 GB within the same {0} GB in every run, 8 pieces of "
               "16 KB in flight an SM",
               gigabytes),
       [=](Session &session) { return readRate(session, job, (int64_t{16} << 30) / 132); },
       3});
}

void addMemory(Measures &measures) {
  for (uint32_t gigabytes : {1u, 2u, 4u})
    addSpan(measures, gigabytes);
  for (uint32_t sms : {128u, 132u})
    for (uint32_t window : {1u, 2u, 3u, 4u, 6u, 8u, 12u})
      addRead(measures, sms, window, kPieceBytes);
  for (uint32_t window : {2u, 3u, 4u, 6u, 8u, 12u})
    addRead(measures, 128, window, 12288);
  for (uint32_t piece : {16384u, 12288u})
    for (uint32_t window : {2u, 4u})
      for (uint32_t pieces : {8u, 32u, 128u, 512u})
        addSpread(measures, window, pieces, piece);
  for (uint32_t window : {1u, 2u, 4u, 8u, 12u})
    addL2(measures, window);

  const auto flight = [](uint32_t sms, uint32_t count, uint32_t piece, Walk walk) {
    return Job{.sms = sms, .piece = piece, .burst = count, .walk = walk};
  };
  for (uint32_t piece : {128u, 2048u, 12288u, 16384u}) {
    Job job = flight(1, 1, piece, kInTurn);
    addRestart(measures, formatv("alone.piece{0}", piece), job,
               formatv("one SM, one piece of {0} bytes after the other: address to landed", piece));
  }
  Job resident = flight(1, 1, kPieceBytes, kInTurn);
  resident.pieces = 64;
  addRestart(measures, "l2.piece16384", resident,
             "one SM, one piece of 16 KB after the other, all in L2: address to landed");
  for (uint32_t count : {1u, 2u, 3u, 4u, 8u, 12u}) {
    addRestart(measures, formatv("experts.burst{0}", count),
               flight(128, count, kPieceBytes, kExperts),
               formatv("128 SMs meet with an empty ring, then read {0} pieces of 16 KB each from a "
                       "new place: to the first landed, to all landed",
                       count));
  }
  for (uint32_t count : {1u, 4u}) {
    addRestart(measures, formatv("in_turn.burst{0}", count),
               flight(128, count, kPieceBytes, kInTurn),
               formatv("the same with {0} pieces that follow those of the round before", count));
    addRestart(measures, formatv("stray.burst{0}", count), flight(128, count, kPieceBytes, kStray),
               formatv("the same with {0} pieces, each from a new place", count));
  }
  for (uint32_t pause : {500u, 1000u, 2000u, 4000u, 8000u})
    for (uint32_t count : {4u, 12u}) {
      Job job = flight(128, count, kPieceBytes, kExperts);
      job.ahead = 1;
      job.pause = pause;
      addRestart(measures, formatv("prefetched.burst{0}.after{1}", count, pause), job,
                 formatv("as experts, but the {0} pieces are prefetched to L2 {1} ns before", count,
                         pause));
    }
}

} // namespace megalith::calibrate
