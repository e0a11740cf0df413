#map = affine_map<(d0) -> (d0, 0)>
module attributes {megalith.launches = [@embed, @layer, @layer, @last], megalith.model = "qwen3-moe-small.test"} {
  task.kernel @embed "embed" target "sm_90a" sms 4 rows 2 smem 231040 attributes {why = [{because = "a launch ends behind the projections of the next layer, so that only their words and the residual cross; 1 of 4 launches is between layers of these kinds", by = "moe-cut-launches", chose = "from the embedding to the q, k, v of a layer @layer", what = "launch"}, {because = "attention and the dense phase apart: leaves the ring 221184 bytes, 98304 are wanted", by = "task-plan-memory", chose = "attention and the dense phase apart", what = "shared memory"}]} {
    task.buffer @embedding [512, 256] bf16 global immutable {checkpoint = "model.embed_tokens.weight", slot = 0 : i64}
    task.exchange @resid [2, 256] bf16 sentinel sets 3 slot 3 edge @resid_words {why = [{because = "this launch and the next read it while a third set is emptied", by = "task-materialize-exchanges", chose = "3", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 1024 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.edge 0 @resid_words words epilogue -> consumer {why = [{because = "@qkv_proj read whole rows, once: each consumer warp polls the part that it multiplies", by = "task-materialize-exchanges", chose = "consumer", what = "who polls"}]}
    task.edge 1 @qkv_words words epilogue -> poller {why = [{because = "no stage of this launch reads it", by = "task-materialize-exchanges", chose = "poller", what = "who polls"}]}
    task.edge 2 @w_full bytes producer -> consumer {offset = 0 : i64, slots = 27 : i64}
    task.edge 3 @w_free credit consumer -> producer {arrivals = 8 : i64, offset = 216 : i64, slots = 27 : i64}
    task.ring @ring 27 x 8192 full @w_full free @w_free {offset = 9856 : i64, why = [{because = "room for the widest piece, of @qkv_proj", by = "task-plan-streams", chose = "8192 bytes", what = "slot"}, {because = "of 231424 bytes buffers take 9344 and barriers 512; the ring has what is left, but at most 64 slots", by = "task-plan-memory", chose = "27, 221184 bytes", what = "slots"}]}
    task.exchange @attn [2, 512] bf16 sentinel sets 2 slot 5 edge @attn_words {why = [{because = "sets follow the number of the launch, whichever kernel it is of; @layer uses it", by = "task-select-protocol", chose = "in this kernel too", what = "re-armed"}]}
    task.edge 4 @attn_words words epilogue -> poller
    task.exchange @mid [2, 256] bf16 sentinel sets 2 slot 6 edge @mid_words {why = [{because = "sets follow the number of the launch, whichever kernel it is of; @layer uses it", by = "task-select-protocol", chose = "in this kernel too", what = "re-armed"}]}
    task.edge 5 @mid_words words epilogue -> poller
    task.exchange @logits [2, 16] f32 sentinel sets 2 slot 7 edge @logits_words {why = [{because = "sets follow the number of the launch, whichever kernel it is of; @layer uses it", by = "task-select-protocol", chose = "in this kernel too", what = "re-armed"}]}
    task.edge 6 @logits_words words epilogue -> poller
    task.exchange @act [8, 128] bf16 sentinel sets 2 slot 8 edge @act_words {why = [{because = "sets follow the number of the launch, whichever kernel it is of; @layer uses it", by = "task-select-protocol", chose = "in this kernel too", what = "re-armed"}]}
    task.edge 7 @act_words words epilogue -> poller
    task.edge 8 @p_full mbarrier consumer -> epilogue {arrivals = 8 : i64, offset = 432 : i64, slots = 2 : i64, why = [{because = "roles of one SM hand each other @part in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "2, 8192 bytes", what = "slots"}]}
    task.edge 9 @p_free credit epilogue -> consumer {offset = 448 : i64, slots = 2 : i64, why = [{because = "@part is filled more than once a launch: a filling waits until the last one there is read", by = "task-select-protocol", chose = "credit", what = "protocol"}]}
    task.buffer @xs [2, 256] bf16 smem scratch {offset = 512 : i64, row_bytes = 544 : i64, type = "Rows<$offset, $rows, $cols>"}
    task.buffer @part [128, 8] f32 smem scratch {guard = @p_full, offset = 1664 : i64, slots = 2 : i64, type = "Part<$offset, $slots>"}
    task.stage @embed embed tiles 4 assign #map reads [@embedding[0, 0] 512 x [256]] writes [@resid[0, d0 * 64] 2 x [64]] config {base = "Embedding<embedding, 256>", hidden = 256 : i64, unit = 32 : i64, vocab = 512 : i64} source "moe.embed" attributes {why = [{because = "128 words over 4 SMs are at least 32 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "32 words (64 channels) on each of 4 of 4 SMs", what = "slice"}]} {
      task.role epilogue {
        task.launch_wait
        task.compute "publish_embedding<embed, resid_words>" [] reads [@embedding[0, 0] 512 x [256]] writes [@resid[0, d0 * 64] 2 x [64]]
      }
      task.role poller {
        task.launch_wait
        task.rearm @resid
        task.rearm @attn
        task.rearm @mid
        task.rearm @logits
        task.rearm @act
        task.rearm @qkv
        task.launch_dependents
      }
    }
    task.weights @w_qkv n 768 k 256 slot 1 rows ["model.layers.{layer}.self_attn.q_proj.weight", "model.layers.{layer}.self_attn.k_proj.weight", "model.layers.{layer}.self_attn.v_proj.weight"] {layer_offset = 1 : i64}
    task.exchange @qkv [2, 768] bf16 sentinel sets 3 slot 4 edge @qkv_words {why = [{because = "this launch and the next read it while a third set is emptied", by = "task-materialize-exchanges", chose = "3", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 3072 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.buffer @g_attn [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.input_layernorm.weight", layer_offset = 1 : i64, slot = 2 : i64}
    task.stage @qkv_proj linear tiles 4 sms 4 assign #map reads [@resid[0, 0] 2 x [256], @w_qkv[d0 * 96, 0] 96 x [1]] writes [@qkv[0, d0 * 192] 2 x [192]] config {In = "Rows<xs::kOffset, Config::kRows, 256>", Norm = "RmsNorm<In, g_attn, 1.00000000e-06f>", base = "Linear<w_qkv, 768, 256, 96>", epilogue = "qkv", eps = 9.9999999999999995E-7 : f64, gain = @g_attn, k = 256 : i64, n = 768 : i64, norm = "rms", unit = 96 : i64} source "moe.qkv_proj" attributes {depends = [@embed], stream = {bytes = 98304 : i64, order = ["mtile", "block"], piece = 8192 : i64, window = 4 : i64}, why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}, {because = "384 strips over 4 SMs are at least 96 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "96 strips (192 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "a tile reads what 4 of 4 tiles wrote", by = "task-materialize-exchanges", chose = "for @embed", what = "waits, @resid"}, {because = "8 strips of one of 1 blocks of K, 1024 bytes each: an m-tile has 8, the slice 96", by = "task-plan-streams", chose = "8192 bytes", what = "piece"}, {because = "near exchanges, which wait behind what is in flight: at most 32768 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "4 pieces, 32768 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "mtile" in 12 {
          task.for "block" in 1 {
            task.acquire @w_free
            task.pace @w_full window 4
            task.copy "copy_piece<w_full, ring, qkv_proj>" ["mtile", "block"] @w_qkv[d0 * 96 + d1 * 8, d2] 8 x [1] to @ring signals @w_full
          }
        }
      }
      task.role consumer {
        task.compute "load_gains<qkv_proj::Norm>" [] reads [@g_attn[0, 0] 1 x [256]] writes [] {result = "const auto gains"}
        task.launch_wait
        task.refill @xs
        task.poll "poll_chunk<resid_words, qkv_proj::In>" [] waits @resid_words reads [@resid[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.compute "rms_norm<qkv_proj::Norm>" ["gains"] reads [@xs[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.local "column" : "const Column" = "dense_column<qkv_proj, qkv_proj::In>(cta)"
        task.for "mtile" in 12 {
          task.local "sum" : "ChunkSum" = "{}"
          task.for "block" in 1 {
            task.wait @w_full {result = "const int slot"}
            task.compute "gemv_block<qkv_proj, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 2 x [256]] writes [] ring @ring
            task.release @w_free
          }
          task.acquire @p_free {result = "const int place"}
          task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
          task.signal @p_full
        }
      }
      task.role epilogue {
        task.for "mtile" in 12 {
          task.wait @p_full {result = "const int place"}
          task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
          task.release @p_free
          task.compute "epilogue_words<qkv_proj, qkv_words>" ["mtile", "sum"] reads [] writes [@qkv[0, d0 * 192 + d1 * 16] 2 x [16]]
        }
      }
    }
  }
  task.kernel @layer "layer" target "sm_90a" sms 4 rows 2 smem 216960 attributes {why = [{because = "a launch ends behind the projections of the next layer, so that only their words and the residual cross; 2 of 4 launches are between layers of these kinds", by = "moe-cut-launches", chose = "from attention of a layer @layer to the q, k, v of a layer @layer", what = "launch"}, {because = "attention and the dense phase apart: leaves the ring 147456 bytes, 98304 are wanted", by = "task-plan-memory", chose = "attention and the dense phase apart", what = "shared memory"}]} {
    task.exchange @resid [2, 256] bf16 sentinel sets 3 slot 11 edge @resid_words {why = [{because = "this launch and the next read it while a third set is emptied", by = "task-materialize-exchanges", chose = "3", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 1024 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.exchange @qkv [2, 768] bf16 sentinel sets 3 slot 12 edge @qkv_words {why = [{because = "this launch and the next read it while a third set is emptied", by = "task-materialize-exchanges", chose = "3", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 3072 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.buffer @kv [2, 8192] bf16 global pages {slot = 0 : i64}
    task.buffer @inv_freq [1, 32] f32 global immutable {slot = 1 : i64}
    task.exchange @partials [512, 66] f32 epoch sets 1 slot 13 edge @partials_words {why = [{because = "which words a launch writes depends on its sequences, so none can be re-armed; each carries the number of its launch", by = "task-select-protocol", chose = "epoch", what = "words"}, {because = "a word of another launch never matches: no set is emptied", by = "task-select-protocol", chose = "1", what = "sets"}]}
    task.exchange @attn [2, 512] bf16 sentinel sets 2 slot 14 edge @attn_words {why = [{because = "only this launch reads it: one set is in use while the other is emptied", by = "task-materialize-exchanges", chose = "2", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 2048 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.buffer @g_q [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.q_norm.weight", slot = 2 : i64}
    task.buffer @g_k [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.k_norm.weight", slot = 3 : i64}
    task.edge 0 @resid_words words epilogue -> consumer, epilogue {why = [{because = "@qkv_proj read whole rows, once: each consumer warp polls the part that it multiplies; @o_proj add their own slice: the epilogue polls it", by = "task-materialize-exchanges", chose = "consumer, epilogue", what = "who polls"}]}
    task.edge 1 @qkv_words words epilogue -> poller {why = [{because = "@attention read piece by piece: the poller goes ahead of the consumers", by = "task-materialize-exchanges", chose = "poller", what = "who polls"}]}
    task.edge 2 @partials_words words consumer -> poller {why = [{because = "@merge read piece by piece: the poller goes ahead of the consumers", by = "task-materialize-exchanges", chose = "poller", what = "who polls"}]}
    task.edge 3 @attn_words words epilogue -> consumer {why = [{because = "@o_proj read whole rows, once: each consumer warp polls the part that it multiplies", by = "task-materialize-exchanges", chose = "consumer", what = "who polls"}]}
    task.edge 4 @mid_words words epilogue -> consumer {why = [{because = "@router read whole rows, once: each consumer warp polls the part that it multiplies", by = "task-materialize-exchanges", chose = "consumer", what = "who polls"}]}
    task.edge 5 @logits_words words epilogue -> consumer {why = [{because = "@top_k read whole rows, once: each consumer warp polls the part that it multiplies", by = "task-materialize-exchanges", chose = "consumer", what = "who polls"}]}
    task.edge 6 @act_words words epilogue -> poller {why = [{because = "@expert_down read piece by piece: the poller goes ahead of the consumers", by = "task-materialize-exchanges", chose = "poller", what = "who polls"}]}
    task.edge 7 @w_full bytes producer -> consumer {offset = 0 : i64, slots = 9 : i64}
    task.edge 8 @w_free credit consumer -> producer {arrivals = 8 : i64, offset = 72 : i64, slots = 9 : i64}
    task.ring @ring 9 x 16384 full @w_full free @w_free {offset = 69504 : i64, why = [{because = "room for the widest piece, of @attention", by = "task-plan-streams", chose = "16384 bytes", what = "slot"}, {because = "of 231424 bytes buffers take 69120 and barriers 384; the ring has what is left, but at most 64 slots", by = "task-plan-memory", chose = "9, 147456 bytes", what = "slots"}]}
    task.edge 9 @qkv_full mbarrier poller -> consumer {offset = 144 : i64, slots = 2 : i64, why = [{because = "roles of one SM hand each other @qkv_in in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "2, 3072 bytes", what = "slots"}]}
    task.edge 10 @qkv_free credit consumer -> poller {arrivals = 8 : i64, offset = 160 : i64, slots = 2 : i64, why = [{because = "@qkv_in is filled more than once a launch: a filling waits until the last one there is read", by = "task-select-protocol", chose = "credit", what = "protocol"}]}
    task.edge 11 @mparts_full mbarrier poller -> epilogue {offset = 176 : i64, slots = 2 : i64, why = [{because = "roles of one SM hand each other @mparts in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "2, 22528 bytes", what = "slots"}]}
    task.edge 12 @mparts_free credit epilogue -> poller {offset = 192 : i64, slots = 2 : i64, why = [{because = "@mparts is filled more than once a launch: a filling waits until the last one there is read", by = "task-select-protocol", chose = "credit", what = "protocol"}]}
    task.edge 13 @p_full mbarrier consumer -> epilogue {arrivals = 8 : i64, offset = 208 : i64, slots = 2 : i64, why = [{because = "roles of one SM hand each other @part in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "2, 8192 bytes", what = "slots"}]}
    task.edge 14 @p_free credit epilogue -> consumer {offset = 224 : i64, slots = 2 : i64, why = [{because = "@part is filled more than once a launch: a filling waits until the last one there is read", by = "task-select-protocol", chose = "credit", what = "protocol"}]}
    task.edge 15 @routed mbarrier consumer -> producer, poller, epilogue {arrivals = 8 : i64, offset = 240 : i64, why = [{because = "roles of one SM hand each other @routing in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "1, 176 bytes", what = "slots"}]}
    task.edge 16 @act_full mbarrier poller -> consumer {offset = 248 : i64, slots = 8 : i64, why = [{because = "roles of one SM hand each other @act_rows in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "8, 4608 bytes", what = "slots"}]}
    task.edge 17 @act_free credit consumer -> poller {arrivals = 8 : i64, offset = 312 : i64, slots = 8 : i64, why = [{because = "@act_rows is filled more than once a launch: a filling waits until the last one there is read", by = "task-select-protocol", chose = "credit", what = "protocol"}]}
    task.buffer @qkv_in [2, 384] bf16 smem scratch {guard = @qkv_full, offset = 384 : i64, slots = 2 : i64, type = "SlottedRows<$offset, $rows, 768, $slots>"}
    task.buffer @q_rows [8, 64] bf16 smem scratch {offset = 3456 : i64, row_bytes = 160 : i64, type = "SlottedRows<$offset, $rows, 160, $slots>"}
    task.buffer @tail [2, 2048] bf16 smem scratch {offset = 4736 : i64, type = "SlottedRows<$offset, $rows, 4096, $slots>"}
    task.buffer @apart [64, 68] f32 smem scratch {offset = 12928 : i64, type = "SlottedRows<$offset, $rows, 272, $slots>"}
    task.buffer @mparts [32, 88] f32 smem scratch {guard = @mparts_full, offset = 30336 : i64, slots = 2 : i64, type = "SlottedRows<$offset, $rows, 352, $slots>"}
    task.buffer @xs [2, 512] bf16 smem scratch {offset = 52864 : i64, row_bytes = 1056 : i64, type = "Rows<$offset, $rows, $cols>"}
    task.buffer @part [128, 8] f32 smem scratch {guard = @p_full, offset = 55040 : i64, slots = 2 : i64, type = "Part<$offset, $slots>"}
    task.buffer @o_proj_kept [2, 64] bf16 smem scratch {offset = 63232 : i64, type = "WordRows<$offset, $rows, 32>"}
    task.buffer @logits_rows [2, 16] f32 smem scratch {offset = 63488 : i64, type = "WordRows<$offset, $rows, $cols>"}
    task.buffer @routing [1, 44] i32 smem scratch {offset = 63616 : i64, type = "SlottedRows<$offset, $rows, 176, $slots>"}
    task.buffer @act_rows [2, 128] bf16 smem scratch {guard = @act_full, offset = 63872 : i64, row_bytes = 288 : i64, slots = 8 : i64, type = "SlottedRows<$offset, $rows, 288, $slots>"}
    task.buffer @down_rows [8, 64] bf16 smem scratch {offset = 68480 : i64, type = "WordRows<$offset, $rows, 32>"}
    task.symbol @attention_tiles in 0 to 32 per_sm = "AttentionTiles<attention>(*cta.args.step, cta.sm).count()"
    task.symbol @full_pieces in 0 to 8 per_sm = "full_pieces<attention>(tile)"
    task.table @attention_tile size 128 partition = "tile"
    task.table @kv_piece size 1024 injective = "units of a tile, below start"
    task.table @kv_new size 128 injective = "units of a tile with new positions"
    task.symbol @active in 0 to 8 after @routed = "platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active)"
    task.table @expert_id size 16 uniform = "routing_table<top_k>(cta)->expert"
    task.stage @attention attention reads [@qkv[0, 0] 2 x [768] previous, @kv[0, 0] 2 x [8192]] writes [@partials[0, 0] 512 x [66], @kv[0, 0] 2 x [8192]] config {Apart = @apart, Mparts = @mparts, QkvIn = @qkv_in, Query = @q_rows, Tail = @tail, base = "Attention<Config, 2, 8, 2, 64, 64, 1, QkNorm::weighted, 1.00000000e-06f, 1.25000000e-01f, kv, inv_freq, g_q, g_k>", eps = 9.9999999999999995E-7 : f64, head_dim = 64 : i64, inv_freq = @inv_freq, k_gain = @g_k, kv_heads = 2 : i64, max_positions = 4096 : i64, merge_parts = 1 : i64, q_gain = @g_q, q_heads = 8 : i64, qk_norm = "head", rope_theta = 1.000000e+06 : f64, scale = 1.250000e-01 : f64} source "moe.attention" attributes {stream = {bytes = 16384 : i64, order = ["tile", "piece"], piece = 16384 : i64, window = 2 : i64}, why = [{because = "each tile has its heads' raw words at hand, and each new position one owning tile", by = "moe-convert-to-task", chose = "moe.qk_norm, moe.rope, moe.kv_append", what = "fused"}, {because = "how many there are depends on the lengths of the step's sequences", by = "task-choose-tiles", chose = "dealt out at run time", what = "tiles"}, {because = "4 units of 16 positions, K and V of 64 channels: four fit 16 KB", by = "task-plan-streams", chose = "16384 bytes", what = "piece"}, {because = "near exchanges, which wait behind what is in flight: at most 32768 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "2 pieces, 32768 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "tile" in @attention_tiles iterate "AttentionTiles<attention>" {
          task.for "piece" in @full_pieces {
            task.acquire @w_free
            task.pace @w_full window 2
            task.copy "copy_units<attention, ring, w_full>" ["tile", "piece"] @kv[d1 * 8 + d2, 0, 0] 1 x [8192] table @kv_piece to @ring signals @w_full
          }
        }
      }
      task.role poller {
        task.for "tile" in @attention_tiles iterate "AttentionTiles<attention>" {
          task.acquire @qkv_free {result = "const int slot"}
          task.poll "poll_qkv_tile<attention, Previous<qkv_words>>" ["tile", "slot"] waits @qkv_words reads [@qkv[0, 0] 2 x [768] previous] writes [@qkv_in[0, 0] 2 x [384]]
          task.signal @qkv_full
        }
        task.launch_wait
        task.rearm @resid
        task.rearm @qkv
        task.rearm @attn
        task.rearm @mid
        task.rearm @logits
        task.rearm @act
        task.launch_dependents
      }
      task.role consumer {
        task.local "constants" : "const auto" = "attention_constants<attention>(cta)"
        task.local "state" : "AttentionState<attention>"
        task.for "tile" in @attention_tiles iterate "AttentionTiles<attention>" {
          task.compute "attention_prepare<attention>" ["tile", "constants", "state"] reads [@kv[d1, 0, 0] 1 x [2048] table @kv_new] writes [@tail[0, 0] 2 x [2048]] meets always
          task.wait @qkv_full {result = "const int words"}
          task.compute "attention_begin<attention>" ["tile", "words", "constants", "state"] reads [@qkv_in[0, 0] 2 x [384], @tail[0, 0] 2 x [2048]] writes [@q_rows[0, 0] 8 x [64], @tail[0, 0] 2 x [2048]]
          task.release @qkv_free
          task.for "piece" in @full_pieces {
            task.wait @w_full {result = "const int slot"}
            task.compute "attention_piece<attention, ring>" ["tile", "slot", "piece", "state"] reads [@q_rows[0, 0] 8 x [64]] writes [@apart[0, 0] 64 x [68]] ring @ring
            task.release @w_free
          }
          task.compute "attention_tail<attention>" ["tile", "state"] reads [@q_rows[0, 0] 8 x [64], @tail[0, 0] 2 x [2048]] writes [@apart[0, 0] 64 x [68]]
          task.compute "attention_finish<attention>" ["tile", "state"] reads [] writes [@apart[0, 0] 64 x [68]]
          task.launch_wait
          task.compute "publish_partials<attention, partials_words>" ["tile", "state"] reads [@apart[0, 0] 64 x [68]] writes [@partials[d1, 0, 0] 8 x [66] table @attention_tile]
          task.compute "attention_append<attention>" ["tile"] reads [@tail[0, 0] 2 x [2048]] writes [@kv[d1, 0, 0] 1 x [2048] table @kv_new]
        }
      }
    }
    task.stage @merge merge reads [@partials[0, 0] 512 x [66]] writes [@attn[0, 0] 2 x [512]] config {head_dim = 64 : i64, merge_parts = 1 : i64, q_heads = 8 : i64} source "moe.attention" attributes {depends = [@attention], why = [{because = "2 rows x 8 heads x 4 parts are more than 2 of 4 SMs each: more parts would not spread the reading further", by = "moe-convert-to-task", chose = "1 a query head", what = "parts"}, {because = "how many there are depends on the lengths of the step's sequences", by = "task-choose-tiles", chose = "dealt out at run time", what = "tiles"}, {because = "tiles of one of them are dealt out at run time: any two may meet", by = "task-materialize-exchanges", chose = "for @attention", what = "waits, @partials"}]} {
      task.role poller {
        task.for "piece" in 4 iterate "MergeTiles<attention>" {
          task.acquire @mparts_free {result = "const int slot"}
          task.poll "poll_partials<attention, partials_words>" ["piece", "slot"] waits @partials_words reads [@partials[d1, 0, 0] 32 x [66] table @attention_tile] writes [@mparts[0, 0] 32 x [88]]
          task.signal @mparts_full
        }
      }
      task.role epilogue {
        task.launch_wait
        task.for "piece" in 4 iterate "MergeTiles<attention>" {
          task.wait @mparts_full {result = "const int slot"}
          task.compute "merge_splits<attention, attn_words>" ["piece", "slot"] reads [@mparts[0, 0] 32 x [88]] writes [@attn[(d1 * 4 + d0) floordiv 8, ((d1 * 4 + d0) mod 8) * 64] 1 x [64]]
          task.release @mparts_free
        }
      }
    }
    task.weights @w_o n 256 k 512 slot 4 rows ["model.layers.{layer}.self_attn.o_proj.weight"]
    task.exchange @mid [2, 256] bf16 sentinel sets 2 slot 15 edge @mid_words {why = [{because = "only this launch reads it: one set is in use while the other is emptied", by = "task-materialize-exchanges", chose = "2", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 1024 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.stage @o_proj linear tiles 4 sms 4 assign #map reads [@attn[0, 0] 2 x [512], @w_o[d0 * 32, 0] 32 x [1], @resid[0, d0 * 64] 2 x [64] previous] writes [@mid[0, d0 * 64] 2 x [64]] config {In = "Rows<xs::kOffset, Config::kRows, 512>", base = "Linear<w_o, 256, 512, 32>", epilogue = "residual", k = 512 : i64, n = 256 : i64, norm = "none", unit = 32 : i64} source "moe.linear" attributes {depends = [@merge], stream = {bytes = 65536 : i64, order = ["mtile", "block"], piece = 16384 : i64, window = 2 : i64}, why = [{because = "only this stage's result is added: its epilogue has the sum in registers", by = "moe-convert-to-task", chose = "moe.residual", what = "fused"}, {because = "128 strips over 4 SMs are at least 32 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "32 strips (64 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "tiles of one of them are dealt out at run time: any two may meet", by = "task-materialize-exchanges", chose = "for @merge", what = "waits, @attn"}, {because = "8 strips of one of 1 blocks of K, 2048 bytes each: an m-tile has 8, the slice 32", by = "task-plan-streams", chose = "16384 bytes", what = "piece"}, {because = "near exchanges, which wait behind what is in flight: at most 32768 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "2 pieces, 32768 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "mtile" in 4 {
          task.for "block" in 1 {
            task.acquire @w_free
            task.pace @w_full window 2
            task.copy "copy_piece<w_full, ring, o_proj>" ["mtile", "block"] @w_o[d0 * 32 + d1 * 8, d2] 8 x [1] to @ring signals @w_full
          }
        }
      }
      task.role consumer {
        task.launch_wait
        task.refill @xs
        task.poll "poll_chunk<attn_words, o_proj::In>" [] waits @attn_words reads [@attn[0, 0] 2 x [512]] writes [@xs[0, 0] 2 x [512]]
        task.local "column" : "const Column" = "dense_column<o_proj, o_proj::In>(cta)"
        task.for "mtile" in 4 {
          task.local "sum" : "ChunkSum" = "{}"
          task.for "block" in 1 {
            task.wait @w_full {result = "const int slot"}
            task.compute "gemv_block<o_proj, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 2 x [512]] writes [] ring @ring
            task.release @w_free
          }
          task.acquire @p_free {result = "const int place"}
          task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
          task.signal @p_full
        }
      }
      task.role epilogue {
        task.poll "fetch_slice<o_proj, Previous<resid_words>, o_proj_kept>" [] waits @resid_words reads [@resid[0, d0 * 64] 2 x [64] previous] writes [@o_proj_kept[0, 0] 2 x [64]]
        task.for "mtile" in 4 {
          task.wait @p_full {result = "const int place"}
          task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
          task.release @p_free
          task.compute "epilogue_residual<o_proj, mid_words, o_proj_kept>" ["mtile", "sum"] reads [@o_proj_kept[0, 0] 2 x [64]] writes [@mid[0, d0 * 64 + d1 * 16] 2 x [16], @o_proj_kept[0, 0] 2 x [64]]
        }
      }
    }
    task.weights @w_router n 16 k 256 slot 5 rows ["model.layers.{layer}.mlp.gate.weight"]
    task.exchange @logits [2, 16] f32 sentinel sets 2 slot 16 edge @logits_words {why = [{because = "only this launch reads it: one set is in use while the other is emptied", by = "task-materialize-exchanges", chose = "2", what = "sets"}, {because = "which words a launch writes is known: empty words show by themselves, and re-arming 128 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.buffer @g_mlp [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.post_attention_layernorm.weight", slot = 6 : i64}
    task.stage @router linear tiles 4 sms 4 assign #map reads [@mid[0, 0] 2 x [256], @w_router[d0 * 2, 0] 2 x [1]] writes [@logits[0, d0 * 4] 2 x [4]] config {In = "Rows<xs::kOffset, Config::kRows, 256>", Norm = "RmsNorm<In, g_mlp, 1.00000000e-06f>", base = "Linear<w_router, 16, 256, 2>", epilogue = "logits", eps = 9.9999999999999995E-7 : f64, gain = @g_mlp, k = 256 : i64, n = 16 : i64, norm = "rms", unit = 2 : i64} source "moe.router" attributes {depends = [@o_proj], stream = {bytes = 2048 : i64, order = ["mtile", "block"], piece = 2048 : i64, window = 16 : i64}, why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}, {because = "8 strips over 4 SMs are at least 2 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "2 strips (4 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "a tile reads what 4 of 4 tiles wrote", by = "task-materialize-exchanges", chose = "for @o_proj", what = "waits, @mid"}, {because = "2 strips of one of 1 blocks of K, 1024 bytes each: an m-tile has 8, the slice 2", by = "task-plan-streams", chose = "2048 bytes", what = "piece"}, {because = "near exchanges, which wait behind what is in flight: at most 32768 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "16 pieces, 32768 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "mtile" in 1 {
          task.for "block" in 1 {
            task.acquire @w_free
            task.pace @w_full window 9
            task.copy "copy_piece<w_full, ring, router>" ["mtile", "block"] @w_router[d0 * 2 + d1 * 8, d2] 2 x [1] to @ring signals @w_full
          }
        }
      }
      task.role consumer {
        task.compute "load_gains<router::Norm>" [] reads [@g_mlp[0, 0] 1 x [256]] writes [] {result = "const auto gains"}
        task.refill @xs
        task.poll "poll_chunk<mid_words, router::In>" [] waits @mid_words reads [@mid[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.compute "rms_norm<router::Norm>" ["gains"] reads [@xs[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.local "column" : "const Column" = "dense_column<router, router::In>(cta)"
        task.for "mtile" in 1 {
          task.local "sum" : "ChunkSum" = "{}"
          task.for "block" in 1 {
            task.wait @w_full {result = "const int slot"}
            task.compute "gemv_block<router, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 2 x [256]] writes [] ring @ring
            task.release @w_free
          }
          task.acquire @p_free {result = "const int place"}
          task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
          task.signal @p_full
        }
      }
      task.role epilogue {
        task.for "mtile" in 1 {
          task.wait @p_full {result = "const int place"}
          task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
          task.release @p_free
          task.compute "epilogue_logits<router, logits_words>" ["mtile", "sum"] reads [] writes [@logits[0, d0 * 4 + d1 * 16] 2 x [4]]
        }
      }
    }
    task.stage @top_k top_k reads [@logits[0, 0] 2 x [16]] writes [] config {Logits = @logits_rows, Routing = @routing, base = "TopK<Config, 16, 4, ExpertWeights::softmax_renormalised, 1.0f, -1, -1, -1, 0>", experts = 16 : i64, k = 4 : i64, renormalize = true, score = "softmax"} source "moe.top_k" attributes {depends = [@router], why = [{because = "every SM needs the choice of all rows at once: choosing it again saves an exchange", by = "task-choose-tiles", chose = "replicated on all 4 SMs", what = "tiles"}, {because = "tiles of one of them are dealt out at run time: any two may meet", by = "task-materialize-exchanges", chose = "for @router", what = "waits, @logits"}]} {
      task.role poller {
        task.wait @routed
      }
      task.role producer {
        task.wait @routed
      }
      task.role epilogue {
        task.wait @routed
      }
      task.role consumer {
        task.poll "poll_own_row<logits_words, logits_rows>" [] waits @logits_words reads [@logits[0, 0] 2 x [16]] writes [@logits_rows[0, 0] 2 x [16]]
        task.compute "select_experts<top_k>" [] reads [@logits_rows[0, 0] 2 x [16]] writes [@routing[0, 26] 1 x [18]]
        task.compute "group_experts<top_k>" [] reads [@routing[0, 26] 1 x [18]] writes [@routing[0, 0] 1 x [26]]
        task.signal @routed
      }
    }
    task.weights @w_up n 256 k 256 slot 7 gate_up ["model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight", "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"] {experts = 16 : i64}
    task.exchange @act [8, 128] bf16 sentinel sets 2 slot 17 edge @act_words {why = [{because = "only this launch reads it: one set is in use while the other is emptied", by = "task-materialize-exchanges", chose = "2", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 2048 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.stage @expert_up expert_up tiles 4 sms 4 assign #map reads [@w_up[d0 * 32, 0] 32 x [1]] writes [@act[0, d0 * 32] 8 x [32]] config {In = "Rows<xs::kOffset, Config::kRows, 256>", activation = "silu", base = "Linear<w_up, 256, 256, 32>", experts = 16 : i64, k = 256 : i64, n = 256 : i64, shares_input = @router, top_k = 4 : i64, unit = 32 : i64} source "moe.expert_gate_up" attributes {stream = {bytes = 32768 : i64, order = ["expert", "mtile", "block"], piece = 8192 : i64, window = 6 : i64}, why = [{because = "@router before it left the same rows, normed alike, in shared memory", by = "moe-convert-to-task", chose = "their read", what = "elided, input rows"}, {because = "a strip holds a gate row and its up row: the epilogue has both", by = "moe-convert-to-task", chose = "moe.glu", what = "fused"}, {because = "128 strips over 4 SMs are at least 32 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "32 strips (32 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "8 strips of one of 1 blocks of K, 1024 bytes each: an m-tile has 8, the slice 32", by = "task-plan-streams", chose = "8192 bytes", what = "piece"}, {because = "among experts, a long stream with one exchange, mostly hidden: at most 55296 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "6 pieces, 49152 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.for "mtile" in 4 {
            task.for "block" in 1 {
              task.acquire @w_free
              task.pace @w_full window 6
              task.copy "copy_piece<w_full, ring, expert_up>" ["mtile", "block", "expert.id"] @w_up[d1, d0 * 32 + d2 * 8, d3] 8 x [1] table @expert_id to @ring signals @w_full
            }
          }
        }
      }
      task.role consumer {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.compute "gathered_column<expert_up, expert_up::In, 4>" ["expert.pairs", "expert.count"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const Column column"}
          task.for "mtile" in 4 {
            task.local "sum" : "ChunkSum" = "{}"
            task.for "block" in 1 {
              task.wait @w_full {result = "const int slot"}
              task.compute "gemv_block<expert_up, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 2 x [256]] writes [] ring @ring
              task.release @w_free
            }
            task.acquire @p_free {result = "const int place"}
            task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
            task.signal @p_full
          }
        }
      }
      task.role epilogue {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.for "mtile" in 4 {
            task.wait @p_full {result = "const int place"}
            task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
            task.release @p_free
            task.compute "epilogue_glu<expert_up, act_words>" ["mtile", "sum", "expert.pairs", "expert.count"] reads [@routing[0, 0] 1 x [44]] writes [@act[d1, 0, d0 * 32 + d2 * 8] 2 x [8] table @expert_id]
          }
        }
      }
    }
    task.weights @w_down n 256 k 128 slot 8 rows ["model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"] {experts = 16 : i64}
    task.stage @expert_down expert_down tiles 4 sms 4 assign #map reads [@act[0, 0] 8 x [128], @w_down[d0 * 32, 0] 32 x [1], @mid[0, d0 * 64] 2 x [64]] writes [@resid[0, d0 * 64] 2 x [64]] config {base = "Linear<w_down, 256, 128, 32>", epilogue = "combine_residual", experts = 16 : i64, k = 128 : i64, n = 256 : i64, top_k = 4 : i64, unit = 32 : i64} source "moe.expert_down" attributes {depends = [@o_proj, @expert_up], kept = @o_proj, stream = {bytes = 16384 : i64, order = ["expert", "mtile", "block"], piece = 4096 : i64, window = 13 : i64}, why = [{because = "an SM has the slice of all chosen experts, so it can weigh and add them itself", by = "moe-convert-to-task", chose = "moe.combine, moe.residual", what = "fused"}, {because = "128 strips over 4 SMs are at least 32 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "32 strips (64 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "a tile reads what 1 of 4 tiles wrote", by = "task-materialize-exchanges", chose = "for @o_proj", what = "waits, @mid"}, {because = "on all 4 SMs the tile reads just what the same SM's tile of @o_proj wrote: the slice stays in shared memory", by = "task-materialize-exchanges", chose = "its read", what = "elided, slice of @mid"}, {because = "a tile reads what 4 of 4 tiles wrote", by = "task-materialize-exchanges", chose = "for @expert_up", what = "waits, @act"}, {because = "8 strips of one of 1 blocks of K, 512 bytes each: an m-tile has 8, the slice 32", by = "task-plan-streams", chose = "4096 bytes", what = "piece"}, {because = "among experts, a long stream with one exchange, mostly hidden: at most 55296 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "13 pieces, 53248 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.for "mtile" in 4 {
            task.for "block" in 1 {
              task.acquire @w_free
              task.pace @w_full window 9
              task.copy "copy_piece<w_full, ring, expert_down>" ["mtile", "block", "expert.id"] @w_down[d1, d0 * 32 + d2 * 8, d3] 8 x [1] table @expert_id to @ring signals @w_full
            }
          }
        }
      }
      task.role poller {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.acquire @act_free {result = "const int slot"}
          task.poll "poll_expert<act_words, act_rows>" ["slot", "expert.pairs", "expert.count"] waits @act_words reads [@act[d1, 0, 0] 2 x [128] table @expert_id] writes [@act_rows[0, 0] 2 x [128]]
          task.signal @act_full
        }
      }
      task.role consumer {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.wait @act_full {result = "const int acts"}
          task.local "column" : "const Column" = "slot_column<expert_down, act_rows>(cta, acts, expert.count)"
          task.for "mtile" in 4 {
            task.local "sum" : "ChunkSum" = "{}"
            task.for "block" in 1 {
              task.wait @w_full {result = "const int slot"}
              task.compute "gemv_block<expert_down, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@act_rows[0, 0] 2 x [128]] writes [] ring @ring
              task.release @w_free
            }
            task.acquire @p_free {result = "const int place"}
            task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
            task.signal @p_full
          }
          task.release @act_free
        }
      }
      task.role epilogue {
        task.compute "clear_words<down_rows>" [] reads [] writes [@down_rows[0, 0] 8 x [64]]
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.for "mtile" in 4 {
            task.wait @p_full {result = "const int place"}
            task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
            task.release @p_free
            task.compute "epilogue_down<expert_down, down_rows>" ["mtile", "sum", "expert.pairs", "expert.count"] reads [@routing[0, 0] 1 x [44], @down_rows[0, 0] 8 x [64]] writes [@down_rows[0, 0] 8 x [64]]
          }
        }
        task.compute "combine<expert_down, resid_words, o_proj_kept, down_rows, 4>" ["weights_of<top_k>(cta)"] reads [@down_rows[0, 0] 8 x [64], @o_proj_kept[0, 0] 2 x [64], @routing[0, 0] 1 x [44]] writes [@resid[0, d0 * 64] 2 x [64]]
      }
    }
    task.weights @w_qkv n 768 k 256 slot 9 rows ["model.layers.{layer}.self_attn.q_proj.weight", "model.layers.{layer}.self_attn.k_proj.weight", "model.layers.{layer}.self_attn.v_proj.weight"] {layer_offset = 1 : i64}
    task.buffer @g_attn [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.input_layernorm.weight", layer_offset = 1 : i64, slot = 10 : i64}
    task.stage @qkv_proj linear tiles 4 sms 4 assign #map reads [@resid[0, 0] 2 x [256], @w_qkv[d0 * 96, 0] 96 x [1]] writes [@qkv[0, d0 * 192] 2 x [192]] config {In = "Rows<xs::kOffset, Config::kRows, 256>", Norm = "RmsNorm<In, g_attn, 1.00000000e-06f>", base = "Linear<w_qkv, 768, 256, 96>", epilogue = "qkv", eps = 9.9999999999999995E-7 : f64, gain = @g_attn, k = 256 : i64, n = 768 : i64, norm = "rms", unit = 96 : i64} source "moe.qkv_proj" attributes {depends = [@expert_down], stream = {bytes = 98304 : i64, order = ["mtile", "block"], piece = 8192 : i64, window = 4 : i64}, why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}, {because = "384 strips over 4 SMs are at least 96 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "96 strips (192 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "a tile reads what 4 of 4 tiles wrote", by = "task-materialize-exchanges", chose = "for @expert_down", what = "waits, @resid"}, {because = "8 strips of one of 1 blocks of K, 1024 bytes each: an m-tile has 8, the slice 96", by = "task-plan-streams", chose = "8192 bytes", what = "piece"}, {because = "near exchanges, which wait behind what is in flight: at most 32768 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "4 pieces, 32768 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "mtile" in 12 {
          task.for "block" in 1 {
            task.acquire @w_free
            task.pace @w_full window 4
            task.copy "copy_piece<w_full, ring, qkv_proj>" ["mtile", "block"] @w_qkv[d0 * 96 + d1 * 8, d2] 8 x [1] to @ring signals @w_full
          }
        }
      }
      task.role consumer {
        task.compute "load_gains<qkv_proj::Norm>" [] reads [@g_attn[0, 0] 1 x [256]] writes [] {result = "const auto gains"}
        task.refill @xs
        task.poll "poll_chunk<resid_words, qkv_proj::In>" [] waits @resid_words reads [@resid[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.compute "rms_norm<qkv_proj::Norm>" ["gains"] reads [@xs[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.local "column" : "const Column" = "dense_column<qkv_proj, qkv_proj::In>(cta)"
        task.for "mtile" in 12 {
          task.local "sum" : "ChunkSum" = "{}"
          task.for "block" in 1 {
            task.wait @w_full {result = "const int slot"}
            task.compute "gemv_block<qkv_proj, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 2 x [256]] writes [] ring @ring
            task.release @w_free
          }
          task.acquire @p_free {result = "const int place"}
          task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
          task.signal @p_full
        }
      }
      task.role epilogue {
        task.for "mtile" in 12 {
          task.wait @p_full {result = "const int place"}
          task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
          task.release @p_free
          task.compute "epilogue_words<qkv_proj, qkv_words>" ["mtile", "sum"] reads [] writes [@qkv[0, d0 * 192 + d1 * 16] 2 x [16]]
        }
      }
    }
  }
  task.kernel @last "last" target "sm_90a" sms 4 rows 2 smem 216960 attributes {why = [{because = "a launch ends behind the projections of the next layer, so that only their words and the residual cross; 1 of 4 launches is between layers of these kinds", by = "moe-cut-launches", chose = "from attention of a layer @layer to the logits", what = "launch"}, {because = "attention and the dense phase apart: leaves the ring 147456 bytes, 98304 are wanted", by = "task-plan-memory", chose = "attention and the dense phase apart", what = "shared memory"}]} {
    task.exchange @resid [2, 256] bf16 sentinel sets 3 slot 12 edge @resid_words {why = [{because = "this launch and the next read it while a third set is emptied", by = "task-materialize-exchanges", chose = "3", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 1024 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.exchange @qkv [2, 768] bf16 sentinel sets 3 slot 13 edge @qkv_words {why = [{because = "this launch and the next read it while a third set is emptied", by = "task-materialize-exchanges", chose = "3", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 3072 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.buffer @kv [2, 8192] bf16 global pages {slot = 0 : i64}
    task.buffer @inv_freq [1, 32] f32 global immutable {slot = 1 : i64}
    task.exchange @partials [512, 66] f32 epoch sets 1 slot 14 edge @partials_words {why = [{because = "which words a launch writes depends on its sequences, so none can be re-armed; each carries the number of its launch", by = "task-select-protocol", chose = "epoch", what = "words"}, {because = "a word of another launch never matches: no set is emptied", by = "task-select-protocol", chose = "1", what = "sets"}]}
    task.exchange @attn [2, 512] bf16 sentinel sets 2 slot 15 edge @attn_words {why = [{because = "only this launch reads it: one set is in use while the other is emptied", by = "task-materialize-exchanges", chose = "2", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 2048 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.buffer @g_q [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.q_norm.weight", slot = 2 : i64}
    task.buffer @g_k [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.k_norm.weight", slot = 3 : i64}
    task.edge 0 @resid_words words epilogue -> consumer, epilogue {why = [{because = "@head read whole rows, once: each consumer warp polls the part that it multiplies; @o_proj add their own slice: the epilogue polls it", by = "task-materialize-exchanges", chose = "consumer, epilogue", what = "who polls"}]}
    task.edge 1 @qkv_words words epilogue -> poller {why = [{because = "@attention read piece by piece: the poller goes ahead of the consumers", by = "task-materialize-exchanges", chose = "poller", what = "who polls"}]}
    task.edge 2 @partials_words words consumer -> poller {why = [{because = "@merge read piece by piece: the poller goes ahead of the consumers", by = "task-materialize-exchanges", chose = "poller", what = "who polls"}]}
    task.edge 3 @attn_words words epilogue -> consumer {why = [{because = "@o_proj read whole rows, once: each consumer warp polls the part that it multiplies", by = "task-materialize-exchanges", chose = "consumer", what = "who polls"}]}
    task.edge 4 @mid_words words epilogue -> consumer {why = [{because = "@router read whole rows, once: each consumer warp polls the part that it multiplies", by = "task-materialize-exchanges", chose = "consumer", what = "who polls"}]}
    task.edge 5 @logits_words words epilogue -> consumer {why = [{because = "@top_k read whole rows, once: each consumer warp polls the part that it multiplies", by = "task-materialize-exchanges", chose = "consumer", what = "who polls"}]}
    task.edge 6 @act_words words epilogue -> poller {why = [{because = "@expert_down read piece by piece: the poller goes ahead of the consumers", by = "task-materialize-exchanges", chose = "poller", what = "who polls"}]}
    task.edge 7 @w_full bytes producer -> consumer {offset = 0 : i64, slots = 9 : i64}
    task.edge 8 @w_free credit consumer -> producer {arrivals = 8 : i64, offset = 72 : i64, slots = 9 : i64}
    task.ring @ring 9 x 16384 full @w_full free @w_free {offset = 69504 : i64, why = [{because = "room for the widest piece, of @attention", by = "task-plan-streams", chose = "16384 bytes", what = "slot"}, {because = "of 231424 bytes buffers take 69120 and barriers 384; the ring has what is left, but at most 64 slots", by = "task-plan-memory", chose = "9, 147456 bytes", what = "slots"}]}
    task.edge 9 @qkv_full mbarrier poller -> consumer {offset = 144 : i64, slots = 2 : i64, why = [{because = "roles of one SM hand each other @qkv_in in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "2, 3072 bytes", what = "slots"}]}
    task.edge 10 @qkv_free credit consumer -> poller {arrivals = 8 : i64, offset = 160 : i64, slots = 2 : i64, why = [{because = "@qkv_in is filled more than once a launch: a filling waits until the last one there is read", by = "task-select-protocol", chose = "credit", what = "protocol"}]}
    task.edge 11 @mparts_full mbarrier poller -> epilogue {offset = 176 : i64, slots = 2 : i64, why = [{because = "roles of one SM hand each other @mparts in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "2, 22528 bytes", what = "slots"}]}
    task.edge 12 @mparts_free credit epilogue -> poller {offset = 192 : i64, slots = 2 : i64, why = [{because = "@mparts is filled more than once a launch: a filling waits until the last one there is read", by = "task-select-protocol", chose = "credit", what = "protocol"}]}
    task.edge 13 @p_full mbarrier consumer -> epilogue {arrivals = 8 : i64, offset = 208 : i64, slots = 2 : i64, why = [{because = "roles of one SM hand each other @part in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "2, 8192 bytes", what = "slots"}]}
    task.edge 14 @p_free credit epilogue -> consumer {offset = 224 : i64, slots = 2 : i64, why = [{because = "@part is filled more than once a launch: a filling waits until the last one there is read", by = "task-select-protocol", chose = "credit", what = "protocol"}]}
    task.edge 15 @routed mbarrier consumer -> producer, poller, epilogue {arrivals = 8 : i64, offset = 240 : i64, why = [{because = "roles of one SM hand each other @routing in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "1, 176 bytes", what = "slots"}]}
    task.edge 16 @act_full mbarrier poller -> consumer {offset = 248 : i64, slots = 8 : i64, why = [{because = "roles of one SM hand each other @act_rows in shared memory", by = "task-select-protocol", chose = "mbarrier", what = "protocol"}, {because = "as many as its stage has a use for", by = "task-plan-memory", chose = "8, 4608 bytes", what = "slots"}]}
    task.edge 17 @act_free credit consumer -> poller {arrivals = 8 : i64, offset = 312 : i64, slots = 8 : i64, why = [{because = "@act_rows is filled more than once a launch: a filling waits until the last one there is read", by = "task-select-protocol", chose = "credit", what = "protocol"}]}
    task.buffer @qkv_in [2, 384] bf16 smem scratch {guard = @qkv_full, offset = 384 : i64, slots = 2 : i64, type = "SlottedRows<$offset, $rows, 768, $slots>"}
    task.buffer @q_rows [8, 64] bf16 smem scratch {offset = 3456 : i64, row_bytes = 160 : i64, type = "SlottedRows<$offset, $rows, 160, $slots>"}
    task.buffer @tail [2, 2048] bf16 smem scratch {offset = 4736 : i64, type = "SlottedRows<$offset, $rows, 4096, $slots>"}
    task.buffer @apart [64, 68] f32 smem scratch {offset = 12928 : i64, type = "SlottedRows<$offset, $rows, 272, $slots>"}
    task.buffer @mparts [32, 88] f32 smem scratch {guard = @mparts_full, offset = 30336 : i64, slots = 2 : i64, type = "SlottedRows<$offset, $rows, 352, $slots>"}
    task.buffer @xs [2, 512] bf16 smem scratch {offset = 52864 : i64, row_bytes = 1056 : i64, type = "Rows<$offset, $rows, $cols>"}
    task.buffer @part [128, 8] f32 smem scratch {guard = @p_full, offset = 55040 : i64, slots = 2 : i64, type = "Part<$offset, $slots>"}
    task.buffer @o_proj_kept [2, 64] bf16 smem scratch {offset = 63232 : i64, type = "WordRows<$offset, $rows, 32>"}
    task.buffer @logits_rows [2, 16] f32 smem scratch {offset = 63488 : i64, type = "WordRows<$offset, $rows, $cols>"}
    task.buffer @routing [1, 44] i32 smem scratch {offset = 63616 : i64, type = "SlottedRows<$offset, $rows, 176, $slots>"}
    task.buffer @act_rows [2, 128] bf16 smem scratch {guard = @act_full, offset = 63872 : i64, row_bytes = 288 : i64, slots = 8 : i64, type = "SlottedRows<$offset, $rows, 288, $slots>"}
    task.buffer @down_rows [8, 64] bf16 smem scratch {offset = 68480 : i64, type = "WordRows<$offset, $rows, 32>"}
    task.symbol @attention_tiles in 0 to 32 per_sm = "AttentionTiles<attention>(*cta.args.step, cta.sm).count()"
    task.symbol @full_pieces in 0 to 8 per_sm = "full_pieces<attention>(tile)"
    task.table @attention_tile size 128 partition = "tile"
    task.table @kv_piece size 1024 injective = "units of a tile, below start"
    task.table @kv_new size 128 injective = "units of a tile with new positions"
    task.symbol @active in 0 to 8 after @routed = "platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active)"
    task.table @expert_id size 16 uniform = "routing_table<top_k>(cta)->expert"
    task.buffer @candidates [2, 8] i32 global written {slot = 19 : i64}
    task.stage @attention attention reads [@qkv[0, 0] 2 x [768] previous, @kv[0, 0] 2 x [8192]] writes [@partials[0, 0] 512 x [66], @kv[0, 0] 2 x [8192]] config {Apart = @apart, Mparts = @mparts, QkvIn = @qkv_in, Query = @q_rows, Tail = @tail, base = "Attention<Config, 2, 8, 2, 64, 64, 1, QkNorm::weighted, 1.00000000e-06f, 1.25000000e-01f, kv, inv_freq, g_q, g_k>", eps = 9.9999999999999995E-7 : f64, head_dim = 64 : i64, inv_freq = @inv_freq, k_gain = @g_k, kv_heads = 2 : i64, max_positions = 4096 : i64, merge_parts = 1 : i64, q_gain = @g_q, q_heads = 8 : i64, qk_norm = "head", rope_theta = 1.000000e+06 : f64, scale = 1.250000e-01 : f64} source "moe.attention" attributes {stream = {bytes = 16384 : i64, order = ["tile", "piece"], piece = 16384 : i64, window = 2 : i64}, why = [{because = "each tile has its heads' raw words at hand, and each new position one owning tile", by = "moe-convert-to-task", chose = "moe.qk_norm, moe.rope, moe.kv_append", what = "fused"}, {because = "how many there are depends on the lengths of the step's sequences", by = "task-choose-tiles", chose = "dealt out at run time", what = "tiles"}, {because = "4 units of 16 positions, K and V of 64 channels: four fit 16 KB", by = "task-plan-streams", chose = "16384 bytes", what = "piece"}, {because = "near exchanges, which wait behind what is in flight: at most 32768 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "2 pieces, 32768 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "tile" in @attention_tiles iterate "AttentionTiles<attention>" {
          task.for "piece" in @full_pieces {
            task.acquire @w_free
            task.pace @w_full window 2
            task.copy "copy_units<attention, ring, w_full>" ["tile", "piece"] @kv[d1 * 8 + d2, 0, 0] 1 x [8192] table @kv_piece to @ring signals @w_full
          }
        }
      }
      task.role poller {
        task.for "tile" in @attention_tiles iterate "AttentionTiles<attention>" {
          task.acquire @qkv_free {result = "const int slot"}
          task.poll "poll_qkv_tile<attention, Previous<qkv_words>>" ["tile", "slot"] waits @qkv_words reads [@qkv[0, 0] 2 x [768] previous] writes [@qkv_in[0, 0] 2 x [384]]
          task.signal @qkv_full
        }
        task.launch_wait
        task.rearm @resid
        task.rearm @qkv
        task.rearm @attn
        task.rearm @mid
        task.rearm @logits
        task.rearm @act
        task.launch_dependents
      }
      task.role consumer {
        task.local "constants" : "const auto" = "attention_constants<attention>(cta)"
        task.local "state" : "AttentionState<attention>"
        task.for "tile" in @attention_tiles iterate "AttentionTiles<attention>" {
          task.compute "attention_prepare<attention>" ["tile", "constants", "state"] reads [@kv[d1, 0, 0] 1 x [2048] table @kv_new] writes [@tail[0, 0] 2 x [2048]] meets always
          task.wait @qkv_full {result = "const int words"}
          task.compute "attention_begin<attention>" ["tile", "words", "constants", "state"] reads [@qkv_in[0, 0] 2 x [384], @tail[0, 0] 2 x [2048]] writes [@q_rows[0, 0] 8 x [64], @tail[0, 0] 2 x [2048]]
          task.release @qkv_free
          task.for "piece" in @full_pieces {
            task.wait @w_full {result = "const int slot"}
            task.compute "attention_piece<attention, ring>" ["tile", "slot", "piece", "state"] reads [@q_rows[0, 0] 8 x [64]] writes [@apart[0, 0] 64 x [68]] ring @ring
            task.release @w_free
          }
          task.compute "attention_tail<attention>" ["tile", "state"] reads [@q_rows[0, 0] 8 x [64], @tail[0, 0] 2 x [2048]] writes [@apart[0, 0] 64 x [68]]
          task.compute "attention_finish<attention>" ["tile", "state"] reads [] writes [@apart[0, 0] 64 x [68]]
          task.launch_wait
          task.compute "publish_partials<attention, partials_words>" ["tile", "state"] reads [@apart[0, 0] 64 x [68]] writes [@partials[d1, 0, 0] 8 x [66] table @attention_tile]
          task.compute "attention_append<attention>" ["tile"] reads [@tail[0, 0] 2 x [2048]] writes [@kv[d1, 0, 0] 1 x [2048] table @kv_new]
        }
      }
    }
    task.stage @merge merge reads [@partials[0, 0] 512 x [66]] writes [@attn[0, 0] 2 x [512]] config {head_dim = 64 : i64, merge_parts = 1 : i64, q_heads = 8 : i64} source "moe.attention" attributes {depends = [@attention], why = [{because = "2 rows x 8 heads x 4 parts are more than 2 of 4 SMs each: more parts would not spread the reading further", by = "moe-convert-to-task", chose = "1 a query head", what = "parts"}, {because = "how many there are depends on the lengths of the step's sequences", by = "task-choose-tiles", chose = "dealt out at run time", what = "tiles"}, {because = "tiles of one of them are dealt out at run time: any two may meet", by = "task-materialize-exchanges", chose = "for @attention", what = "waits, @partials"}]} {
      task.role poller {
        task.for "piece" in 4 iterate "MergeTiles<attention>" {
          task.acquire @mparts_free {result = "const int slot"}
          task.poll "poll_partials<attention, partials_words>" ["piece", "slot"] waits @partials_words reads [@partials[d1, 0, 0] 32 x [66] table @attention_tile] writes [@mparts[0, 0] 32 x [88]]
          task.signal @mparts_full
        }
      }
      task.role epilogue {
        task.launch_wait
        task.for "piece" in 4 iterate "MergeTiles<attention>" {
          task.wait @mparts_full {result = "const int slot"}
          task.compute "merge_splits<attention, attn_words>" ["piece", "slot"] reads [@mparts[0, 0] 32 x [88]] writes [@attn[(d1 * 4 + d0) floordiv 8, ((d1 * 4 + d0) mod 8) * 64] 1 x [64]]
          task.release @mparts_free
        }
      }
    }
    task.weights @w_o n 256 k 512 slot 4 rows ["model.layers.{layer}.self_attn.o_proj.weight"]
    task.exchange @mid [2, 256] bf16 sentinel sets 2 slot 16 edge @mid_words {why = [{because = "only this launch reads it: one set is in use while the other is emptied", by = "task-materialize-exchanges", chose = "2", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 1024 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.stage @o_proj linear tiles 4 sms 4 assign #map reads [@attn[0, 0] 2 x [512], @w_o[d0 * 32, 0] 32 x [1], @resid[0, d0 * 64] 2 x [64] previous] writes [@mid[0, d0 * 64] 2 x [64]] config {In = "Rows<xs::kOffset, Config::kRows, 512>", base = "Linear<w_o, 256, 512, 32>", epilogue = "residual", k = 512 : i64, n = 256 : i64, norm = "none", unit = 32 : i64} source "moe.linear" attributes {depends = [@merge], stream = {bytes = 65536 : i64, order = ["mtile", "block"], piece = 16384 : i64, window = 2 : i64}, why = [{because = "only this stage's result is added: its epilogue has the sum in registers", by = "moe-convert-to-task", chose = "moe.residual", what = "fused"}, {because = "128 strips over 4 SMs are at least 32 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "32 strips (64 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "tiles of one of them are dealt out at run time: any two may meet", by = "task-materialize-exchanges", chose = "for @merge", what = "waits, @attn"}, {because = "8 strips of one of 1 blocks of K, 2048 bytes each: an m-tile has 8, the slice 32", by = "task-plan-streams", chose = "16384 bytes", what = "piece"}, {because = "near exchanges, which wait behind what is in flight: at most 32768 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "2 pieces, 32768 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "mtile" in 4 {
          task.for "block" in 1 {
            task.acquire @w_free
            task.pace @w_full window 2
            task.copy "copy_piece<w_full, ring, o_proj>" ["mtile", "block"] @w_o[d0 * 32 + d1 * 8, d2] 8 x [1] to @ring signals @w_full
          }
        }
      }
      task.role consumer {
        task.launch_wait
        task.refill @xs
        task.poll "poll_chunk<attn_words, o_proj::In>" [] waits @attn_words reads [@attn[0, 0] 2 x [512]] writes [@xs[0, 0] 2 x [512]]
        task.local "column" : "const Column" = "dense_column<o_proj, o_proj::In>(cta)"
        task.for "mtile" in 4 {
          task.local "sum" : "ChunkSum" = "{}"
          task.for "block" in 1 {
            task.wait @w_full {result = "const int slot"}
            task.compute "gemv_block<o_proj, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 2 x [512]] writes [] ring @ring
            task.release @w_free
          }
          task.acquire @p_free {result = "const int place"}
          task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
          task.signal @p_full
        }
      }
      task.role epilogue {
        task.poll "fetch_slice<o_proj, Previous<resid_words>, o_proj_kept>" [] waits @resid_words reads [@resid[0, d0 * 64] 2 x [64] previous] writes [@o_proj_kept[0, 0] 2 x [64]]
        task.for "mtile" in 4 {
          task.wait @p_full {result = "const int place"}
          task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
          task.release @p_free
          task.compute "epilogue_residual<o_proj, mid_words, o_proj_kept>" ["mtile", "sum"] reads [@o_proj_kept[0, 0] 2 x [64]] writes [@mid[0, d0 * 64 + d1 * 16] 2 x [16], @o_proj_kept[0, 0] 2 x [64]]
        }
      }
    }
    task.weights @w_router n 16 k 256 slot 5 rows ["model.layers.{layer}.mlp.gate.weight"]
    task.exchange @logits [2, 16] f32 sentinel sets 2 slot 17 edge @logits_words {why = [{because = "only this launch reads it: one set is in use while the other is emptied", by = "task-materialize-exchanges", chose = "2", what = "sets"}, {because = "which words a launch writes is known: empty words show by themselves, and re-arming 128 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.buffer @g_mlp [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.post_attention_layernorm.weight", slot = 6 : i64}
    task.stage @router linear tiles 4 sms 4 assign #map reads [@mid[0, 0] 2 x [256], @w_router[d0 * 2, 0] 2 x [1]] writes [@logits[0, d0 * 4] 2 x [4]] config {In = "Rows<xs::kOffset, Config::kRows, 256>", Norm = "RmsNorm<In, g_mlp, 1.00000000e-06f>", base = "Linear<w_router, 16, 256, 2>", epilogue = "logits", eps = 9.9999999999999995E-7 : f64, gain = @g_mlp, k = 256 : i64, n = 16 : i64, norm = "rms", unit = 2 : i64} source "moe.router" attributes {depends = [@o_proj], stream = {bytes = 2048 : i64, order = ["mtile", "block"], piece = 2048 : i64, window = 16 : i64}, why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}, {because = "8 strips over 4 SMs are at least 2 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "2 strips (4 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "a tile reads what 4 of 4 tiles wrote", by = "task-materialize-exchanges", chose = "for @o_proj", what = "waits, @mid"}, {because = "2 strips of one of 1 blocks of K, 1024 bytes each: an m-tile has 8, the slice 2", by = "task-plan-streams", chose = "2048 bytes", what = "piece"}, {because = "near exchanges, which wait behind what is in flight: at most 32768 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "16 pieces, 32768 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "mtile" in 1 {
          task.for "block" in 1 {
            task.acquire @w_free
            task.pace @w_full window 9
            task.copy "copy_piece<w_full, ring, router>" ["mtile", "block"] @w_router[d0 * 2 + d1 * 8, d2] 2 x [1] to @ring signals @w_full
          }
        }
      }
      task.role consumer {
        task.compute "load_gains<router::Norm>" [] reads [@g_mlp[0, 0] 1 x [256]] writes [] {result = "const auto gains"}
        task.refill @xs
        task.poll "poll_chunk<mid_words, router::In>" [] waits @mid_words reads [@mid[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.compute "rms_norm<router::Norm>" ["gains"] reads [@xs[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.local "column" : "const Column" = "dense_column<router, router::In>(cta)"
        task.for "mtile" in 1 {
          task.local "sum" : "ChunkSum" = "{}"
          task.for "block" in 1 {
            task.wait @w_full {result = "const int slot"}
            task.compute "gemv_block<router, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 2 x [256]] writes [] ring @ring
            task.release @w_free
          }
          task.acquire @p_free {result = "const int place"}
          task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
          task.signal @p_full
        }
      }
      task.role epilogue {
        task.for "mtile" in 1 {
          task.wait @p_full {result = "const int place"}
          task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
          task.release @p_free
          task.compute "epilogue_logits<router, logits_words>" ["mtile", "sum"] reads [] writes [@logits[0, d0 * 4 + d1 * 16] 2 x [4]]
        }
      }
    }
    task.stage @top_k top_k reads [@logits[0, 0] 2 x [16]] writes [] config {Logits = @logits_rows, Routing = @routing, base = "TopK<Config, 16, 4, ExpertWeights::softmax_renormalised, 1.0f, -1, -1, -1, 0>", experts = 16 : i64, k = 4 : i64, renormalize = true, score = "softmax"} source "moe.top_k" attributes {depends = [@router], why = [{because = "every SM needs the choice of all rows at once: choosing it again saves an exchange", by = "task-choose-tiles", chose = "replicated on all 4 SMs", what = "tiles"}, {because = "tiles of one of them are dealt out at run time: any two may meet", by = "task-materialize-exchanges", chose = "for @router", what = "waits, @logits"}]} {
      task.role poller {
        task.wait @routed
      }
      task.role producer {
        task.wait @routed
      }
      task.role epilogue {
        task.wait @routed
      }
      task.role consumer {
        task.poll "poll_own_row<logits_words, logits_rows>" [] waits @logits_words reads [@logits[0, 0] 2 x [16]] writes [@logits_rows[0, 0] 2 x [16]]
        task.compute "select_experts<top_k>" [] reads [@logits_rows[0, 0] 2 x [16]] writes [@routing[0, 26] 1 x [18]]
        task.compute "group_experts<top_k>" [] reads [@routing[0, 26] 1 x [18]] writes [@routing[0, 0] 1 x [26]]
        task.signal @routed
      }
    }
    task.weights @w_up n 256 k 256 slot 7 gate_up ["model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight", "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"] {experts = 16 : i64}
    task.exchange @act [8, 128] bf16 sentinel sets 2 slot 18 edge @act_words {why = [{because = "only this launch reads it: one set is in use while the other is emptied", by = "task-materialize-exchanges", chose = "2", what = "sets"}, {because = "bf16 has no room for an epoch: empty words show by themselves, and re-arming 2048 bytes a launch is cheap (at most 65536)", by = "task-select-protocol", chose = "sentinel", what = "words"}]}
    task.stage @expert_up expert_up tiles 4 sms 4 assign #map reads [@w_up[d0 * 32, 0] 32 x [1]] writes [@act[0, d0 * 32] 8 x [32]] config {In = "Rows<xs::kOffset, Config::kRows, 256>", activation = "silu", base = "Linear<w_up, 256, 256, 32>", experts = 16 : i64, k = 256 : i64, n = 256 : i64, shares_input = @router, top_k = 4 : i64, unit = 32 : i64} source "moe.expert_gate_up" attributes {stream = {bytes = 32768 : i64, order = ["expert", "mtile", "block"], piece = 8192 : i64, window = 6 : i64}, why = [{because = "@router before it left the same rows, normed alike, in shared memory", by = "moe-convert-to-task", chose = "their read", what = "elided, input rows"}, {because = "a strip holds a gate row and its up row: the epilogue has both", by = "moe-convert-to-task", chose = "moe.glu", what = "fused"}, {because = "128 strips over 4 SMs are at least 32 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "32 strips (32 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "8 strips of one of 1 blocks of K, 1024 bytes each: an m-tile has 8, the slice 32", by = "task-plan-streams", chose = "8192 bytes", what = "piece"}, {because = "among experts, a long stream with one exchange, mostly hidden: at most 55296 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "6 pieces, 49152 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.for "mtile" in 4 {
            task.for "block" in 1 {
              task.acquire @w_free
              task.pace @w_full window 6
              task.copy "copy_piece<w_full, ring, expert_up>" ["mtile", "block", "expert.id"] @w_up[d1, d0 * 32 + d2 * 8, d3] 8 x [1] table @expert_id to @ring signals @w_full
            }
          }
        }
      }
      task.role consumer {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.compute "gathered_column<expert_up, expert_up::In, 4>" ["expert.pairs", "expert.count"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const Column column"}
          task.for "mtile" in 4 {
            task.local "sum" : "ChunkSum" = "{}"
            task.for "block" in 1 {
              task.wait @w_full {result = "const int slot"}
              task.compute "gemv_block<expert_up, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 2 x [256]] writes [] ring @ring
              task.release @w_free
            }
            task.acquire @p_free {result = "const int place"}
            task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
            task.signal @p_full
          }
        }
      }
      task.role epilogue {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.for "mtile" in 4 {
            task.wait @p_full {result = "const int place"}
            task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
            task.release @p_free
            task.compute "epilogue_glu<expert_up, act_words>" ["mtile", "sum", "expert.pairs", "expert.count"] reads [@routing[0, 0] 1 x [44]] writes [@act[d1, 0, d0 * 32 + d2 * 8] 2 x [8] table @expert_id]
          }
        }
      }
    }
    task.weights @w_down n 256 k 128 slot 8 rows ["model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"] {experts = 16 : i64}
    task.stage @expert_down expert_down tiles 4 sms 4 assign #map reads [@act[0, 0] 8 x [128], @w_down[d0 * 32, 0] 32 x [1], @mid[0, d0 * 64] 2 x [64]] writes [@resid[0, d0 * 64] 2 x [64]] config {base = "Linear<w_down, 256, 128, 32>", epilogue = "combine_residual", experts = 16 : i64, k = 128 : i64, n = 256 : i64, top_k = 4 : i64, unit = 32 : i64} source "moe.expert_down" attributes {depends = [@o_proj, @expert_up], kept = @o_proj, stream = {bytes = 16384 : i64, order = ["expert", "mtile", "block"], piece = 4096 : i64, window = 13 : i64}, why = [{because = "an SM has the slice of all chosen experts, so it can weigh and add them itself", by = "moe-convert-to-task", chose = "moe.combine, moe.residual", what = "fused"}, {because = "128 strips over 4 SMs are at least 32 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "32 strips (64 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "a tile reads what 1 of 4 tiles wrote", by = "task-materialize-exchanges", chose = "for @o_proj", what = "waits, @mid"}, {because = "on all 4 SMs the tile reads just what the same SM's tile of @o_proj wrote: the slice stays in shared memory", by = "task-materialize-exchanges", chose = "its read", what = "elided, slice of @mid"}, {because = "a tile reads what 4 of 4 tiles wrote", by = "task-materialize-exchanges", chose = "for @expert_up", what = "waits, @act"}, {because = "8 strips of one of 1 blocks of K, 512 bytes each: an m-tile has 8, the slice 32", by = "task-plan-streams", chose = "4096 bytes", what = "piece"}, {because = "among experts, a long stream with one exchange, mostly hidden: at most 55296 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "13 pieces, 53248 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.for "mtile" in 4 {
            task.for "block" in 1 {
              task.acquire @w_free
              task.pace @w_full window 9
              task.copy "copy_piece<w_full, ring, expert_down>" ["mtile", "block", "expert.id"] @w_down[d1, d0 * 32 + d2 * 8, d3] 8 x [1] table @expert_id to @ring signals @w_full
            }
          }
        }
      }
      task.role poller {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.acquire @act_free {result = "const int slot"}
          task.poll "poll_expert<act_words, act_rows>" ["slot", "expert.pairs", "expert.count"] waits @act_words reads [@act[d1, 0, 0] 2 x [128] table @expert_id] writes [@act_rows[0, 0] 2 x [128]]
          task.signal @act_full
        }
      }
      task.role consumer {
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.wait @act_full {result = "const int acts"}
          task.local "column" : "const Column" = "slot_column<expert_down, act_rows>(cta, acts, expert.count)"
          task.for "mtile" in 4 {
            task.local "sum" : "ChunkSum" = "{}"
            task.for "block" in 1 {
              task.wait @w_full {result = "const int slot"}
              task.compute "gemv_block<expert_down, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@act_rows[0, 0] 2 x [128]] writes [] ring @ring
              task.release @w_free
            }
            task.acquire @p_free {result = "const int place"}
            task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
            task.signal @p_full
          }
          task.release @act_free
        }
      }
      task.role epilogue {
        task.compute "clear_words<down_rows>" [] reads [] writes [@down_rows[0, 0] 8 x [64]]
        task.for "entry" in @active {
          task.compute "active_expert<top_k>" ["entry"] reads [@routing[0, 0] 1 x [44]] writes [] {result = "const ActiveExpert expert"}
          task.for "mtile" in 4 {
            task.wait @p_full {result = "const int place"}
            task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
            task.release @p_free
            task.compute "epilogue_down<expert_down, down_rows>" ["mtile", "sum", "expert.pairs", "expert.count"] reads [@routing[0, 0] 1 x [44], @down_rows[0, 0] 8 x [64]] writes [@down_rows[0, 0] 8 x [64]]
          }
        }
        task.compute "combine<expert_down, resid_words, o_proj_kept, down_rows, 4>" ["weights_of<top_k>(cta)"] reads [@down_rows[0, 0] 8 x [64], @o_proj_kept[0, 0] 2 x [64], @routing[0, 0] 1 x [44]] writes [@resid[0, d0 * 64] 2 x [64]]
      }
    }
    task.weights @w_head n 512 k 256 slot 9 rows ["lm_head.weight"]
    task.buffer @out [2, 512] f32 global written {slot = 10 : i64}
    task.buffer @g_final [1, 256] bf16 global immutable {checkpoint = "model.norm.weight", slot = 11 : i64}
    task.stage @head linear tiles 4 sms 4 assign #map reads [@resid[0, 0] 2 x [256], @w_head[d0 * 64, 0] 64 x [1]] writes [@out[0, d0 * 128] 2 x [128]] config {In = "Rows<xs::kOffset, Config::kRows, 256>", Norm = "RmsNorm<In, g_final, 1.00000000e-06f>", base = "Linear<w_head, 512, 256, 64>", epilogue = "head", eps = 9.9999999999999995E-7 : f64, gain = @g_final, k = 256 : i64, n = 512 : i64, norm = "rms", unit = 64 : i64} source "moe.lm_head" attributes {depends = [@expert_down], stream = {bytes = 65536 : i64, order = ["mtile", "block"], piece = 8192 : i64, window = 8 : i64}, why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}, {because = "256 strips over 4 SMs are at least 64 on one; 100.0 % of what all SMs could do in the time of the longest", by = "task-choose-tiles", chose = "64 strips (128 channels) on each of 4 of 4 SMs", what = "slice"}, {because = "a tile reads what 4 of 4 tiles wrote", by = "task-materialize-exchanges", chose = "for @expert_down", what = "waits, @resid"}, {because = "8 strips of one of 1 blocks of K, 1024 bytes each: an m-tile has 8, the slice 64", by = "task-plan-streams", chose = "8192 bytes", what = "piece"}, {because = "nobody waits for what the stage makes: at most 65536 bytes, and at least 2 pieces", by = "task-plan-streams", chose = "8 pieces, 65536 bytes in flight an SM", what = "window"}]} {
      task.role producer {
        task.for "mtile" in 8 {
          task.for "block" in 1 {
            task.acquire @w_free
            task.pace @w_full window 8
            task.copy "copy_piece<w_full, ring, head>" ["mtile", "block"] @w_head[d0 * 64 + d1 * 8, d2] 8 x [1] to @ring signals @w_full
          }
        }
      }
      task.role consumer {
        task.compute "load_gains<head::Norm>" [] reads [@g_final[0, 0] 1 x [256]] writes [] {result = "const auto gains"}
        task.refill @xs
        task.poll "poll_chunk<resid_words, head::In>" [] waits @resid_words reads [@resid[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.compute "rms_norm<head::Norm>" ["gains"] reads [@xs[0, 0] 2 x [256]] writes [@xs[0, 0] 2 x [256]]
        task.local "column" : "const Column" = "dense_column<head, head::In>(cta)"
        task.for "mtile" in 8 {
          task.local "sum" : "ChunkSum" = "{}"
          task.for "block" in 1 {
            task.wait @w_full {result = "const int slot"}
            task.compute "gemv_block<head, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 2 x [256]] writes [] ring @ring
            task.release @w_free
          }
          task.acquire @p_free {result = "const int place"}
          task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
          task.signal @p_full
        }
      }
      task.role epilogue {
        task.local "best" : "BestRanks" = "{}"
        task.for "mtile" in 8 {
          task.wait @p_full {result = "const int place"}
          task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
          task.release @p_free
          task.compute "epilogue_head<head, out>" ["mtile", "sum", "best"] reads [] writes [@out[0, d0 * 128 + d1 * 16] 2 x [16]]
        }
        task.compute "store_candidates<4, candidates>" ["best"] reads [] writes [@candidates[0, d0 * 2] 2 x [2]]
      }
    }
  }
}

