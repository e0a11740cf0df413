// A digest of memory, made where the memory is: what thousands of steps left is compared without
// copying it.
#pragma once

#include "runtime/abi.h"

namespace megalith {

inline constexpr int kDigestThreads = 256;

/// Adds the digest of `count` words to *sum. The words' places count, their order of visiting does
/// not, so equal memory gives equal sums whatever the number of CTAs.
struct DigestJob {
  const uint32_t *words;
  uint64_t count;
  uint64_t *sum;
};

} // namespace megalith

#ifdef __CUDACC__
namespace megalith {

/// A bijection of 64 bits in which every input bit reaches every output bit.
__device__ __forceinline__ uint64_t mix64(uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  return x ^ (x >> 32);
}

extern "C" __global__ void __launch_bounds__(kDigestThreads)
    megalith_digest(const __grid_constant__ DigestJob job) {
  const uint64_t all = static_cast<uint64_t>(gridDim.x) * kDigestThreads;
  uint64_t own = 0;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kDigestThreads + threadIdx.x; i < job.count;
       i += all)
    own += mix64(i << 32 | job.words[i]);
  for (int mask = 16; mask > 0; mask /= 2)
    own += __shfl_xor_sync(0xFFFFFFFFu, own, mask);
  if (threadIdx.x % 32 == 0)
    atomicAdd(reinterpret_cast<unsigned long long *>(job.sum), own);
}

} // namespace megalith
#endif
