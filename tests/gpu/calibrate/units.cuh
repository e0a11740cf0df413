// What one SM does by itself, nothing to wait for: signals and barriers, products from a full ring,
// norms, top-k. Each kernel repeats its unit job.warmup + job.rounds times.
// Sample: times of the job.rounds.
#pragma once

#include "codegen/device/gemv.cuh"
#include "codegen/device/norm.cuh"
#include "codegen/device/nvfp4.cuh"
#include "codegen/device/router.cuh"
#include "tests/gpu/calibrate/stream.cuh"

namespace megalith::calibrate {

/// Stamps the beginning and the end of the timed rounds of one warp.
template <class Cta, class Unit>
MEGALITH_DEVICE void repeat(Cta &cta, const Job &job, bool stamps, Unit unit) {
  uint64_t begin = 0;
  MEGALITH_UNROLL(1)
  for (uint32_t round = 0; round < job.warmup + job.rounds; ++round) {
    if (round == job.warmup)
      begin = platform::now_ns();
    unit(round);
  }
  if (stamps) {
    report(cta, &sample_of(cta)->begin, begin);
    report(cta, &sample_of(cta)->end, platform::now_ns());
  }
}

struct SignalConfig {
  static constexpr int kSms = 1, kRows = 1, kEdges = 2;
};
struct ping : MbarrierEdge<0, 0, 1, 1> {
  static constexpr char kName[] = "ping";
};
struct pong : MbarrierEdge<1, 8, 1, 1> {
  static constexpr char kName[] = "pong";
};

/// job.variant 0: a signal from one warp to another and one back. 1: the consumers' barrier. 2: a
/// look at the time.
MEGALITH_DEVICE void signals(const LaunchArgs &args) {
  Cta<SignalConfig> cta(args);
  const Job job = job_of(cta);
  setup<ping, pong>(cta);
  if (job.variant == 1) {
    if (cta.role == Role::consumer)
      repeat(cta, job, cta.role_warp == 0, [](uint32_t) { consumer_sync(); });
  } else if (job.variant == 2) {
    if (cta.role == Role::poller)
      repeat(cta, job, true, [](uint32_t) { platform::now_ns(); });
  } else if (cta.role == Role::poller) {
    repeat(cta, job, true, [&](uint32_t) {
      signal<ping>(cta);
      wait<pong>(cta);
    });
  } else if (cta.role == Role::epilogue) {
    repeat(cta, job, false, [&](uint32_t) {
      wait<ping>(cta);
      signal<pong>(cta);
    });
  }
}

/// Products of pieces of Layer, one m-tile, that lie in the ring already. job.variant 0: with the
/// edges of the ring, the producer signalling what it does not copy; 1: nothing but products.
template <class Layer, uint32_t SlotBytes> struct DrainOf {
  struct Config {
    static constexpr int kSms = 1, kRows = 1, kEdges = 2;
  };
  using Cta = megalith::Cta<Config>;
  using Xs = Rows<0, 1, Layer::kInputs>;
  static constexpr int kSlots = 8;
  using R = Ring<(Xs::kBytes + 127) / 128 * 128, kSlots, SlotBytes>;
  static constexpr uint32_t kBars = R::kOffset + R::kBytes;
  struct w_full : MbarrierEdge<0, kBars, kSlots, 1> {
    static constexpr char kName[] = "w_full";
  };
  struct w_free : MbarrierEdge<1, kBars + 64, kSlots, 8> {
    static constexpr char kName[] = "w_free";
  };

  /// A row of small numbers and ring slots of the like; the sum in the end is not told, but keeps
  /// the products from being left out.
  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta cta(args);
    const Job job = job_of(cta);
    for (int i = 32 * cta.warp + cta.lane; i < int((R::kOffset + R::kBytes) / 4);
         i += kThreadsPerCta)
      platform::st_shared(cta.smem + 4 * i, uint32_t{0x3C003C00} + (mix(i) & 0x007F007Fu));
    setup<w_full, w_free>(cta);
    if (cta.role == Role::producer && job.variant == 0)
      repeat(cta, job, false, [&](uint32_t) {
        acquire<w_free>(cta);
        signal<w_full>(cta);
      });
    if (cta.role != Role::consumer)
      return;
    const Column column = dense_column<Layer, Xs>(cta);
    ChunkSum sum = {};
    if (job.variant == 0)
      repeat(cta, job, cta.role_warp == 0, [&](uint32_t round) {
        const int slot = wait<w_full>(cta);
        gemv_block<Layer, R>(cta, sum, slot, 0, round % Layer::kBlocks, column);
        release<w_free>(cta);
      });
    else
      repeat(cta, job, cta.role_warp == 0, [&](uint32_t round) {
        gemv_block<Layer, R>(cta, sum, round % kSlots, 0, round % Layer::kBlocks, column);
      });
    // A valid column's sums are numbers, and of bf16 strips, which are all positive, positive.
    report_wrong(cta, cta.lane % 4 == 0 && cta.lane / 4 < Layer::kUnit && !(whole(sum).v[0] > 0) &&
                          !(whole(sum).v[0] < 0));
  }
};

/// The same of Strips bf16 strips of K columns, and of an NVFP4 tile.
template <int Strips, int K>
using Drain = DrainOf<Linear<kData, 2 * Strips, K, Strips>, kPieceBytes>;
template <int K>
using DrainNvfp4 = DrainOf<Nvfp4Slices<kData, 16, K, 8>, Nvfp4<kData, 16, K>::kPieceBytes>;

/// RMS norm of one row of Width.
template <int Width> struct NormUnit {
  struct Config {
    static constexpr int kSms = 1, kRows = 1, kEdges = 1;
  };
  using Xs = Rows<128, 1, Width>;
  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    megalith::Cta<Config> cta(args);
    const Job job = job_of(cta);
    for (int i = 32 * cta.warp + cta.lane; i < Width / 2; i += kThreadsPerCta)
      platform::st_shared(Xs::row(cta, 0) + 4 * i, mix(i) & 0xBFFFBFFFu);
    setup<ping>(cta);
    if (cta.role != Role::consumer)
      return;
    repeat(cta, job, cta.role_warp == 0,
           [&](uint32_t) { rms_norm<RmsNorm<Xs, kWeightless, 1e-6f>>(cta); });
    // Normed: the squares' mean is 1, so no value exceeds the root of Width.
    const float x = lo16(platform::ld_shared<uint32_t>(Xs::row(cta, 0) + 4 * cta.lane));
    report_wrong(cta, !(x * x <= Width));
  }
};

/// Top-K of Experts logits of one row, and the table.
template <int Experts, int K> struct TopKUnit {
  struct Config {
    static constexpr int kSms = 1, kRows = 1, kEdges = 1;
  };
  using Base = TopK<Config, Experts, K, ExpertWeights::softmax_renormalised, 1.0f>;
  struct top_k : Base {
    using Logits = WordRows<128, 1, Experts>;
    using Routing = SlottedRows<128 + Logits::kBytes, 1, sizeof(RoutingTable<Base>)>;
  };
  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    megalith::Cta<Config> cta(args);
    const Job job = job_of(cta);
    // A permutation of 0, 1, ...: logits of e * 5 + 3 modulo the (even) number of experts.
    for (int e = 32 * cta.warp + cta.lane; e < Experts; e += kThreadsPerCta)
      platform::st_shared(top_k::Logits::row(cta, 0) + e,
                          static_cast<float>((e * 5 + 3) % Experts));
    setup<ping>(cta);
    if (cta.role != Role::consumer)
      return;
    repeat(cta, job, cta.role_warp == 0, [&](uint32_t) {
      select_experts<top_k>(cta);
      group_experts<top_k>(cta);
    });
    const bool mine = cta.role_warp == 0 && cta.lane < K;
    const int id =
        mine ? platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->id[cta.lane]) : 0;
    report_wrong(cta, mine && (id * 5 + 3) % Experts != Experts - 1 - cta.lane);
  }
};

} // namespace megalith::calibrate
