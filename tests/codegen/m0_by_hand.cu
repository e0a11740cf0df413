// norm -> linear -> linear over 4 SMs, by hand: x 512 -> norm -> h 256 -> out 128.
//
// The kernel that the emitter must print for tests/ir/task/m0.mlir, in its style: aliases for
// buffers, edges and the ring, one config struct a stage, one straight-line function per role. It
// proves that the device headers suffice. M0_ROWS picks the rows bucket, M0_NAME the kernel's name;
// M0_DROP_WAIT leaves out a wait, which a test shows to be noticed.
#include "codegen/device/embed.cuh"
#include "codegen/device/epilogue.cuh"
#include "codegen/device/norm.cuh"

#ifndef M0_ROWS
#define M0_ROWS 1
#endif
#ifndef M0_NAME
#define M0_NAME m0
#endif
#define M0_KERNEL(NAME) MEGALITH_KERNEL(NAME) // so that M0_NAME is expanded

namespace megalith::M0_NAME {

struct Config {
  static constexpr int kSms = 4;
  static constexpr int kRows = M0_ROWS;
  static constexpr int kEdges = 7;
};
using Cta = megalith::Cta<Config>;

// Slots of LaunchArgs::buffer
constexpr int x = 0;
constexpr int gain = 1;
constexpr int w1 = 2;
constexpr int w2 = 3;
constexpr int out = 5;
using h = Words<4, Config::kRows, 128, 2>;

// Shared memory
using part = Part<65536, 2>;
using xs = Rows<73728, Config::kRows, 512>;

// Edges
struct w_full : MbarrierEdge<0, 82176, 4, 1> { // producer -> consumer, by bytes
  static constexpr char kName[] = "w_full";
};
struct w_free : MbarrierEdge<1, 82208, 4, 8> { // consumer -> producer
  static constexpr char kName[] = "w_free";
};
struct h_words : WordsEdge<2, h> { // epilogue of every SM -> poller
  static constexpr char kName[] = "h_words";
};
struct x_full : MbarrierEdge<3, 82240, 1, 1> { // poller -> consumer
  static constexpr char kName[] = "x_full";
};
struct x_free : MbarrierEdge<4, 82248, 1, 8> { // consumer -> poller
  static constexpr char kName[] = "x_free";
};
struct p_full : MbarrierEdge<5, 82256, 2, 8> { // consumer -> epilogue
  static constexpr char kName[] = "p_full";
};
struct p_free : MbarrierEdge<6, 82272, 2, 1> { // epilogue -> consumer
  static constexpr char kName[] = "p_free";
};
using ring = Ring<0, 4, 16384>;

// Stages
struct norm_linear1 : Linear<w1, 256, 512, 32> {
  using Norm = RmsNorm<xs, gain, 1e-6f>;
};
struct linear2 : Linear<w2, 128, 256, 16> {
  using In = Rows<xs::kOffset, Config::kRows, 256>;
};

MEGALITH_DEVICE void producer(Cta &cta) {
  // norm_linear1
  for (int m = 0; m < tiles<norm_linear1>(cta); ++m)
    for (int b = 0; b < norm_linear1::kBlocks; ++b) {
      acquire<w_free>(cta);
      copy_piece<w_full, ring, norm_linear1>(cta, m, b);
    }
  // linear2
  for (int m = 0; m < tiles<linear2>(cta); ++m)
    for (int b = 0; b < linear2::kBlocks; ++b) {
      acquire<w_free>(cta);
      copy_piece<w_full, ring, linear2>(cta, m, b);
    }
}

MEGALITH_DEVICE void poller(Cta &cta) {
  // norm_linear1
  acquire<x_free>(cta);
  read_rows<xs, x>(cta);
  signal<x_full>(cta);
  launch_wait();
  rearm<h>(cta);
  launch_dependents();
  // linear2
  acquire<x_free>(cta);
  poll_rows<h_words, linear2::In>(cta);
  signal<x_full>(cta);
}

MEGALITH_DEVICE void consumer(Cta &cta) {
  // norm_linear1
  wait<x_full>(cta);
  rms_norm<norm_linear1::Norm>(cta);
  {
    const Column column = dense_column<norm_linear1, xs>(cta);
    for (int m = 0; m < tiles<norm_linear1>(cta); ++m) {
      ChunkSum sum = {};
      for (int b = 0; b < norm_linear1::kBlocks; ++b) {
        const int slot = wait<w_full>(cta);
        gemv_block<norm_linear1, ring>(cta, sum, slot, m, b, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
  }
  release<x_free>(cta);
  // linear2
#ifndef M0_DROP_WAIT
  wait<x_full>(cta);
#endif
  {
    const Column column = dense_column<linear2, linear2::In>(cta);
    for (int m = 0; m < tiles<linear2>(cta); ++m) {
      ChunkSum sum = {};
      for (int b = 0; b < linear2::kBlocks; ++b) {
        const int slot = wait<w_full>(cta);
        gemv_block<linear2, ring>(cta, sum, slot, m, b, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
  }
  release<x_free>(cta);
}

MEGALITH_DEVICE void epilogue(Cta &cta) {
  // norm_linear1
  launch_wait();
  for (int m = 0; m < tiles<norm_linear1>(cta); ++m) {
    const int place = wait<p_full>(cta);
    const Fragment sum = sum_chunks<part>(cta, place);
    release<p_free>(cta);
    epilogue_words<norm_linear1, h_words>(cta, m, sum);
  }
  // linear2
  for (int m = 0; m < tiles<linear2>(cta); ++m) {
    const int place = wait<p_full>(cta);
    const Fragment sum = sum_chunks<part>(cta, place);
    release<p_free>(cta);
    epilogue_store_bf16<linear2, out>(cta, m, sum);
  }
}

M0_KERNEL(M0_NAME) {
  Cta cta(args);
  start_delay(cta);
  setup<w_full, w_free, x_full, x_free, p_full, p_free>(cta);
  switch (cta.role) {
  case Role::producer:
    return producer(cta);
  case Role::poller:
    return poller(cta);
  case Role::consumer:
    return consumer(cta);
  case Role::epilogue:
    return epilogue(cta);
  }
}

} // namespace megalith::M0_NAME
