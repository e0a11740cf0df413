//===- UnitMeasures.cpp - What one SM, or two, do by themselves -----------===//

#include "tools/calibrate/Measures.h"

#include "llvm/Support/FormatVariadic.h"

using llvm::Expected;
using llvm::formatv;
using llvm::StringRef;

namespace megalith::calibrate {

/// ns of a round on SM 0, divided by `parts`.
static Expected<std::vector<double>> roundTime(Session &session, StringRef kernel, Job job,
                                               double parts) {
  auto samples = session.run(kernel, job);
  if (!samples)
    return samples.takeError();
  const Sample &sample = samples->front();
  return std::vector<double>{double(sample.end - sample.begin) / job.rounds / parts};
}

static void addUnit(Measures &measures, const std::string &name, std::string kernel,
                    uint32_t variant, double parts, std::string how) {
  const Job job = {.sms = 1, .rounds = 4000, .warmup = 100, .variant = variant};
  measures.push_back({{{name, "ns"}}, std::move(how), [=](Session &session) {
                        return roundTime(session, kernel, job, parts);
                      }});
}

static void addDrain(Measures &measures, StringRef name, StringRef kernel, double bytes,
                     const std::string &what) {
  for (uint32_t variant : {0u, 1u}) {
    const Job job = {.sms = 1, .rounds = 4000, .warmup = 100, .variant = variant};
    measures.push_back({{{formatv("drain.{0}{1}", name, variant ? ".bare" : ""), "GB/s"}},
                        formatv("one SM's consumers multiply pieces of {0} that lie in the ring{1}",
                                what, variant ? ", no edges" : ", waiting and releasing"),
                        [=, kernel = ("calibrate_drain_" + kernel).str()](
                            Session &session) -> Expected<std::vector<double>> {
                          auto time = roundTime(session, kernel, job, 1);
                          if (!time)
                            return time.takeError();
                          return std::vector<double>{bytes / time->front()};
                        }});
  }
}

/// ns from SM 1's seeing the flag to its having the payload, and half a round trip.
static Expected<std::vector<double>> pairTimes(Session &session, uint32_t variant,
                                               uint32_t stride) {
  const Job job = {
      .sms = 2, .rounds = 500, .warmup = 20, .stride = stride, .variant = variant, .zeros = 1};
  auto samples = session.run("calibrate_pair", job);
  if (!samples)
    return samples.takeError();
  const Sample &first = samples->front(), &second = samples->back();
  return std::vector<double>{double(first.end - first.begin) / job.rounds / 2,
                             double(second.sum[0]) / job.rounds};
}

static void addPairs(Measures &measures) {
  measures.push_back(
      {{{"word.one_way", "ns"}},
       "half a round trip of one relaxed word between two idle SMs, each polling with "
       "one warp",
       [](Session &session) -> Expected<std::vector<double>> {
         auto times = pairTimes(session, kFlag, 0);
         if (!times)
           return times.takeError();
         return std::vector<double>{times->front()};
       }});
  const struct {
    const char *name, *how;
    uint32_t variant, stride;
  } cases[] = {
      {"word.resident", "a 4-byte word whose sector is in L2", kWord, 0},
      {"word.evicted", "a 4-byte word whose sector is not in L2 when it is stored", kWord, 4096},
      {"sector.resident", "the word of a whole sector (32 B, one store of eight lanes) in L2",
       kWholeSector, 0},
      {"sector.evicted", "the word of a whole sector that is not in L2 when it is stored",
       kWholeSector, 4096},
  };
  for (const auto &c : cases)
    measures.push_back(
        {{{std::string(c.name) + ".read", "ns"}},
         formatv("from a flag, stored right after, seen to the payload read: {0}", c.how),
         [=](Session &session) -> Expected<std::vector<double>> {
           auto times = pairTimes(session, c.variant, c.stride);
           if (!times)
             return times.takeError();
           return std::vector<double>{times->back()};
         }});
  measures.push_back({{{"red.one_address", "1/us"}},
                      "relaxed additions of 1 a microsecond, 128 SMs, all to one word",
                      [](Session &session) -> Expected<std::vector<double>> {
                        const Job job = {.sms = 128, .rounds = 2000};
                        auto samples = session.run("calibrate_reds", job);
                        if (!samples)
                          return samples.takeError();
                        return std::vector<double>{double(job.sms) * job.rounds /
                                                   (span(*samples) / 1000)};
                      }});
}

void addUnits(Measures &measures) {
  addPairs(measures);
  addUnit(measures, "mbarrier.signal_to_wait", "calibrate_signals", 0, 2,
          "half a round trip of signals between two warps of an SM");
  addUnit(measures, "barrier.consumers", "calibrate_signals", 1, 1,
          "the named barrier of eight warps");
  addUnit(measures, "time.read", "calibrate_signals", 2, 1, "a read of the GPU's clock in ns");
  addDrain(measures, "gemv.16k", "16k", 16384, "16 KB (8 strips, K 2048)");
  addDrain(measures, "gemv.12k", "12k", 12288, "12 KB (6 strips, K 2048)");
  addDrain(measures, "gemv.8x768", "8x768", 12288, "12 KB (8 strips, K 768)");
  addDrain(measures, "nvfp4", "nvfp4", 18432, "18 KB (an NVFP4 tile, half of K 4096)");
  for (int width : {2048, 4096})
    addUnit(measures, formatv("norm.{0}", width), formatv("calibrate_norm_{0}", width).str(), 0, 1,
            formatv("RMS norm of a row of {0} by eight warps", width));
  for (int experts : {64, 128, 256, 512})
    addUnit(measures, formatv("topk.{0}", experts), formatv("calibrate_topk_{0}", experts).str(), 0,
            1, formatv("top 8 of {0} logits, weights and table, one row", experts));
}

} // namespace megalith::calibrate
