// Chained launches, seeds, and one source for both platforms.
#include "codegen/device/platform.cuh"
#include "runtime/host/load.h"
#include "tests/runtime/host/harness.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

using namespace megalith;
using namespace megalith::platform;
using Catch::Matchers::Contains;
using megalith::test::Harness;

static uint32_t *data(const LaunchArgs &args) {
  return static_cast<uint32_t *>(args.buffer[0]);
}

// Launch n stores n + 1 at its SM's word and looks at what the next SM's launch n - 1 stored.
template <bool waits> static void chain(const LaunchArgs &args) {
  if (warp() != 1 || lane() != 0)
    return;
  uint32_t n = args.launch_in_step;
  launch_dependents();
  if (waits)
    launch_wait();
  uint32_t seen = ld_global<uint32_t>(data(args) + 64 * n + (sm() + 1) % 4);
  if (n > 0 && seen != n)
    st_global<uint32_t>(data(args) + 2048 + n, 1);
  st_global<uint32_t>(data(args) + 64 * (n + 1) + sm(), n + 1);
}
MEGALITH_KERNEL(chain_waits) {
  chain<true>(args);
}
MEGALITH_KERNEL(chain_hurries) {
  chain<false>(args);
}

TEST_CASE("launches overlap, two at most, and launch_wait orders them") {
  Harness h(4, 2);
  int early = 0, two = 0, wrong = 0, hurried = 0;
  auto bad = [&] {
    for (int n = 0; n < 6; ++n)
      if (h.data[2048 + static_cast<size_t>(n)])
        return true;
    return false;
  };
  h.count(
      megalith_kernel_chain_waits, 100,
      [&] {
        early += h.report.early_starts > 0;
        two += h.report.max_overlap == 2;
        REQUIRE(h.report.max_overlap <= 2);
        wrong += bad();
        return true;
      },
      6);
  CHECK(early > 0);
  CHECK(two > 0);
  CHECK(wrong == 0);
  h.count(
      megalith_kernel_chain_hurries, 100,
      [&] {
        REQUIRE(h.report.max_overlap <= 2);
        hurried += bad();
        return true;
      },
      6);
  CHECK(hurried > 0);
}

MEGALITH_KERNEL(never_triggers) {
  if (warp() == 1) {
    launch_wait();
    if (lane() == 0)
      red_add_relaxed<Scope::gpu>(data(args), 1);
  }
}

TEST_CASE("without a trigger a launch starts after the previous one") {
  Harness h(4);
  CHECK(h.count(
            megalith_kernel_never_triggers, 20,
            [&] { return h.report.max_overlap == 1 && h.data[0] == 12; }, 3) == 20);
}

TEST_CASE("a seed decides everything") {
  Harness h(4), again(4);
  std::set<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    REQUIRE(h.run(megalith_kernel_chain_hurries, seed, 5) == "");
    REQUIRE(again.run(megalith_kernel_chain_hurries, seed, 5) == "");
    CHECK(h.report.trace_hash == again.report.trace_hash);
    CHECK(h.data == again.data);
    hashes.insert(h.report.trace_hash);
  }
  CHECK(hashes.size() == 20);
}

TEST_CASE("the producer/consumer kernel, compiled from its file, is right under every seed") {
  const char *temporary = getenv("TEST_TMPDIR");
  std::string output = std::string(temporary ? temporary : "/tmp") + "/producer_consumer.so";
  llvm::Expected<host::KernelLibrary> library =
      host::KernelLibrary::compile("tests/runtime/host/producer_consumer.cu", ".", output);
  if (!library)
    FAIL(llvm::toString(library.takeError()));
  llvm::Expected<const host::KernelRecord *> kernel = library->kernel("producer_consumer");
  if (!kernel)
    FAIL(llvm::toString(kernel.takeError()));
  llvm::Expected<const host::KernelRecord *> missing = library->kernel("other");
  REQUIRE_FALSE(static_cast<bool>(missing));
  CHECK_THAT(llvm::toString(missing.takeError()), Contains("no kernel 'other'"));

  constexpr int kSms = 3, kLaunches = 5, kPieces = 6;
  std::vector<uint16_t> weights(kSms * kPieces * 8192), acts(kPieces * 8 * 4 * 128);
  uint32_t state = 1;
  for (auto *values : {&weights, &acts})
    for (uint16_t &v : *values) {
      state = state * 1664525 + 1013904223;
      v = r16((static_cast<float>(state >> 24) - 127.5f) / 64).bits;
    }
  // What every SM collects: the sum over SMs, warps, pieces and steps, in doubles. Word i * 32 +
  // lane is accumulator i of the lane.
  std::vector<double> want(128);
  for (int sm = 0; sm < kSms; ++sm)
    for (int p = 0; p < kPieces; ++p)
      for (int w = 0; w < 8; ++w)
        for (int s = 0; s < 4; ++s)
          for (int g = 0; g < 8; ++g)
            for (int column = 0; column < 8; ++column)
              for (int half = 0; half < 2; ++half)
                for (int k = 0; k < 16; ++k) {
                  auto value = [](uint16_t bits) { return double{to_float(bf16{bits})}; };
                  int a_lane = g * 4 + k / 4, b_lane = column * 4 + k / 4, j = k % 4;
                  // The kernel reads units swapped in pairs.
                  int unit = ((sm * kPieces + p) * 8 + w) * 4 + (s ^ 1);
                  double a = value(weights[static_cast<size_t>((unit * 32 + a_lane) * 8 +
                                                               (j / 2) * 4 + half * 2 + j % 2)]);
                  double b = value(
                      acts[static_cast<size_t>((((p * 8 + w) * 4 + s) * 32 + b_lane) * 4 + j)]);
                  int word = (half * 2 + column % 2) * 32 + g * 4 + column / 2;
                  want[static_cast<size_t>(word)] += a * b;
                }
  for (int chaos = 0; chaos <= 2; ++chaos) {
    host::Options options = Harness::options(kSms, chaos);
    options.smem_bytes = 160 << 10;
    host::Machine machine(options);
    std::vector<uint32_t> words(2 * kSms * 128);
    std::vector<float> out(kLaunches * kSms * 128), first;
    machine.registerBuffer(weights.data(), weights.size() * 2, "weights", host::Access::read);
    machine.registerBuffer(acts.data(), acts.size() * 2, "activations", host::Access::read);
    machine.registerBuffer(words.data(), words.size() * 4, "words");
    machine.registerBuffer(out.data(), out.size() * 4, "out");
    std::vector<host::Launch> launches;
    for (uint32_t n = 0; n < kLaunches; ++n) {
      LaunchArgs args = {};
      args.layer = kSms;
      args.launch_in_step = n;
      args.deadline_ns = 2'000'000'000;
      args.buffer[0] = weights.data();
      args.buffer[1] = acts.data();
      args.buffer[2] = words.data();
      args.buffer[3] = out.data();
      launches.push_back({*kernel, args});
    }
    for (uint64_t seed = 1; seed <= 15; ++seed) {
      std::fill(words.begin(), words.end(), 0xFFFFFFFFu);
      host::poison(out.data(), out.size() * 4);
      machine.reseed(seed);
      llvm::Expected<host::RunReport> report = machine.run(launches);
      if (!report)
        FAIL(llvm::toString(report.takeError()));
      if (first.empty())
        first = out;
      REQUIRE(memcmp(first.data(), out.data(), out.size() * 4) == 0);
    }
    for (size_t i = 0; i < out.size(); ++i)
      // The poller's float i * 4 + j of lane l is word 4 l + j.
      REQUIRE(out[i] == Approx(want[i % 128]).epsilon(1e-4).margin(1e-3));
  }
}
