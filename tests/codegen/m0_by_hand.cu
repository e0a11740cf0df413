// norm -> linear -> linear over 4 SMs, by hand: x 512 -> norm -> h 256 -> out 128.
//
// The kernel that the emitter must print for DESIGN's appendix, in its style: one Config, aliases
// for buffers, edges and stages, one straight-line function per role. It proves that the device
// headers suffice. M0_ROWS picks the rows bucket; M0_DROP_WAIT leaves out a wait, which a test
// shows to be noticed.
#include "codegen/device/edges.cuh"
#include "codegen/device/embed.cuh"
#include "codegen/device/epilogue.cuh"
#include "codegen/device/exchange.cuh"
#include "codegen/device/gemv.cuh"
#include "codegen/device/norm.cuh"

#ifndef M0_ROWS
#define M0_ROWS 1
#endif
#ifndef M0_NAME
#define M0_NAME m0
#endif

namespace megalith::M0_NAME {

struct Config {
  static constexpr int kSms = 4;
  static constexpr int kRows = M0_ROWS;
  static constexpr int kEdges = 8;
  static constexpr uint32_t kSharedBytes = 92416;
};
using Cta = megalith::Cta<Config>;

// Buffer slots (LaunchArgs::buffer)
constexpr int kTable = 0, kGain = 1, kW1 = 2, kW2 = 3, kH = 4, kOut = 5;

// Shared memory
using ring = Ring<0, 4, 16384>;
using part = Part<65536, 2>;
using xs = Rows<73728, Config::kRows, 512>;
using hs = Rows<82176, Config::kRows, 256>;

// Exchanges
using h = Words<kH, Config::kRows, 128, 2>;

// Edges
struct w_full : MbarrierEdge<0, 92160, 4, 1> { // producer -> consumer, bytes
  static constexpr char kName[] = "w_full";
};
struct w_free : MbarrierEdge<1, 92192, 4, 8> { // consumer -> producer
  static constexpr char kName[] = "w_free";
};
struct x_here : MbarrierEdge<2, 92224, 1, 1> { // poller -> consumer
  static constexpr char kName[] = "x_here";
};
struct h_words : WordsEdge<3, h> { // epilogue of all SMs -> poller
  static constexpr char kName[] = "h_words";
};
struct h_here : MbarrierEdge<4, 92232, 1, 1> { // poller -> consumer
  static constexpr char kName[] = "h_here";
};
struct p_full : MbarrierEdge<5, 92240, 2, 8> { // consumer -> epilogue
  static constexpr char kName[] = "p_full";
};
struct p_free : MbarrierEdge<6, 92256, 2, 1> { // epilogue -> consumer
  static constexpr char kName[] = "p_free";
};

// Stages
using table = Embedding<kTable, 512>;      // moe.embed
using norm1 = RmsNorm<xs, kGain, 1e-6f>;   // moe.rms_norm
using linear1 = Linear<kW1, 256, 512, 32>; // moe.linear
using linear2 = Linear<kW2, 128, 256, 16>; // moe.linear

MEGALITH_DEVICE void producer(Cta &cta) {
  // norm1, linear1
  for (int tile = 0; tile < tiles<linear1>(cta); ++tile)
    for (int block = 0; block < linear1::kBlocks; ++block) {
      acquire<w_free>(cta);
      copy_piece<w_full, ring, linear1>(cta, tile, block);
    }
  // linear2
  for (int tile = 0; tile < tiles<linear2>(cta); ++tile)
    for (int block = 0; block < linear2::kBlocks; ++block) {
      acquire<w_free>(cta);
      copy_piece<w_full, ring, linear2>(cta, tile, block);
    }
}

MEGALITH_DEVICE void poller(Cta &cta) {
  // norm1, linear1
  embed_rows<table, xs>(cta);
  signal<x_here>(cta);
  launch_wait();
  rearm<h>(cta);
  launch_dependents();
  // linear2
  poll_rows<h_words, hs>(cta);
  signal<h_here>(cta);
}

MEGALITH_DEVICE void consumer(Cta &cta) {
  // norm1, linear1
  wait<x_here>(cta);
  rms_norm<norm1>(cta);
  const Column x = dense_column<linear1, xs>(cta);
  for (int tile = 0; tile < tiles<linear1>(cta); ++tile) {
    Fragment sum = {};
    for (int block = 0; block < linear1::kBlocks; ++block) {
      const int slot = wait<w_full>(cta);
      gemv_block<linear1, ring>(cta, sum, slot, tile, block, x);
      release<w_free>(cta);
    }
    store_part<part>(cta, acquire<p_free>(cta), sum);
    signal<p_full>(cta);
  }
  // linear2
#ifndef M0_DROP_WAIT
  wait<h_here>(cta);
#endif
  const Column hidden = dense_column<linear2, hs>(cta);
  for (int tile = 0; tile < tiles<linear2>(cta); ++tile) {
    Fragment sum = {};
    for (int block = 0; block < linear2::kBlocks; ++block) {
      const int slot = wait<w_full>(cta);
      gemv_block<linear2, ring>(cta, sum, slot, tile, block, hidden);
      release<w_free>(cta);
    }
    store_part<part>(cta, acquire<p_free>(cta), sum);
    signal<p_full>(cta);
  }
}

MEGALITH_DEVICE void epilogue(Cta &cta) {
  // norm1, linear1
  launch_wait();
  for (int tile = 0; tile < tiles<linear1>(cta); ++tile) {
    const Fragment sum = sum_chunks<part>(cta, wait<p_full>(cta));
    release<p_free>(cta);
    epilogue_words<linear1, h_words>(cta, tile, sum);
  }
  // linear2
  for (int tile = 0; tile < tiles<linear2>(cta); ++tile) {
    const Fragment sum = sum_chunks<part>(cta, wait<p_full>(cta));
    release<p_free>(cta);
    epilogue_store_bf16<linear2, kOut>(cta, tile, sum);
  }
}

MEGALITH_KERNEL(M0_NAME) {
  Cta cta(args);
  start_delay(cta);
  setup<w_full, w_free, x_here, h_here, p_full, p_free>(cta);
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
