// Fibers, collectives, barriers, mbarriers, deadlock reports.
#include "codegen/device/platform.cuh"
#include "runtime/host/mma.h"
#include "tests/runtime/host/harness.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace megalith;
using namespace megalith::platform;
using Catch::Matchers::Contains;
using megalith::test::Harness;

static uint32_t *data(const LaunchArgs &args) {
  return static_cast<uint32_t *>(args.buffer[0]);
}
static uint64_t *bar(int i) {
  return reinterpret_cast<uint64_t *>(smem() + 8 * i);
}

MEGALITH_KERNEL(collectives) {
  uint32_t wrong = 0;
  for (int round = 0; round < 5; ++round) {
    int value = warp() * 100 + lane() + round;
    wrong += shfl_xor(value, 5) != warp() * 100 + (lane() ^ 5) + round;
    wrong += shfl(value, (lane() + round) & 31) != warp() * 100 + ((lane() + round) & 31) + round;
    wrong += ballot(lane() % 3 == 0) != 0x49249249u;
    wrong += all_sync(lane() < 31) || !all_sync(lane() < 32) || any_sync(false) ||
             !any_sync(lane() == round);
    double wide = shfl_xor(1.0 + lane(), 1);
    wrong += wide != 1.0 + (lane() ^ 1);
    // What one lane puts into shared memory, others see after warp_sync.
    st_shared(smem() + (warp() * 32 + lane()) * 4, value);
    warp_sync();
    wrong += ld_shared<int>(smem() + (warp() * 32 + (lane() ^ 31)) * 4) !=
             warp() * 100 + (lane() ^ 31) + round;
    cta_sync();
    int other = (warp() + 1) % 11;
    wrong += ld_shared<int>(smem() + (other * 32 + lane()) * 4) != other * 100 + lane() + round;
    cta_sync();
    if (warp() >= 2 && warp() < 10)
      named_barrier(1, 256);
  }
  st_global(data(args) + sm() * 352 + warp() * 32 + lane(), wrong + 7);
}

TEST_CASE("collectives and barriers agree with their definition under every seed") {
  for (int chaos = 0; chaos <= 2; ++chaos) {
    Harness h(3, chaos);
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      REQUIRE(h.run(megalith_kernel_collectives, seed) == "");
      for (int i = 0; i < 3 * 352; ++i)
        REQUIRE(h.data[static_cast<size_t>(i)] == 7);
    }
  }
}

MEGALITH_KERNEL(forgets_warp_sync) {
  if (warp() == 0) {
    st_shared<int>(smem() + lane() * 4, 1 + lane());
    int seen = ld_shared<int>(smem() + (lane() ^ 1) * 4); // needs a warp_sync before
    st_global<int>(data(args) + lane(), seen);
  }
}

TEST_CASE("a missing warp_sync shows as a wrong result") {
  Harness h(1);
  int wrong = h.count(megalith_kernel_forgets_warp_sync, 5, [&] {
    for (uint32_t lane = 0; lane < 32; ++lane)
      if (h.data[lane] != 1 + (lane ^ 1))
        return true;
    return false;
  });
  CHECK(wrong == 5);
}

MEGALITH_KERNEL(diverges) {
  if (warp() == 3) {
    if (lane() < 16)
      warp_sync();
    else
      (void)ballot(true);
  }
}

TEST_CASE("lanes of a warp at different collectives are a fault") {
  Harness h(1);
  CHECK_THAT(h.run(megalith_kernel_diverges, 1),
             Contains("the warp diverges") && Contains("warp 3 (consumer 1)"));
}

TEST_CASE("mma_k_loop multiplies fragments as mma.m16n8k16 does") {
  // A[16][32], B[32][8], two steps; unit (j0 + s) ^ swap of the lane.
  float a[16][32], b[32][8];
  uint32_t state = 1;
  auto small = [&] { return float(int((state = state * 1664525 + 1013904223) >> 28)) - 8; };
  for (auto &row : a)
    for (float &x : row)
      x = small();
  for (auto &row : b)
    for (float &x : row)
      x = small();
  std::vector<uint16_t> as(32 * 4 * 8, 0x7FC1), bs(32 * 2 * 4);
  MmaLoop loops[32];
  float acc[32][4];
  const MmaLoop *in[32];
  float *out[32];
  for (int lane = 0; lane < 32; ++lane) {
    int g = lane / 4, t = lane % 4;
    for (int s = 0; s < 2; ++s)
      for (int j = 0; j < 4; ++j) {
        int k = 16 * s + 4 * t + j;
        uint16_t *unit = &as[static_cast<size_t>((lane * 4 + ((2 + s) ^ 1)) * 8)];
        unit[(j / 2) * 4 + j % 2] = r16(a[g][k]).bits;
        unit[(j / 2) * 4 + 2 + j % 2] = r16(a[g + 8][k]).bits;
        bs[static_cast<size_t>((lane * 2 + s) * 4 + j)] = r16(b[k][g]).bits;
      }
    for (float &x : acc[lane])
      x = 100;
    loops[lane] = {
        2,    reinterpret_cast<unsigned char *>(&as[static_cast<size_t>(lane * 32)]), 2, 1,    16,
        true, reinterpret_cast<unsigned char *>(&bs[static_cast<size_t>(lane * 8)]),  8, g < 6};
    in[lane] = &loops[lane];
    out[lane] = acc[lane];
  }
  REQUIRE(host::mmaKLoop(in, out));
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      int row = lane / 4 + (i / 2) * 8, column = 2 * (lane % 4) + i % 2;
      float want = 100;
      for (int k = 0; k < 32; ++k)
        want += a[row][k] * b[k][column];
      // An absent column's sums mean nothing, and must not look as if they did.
      REQUIRE((column < 6 ? acc[lane][i] == want : std::isnan(acc[lane][i])));
    }
  // The odd step alone.
  for (int lane = 0; lane < 32; ++lane) {
    loops[lane].first = 1;
    loops[lane].every = 2;
    std::fill(std::begin(acc[lane]), std::end(acc[lane]), 0.0f);
  }
  REQUIRE(host::mmaKLoop(in, out));
  float odd = 0; // of row 0, column 1
  for (int k = 16; k < 32; ++k)
    odd += a[0][k] * b[k][1];
  CHECK(acc[0][1] == odd);
  loops[5].steps = 1;
  CHECK_FALSE(host::mmaKLoop(in, out));
}

MEGALITH_KERNEL(too_many_arrivals) {
  if (warp() == 0 && lane() == 0) {
    mbarrier_init(bar(0), 2);
    mbarrier_arrive_expect_tx(bar(0), 64);
    mbarrier_arrive(bar(0));
    mbarrier_arrive(bar(0)); // 64 bytes are pending, so the phase is not over
  }
}

MEGALITH_KERNEL(two_phases_behind) {
  if (warp() == 0 && lane() == 0) {
    mbarrier_init(bar(0), 1);
    mbarrier_arrive(bar(0));
    while (!mbarrier_try_wait(bar(0), 0)) { // phase 0
    }
    mbarrier_arrive(bar(0));
    mbarrier_arrive(bar(0));
    (void)mbarrier_try_wait(bar(0), 1); // means phase 1, but phase 3 is the one it would wait for
  }
}

MEGALITH_KERNEL(passed_without_waiting) {
  if (warp() == 0 && lane() == 0) {
    mbarrier_init(bar(0), 1);
    for (int phase = 0; phase < 3; ++phase)
      mbarrier_arrive(bar(0));
    mbarrier_passed(bar(0), 2); // so parity 0 means phase 2
    while (!mbarrier_try_wait(bar(0), 0)) {
    }
    mbarrier_passed(bar(0), 4); // not true
  }
}

MEGALITH_KERNEL(never_initialised) {
  if (warp() == 0 && lane() == 0)
    mbarrier_arrive(bar(2));
}

MEGALITH_KERNEL(overwritten) {
  if (warp() == 0 && lane() == 0) {
    mbarrier_init(bar(1), 1);
    st_shared<uint64_t>(bar(1), 0);
    mbarrier_arrive(bar(1));
  }
}

MEGALITH_KERNEL(expects_too_much) {
  if (warp() == 0 && lane() == 0) {
    mbarrier_init(bar(0), 1);
    mbarrier_arrive_expect_tx(bar(0), 1 << 20);
  }
}

TEST_CASE("misused mbarriers are faults that name the barrier") {
  Harness h(1);
  CHECK_THAT(h.run(megalith_kernel_too_many_arrivals, 1),
             Contains("mbarrier at shared + 0: arrival beyond the count"));
  CHECK_THAT(h.run(megalith_kernel_two_phases_behind, 1), Contains("more than one behind"));
  CHECK_THAT(h.run(megalith_kernel_passed_without_waiting, 1), Contains("first 4 phases"));
  CHECK_THAT(h.run(megalith_kernel_never_initialised, 1),
             Contains("shared + 16 holds no mbarrier"));
  CHECK_THAT(h.run(megalith_kernel_overwritten, 1), Contains("shared + 8 holds no mbarrier"));
  CHECK_THAT(h.run(megalith_kernel_expects_too_much, 1), Contains("2^20 - 1 bytes"));
}

MEGALITH_KERNEL(phases) {
  // Ten phases of a barrier of 8 arrivals; the waiter counts what it may rely on.
  if (warp() == 0 && lane() == 0) {
    mbarrier_init(bar(0), 8);
    mbarrier_init(bar(1), 1);
  }
  cta_sync();
  for (uint32_t use = 0; use < 10; ++use) {
    if (warp() >= 2 && warp() < 10) {
      while (!mbarrier_try_wait(bar(1), (use & 1) ^ 1)) {
      }
      if (lane() == 0)
        st_shared<uint32_t>(smem() + 64 + warp() * 4, use);
      warp_sync();
      if (lane() == 0)
        mbarrier_arrive(bar(0));
    } else if (warp() == 10) {
      while (!mbarrier_try_wait(bar(0), use & 1)) {
      }
      for (int w = 2; w < 10; ++w)
        if (ld_shared<uint32_t>(smem() + 64 + w * 4) != use)
          st_global<uint32_t>(data(args), 1);
      warp_sync();
      if (lane() == 0)
        mbarrier_arrive(bar(1));
    }
  }
}

TEST_CASE("mbarrier phases order shared memory") {
  for (int chaos = 0; chaos <= 2; ++chaos) {
    Harness h(2, chaos);
    CHECK(h.count(megalith_kernel_phases, 20, [&] { return h.data[0] == 0; }) == 20);
  }
}

MEGALITH_KERNEL(deadlocks) {
  if (warp() == 0 && lane() == 0)
    mbarrier_init(bar(3), 2);
  cta_sync();
  if (warp() == 4) {
    uint64_t start = now_ns();
    while (!mbarrier_try_wait(bar(3), 0))
      if (now_ns() - start > args.deadline_ns)
        fail(args.fault, 17, 0, 5);
  } else if (warp() == 1) {
    while (ld_relaxed<Scope::gpu>(data(args) + 64) == 0)
      poll_pause(data(args) + 64);
  } else if (warp() == 10) {
    if (lane() != 9)
      warp_sync();
  }
}

TEST_CASE("a deadlock names every wait, its SMs, lanes and edge") {
  Harness h(3);
  std::string error = h.run(megalith_kernel_deadlocks, 1);
  CHECK_THAT(error, Contains("deadlock"));
  CHECK_THAT(error, Contains("sm 0-2, warp 4 (consumer 2), lanes 0-31: mbarrier at shared + 24, "
                             "phase 0: 2 of 2 arrivals and 0 bytes missing (edge 17, expected 0, "
                             "saw 5)"));
  CHECK_THAT(error, Contains("warp 1 (poller), lanes 0-31: poll of 'data' + 256"));
  CHECK_THAT(error, Contains("warp 10 (epilogue)") &&
                        Contains("warp_sync: waits for lanes 9, some of which have left"));
  CHECK(h.fault.record.valid == 1);
  CHECK(h.fault.record.edge == 17);
  CHECK(h.fault.record.warp == 4);
  // The machine is as good as new.
  CHECK(h.run(megalith_kernel_collectives, 1) == "");
}

MEGALITH_KERNEL(spins) {
  if (warp() == 0 && lane() == 0) {
    if (sm() == 0)
      st_relaxed<Scope::gpu, uint32_t>(data(args), 1);
    else
      while (ld_relaxed<Scope::gpu>(data(args)) == 0) { // no poll_pause
      }
  }
}

TEST_CASE("threads that spin without parking come through") {
  for (int chaos = 0; chaos <= 2; ++chaos) {
    Harness h(4, chaos);
    CHECK(h.count(megalith_kernel_spins, 20, [&] { return h.data[0] == 1; }) == 20);
  }
}

MEGALITH_KERNEL(late_clock) {
  if (warp() == 0 && lane() == 0) {
    mbarrier_init(bar(0), 1);
    if (mbarrier_try_wait(bar(0), 0))
      return;
    uint64_t start = now_ns(); // the first wait was in vain, so this reads past its deadline
    while (!mbarrier_try_wait(bar(0), 0))
      if (now_ns() - start > args.deadline_ns)
        fail(args.fault, 23, 0, 0);
  }
}

TEST_CASE("a deadline that is taken after a first vain wait passes too") {
  Harness h(1);
  CHECK_THAT(h.run(megalith_kernel_late_clock, 1), Contains("edge 23"));
}

MEGALITH_KERNEL(gives_up) {
  if (sm() == 1 && warp() == 1)
    fail(args.fault, 5, 6, 7, 8);
}

TEST_CASE("fail ends the run with its record") {
  Harness h(2);
  CHECK_THAT(h.run(megalith_kernel_gives_up, 1),
             Contains("sm 1, warp 1 (poller)") && Contains("edge 5, expected 6, saw 7"));
  CHECK(h.fault.record.launch == 8);
}

template <bool blocks> static void deep(const LaunchArgs &args) {
  volatile char room[5700];
  for (int i = 0; i < 5700; ++i)
    room[i] = static_cast<char>(i | 1);
  if (blocks)
    warp_sync();
  else if (room[100] == 0)
    st_global<uint32_t>(data(args), 1);
}
MEGALITH_KERNEL(deep_blocks) {
  deep<true>(args);
}
MEGALITH_KERNEL(deep_leaves) {
  deep<false>(args);
}

TEST_CASE("a stack that overflows is reported, at a switch or at the thread's end") {
  host::Options o = Harness::options(1, 1);
  o.stack_bytes = 5120;
  for (const host::KernelRecord *kernel :
       {&megalith_kernel_deep_blocks, &megalith_kernel_deep_leaves}) {
    host::Machine machine(o);
    LaunchArgs args = {};
    llvm::Expected<host::RunReport> result = machine.run({{kernel, args}});
    REQUIRE_FALSE(static_cast<bool>(result));
    CHECK_THAT(llvm::toString(result.takeError()), Contains("stack overflowed its 5120 bytes"));
  }
}
