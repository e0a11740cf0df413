// A mixture-of-experts layer without its attention, by hand, over 3 SMs: what is left of DESIGN's
// layer when the "attention" of a row is its own q of the launch before, and routing is given. Two
// kernels: the first launch (embedding, norm, projections) and a layer, chained any number of
// times. Together they use every device header but attention's and the router's, with widths that
// need padding, SMs of unequal shares and of none, an odd vocabulary and dead rows.
//
// MOE_ROWS is the rows bucket, MOE_NAME the name of the namespace and prefix of the kernels.
#include "codegen/device/embed.cuh"
#include "codegen/device/epilogue.cuh"
#include "codegen/device/norm.cuh"

#define MOE_KERNEL_(PREFIX, NAME) MEGALITH_KERNEL(PREFIX##_##NAME)
#define MOE_KERNEL(PREFIX, NAME) MOE_KERNEL_(PREFIX, NAME)

namespace megalith::MOE_NAME {

struct Config {
  static constexpr int kSms = 3;
  static constexpr int kRows = MOE_ROWS;
  static constexpr int kEdges = 15;
};
using Cta = megalith::Cta<Config>;

constexpr int kHidden = 192, kProjected = 640, kExperts = 8, kTopK = 2, kInner = 64;
constexpr int kVocabulary = 101, kPairs = kTopK * Config::kRows;

// Slots of LaunchArgs::buffer
constexpr int table = 0, gain1 = 1, gain2 = 2, w_qkv = 3, w_o = 4, w_router = 5, w_gate_up = 6;
constexpr int w_down = 7, w_head = 8, routing = 9, router_out = 15, head_out = 16;
using qkv = Words<10, Config::kRows, kProjected / 2, 3>;
using resid = Words<11, Config::kRows, kHidden / 2, 3>;
using mid = Words<12, Config::kRows, kHidden / 2, 2>;
using logits = Words<13, Config::kRows, kExperts, 2>;
using act = Words<14, kPairs, kInner / 2, 2>;

/// Which experts a step uses, as the router leaves it; in buffer `routing` and in shared memory.
struct Routing {
  int32_t active, expert[kExperts], first[kExperts + 1], pair[kPairs];
  float weight[kPairs];
};

// Shared memory
using ring = Ring<0, 4, 8192>;
using part = Part<ring::kBytes, 2>;
using attn = Rows<part::kOffset + part::kBytes, Config::kRows, kProjected>;
using xs = Rows<attn::kOffset + attn::kBytes, Config::kRows, kHidden>;
using acts = Rows<xs::kOffset + xs::kBytes, kPairs, kInner>;
using scores = WordRows<acts::kOffset + acts::kBytes, Config::kRows, kExperts>;
using slice = WordRows<scores::kOffset + scores::kBytes, Config::kRows, 40>;
using ys = WordRows<slice::kOffset + slice::kBytes, kPairs, 40>;
constexpr uint32_t kRouted = ys::kOffset + ys::kBytes;
constexpr uint32_t kBarriers = (kRouted + sizeof(Routing) + 7) / 8 * 8;
static_assert(kBarriers + 144 <= 227 * 1024);

// Edges
struct w_full : MbarrierEdge<0, kBarriers, 4, 1> {
  static constexpr char kName[] = "w_full";
};
struct w_free : MbarrierEdge<1, kBarriers + 32, 4, 8> {
  static constexpr char kName[] = "w_free";
};
struct p_full : MbarrierEdge<2, kBarriers + 64, 2, 8> {
  static constexpr char kName[] = "p_full";
};
struct p_free : MbarrierEdge<3, kBarriers + 80, 2, 1> {
  static constexpr char kName[] = "p_free";
};
struct attn_full : MbarrierEdge<4, kBarriers + 96, 1, 1> {
  static constexpr char kName[] = "attn_full";
};
struct x_full : MbarrierEdge<5, kBarriers + 104, 1, 1> {
  static constexpr char kName[] = "x_full";
};
struct x_free : MbarrierEdge<6, kBarriers + 112, 1, 8> {
  static constexpr char kName[] = "x_free";
};
struct scores_full : MbarrierEdge<7, kBarriers + 120, 1, 1> {
  static constexpr char kName[] = "scores_full";
};
struct routed : MbarrierEdge<8, kBarriers + 128, 1, 1> { // poller -> all others
  static constexpr char kName[] = "routed";
};
struct acts_full : MbarrierEdge<9, kBarriers + 136, 1, 1> {
  static constexpr char kName[] = "acts_full";
};
struct qkv_words : WordsEdge<10, qkv> {
  static constexpr char kName[] = "qkv_words";
};
struct resid_words : WordsEdge<11, resid> {
  static constexpr char kName[] = "resid_words";
};
struct mid_words : WordsEdge<12, mid> {
  static constexpr char kName[] = "mid_words";
};
struct logit_words : WordsEdge<13, logits> {
  static constexpr char kName[] = "logit_words";
};
struct act_words : WordsEdge<14, act> {
  static constexpr char kName[] = "act_words";
};

// Stages
using embedding = Embedding<table, kHidden>;
using norm1 = RmsNorm<xs, gain1, 1e-5f>;
using norm2 = RmsNorm<xs, gain2, 1e-5f>;
using projections = Linear<w_qkv, kProjected, kHidden, 112>;
using o_proj = Linear<w_o, kHidden, kProjected, 40>;
using router = Linear<w_router, kExperts, kHidden, 4>;
using gate_up = Linear<w_gate_up, 2 * kInner, kHidden, 32>;
using down = Linear<w_down, kHidden, kInner, 40>;
using head = Linear<w_head, kVocabulary, kHidden, 17>;

/// Trips and pairs of the expert loops, once `routed` was waited for.
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
MEGALITH_DEVICE Expert expert_at(const Cta &cta, int a) {
  const Routing *t = table_of(cta);
  const int first = platform::ld_shared<int32_t>(&t->first[a]);
  return {platform::ld_shared<int32_t>(&t->expert[a]),
          platform::ld_shared<int32_t>(&t->first[a + 1]) - first, &t->pair[first]};
}

template <class L> MEGALITH_DEVICE void stream(Cta &cta, int expert = 0) {
  for (int m = 0; m < tiles<L>(cta); ++m)
    for (int b = 0; b < L::kBlocks; ++b) {
      acquire<w_free>(cta);
      copy_piece<w_full, ring, L>(cta, m, b, expert);
    }
}
template <class L> MEGALITH_DEVICE void multiply(Cta &cta, const Column &column) {
  for (int m = 0; m < tiles<L>(cta); ++m) {
    ChunkSum sum = {};
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
template <class L, class Use> MEGALITH_DEVICE void finish(Cta &cta, Use use) {
  for (int m = 0; m < tiles<L>(cta); ++m) {
    const int place = wait<p_full>(cta);
    const Fragment sum = sum_chunks<part>(cta, place);
    release<p_free>(cta);
    use(m, sum);
  }
}

MEGALITH_DEVICE void rearm_all(Cta &cta) {
  rearm<qkv>(cta);
  rearm<resid>(cta);
  rearm<mid>(cta);
  rearm<logits>(cta);
  rearm<act>(cta);
}

MEGALITH_DEVICE void first_launch(Cta &cta) {
  switch (cta.role) {
  case Role::producer:
    return stream<projections>(cta);
  case Role::poller:
    embed_rows<embedding, xs>(cta);
    signal<x_full>(cta);
    launch_wait();
    rearm_all(cta);
    launch_dependents();
    return publish_embedding<embedding, resid_words>(cta);
  case Role::consumer:
    wait<x_full>(cta);
    rms_norm<norm1>(cta);
    return multiply<projections>(cta, dense_column<projections, xs>(cta));
  case Role::epilogue:
    launch_wait();
    return finish<projections>(cta, [&](int m, const Fragment &sum) {
      epilogue_words<projections, qkv_words>(cta, m, sum);
    });
  }
}

MEGALITH_DEVICE void layer_producer(Cta &cta) {
  stream<o_proj>(cta);
  stream<router>(cta);
  wait<routed>(cta);
  for (int a = 0; a < active_experts(cta); ++a)
    stream<gate_up>(cta, expert_at(cta, a).id);
  for (int a = 0; a < active_experts(cta); ++a)
    stream<down>(cta, expert_at(cta, a).id);
  stream<projections>(cta);
  stream<head>(cta);
}

MEGALITH_DEVICE void layer_poller(Cta &cta) {
  poll_rows<Previous<qkv_words>, attn>(cta);
  signal<attn_full>(cta);
  launch_wait();
  rearm_all(cta);
  launch_dependents();
  acquire<x_free>(cta);
  poll_rows<mid_words, xs>(cta);
  signal<x_full>(cta);
  poll_rows<logit_words, scores>(cta);
  signal<scores_full>(cta);
  const auto *given = static_cast<const uint32_t *>(cta.args.buffer[routing]);
  for (int i = cta.lane; i < static_cast<int>(sizeof(Routing) / 4); i += 32)
    platform::st_shared(cta.smem + kRouted + 4 * i, platform::ld_const<uint32_t>(given + i));
  signal<routed>(cta);
  poll_pairs<act_words, acts, kTopK>(cta);
  signal<acts_full>(cta);
  acquire<x_free>(cta);
  poll_rows<resid_words, xs>(cta);
  signal<x_full>(cta);
}

MEGALITH_DEVICE void layer_consumer(Cta &cta) {
  wait<attn_full>(cta);
  multiply<o_proj>(cta, dense_column<o_proj, attn>(cta));
  wait<x_full>(cta);
  rms_norm<norm2>(cta);
  multiply<router>(cta, dense_column<router, xs>(cta));
  wait<scores_full>(cta);
  if (cta.sm == 0 && cta.role_warp < Config::kRows && cta.lane < kExperts) {
    launch_wait();
    const int row = cta.role_warp;
    platform::st_global(static_cast<uint32_t *>(cta.args.buffer[router_out]) + kExperts * row +
                            cta.lane,
                        platform::ld_shared<uint32_t>(scores::row(cta, row) + cta.lane));
  }
  wait<routed>(cta);
  for (int a = 0; a < active_experts(cta); ++a) {
    const Expert e = expert_at(cta, a);
    multiply<gate_up>(cta, gathered_column<gate_up, xs, kTopK>(cta, e.pairs, e.count));
  }
  release<x_free>(cta);
  wait<acts_full>(cta);
  for (int a = 0; a < active_experts(cta); ++a) {
    const Expert e = expert_at(cta, a);
    multiply<down>(cta, gathered_column<down, acts, 1>(cta, e.pairs, e.count));
  }
  wait<x_full>(cta);
  rms_norm<norm1>(cta);
  multiply<projections>(cta, dense_column<projections, xs>(cta));
  multiply<head>(cta, dense_column<head, xs>(cta));
  release<x_free>(cta);
}

MEGALITH_DEVICE void layer_epilogue(Cta &cta) {
  fetch_slice<o_proj, Previous<resid_words>, slice>(cta);
  launch_wait();
  finish<o_proj>(cta, [&](int m, const Fragment &sum) {
    epilogue_residual<o_proj, mid_words, slice>(cta, m, sum);
  });
  finish<router>(
      cta, [&](int m, const Fragment &sum) { epilogue_logits<router, logit_words>(cta, m, sum); });
  wait<routed>(cta);
  for (int a = 0; a < active_experts(cta); ++a) {
    const Expert e = expert_at(cta, a);
    finish<gate_up>(cta, [&](int m, const Fragment &sum) {
      epilogue_glu<gate_up, act_words>(cta, m, sum, e.pairs, e.count);
    });
  }
  for (int a = 0; a < active_experts(cta); ++a) {
    const Expert e = expert_at(cta, a);
    finish<down>(cta, [&](int m, const Fragment &sum) {
      epilogue_down<down, ys>(cta, m, sum, e.pairs, e.count);
    });
  }
  combine<down, resid_words, slice, ys, kTopK>(cta, table_of(cta)->weight);
  finish<projections>(cta, [&](int m, const Fragment &sum) {
    epilogue_words<projections, qkv_words>(cta, m, sum);
  });
  finish<head>(cta,
               [&](int m, const Fragment &sum) { epilogue_head<head, head_out>(cta, m, sum); });
}

MOE_KERNEL(MOE_NAME, embed) {
  Cta cta(args);
  start_delay(cta);
  setup<w_full, w_free, p_full, p_free, x_full>(cta);
  first_launch(cta);
}

MOE_KERNEL(MOE_NAME, layer) {
  Cta cta(args);
  start_delay(cta);
  setup<w_full, w_free, p_full, p_free, attn_full, x_full, x_free, scores_full, routed, acts_full>(
      cta);
  switch (cta.role) {
  case Role::producer:
    return layer_producer(cta);
  case Role::poller:
    return layer_poller(cta);
  case Role::consumer:
    return layer_consumer(cta);
  case Role::epilogue:
    return layer_epilogue(cta);
  }
}

} // namespace megalith::MOE_NAME
