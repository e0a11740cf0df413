// Kernel m0 (toy) for sm_90a, 4 SMs, at most 1 row.
// Emitted by Megalith from role regions; change what it was compiled from, not this.
#include "codegen/device/attention_row.cuh"
#include "codegen/device/cta.cuh"
#include "codegen/device/edges.cuh"
#include "codegen/device/epilogue.cuh"
#include "codegen/device/exchange.cuh"
#include "codegen/device/forward.cuh"
#include "codegen/device/gemv.cuh"
#include "codegen/device/norm.cuh"
#include "codegen/device/parts.cuh"
#include "codegen/device/ring.cuh"
#include "codegen/device/rows.cuh"

namespace megalith::m0 {

struct Config {
  static constexpr int kSms = 4;
  static constexpr int kRows = 1;
  static constexpr int kEdges = 7;
  static constexpr int kWarps = 11;
  static constexpr uint32_t kSharedBytes = 74896;
};
using Cta = megalith::Cta<Config>;

// Buffers and weights: slots of LaunchArgs::buffer
constexpr int x = 0;
constexpr int gain = 1;
constexpr int out = 5;
constexpr int w1 = 2;
constexpr int w2 = 3;

// Exchanges: slot, rows, words a row, sets; or slot, epoch words
using h = Words<4, 1, 128, 2>;

// Shared memory: first the offset
using ring = Ring<0, 4, 16384>;
using xs = Rows<73728, 1, 512>;
using part = Part<65536, 2>;

// Edges: id, offset of the mbarriers, slots, arrivals
struct w_full : MbarrierEdge<0, 74784, 4, 1> { // producer -> consumer, by bytes
  static constexpr char kName[] = "w_full";
};
struct w_free : MbarrierEdge<1, 74816, 4, 8> { // consumer -> producer, free slots
  static constexpr char kName[] = "w_free";
};
struct h_words : WordsEdge<2, h> { // epilogue -> poller, words of all SMs
  static constexpr char kName[] = "h_words";
};
struct x_full : MbarrierEdge<3, 74848, 1, 1> { // poller -> consumer
  static constexpr char kName[] = "x_full";
};
struct x_free : MbarrierEdge<4, 74856, 1, 8> { // consumer -> poller, free slots
  static constexpr char kName[] = "x_free";
};
struct p_full : MbarrierEdge<5, 74864, 2, 8> { // consumer -> epilogue
  static constexpr char kName[] = "p_full";
};
struct p_free : MbarrierEdge<6, 74880, 2, 1> { // epilogue -> consumer, free slots
  static constexpr char kName[] = "p_free";
};

// Stages
// moe.linear "linear1" at m0.mlir:28
struct norm_linear1 : Linear<w1, 256, 512, 32> {
  using Norm = RmsNorm<xs, gain, 1.0e-6f>;
};
// moe.linear "linear2" at m0.mlir:98
struct linear2 : Linear<w2, 128, 256, 16> {
  using In = Rows<xs::kOffset, Config::kRows, 256>;
};

MEGALITH_DEVICE void producer(Cta &cta) {
  // norm_linear1
  MEGALITH_UNROLL(1)
  for (int m = 0; m < 4; ++m)
    for (int b = 0; b < 1; ++b) {
      acquire<w_free>(cta);
      pace<w_full, 2>(cta);
      copy_piece<w_full, ring, norm_linear1>(cta, m, b);
    }
  // linear2
  MEGALITH_UNROLL(1)
  for (int m = 0; m < 2; ++m)
    for (int b = 0; b < 1; ++b) {
      acquire<w_free>(cta);
      copy_piece<w_full, ring, linear2>(cta, m, b);
    }
}

MEGALITH_DEVICE void poller(Cta &cta) {
  // norm_linear1
  launch_wait();
  rearm<h>(cta);
  launch_dependents();
  acquire<x_free>(cta);
  read_rows<xs, x>(cta);
  signal<x_full>(cta);
  // linear2
  acquire<x_free>(cta);
  poll_rows<h_words, linear2::In>(cta);
  signal<x_full>(cta);
}

MEGALITH_DEVICE void consumer(Cta &cta) {
  // norm_linear1
  {
    wait<x_full>(cta);
    rms_norm<norm_linear1::Norm>(cta);
    const Column column = dense_column<norm_linear1, xs>(cta);
    MEGALITH_UNROLL(1)
    for (int m = 0; m < 4; ++m) {
      ChunkSum sum = {};
      for (int b = 0; b < 1; ++b) {
        const int slot = wait<w_full>(cta);
        gemv_block<norm_linear1, ring>(cta, sum, slot, m, b, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
    release<x_free>(cta);
  }
  // linear2
  {
    wait<x_full>(cta);
    const Column column = dense_column<linear2, linear2::In>(cta);
    MEGALITH_UNROLL(1)
    for (int m = 0; m < 2; ++m) {
      ChunkSum sum = {};
      for (int b = 0; b < 1; ++b) {
        const int slot = wait<w_full>(cta);
        gemv_block<linear2, ring>(cta, sum, slot, m, b, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
    release<x_free>(cta);
  }
}

MEGALITH_DEVICE void epilogue(Cta &cta) {
  // norm_linear1
  launch_wait();
  MEGALITH_UNROLL(1)
  for (int m = 0; m < 4; ++m) {
    forward_words<p_full, p_free, part, norm_linear1, h_words>(cta, m);
  }
  // linear2
  MEGALITH_UNROLL(1)
  for (int m = 0; m < 2; ++m) {
    const Fragment sum = take_part<p_full, p_free, part>(cta);
    epilogue_store_bf16<linear2, out>(cta, m, sum);
  }
}

MEGALITH_KERNEL(m0) {
  make_barriers<w_full, w_free, x_full, x_free, p_full, p_free>();
  Cta cta(args);
  start_delay(cta);
  setup(cta);
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

} // namespace megalith::m0
