// Two SMs by themselves: the way of a word from one to the other, and what it costs if the sector
// it lies in is not in L2 when it is stored; and all SMs adding to one address.
#pragma once

#include "codegen/device/exchange.cuh"
#include "tests/gpu/calibrate/stream.cuh"

namespace megalith::calibrate {

struct PairConfig {
  static constexpr int kSms = 2, kRows = 1, kEdges = 1;
};

/// SMs 0 and 1, one warp each, take turns: job.warmup + job.rounds rounds. The payload of round r
/// lies job.stride bytes behind that of round r - 1, from byte 1024 of the words on; the flags do
/// not move. Every word starts as 0.
/// Sample of SM 0: times of all rounds. Of SM 1: [0] sum of ns from the flag seen to the payload
/// complete.
MEGALITH_DEVICE void pair(const LaunchArgs &args) {
  Cta<PairConfig> cta(args);
  cta.settle();
  if (cta.warp != 0 || cta.sm > 1)
    return;
  const Job job = job_of(cta);
  auto *words = static_cast<uint32_t *>(args.buffer[kWords]);
  uint32_t *there = words, *back = words + 64;
  uint64_t begin = 0, read = 0;
  for (uint32_t round = 0; round < job.warmup + job.rounds; ++round) {
    if (round == job.warmup) {
      begin = platform::now_ns();
      read = 0;
    }
    uint32_t *payload = words + 256 + round * (job.stride / 4);
    if (cta.sm == 0) {
      const int stored = job.variant == kFlag ? 0 : job.variant == kWord ? 1 : 8;
      if (cta.lane < stored)
        platform::st_relaxed<platform::Scope::gpu, uint32_t>(payload + cta.lane, round + 1);
      platform::warp_sync();
      if (cta.lane == 0)
        platform::st_relaxed<platform::Scope::gpu, uint32_t>(there, round + 1);
      await_word<98, platform::Scope::gpu>(cta, back, round + 1);
      platform::warp_sync();
    } else {
      await_word<98, platform::Scope::gpu>(cta, there, round + 1);
      platform::warp_sync();
      const uint64_t seen = platform::now_ns();
      if (job.variant != kFlag)
        await_word<98, platform::Scope::gpu>(cta, payload, round + 1);
      platform::warp_sync();
      read += platform::now_ns() - seen;
      if (cta.lane == 0)
        platform::st_relaxed<platform::Scope::gpu, uint32_t>(back, round + 1);
    }
  }
  report(cta, &sample_of(cta)->begin, begin);
  report(cta, &sample_of(cta)->end, platform::now_ns());
  report(cta, &sample_of(cta)->sum[0], read);
}

/// One lane an SM adds 1 to the same word job.rounds times and waits until all SMs' are there.
/// Sample: times of that.
MEGALITH_DEVICE void reds(const LaunchArgs &args) {
  Cta<PairConfig> cta(args);
  cta.settle();
  if (cta.warp != 0)
    return;
  const Job job = job_of(cta);
  meet(cta, job, 0, 0);
  auto *word = static_cast<uint32_t *>(args.buffer[kCounters]) + kCounterStride;
  const uint64_t begin = platform::now_ns();
  if (cta.lane == 0)
    for (uint32_t i = 0; i < job.rounds; ++i)
      platform::red_add_relaxed<platform::Scope::gpu>(word, 1);
  platform::warp_sync();
  await_word<98, platform::Scope::gpu>(cta, word, job.rounds * job.sms);
  report(cta, &sample_of(cta)->begin, begin);
  report(cta, &sample_of(cta)->end, platform::now_ns());
}

} // namespace megalith::calibrate
