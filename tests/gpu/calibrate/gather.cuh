// The merge hop: results of split sequences as epoch words, from every SM of a KV head's group to
// every other. Each SM of a group publishes a record's words and gathers its share of all records.
#pragma once

#include "codegen/device/edges.cuh"
#include "codegen/device/gather.cuh"
#include "tests/gpu/calibrate/stream.cuh"

namespace megalith::calibrate {

/// Sms SMs in groups of Group; an SM's record has Group * Share words of 16 B, Share for each SM of
/// its group. Qwen3-30B-A3B at one row: groups of 32, 8 heads of 44 words = 32 * 11.
template <int Sms, int Group, int Share> struct Gather {
  struct Config {
    static constexpr int kSms = Sms, kRows = 1, kEdges = 6;
  };
  using Cta = megalith::Cta<Config>;
  static constexpr int kRecord = Group * Share, kSetWords = Sms * kRecord;
  // Two sets in turn: an SM stores to a set again only when its whole group has read the other.
  using X = Epochs<kWords, 2 * kSetWords>;
  static constexpr uint32_t kTarget = 0, kBars = kRecord * 16;
  static_assert(Sms % Group == 0);

  struct x_full : MbarrierEdge<0, kBars, 1, 1> {
    static constexpr char kName[] = "x_full";
  };
  struct x_free : MbarrierEdge<1, kBars + 8, 1, 8> {
    static constexpr char kName[] = "x_free";
  };
  struct merged : MbarrierEdge<2, kBars + 16, 1, 8> {
    static constexpr char kName[] = "merged";
  };
  struct partials : EpochEdge<3, X> {
    static constexpr char kName[] = "partials";
  };

  static MEGALITH_DEVICE uint32_t hops(const Job &job) { return job.warmup + job.rounds; }

  /// Word `word` of SM `sm`'s record of this hop.
  static MEGALITH_DEVICE int index(const Cta &cta, int sm, int word) {
    return static_cast<int>(cta.n % 2) * kSetWords + sm * kRecord + word;
  }

  static MEGALITH_DEVICE void poller(Cta &cta, const Job &job) {
    const int group = cta.sm / Group * Group, mine = cta.sm % Group;
    const auto *words = static_cast<const U128 *>(cta.args.buffer[kWords]);
    for (uint32_t hop = 0; hop < hops(job); ++hop) {
      cta.n = hop;
      acquire<x_free>(cta);
      const uint32_t epoch = epoch_of(cta);
      gather_items<partials, 11>(
          cta, kRecord, words,
          [&](int i) { return index(cta, group + i / Share, mine * Share + i % Share); },
          [](const U128 *p) { return platform::ld_relaxed<platform::Scope::gpu, U128>(p); },
          [epoch](const U128 &v) { return v.w == epoch; },
          [&](int i, const U128 &v) { platform::st_shared(cta.smem + kTarget + 16 * i, v); });
      platform::warp_sync();
      signal<x_full>(cta);
    }
  }

  static MEGALITH_DEVICE void consumer(Cta &cta, const Job &job) {
    const int group = cta.sm / Group * Group, mine = cta.sm % Group;
    uint32_t wrong = 0;
    for (uint32_t hop = 0; hop < hops(job); ++hop) {
      wait<x_full>(cta);
      signal<merged>(cta);
      for (int i = 32 * cta.role_warp + cta.lane; i < kRecord; i += 32 * kConsumerWarps) {
        const auto v = platform::ld_shared<u32x4>(cta.smem + kTarget + 16 * i);
        const uint32_t from = group + i / Share, word = mine * Share + i % Share;
        wrong += v.x != hop_word(hop, from * kRecord + word) || v.w != hop + 1;
      }
      release<x_free>(cta);
    }
    report_wrong(cta, wrong);
  }

  static MEGALITH_DEVICE void epilogue(Cta &cta, const Job &job) {
    uint64_t begin = 0;
    for (uint32_t hop = 0; hop < hops(job); ++hop) {
      cta.n = hop;
      if (hop > 0) {
        wait<merged>(cta);
        platform::warp_sync(); // lanes that publish nothing must not fall behind
      }
      if (hop == job.warmup)
        begin = platform::now_ns();
      for (int i = cta.lane; i < kRecord; i += 32)
        publish_epoch<partials>(cta, index(cta, cta.sm, i),
                                {bits_to_float(hop_word(hop, cta.sm * kRecord + i)), 1.0f, 2.0f});
    }
    wait<merged>(cta);
    report(cta, &sample_of(cta)->begin, begin);
    report(cta, &sample_of(cta)->end, platform::now_ns());
  }

  /// Sample: times of the hops, from publishing to publishing.
  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta cta(args);
    const Job job = job_of(cta);
    setup<x_full, x_free, merged>(cta);
    switch (cta.role) {
    case Role::producer:
      return;
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
