// What a machine of full size costs. Limits are several times what an idle core needs, so that
// only a change of kind fails; the numbers themselves are printed by
//   bazel run //tests/runtime/host:speed_test -- -s
#include "codegen/device/platform.cuh"
#include "runtime/host/machine.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>

using namespace megalith;
using namespace megalith::platform;

MEGALITH_KERNEL(many_syncs) {
  for (int i = 0; i < args.layer; ++i)
    warp_sync();
}

MEGALITH_KERNEL(streams) {
  // 8 consumer warps multiply args.layer pieces of 16 KB, streamed through 4 slots.
  auto bar = [](int i) { return reinterpret_cast<uint64_t *>(smem() + 8 * i); };
  unsigned char *ring = smem() + 1024, *acts = ring + 65536;
  if (warp() == 0 && lane() == 0)
    for (int slot = 0; slot < 4; ++slot) {
      mbarrier_init(bar(slot), 1);
      mbarrier_init(bar(4 + slot), 8);
    }
  if (warp() == 1)
    for (int i = 0; i < 1024; ++i)
      st_shared<uint32_t>(acts + i * 4, 0x3F803F80u);
  cta_sync();
  float acc[1][4] = {};
  for (int p = 0; p < args.layer; ++p) {
    int slot = p % 4, use = p / 4;
    if (warp() == 0) {
      while (!mbarrier_try_wait(bar(4 + slot), (use & 1) ^ 1)) {
      }
      if (lane() == 0) {
        mbarrier_arrive_expect_tx(bar(slot), 16384);
        cp_async_bulk(ring + slot * 16384, args.buffer[0], 16384, bar(slot));
      }
      warp_sync();
    } else if (warp() >= 2 && warp() < 10) {
      while (!mbarrier_try_wait(bar(slot), use & 1)) {
      }
      mma_k_loop(acc, {4, ring + slot * 16384 + (warp() - 2) * 2048 + lane() * 16, 0, 0, 512, true,
                       acts + lane() * 8, 256, true});
      warp_sync();
      if (lane() == 0)
        mbarrier_arrive(bar(4 + slot));
    }
  }
  if (warp() >= 2 && warp() < 10)
    st_global(static_cast<float *>(args.buffer[1]) + warp() * 32 + lane(), acc[0][0]);
}

static host::RunReport timed(host::Machine &machine, const host::Launch &launch, double &seconds) {
  auto start = std::chrono::steady_clock::now();
  llvm::Expected<host::RunReport> report = machine.run(launch);
  seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!report)
    FAIL(llvm::toString(report.takeError()));
  return *report;
}

TEST_CASE("a switch of threads takes well under a microsecond") {
  host::Options options;
  options.sms = 1;
  host::Machine machine(options);
  LaunchArgs args = {};
  args.layer = 20000;
  double seconds;
  host::RunReport report = timed(machine, {&megalith_kernel_many_syncs, args}, seconds);
  REQUIRE(report.collectives == 11 * 20000);
  double ns = seconds / static_cast<double>(report.switches) * 1e9;
  std::printf("%.1f ns a switch within a warp\n", ns);
  CHECK(ns < 500);
}

TEST_CASE("132 SMs of 352 threads stream weights within 2 GB") {
  host::Options options;
  options.sms = 132;
  host::Machine machine(options);
  std::vector<uint32_t> piece(4096, 0x3F803F80u);
  std::vector<float> out(320);
  machine.registerBuffer(piece.data(), 16384, "piece", host::Access::read);
  machine.registerBuffer(out.data(), out.size() * 4, "out");
  LaunchArgs args = {};
  args.layer = 20;
  args.buffer[0] = piece.data();
  args.buffer[1] = out.data();
  double seconds;
  host::RunReport report = timed(machine, {&megalith_kernel_streams, args}, seconds);
  for (int i = 64; i < 320; ++i)
    REQUIRE(out[static_cast<size_t>(i)] == 20 * 64);
  std::ifstream status("/proc/self/status");
  std::string word;
  long peak_kb = 0;
  while (status >> word)
    if (word == "VmHWM:")
      status >> peak_kb;
  std::printf("%.2f s for %d pieces of 16 KB, %.0f ns a switch, %ld MB at most\n", seconds,
              132 * args.layer, seconds / static_cast<double>(report.switches) * 1e9,
              peak_kb / 1024);
  CHECK(peak_kb > 0);
  CHECK(peak_kb < 2 << 20);
  CHECK(seconds < 30);
}
