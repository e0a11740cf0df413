// The matrix products of platform.cuh, by tensor cores: which operands are under way while which
// products go on.
#pragma once

#include "codegen/device/platform.cuh"

namespace megalith::platform {

namespace detail {
MEGALITH_DEVICE void mma(float (&acc)[4], const u32x4 &a, const u32x2 &b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
} // namespace detail

/// Operands of up to four steps are under way before the first product: the loads' latency is paid
/// once, and no lane branches (what is not valid is read and multiplied all the same).
template <int N> MEGALITH_DEVICE void mma_k_loop(float (&acc)[N][4], const MmaLoop &l) {
  constexpr int kAhead = 4;
  static_assert(kAhead % N == 0);
#pragma unroll
  for (int first = 0; first < l.steps; first += kAhead) {
    u32x4 a[kAhead];
    u32x2 b[kAhead];
#pragma unroll
    for (int s = 0; s < kAhead; ++s)
      if (first + s < l.steps) {
        a[s] = ld_shared<u32x4>(l.a + ((l.j0 + first + s) ^ l.swap) * l.a_stride);
        b[s] = ld_shared<u32x2>(l.b + (first + s) * l.b_stride);
      }
#pragma unroll
    for (int s = 0; s < kAhead; ++s)
      if (first + s < l.steps)
        detail::mma(acc[s % N], a[s], b[s]);
  }
}

/// `blocks` loops of Steps steps, of these each Every-th; A `a_bytes` behind that of the one
/// before, B following on. A step's operands for the next block are asked for as soon as its
/// product has begun: few rows are bound by the latencies of loads and products. Lanes without rows
/// of A load none.
template <int Steps, int Every, int N>
MEGALITH_DEVICE void mma_k_blocks(float (&acc)[N][4], const MmaLoop &l, int blocks, int a_bytes) {
  static_assert(Every == 1 || N == 1);
  u32x4 a[Steps] = {};
  u32x2 b[Steps];
  const unsigned char *a_at = l.a, *b_at = l.b;
  auto load = [&](int s) {
    if (l.a_valid)
      a[s] = ld_shared<u32x4>(a_at + ((l.j0 + s) ^ l.swap) * l.a_stride);
    b[s] = ld_shared<u32x2>(b_at + s * l.b_stride);
  };
#pragma unroll
  for (int s = 0; s < Steps; s += Every)
    load(s);
#pragma unroll 1
  for (int block = 1; block < blocks; ++block) {
    a_at += a_bytes;
    b_at += Steps * l.b_stride;
#pragma unroll
    for (int s = 0; s < Steps; s += Every) {
      detail::mma(acc[s % N], a[s], b[s]);
      load(s);
    }
  }
#pragma unroll
  for (int s = 0; s < Steps; s += Every)
    detail::mma(acc[s % N], a[s], b[s]);
}

namespace detail {
/// The same if `wanted`, which all lanes agree on: a product that is left out costs a slot to
/// issue.
MEGALITH_DEVICE void mma_if(float (&acc)[4], const u32x4 &a, const u32x2 &b, bool wanted) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %10, 0;\n\t"
               "@p mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}; }"
               : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y),
                 "r"(static_cast<uint32_t>(wanted)));
}
} // namespace detail

/// N products of operands in registers, if `wanted`: product i is added to acc[i % Sums].
template <int N, int Sums>
MEGALITH_DEVICE void mma_held(float (&acc)[Sums][4], const u32x4 (&a)[N], const u32x2 (&b)[N],
                              bool wanted, bool) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    detail::mma_if(acc[i % Sums], a[i], b[i], wanted);
}

/// Steps products of operands in registers, if `wanted`: step s is added to acc0[s % 2]; a second A
/// meets the same B in every step or, if there are half as many, in the even ones. Each makes way
/// for what `load(s)` brings, which comes while products go on.
template <int Steps, int Rest, class Load>
MEGALITH_DEVICE void mma_k_turn(float (&acc0)[2][4], float (&acc1)[2][4], const u32x4 (&a0)[Steps],
                                const u32x4 (&a1)[Rest], const u32x2 (&b)[Steps], bool wanted, bool,
                                const Load &load) {
  constexpr int kEvery = Steps / Rest;
#pragma unroll
  for (int s = 0; s < Steps; ++s) {
    detail::mma_if(acc0[s % 2], a0[s], b[s], wanted);
    if (s % kEvery == 0)
      detail::mma_if(acc1[s % 2], a1[s / kEvery], b[s], wanted);
    load(s);
  }
}

/// Two loops at once over the same B: acc1 is that of `l` with A at `a1`.
MEGALITH_DEVICE void mma_k_loops(float (&acc0)[4], float (&acc1)[4], const MmaLoop &l,
                                 const unsigned char *a1) {
  constexpr int kAhead = 4;
#pragma unroll
  for (int first = 0; first < l.steps; first += kAhead) {
    u32x4 a[2][kAhead];
    u32x2 b[kAhead];
#pragma unroll
    for (int s = 0; s < kAhead; ++s)
      if (first + s < l.steps) {
        const int at = ((l.j0 + first + s) ^ l.swap) * l.a_stride;
        b[s] = ld_shared<u32x2>(l.b + (first + s) * l.b_stride);
        a[0][s] = ld_shared<u32x4>(l.a + at);
        a[1][s] = ld_shared<u32x4>(a1 + at);
      }
#pragma unroll
    for (int s = 0; s < kAhead; ++s)
      if (first + s < l.steps) {
        detail::mma(acc0, a[0][s], b[s]);
        detail::mma(acc1, a[1][s], b[s]);
      }
  }
}

/// Two loops at once over the same A: acc1 is that of `l` with B at `b1`. (What is not valid is
/// multiplied all the same.)
template <int N>
MEGALITH_DEVICE void mma_k_columns(float (&acc0)[N][4], float (&acc1)[N][4], const MmaLoop &l,
                                   const unsigned char *b1, bool) {
  constexpr int kAhead = 4;
  static_assert(kAhead % N == 0);
#pragma unroll
  for (int first = 0; first < l.steps; first += kAhead) {
    u32x4 a[kAhead];
    u32x2 b[2][kAhead];
#pragma unroll
    for (int s = 0; s < kAhead; ++s)
      if (first + s < l.steps) {
        a[s] = ld_shared<u32x4>(l.a + ((l.j0 + first + s) ^ l.swap) * l.a_stride);
        b[0][s] = ld_shared<u32x2>(l.b + (first + s) * l.b_stride);
        b[1][s] = ld_shared<u32x2>(b1 + (first + s) * l.b_stride);
      }
#pragma unroll
    for (int s = 0; s < kAhead; ++s)
      if (first + s < l.steps) {
        detail::mma(acc0[s % N], a[s], b[0][s]);
        detail::mma(acc1[s % N], a[s], b[1][s]);
      }
  }
}

/// N steps whose operands are made in registers: acc += fragment(s) x operand(s), s ascending. A
/// lane without a column may give any operand.
template <int N, class Fragment, class Operand>
MEGALITH_DEVICE void mma_steps(float (&acc)[4], const Fragment &fragment, const Operand &operand,
                               bool) {
#pragma unroll
  for (int s = 0; s < N; ++s)
    detail::mma(acc, fragment(s), operand(s));
}
/// The same with sums by step: acc[s % Sums].
template <int N, int Sums, class Fragment, class Operand>
MEGALITH_DEVICE void mma_steps(float (&acc)[Sums][4], const Fragment &fragment,
                               const Operand &operand, bool) {
#pragma unroll
  for (int s = 0; s < N; ++s)
    detail::mma(acc[s % Sums], fragment(s), operand(s));
}
/// The same with two operands to each fragment.
template <int N, int Sums, class Fragment, class Operand, class Other>
MEGALITH_DEVICE void mma_steps(float (&acc0)[Sums][4], float (&acc1)[Sums][4],
                               const Fragment &fragment, const Operand &operand, const Other &other,
                               bool, bool) {
#pragma unroll
  for (int s = 0; s < N; ++s) {
    const u32x4 a = fragment(s);
    detail::mma(acc0[s % Sums], a, operand(s));
    detail::mma(acc1[s % Sums], a, other(s));
  }
}

/// The same with one operand to each two fragments.
template <int N, class Fragment, class Other, class Operand>
MEGALITH_DEVICE void mma_steps_of_two(float (&acc0)[4], float (&acc1)[4], const Fragment &fragment,
                                      const Other &other, const Operand &operand, bool) {
#pragma unroll
  for (int s = 0; s < N; ++s) {
    const u32x2 b = operand(s);
    detail::mma(acc0, fragment(s), b);
    detail::mma(acc1, other(s), b);
  }
}

/// One k16 step of N tiles of 16 rows, whose A fragments are `stride` bytes apart, times the same
/// B fragment, which is in registers: acc[i] += A(i) x B.
template <int N>
MEGALITH_DEVICE void mma_tiles(float (&acc)[N][4], const unsigned char *a, int stride,
                               const u32x2 &b) {
  constexpr int kAhead = 4;
#pragma unroll
  for (int first = 0; first < N; first += kAhead) {
    u32x4 fragment[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + i < N)
        fragment[i] = ld_shared<u32x4>(a + (first + i) * stride);
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + i < N)
        detail::mma(acc[first + i], fragment[i], b);
  }
}

} // namespace megalith::platform
