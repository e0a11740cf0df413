// What polling costs where the words are there already: one warp of every SM brings scattered rows
// of them to shared memory, one after another, as a poller does with experts' activations; beside a
// stream of job.window pieces in flight. With job.variant it gathers epoch words instead, job.burst
// times 32 that lie one after another, as a poller does with a merge tile's partial results.
// Sample: begin and end of job.rounds gathers of job.burst rows each; [0] ns of the stream beside.
#pragma once

#include "codegen/device/exchange.cuh"
#include "codegen/device/gather.cuh"
#include "tests/gpu/calibrate/stream.cuh"

namespace megalith::calibrate {

/// Rows of Width words, of RowCount that there are; at most MostRows of them at once.
template <int Sms, int Width, int RowCount, int MostRows> struct Sweep {
  struct Config {
    static constexpr int kSms = Sms, kRows = 1, kEdges = 3;
  };
  using Cta = megalith::Cta<Config>;
  using X = Words<kWords, RowCount, Width, 2>;
  static constexpr int kSlots = 8, kVectors = Width / 4;
  static constexpr uint32_t kRing = (MostRows * Width * 4 + 127) / 128 * 128;
  using R = Ring<kRing, kSlots, kPieceBytes>;
  static constexpr uint32_t kBars = kRing + R::kBytes, kDone = kBars + 64, kSmem = kDone + 16;
  struct put : MbarrierEdge<0, kBars, kSlots, 1> {
    static constexpr char kName[] = "put";
  };
  struct got : MbarrierEdge<1, kBars, kSlots, 1> {
    static constexpr char kName[] = "got";
  };
  struct words : WordsEdge<2, X> {
    static constexpr char kName[] = "words";
  };
  static constexpr int kEpochWords = MostRows * Width / 4; // room for them where rows are put
  struct epochs : EpochEdge<2, Epochs<kWords, kEpochWords>> {
    static constexpr char kName[] = "epochs";
  };
  static_assert(kSmem <= 232448 && (RowCount & (RowCount - 1)) == 0);

  /// The epoch of launch -1 is 0, which the words are.
  static MEGALITH_DEVICE void take_epochs(Cta &cta, const Job &job, uint32_t round) {
    const auto count = static_cast<int>(32 * job.burst);
    const uint32_t place = mix(round * Sms + cta.sm) & (RowCount - 1);
    cta.n = ~uint64_t{0};
    gather_epochs<epochs, 12, 384>(
        cta, count, static_cast<const U128 *>(cta.args.buffer[kWords]) + place * count,
        [&](int i, const U128 &v) { platform::st_shared(cta.smem + 16 * i, v); });
    platform::warp_sync();
  }

  static MEGALITH_DEVICE void poller(Cta &cta, const Job &job) {
    constexpr int kTwoRows = (2 * kVectors + 31) / 32, kBatch = kTwoRows < 8 ? kTwoRows : 8;
    uint64_t begin = 0;
    for (uint32_t round = 0; round < job.warmup + job.rounds; ++round) {
      if (round == job.warmup)
        begin = platform::now_ns();
      if (job.variant) {
        take_epochs(cta, job, round);
        continue;
      }
      gather_words<words, kBatch>(
          cta, static_cast<int>(job.burst) * kVectors, set_of<X>(cta, 0),
          [&](int i) {
            const uint32_t row = mix(round * MostRows + i / kVectors) & (RowCount - 1);
            return static_cast<int>(row) * kVectors + i % kVectors;
          },
          [&](int i, const u32x4 &v) { platform::st_shared(cta.smem + 16 * i, v); });
      platform::warp_sync();
    }
    report(cta, &sample_of(cta)->begin, begin);
    report(cta, &sample_of(cta)->end, platform::now_ns());
    if (cta.lane == 0)
      platform::st_shared(cta.smem + kDone, uint32_t{1});
  }

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta cta(args);
    const Job job = job_of(cta);
    if (cta.warp == 0 && cta.lane == 0)
      platform::st_shared(cta.smem + kDone, uint32_t{0});
    setup<put>(cta);
    if (cta.role == Role::producer)
      stream_beside<put, got, R>(cta, job, kDone);
    else if (cta.role == Role::poller)
      poller(cta, job);
  }
};

} // namespace megalith::calibrate
