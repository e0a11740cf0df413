// Code that does nothing but pass through the instruction caches. The host platform has none.
#pragma once

#include "codegen/device/platform.cuh"

// 64 instructions of 16 B: four independent chains.
#define MEGALITH_CODE_64B                                                                          \
  "fma.rn.f32 %0, %0, %4, %4;\n\tfma.rn.f32 %1, %1, %4, %4;\n\t"                                   \
  "fma.rn.f32 %2, %2, %4, %4;\n\tfma.rn.f32 %3, %3, %4, %4;\n\t"
#define MEGALITH_CODE_256B MEGALITH_CODE_64B MEGALITH_CODE_64B MEGALITH_CODE_64B MEGALITH_CODE_64B
#define MEGALITH_CODE_1K MEGALITH_CODE_256B MEGALITH_CODE_256B MEGALITH_CODE_256B MEGALITH_CODE_256B

namespace megalith::calibrate {

/// A warp runs Kilobytes KB of code without a jump. What it computes from `value` is 0 if `value`
/// is, which the compiler does not know.
template <int Kilobytes> MEGALITH_COLD float pass_through_code(float value) {
#if defined(__CUDACC__)
  // Four that are not the same: ptxas makes one chain of four that are, and a quarter of the code.
  float a = 2 * value, b = 3 * value, c = 5 * value, d = 7 * value;
#pragma unroll
  for (int i = 0; i < Kilobytes; ++i)
    asm volatile(MEGALITH_CODE_1K : "+f"(a), "+f"(b), "+f"(c), "+f"(d) : "f"(value));
  return a + b + c + d;
#else
  return value;
#endif
}

} // namespace megalith::calibrate
