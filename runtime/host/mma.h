// Emulation of one warp's mma_k_loop.
#pragma once

#include "codegen/device/platform.cuh"

namespace megalith::host {

/// acc[lane] (4 fp32 each) += A x B, for a whole warp; loops and accumulators of its 32 lanes.
/// Sums in fp32, ascending k. Returns false where steps, j0 or strides differ between lanes.
bool mmaKLoop(const platform::MmaLoop *const loops[32], float *const acc[32]);

} // namespace megalith::host
