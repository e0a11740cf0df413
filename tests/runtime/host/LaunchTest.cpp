// Chained launches, seeds, and a kernel from its file, with and without mistakes.
#include "codegen/device/platform.cuh"
#include "runtime/host/load.h"
#include "tests/runtime/host/harness.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
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

namespace {

/// Compiles producer_consumer.cu, perhaps changed, and runs it over seeds.
class ProducerConsumer {
public:
  static constexpr int kSms = 3, kLaunches = 5, kPieces = 6;

  ProducerConsumer() : weights(kSms * kPieces * 8192), acts(kPieces * 8 * 4 * 128), want(128) {
    uint32_t state = 1;
    for (auto *values : {&weights, &acts})
      for (uint16_t &v : *values) {
        state = state * 1664525 + 1013904223;
        v = r16((static_cast<float>(state >> 24) - 127.5f) / 64).bits;
      }
    // What every SM collects: the sum over SMs, pieces, warps and steps. Word i * 32 + lane is
    // accumulator i of the lane.
    auto value = [](uint16_t bits) { return double{to_float(bf16{bits})}; };
    for (int sm = 0; sm < kSms; ++sm)
      for (int step = 0; step < kPieces * 8 * 4; ++step)
        for (int g = 0; g < 8; ++g)
          for (int column = 0; column < 8; ++column)
            for (int half = 0; half < 2; ++half)
              for (int k = 0; k < 16; ++k) {
                int a_lane = g * 4 + k / 4, b_lane = column * 4 + k / 4, j = k % 4;
                int unit = sm * kPieces * 32 + (step ^ 1); // the kernel swaps units in pairs
                double a = value(weights[static_cast<size_t>((unit * 32 + a_lane) * 8 +
                                                             (j / 2) * 4 + half * 2 + j % 2)]);
                double b = value(acts[static_cast<size_t>((step * 32 + b_lane) * 4 + j)]);
                want[static_cast<size_t>((half * 2 + column % 2) * 32 + g * 4 + column / 2)] +=
                    a * b;
              }
  }

  /// Replaces `from` (which must occur) by `to` in the source, runs `seeds` seeds and returns what
  /// is wrong with the first that is, or "".
  std::string run(const std::string &from, const std::string &to, int chaos, int seeds) {
    std::ifstream file("tests/runtime/host/producer_consumer.cu");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    if (!from.empty()) {
      size_t at = text.find(from);
      if (at == std::string::npos)
        throw std::runtime_error("producer_consumer.cu has no '" + from + "'");
      text.replace(at, from.size(), to);
    }
    const char *temporary = getenv("TEST_TMPDIR");
    std::string base = std::string(temporary ? temporary : "/tmp") + "/producer_consumer";
    std::ofstream(base + ".cu") << text;
    llvm::Expected<host::KernelLibrary> library =
        host::KernelLibrary::compile(base + ".cu", ".", base + ".so");
    if (!library)
      throw std::runtime_error(llvm::toString(library.takeError()));
    llvm::Expected<const host::KernelRecord *> kernel = library->kernel("producer_consumer");
    if (!kernel)
      throw std::runtime_error(llvm::toString(kernel.takeError()));
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
    for (int seed = 1; seed <= seeds; ++seed) {
      std::fill(words.begin(), words.end(), 0xFFFFFFFFu);
      host::poison(out.data(), out.size() * 4);
      machine.reseed(static_cast<uint64_t>(seed));
      llvm::Expected<host::RunReport> report = machine.run(launches);
      if (!report)
        return llvm::toString(report.takeError());
      for (size_t i = 0; i < out.size(); ++i)
        if (out[i] != Approx(want[i % 128] * static_cast<double>(i / (kSms * 128) + 1))
                          .epsilon(1e-4)
                          .margin(1e-2))
          return "wrong result";
      if (first.empty())
        first = out;
      if (memcmp(first.data(), out.data(), out.size() * 4) != 0)
        return "different bits";
    }
    return "";
  }

private:
  std::vector<uint16_t> weights, acts;
  std::vector<double> want;
};

} // namespace

TEST_CASE("the producer/consumer kernel, compiled from its file, is right under every seed") {
  ProducerConsumer kernel;
  for (int chaos = 0; chaos <= 2; ++chaos)
    CHECK(kernel.run("", "", chaos, 20) == "");
}

TEST_CASE("each synchronisation left out of it is noticed under some seed") {
  ProducerConsumer kernel;
  struct Mutant {
    const char *from, *to, *noticed;
  } mutants[] = {
      {"wait<FullEdge>(args, barrier(kFull, slot), (p / kSlots) & 1, 0);", "", ""},
      {"wait<FreeEdge>(args, barrier(kFree, slot), ((p / kSlots) & 1) ^ 1, 1);", "", ""},
      {"wait<PartEdge>(args, barrier(kPart, 0), 0, 2);", "", ""},
      // The wrong parity: passes before the first copy has landed.
      {"(p / kSlots) & 1, 0);", "((p / kSlots) & 1) ^ 1, 0);", ""},
      {"mbarrier_arrive(barrier(kFree, slot));", ";", "deadlock"},
      {"mbarrier_init(barrier(kFree, slot), 8);", "mbarrier_init(barrier(kFree, slot), 7);", ""},
      {"mbarrier_init(barrier(kPart, 0), 8);", "mbarrier_init(barrier(kPart, 0), 9);", "edge 2"},
      // A warp's lanes stored sums that lane 0 announces.
      {"acc[0][i]);\n  warp_sync();", "acc[0][i]);", ""},
      // Re-arms words that others still poll in the launch before.
      {"launch_wait();\n  uint32_t n", "uint32_t n", ""},
      {"kWords; i += 32)\n    st_relaxed<Scope::gpu>(words(args, (n + 1) % 2, sm()) + i, kEmpty);",
       "0; i += 32) {\n  }", ""},
      {"cta_sync();", "", ""},
  };
  for (const Mutant &m : mutants) {
    INFO(m.from);
    std::string wrong = kernel.run(m.from, m.to, 1, 100);
    CHECK(wrong != "");
    CHECK_THAT(wrong, Contains(m.noticed));
  }
}

TEST_CASE("errors of compiling and loading say what is missing") {
  ProducerConsumer kernel;
  CHECK_THROWS_WITH(kernel.run("produce(args);", "produce(arguments);", 0, 1),
                    Contains("cannot compile") && Contains("arguments"));
  CHECK_THROWS_WITH(
      kernel.run("MEGALITH_KERNEL(producer_consumer)", "MEGALITH_KERNEL(other)", 0, 1),
      Contains("no kernel 'producer_consumer'"));
  llvm::Expected<host::KernelLibrary> missing = host::KernelLibrary::open("missing.so");
  REQUIRE_FALSE(static_cast<bool>(missing));
  CHECK_THAT(llvm::toString(missing.takeError()), Contains("missing.so"));
}
