// From one launch to the next: a chain of small kernels, each of which copies pieces into its ring,
// takes the words of the launch before, and exchanges more words within itself.
#pragma once

#include "codegen/device/exchange.cuh"
#include "tests/gpu/calibrate/stream.cuh"

namespace megalith::calibrate {

/// Sms SMs exchange Width words a hop; job.rounds hops a launch, the first from the launch before.
template <int Sms, int Width> struct Boundary {
  struct Config {
    static constexpr int kSms = Sms, kRows = 1, kEdges = 6;
  };
  using Cta = megalith::Cta<Config>;
  using X = Words<kWords, kMostHops, Width, 2>; // a row for every hop of the chain
  using Xs = WordRows<0, 1, Width>;
  static constexpr int kSlots = 8, kShare = Width / Sms;
  using R = Ring<(Xs::kBytes + 127) / 128 * 128, kSlots, kPieceBytes>;
  static constexpr uint32_t kBars = R::kOffset + R::kBytes;

  struct w_put : MbarrierEdge<0, kBars, kSlots, 1> {
    static constexpr char kName[] = "w_put";
  };
  struct w_got : MbarrierEdge<1, kBars, kSlots, 1> { // w_put, as its warp takes them
    static constexpr char kName[] = "w_got";
  };
  struct x_full : MbarrierEdge<2, kBars + 64, 1, 1> {
    static constexpr char kName[] = "x_full";
  };
  struct x_free : MbarrierEdge<3, kBars + 72, 1, 1> {
    static constexpr char kName[] = "x_free";
  };
  struct words : WordsEdge<4, X> {
    static constexpr char kName[] = "words";
  };

  /// This launch's sample of this SM; begin and end are of the whole CTA.
  static MEGALITH_DEVICE Sample *sample(const Cta &cta) {
    return static_cast<Sample *>(cta.args.buffer[kSamples]) + cta.args.launch_in_step * Sms +
           cta.sm;
  }

  static MEGALITH_DEVICE void producer(Cta &cta, const Job &job) {
    Stream<w_put, w_got, R> stream{job};
    stream.put.number = stream.got.number = cta.args.launch_in_step * job.burst;
    for (uint32_t i = 0; i < job.burst; ++i)
      stream.issue(cta);
    for (uint32_t i = 0; i < job.burst; ++i) {
      stream.take(cta);
      if (i == 0)
        report(cta, &sample(cta)->sum[0], platform::now_ns());
    }
    report_wrong(cta, stream.wrong);
  }

  static MEGALITH_DEVICE void poller(Cta &cta, const Job &job) {
    for (uint32_t i = 0; i < job.rounds; ++i) {
      const uint32_t hop = cta.args.launch_in_step * job.rounds + i;
      acquire<x_free>(cta);
      if (hop > 0)
        poll_block<words>(cta, hop - 1, 1, 0, Width / 4, cta.smem + Xs::kOffset, Xs::kStride);
      if (i == 0)
        report(cta, &sample(cta)->sum[1], platform::now_ns());
      signal<x_full>(cta);
      if (i == 0) {
        launch_wait();
        launch_dependents();
      }
    }
  }

  static MEGALITH_DEVICE void epilogue(Cta &cta, const Job &job) {
    uint32_t wrong = 0;
    launch_wait();
    for (uint32_t i = 0; i < job.rounds; ++i) {
      const uint32_t hop = cta.args.launch_in_step * job.rounds + i;
      wait<x_full>(cta);
      for (int k = cta.lane; k < kShare; k += 32)
        publish<words>(cta, hop, cta.sm * kShare + k, hop_word(hop, cta.sm * kShare + k));
      const int at = (cta.sm * kShare + cta.lane) % Width;
      if (hop > 0)
        wrong += platform::ld_shared<uint32_t>(Xs::row(cta, 0) + at) != hop_word(hop - 1, at);
      release<x_free>(cta);
    }
    report_wrong(cta, wrong);
  }

  /// Who has nothing to do but wait for the launch before.
  static MEGALITH_DEVICE void waiter(const Cta &cta) {
    launch_wait();
    report(cta, &sample(cta)->sum[3], platform::now_ns());
  }

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    const uint64_t begin = platform::now_ns();
    make_barriers<w_put, x_full, x_free>(); // in the order of emitted kernels
    Cta cta(args);
    setup(cta);
    const uint64_t ready = platform::now_ns();
    const Job job = job_of(cta);
    cta.n = 0; // every hop has words of its own, so no set takes turns
    if (cta.role == Role::producer)
      producer(cta, job);
    else if (cta.role == Role::poller)
      poller(cta, job);
    else if (cta.role == Role::epilogue)
      epilogue(cta, job);
    else if (cta.role_warp == 0)
      waiter(cta);
    platform::cta_sync();
    if (cta.warp == 0) {
      report(cta, &sample(cta)->sum[2], ready);
      report(cta, &sample(cta)->begin, begin);
      report(cta, &sample(cta)->end, platform::now_ns());
    }
  }
};

} // namespace megalith::calibrate
