//===- BlocksTest.cpp - The reference's blocks are the device's -----------===//
//
// Even and odd steps of a block are summed apart, so what a block is decides bits: the reference's
// against the code that kernels run, at every width up to that of the widest model.
//
//===----------------------------------------------------------------------===//

#include "models/reference/context.h"

#include "codegen/device/nvfp4.cuh"

#include <catch2/catch.hpp>

#include <utility>

using namespace megalith;
using namespace megalith::reference;

namespace {

struct Blocks {
  int64_t inputs, chunkSteps, blockSteps, scaledBlockSteps;
};

template <int Inputs> constexpr Blocks blocks() {
  using Strips = Linear<0, 16, Inputs, 8>;
  using Scaled = Nvfp4<0, 16, Inputs>;
  static_assert(Strips::kChunkSteps == Scaled::kChunkSteps);
  return {Inputs, Strips::kChunkSteps, Strips::kBlockSteps, Scaled::kBlockSteps};
}

/// 112 and 128 apart: whole chunks, and those that padding fills.
template <int... I> std::vector<Blocks> ofWidths(std::integer_sequence<int, I...>) {
  return {blocks<112 * (I + 1)>()..., blocks<128 * (I + 1)>()...};
}

} // namespace

TEST_CASE("The reference's blocks of a chunk are the device's") {
  for (const Blocks &device : ofWidths(std::make_integer_sequence<int, 128>())) {
    INFO("width " << device.inputs);
    const int64_t chunk = canonicalChunk(device.inputs);
    CHECK(chunk == 16 * device.chunkSteps);
    CHECK(stripBlockSteps(chunk) == device.blockSteps);
    CHECK(scaledBlockSteps(chunk) == device.scaledBlockSteps);
  }
}
