// Host platform: device functions as calls into the machine (runtime/host), which runs each thread
// as a fiber. Compile with: g++ -std=c++20 -O2 -ffp-contract=off -fno-gnu-unique
// -fvisibility=hidden -DMEGALITH_HOST -shared -fPIC -I<root of the sources>. (Without
// -fno-gnu-unique two kernels loaded by one process could share each other's static members.)
#pragma once

#include "codegen/device/platform.cuh"
#include "runtime/host/api.h"

#include <math.h>
#include <string.h>

/// Opens a kernel; see platform_cuda.cuh. Exports the record megalith_kernel_<name>.
#define MEGALITH_KERNEL(name)                                                                      \
  static void name(const ::megalith::LaunchArgs &args);                                            \
  extern "C" __attribute__((visibility("default"), used))                                          \
  const ::megalith::host::KernelRecord megalith_kernel_##name = {                                  \
      ::megalith::kAbiVersion, #name, ::megalith::kThreadsPerCta, name, &::megalith::host::api};   \
  static void name([[maybe_unused]] const ::megalith::LaunchArgs &args)
#define MEGALITH_KERNEL_OF_TWO(name) MEGALITH_KERNEL(name)

/// Opens a kernel that loops over a step; see platform_cuda.cuh. Its record takes the arguments by
/// their first member, as any kernel's.
#define MEGALITH_STEP_KERNEL(name, launches, layered)                                              \
  static void name##_loop(const ::megalith::StepArgs<launches, layered> &args);                    \
  static void name(const ::megalith::LaunchArgs &args) {                                           \
    name##_loop(reinterpret_cast<const ::megalith::StepArgs<launches, layered> &>(args));          \
  }                                                                                                \
  extern "C" __attribute__((visibility("default"), used))                                          \
  const ::megalith::host::KernelRecord megalith_kernel_##name = {                                  \
      ::megalith::kAbiVersion, #name, ::megalith::kThreadsPerCta, name, &::megalith::host::api};   \
  static void name##_loop(const ::megalith::StepArgs<launches, layered> &args)

/// Opens a kernel of several ranks, likewise.
#define MEGALITH_RANKS_KERNEL(name, ranks, peers)                                                  \
  static void name##_rank(const ::megalith::RanksArgs<ranks, peers> &args);                        \
  static void name(const ::megalith::LaunchArgs &args) {                                           \
    name##_rank(reinterpret_cast<const ::megalith::RanksArgs<ranks, peers> &>(args));              \
  }                                                                                                \
  extern "C" __attribute__((visibility("default"), used))                                          \
  const ::megalith::host::KernelRecord megalith_kernel_##name = {                                  \
      ::megalith::kAbiVersion, #name, ::megalith::kThreadsPerCta, name, &::megalith::host::api};   \
  static void name##_rank(const ::megalith::RanksArgs<ranks, peers> &args)

namespace megalith::host {
inline const HostApi *api = nullptr;
} // namespace megalith::host

namespace megalith::platform {

template <class T> MEGALITH_DEVICE void forget(T &) {}

MEGALITH_DEVICE int sm() {
  return host::api->sm();
}
MEGALITH_DEVICE int warp() {
  return host::api->warp();
}
MEGALITH_DEVICE int lane() {
  return host::api->lane();
}
MEGALITH_DEVICE unsigned char *smem() {
  return host::api->smem();
}
MEGALITH_DEVICE unsigned char *smem_kept() {
  return smem();
}

template <class T> MEGALITH_DEVICE T ld_shared(const void *p) {
#ifdef MEGALITH_HOST_LOG
  host::api->shared(p, sizeof(T), false);
#endif
  T value;
  memcpy(&value, p, sizeof(T));
  return value;
}
template <class T> MEGALITH_DEVICE void st_shared(void *p, T value) {
#ifdef MEGALITH_HOST_LOG
  host::api->shared(p, sizeof(T), true);
#endif
  memcpy(p, &value, sizeof(T));
}

namespace detail {
template <class T> MEGALITH_DEVICE T load(const void *p, host::Order order) {
  static_assert(sizeof(T) <= 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  T value;
  host::api->load(p, sizeof(T), order, &value);
  return value;
}
} // namespace detail

template <class T> MEGALITH_DEVICE T ld_global(const void *p) {
  return detail::load<T>(p, host::Order::weak);
}
template <class T> MEGALITH_DEVICE T ld_const(const void *p) {
  return detail::load<T>(p, host::Order::constant);
}
template <class T> MEGALITH_DEVICE void st_global(void *p, T value) {
  static_assert(sizeof(T) <= 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  host::api->store(p, sizeof(T), host::Order::weak, &value);
}

template <Scope, class T> MEGALITH_DEVICE T ld_relaxed(const T *p) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  return detail::load<T>(p, host::Order::relaxed);
}
template <Scope, class T> MEGALITH_DEVICE T ld_acquire(const T *p) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  return detail::load<T>(p, host::Order::acquire);
}
template <Scope> MEGALITH_DEVICE u32x4 ld_relaxed_v4(const uint32_t *p) {
  uint32_t w[4];
  host::api->load_words(p, w);
  return {w[0], w[1], w[2], w[3]};
}
template <Scope scope, class T> MEGALITH_DEVICE void st_relaxed(T *p, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  constexpr host::Order order = scope == Scope::sys ? host::Order::system : host::Order::relaxed;
  host::api->store(p, sizeof(T), order, &value);
}
template <Scope, class T> MEGALITH_DEVICE void st_release(T *p, T value) {
  static_assert(sizeof(T) == 4);
  host::api->store(p, sizeof(T), host::Order::release, &value);
}
template <Scope> MEGALITH_DEVICE void red_add_relaxed(uint32_t *p, uint32_t value) {
  host::api->add(p, value, host::Order::relaxed);
}
template <Scope> MEGALITH_DEVICE void red_add_release(uint32_t *p, uint32_t value) {
  host::api->add(p, value, host::Order::release);
}

MEGALITH_DEVICE void mbarrier_init(uint64_t *bar, uint32_t arrivals) {
  host::api->mbarrier_init(bar, arrivals);
}
MEGALITH_DEVICE void fence_mbarrier_init() {}
MEGALITH_DEVICE void mbarrier_arrive(uint64_t *bar) {
  host::api->mbarrier_arrive(bar, 0);
}
MEGALITH_DEVICE void mbarrier_arrive_expect_tx(uint64_t *bar, uint32_t bytes) {
  host::api->mbarrier_arrive(bar, bytes);
}
MEGALITH_DEVICE void mbarrier_expect_tx(uint64_t *bar, uint32_t bytes) {
  host::api->mbarrier_expect(bar, bytes);
}
using BarrierRef = uint64_t *;
MEGALITH_DEVICE BarrierRef barrier_ref(uint64_t *bar) {
  return bar;
}
MEGALITH_DEVICE bool mbarrier_try_wait(uint64_t *bar, uint32_t parity) {
  return host::api->mbarrier_try_wait(bar, parity);
}
MEGALITH_DEVICE void mbarrier_passed(uint64_t *bar, uint32_t phases) {
  host::api->mbarrier_passed(bar, phases);
}
MEGALITH_DEVICE void fence_proxy_async() {}
MEGALITH_DEVICE void cp_async_bulk(void *dst, const void *src, uint32_t bytes, uint64_t *bar) {
  host::api->copy_bulk(dst, src, bytes, bar);
}
MEGALITH_DEVICE void prefetch_l2(const void *p, uint32_t bytes) {
  host::api->prefetch(p, bytes);
}

MEGALITH_DEVICE void warp_sync() {
  host::api->collective(host::Collective::sync, nullptr, 0, nullptr);
}
namespace detail {
template <class T> MEGALITH_DEVICE T shuffle(host::Collective op, T value, int argument) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint64_t in = 0, out = 0;
  memcpy(&in, &value, sizeof(T));
  host::api->collective(op, &in, argument, &out);
  memcpy(&value, &out, sizeof(T));
  return value;
}
} // namespace detail
template <class T> MEGALITH_DEVICE T shfl_xor(T value, int mask) {
  return detail::shuffle(host::Collective::shuffle_xor, value, mask);
}
template <class T> MEGALITH_DEVICE T shfl(T value, int source) {
  return detail::shuffle(host::Collective::shuffle, value, source);
}
MEGALITH_DEVICE uint32_t ballot(bool p) {
  uint64_t in = p, out = 0;
  host::api->collective(host::Collective::ballot, &in, 0, &out);
  return static_cast<uint32_t>(out);
}
MEGALITH_DEVICE bool all_sync(bool p) {
  return ballot(p) == 0xFFFFFFFFu;
}
MEGALITH_DEVICE bool any_sync(bool p) {
  return ballot(p) != 0;
}
MEGALITH_DEVICE uint32_t reduce_max(uint32_t value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t other = shfl_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}
MEGALITH_DEVICE int popcount(uint32_t bits) {
  return __builtin_popcount(bits);
}

MEGALITH_DEVICE uint32_t byte_permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = a | uint64_t{b} << 32;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i)
    out |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
  return out;
}
MEGALITH_DEVICE uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
  return (mask & a) | (~mask & b);
}
MEGALITH_DEVICE uint32_t mul_bf16x2(uint32_t a, uint32_t b); // below r16x2, which it uses

MEGALITH_DEVICE void named_barrier(int id, int threads) {
  host::api->named_barrier(id, threads);
}
MEGALITH_DEVICE void cta_sync() {
  host::api->named_barrier(0, kThreadsPerCta);
}

namespace detail {
MEGALITH_DEVICE void mma_k_loop(float (&acc)[4], const MmaLoop &l) {
  host::api->collective(host::Collective::mma, &l, 0, acc);
}
} // namespace detail
template <int N> MEGALITH_DEVICE void mma_k_loop(float (&acc)[N][4], const MmaLoop &l) {
  MmaLoop apart = l;
  apart.every = N * l.every;
  for (int i = 0; i < N && apart.first < l.steps; ++i, apart.first += l.every)
    detail::mma_k_loop(acc[i], apart);
}
template <int Steps, int Every, int N>
MEGALITH_DEVICE void mma_k_blocks(float (&acc)[N][4], const MmaLoop &l, int blocks, int a_bytes) {
  static_assert(Every == 1 || N == 1);
  MmaLoop block = l;
  block.steps = Steps;
  block.every = Every;
  for (int i = 0; i < blocks; ++i) {
    mma_k_loop(acc, block);
    block.a += a_bytes;
    block.b += Steps * l.b_stride;
  }
}
MEGALITH_DEVICE void mma_k_loops(float (&acc0)[4], float (&acc1)[4], const MmaLoop &l,
                                 const unsigned char *a1) {
  MmaLoop other = l;
  other.a = a1;
  detail::mma_k_loop(acc0, l);
  detail::mma_k_loop(acc1, other);
}
template <int N>
MEGALITH_DEVICE void mma_k_columns(float (&acc0)[N][4], float (&acc1)[N][4], const MmaLoop &l,
                                   const unsigned char *b1, bool b1_valid) {
  MmaLoop other = l;
  other.b = b1;
  other.b_valid = b1_valid;
  mma_k_loop(acc0, l);
  mma_k_loop(acc1, other);
}
template <int N>
MEGALITH_DEVICE void mma_tiles(float (&acc)[N][4], const unsigned char *a, int stride,
                               const u32x2 &b) {
  for (int i = 0; i < N; ++i)
    detail::mma_k_loop(acc[i], {.steps = 1,
                                .a = a + i * stride,
                                .j0 = 0,
                                .swap = 0,
                                .a_stride = 0,
                                .a_valid = true,
                                .b = reinterpret_cast<const unsigned char *>(&b),
                                .b_stride = 0,
                                .b_valid = true});
}

namespace detail {
/// Operands of N steps, in memory.
template <int N> struct StepOperands {
  u32x4 a[N];
  u32x2 b[N];
  template <class Fragment, class Operand>
  StepOperands(const Fragment &fragment, const Operand &operand) {
    for (int s = 0; s < N; ++s) {
      a[s] = fragment(s);
      b[s] = operand(s);
    }
  }
  MmaLoop loop(bool b_valid) const {
    return {.steps = N,
            .a = reinterpret_cast<const unsigned char *>(a),
            .j0 = 0,
            .swap = 0,
            .a_stride = sizeof(u32x4),
            .a_valid = true,
            .b = reinterpret_cast<const unsigned char *>(b),
            .b_stride = sizeof(u32x2),
            .b_valid = b_valid};
  }
};
} // namespace detail
template <int N, class Fragment, class Operand>
MEGALITH_DEVICE void mma_steps(float (&acc)[4], const Fragment &fragment, const Operand &operand,
                               bool b_valid) {
  const detail::StepOperands<N> operands(fragment, operand);
  detail::mma_k_loop(acc, operands.loop(b_valid));
}
template <int N, int Sums, class Fragment, class Operand>
MEGALITH_DEVICE void mma_steps(float (&acc)[Sums][4], const Fragment &fragment,
                               const Operand &operand, bool b_valid) {
  const detail::StepOperands<N> operands(fragment, operand);
  mma_k_loop(acc, operands.loop(b_valid));
}
template <int N, int Sums, class Fragment, class Operand, class Other>
MEGALITH_DEVICE void mma_steps(float (&acc0)[Sums][4], float (&acc1)[Sums][4],
                               const Fragment &fragment, const Operand &operand, const Other &other,
                               bool b_valid, bool other_valid) {
  mma_steps<N>(acc0, fragment, operand, b_valid);
  mma_steps<N>(acc1, fragment, other, other_valid);
}

template <int N, class Fragment, class Other, class Operand>
MEGALITH_DEVICE void mma_steps_of_two(float (&acc0)[4], float (&acc1)[4], const Fragment &fragment,
                                      const Other &other, const Operand &operand, bool b_valid) {
  mma_steps<N>(acc0, fragment, operand, b_valid);
  mma_steps<N>(acc1, other, operand, b_valid);
}

template <int N, int Sums>
MEGALITH_DEVICE void mma_held(float (&acc)[Sums][4], const u32x4 (&a)[N], const u32x2 (&b)[N],
                              bool wanted, bool b_valid) {
  if (wanted)
    mma_steps<N>(
        acc, [&](int i) { return a[i]; }, [&](int i) { return b[i]; }, b_valid);
}

template <int Steps, int Rest, class Load>
MEGALITH_DEVICE void mma_k_turn(float (&acc0)[2][4], float (&acc1)[2][4], const u32x4 (&a0)[Steps],
                                const u32x4 (&a1)[Rest], const u32x2 (&b)[Steps], bool wanted,
                                bool b_valid, const Load &load) {
  constexpr int kEvery = Steps / Rest;
  if (wanted)
    for (int s = 0; s < Steps; ++s) {
      const auto operand = [&](int) { return b[s]; };
      mma_steps<1>(
          acc0[s % 2], [&](int) { return a0[s]; }, operand, b_valid);
      if (s % kEvery == 0)
        mma_steps<1>(
            acc1[s % 2], [&](int) { return a1[s / kEvery]; }, operand, b_valid);
    }
  for (int s = 0; s < Steps; ++s)
    load(s);
}

MEGALITH_DEVICE float fdivf_(float a, float b) {
  return a / b;
}
MEGALITH_DEVICE float fmaf_(float a, float b, float c) {
  return ::fmaf(a, b, c);
}
MEGALITH_DEVICE float fmaxf_(float a, float b) {
  return ::fmaxf(a, b);
}
MEGALITH_DEVICE float fminf_(float a, float b) {
  return ::fminf(a, b);
}
MEGALITH_DEVICE float fabsf_(float a) {
  return ::fabsf(a);
}
MEGALITH_DEVICE float exp2f_(float x) {
  return ::exp2f(x);
}
MEGALITH_DEVICE float log2f_(float x) {
  return ::log2f(x);
}
MEGALITH_DEVICE float rsqrtf_(float x) {
  return 1.0f / ::sqrtf(x);
}
MEGALITH_DEVICE float sqrtf_(float x) {
  return ::sqrtf(x);
}
MEGALITH_DEVICE float bounded_quotient(float x, float d) {
  return x / d;
}
MEGALITH_DEVICE float sinf_(float x) {
  return ::sinf(x);
}
MEGALITH_DEVICE float cosf_(float x) {
  return ::cosf(x);
}

MEGALITH_DEVICE void launch_wait() {
  host::api->launch_wait();
}
MEGALITH_DEVICE void launch_dependents() {
  host::api->launch_dependents();
}
MEGALITH_DEVICE uint64_t now_ns() {
  return host::api->now_ns();
}
MEGALITH_DEVICE uint32_t physical_sm() {
  return static_cast<uint32_t>(host::api->sm());
}
MEGALITH_DEVICE uint32_t clock() {
  return host::api->clock();
}
MEGALITH_DEVICE void poll_pause(const void *p) {
  host::api->poll_pause(p);
}

[[noreturn]] MEGALITH_DEVICE void fail(FaultTable *table, uint32_t edge, uint64_t expected,
                                       uint64_t seen, uint64_t launch = 0) {
  host::api->fail(table, edge, expected, seen, launch);
  __builtin_unreachable();
}

#ifdef MEGALITH_HOST_LOG
template <class Verb, class Edge> MEGALITH_DEVICE void mark() {
  if constexpr (requires {
                  Verb::kOrderOfRanks;
                  requires Edge::kOfRanks;
                })
    host::api->mark(Verb::kText, Edge::kName, Verb::kOrderOfRanks);
  else
    host::api->mark(Verb::kText, Edge::kName, Verb::kOrder);
}
MEGALITH_DEVICE void mark_end() {
  host::api->mark(nullptr, nullptr, nullptr);
}
#else
template <class Verb, class Edge> MEGALITH_DEVICE void mark() {}
MEGALITH_DEVICE void mark_end() {}
#endif

} // namespace megalith::platform

namespace megalith {

MEGALITH_DEVICE bf16 r16(float value) {
  uint32_t bits = float_to_bits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return {0x7FFF};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

MEGALITH_DEVICE uint32_t r16x2(float lo, float hi) {
  return uint32_t{r16(lo).bits} | uint32_t{r16(hi).bits} << 16;
}

} // namespace megalith

namespace megalith::platform {

MEGALITH_DEVICE uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  return r16x2(lo16(a) * lo16(b), hi16(a) * hi16(b));
}

namespace detail {
/// Multiples of 2^(e - 3) where 2^e is the value's power of two, 2^-6 at the least.
MEGALITH_DEVICE float e4m3_value(uint32_t code) {
  const int field = static_cast<int>(code >> 3 & 15), digits = static_cast<int>(code & 7);
  const float sign = code & 0x80 ? -1.0f : 1.0f;
  if (field == 15 && digits == 7)
    return sign * ::nanf("");
  return sign * ::ldexpf(static_cast<float>(field ? 8 + digits : digits), (field ? field : 1) - 10);
}
MEGALITH_DEVICE uint32_t e4m3_code(float value) {
  if (value != value)
    return 0x7F;
  const uint32_t sign = float_to_bits(value) >> 31 << 7;
  const float magnitude = ::fabsf(value);
  if (magnitude >= 464.0f) // half way between 448 and what would come next
    return sign | 0x7E;
  int exponent = -6;
  if (magnitude > 0x1p-6f)
    exponent = ::ilogbf(magnitude);
  const float digits = ::rintf(::ldexpf(magnitude, 3 - exponent)); // 16: the next power of two
  return sign | static_cast<uint32_t>(8 * (exponent + 6) + static_cast<int>(digits));
}
} // namespace detail

MEGALITH_DEVICE u32x2 widen_e4m3(uint32_t codes) {
  float x[4];
  for (int i = 0; i < 4; ++i)
    x[i] = detail::e4m3_value(codes >> 8 * i & 0xFF);
  return {r16x2(x[0], x[1]), r16x2(x[2], x[3])};
}
MEGALITH_DEVICE uint32_t e4m3x2(float lo, float hi) {
  return detail::e4m3_code(lo) | detail::e4m3_code(hi) << 8;
}

} // namespace megalith::platform
