// The benchmark's own kernel: how fast memory can be read.
#pragma once

#include "runtime/abi.h"

namespace megalith {

inline constexpr int kReadSlots = 12;
inline constexpr int kReadChunk = 16 * 1024;

/// Reads `chunks` chunks of kReadChunk bytes `passes` times, SM by SM in turn.
struct ReadJob {
  const unsigned char *data;
  uint64_t chunks; ///< a multiple of the CTAs
  uint32_t passes;
  uint64_t deadline_ns; ///< of one wait; a trap behind it
};

} // namespace megalith

#ifdef __CUDACC__
#include "codegen/device/platform.cuh"

namespace megalith {

/// One warp an SM, of which one thread works: a ring of bulk copies, all slots in flight. Nobody
/// looks at the bytes: this is the most that a kernel whose copies lie in such a ring can read.
extern "C" __global__ void __launch_bounds__(32, 1)
    megalith_read(const __grid_constant__ ReadJob job) {
  if (threadIdx.x != 0)
    return;
  uint64_t *full = reinterpret_cast<uint64_t *>(platform::smem() + kReadSlots * kReadChunk);
  for (int slot = 0; slot < kReadSlots; ++slot)
    platform::mbarrier_init(full + slot, 1);
  platform::fence_mbarrier_init();
  const uint64_t own = job.chunks / gridDim.x, all = own * job.passes;
  auto issue = [&](uint64_t i, int slot) {
    const uint64_t chunk = i % own * gridDim.x + blockIdx.x;
    platform::mbarrier_arrive_expect_tx(full + slot, kReadChunk);
    platform::cp_async_bulk(platform::smem() + slot * kReadChunk, job.data + chunk * kReadChunk,
                            kReadChunk, full + slot);
  };
  for (uint64_t i = 0; i < all && i < kReadSlots; ++i)
    issue(i, static_cast<int>(i));
  int slot = 0;
  uint32_t parity = 0;
  for (uint64_t i = 0; i < all; ++i) {
    if (!platform::mbarrier_try_wait(full + slot, parity)) {
      const uint64_t begin = platform::now_ns();
      while (!platform::mbarrier_try_wait(full + slot, parity))
        if (platform::now_ns() - begin > job.deadline_ns)
          __trap();
    }
    if (i + kReadSlots < all)
      issue(i + kReadSlots, slot);
    if (++slot == kReadSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
}

} // namespace megalith
#endif
