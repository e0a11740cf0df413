// The routing hop: every SM publishes its logits, takes all, chooses experts, and copies the first
// of them; the next hop's logits wait for its first piece. So a hop is what stands between the
// router's product and the first expert's.
#pragma once

#include "codegen/device/exchange.cuh"
#include "codegen/device/router.cuh"
#include "tests/gpu/calibrate/stream.cuh"
#include "tests/gpu/calibrate/tight.cuh"

namespace megalith::calibrate {

/// Sms SMs, Experts experts (one logit an SM at least), K chosen; polled by
/// poll_block or poll_tight.
template <int Sms, int Experts, int K, bool Tight> struct Route {
  struct Config {
    static constexpr int kSms = Sms, kRows = 1, kEdges = 8;
  };
  using Cta = megalith::Cta<Config>;
  using X = Words<kWords, kMostHops, Experts, 2>; // a row for every hop
  struct top_k : TopK<Config, Experts, K, ExpertWeights::softmax_renormalised, 1.0f> {
    using Logits = WordRows<0, 1, Experts>;
    using Routing = SlottedRows<
        Logits::kBytes, 1,
        sizeof(RoutingTable<TopK<Config, Experts, K, ExpertWeights::softmax_renormalised, 1.0f>>)>;
  };
  using Table = RoutingTable<top_k>;
  static constexpr int kSlots = 8, kShare = Experts / Sms;
  using R = Ring<(top_k::Routing::kOffset + top_k::Routing::kBytes + 127) / 128 * 128, kSlots,
                 kPieceBytes>;
  static constexpr uint32_t kBars = R::kOffset + R::kBytes;

  struct w_put : MbarrierEdge<0, kBars, kSlots, 1> {
    static constexpr char kName[] = "w_put";
  };
  struct w_got : MbarrierEdge<1, kBars, kSlots, 1> { // w_put, as its warp takes them
    static constexpr char kName[] = "w_got";
  };
  struct l_full : MbarrierEdge<2, kBars + 64, 1, 1> {
    static constexpr char kName[] = "l_full";
  };
  struct l_free : MbarrierEdge<3, kBars + 72, 1, 8> {
    static constexpr char kName[] = "l_free";
  };
  struct routed : MbarrierEdge<4, kBars + 80, 1, 8> {
    static constexpr char kName[] = "routed";
  };
  struct landed : MbarrierEdge<5, kBars + 88, 1, 1> {
    static constexpr char kName[] = "landed";
  };
  struct words : WordsEdge<6, X> {
    static constexpr char kName[] = "words";
  };

  static MEGALITH_DEVICE uint32_t hops(const Job &job) { return job.warmup + job.rounds; }

  /// Copies job.burst pieces of the first expert; the SMs' pieces lie side by side.
  static MEGALITH_DEVICE void producer(Cta &cta, const Job &job) {
    uint64_t known = 0, first = 0;
    uint32_t wrong = 0;
    for (uint32_t hop = 0; hop < hops(job); ++hop) {
      wait<routed>(cta);
      const uint64_t start = platform::now_ns();
      const auto expert = static_cast<uint32_t>(
          platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->expert[0]));
      const uint32_t at = mix(hop * Experts + expert) + job.start + cta.sm;
      const auto piece = [&](uint32_t k) { return (at + k * Sms) & (job.pieces - 1); };
      for (uint32_t k = 0; k < job.burst; ++k)
        copy_bulk<w_put, R>(cta, piece_address(cta, job, piece(k)), job.piece);
      for (uint32_t k = 0; k < job.burst; ++k) {
        const int slot = wait<w_got>(cta);
        if (k == 0 && hop >= job.warmup) {
          first += platform::now_ns();
          known += start;
        }
        if (k == job.burst - 1)
          signal<landed>(cta);
        wrong += check_piece(job, R::slot(cta, slot), piece(k), cta.lane);
        platform::warp_sync();
      }
    }
    report(cta, &sample_of(cta)->sum[2], known);
    report(cta, &sample_of(cta)->sum[3], first);
    report_wrong(cta, wrong);
  }

  static MEGALITH_DEVICE void poller(Cta &cta, const Job &job) {
    uint64_t there = 0;
    for (uint32_t hop = 0; hop < hops(job); ++hop) {
      acquire<l_free>(cta);
      auto *logits = reinterpret_cast<unsigned char *>(top_k::Logits::row(cta, 0));
      if constexpr (Tight)
        poll_tight<Experts / 128>(cta, words::kId, set_of<X>(cta, 0) + hop * Experts, logits);
      else
        poll_block<words>(cta, hop, 1, 0, Experts / 4, logits, top_k::Logits::kStride);
      signal<l_full>(cta);
      if (hop >= job.warmup)
        there += platform::now_ns();
    }
    report(cta, &sample_of(cta)->sum[1], there);
  }

  /// One warp: the logits are those sent, and the table's K are the largest, in descending order.
  static MEGALITH_DEVICE uint32_t check(const Cta &cta, uint32_t hop) {
    const auto *table = routing_table<top_k>(cta);
    uint32_t wrong = 0, above[K] = {};
    for (int e = cta.lane; e < Experts; e += 32) {
      const auto logit = platform::ld_shared<float>(top_k::Logits::row(cta, 0) + e);
      wrong += float_to_bits(logit) != hop_word(hop, e);
      MEGALITH_UNROLL_ALL
      for (int s = 0; s < K; ++s) {
        const int chosen = platform::ld_shared<int32_t>(&table->id[s]);
        above[s] += logit > platform::ld_shared<float>(top_k::Logits::row(cta, 0) + chosen);
      }
    }
    MEGALITH_UNROLL_ALL
    for (int s = 0; s < K; ++s) {
      const uint32_t larger = lanes_sum(above[s]);
      wrong += cta.lane == 0 && larger != static_cast<uint32_t>(s);
    }
    return wrong;
  }

  static MEGALITH_DEVICE void consumer(Cta &cta, const Job &job) {
    uint32_t wrong = 0;
    for (uint32_t hop = 0; hop < hops(job); ++hop) {
      wait<l_full>(cta);
      select_experts<top_k>(cta);
      group_experts<top_k>(cta);
      signal<routed>(cta);
      if (cta.role_warp == 1)
        wrong += check(cta, hop);
      release<l_free>(cta);
    }
    report_wrong(cta, wrong);
  }

  static MEGALITH_DEVICE void epilogue(Cta &cta, const Job &job) {
    uint64_t begin = 0, published = 0;
    for (uint32_t hop = 0; hop < hops(job); ++hop) {
      if (hop > 0) {
        wait<landed>(cta);
        platform::warp_sync(); // lanes that publish nothing must not fall behind
      }
      if (hop == job.warmup)
        begin = platform::now_ns();
      for (int i = cta.lane; i < kShare; i += 32) {
        const int at = cta.sm * kShare + i;
        publish<words>(cta, hop, at, hop_word(hop, at));
      }
      if (hop >= job.warmup)
        published += platform::now_ns();
    }
    wait<landed>(cta);
    report(cta, &sample_of(cta)->begin, begin);
    report(cta, &sample_of(cta)->end, platform::now_ns());
    report(cta, &sample_of(cta)->sum[0], published);
  }

  /// Sample: times of the hops on the epilogue; sums of the times at which [0] the logits were
  /// published, [1] all there, [2] the table known to the producer, [3] the first piece landed.
  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta cta(args);
    const Job job = job_of(cta);
    setup<w_put, l_full, l_free, routed, landed>(cta);
    switch (cta.role) {
    case Role::producer:
      return producer(cta, job);
    case Role::poller:
      return poller(cta, job);
    case Role::consumer:
      return consumer(cta, job);
    case Role::epilogue:
      return epilogue(cta, job);
    }
  }
};

} // namespace megalith::calibrate
