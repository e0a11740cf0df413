// Exchanges whose words consumer warps poll for themselves, one after another, as emitted kernels
// have them: partial results of one row, which all warps store and all bring an eighth of to shared
// memory; the heads of one row, which epilogues store and of which each warp brings its own to
// registers; and the router's logits, of which warp r brings row r. Behind each hop the warps meet.
// The producer streams beside, job.window pieces in flight. Sample: begin and end of the hops on
// consumer 0; [0] ns of the stream beside; clocks of what a hop is besides its words' way and the
// meeting: [5] of consumer 0, which stores and looks at them, or [6] of the epilogue, from the
// meeting to all stored; [7] of all of consumer 0.
#pragma once

#include "codegen/device/exchange.cuh"
#include "codegen/device/gather.cuh"
#include "tests/gpu/calibrate/stream.cuh"

namespace megalith::calibrate {

/// What both have: a ring to stream through, and the consumers' clocks. Words of a hop are put to
/// shared memory in one of two places in turn, so that they can be looked at while the next come.
template <int Sms, int Bytes> struct OwnHop {
  struct Config {
    static constexpr int kSms = Sms, kRows = 1, kEdges = 4;
  };
  using Cta = megalith::Cta<Config>;
  static constexpr int kSlots = 8;
  static constexpr uint32_t kPlace = (Bytes + 127) / 128 * 128;
  using R = Ring<2 * kPlace, kSlots, kPieceBytes>;
  static constexpr uint32_t kBars = 2 * kPlace + R::kBytes, kDone = kBars + 128;
  struct put : MbarrierEdge<0, kBars, kSlots, 1> {
    static constexpr char kName[] = "put";
  };
  struct got : MbarrierEdge<1, kBars, kSlots, 1> {
    static constexpr char kName[] = "got";
  };
  struct met : MbarrierEdge<2, kBars + 64, 1, 8> {
    static constexpr char kName[] = "met";
  };
  static_assert(kDone + 16 <= 232448);

  static MEGALITH_DEVICE uint32_t hops(const Job &job) { return job.warmup + job.rounds; }
  static MEGALITH_DEVICE unsigned char *place(const Cta &cta, uint32_t hop) {
    return cta.smem + hop % 2 * kPlace;
  }

  /// Hop after hop: store(hop), take(hop), the warps meet, look(hop) returns wrong words.
  template <class Store, class Take, class Look>
  static MEGALITH_DEVICE void consumer(Cta &cta, const Job &job, Store store, Take take,
                                       Look look) {
    uint64_t begin = 0, rest = 0, all = 0;
    uint32_t wrong = 0, round = 0;
    for (uint32_t hop = 0; hop < hops(job); ++hop) {
      if (hop == job.warmup) {
        begin = platform::now_ns();
        rest = all = 0;
        round = platform::clock();
      }
      cta.n = hop;
      const uint32_t before = platform::clock();
      store(hop);
      const uint32_t stored = platform::clock();
      take(hop);
      consumer_sync();
      const uint32_t there = platform::clock();
      signal<met>(cta);
      wrong += look(hop);
      const uint32_t now = platform::clock();
      rest += stored - before + (now - there);
      all += now - round;
      round = now;
    }
    const uint64_t end = platform::now_ns();
    report_wrong(cta, wrong);
    if (cta.role_warp != 0)
      return;
    report(cta, &sample_of(cta)->begin, begin);
    report(cta, &sample_of(cta)->end, end);
    report(cta, &sample_of(cta)->sum[5], rest);
    report(cta, &sample_of(cta)->sum[7], all);
    if (cta.lane == 0)
      platform::st_shared(cta.smem + kDone, uint32_t{1});
  }

  /// Hop after hop: the warps have met, and poll for job.pause ns already, as those do who wait for
  /// a product; store(hop). Their next words are among what is stored, so they are never two hops
  /// ahead.
  template <class Store>
  static MEGALITH_DEVICE void epilogue(Cta &cta, const Job &job, Store store) {
    uint64_t clocks = 0;
    for (uint32_t hop = 0; hop < hops(job); ++hop) {
      if (hop > 0) {
        wait<met>(cta);
        platform::warp_sync(); // lanes that publish nothing must not fall behind
      }
      const uint32_t begin = platform::clock();
      for (const uint64_t since = platform::now_ns(); platform::now_ns() - since < job.pause;)
        ;
      store(hop);
      if (hop >= job.warmup)
        clocks += platform::clock() - begin;
    }
    report(cta, &sample_of(cta)->sum[6], clocks);
  }

  /// `consume` and `store` are the roles' hops.
  template <class Consume, class Store>
  static MEGALITH_DEVICE void run(Cta &cta, Consume consume, Store store) {
    const Job job = job_of(cta);
    if (cta.warp == 0 && cta.lane == 0)
      platform::st_shared(cta.smem + kDone, uint32_t{0});
    setup<put, met>(cta);
    if (cta.role == Role::producer)
      stream_beside<put, got, R>(cta, job, kDone);
    else if (cta.role == Role::consumer)
      consume(job);
    else if (cta.role == Role::epilogue)
      store(job);
  }
};

/// Sms SMs in groups of Group; an SM stores Share epoch words for each SM of its group.
/// Qwen3-30B-A3B with 32 splits: groups of 32, 12 words.
template <int Sms, int Group, int Share> struct OwnRecords {
  static constexpr int kRecord = Group * Share, kThreads = 32 * kConsumerWarps;
  using Hop = OwnHop<Sms, 16 * kRecord>;
  using Cta = typename Hop::Cta;
  // Two sets in turn: an SM stores to a set again only when its whole group has read the other.
  struct partials : EpochEdge<3, Epochs<kWords, 2 * Sms * kRecord>> {
    static constexpr char kName[] = "partials";
  };
  static_assert(Sms % Group == 0);

  /// Word `word` of SM `from`, of its group, for SM `sm`.
  static MEGALITH_DEVICE int index(uint32_t hop, int sm, int from, int word) {
    return (static_cast<int>(hop % 2) * Sms + sm) * kRecord + from * Share + word;
  }

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta cta(args);
    const int group = cta.sm / Group * Group, mine = cta.sm % Group;
    const auto *words = static_cast<const U128 *>(args.buffer[kWords]);
    const auto store = [&](uint32_t hop) {
      for (int i = 32 * cta.role_warp + cta.lane; i < kRecord; i += kThreads) {
        const int at = index(hop, group + i / Share, mine, i % Share);
        publish_epoch<partials>(cta, at, {bits_to_float(hop_word(hop, at)), 1.0f, 2.0f});
      }
    };
    const auto take = [&](uint32_t hop) {
      gather_own_epochs<partials, (kRecord + kThreads - 1) / kThreads, kThreads>(
          cta, 32 * cta.role_warp + cta.lane, kRecord, words + index(hop, cta.sm, 0, 0),
          Hop::place(cta, hop));
    };
    const auto look = [&](uint32_t hop) {
      uint32_t wrong = 0;
      for (int i = 32 * cta.role_warp + cta.lane; i < kRecord; i += kThreads) {
        const auto v = platform::ld_shared<u32x4>(Hop::place(cta, hop) + 16 * i);
        wrong += v.x != hop_word(hop, index(hop, cta.sm, 0, i)) || v.w != hop + 1;
      }
      return wrong;
    };
    Hop::run(
        cta, [&](const Job &job) { Hop::consumer(cta, job, store, take, look); },
        [](const Job &) {});
  }
};

/// One row of 8 query heads for each of KvHeads KV heads, and these, of 64 words: an even share of
/// them from each SM, which takes those of the KV head that its first word is of, as an SM with the
/// new position does.
template <int Sms, int KvHeads> struct OwnHeads {
  static constexpr int kHead = 64, kWidth = 10 * KvHeads * kHead, kShare = kWidth / Sms;
  using Hop = OwnHop<Sms, 0>;
  using Cta = typename Hop::Cta;
  using X = Words<kWords, kMostHops, kWidth, 2>; // a row of its own: none is re-armed
  struct words : WordsEdge<3, X> {
    static constexpr char kName[] = "words";
  };
  static_assert(kWidth % Sms == 0);

  static MEGALITH_DEVICE void store(const Cta &cta, uint32_t hop) {
    for (int at = cta.sm * kShare + cta.lane; at < (cta.sm + 1) * kShare; at += 32)
      publish<words>(cta, hop, at, hop_word(hop, at));
  }

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    constexpr int kEach = 4, kAll = 3 * kEach;
    Cta cta(args);
    uint32_t word[kAll];
    const int first = cta.sm * kShare / kHead;
    const int kv = first < 8 * KvHeads ? first / 8 : first % KvHeads;
    // The first word of the query, the key or the value, for this lane.
    const auto place = [&](int which) {
      const int head =
          which == 0 || cta.role_warp > 0 ? 8 * kv + cta.role_warp : (7 + which) * KvHeads + kv;
      return head * kHead + cta.lane / 2;
    };
    const auto take = [&](uint32_t hop) { // poll_heads, of a row of this hop's own
      cta.n = 0;
      const uint32_t *row = set_of<X>(cta, 0) + hop * kWidth, *from[kAll];
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < kAll; ++i)
        from[i] = row + place(i / kEach) + 16 * (i % kEach);
      gather_lane_words<words>(cta, from, word);
    };
    const auto look = [&](uint32_t hop) {
      uint32_t wrong = 0;
      MEGALITH_UNROLL_ALL
      for (int i = 0; i < kAll; ++i)
        wrong += word[i] != hop_word(hop, place(i / kEach) + 16 * (i % kEach));
      return wrong;
    };
    Hop::run(
        cta,
        [&](const Job &job) {
          Hop::consumer(
              cta, job, [](uint32_t) {}, take, look);
        },
        [&](const Job &job) { Hop::epilogue(cta, job, [&](uint32_t hop) { store(cta, hop); }); });
  }
};

/// Width fp32 words of each of RowCount rows, two of a row from each of the first Width / 2 SMs.
template <int Sms, int RowCount, int Width> struct OwnRows {
  using Hop = OwnHop<Sms, 4 * RowCount * Width>;
  using Cta = typename Hop::Cta;
  using X = Words<kWords, kMostHops * RowCount, Width, 2>; // rows of their own: none is re-armed
  struct words : WordsEdge<3, X> {
    static constexpr char kName[] = "words";
  };
  static constexpr int kVectors = Width / 4;
  static_assert(Width <= 2 * Sms && RowCount <= kConsumerWarps);

  static MEGALITH_DEVICE void store(const Cta &cta, uint32_t hop) {
    if (cta.lane >= RowCount)
      return;
    const int row = hop * RowCount + cta.lane, word = 2 * cta.sm; // as epilogue_logits, two stores
    publish<words>(cta, row, word, hop_word(hop, row * Width + word));
    publish<words>(cta, row, word + 1, hop_word(hop, row * Width + word + 1));
  }

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta cta(args);
    const auto row = [&](uint32_t hop) { return hop * RowCount + cta.role_warp; };
    const auto put = [&](uint32_t hop) { return Hop::place(cta, hop) + cta.role_warp * 4 * Width; };
    const auto take = [&](uint32_t hop) { // poll_own_row, of rows of this hop's own
      cta.n = 0;
      if (cta.role_warp < RowCount)
        gather_words<words, (kVectors + 31) / 32>(
            cta, kVectors, set_of<X>(cta, 0) + row(hop) * Width, [](int i) { return i; },
            [&](int i, const u32x4 &v) { platform::st_shared(put(hop) + 16 * i, v); });
      platform::warp_sync();
    };
    const auto look = [&](uint32_t hop) {
      const int at = cta.lane % Width;
      return uint32_t(cta.role_warp < RowCount &&
                      platform::ld_shared<uint32_t>(put(hop) + 4 * at) !=
                          hop_word(hop, row(hop) * Width + at));
    };
    Hop::run(
        cta,
        [&](const Job &job) {
          Hop::consumer(
              cta, job, [](uint32_t) {}, take, look);
        },
        [&](const Job &job) {
          if (2 * cta.sm < Width)
            Hop::epilogue(cta, job, [&](uint32_t hop) { store(cta, hop); });
        });
  }
};

} // namespace megalith::calibrate
