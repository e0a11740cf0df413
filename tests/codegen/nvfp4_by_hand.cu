// The routed experts of a layer with NVFP4 weights, by hand: x -> gate and up -> act words -> down
// -> y of every pair, routing given. Tiles of all active experts are dealt out among the SMs; the
// factors of gates, ups and downs differ and multiply finished sums.
//
// NVFP4_NAME is the name of the kernel; NVFP4_SMS, _ROWS, _HIDDEN, _INNER, _EXPERTS and _TOPK its
// shape, NVFP4_SLOTS its ring.
#include "codegen/device/embed.cuh"
#include "codegen/device/epilogue.cuh"
#include "codegen/device/nvfp4.cuh"

#ifndef NVFP4_NAME
#define NVFP4_NAME nvfp4_experts
#define NVFP4_SMS 128
#define NVFP4_ROWS 1
#define NVFP4_HIDDEN 4096
#define NVFP4_INNER 512
#define NVFP4_EXPERTS 256
#define NVFP4_TOPK 8
#define NVFP4_SLOTS 9
#endif
#define NVFP4_KERNEL(NAME) MEGALITH_KERNEL(NAME) // so that NVFP4_NAME is expanded

namespace megalith::NVFP4_NAME {

struct Config {
  static constexpr int kSms = NVFP4_SMS;
  static constexpr int kRows = NVFP4_ROWS;
  static constexpr int kEdges = 9;
};
using Cta = megalith::Cta<Config>;

constexpr int kHidden = NVFP4_HIDDEN, kInner = NVFP4_INNER, kExperts = NVFP4_EXPERTS;
constexpr int kTopK = NVFP4_TOPK, kPairs = kTopK * Config::kRows;
constexpr int kMostActive = kExperts < kPairs ? kExperts : kPairs;

// Slots of LaunchArgs::buffer
constexpr int x = 0, w_up = 1, w_down = 2, routing = 3, out = 5;
using act = Words<4, kPairs, kInner / 2, 2>;

/// Which experts the step uses: in buffer `routing` and in shared memory.
struct Routing {
  int32_t active, expert[kMostActive], first[kMostActive + 1], pair[kPairs];
};

// Stages: two neighbouring tiles of gates and ups are a sector of 16 activations.
using gate_up = Nvfp4<w_up, 2 * kInner, kHidden, kInner % 16 ? 1 : 2>;
using down = Nvfp4<w_down, kHidden, kInner>;

// Shared memory
constexpr uint32_t kSlotBytes =
    (gate_up::kPieceBytes > down::kPieceBytes ? gate_up::kPieceBytes : down::kPieceBytes);
using ring = Ring<0, NVFP4_SLOTS, kSlotBytes>;
using part = Part<ring::kBytes, 2>;
using xs = Rows<part::kOffset + part::kBytes, Config::kRows, kHidden>;
using acts = Rows<xs::kOffset + xs::kBytes, kPairs, kInner>;
constexpr uint32_t kRouted = acts::kOffset + acts::kBytes;
constexpr uint32_t kBarriers = (kRouted + sizeof(Routing) + 7) / 8 * 8;
static_assert(kBarriers + 16 * NVFP4_SLOTS + 56 <= 227 * 1024);

// Edges
struct w_full : MbarrierEdge<0, kBarriers, NVFP4_SLOTS, 1> {
  static constexpr char kName[] = "w_full";
};
struct w_free : MbarrierEdge<1, w_full::kOffset + 8 * NVFP4_SLOTS, NVFP4_SLOTS, 8> {
  static constexpr char kName[] = "w_free";
};
struct p_full : MbarrierEdge<2, w_free::kOffset + 8 * NVFP4_SLOTS, 2, 8> {
  static constexpr char kName[] = "p_full";
};
struct p_free : MbarrierEdge<3, p_full::kOffset + 16, 2, 1> {
  static constexpr char kName[] = "p_free";
};
struct x_full : MbarrierEdge<4, p_free::kOffset + 16, 1, 1> {
  static constexpr char kName[] = "x_full";
};
struct routed : MbarrierEdge<5, x_full::kOffset + 8, 1, 1> { // poller -> all others
  static constexpr char kName[] = "routed";
};
struct acts_full : MbarrierEdge<6, routed::kOffset + 8, 1, 1> {
  static constexpr char kName[] = "acts_full";
};
struct act_words : WordsEdge<7, act> {
  static constexpr char kName[] = "act_words";
};

MEGALITH_DEVICE const Routing *table_of(const Cta &cta) {
  return shared_at<const Routing>(cta, kRouted);
}
MEGALITH_DEVICE int active_experts(const Cta &cta) {
  return platform::ld_shared<int32_t>(&table_of(cta)->active);
}
struct Expert {
  int id, count;
  const int32_t *pairs;
};
MEGALITH_DEVICE Expert expert_at(const Cta &cta, int e) {
  const Routing *t = table_of(cta);
  const int first = platform::ld_shared<int32_t>(&t->first[e]);
  return {platform::ld_shared<int32_t>(&t->expert[e]),
          platform::ld_shared<int32_t>(&t->first[e + 1]) - first, &t->pair[first]};
}

template <class L> MEGALITH_DEVICE void stream(Cta &cta) {
  for (int e = 0; e < active_experts(cta); ++e) {
    const int id = expert_at(cta, e).id;
    MEGALITH_UNROLL(1)
    for (int m = 0; m < tiles<L>(cta, e); ++m)
      MEGALITH_UNROLL(1)
    for (int b = 0; b < L::kBlocks; ++b) {
      acquire<w_free>(cta);
      copy_piece<w_full, ring, L>(cta, tile_of<L>(cta, e, m), b, id);
    }
  }
}
template <class L, class X, int PairsPerRow> MEGALITH_DEVICE void multiply(Cta &cta) {
  for (int e = 0; e < active_experts(cta); ++e) {
    const Expert expert = expert_at(cta, e);
    const Column column = gathered_column<L, X, PairsPerRow>(cta, expert.pairs, expert.count);
    MEGALITH_UNROLL(1)
    for (int m = 0; m < tiles<L>(cta, e); ++m) {
      ChunkSum sum = {};
      MEGALITH_UNROLL(1)
      for (int b = 0; b < L::kBlocks; ++b) {
        const int slot = wait<w_full>(cta);
        gemv_block<L, ring>(cta, sum, slot, m, b, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
  }
}
template <class L, class Use> MEGALITH_DEVICE void finish(Cta &cta, Use use) {
  for (int e = 0; e < active_experts(cta); ++e) {
    const Expert expert = expert_at(cta, e);
    const FloatPair factors = weight_factors<L>(cta, expert.id);
    MEGALITH_UNROLL(1)
    for (int m = 0; m < tiles<L>(cta, e); ++m) {
      const int place = wait<p_full>(cta);
      const Fragment sum = sum_scaled<part>(cta, place, factors);
      release<p_free>(cta);
      use(tile_of<L>(cta, e, m), sum, expert);
    }
  }
}

MEGALITH_DEVICE void producer(Cta &cta) {
  wait<routed>(cta);
  stream<gate_up>(cta);
  stream<down>(cta);
}

MEGALITH_DEVICE void poller(Cta &cta) {
  const auto *given = static_cast<const uint32_t *>(cta.args.buffer[routing]);
  for (int i = cta.lane; i < static_cast<int>(sizeof(Routing) / 4); i += 32)
    platform::st_shared(cta.smem + kRouted + 4 * i, platform::ld_const<uint32_t>(given + i));
  signal<routed>(cta);
  read_rows<xs, x>(cta);
  signal<x_full>(cta);
  launch_wait();
  rearm<act>(cta);
  launch_dependents();
  poll_pairs<act_words, acts, kTopK>(cta);
  signal<acts_full>(cta);
}

MEGALITH_DEVICE void consumer(Cta &cta) {
  wait<routed>(cta);
  wait<x_full>(cta);
  multiply<gate_up, xs, kTopK>(cta);
  wait<acts_full>(cta);
  multiply<down, acts, 1>(cta);
}

MEGALITH_DEVICE void epilogue(Cta &cta) {
  launch_wait();
  wait<routed>(cta);
  finish<gate_up>(cta, [&](int tile, const Fragment &sum, const Expert &expert) {
    epilogue_glu<gate_up, act_words>(cta, tile, sum, expert.pairs, expert.count);
  });
  finish<down>(cta, [&](int tile, const Fragment &sum, const Expert &expert) {
    detail::each_word<down>(
        cta, tile, sum, expert.count, [&](int column, int strip, float low, float high) {
          const int pair = platform::ld_shared<int32_t>(expert.pairs + column);
          auto *y = static_cast<uint32_t *>(cta.args.buffer[out]) + down::kStrips * pair;
          platform::st_global(y + kTileStrips * tile + strip, r16x2(low, high));
        });
  });
}

NVFP4_KERNEL(NVFP4_NAME) {
  Cta cta(args);
  start_delay(cta);
  setup<w_full, w_free, p_full, p_free, x_full, routed, acts_full>(cta);
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

} // namespace megalith::NVFP4_NAME
