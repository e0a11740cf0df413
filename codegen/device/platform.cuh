// The machine as device code sees it. Everything in namespace megalith::platform is implemented
// twice, by platform_cuda.cuh and platform_cuda_mma.cuh (PTX) and by platform_host.cuh (fibers on a
// CPU, see runtime/host); no other device header may know the machine. This file holds what both
// share and lists the rest.
//
// ids          int sm(), int warp(), int lane(), uint32_t physical_sm(), unsigned char *smem(),
//              smem_kept()
// shared       T ld_shared<T>(const void *), void st_shared<T>(void *, T)      T: 1, 2, 4, 8, 16
// bytes global       T ld_global<T>(const void *), void st_global<T>(void *, T)      weak
//              T ld_const<T>(const void *)                                     immutable data only
// strong       T ld_relaxed<Scope, T>(const T *), void st_relaxed<Scope, T>(T *, T)
//                                          T: uint32_t, uint64_t, U128 (one access each)
//              u32x4 ld_relaxed_v4<Scope>(const uint32_t *)                    four b32 accesses
//              T ld_acquire<Scope, T>(const T *)                               uint32_t, uint64_t
//              void red_add_relaxed<Scope>(uint32_t *, uint32_t), red_add_release<Scope>(...)
// mbarrier     void mbarrier_init(bar, arrivals), mbarrier_arrive(bar),
//              mbarrier_arrive_expect_tx(bar, bytes), mbarrier_expect_tx(bar, bytes),
//              bool mbarrier_try_wait(bar, parity), mbarrier_passed(bar, phases),
//              BarrierRef barrier_ref(bar), also taken by try_wait
//              fence_mbarrier_init(), fence_proxy_async()                      bar: uint64_t *
// bulk         cp_async_bulk(dst, src, bytes, bar), prefetch_l2(p, bytes)      multiples of 16 B
// warp         warp_sync(), shfl_xor(v, mask), shfl(v, lane), ballot(p), all_sync(p), any_sync(p),
//              uint32_t reduce_max(uint32_t)
// CTA          named_barrier(id, threads), cta_sync()
// mma          void mma_k_loop(float (&acc)[N][4], const MmaLoop &): step s is added to acc[s % N]
//              void mma_k_loops(float (&acc0)[4], float (&acc1)[4], const MmaLoop &, a1): two at
//              once over the same B
//              void mma_k_blocks<Steps, Every>(float (&acc)[N][4], const MmaLoop &, blocks,
//              a_bytes): loops of Steps steps, of these each Every-th, one after another
//              void mma_k_columns(float (&acc0)[N][4], float (&acc1)[N][4], const MmaLoop &, b1,
//              b1_valid): two at once over the same A
//              void mma_held(float (&acc)[Sums][4], u32x4 (&a)[N], u32x2 (&b)[N], wanted, b_valid):
//              products of operands in registers, product i is added to acc[i % Sums]
//              void mma_k_turn<Steps>(float (&acc0)[2][4], float (&acc1)[2][4], u32x4
//              (&a0)[Steps], (&a1)[Rest], u32x2 (&b)[Steps], wanted, b_valid, load): products of
//              operands in registers, and load(s) when step s is done with them
//              void mma_tiles<N>(float (&acc)[N][4], a, stride, u32x2 b): one step of N row tiles
//              void mma_steps<N>(float (&acc)[4] or [Sums][4], fragment, operand, b_valid): as
//              mma_k_loop, of N steps whose operands are in registers: u32x4 fragment(s), u32x2
//              operand(s)
//              void mma_steps_of_two<N>(acc0, acc1, fragment0, fragment1, operand, b_valid): of two
//              fragments to one operand
// bits         int popcount(uint32_t), uint32_t byte_permute(a, b, selector),
//              uint32_t mul_bf16x2(a, b)                       subnormals are numbers, also there
//              u32x2 widen_e4m3(codes): four e4m3 as bf16, uint32_t e4m3x2(lo, hi): two rounded
// math         fdivf_, fmaf_, exp2f_, log2f_, rsqrtf_, sqrtf_, sinf_, cosf_, fmaxf_, fminf_, fabsf_
// launch       launch_wait(), launch_dependents(), poll_pause(p)
// time         uint64_t now_ns(), uint32_t clock()         the latter of this SM, wraps
// faults       [[noreturn]] fail(FaultTable *, edge, expected, seen, launch = 0)
// lint marks   mark<Verb, Edge>(), mark_end()
#pragma once

#include "codegen/device/types.cuh"

namespace megalith::platform {

/// Who takes part in a strong access: one device, or all of them and the host.
enum class Scope { gpu, sys };

/// One warp's multiply-accumulate over consecutive k16 steps (mma.m16n8k16, bf16, fp32 sums).
/// For s in [0, steps), ascending: acc += A(s) x B(s). Pointers and flags are this lane's own;
/// steps, j0, swap and strides are the same in all lanes (swap may differ: it is the strip's
/// parity). Lane = 4 g + t holds rows g and g + 8 of A and column g of B, and k = 4t .. 4t + 3 of
/// each step on both sides.
/// Addresses are readable in any case, also of rows and columns that are not valid.
struct MmaLoop {
  int steps;              ///< k16 steps
  const unsigned char *a; ///< shared; 16-byte units {row g: k 4t,4t+1 | row g+8: k 4t,4t+1 |
                          ///< row g: k 4t+2,4t+3 | row g+8: k 4t+2,4t+3}
  int j0;                 ///< unit of step 0; step s reads unit (j0 + s) ^ swap
  int swap;               ///< 0 or 1
  int a_stride;           ///< bytes between units
  bool a_valid;           ///< false: both rows of A hold anything; their sums mean nothing
  const unsigned char *b; ///< shared; 8-byte units {k 4t..4t+3 of column g}
  int b_stride;           ///< bytes between steps
  bool b_valid;           ///< false: the column of B holds anything; its sums mean nothing
  int first = 0;          ///< the first step that is multiplied
  int every = 1;          ///< from one to the next
};

/// Verbs of the comments that bracket each emitted wait and signal in PTX:
///   // megalith <verb> @<Edge::kName> <order>   ...   // megalith end
/// Edge::kName is a `static constexpr char kName[]`.
namespace verb {
struct Wait {
  static constexpr char kText[] = "wait";
  static constexpr char kOrder[] = "acquire.cta";
};
struct Signal {
  static constexpr char kText[] = "signal";
  static constexpr char kOrder[] = "release.cta";
};
struct Acquire {
  static constexpr char kText[] = "acquire";
  static constexpr char kOrder[] = "acquire.cta";
};
struct Release {
  static constexpr char kText[] = "release";
  static constexpr char kOrder[] = "release.cta";
};
struct Copy {
  static constexpr char kText[] = "copy";
  static constexpr char kOrder[] = "async.cta";
};
struct Pace {
  static constexpr char kText[] = "pace";
  static constexpr char kOrder[] = "relaxed.cta";
};
struct Poll {
  static constexpr char kText[] = "wait";
  static constexpr char kOrder[] = "relaxed.gpu";
  static constexpr char kOrderOfRanks[] = "relaxed.sys"; // of edges with kOfRanks
};
struct AwaitLaunch {
  static constexpr char kText[] = "wait";
  static constexpr char kOrder[] = "acquire.gpu";
};
struct FinishLaunch {
  static constexpr char kText[] = "signal";
  static constexpr char kOrder[] = "release.gpu";
};
struct Publish {
  static constexpr char kText[] = "signal";
  static constexpr char kOrder[] = "relaxed.gpu";
  static constexpr char kOrderOfRanks[] = "relaxed.sys";
};
struct TellArmed {
  static constexpr char kText[] = "signal";
  static constexpr char kOrder[] = "release.sys";
};
struct AwaitArmed {
  static constexpr char kText[] = "wait";
  static constexpr char kOrder[] = "acquire.sys";
};
struct Rearm {
  static constexpr char kText[] = "rearm";
  static constexpr char kOrder[] = "relaxed.gpu";
};
} // namespace verb

} // namespace megalith::platform

#ifdef MEGALITH_HOST
#include "codegen/device/platform_host.cuh"
#else
#include "codegen/device/platform_cuda.cuh"
#include "codegen/device/platform_cuda_mma.cuh"
#endif
