// One exchange after another, all to all, in the emitted kernels' shape: every SM's consumers need
// the whole payload for their next product, and every SM makes a share of it.
//
//   consumers: product -> chunk sums -> epilogue: sum, publish -> pollers: words to shared memory
//   -> consumers ...
//
// With job.burst = 0 the product is of one resident piece and the producer warp streams pieces that
// nobody needs, job.window in flight: E, the time of a hop, beside a stream that never stops. With
// job.burst > 0 the product of a stage drains that many pieces from the ring: a chain of dependent
// linear layers; job.window caps the pieces in flight, job.ahead prefetches into L2.
// Sample: begin and end of the hops on consumer 0; with job.variant sums of the times at which
// [1] consumer 0 had the words, [2] the epilogue had the chunks, [3] it had published, [4] the
// poller had the words (only their differences mean anything). [0] ns of the stream beside. As
// emitted kernels poll, clocks of what a hop is besides: [5] consumer 0 from its words to its chunk
// sums with the epilogue, [6] the epilogue from there to all stored; [7] of all of consumer 0; and
// sums of the clocks at which [4] each of the eight had handed its sums on, [2] the epilogue had
// them all (modulo 2^32).
#pragma once

#include "codegen/device/chunks.cuh"
#include "codegen/device/exchange.cuh"
#include "codegen/device/gather.cuh"
#include "codegen/device/gemv.cuh"
#include "tests/gpu/calibrate/stream.cuh"
#include "tests/gpu/calibrate/tight.cuh"

namespace megalith::calibrate {

/// Who brings the words of a hop to shared memory.
enum class Polling {
  one,            ///< the poller warp sweeps until all are there
  hint,           ///< it first polls a relaxed counter of arrivals, for at most 2 us
  two,            ///< poller and epilogue, half each
  chunks,         ///< each consumer warp the part of K it multiplies
  chunks_hint,    ///< the poller polls the counter and tells them when looking pays
  tight_one,      ///< as `one`, by poll_tight
  tight_one_hint, ///< as `hint`, by poll_tight
  tight,          ///< as `chunks`, by poll_tight, job.pause ns between two looks
  tight_hint,     ///< as `chunks_hint`, by poll_tight
  emitted         ///< as emitted kernels do (poll_chunk): as `chunks`, by gather_words
};

/// Sms SMs exchange Width words (Width / Sms is a multiple of 8) of RowCount rows, more than one
/// only by `emitted`. Every word is published in Copies places, and SM s polls those of copy s %
/// Copies: so many fewer SMs read the same line.
template <int Sms, int Width, Polling P, int Copies = 1, int RowCount = 1> struct Hop {
  struct Config {
    static constexpr int kSms = Sms, kRows = RowCount, kEdges = 10;
  };
  using Cta = megalith::Cta<Config>;
  // Rows of their own for every hop: nothing is re-armed.
  using X = Words<kWords, kMostHops * Copies * RowCount, Width, 2>;
  using Xs = Rows<0, RowCount, 2 * Width>;
  using Parts = Part<(Xs::kBytes + 127) / 128 * 128, 2>;
  static constexpr uint32_t kRing = (Parts::kOffset + Parts::kBytes + 127) / 128 * 128;
  static constexpr int kSlots = Width * RowCount > 4096 ? 6 : Width *RowCount > 2048 ? 10 : 11;
  using R = Ring<kRing, kSlots, kPieceBytes>;
  using Resident = Ring<kRing + R::kBytes, 1, kPieceBytes>;
  static constexpr uint32_t kBars = Resident::kOffset + Resident::kBytes, kDone = kBars + 256;
  static constexpr uint32_t kSmem = kDone + 16;
  using Layer = Linear<kData, 2 * Width, 2 * Width, Width / Sms>;
  static constexpr int kShare = Width / Sms;
  static constexpr bool kTightOne = P == Polling::tight_one || P == Polling::tight_one_hint;
  static constexpr bool kTight = P == Polling::tight || P == Polling::tight_hint;
  static constexpr bool kEmitted = P == Polling::emitted;
  static constexpr bool kAlone = P == Polling::chunks || P == Polling::tight || kEmitted;
  static constexpr bool kChunks =
      P == Polling::chunks || P == Polling::chunks_hint || kTight || kEmitted;
  static constexpr bool kHint = P == Polling::hint || P == Polling::chunks_hint ||
                                P == Polling::tight_hint || P == Polling::tight_one_hint;
  static_assert(kShare % 8 == 0 && kSmem <= 232448);
  static_assert(RowCount == 1 || (kEmitted && Copies == 1));

  struct w_full : MbarrierEdge<0, kBars, kSlots, 1> {
    static constexpr char kName[] = "w_full";
  };
  struct w_landed : MbarrierEdge<1, kBars, kSlots, 1> { // w_full, as the producer sees it
    static constexpr char kName[] = "w_landed";
  };
  struct w_free : MbarrierEdge<2, kBars + 96, kSlots, 8> {
    static constexpr char kName[] = "w_free";
  };
  struct x_full : MbarrierEdge<3, kBars + 192, 1, P == Polling::two ? 2 : 1> {
    static constexpr char kName[] = "x_full";
  };
  struct x_free : MbarrierEdge<4, kBars + 200, 1, 8> {
    static constexpr char kName[] = "x_free";
  };
  struct p_full : MbarrierEdge<5, kBars + 208, 2, 8> {
    static constexpr char kName[] = "p_full";
  };
  struct p_free : MbarrierEdge<6, kBars + 224, 2, 1> {
    static constexpr char kName[] = "p_free";
  };
  struct words : WordsEdge<7, X> {
    static constexpr char kName[] = "words";
  };

  struct hop_words : WordsEdge<7, Words<kWords, RowCount, Width, 2>> {}; // of one hop

  /// The (first) row that this SM polls.
  static MEGALITH_DEVICE int row(const Cta &cta, uint32_t hop) {
    return static_cast<int>(hop) * Copies * RowCount + cta.sm % Copies;
  }

  /// Streams until the hops are over; nobody but this warp looks at the pieces.
  static MEGALITH_DEVICE void stream_beside(Cta &cta, Job job) {
    if (job.window == 0)
      return;
    job.burst = 1;
    Stream<w_full, w_landed, R> stream{job};
    for (uint32_t i = 0; i < job.window; ++i)
      stream.issue(cta);
    uint64_t begin = 0;
    uint32_t before = 0;
    while (true) {
      stream.take(cta);
      const auto state = platform::ld_shared<uint32_t>(cta.smem + kDone);
      if (state != 0 && begin == 0) {
        begin = platform::now_ns();
        before = stream.got.number;
      }
      if (state == 2)
        break;
      stream.issue(cta);
    }
    const uint64_t end = platform::now_ns();
    const uint32_t pieces = stream.got.number - before;
    while (stream.got.number < stream.put.number)
      stream.take(cta);
    report(cta, &sample_of(cta)->pieces, pieces);
    report(cta, &sample_of(cta)->sum[0], end - begin);
    report_wrong(cta, stream.wrong);
  }

  static MEGALITH_DEVICE void producer(Cta &cta) {
    const Job job = job_of(cta);
    if (job.burst == 0)
      return stream_beside(cta, job);
    Walker walker, further;
    for (uint32_t i = 0; i < job.ahead; ++i)
      further.step(job);
    const uint32_t all = (job.warmup + job.rounds) * job.burst;
    for (uint32_t i = 0; i < all; ++i, walker.step(job), further.step(job)) {
      const unsigned char *source = piece_address(cta, job, walker.piece(job, cta.sm));
      const unsigned char *later = piece_address(cta, job, further.piece(job, cta.sm));
      acquire<w_free>(cta);
      if (i >= job.window)
        wait<w_landed>(cta); // of piece i - window
      if (job.ahead && cta.lane == 0 && i + job.ahead < all)
        platform::prefetch_l2(later, job.piece);
      copy_bulk<w_full, R>(cta, source, job.piece);
    }
  }

  /// Until all SMs have counted, but not for long: the counter proves nothing, and orders nothing.
  static MEGALITH_DEVICE void look_first(const Cta &cta, uint32_t hop) {
    const auto *counter = static_cast<const uint32_t *>(cta.args.buffer[kCounters]);
    if (cta.lane == 0) {
      const uint64_t begin = platform::now_ns();
      while (platform::ld_relaxed<platform::Scope::gpu, uint32_t>(counter) < Sms * (hop + 1) &&
             platform::now_ns() - begin < 2000)
        platform::poll_pause(counter);
    }
    platform::warp_sync();
  }

  static MEGALITH_DEVICE void poller(Cta &cta) {
    if (kAlone)
      return;
    const Job job = job_of(cta);
    uint64_t there = 0;
    cta.at[x_free::kId] = 1; // use 0 is the zeros that the first product takes
    for (uint32_t hop = 0; hop < job.warmup + job.rounds; ++hop) {
      acquire<x_free>(cta);
      if (kHint)
        look_first(cta, hop);
      constexpr int kVectors = Width / (P == Polling::two ? 8 : 4);
      if constexpr (kTightOne)
        poll_tight<Width / 128>(cta, words::kId, set_of<X>(cta, 0) + row(cta, hop) * Width,
                                cta.smem + Xs::kOffset);
      else if (!kChunks)
        poll_block<words>(cta, row(cta, hop), 1, 0, kVectors, cta.smem + Xs::kOffset, Xs::kStride);
      if (job.variant && hop >= job.warmup)
        there += platform::now_ns();
      signal<x_full>(cta);
    }
    report(cta, &sample_of(cta)->sum[4], there);
  }

  /// This warp's part of a hop's words is right.
  static MEGALITH_DEVICE uint32_t check_words(const Cta &cta, uint32_t hop) {
    const int at = (Width / 8) * cta.role_warp + cta.lane % (Width / 8);
    return platform::ld_shared<uint32_t>(Xs::row(cta, 0) + 4 * at) != hop_word(hop, at);
  }

  /// The words of a hop, for this warp.
  static MEGALITH_DEVICE void take_words(Cta &cta, const Job &job, uint32_t hop) {
    constexpr int kMine = Width / 8;
    if (!kAlone)
      wait<x_full>(cta);
    if constexpr (kEmitted) {
      // poll_chunk, of rows of this hop's own.
      constexpr int kVectors = kMine / 4, kItems = RowCount * kVectors, kEach = (kItems + 31) / 32;
      const uint32_t *source = set_of<X>(cta, 0) + row(cta, hop) * Width + kMine * cta.role_warp;
      unsigned char *target = Xs::row(cta, 0) + 4 * kMine * cta.role_warp;
      refill<Xs>(cta);
      if constexpr (detail::kIsInBatches<hop_words, kVectors>)
        detail::poll_chunk_rows<
            detail::ChunkShape<platform::Scope::gpu, Width, Xs::kStride, RowCount, kVectors>>(
            cta.args, source, target, cta.lane, words::kId, cta.n);
      else
        gather_words<words, (kEach < 8 ? kEach : 8)>(
            cta, kItems, source, [&](int i) { return i / kVectors * (Width / 4) + i % kVectors; },
            [&](int i, const u32x4 &v) {
              platform::st_shared(target + i / kVectors * Xs::kStride + 16 * (i % kVectors), v);
            });
      platform::warp_sync();
    } else if constexpr (kTight) {
      poll_tight<kMine / 128>(cta, words::kId,
                              set_of<X>(cta, 0) + row(cta, hop) * Width + kMine * cta.role_warp,
                              cta.smem + Xs::kOffset + 4 * kMine * cta.role_warp, job.pause);
      platform::warp_sync();
    } else if (kChunks) {
      poll_block<words>(cta, row(cta, hop), 1, kMine * cta.role_warp, kMine / 4,
                        cta.smem + Xs::kOffset + 4 * kMine * cta.role_warp, Xs::kStride);
      platform::warp_sync();
    }
  }

  /// A product, and its chunk sums for the epilogue. Returns wrong words of the stage's first
  /// piece, which another warp looks at each time; what it saw is judged when nobody waits for it.
  static MEGALITH_DEVICE uint32_t multiply(Cta &cta, const Job &job, const Column &column,
                                           uint32_t hop) {
    const bool looks = job.burst && cta.role_warp == static_cast<int>(hop % kConsumerWarps);
    const uint32_t at = cta.lane * (job.piece / 128);
    uint32_t seen = 0;
    ChunkSum sum = {};
    for (uint32_t i = 0; i < job.burst; ++i) {
      const int slot = wait<w_full>(cta);
      if (i == 0 && looks)
        seen = platform::ld_shared<uint32_t>(R::slot(cta, slot) + 4 * at);
      gemv_block<Layer, R>(cta, sum, slot, 0, i % Layer::kBlocks, column);
      release<w_free>(cta);
    }
    if (job.burst == 0)
      gemv_block<Layer, Resident>(cta, sum, 0, 0, 0, column);
    const int place = acquire<p_free>(cta);
    store_part<Parts>(cta, place, sum);
    signal<p_full>(cta);
    if (!looks)
      return 0;
    const Walker first = {hop * job.burst, hop, 0};
    return seen != pattern_word(uint64_t{first.piece(job, cta.sm)} * (job.piece / 4) + at);
  }

  static MEGALITH_DEVICE void consumer(Cta &cta) {
    const Job job = job_of(cta);
    const Column column = dense_column<Layer, Xs>(cta);
    const bool first = cta.role_warp == 0 && cta.lane == 0;
    uint32_t wrong = 0;
    uint64_t begin = 0, taken = 0, multiplied = 0, all = 0;
    uint32_t round = platform::clock(), handed = 0;
    const uint32_t hops = job.warmup + job.rounds;
    // Product `hop` needs the words of the hop before and makes its own; the one past the last
    // hop only takes the words.
    for (uint32_t hop = 0; hop <= hops; ++hop) {
      if (hop > 0) {
        take_words(cta, job, hop - 1);
        if (job.variant && hop > job.warmup)
          taken += platform::now_ns();
        if (hop == job.warmup) {
          multiplied = all = handed = 0;
          round = platform::clock();
          begin = platform::now_ns();
          if (first)
            platform::st_shared(cta.smem + kDone, uint32_t{1});
        }
      }
      const uint32_t there = platform::clock();
      if (hop < hops)
        wrong += multiply(cta, job, column, hop);
      const uint32_t now = platform::clock();
      multiplied += now - there;
      handed += hop < hops ? now : 0;
      all += now - round;
      round = now;
      if (hop > 0)
        wrong += check_words(cta, hop - 1);
      if (!kAlone)
        release<x_free>(cta);
      else
        platform::warp_sync();
    }
    const uint64_t end = platform::now_ns();
    if (first)
      platform::st_shared(cta.smem + kDone, uint32_t{2});
    if (cta.role_warp == 0) {
      report(cta, &sample_of(cta)->begin, begin);
      report(cta, &sample_of(cta)->end, end);
      report(cta, &sample_of(cta)->sum[1], taken);
      if (kEmitted) {
        report(cta, &sample_of(cta)->sum[5], multiplied);
        report(cta, &sample_of(cta)->sum[7], all);
      }
    }
    if (kEmitted && cta.lane == 0)
      platform::red_add_relaxed<platform::Scope::gpu>(
          reinterpret_cast<uint32_t *>(&sample_of(cta)->sum[4]), handed);
    report_wrong(cta, wrong);
  }

  static MEGALITH_DEVICE void epilogue(Cta &cta) {
    const Job job = job_of(cta);
    uint64_t summed = 0, published = 0, clocks = 0;
    uint32_t had = 0;
    cta.at[x_free::kId] = 1; // as the poller's
    for (uint32_t hop = 0; hop < job.warmup + job.rounds; ++hop) {
      const int place = wait<p_full>(cta);
      const bool stamp = job.variant && hop >= job.warmup;
      if (stamp)
        summed += platform::now_ns();
      const uint32_t there = platform::clock();
      had += hop >= job.warmup ? there : 0;
      const Fragment sum = sum_chunks<Parts>(cta, place);
      release<p_free>(cta);
      const uint32_t made = pair_word(sum.v[0], sum.v[2]) & job.mask;
      for (int i = cta.lane; i < kShare * Copies * RowCount; i += 32) {
        const int at = cta.sm * kShare + i % kShare;
        publish<words>(cta, hop * Copies * RowCount + i / kShare, at, hop_word(hop, at) ^ made);
      }
      if (hop >= job.warmup)
        clocks += platform::clock() - there;
      if (stamp)
        published += platform::now_ns();
      if (kHint) {
        platform::warp_sync();
        if (cta.lane == 0)
          platform::red_add_relaxed<platform::Scope::gpu>(
              static_cast<uint32_t *>(cta.args.buffer[kCounters]), 1);
      }
      if (P == Polling::two) {
        acquire<x_free>(cta);
        constexpr int kHalf = Width / 2;
        poll_block<words>(cta, row(cta, hop), 1, kHalf, kHalf / 4,
                          cta.smem + Xs::kOffset + 4 * kHalf, Xs::kStride);
        signal<x_full>(cta);
      }
    }
    report(cta, &sample_of(cta)->sum[2], kEmitted ? had : summed);
    report(cta, &sample_of(cta)->sum[3], published);
    if (kEmitted)
      report(cta, &sample_of(cta)->sum[6], clocks);
  }

  static MEGALITH_DEVICE void run(const LaunchArgs &args) {
    Cta cta(args);
    // What the first product multiplies, and the resident piece.
    for (int i = 32 * cta.warp + cta.lane; i < Xs::kPadded / 8; i += kThreadsPerCta)
      platform::st_shared(Xs::row(cta, 0) + 16 * i, u32x4{0, 0, 0, 0});
    for (int i = 32 * cta.warp + cta.lane; i < int(kPieceBytes / 16); i += kThreadsPerCta)
      platform::st_shared(Resident::slot(cta, 0) + 16 * i, u32x4{0, 0, 0, 0});
    if (cta.warp == 0 && cta.lane == 0)
      platform::st_shared(cta.smem + kDone, uint32_t{0});
    platform::fence_proxy_async();
    setup<w_full, w_free, x_full, x_free, p_full, p_free>(cta);
    switch (cta.role) {
    case Role::producer:
      return producer(cta);
    case Role::poller:
      return poller(cta);
    case Role::consumer:
      return consumer(cta);
    case Role::epilogue:
      return epilogue(cta);
    }
  }
};

} // namespace megalith::calibrate
