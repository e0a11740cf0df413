// y = W x with one NVFP4 matrix, 8 rows, sums in fp32: nothing but the product, so that its bits
// can be compared with the CPU's. Buffers: 0 x bf16 [8][K], 1 the packed matrix, 2 y fp32 [8][N].
// NVFP4_SMS, NVFP4_OUTPUTS (N) and NVFP4_INPUTS (K) are given.
#include "codegen/device/embed.cuh"
#include "codegen/device/epilogue.cuh"
#include "codegen/device/nvfp4.cuh"

namespace megalith::nvfp4_bits {

struct Config {
  static constexpr int kSms = NVFP4_SMS, kRows = 8, kEdges = 5;
};
using Cta = megalith::Cta<Config>;
constexpr int x = 0, w = 1, out = 2;
using product = Nvfp4<w, NVFP4_OUTPUTS, NVFP4_INPUTS>;

constexpr int kSlots = 4;
using ring = Ring<0, kSlots, product::kPieceBytes>;
using part = Part<ring::kBytes, 2>;
using xs = Rows<part::kOffset + part::kBytes, Config::kRows, NVFP4_INPUTS>;
constexpr uint32_t kBarriers = xs::kOffset + xs::kBytes;

struct w_full : MbarrierEdge<0, kBarriers, kSlots, 1> {
  static constexpr char kName[] = "w_full";
};
struct w_free : MbarrierEdge<1, kBarriers + 32, kSlots, 8> {
  static constexpr char kName[] = "w_free";
};
struct p_full : MbarrierEdge<2, kBarriers + 64, 2, 8> {
  static constexpr char kName[] = "p_full";
};
struct p_free : MbarrierEdge<3, kBarriers + 80, 2, 1> {
  static constexpr char kName[] = "p_free";
};
struct x_full : MbarrierEdge<4, kBarriers + 96, 1, 1> {
  static constexpr char kName[] = "x_full";
};

MEGALITH_KERNEL(nvfp4_bits) {
  Cta cta(args);
  setup<w_full, w_free, p_full, p_free, x_full>(cta);
  const int count = tiles<product>(cta, 0);
  switch (cta.role) {
  case Role::producer:
    for (int m = 0; m < count; ++m)
      for (int b = 0; b < product::kBlocks; ++b) {
        acquire<w_free>(cta);
        copy_piece<w_full, ring, product>(cta, tile_of<product>(cta, 0, m), b);
      }
    return;
  case Role::poller:
    read_rows<xs, x>(cta);
    signal<x_full>(cta);
    launch_wait();
    launch_dependents();
    return;
  case Role::consumer: {
    wait<x_full>(cta);
    const Column column = dense_column<product, xs>(cta);
    for (int m = 0; m < count; ++m) {
      ChunkSum sum = {};
      for (int b = 0; b < product::kBlocks; ++b) {
        const int slot = wait<w_full>(cta);
        gemv_block<product, ring>(cta, sum, slot, m, b, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
    return;
  }
  case Role::epilogue: {
    launch_wait();
    const FloatPair factors = weight_factors<product>(cta);
    for (int m = 0; m < count; ++m) {
      const int place = wait<p_full>(cta);
      const Fragment sum = sum_scaled<part>(cta, place, factors);
      release<p_free>(cta);
      epilogue_head<product, out>(cta, tile_of<product>(cta, 0, m), sum);
    }
    return;
  }
  }
}

} // namespace megalith::nvfp4_bits
