// Reading memory: rate by bytes in flight, and the time from a known address to the first byte.
#pragma once

#include "tests/gpu/calibrate/stream.cuh"

namespace megalith::calibrate {

struct MemoryConfig {
  static constexpr int kSms = 1, kRows = 1, kEdges = 2;
};
inline constexpr int kMemorySlots = 12;
struct memory_put : MbarrierEdge<0, kMemorySlots * kPieceBytes, kMemorySlots, 1> {
  static constexpr char kName[] = "memory_put";
};
struct memory_got : MbarrierEdge<1, kMemorySlots * kPieceBytes, kMemorySlots, 1> {
  static constexpr char kName[] = "memory_got";
};
using MemoryRing = Ring<0, kMemorySlots, kPieceBytes>;
inline constexpr uint32_t kMemorySmem = kMemorySlots * (kPieceBytes + 8);

/// Writes the data: job.pieces pieces of job.piece bytes.
MEGALITH_DEVICE void fill(const LaunchArgs &args) {
  Cta<MemoryConfig> cta(args);
  cta.settle();
  const Job job = job_of(cta);
  const uint64_t vectors = uint64_t{job.pieces} * job.piece / 16;
  const uint64_t threads = uint64_t{job.sms} * kThreadsPerCta;
  auto *data = static_cast<unsigned char *>(args.buffer[kData]);
  for (uint64_t i = uint64_t(cta.sm) * kThreadsPerCta + cta.warp * 32 + cta.lane; i < vectors;
       i += threads)
    platform::st_global(data + 16 * i, u32x4{pattern_word(4 * i), pattern_word(4 * i + 1),
                                             pattern_word(4 * i + 2), pattern_word(4 * i + 3)});
}

/// One warp an SM reads job.rounds x job.burst pieces, job.window of them in flight.
/// Sample: times of its own reading.
MEGALITH_DEVICE void read(const LaunchArgs &args) {
  Cta<MemoryConfig> cta(args);
  setup<memory_put>(cta);
  if (cta.warp != 0)
    return;
  Stream<memory_put, memory_got, MemoryRing> stream{job_of(cta)};
  const Job &job = stream.job;
  const uint32_t all = job.rounds * job.burst;
  meet(cta, job, 0, 0);
  const uint64_t begin = platform::now_ns();
  for (uint32_t i = 0; i < job.window && i < all; ++i)
    stream.issue(cta);
  for (uint32_t i = 0; i < all; ++i) {
    stream.take(cta);
    if (i + job.window < all)
      stream.issue(cta);
  }
  const uint64_t end = platform::now_ns();
  Sample *out = sample_of(cta);
  report(cta, &out->begin, begin);
  report(cta, &out->end, end);
  report(cta, &out->pieces, all);
  report_wrong(cta, stream.wrong);
}

/// Rounds of: all SMs meet with nothing in flight; perhaps prefetch job.burst pieces (if job.ahead)
/// and wait job.pause ns; then job.burst (<= 12) pieces at once.
/// Sample: sums over the rounds of ns from the meeting to [0] the first piece landed, [1] all of
/// them, [2] the copies issued, [3] the prefetch issued.
MEGALITH_DEVICE void restart(const LaunchArgs &args) {
  Cta<MemoryConfig> cta(args);
  setup<memory_put>(cta);
  if (cta.warp != 0)
    return;
  const Job job = job_of(cta);
  Walker walker;
  uint32_t wrong = 0;
  uint64_t first = 0, last = 0, issued = 0, prefetched = 0, begin = 0;
  for (uint32_t round = 0; round < job.warmup + job.rounds; ++round) {
    // Lane k has the address of piece k: nothing is left to compute once the SMs have met.
    uint32_t mine = 0;
    for (uint32_t k = 0; k < job.burst; ++k, walker.step(job))
      if (k == static_cast<uint32_t>(cta.lane))
        mine = walker.piece(job, cta.sm);
    const auto address = reinterpret_cast<uint64_t>(piece_address(cta, job, mine));
    const auto of = [&](uint32_t k) {
      return reinterpret_cast<const unsigned char *>(platform::shfl(address, static_cast<int>(k)));
    };
    meet(cta, job, 0, round);
    uint64_t start = platform::now_ns();
    if (round == job.warmup) {
      begin = start;
      first = last = issued = prefetched = 0;
    }
    if (job.ahead) {
      if (cta.lane < static_cast<int>(job.burst))
        platform::prefetch_l2(reinterpret_cast<const unsigned char *>(address), job.piece);
      platform::warp_sync();
      const uint64_t now = platform::now_ns();
      prefetched += now - start;
      while (platform::now_ns() - now < job.pause)
        ;
      platform::warp_sync();
      start = platform::now_ns();
    }
    for (uint32_t k = 0; k < job.burst; ++k)
      copy_bulk<memory_put, MemoryRing>(cta, of(k), job.piece);
    issued += platform::now_ns() - start;
    for (uint32_t k = 0; k < job.burst; ++k) {
      const int slot = wait<memory_got>(cta);
      const uint64_t landed = platform::now_ns();
      if (k == 0)
        first += landed - start;
      if (k == job.burst - 1)
        last += landed - start;
      wrong += check_piece(job, MemoryRing::slot(cta, slot),
                           platform::shfl(mine, static_cast<int>(k)), cta.lane);
      platform::warp_sync();
    }
  }
  const uint64_t end = platform::now_ns();
  Sample *out = sample_of(cta);
  report(cta, &out->begin, begin);
  report(cta, &out->end, end);
  report(cta, &out->pieces, uint64_t{job.rounds} * job.burst);
  report(cta, &out->sum[0], first);
  report(cta, &out->sum[1], last);
  report(cta, &out->sum[2], issued);
  report(cta, &out->sum[3], prefetched);
  report_wrong(cta, wrong);
}

} // namespace megalith::calibrate
