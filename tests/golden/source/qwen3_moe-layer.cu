// Kernel layer (layer) for sm_90a, 4 SMs, at most 2 rows.
// Emitted by Megalith from role regions; change what it was compiled from, not this.
// Origin      qwen3-moe-small.test.json
// Pipeline
//             moe-cut-launches,moe-convert-to-task,task-choose-tiles,task-assign-sms,task-materialize-exchanges,task-elide-exchanges,task-plan-streams,task-select-protocol,task-plan-memory,task-lower-to-roles
// Regenerate  megalith compile qwen3-moe-small.test.json --target sm_90a --rows 2 --sms 4 -o out
#include "codegen/device/attention.cuh"
#include "codegen/device/attention_row.cuh"
#include "codegen/device/attention_shape.cuh"
#include "codegen/device/chunks.cuh"
#include "codegen/device/cta.cuh"
#include "codegen/device/edges.cuh"
#include "codegen/device/epilogue.cuh"
#include "codegen/device/exchange.cuh"
#include "codegen/device/experts.cuh"
#include "codegen/device/gemv.cuh"
#include "codegen/device/merge.cuh"
#include "codegen/device/norm.cuh"
#include "codegen/device/partials.cuh"
#include "codegen/device/parts.cuh"
#include "codegen/device/ring.cuh"
#include "codegen/device/router.cuh"
#include "codegen/device/rows.cuh"
#include "codegen/device/scores.cuh"
#include "codegen/device/slots.cuh"
#include "codegen/device/tiles.cuh"

namespace megalith::layer {

struct Config {
  static constexpr int kSms = 4;
  static constexpr int kRows = 2;
  static constexpr int kEdges = 18;
  static constexpr int kWarps = 11;
  static constexpr uint32_t kSharedBytes = 216960;
};
using Cta = megalith::Cta<Config>;

// Buffers and weights: slots of LaunchArgs::buffer
constexpr int kv = 0;
constexpr int inv_freq = 1;
constexpr int g_q = 2;
constexpr int g_k = 3;
constexpr int g_mlp = 6;
constexpr int g_attn = 10;
constexpr int w_o = 4;
constexpr int w_router = 5;
constexpr int w_up = 7;
constexpr int w_down = 8;
constexpr int w_qkv = 9;

// Exchanges: slot, rows, words a row, sets; or slot, epoch words
using resid = Words<11, 2, 128, 3>;
using qkv = Words<12, 2, 384, 3>;
using partials = Epochs<13, 11264>;
using attn = Words<14, 2, 256, 2>;
using mid = Words<15, 2, 128, 2>;
using logits = Words<16, 2, 16, 2>;
using act = Words<17, 8, 64, 2>;

// Shared memory: first the offset
using ring = Ring<69504, 9, 16384>;
using qkv_in = SlottedRows<384, 2, 768, 2>;
using q_rows = SlottedRows<3456, 8, 160, 1>;
using tail = SlottedRows<4736, 2, 4096, 1>;
using apart = SlottedRows<12928, 64, 272, 1>;
using mparts = SlottedRows<30336, 32, 352, 2>;
using xs = Rows<52864, 2, 512>;
using part = Part<55040, 2>;
using o_proj_kept = WordRows<63232, 2, 32>;
using logits_rows = WordRows<63488, 2, 16>;
using routing = SlottedRows<63616, 1, 176, 1>;
using act_rows = SlottedRows<63872, 2, 288, 8>;
using down_rows = WordRows<68480, 8, 32>;

// Edges: id, offset of the mbarriers, slots, arrivals
struct resid_words : WordsEdge<0, resid> { // epilogue -> consumer, epilogue, words of all SMs
  static constexpr char kName[] = "resid_words";
};
struct qkv_words : WordsEdge<1, qkv> { // epilogue -> poller, words of all SMs
  static constexpr char kName[] = "qkv_words";
};
struct partials_words : EpochEdge<2, partials> { // consumer -> poller, words of all SMs
  static constexpr char kName[] = "partials_words";
};
struct attn_words : WordsEdge<3, attn> { // epilogue -> consumer, words of all SMs
  static constexpr char kName[] = "attn_words";
};
struct mid_words : WordsEdge<4, mid> { // epilogue -> consumer, words of all SMs
  static constexpr char kName[] = "mid_words";
};
struct logits_words : WordsEdge<5, logits> { // epilogue -> consumer, words of all SMs
  static constexpr char kName[] = "logits_words";
};
struct act_words : WordsEdge<6, act> { // epilogue -> poller, words of all SMs
  static constexpr char kName[] = "act_words";
};
struct w_full : MbarrierEdge<7, 0, 9, 1> { // producer -> consumer, by bytes
  static constexpr char kName[] = "w_full";
};
struct w_free : MbarrierEdge<8, 72, 9, 8> { // consumer -> producer, free slots
  static constexpr char kName[] = "w_free";
};
struct qkv_full : MbarrierEdge<9, 144, 2, 1> { // poller -> consumer
  static constexpr char kName[] = "qkv_full";
};
struct qkv_free : MbarrierEdge<10, 160, 2, 8> { // consumer -> poller, free slots
  static constexpr char kName[] = "qkv_free";
};
struct mparts_full : MbarrierEdge<11, 176, 2, 1> { // poller -> epilogue
  static constexpr char kName[] = "mparts_full";
};
struct mparts_free : MbarrierEdge<12, 192, 2, 1> { // epilogue -> poller, free slots
  static constexpr char kName[] = "mparts_free";
};
struct p_full : MbarrierEdge<13, 208, 2, 8> { // consumer -> epilogue
  static constexpr char kName[] = "p_full";
};
struct p_free : MbarrierEdge<14, 224, 2, 1> { // epilogue -> consumer, free slots
  static constexpr char kName[] = "p_free";
};
struct routed : MbarrierEdge<15, 240, 1, 8> { // consumer -> producer, poller, epilogue
  static constexpr char kName[] = "routed";
};
struct act_full : MbarrierEdge<16, 248, 8, 1> { // poller -> consumer
  static constexpr char kName[] = "act_full";
};
struct act_free : MbarrierEdge<17, 312, 8, 8> { // consumer -> poller, free slots
  static constexpr char kName[] = "act_free";
};

// Stages
// moe.attention at layer.self_attn.attention in qwen3-moe-small.test.json
struct attention : Attention<Config, 2, 8, 2, 64, 64, 1, QkNorm::weighted, 1.00000000e-06f,
                             1.25000000e-01f, kv, inv_freq, g_q, g_k> {
  using Apart = apart;
  using Mparts = mparts;
  using QkvIn = qkv_in;
  using Query = q_rows;
  using Tail = tail;
};
// moe.attention at layer.self_attn.attention in qwen3-moe-small.test.json
struct merge {};
// moe.linear at layer.self_attn.o_proj in qwen3-moe-small.test.json
struct o_proj : Linear<w_o, 256, 512, 32> {
  using In = Rows<xs::kOffset, Config::kRows, 512>;
};
// moe.router at layer.mlp.router in qwen3-moe-small.test.json
struct router : Linear<w_router, 16, 256, 2> {
  using In = Rows<xs::kOffset, Config::kRows, 256>;
  using Norm = RmsNorm<In, g_mlp, 1.00000000e-06f>;
};
// moe.top_k at layer.mlp.top_k in qwen3-moe-small.test.json
struct top_k : TopK<Config, 16, 4, ExpertWeights::softmax_renormalised, 1.0f, -1, -1, -1, 0> {
  using Logits = logits_rows;
  using Routing = routing;
};
// moe.expert_gate_up at layer.mlp.experts.gate_up in qwen3-moe-small.test.json
struct expert_up : Linear<w_up, 256, 256, 32> {
  using In = Rows<xs::kOffset, Config::kRows, 256>;
};
// moe.expert_down at layer.mlp.experts.down in qwen3-moe-small.test.json
struct expert_down : Linear<w_down, 256, 128, 32> {};
// moe.qkv_proj at layer.self_attn.qkv_proj in qwen3-moe-small.test.json
struct qkv_proj : Linear<w_qkv, 768, 256, 96> {
  using In = Rows<xs::kOffset, Config::kRows, 256>;
  using Norm = RmsNorm<In, g_attn, 1.00000000e-06f>;
};

MEGALITH_DEVICE void producer(Cta &cta) {
  // attention
  {
    AttentionTiles<attention> tile_list(*cta.args.step, cta.sm);
    MEGALITH_UNROLL(1)
    for (AttentionTiles<attention>::Tile tile; tile_list.next(tile);) {
      MEGALITH_UNROLL(1)
      for (int piece = 0; piece < full_pieces<attention>(tile); ++piece) {
        acquire<w_free>(cta);
        pace<w_full, 2>(cta);
        copy_units<attention, ring, w_full>(cta, tile, piece);
      }
    }
  }
  // o_proj
  MEGALITH_UNROLL(1)
  for (int mtile = 0; mtile < 4; ++mtile)
    stream_pieces<w_free, w_full, 2, ring, o_proj>(cta, mtile, 1);
  // router
  for (int mtile = 0; mtile < 1; ++mtile)
    stream_pieces<w_free, w_full, 9, ring, router>(cta, mtile, 1);
  // top_k
  wait<routed>(cta);
  // expert_up
  MEGALITH_UNROLL(1)
  for (int entry = 0, entry_end = platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active);
       entry < entry_end; ++entry) {
    const ActiveExpert expert = active_expert<top_k>(cta, entry);
    MEGALITH_UNROLL(1)
    for (int mtile = 0; mtile < 4; ++mtile)
      stream_pieces<w_free, w_full, 6, ring, expert_up>(cta, mtile, 1, expert.id);
  }
  // expert_down
  MEGALITH_UNROLL(1)
  for (int entry = 0, entry_end = platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active);
       entry < entry_end; ++entry) {
    const ActiveExpert expert = active_expert<top_k>(cta, entry);
    MEGALITH_UNROLL(1)
    for (int mtile = 0; mtile < 4; ++mtile)
      stream_pieces<w_free, w_full, 9, ring, expert_down>(cta, mtile, 1, expert.id);
  }
  // qkv_proj
  MEGALITH_UNROLL(1)
  for (int mtile = 0; mtile < 12; ++mtile)
    stream_pieces<w_free, w_full, 4, ring, qkv_proj>(cta, mtile, 1);
}

MEGALITH_DEVICE void poller(Cta &cta) {
  // attention
  {
    AttentionTiles<attention> tile_list(*cta.args.step, cta.sm);
    MEGALITH_UNROLL(1)
    for (AttentionTiles<attention>::Tile tile; tile_list.next(tile);) {
      const int slot = acquire<qkv_free>(cta);
      poll_qkv_tile<attention, Previous<qkv_words>>(cta, tile, slot);
      signal<qkv_full>(cta);
    }
    launch_wait();
    rearm<resid>(cta);
    rearm<qkv>(cta);
    rearm<attn>(cta);
    rearm<mid>(cta);
    rearm<logits>(cta);
    rearm<act>(cta);
    launch_dependents();
  }
  // merge
  {
    MergeTiles<attention> piece_list(*cta.args.step, cta.sm);
    MEGALITH_UNROLL(1)
    for (MergeTiles<attention>::Tile piece; piece_list.next(piece);) {
      const int slot = acquire<mparts_free>(cta);
      poll_partials<attention, partials_words>(cta, piece, slot);
      signal<mparts_full>(cta);
    }
  }
  // top_k
  wait<routed>(cta);
  // expert_down
  MEGALITH_UNROLL(1)
  for (int entry = 0, entry_end = platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active);
       entry < entry_end; ++entry) {
    const ActiveExpert expert = active_expert<top_k>(cta, entry);
    const int slot = acquire<act_free>(cta);
    poll_expert<act_words, act_rows>(cta, slot, expert.pairs, expert.count);
    signal<act_full>(cta);
  }
}

MEGALITH_DEVICE void consumer(Cta &cta) {
  // attention
  {
    const auto constants = attention_constants<attention>(cta);
    AttentionState<attention> state;
    AttentionTiles<attention> tile_list(*cta.args.step, cta.sm);
    MEGALITH_UNROLL(1)
    for (AttentionTiles<attention>::Tile tile; tile_list.next(tile);) {
      attention_prepare<attention>(cta, tile, constants, state);
      const int words = wait<qkv_full>(cta);
      attention_begin<attention>(cta, tile, words, constants, state);
      release<qkv_free>(cta);
      MEGALITH_UNROLL(1)
      for (int piece = 0; piece < full_pieces<attention>(tile); ++piece) {
        const int slot = wait<w_full>(cta);
        attention_piece<attention, ring>(cta, tile, slot, piece, state);
        release<w_free>(cta);
      }
      attention_tail<attention>(cta, tile, state);
      attention_finish<attention>(cta, tile, state);
      launch_wait();
      publish_partials<attention, partials_words>(cta, tile, state);
      attention_append<attention>(cta, tile);
    }
  }
  // o_proj
  {
    launch_wait();
    refill<xs>(cta);
    poll_chunk<attn_words, o_proj::In>(cta);
    const Column column = dense_column<o_proj, o_proj::In>(cta);
    MEGALITH_UNROLL(1)
    for (int mtile = 0; mtile < 4; ++mtile) {
      ChunkSum sum = {};
      for (int block = 0; block < 1; ++block) {
        const int slot = wait<w_full>(cta);
        gemv_block<o_proj, ring>(cta, sum, slot, mtile, block, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
  }
  // router
  {
    const auto gains = load_gains<router::Norm>(cta);
    refill<xs>(cta);
    poll_chunk<mid_words, router::In>(cta);
    rms_norm<router::Norm>(cta, gains);
    const Column column = dense_column<router, router::In>(cta);
    for (int mtile = 0; mtile < 1; ++mtile) {
      ChunkSum sum = {};
      for (int block = 0; block < 1; ++block) {
        const int slot = wait<w_full>(cta);
        gemv_block<router, ring>(cta, sum, slot, mtile, block, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
  }
  // top_k
  poll_own_row<logits_words, logits_rows>(cta);
  select_experts<top_k>(cta);
  group_experts<top_k>(cta);
  signal<routed>(cta);
  // expert_up
  MEGALITH_UNROLL(1)
  for (int entry = 0, entry_end = platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active);
       entry < entry_end; ++entry) {
    const ActiveExpert expert = active_expert<top_k>(cta, entry);
    const Column column =
        gathered_column<expert_up, expert_up::In, 4>(cta, expert.pairs, expert.count);
    MEGALITH_UNROLL(1)
    for (int mtile = 0; mtile < 4; ++mtile) {
      ChunkSum sum = {};
      for (int block = 0; block < 1; ++block) {
        const int slot = wait<w_full>(cta);
        gemv_block<expert_up, ring>(cta, sum, slot, mtile, block, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
  }
  // expert_down
  MEGALITH_UNROLL(1)
  for (int entry = 0, entry_end = platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active);
       entry < entry_end; ++entry) {
    const ActiveExpert expert = active_expert<top_k>(cta, entry);
    const int acts = wait<act_full>(cta);
    const Column column = slot_column<expert_down, act_rows>(cta, acts, expert.count);
    MEGALITH_UNROLL(1)
    for (int mtile = 0; mtile < 4; ++mtile) {
      ChunkSum sum = {};
      for (int block = 0; block < 1; ++block) {
        const int slot = wait<w_full>(cta);
        gemv_block<expert_down, ring>(cta, sum, slot, mtile, block, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
    release<act_free>(cta);
  }
  // qkv_proj
  {
    const auto gains = load_gains<qkv_proj::Norm>(cta);
    refill<xs>(cta);
    poll_chunk<resid_words, qkv_proj::In>(cta);
    rms_norm<qkv_proj::Norm>(cta, gains);
    const Column column = dense_column<qkv_proj, qkv_proj::In>(cta);
    MEGALITH_UNROLL(1)
    for (int mtile = 0; mtile < 12; ++mtile) {
      ChunkSum sum = {};
      for (int block = 0; block < 1; ++block) {
        const int slot = wait<w_full>(cta);
        gemv_block<qkv_proj, ring>(cta, sum, slot, mtile, block, column);
        release<w_free>(cta);
      }
      const int place = acquire<p_free>(cta);
      store_part<part>(cta, place, sum);
      signal<p_full>(cta);
    }
  }
}

MEGALITH_DEVICE void epilogue(Cta &cta) {
  // merge
  {
    launch_wait();
    MergeTiles<attention> piece_list(*cta.args.step, cta.sm);
    MEGALITH_UNROLL(1)
    for (MergeTiles<attention>::Tile piece; piece_list.next(piece);) {
      const int slot = wait<mparts_full>(cta);
      merge_splits<attention, attn_words>(cta, piece, slot);
      release<mparts_free>(cta);
    }
  }
  // o_proj
  fetch_slice<o_proj, Previous<resid_words>, o_proj_kept>(cta);
  MEGALITH_UNROLL(1)
  for (int mtile = 0; mtile < 4; ++mtile) {
    const Fragment sum = take_part<p_full, p_free, part>(cta);
    epilogue_residual<o_proj, mid_words, o_proj_kept>(cta, mtile, sum);
  }
  // router
  for (int mtile = 0; mtile < 1; ++mtile) {
    const Fragment sum = take_part<p_full, p_free, part>(cta);
    epilogue_logits<router, logits_words>(cta, mtile, sum);
  }
  // top_k
  wait<routed>(cta);
  // expert_up
  MEGALITH_UNROLL(1)
  for (int entry = 0, entry_end = platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active);
       entry < entry_end; ++entry) {
    const ActiveExpert expert = active_expert<top_k>(cta, entry);
    MEGALITH_UNROLL(1)
    for (int mtile = 0; mtile < 4; ++mtile) {
      const Fragment sum = take_part<p_full, p_free, part>(cta);
      epilogue_glu<expert_up, act_words>(cta, mtile, sum, expert.pairs, expert.count);
    }
  }
  // expert_down
  clear_words<down_rows>(cta);
  MEGALITH_UNROLL(1)
  for (int entry = 0, entry_end = platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active);
       entry < entry_end; ++entry) {
    const ActiveExpert expert = active_expert<top_k>(cta, entry);
    MEGALITH_UNROLL(1)
    for (int mtile = 0; mtile < 4; ++mtile) {
      const Fragment sum = take_part<p_full, p_free, part>(cta);
      epilogue_down<expert_down, down_rows>(cta, mtile, sum, expert.pairs, expert.count);
    }
  }
  combine<expert_down, resid_words, o_proj_kept, down_rows, 4>(cta, weights_of<top_k>(cta));
  // qkv_proj
  MEGALITH_UNROLL(1)
  for (int mtile = 0; mtile < 12; ++mtile) {
    const Fragment sum = take_part<p_full, p_free, part>(cta);
    epilogue_words<qkv_proj, qkv_words>(cta, mtile, sum);
  }
}

MEGALITH_KERNEL(layer) {
  make_barriers<w_full, w_free, qkv_full, qkv_free, mparts_full, mparts_free, p_full, p_free,
                routed, act_full, act_free>();
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

} // namespace megalith::layer
