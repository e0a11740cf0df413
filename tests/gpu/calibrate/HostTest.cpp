//===- HostTest.cpp - The calibration kernels on the host platform --------===//
//
// Small, under several seeds of the adversarial machine: no deadlock, no fault, every piece and
// every word what it has to be. Times mean nothing here.
//
//===----------------------------------------------------------------------===//

#include "runtime/host/machine.h"
#include "tests/gpu/calibrate/job.h"

#include "llvm/Support/Error.h"

#include <catch2/catch.hpp>

#include <vector>

using namespace megalith;
using namespace megalith::calibrate;

#define KERNEL(NAME) extern "C" const host::KernelRecord megalith_kernel_##NAME;
KERNEL(calibrate_fill)
KERNEL(calibrate_read)
KERNEL(calibrate_restart)
KERNEL(calibrate_pair)
KERNEL(calibrate_reds)
KERNEL(calibrate_peer_hops)
KERNEL(calibrate_signals)
KERNEL(calibrate_drain_16k)
KERNEL(calibrate_drain_12k)
KERNEL(calibrate_drain_8x768)
KERNEL(calibrate_drain_nvfp4)
KERNEL(calibrate_norm_2048)
KERNEL(calibrate_norm_4096)
KERNEL(calibrate_topk_64)
KERNEL(calibrate_topk_128)
KERNEL(calibrate_topk_256)
KERNEL(calibrate_topk_512)
KERNEL(boundary)
KERNEL(route)
KERNEL(gather)
KERNEL(own_records)
KERNEL(own_heads)
KERNEL(own_rows)
KERNEL(hop_one)
KERNEL(hop_hint)
KERNEL(hop_two)
KERNEL(hop_chunks)
KERNEL(hop_chunks_hint)
KERNEL(hop_copies)
KERNEL(hop_tight)
KERNEL(hop_tight_one)
KERNEL(hop_tight_hint)
KERNEL(route_tight)
KERNEL(hop_emitted)
KERNEL(hop_emitted_batches)
KERNEL(sweep)
KERNEL(dense_rows1)
KERNEL(dense_rows8)
KERNEL(attention_rows1)
KERNEL(attention_rows8)
KERNEL(stream_rows)
#undef KERNEL

namespace {

constexpr int kSms = 4, kLaunches = 5;
constexpr uint64_t kSeeds = 4;

/// The buffers of a calibration kernel, as the session sets them up.
struct Bench {
  std::vector<uint32_t> data, words = std::vector<uint32_t>(1 << 18, 0xFFFFFFFF),
                              counters = std::vector<uint32_t>(1 << 12);
  std::vector<Sample> samples = std::vector<Sample>(kSms * kLaunches);
  StepDescriptor steps[kSteps];
  OneFault fault;

  explicit Bench(uint32_t pieces) : data(pieces * (kPieceBytes / 4)) {
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = pattern_word(i);
    describe(steps);
  }

  /// `launches` programmatic launches.
  llvm::Error run(const host::KernelRecord &kernel, Job job, uint64_t seed, int launches = 1) {
    host::Machine machine({.sms = kSms, .seed = seed});
    job.sms = kSms;
    job.pieces = job.piece ? uint32_t(4 * data.size() / job.piece) : 0;
    const auto buffer = [&](auto &v, const char *name) {
      machine.registerBuffer(v.data(), v.size() * sizeof(v[0]), name);
    };
    machine.registerBuffer(&job, sizeof job, "job", host::Access::read);
    machine.registerBuffer(steps, sizeof steps, "step", host::Access::read);
    buffer(samples, "samples");
    buffer(data, "data");
    buffer(words, "words");
    buffer(counters, "counters");
    LaunchArgs args = {};
    args.step = steps;
    args.fault = &fault.table;
    void *const buffers[] = {&job, samples.data(), data.data(), words.data(), counters.data()};
    std::copy(std::begin(buffers), std::end(buffers), args.buffer);
    if (job.zeros)
      std::fill(words.begin(), words.end(), 0);
    std::vector<host::Launch> chain;
    for (int i = 0; i < launches; ++i) {
      args.launch_in_step = uint32_t(i);
      chain.push_back({&kernel, args});
    }
    return machine.run(chain).takeError();
  }
};

/// Runs the kernel; `sms` of its SMs have a sample.
void check(const host::KernelRecord &kernel, const Job &job, uint64_t pieces, int sms = kSms) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    INFO(kernel.name << ", seed " << seed);
    Bench bench(16);
    if (auto error = bench.run(kernel, job, seed))
      FAIL(llvm::toString(std::move(error)));
    for (int sm = 0; sm < sms; ++sm) {
      const Sample &sample = bench.samples[size_t(sm)];
      CHECK(sample.wrong == 0);
      CHECK(sample.end >= sample.begin);
      CHECK(sample.begin > 0);
      CHECK(sample.pieces == pieces);
    }
  }
}

} // namespace

TEST_CASE("the fill kernel writes the pattern that the others expect", "[calibrate]") {
  Bench bench(2);
  const std::vector<uint32_t> right = bench.data;
  std::fill(bench.data.begin(), bench.data.end(), 0);
  REQUIRE(!bench.run(megalith_kernel_calibrate_fill, {.piece = kPieceBytes}, 1));
  CHECK(bench.data == right);
}

TEST_CASE("streams take what they asked for, in order", "[calibrate]") {
  for (uint32_t window : {1u, 3u, 12u})
    check(megalith_kernel_calibrate_read,
          {.rounds = 40, .window = window, .piece = kPieceBytes, .burst = 1}, 40);
  for (uint32_t walk : {kInTurn, kExperts, kStray})
    check(megalith_kernel_calibrate_restart,
          {.rounds = 6, .warmup = 1, .piece = 4096, .burst = 5, .ahead = 1, .walk = walk}, 30);
}

TEST_CASE("a wrong word in the data is found", "[calibrate]") {
  Bench bench(16);
  bench.data[5 * (kPieceBytes / 4) + 3 * 128] ^= 1; // a word that lane 3 looks at
  REQUIRE(!bench.run(megalith_kernel_calibrate_read,
                     {.rounds = 4, .window = 2, .piece = kPieceBytes, .burst = 1}, 1));
  uint64_t wrong = 0;
  for (const Sample &sample : bench.samples)
    wrong += sample.wrong;
  CHECK(wrong == 1);
}

TEST_CASE("every hop brings every word, whoever polls", "[calibrate]") {
  for (const auto *kernel :
       {&megalith_kernel_hop_one, &megalith_kernel_hop_hint, &megalith_kernel_hop_two,
        &megalith_kernel_hop_chunks, &megalith_kernel_hop_chunks_hint, &megalith_kernel_hop_copies,
        &megalith_kernel_hop_tight, &megalith_kernel_hop_tight_one, &megalith_kernel_hop_tight_hint,
        &megalith_kernel_hop_emitted, &megalith_kernel_hop_emitted_batches}) {
    check(*kernel, {.rounds = 12, .warmup = 2, .piece = 2048}, 0);
    check(*kernel, {.rounds = 6, .warmup = 2, .window = 3, .piece = kPieceBytes, .burst = 5}, 0);
  }
}

TEST_CASE("of a hop as emitted the rest is told, and is less than it", "[calibrate]") {
  Bench bench(16);
  REQUIRE(!bench.run(megalith_kernel_hop_emitted, {.rounds = 12, .warmup = 2, .piece = 2048}, 1));
  for (int sm = 0; sm < kSms; ++sm) {
    const Sample &sample = bench.samples[size_t(sm)];
    CHECK(sample.sum[5] > 0);
    CHECK(sample.sum[6] > 0);
    CHECK(sample.sum[5] + sample.sum[6] < sample.sum[7]);
  }
}

TEST_CASE("consumers' own hops bring what was sent, beside a stream or alone", "[calibrate]") {
  for (const auto *kernel :
       {&megalith_kernel_own_records, &megalith_kernel_own_heads, &megalith_kernel_own_rows})
    for (uint64_t seed = 1; seed <= kSeeds; ++seed)
      for (uint32_t window : {0u, 2u}) {
        INFO(kernel->name << ", seed " << seed << ", window " << window);
        Bench bench(16);
        if (auto error = bench.run(
                *kernel, {.rounds = 12, .warmup = 2, .window = window, .piece = 2048}, seed))
          FAIL(llvm::toString(std::move(error)));
        for (int sm = 0; sm < kSms; ++sm) {
          const Sample &sample = bench.samples[size_t(sm)];
          CHECK(sample.wrong == 0);
          CHECK(sample.end >= sample.begin);
          CHECK(sample.sum[5] <= sample.sum[7]);
          CHECK((sample.pieces > 0) == (window > 0));
        }
      }
}

TEST_CASE("launches hand their words over, however they overlap", "[calibrate]") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    INFO("seed " << seed);
    Bench bench(16);
    if (auto error = bench.run(megalith_kernel_boundary,
                               {.rounds = 3, .piece = kPieceBytes, .burst = 4}, seed, kLaunches))
      FAIL(llvm::toString(std::move(error)));
    for (const Sample &sample : bench.samples) {
      CHECK(sample.wrong == 0);
      CHECK(sample.sum[0] >= sample.begin); // a piece landed,
      CHECK(sample.sum[1] >= sample.begin); // the words came
      CHECK(sample.end >= sample.sum[1]);
    }
  }
}

TEST_CASE("routing and merging hops bring what was sent, and the right experts", "[calibrate]") {
  check(megalith_kernel_route, {.rounds = 8, .warmup = 2, .piece = 2048, .burst = 3}, 0);
  check(megalith_kernel_route_tight, {.rounds = 8, .warmup = 2, .piece = 2048, .burst = 1}, 0);
  check(megalith_kernel_gather, {.rounds = 12, .warmup = 2}, 0);
}

TEST_CASE("pairs, additions and units end and are right", "[calibrate]") {
  for (uint32_t variant : {kFlag, kWord, kWholeSector})
    for (uint32_t stride : {0u, 256u})
      check(megalith_kernel_calibrate_pair,
            {.rounds = 20, .warmup = 2, .stride = stride, .variant = variant, .zeros = 1}, 0, 2);
  check(megalith_kernel_calibrate_reds, {.rounds = 50}, 0);
  // By itself: one machine has no second GPU's memory.
  check(megalith_kernel_calibrate_peer_hops,
        {.rounds = 20, .warmup = 2, .stride = 1024, .variant = 1}, 0);
  for (uint32_t variant : {0u, 1u})
    for (const auto *kernel :
         {&megalith_kernel_calibrate_signals, &megalith_kernel_calibrate_drain_16k,
          &megalith_kernel_calibrate_drain_12k, &megalith_kernel_calibrate_drain_8x768,
          &megalith_kernel_calibrate_drain_nvfp4})
      check(*kernel, {.rounds = 20, .warmup = 2, .variant = variant}, 0, 1);
  for (const auto *kernel :
       {&megalith_kernel_calibrate_norm_2048, &megalith_kernel_calibrate_norm_4096,
        &megalith_kernel_calibrate_topk_64, &megalith_kernel_calibrate_topk_128,
        &megalith_kernel_calibrate_topk_256, &megalith_kernel_calibrate_topk_512})
    check(*kernel, {.rounds = 3, .warmup = 1}, 0);
}

TEST_CASE("a poller sweeps words that are there, beside a stream or alone", "[calibrate]") {
  for (uint64_t seed = 1; seed <= 2 * kSeeds; ++seed)
    for (uint32_t window : {0u, 2u}) {
      const uint32_t epochs = seed > kSeeds; // else rows of words
      INFO("seed " << seed << ", window " << window);
      Bench bench(16);
      Job job = {
          .rounds = 8, .warmup = 2, .window = window, .burst = 3, .variant = epochs, .zeros = 1};
      job.piece = window ? 2048 : 0;
      if (auto error = bench.run(megalith_kernel_sweep, job, seed))
        FAIL(llvm::toString(std::move(error)));
      for (int sm = 0; sm < kSms; ++sm) {
        const Sample &sample = bench.samples[size_t(sm)];
        CHECK(sample.wrong == 0);
        CHECK(sample.end >= sample.begin);
        CHECK((sample.pieces > 0) == (window > 0));
      }
    }
}

TEST_CASE("parts of stages end, and each has its time", "[calibrate]") {
  const int dense[] = {1, 2, 3, 6, 2}; // parts of kNormParts .. kEntryParts
  for (const auto *kernel : {&megalith_kernel_dense_rows1, &megalith_kernel_dense_rows8})
    for (uint32_t what = 0; what < 5; ++what) {
      Bench bench(16);
      if (auto error = bench.run(*kernel, {.rounds = 4, .warmup = 1, .stride = what}, what))
        FAIL(llvm::toString(std::move(error)));
      for (int sm = 0; sm < kSms; ++sm) {
        const Sample &sample = bench.samples[size_t(sm)];
        CHECK(sample.wrong == 0);
        CHECK(sample.sum[7] > 0);
        uint64_t parts = 0;
        for (int i = 0; i < 6; ++i) {
          parts += sample.sum[i];
          if (i >= dense[what])
            CHECK(sample.sum[i] == 0);
        }
        CHECK(parts <= sample.sum[7]);
      }
    }
  for (const auto *kernel : {&megalith_kernel_attention_rows1, &megalith_kernel_attention_rows8}) {
    for (uint32_t pieces : {0u, 1u, 9u})
      for (uint32_t walk : {0u, 1u})
        check(*kernel,
              {.rounds = 3, .warmup = 1, .burst = pieces, .walk = walk, .stride = kAttentionParts},
              0);
    check(*kernel, {.rounds = 3, .warmup = 1, .burst = 5, .stride = kMergeTile}, 0);
    check(*kernel, {.rounds = 1, .piece = kPieceBytes, .stride = kOpenParts}, 0);
  }
  for (uint32_t splits : {2u, 4u, 8u})
    check(megalith_kernel_attention_rows8,
          {.rounds = 3,
           .warmup = 1,
           .window = splits,
           .burst = 8,
           .walk = 1,
           .stride = kAttentionParts},
          0);
  check(megalith_kernel_stream_rows, {.rounds = 3, .warmup = 1, .stride = kStreamParts, .zeros = 1},
        0);
}
