// The adversarial memory: what may be seen late, torn or old, and what must not.
#include "codegen/device/platform.cuh"
#include "tests/runtime/host/harness.h"

#include <catch2/catch.hpp>

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
static bool is(int of_sm, int of_warp) {
  return sm() == of_sm && warp() == of_warp && lane() == 0;
}

static constexpr int kFlag = 64, kResult = 128;

MEGALITH_KERNEL(relaxed_message) {
  if (is(0, 0)) {
    st_relaxed<Scope::gpu, uint32_t>(data(args), 5);
    st_relaxed<Scope::gpu, uint32_t>(data(args) + kFlag, 1);
  } else if (is(1, 0)) {
    while (ld_relaxed<Scope::gpu>(data(args) + kFlag) == 0)
      poll_pause(data(args) + kFlag);
    st_global(data(args) + kResult, ld_relaxed<Scope::gpu>(data(args)));
  }
}

MEGALITH_KERNEL(released_message) {
  if (is(0, 0)) {
    st_relaxed<Scope::gpu, uint32_t>(data(args), 5);
    st_global<uint32_t>(data(args) + 4, 6);
    red_add_release<Scope::gpu>(data(args) + kFlag, 1);
  } else if (is(1, 0)) {
    (void)ld_global<uint32_t>(data(args) + 4);
    while (ld_acquire<Scope::gpu>(data(args) + kFlag) == 0)
      poll_pause(data(args) + kFlag);
    st_global(data(args) + kResult, ld_relaxed<Scope::gpu>(data(args)));
    st_global(data(args) + kResult + 1, ld_global<uint32_t>(data(args) + 4));
  }
}

TEST_CASE("relaxed stores pass each other in some seed, released ones never") {
  for (int chaos = 1; chaos <= 2; ++chaos) {
    Harness h(2, chaos);
    int late = h.count(megalith_kernel_relaxed_message, 100, [&] { return h.data[kResult] == 0; });
    CHECK(late > 0);
    CHECK(late < 100);
    CHECK(h.count(megalith_kernel_released_message, 100,
                  [&] { return h.data[kResult] == 5 && h.data[kResult + 1] == 6; }) == 100);
  }
}

MEGALITH_KERNEL(no_acquire) {
  if (is(0, 0)) {
    st_global<uint32_t>(data(args), 5);
    red_add_release<Scope::gpu>(data(args) + kFlag, 1);
  } else if (is(1, 0)) {
    while (ld_relaxed<Scope::gpu>(data(args) + kFlag) == 0)
      poll_pause(data(args) + kFlag);
    st_global(data(args) + kResult, ld_global<uint32_t>(data(args)));
  }
}

TEST_CASE("a weak load without an acquire sees an older value in some seed") {
  Harness h(2);
  int old = h.count(megalith_kernel_no_acquire, 60, [&] { return h.data[kResult] == 0; });
  CHECK(old > 0);
  CHECK(old < 60);
}

MEGALITH_KERNEL(own_stores) {
  if (warp() != 0 || lane() != 0)
    return;
  for (uint32_t i = 1; i <= 20; ++i) {
    st_relaxed<Scope::gpu>(data(args) + sm(), i);
    red_add_relaxed<Scope::gpu>(data(args) + sm(), 100);
    if (ld_relaxed<Scope::gpu>(data(args) + sm()) != i + 100 ||
        ld_global<uint32_t>(data(args) + sm()) != i + 100)
      st_global<uint32_t>(data(args) + kResult, 1);
    red_add_relaxed<Scope::gpu>(data(args) + kFlag, 1);
  }
}

TEST_CASE("a thread sees its own stores, stores to one address stay in order, additions add up") {
  Harness h(4, 2);
  CHECK(h.count(megalith_kernel_own_stores, 50, [&] {
    return h.data[kResult] == 0 && h.data[0] == 120 && h.data[3] == 120 && h.data[kFlag] == 80;
  }) == 50);
}

MEGALITH_KERNEL(torn) {
  U128 *wide = reinterpret_cast<U128 *>(data(args));
  if (is(0, 0)) {
    st_global(wide, u32x4{1, 1, 1, 1});
    st_relaxed<Scope::gpu>(wide + 1, U128{1, 1, 1, 1});
  } else if (is(1, 0)) {
    for (int which = 0; which < 2; ++which) {
      U128 v = ld_relaxed<Scope::gpu>(wide + which);
      while (v.x == 0 && v.w == 0) {
        poll_pause(wide + which);
        v = ld_relaxed<Scope::gpu>(wide + which);
      }
      if (v.x != 1 || v.y != 1 || v.z != 1 || v.w != 1)
        st_global<uint32_t>(data(args) + kResult + which, 1);
    }
  }
}

TEST_CASE("a weak store of 16 bytes tears in some seed, a b128 never") {
  Harness h(2);
  int torn = 0, scalar_torn = 0;
  h.count(megalith_kernel_torn, 100, [&] {
    torn += h.data[kResult] != 0;
    scalar_torn += h.data[kResult + 1] != 0;
    return true;
  });
  CHECK(torn > 0);
  CHECK(scalar_torn == 0);
}

// Copies 4096 bytes of 9s and looks at them, with or without waiting for them.
template <bool waits> static void copyAndLook(const LaunchArgs &args) {
  if (!is(0, 0))
    return;
  mbarrier_init(bar(0), 1);
  fence_mbarrier_init();
  mbarrier_arrive_expect_tx(bar(0), 4096);
  cp_async_bulk(smem() + 1024, args.buffer[1], 4096, bar(0));
  if (waits)
    while (!mbarrier_try_wait(bar(0), 0)) {
    }
  else
    for (int i = 0; i < 300; ++i)
      (void)now_ns(); // time passes
  uint32_t seen = 0;
  for (int i = 0; i < 1024; ++i)
    seen += ld_shared<uint32_t>(smem() + 1024 + 4 * i) == 9;
  st_global(data(args), seen);
  while (!mbarrier_try_wait(bar(0), 0)) {
  }
}
MEGALITH_KERNEL(copy_waits) {
  copyAndLook<true>(args);
}
MEGALITH_KERNEL(copy_looks) {
  copyAndLook<false>(args);
}

MEGALITH_KERNEL(copy_left_alone) {
  if (is(0, 0)) {
    mbarrier_init(bar(0), 1);
    cp_async_bulk(smem() + 1024, args.buffer[1], 4096, bar(0));
  }
}

TEST_CASE("a bulk copy is seen half landed without a wait, whole with it") {
  Harness h(2, 2);
  alignas(16) static uint32_t source[1024];
  std::fill(std::begin(source), std::end(source), 9u);
  h.extra = source;
  CHECK_THAT(h.run(megalith_kernel_copy_waits, 1),
             Contains("bulk copy of 4096 bytes") && Contains("not inside one registered"));
  h.machine.registerBuffer(source, sizeof source, "source", host::Access::read);
  CHECK(h.count(megalith_kernel_copy_waits, 100, [&] { return h.data[0] == 1024; }) == 100);
  int none = 0, part = 0;
  h.count(megalith_kernel_copy_looks, 200, [&] {
    none += h.data[0] == 0;
    part += h.data[0] > 0 && h.data[0] < 1024;
    return true;
  });
  CHECK(none > 0);
  CHECK(part > 0);
  bool reported = false;
  for (uint64_t seed = 1; seed <= 20; ++seed)
    reported |= h.run(megalith_kernel_copy_left_alone, seed).find("in flight") != std::string::npos;
  CHECK(reported);
}

TEST_CASE("bulk copies of generated buffers call their generator") {
  Harness h(2, 1);
  h.extra = host::reserveAddresses(1 << 20);
  REQUIRE(h.extra);
  uint64_t bytes_made = 0;
  h.machine.registerGenerated(h.extra, 1 << 20, "made",
                              [&](uint64_t offset, uint32_t bytes, void *dst) {
                                REQUIRE(offset + bytes <= 4096);
                                for (uint32_t i = 0; i < bytes / 4; ++i)
                                  static_cast<uint32_t *>(dst)[i] = 9;
                                bytes_made += bytes;
                              });
  CHECK(h.count(megalith_kernel_copy_waits, 10, [&] { return h.data[0] == 1024; }) == 10);
  CHECK(bytes_made == 10 * 4096);
}

MEGALITH_KERNEL(wild_store) {
  if (is(1, 2))
    st_global<uint32_t>(data(args) + 16384, 1);
}
MEGALITH_KERNEL(store_to_constant) {
  if (is(0, 0))
    st_global<uint32_t>(args.buffer[1], 1);
}
MEGALITH_KERNEL(unaligned) {
  if (is(0, 0))
    (void)ld_global<uint64_t>(data(args) + 1);
}

TEST_CASE("accesses outside buffers, to constants or unaligned are faults with name and offset") {
  Harness h(2);
  CHECK_THAT(h.run(megalith_kernel_wild_store, 3),
             Contains("weak store of 4 bytes at 'data' + 65536 (past its 65536 bytes)") &&
                 Contains("sm 1, warp 2 (consumer 0), lane 0"));
  CHECK_THAT(h.run(megalith_kernel_store_to_constant, 1), Contains("the null pointer"));
  alignas(16) static uint32_t constant[4];
  h.machine.registerBuffer(constant, sizeof constant, "constant", host::Access::read);
  h.extra = constant;
  CHECK_THAT(h.run(megalith_kernel_store_to_constant, 1), Contains("'constant' + 0: the buffer is "
                                                                   "registered as read-only"));
  CHECK_THAT(h.run(megalith_kernel_unaligned, 1), Contains("not a multiple of its size"));
}

TEST_CASE("buffers must not overlap and begin at a multiple of 16 bytes") {
  Harness h(1);
  h.machine.registerBuffer(h.data.data() + 256, 64, "inner");
  CHECK_THAT(h.run(megalith_kernel_wild_store, 1), Contains("'data' and 'inner' overlap"));
  Harness other(1);
  other.machine.registerBuffer(h.data.data() + 1, 64, "odd");
  CHECK_THAT(other.run(megalith_kernel_wild_store, 1), Contains("'odd' does not begin"));
}

TEST_CASE("a store buffer keeps the order of overlapping stores only") {
  bool other_order = false;
  for (uint32_t choice = 0; choice < 16; ++choice) {
    host::StoreBuffer buffer;
    buffer.push({0x1000, 8, false, false, {1}});
    buffer.push({0x1004, 4, false, false, {2}});
    buffer.push({0x1008, 4, false, false, {3}});
    buffer.push({0x1000, 4, false, false, {4}});
    std::vector<int> order;
    uint32_t pick = choice;
    while (!buffer.empty())
      order.push_back(buffer.pop(choice, pick++).data[0]);
    auto at = [&](int x) { return std::find(order.begin(), order.end(), x) - order.begin(); };
    CHECK(at(1) < at(2));
    CHECK(at(1) < at(4));
    other_order |= at(3) < at(1);
  }
  CHECK(other_order);
}

TEST_CASE("poison is NaN and never the empty word") {
  uint32_t words[3];
  host::poison(words, sizeof words);
  for (uint32_t w : words) {
    CHECK(w == 0x7FC17FC1u);
    CHECK(bits_to_float(w) != bits_to_float(w));
  }
}
