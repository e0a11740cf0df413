// Two GPUs that store into each other's memory, a launch of the same kernel on each: the way of a
// word, and hops in which every SM of both needs what all SMs of both publish.
//
// Buffers: words = the replica at hand, 5 = the other GPU's. job.walk: 0 on one GPU, 1 on the
// other, whose share comes second. Words are b32 of system scope on both sides, as those of ranks
// (ranks.cuh).
#pragma once

#include "codegen/device/exchange.cuh"
#include "tests/gpu/calibrate/stream.cuh"

namespace megalith::calibrate {

struct PeerConfig {
  static constexpr int kSms = 132, kRows = 1, kEdges = 1;
};
inline constexpr int kPeerWords = 5; ///< buffer slot

/// SM 0 of each, one warp: a word there, a word back, job.warmup + job.rounds times. Words start
/// empty. Sample: times of the timed rounds.
MEGALITH_DEVICE void peer_pair(const LaunchArgs &args) {
  Cta<PeerConfig> cta(args);
  cta.settle();
  if (cta.warp != 0 || cta.sm != 0)
    return;
  const Job job = job_of(cta);
  auto *own = static_cast<uint32_t *>(args.buffer[kWords]);
  auto *peer = static_cast<uint32_t *>(args.buffer[kPeerWords]);
  uint64_t begin = 0;
  for (uint32_t round = 0; round < job.warmup + job.rounds; ++round) {
    if (round == job.warmup)
      begin = platform::now_ns();
    if (job.walk)
      await_word<97, platform::Scope::sys>(cta, own, round);
    platform::warp_sync();
    if (cta.lane == 0)
      platform::st_relaxed<platform::Scope::sys, uint32_t>(peer, round);
    if (!job.walk)
      await_word<97, platform::Scope::sys>(cta, own, round);
    platform::warp_sync();
  }
  report(cta, &sample_of(cta)->begin, begin);
  report(cta, &sample_of(cta)->end, platform::now_ns());
}

/// Hops, job.warmup + job.rounds: every SM stores its share of job.stride bytes to both replicas
/// (job.variant 1: a share twice as large to its own only), and goes on when its consumer warps, an
/// eighth each, have seen all of them in its own. Each hop has words of its own, which start empty.
/// Sample: times of the timed hops.
MEGALITH_DEVICE void peer_hops(const LaunchArgs &args) {
  Cta<PeerConfig> cta(args);
  cta.settle();
  if (cta.role != Role::consumer)
    return;
  const Job job = job_of(cta);
  auto *own = static_cast<uint32_t *>(args.buffer[kWords]);
  auto *peer = static_cast<uint32_t *>(args.buffer[kPeerWords]);
  const bool alone = job.variant == 1;
  const uint32_t width = job.stride / 4, half = alone ? width : width / 2;
  const uint32_t first = alone || !job.walk ? 0 : half;
  // Whole sectors: eight words at a time.
  const uint32_t units = half / 8, mine = (units + job.sms - 1) / job.sms;
  const uint32_t from = mine * cta.sm, past = from + mine < units ? from + mine : units;
  uint32_t wrong = 0;
  uint64_t begin = 0;
  for (uint32_t hop = 0; hop < job.warmup + job.rounds; ++hop) {
    if (hop == job.warmup)
      begin = platform::now_ns();
    if (cta.role_warp == 0)
      for (uint32_t i = 8 * from + cta.lane; i < 8 * past; i += 32) {
        const uint32_t at = hop * width + first + i, value = hop_word(hop, first + i);
        platform::st_relaxed<platform::Scope::sys, uint32_t>(own + at, value);
        if (!alone)
          platform::st_relaxed<platform::Scope::sys, uint32_t>(peer + at, value);
      }
    const uint32_t chunk = width / kConsumerWarps;
    const uint32_t *words = own + hop * width + chunk * cta.role_warp;
    Patience patience;
    for (uint32_t i = 4 * cta.lane; i < chunk; i += 128) {
      u32x4 seen;
      while (true) {
        seen = platform::ld_relaxed_v4<platform::Scope::sys>(words + i);
        if (seen.x != kEmptyWord && seen.y != kEmptyWord && seen.z != kEmptyWord &&
            seen.w != kEmptyWord)
          break;
        if (patience.lost(cta))
          platform::fail(cta.args.fault, 96, hop, 0, cta.n);
        platform::poll_pause(words + i);
      }
      wrong += seen.x != hop_word(hop, chunk * cta.role_warp + i);
    }
    consumer_sync();
  }
  report_wrong(cta, wrong);
  if (cta.role_warp == 0) {
    report(cta, &sample_of(cta)->begin, begin);
    report(cta, &sample_of(cta)->end, platform::now_ns());
  }
}

} // namespace megalith::calibrate
