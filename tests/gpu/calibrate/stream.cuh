// The weight stream of the calibration kernels: pieces of the data through the project's ring and
// edges, at most `window` of them in flight.
#pragma once

#include "codegen/device/edges.cuh"
#include "tests/gpu/calibrate/job.h"

namespace megalith::calibrate {

template <class Cta> MEGALITH_DEVICE Job job_of(const Cta &cta) {
  Job job;
  auto *out = reinterpret_cast<uint32_t *>(&job);
  const auto *in = static_cast<const uint32_t *>(cta.args.buffer[kJob]);
  MEGALITH_UNROLL_ALL
  for (int i = 0; i < int(sizeof(Job) / 4); ++i)
    out[i] = platform::ld_const<uint32_t>(in + i);
  return job;
}

template <class Cta> MEGALITH_DEVICE Sample *sample_of(const Cta &cta) {
  return static_cast<Sample *>(cta.args.buffer[kSamples]) + cta.sm;
}

/// Where an SM's stream stands in the data. Cheap, for a lane has 450 ns a piece at full speed.
struct Walker {
  uint32_t number = 0, round = 0, k = 0;

  /// The data's piece.
  MEGALITH_DEVICE uint32_t piece(const Job &job, uint32_t sm) const {
    uint32_t at;
    if (job.walk == kInTurn)
      at = number * job.sms + sm;
    else if (job.walk == kExperts)
      at = mix(round) + k * job.sms + sm;
    else
      at = mix(mix(number) + sm);
    return (at + job.start) & (job.pieces - 1);
  }
  MEGALITH_DEVICE void step(const Job &job) {
    ++number;
    if (++k == job.burst) {
      k = 0;
      ++round;
    }
  }
};

template <class Cta>
MEGALITH_DEVICE const unsigned char *piece_address(const Cta &cta, const Job &job, uint32_t piece) {
  return static_cast<const unsigned char *>(cta.args.buffer[kData]) + uint64_t{piece} * job.piece;
}

/// One warp's checks of a landed piece: each lane one word, spread over it. Returns how many of
/// this lane's words are wrong.
MEGALITH_DEVICE uint32_t check_piece(const Job &job, const unsigned char *slot, uint32_t piece,
                                     int lane) {
  const uint32_t at = lane * (job.piece / 128);
  const auto word = platform::ld_shared<uint32_t>(slot + 4 * at);
  return word != pattern_word(uint64_t{piece} * (job.piece / 4) + at);
}

/// A warp that issues pieces and takes them itself as they land, in order. Put and Got are two
/// edges over the same barriers: one counts what was issued, the other what was taken.
template <class Put, class Got, class R> struct Stream {
  Job job;
  Walker put, got;
  uint32_t wrong = 0;

  template <class Cta> MEGALITH_DEVICE void issue(Cta &cta) {
    copy_bulk<Put, R>(cta, piece_address(cta, job, put.piece(job, cta.sm)), job.piece);
    put.step(job);
  }
  template <class Cta> MEGALITH_DEVICE void take(Cta &cta) {
    const int slot = wait<Got>(cta);
    if ((got.number & job.unseen) == 0)
      wrong += check_piece(job, R::slot(cta, slot), got.piece(job, cta.sm), cta.lane);
    got.step(job);
    platform::warp_sync(); // all lanes have looked before the slot is filled again
  }
};

/// The sum of all lanes' values, in all lanes.
MEGALITH_DEVICE uint32_t lanes_sum(uint32_t value) {
  for (int mask = 16; mask > 0; mask /= 2)
    value += platform::shfl_xor(value, mask);
  return value;
}

/// One warp adds its lanes' wrong words to the SM's.
template <class Cta> MEGALITH_DEVICE void report_wrong(const Cta &cta, uint32_t wrong) {
  wrong = lanes_sum(wrong);
  if (cta.lane == 0 && wrong)
    platform::red_add_relaxed<platform::Scope::gpu>(
        reinterpret_cast<uint32_t *>(&sample_of(cta)->wrong), wrong);
}

/// One warp stores a field of the SM's sample.
template <class Cta> MEGALITH_DEVICE void report(const Cta &cta, uint64_t *field, uint64_t value) {
  if (cta.lane == 0)
    platform::st_global(field, value);
}

/// The producer: streams with job.window pieces in flight, if any, until the word at `done` is not
/// 0. Sample: [0] ns of it.
template <class Put, class Got, class R, class Cta>
MEGALITH_DEVICE void stream_beside(Cta &cta, Job job, uint32_t done) {
  if (job.window == 0)
    return;
  job.burst = 1;
  Stream<Put, Got, R> stream{job};
  for (uint32_t i = 0; i < job.window; ++i)
    stream.issue(cta);
  const uint64_t begin = platform::now_ns();
  while (!platform::any_sync(platform::ld_shared<uint32_t>(cta.smem + done) != 0)) {
    stream.take(cta);
    stream.issue(cta);
  }
  const uint64_t end = platform::now_ns();
  report(cta, &sample_of(cta)->pieces, stream.got.number);
  report(cta, &sample_of(cta)->sum[0], end - begin);
  while (stream.got.number < stream.put.number)
    stream.take(cta);
  report_wrong(cta, stream.wrong);
}

/// All SMs meet: round `round` of counter `counter`. One warp an SM calls; orders nothing but time.
template <class Cta>
MEGALITH_DEVICE void meet(const Cta &cta, const Job &job, int counter, uint32_t round) {
  auto *word = static_cast<uint32_t *>(cta.args.buffer[kCounters]) + counter * kCounterStride;
  if (cta.lane == 0) {
    platform::red_add_relaxed<platform::Scope::gpu>(word, 1);
    Patience patience;
    while (platform::ld_relaxed<platform::Scope::gpu, uint32_t>(word) < job.sms * (round + 1)) {
      if (patience.lost(cta))
        platform::fail(cta.args.fault, 99, job.sms * (round + 1), round, cta.n);
      platform::poll_pause(word);
    }
  }
  platform::warp_sync();
}

/// All lanes wait until the word has the value; one lane or all is the same for two SMs' traffic.
/// `Edge` is what a missed deadline reports.
template <int Edge, platform::Scope Where, class Cta>
MEGALITH_DEVICE void await_word(const Cta &cta, const uint32_t *word, uint32_t value) {
  Patience patience;
  while (platform::ld_relaxed<Where, uint32_t>(word) != value) {
    if (patience.lost(cta))
      platform::fail(cta.args.fault, Edge, value, 0, cta.n);
    platform::poll_pause(word);
  }
}

} // namespace megalith::calibrate
