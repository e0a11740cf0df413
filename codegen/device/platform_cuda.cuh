// CUDA platform: one-instruction functions under PTX names. The only device header with inline
// assembly, shuffles and built-in variables. Needs no CUDA include folder (NVRTC: no headers).
#pragma once

#include "codegen/device/platform.cuh"
#include "codegen/device/root_steps.cuh"

/// Opens a kernel of one CTA per SM. On the host also makes a registration record.
#define MEGALITH_KERNEL(name)                                                                      \
  extern "C" __global__ void __launch_bounds__(::megalith::kThreadsPerCta, 1)                      \
      name(const __grid_constant__ ::megalith::LaunchArgs args)
/// The same with registers for a second CTA on the SM: the next launch's, which starts early.
#define MEGALITH_KERNEL_OF_TWO(name)                                                               \
  extern "C" __global__ void __launch_bounds__(::megalith::kThreadsPerCta, 2)                      \
      name(const __grid_constant__ ::megalith::LaunchArgs args)

/// The same for a kernel that loops over the `launches` of a step, of which each has `layered`
/// buffers of its own. The table of these stays in the constant bank, indexed there.
#define MEGALITH_STEP_KERNEL(name, launches, layered)                                              \
  extern "C" __global__ void __launch_bounds__(::megalith::kThreadsPerCta, 1)                      \
      name(const __grid_constant__ ::megalith::StepArgs<launches, layered> args)

/// The same for one of `ranks` ranks with `peers` exchanges between them.
#define MEGALITH_RANKS_KERNEL(name, ranks, peers)                                                  \
  extern "C" __global__ void __launch_bounds__(::megalith::kThreadsPerCta, 1)                      \
      name(const __grid_constant__ ::megalith::RanksArgs<ranks, peers> args)

extern __shared__ __align__(128) unsigned char megalith_arena[];

namespace megalith::platform {

/// Hides from the compiler what `value` is, so that nothing computed from it is moved out of the
/// loop around.
template <class T> MEGALITH_DEVICE void forget(T &value) {
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(value));
  else
    asm volatile("" : "+r"(value));
}

MEGALITH_DEVICE int sm() {
  return static_cast<int>(blockIdx.x);
}
MEGALITH_DEVICE int warp() {
  return static_cast<int>(threadIdx.x >> 5);
}
MEGALITH_DEVICE int lane() {
  return static_cast<int>(threadIdx.x & 31);
}
MEGALITH_DEVICE unsigned char *smem() {
  return megalith_arena;
}
/// The same for who keeps it: where shared memory begins depends on the CTA's place in a cluster,
/// a special register, which the compiler else reads anew wherever it makes an address.
MEGALITH_DEVICE unsigned char *smem_kept() {
  auto begin = static_cast<uint32_t>(__cvta_generic_to_shared(megalith_arena));
  forget(begin);
  return static_cast<unsigned char *>(__cvta_shared_to_generic(begin));
}

namespace detail {
MEGALITH_DEVICE uint32_t shared_address(const void *p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
MEGALITH_DEVICE uint64_t global_address(const void *p) {
  return static_cast<uint64_t>(__cvta_generic_to_global(p));
}

// One access of 1, 2, 4, 8 or 16 bytes; `OP` is the instruction up to its type. The memory clobber
// keeps the compiler's order, which the protocols rely on.
#define MEGALITH_LOAD(NAME, OP, ADDRESS, CONSTRAINT)                                               \
  template <class T> MEGALITH_DEVICE T NAME(const void *p) {                                       \
    static_assert(sizeof(T) <= 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);          \
    if constexpr (sizeof(T) == 1) {                                                                \
      uint16_t v;                                                                                  \
      asm volatile(OP ".b8 %0, [%1];" : "=h"(v) : CONSTRAINT(ADDRESS(p)) : "memory");              \
      return __builtin_bit_cast(T, static_cast<uint8_t>(v));                                       \
    } else if constexpr (sizeof(T) == 2) {                                                         \
      uint16_t v;                                                                                  \
      asm volatile(OP ".b16 %0, [%1];" : "=h"(v) : CONSTRAINT(ADDRESS(p)) : "memory");             \
      return __builtin_bit_cast(T, v);                                                             \
    } else if constexpr (sizeof(T) == 4) {                                                         \
      uint32_t v;                                                                                  \
      asm volatile(OP ".b32 %0, [%1];" : "=r"(v) : CONSTRAINT(ADDRESS(p)) : "memory");             \
      return __builtin_bit_cast(T, v);                                                             \
    } else if constexpr (sizeof(T) == 8) {                                                         \
      u32x2 v;                                                                                     \
      asm volatile(OP ".v2.b32 {%0, %1}, [%2];"                                                    \
                   : "=r"(v.x), "=r"(v.y)                                                          \
                   : CONSTRAINT(ADDRESS(p))                                                        \
                   : "memory");                                                                    \
      return __builtin_bit_cast(T, v);                                                             \
    } else {                                                                                       \
      u32x4 v;                                                                                     \
      asm volatile(OP ".v4.b32 {%0, %1, %2, %3}, [%4];"                                            \
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)                                    \
                   : CONSTRAINT(ADDRESS(p))                                                        \
                   : "memory");                                                                    \
      return __builtin_bit_cast(T, v);                                                             \
    }                                                                                              \
  }
#define MEGALITH_STORE(NAME, OP, ADDRESS, CONSTRAINT)                                              \
  template <class T> MEGALITH_DEVICE void NAME(void *p, T value) {                                 \
    static_assert(sizeof(T) <= 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);          \
    if constexpr (sizeof(T) == 1) {                                                                \
      const uint16_t v = __builtin_bit_cast(uint8_t, value);                                       \
      asm volatile(OP ".b8 [%0], %1;" ::CONSTRAINT(ADDRESS(p)), "h"(v) : "memory");                \
    } else if constexpr (sizeof(T) == 2) {                                                         \
      auto v = __builtin_bit_cast(uint16_t, value);                                                \
      asm volatile(OP ".b16 [%0], %1;" ::CONSTRAINT(ADDRESS(p)), "h"(v) : "memory");               \
    } else if constexpr (sizeof(T) == 4) {                                                         \
      auto v = __builtin_bit_cast(uint32_t, value);                                                \
      asm volatile(OP ".b32 [%0], %1;" ::CONSTRAINT(ADDRESS(p)), "r"(v) : "memory");               \
    } else if constexpr (sizeof(T) == 8) {                                                         \
      auto v = __builtin_bit_cast(u32x2, value);                                                   \
      asm volatile(OP ".v2.b32 [%0], {%1, %2};" ::CONSTRAINT(ADDRESS(p)), "r"(v.x), "r"(v.y)       \
                   : "memory");                                                                    \
    } else {                                                                                       \
      auto v = __builtin_bit_cast(u32x4, value);                                                   \
      asm volatile(OP ".v4.b32 [%0], {%1, %2, %3, %4};" ::CONSTRAINT(ADDRESS(p)), "r"(v.x),        \
                   "r"(v.y), "r"(v.z), "r"(v.w)                                                    \
                   : "memory");                                                                    \
    }                                                                                              \
  }
} // namespace detail

MEGALITH_LOAD(ld_shared, "ld.shared", detail::shared_address, "r")
MEGALITH_STORE(st_shared, "st.shared", detail::shared_address, "r")
MEGALITH_LOAD(ld_global, "ld.global", detail::global_address, "l")
MEGALITH_STORE(st_global, "st.global", detail::global_address, "l")
MEGALITH_LOAD(ld_const, "ld.global.nc", detail::global_address, "l")
#undef MEGALITH_LOAD
#undef MEGALITH_STORE

// Strong accesses. A b64 or b128 is one scalar access, never a vector of narrower ones.
#define MEGALITH_STRONG_LOAD(ORDER, SCOPE)                                                         \
  if constexpr (sizeof(T) == 4) {                                                                  \
    uint32_t v;                                                                                    \
    asm volatile("ld." ORDER "." SCOPE ".global.b32 %0, [%1];"                                     \
                 : "=r"(v)                                                                         \
                 : "l"(detail::global_address(p))                                                  \
                 : "memory");                                                                      \
    return __builtin_bit_cast(T, v);                                                               \
  } else if constexpr (sizeof(T) == 8) {                                                           \
    uint64_t v;                                                                                    \
    asm volatile("ld." ORDER "." SCOPE ".global.b64 %0, [%1];"                                     \
                 : "=l"(v)                                                                         \
                 : "l"(detail::global_address(p))                                                  \
                 : "memory");                                                                      \
    return __builtin_bit_cast(T, v);                                                               \
  } else {                                                                                         \
    /* Words at once: ptxas copies halves of 64 bits apart, word by word. */                       \
    u32x4 v;                                                                                       \
    asm volatile("{\n\t.reg .b128 q;\n\t.reg .b64 lo, hi;\n\tld." ORDER "." SCOPE                  \
                 ".global.b128 q, [%4];\n\tmov.b128 {lo, hi}, q;\n\tmov.b64 {%0, %1}, lo;\n\t"     \
                 "mov.b64 {%2, %3}, hi;\n\t}"                                                      \
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)                                      \
                 : "l"(detail::global_address(p))                                                  \
                 : "memory");                                                                      \
    return __builtin_bit_cast(T, v);                                                               \
  }

template <Scope scope, class T> MEGALITH_DEVICE T ld_relaxed(const T *p) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  if constexpr (scope == Scope::gpu) {
    MEGALITH_STRONG_LOAD("relaxed", "gpu")
  } else {
    MEGALITH_STRONG_LOAD("relaxed", "sys")
  }
}

template <Scope scope, class T> MEGALITH_DEVICE T ld_acquire(const T *p) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (scope == Scope::gpu) {
    MEGALITH_STRONG_LOAD("acquire", "gpu")
  } else {
    MEGALITH_STRONG_LOAD("acquire", "sys")
  }
}
#undef MEGALITH_STRONG_LOAD

template <Scope scope> MEGALITH_DEVICE u32x4 ld_relaxed_v4(const uint32_t *p) {
  u32x4 v;
  if constexpr (scope == Scope::gpu)
    asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(detail::global_address(p))
                 : "memory");
  else
    asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(detail::global_address(p))
                 : "memory");
  return v;
}

#define MEGALITH_STRONG_STORE(SCOPE)                                                               \
  if constexpr (sizeof(T) == 4) {                                                                  \
    asm volatile("st.relaxed." SCOPE ".global.b32 [%0], %1;" ::"l"(detail::global_address(p)),     \
                 "r"(__builtin_bit_cast(uint32_t, value))                                          \
                 : "memory");                                                                      \
  } else if constexpr (sizeof(T) == 8) {                                                           \
    asm volatile("st.relaxed." SCOPE ".global.b64 [%0], %1;" ::"l"(detail::global_address(p)),     \
                 "l"(__builtin_bit_cast(uint64_t, value))                                          \
                 : "memory");                                                                      \
  } else {                                                                                         \
    struct alignas(16) Halves {                                                                    \
      uint64_t lo, hi;                                                                             \
    };                                                                                             \
    auto v = __builtin_bit_cast(Halves, value);                                                    \
    asm volatile("{\n\t.reg .b128 q;\n\tmov.b128 q, {%1, %2};\n\t"                                 \
                 "st.relaxed." SCOPE                                                               \
                 ".global.b128 [%0], q;\n\t}" ::"l"(detail::global_address(p)),                    \
                 "l"(v.lo), "l"(v.hi)                                                              \
                 : "memory");                                                                      \
  }

template <Scope scope, class T> MEGALITH_DEVICE void st_relaxed(T *p, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  if constexpr (scope == Scope::gpu) {
    MEGALITH_STRONG_STORE("gpu")
  } else {
    MEGALITH_STRONG_STORE("sys")
  }
}
#undef MEGALITH_STRONG_STORE

template <Scope scope, class T> MEGALITH_DEVICE void st_release(T *p, T value) {
  static_assert(scope == Scope::sys && sizeof(T) == 4, "what ranks tell each other");
  asm volatile("st.release.sys.global.b32 [%0], %1;" ::"l"(detail::global_address(p)), "r"(value)
               : "memory");
}

template <Scope scope> MEGALITH_DEVICE void red_add_relaxed(uint32_t *p, uint32_t value) {
  if constexpr (scope == Scope::gpu)
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(detail::global_address(p)),
                 "r"(value)
                 : "memory");
  else
    asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(detail::global_address(p)),
                 "r"(value)
                 : "memory");
}

template <Scope scope> MEGALITH_DEVICE void red_add_release(uint32_t *p, uint32_t value) {
  if constexpr (scope == Scope::gpu)
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(detail::global_address(p)),
                 "r"(value)
                 : "memory");
  else
    asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(detail::global_address(p)),
                 "r"(value)
                 : "memory");
}

MEGALITH_DEVICE void mbarrier_init(uint64_t *bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(detail::shared_address(bar)),
               "r"(arrivals)
               : "memory");
}
/// Makes initialised barriers visible to bulk copies; once, before the CTA's first cta_sync().
MEGALITH_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
MEGALITH_DEVICE void mbarrier_arrive(uint64_t *bar) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(
                   detail::shared_address(bar))
               : "memory");
}
MEGALITH_DEVICE void mbarrier_arrive_expect_tx(uint64_t *bar, uint32_t bytes) {
  asm volatile(
      "{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n\t}" ::"r"(
          detail::shared_address(bar)),
      "r"(bytes)
      : "memory");
}
MEGALITH_DEVICE void mbarrier_expect_tx(uint64_t *bar, uint32_t bytes) {
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(detail::shared_address(bar)),
      "r"(bytes)
      : "memory");
}
/// Whether the phase with this parity has completed; may be false spuriously, so loop.
/// An mbarrier's address, short enough to be passed to functions that are called.
using BarrierRef = uint32_t;
MEGALITH_DEVICE BarrierRef barrier_ref(uint64_t *bar) {
  return detail::shared_address(bar);
}
MEGALITH_DEVICE bool mbarrier_try_wait(BarrierRef bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
               "selp.b32 %0, 1, 0, p;\n\t}"
               : "=r"(done)
               : "r"(bar), "r"(parity)
               : "memory");
  return done != 0;
}
MEGALITH_DEVICE bool mbarrier_try_wait(uint64_t *bar, uint32_t parity) {
  return mbarrier_try_wait(barrier_ref(bar), parity);
}
/// This thread knows the barrier's first `phases` phases to be over, though it waited for none of
/// them: the host platform holds it to that, since a parity tells only two phases apart.
MEGALITH_DEVICE void mbarrier_passed(uint64_t *, uint32_t) {}
/// Orders this thread's accesses of shared memory before later bulk copies.
MEGALITH_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Copies global memory to this CTA's shared memory and completes `bytes` on `bar`; one thread
/// calls. 16-byte alignment of both sides and of `bytes`; the source is read once, so it is the
/// first to be evicted from L2.
MEGALITH_DEVICE void cp_async_bulk(void *dst, const void *src, uint32_t bytes, uint64_t *bar) {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1], %2, [%3], %4;" ::"r"(detail::shared_address(dst)),
               "l"(detail::global_address(src)), "r"(bytes), "r"(detail::shared_address(bar)),
               "l"(policy)
               : "memory");
}
/// Brings global memory to L2: 16-byte alignment of `p` and `bytes`.
MEGALITH_DEVICE void prefetch_l2(const void *p, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(detail::global_address(p)),
               "r"(bytes)
               : "memory");
}

MEGALITH_DEVICE void warp_sync() {
#ifdef MEGALITH_KEEP_SYNCS
  uint32_t below, others; // all lanes, as a mask that is no constant
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  asm("mov.u32 %0, %%lanemask_ge;" : "=r"(others));
  asm volatile("bar.warp.sync %0;" ::"r"(below | others) : "memory");
#else
  __syncwarp(0xFFFFFFFFu); // ptxas leaves it out where it takes the lanes to be together
#endif
}
/// T of 4 or 8 bytes.
template <class T> MEGALITH_DEVICE T shfl_xor(T value, int mask) {
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(
        T, __shfl_xor_sync(0xFFFFFFFFu, __builtin_bit_cast(uint32_t, value), mask));
  } else {
    auto v = __builtin_bit_cast(u32x2, value);
    v.x = __shfl_xor_sync(0xFFFFFFFFu, v.x, mask);
    v.y = __shfl_xor_sync(0xFFFFFFFFu, v.y, mask);
    return __builtin_bit_cast(T, v);
  }
}
/// `value` of lane `source` (0..31; may differ from lane to lane). T of 4 or 8 bytes.
template <class T> MEGALITH_DEVICE T shfl(T value, int source) {
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(
        T, __shfl_sync(0xFFFFFFFFu, __builtin_bit_cast(uint32_t, value), source));
  } else {
    auto v = __builtin_bit_cast(u32x2, value);
    v.x = __shfl_sync(0xFFFFFFFFu, v.x, source);
    v.y = __shfl_sync(0xFFFFFFFFu, v.y, source);
    return __builtin_bit_cast(T, v);
  }
}
MEGALITH_DEVICE uint32_t ballot(bool p) {
  return __ballot_sync(0xFFFFFFFFu, p);
}
MEGALITH_DEVICE bool all_sync(bool p) {
  return __all_sync(0xFFFFFFFFu, p) != 0;
}
MEGALITH_DEVICE bool any_sync(bool p) {
  return __any_sync(0xFFFFFFFFu, p) != 0;
}

/// The largest of the lanes' values, in all lanes.
MEGALITH_DEVICE uint32_t reduce_max(uint32_t value) {
  return __reduce_max_sync(0xFFFFFFFFu, value);
}
MEGALITH_DEVICE int popcount(uint32_t bits) {
  return __popc(bits);
}

/// Byte i of the result is the byte of {a: 0..3, b: 4..7} that nibble i of `selector` says.
MEGALITH_DEVICE uint32_t byte_permute(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}
/// Bits of `a` where `mask` has ones, of `b` elsewhere; one instruction, which ptxas does not find.
MEGALITH_DEVICE uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(d) : "r"(mask), "r"(a), "r"(b));
  return d;
}
/// Two products of bf16 numbers, each rounded to nearest.
MEGALITH_DEVICE uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// Barrier `id` (1..15; 0 is cta_sync's) among `threads` threads of whole warps.
MEGALITH_DEVICE void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
MEGALITH_DEVICE void cta_sync() {
  __syncthreads();
}

MEGALITH_DEVICE float fdivf_(float a, float b) {
  return __fdiv_rn(a, b);
}
MEGALITH_DEVICE float fmaf_(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
MEGALITH_DEVICE float fmaxf_(float a, float b) {
  return fmaxf(a, b);
}
MEGALITH_DEVICE float fminf_(float a, float b) {
  return fminf(a, b);
}
MEGALITH_DEVICE float fabsf_(float a) {
  return fabsf(a);
}
/// 2^x, about 2 ulp.
MEGALITH_DEVICE float exp2f_(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
MEGALITH_DEVICE float log2f_(float x) {
  return log2f(x);
}
/// 1 / sqrt(x) by correctly rounded steps, of x >= 2^-100 (root_steps).
MEGALITH_DEVICE float rsqrtf_(float x) {
  float estimate;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  constexpr float kLargest = 3.402823466e38f; // infinity times its estimate, 0, were NaN
  return root_steps(fminf(x, kLargest), estimate,
                    [](float a, float b, float c) { return __fmaf_rn(a, b, c); });
}
MEGALITH_DEVICE float sqrtf_(float x) {
  return __fsqrt_rn(x);
}
/// x / d, correctly rounded, of a quotient in [2^-24, 2^24] and a d in [2^-100, 2^100]; outside
/// it means little. The steps of a division whose bounds hold, without the subroutine for others.
MEGALITH_DEVICE float bounded_quotient(float x, float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
  const float q = __fmul_rn(x, r);
  return __fmaf_rn(__fmaf_rn(-d, q, x), r, q);
}
/// Accurate for every fp32 angle, RoPE's large positions included.
MEGALITH_DEVICE float sinf_(float x) {
  return sinf(x);
}
MEGALITH_DEVICE float cosf_(float x) {
  return cosf(x);
}

/// Waits until the previous launch is complete and its stores are visible.
MEGALITH_DEVICE void launch_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
/// Lets the next launch's CTAs start where this launch's have exited.
MEGALITH_DEVICE void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

MEGALITH_DEVICE uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)::"memory");
  return t;
}
/// The SM whose clock this is: launches need not have the same CTA on the same SM.
MEGALITH_DEVICE uint32_t physical_sm() {
  uint32_t id;
  asm volatile("mov.u32 %0, %smid;" : "=r"(id));
  return id;
}
/// Cycles of this SM, modulo 2^32.
MEGALITH_DEVICE uint32_t clock() {
  uint32_t cycles;
  asm volatile("mov.u32 %0, %clock;" : "=r"(cycles));
  return cycles;
}
/// Between two looks at global memory `p`. The host parks the thread until something within its
/// 128-byte line becomes visible; here looking again at once is best.
MEGALITH_DEVICE void poll_pause(const void *) {}

/// Leaves a fault record for the host in the warp's place and, after the grace in which others
/// leave theirs, ends the kernel. `edge` is plan.json's number; what `expected` and `seen` count
/// depends on the edge's protocol.
[[noreturn]] MEGALITH_COLD void fail(FaultTable *table, uint32_t edge, uint64_t expected,
                                     uint64_t seen, uint64_t launch = 0) {
  const uint32_t mask = __activemask();
  if (table && (mask & ((1u << lane()) - 1)) == 0) {
    const uint32_t cta = blockIdx.x % kFaultCtas + (launch & 1 ? kFaultCtas : 0);
    auto *record = reinterpret_cast<FaultRecord *>(table + 1) +
                   (table->places > 1 ? cta * kWarpsPerCta + warp() : 0);
    uint32_t previous;
    asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], 0, 2;"
                 : "=r"(previous)
                 : "l"(detail::global_address(&record->valid))
                 : "memory");
    if (previous == 0) {
      volatile FaultRecord *out = record;
      out->edge = edge;
      out->sm = static_cast<uint32_t>(sm());
      out->warp = static_cast<uint32_t>(warp());
      out->launch = launch;
      out->expected = expected;
      out->seen = seen;
      asm volatile("fence.acq_rel.sys;" ::: "memory");
      out->valid = 1;
      asm volatile("fence.acq_rel.sys;" ::: "memory");
    } else {
      // Another is writing here: let it finish before the trap stops everything.
      while (ld_relaxed<Scope::sys, uint32_t>(&record->valid) != 1) {
      }
    }
  }
  __syncwarp(mask);
  if (table)
    for (const uint64_t begin = now_ns(); now_ns() - begin < table->grace_ns;) {
    }
  asm volatile("trap;");
  __builtin_unreachable();
}

template <class Verb, class Edge> MEGALITH_DEVICE void mark() {
  if constexpr (requires {
                  Verb::kOrderOfRanks;
                  requires Edge::kOfRanks;
                })
    asm volatile("// megalith %0 @%1 %2" ::"C"(Verb::kText), "C"(Edge::kName),
                 "C"(Verb::kOrderOfRanks)
                 : "memory");
  else
    asm volatile("// megalith %0 @%1 %2" ::"C"(Verb::kText), "C"(Edge::kName), "C"(Verb::kOrder)
                 : "memory");
}
MEGALITH_DEVICE void mark_end() {
  asm volatile("// megalith end" ::: "memory");
}

} // namespace megalith::platform

namespace megalith {

/// By the conversion of two: that of one runs where square roots do.
MEGALITH_DEVICE bf16 r16(float value) {
  return {static_cast<uint16_t>(r16x2(value, 0))};
}

MEGALITH_DEVICE uint32_t r16x2(float lo, float hi) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(hi), "f"(lo));
  return word;
}

} // namespace megalith

namespace megalith::platform {

/// Four e4m3 numbers as bf16, two to a word, in their order. Exact; NaN stays NaN.
MEGALITH_DEVICE u32x2 widen_e4m3(uint32_t codes) {
  uint32_t word[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t half2;
    float lo, hi;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(half2) : "h"(static_cast<uint16_t>(codes >> 16 * i)));
    asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %2; cvt.f32.f16 %0, lo; cvt.f32.f16 %1, hi; }"
        : "=f"(lo), "=f"(hi)
        : "r"(half2));
    word[i] = r16x2(lo, hi);
  }
  return {word[0], word[1]};
}
/// Two numbers rounded to the nearest e4m3, ties to even, magnitudes above 448 to 448, NaN to 0x7F;
/// `lo` in bits 0..7, `hi` in bits 8..15.
MEGALITH_DEVICE uint32_t e4m3x2(float lo, float hi) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(hi), "f"(lo));
  return codes;
}

} // namespace megalith::platform
