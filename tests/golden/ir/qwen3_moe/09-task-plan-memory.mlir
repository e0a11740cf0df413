#map = affine_map<(d0) -> (d0, 0)>
module attributes {megalith.launches = [@embed, @layer, @layer, @last], megalith.model = "qwen3-moe-small.test"} {
  task.kernel @embed "embed" target "sm_90a" sms 4 rows 2 smem 231040 {
    task.buffer @embedding [512, 256] bf16 global immutable {checkpoint = "model.embed_tokens.weight", slot = 0 : i64}
    task.exchange @resid [2, 256] bf16 sentinel sets 3 slot 3 edge @resid_words
    task.edge 0 @resid_words words epilogue -> consumer
    task.edge 1 @qkv_words words epilogue -> poller
    task.edge 2 @w_full bytes producer -> consumer {offset = 0 : i64, slots = 27 : i64}
    task.edge 3 @w_free credit consumer -> producer {arrivals = 8 : i64, offset = 216 : i64, slots = 27 : i64}
    task.ring @ring 27 x 8192 full @w_full free @w_free {offset = 9856 : i64}
    task.exchange @attn [2, 512] bf16 sentinel sets 2 slot 5 edge @attn_words
    task.edge 4 @attn_words words epilogue -> poller
    task.exchange @mid [2, 256] bf16 sentinel sets 2 slot 6 edge @mid_words
    task.edge 5 @mid_words words epilogue -> poller
    task.exchange @logits [2, 16] f32 sentinel sets 2 slot 7 edge @logits_words
    task.edge 6 @logits_words words epilogue -> poller
    task.exchange @act [8, 128] bf16 sentinel sets 2 slot 8 edge @act_words
    task.edge 7 @act_words words epilogue -> poller
    task.edge 8 @p_full mbarrier consumer -> epilogue {arrivals = 8 : i64, offset = 432 : i64, slots = 2 : i64}
    task.edge 9 @p_free credit epilogue -> consumer {offset = 448 : i64, slots = 2 : i64}
    task.buffer @xs [2, 256] bf16 smem scratch {offset = 512 : i64, row_bytes = 544 : i64, type = "Rows<$offset, $rows, $cols>"}
    task.buffer @part [128, 8] f32 smem scratch {guard = @p_full, offset = 1664 : i64, slots = 2 : i64, type = "Part<$offset, $slots>"}
    task.stage @embed embed tiles 4 sms 4 assign #map reads [@embedding[0, 0] 512 x [256]] writes [@resid[0, d0 * 64] 2 x [64]] config {hidden = 256 : i64, unit = 32 : i64, vocab = 512 : i64} source "moe.embed" {
    }
    task.weights @w_qkv n 768 k 256 slot 1 rows ["model.layers.{layer}.self_attn.q_proj.weight", "model.layers.{layer}.self_attn.k_proj.weight", "model.layers.{layer}.self_attn.v_proj.weight"] {layer_offset = 1 : i64}
    task.exchange @qkv [2, 768] bf16 sentinel sets 3 slot 4 edge @qkv_words
    task.buffer @g_attn [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.input_layernorm.weight", layer_offset = 1 : i64, slot = 2 : i64}
    task.stage @qkv_proj linear tiles 4 sms 4 assign #map reads [@resid[0, 0] 2 x [256], @w_qkv[d0 * 96, 0] 96 x [1]] writes [@qkv[0, d0 * 192] 2 x [192]] config {epilogue = "qkv", eps = 9.9999999999999995E-7 : f64, gain = @g_attn, k = 256 : i64, n = 768 : i64, norm = "rms", unit = 96 : i64} source "moe.qkv_proj" attributes {depends = [@embed], stream = {bytes = 98304 : i64, order = ["mtile", "block"], piece = 8192 : i64, window = 4 : i64}} {
    }
  }
  task.kernel @layer "layer" target "sm_90a" sms 4 rows 2 smem 216960 {
    task.exchange @resid [2, 256] bf16 sentinel sets 3 slot 11 edge @resid_words
    task.exchange @qkv [2, 768] bf16 sentinel sets 3 slot 12 edge @qkv_words
    task.buffer @kv [2, 8192] bf16 global pages {slot = 0 : i64}
    task.buffer @inv_freq [1, 32] f32 global immutable {slot = 1 : i64}
    task.exchange @partials [512, 66] f32 epoch sets 1 slot 13 edge @partials_words
    task.exchange @attn [2, 512] bf16 sentinel sets 2 slot 14 edge @attn_words
    task.buffer @g_q [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.q_norm.weight", slot = 2 : i64}
    task.buffer @g_k [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.k_norm.weight", slot = 3 : i64}
    task.edge 0 @resid_words words epilogue -> consumer, epilogue
    task.edge 1 @qkv_words words epilogue -> poller
    task.edge 2 @partials_words words consumer -> poller
    task.edge 3 @attn_words words epilogue -> consumer
    task.edge 4 @mid_words words epilogue -> consumer
    task.edge 5 @logits_words words epilogue -> consumer
    task.edge 6 @act_words words epilogue -> poller
    task.edge 7 @w_full bytes producer -> consumer {offset = 0 : i64, slots = 9 : i64}
    task.edge 8 @w_free credit consumer -> producer {arrivals = 8 : i64, offset = 72 : i64, slots = 9 : i64}
    task.ring @ring 9 x 16384 full @w_full free @w_free {offset = 69504 : i64}
    task.edge 9 @qkv_full mbarrier poller -> consumer {offset = 144 : i64, slots = 2 : i64}
    task.edge 10 @qkv_free credit consumer -> poller {arrivals = 8 : i64, offset = 160 : i64, slots = 2 : i64}
    task.edge 11 @mparts_full mbarrier poller -> epilogue {offset = 176 : i64, slots = 2 : i64}
    task.edge 12 @mparts_free credit epilogue -> poller {offset = 192 : i64, slots = 2 : i64}
    task.edge 13 @p_full mbarrier consumer -> epilogue {arrivals = 8 : i64, offset = 208 : i64, slots = 2 : i64}
    task.edge 14 @p_free credit epilogue -> consumer {offset = 224 : i64, slots = 2 : i64}
    task.edge 15 @routed mbarrier consumer -> producer, poller, epilogue {arrivals = 8 : i64, offset = 240 : i64}
    task.edge 16 @act_full mbarrier poller -> consumer {offset = 248 : i64, slots = 8 : i64}
    task.edge 17 @act_free credit consumer -> poller {arrivals = 8 : i64, offset = 312 : i64, slots = 8 : i64}
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
    task.stage @attention attention reads [@qkv[0, 0] 2 x [768] previous, @kv[0, 0] 2 x [8192]] writes [@partials[0, 0] 512 x [66], @kv[0, 0] 2 x [8192]] config {eps = 9.9999999999999995E-7 : f64, head_dim = 64 : i64, inv_freq = @inv_freq, k_gain = @g_k, kv_heads = 2 : i64, max_positions = 4096 : i64, merge_parts = 1 : i64, q_gain = @g_q, q_heads = 8 : i64, qk_norm = "head", rope_theta = 1.000000e+06 : f64, scale = 1.250000e-01 : f64} source "moe.attention" attributes {stream = {bytes = 8192 : i64, order = ["tile", "piece"], piece = 8192 : i64, window = 4 : i64}} {
    }
    task.stage @merge merge reads [@partials[0, 0] 512 x [66]] writes [@attn[0, 0] 2 x [512]] config {head_dim = 64 : i64, merge_parts = 1 : i64, q_heads = 8 : i64} source "moe.attention" attributes {depends = [@attention]} {
    }
    task.weights @w_o n 256 k 512 slot 4 rows ["model.layers.{layer}.self_attn.o_proj.weight"]
    task.exchange @mid [2, 256] bf16 sentinel sets 2 slot 15 edge @mid_words
    task.stage @o_proj linear tiles 4 sms 4 assign #map reads [@attn[0, 0] 2 x [512], @w_o[d0 * 32, 0] 32 x [1], @resid[0, d0 * 64] 2 x [64] previous] writes [@mid[0, d0 * 64] 2 x [64]] config {epilogue = "residual", k = 512 : i64, n = 256 : i64, norm = "none", unit = 32 : i64} source "moe.linear" attributes {depends = [@merge], stream = {bytes = 65536 : i64, order = ["mtile", "block"], piece = 16384 : i64, window = 2 : i64}} {
    }
    task.weights @w_router n 16 k 256 slot 5 rows ["model.layers.{layer}.mlp.gate.weight"]
    task.exchange @logits [2, 16] f32 sentinel sets 2 slot 16 edge @logits_words
    task.buffer @g_mlp [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.post_attention_layernorm.weight", slot = 6 : i64}
    task.stage @router linear tiles 4 sms 4 assign #map reads [@mid[0, 0] 2 x [256], @w_router[d0 * 2, 0] 2 x [1]] writes [@logits[0, d0 * 4] 2 x [4]] config {epilogue = "logits", eps = 9.9999999999999995E-7 : f64, gain = @g_mlp, k = 256 : i64, n = 16 : i64, norm = "rms", unit = 2 : i64} source "moe.router" attributes {depends = [@o_proj], stream = {bytes = 2048 : i64, order = ["mtile", "block"], piece = 2048 : i64, window = 16 : i64}} {
    }
    task.stage @top_k top_k reads [@logits[0, 0] 2 x [16]] writes [] config {experts = 16 : i64, k = 4 : i64, renormalize = true, score = "softmax"} source "moe.top_k" attributes {depends = [@router]} {
    }
    task.weights @w_up n 256 k 256 slot 7 gate_up ["model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight", "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"] {experts = 16 : i64}
    task.exchange @act [8, 128] bf16 sentinel sets 2 slot 17 edge @act_words
    task.stage @expert_up expert_up tiles 4 sms 4 assign #map reads [@w_up[d0 * 32, 0] 32 x [1]] writes [@act[0, d0 * 32] 8 x [32]] config {activation = "silu", experts = 16 : i64, k = 256 : i64, n = 256 : i64, shares_input = @router, top_k = 4 : i64, unit = 32 : i64} source "moe.expert_gate_up" attributes {stream = {bytes = 32768 : i64, order = ["expert", "mtile", "block"], piece = 8192 : i64, window = 6 : i64}} {
    }
    task.weights @w_down n 256 k 128 slot 8 rows ["model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"] {experts = 16 : i64}
    task.stage @expert_down expert_down tiles 4 sms 4 assign #map reads [@act[0, 0] 8 x [128], @w_down[d0 * 32, 0] 32 x [1], @mid[0, d0 * 64] 2 x [64]] writes [@resid[0, d0 * 64] 2 x [64]] config {epilogue = "combine_residual", experts = 16 : i64, k = 128 : i64, n = 256 : i64, top_k = 4 : i64, unit = 32 : i64} source "moe.expert_down" attributes {depends = [@o_proj, @expert_up], kept = @o_proj, stream = {bytes = 16384 : i64, order = ["expert", "mtile", "block"], piece = 4096 : i64, window = 12 : i64}} {
    }
    task.weights @w_qkv n 768 k 256 slot 9 rows ["model.layers.{layer}.self_attn.q_proj.weight", "model.layers.{layer}.self_attn.k_proj.weight", "model.layers.{layer}.self_attn.v_proj.weight"] {layer_offset = 1 : i64}
    task.buffer @g_attn [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.input_layernorm.weight", layer_offset = 1 : i64, slot = 10 : i64}
    task.stage @qkv_proj linear tiles 4 sms 4 assign #map reads [@resid[0, 0] 2 x [256], @w_qkv[d0 * 96, 0] 96 x [1]] writes [@qkv[0, d0 * 192] 2 x [192]] config {epilogue = "qkv", eps = 9.9999999999999995E-7 : f64, gain = @g_attn, k = 256 : i64, n = 768 : i64, norm = "rms", unit = 96 : i64} source "moe.qkv_proj" attributes {depends = [@expert_down], stream = {bytes = 98304 : i64, order = ["mtile", "block"], piece = 8192 : i64, window = 4 : i64}} {
    }
  }
  task.kernel @last "last" target "sm_90a" sms 4 rows 2 smem 216960 {
    task.exchange @resid [2, 256] bf16 sentinel sets 3 slot 12 edge @resid_words
    task.exchange @qkv [2, 768] bf16 sentinel sets 3 slot 13 edge @qkv_words
    task.buffer @kv [2, 8192] bf16 global pages {slot = 0 : i64}
    task.buffer @inv_freq [1, 32] f32 global immutable {slot = 1 : i64}
    task.exchange @partials [512, 66] f32 epoch sets 1 slot 14 edge @partials_words
    task.exchange @attn [2, 512] bf16 sentinel sets 2 slot 15 edge @attn_words
    task.buffer @g_q [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.q_norm.weight", slot = 2 : i64}
    task.buffer @g_k [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.k_norm.weight", slot = 3 : i64}
    task.edge 0 @resid_words words epilogue -> consumer, epilogue
    task.edge 1 @qkv_words words epilogue -> poller
    task.edge 2 @partials_words words consumer -> poller
    task.edge 3 @attn_words words epilogue -> consumer
    task.edge 4 @mid_words words epilogue -> consumer
    task.edge 5 @logits_words words epilogue -> consumer
    task.edge 6 @act_words words epilogue -> poller
    task.edge 7 @w_full bytes producer -> consumer {offset = 0 : i64, slots = 9 : i64}
    task.edge 8 @w_free credit consumer -> producer {arrivals = 8 : i64, offset = 72 : i64, slots = 9 : i64}
    task.ring @ring 9 x 16384 full @w_full free @w_free {offset = 69504 : i64}
    task.edge 9 @qkv_full mbarrier poller -> consumer {offset = 144 : i64, slots = 2 : i64}
    task.edge 10 @qkv_free credit consumer -> poller {arrivals = 8 : i64, offset = 160 : i64, slots = 2 : i64}
    task.edge 11 @mparts_full mbarrier poller -> epilogue {offset = 176 : i64, slots = 2 : i64}
    task.edge 12 @mparts_free credit epilogue -> poller {offset = 192 : i64, slots = 2 : i64}
    task.edge 13 @p_full mbarrier consumer -> epilogue {arrivals = 8 : i64, offset = 208 : i64, slots = 2 : i64}
    task.edge 14 @p_free credit epilogue -> consumer {offset = 224 : i64, slots = 2 : i64}
    task.edge 15 @routed mbarrier consumer -> producer, poller, epilogue {arrivals = 8 : i64, offset = 240 : i64}
    task.edge 16 @act_full mbarrier poller -> consumer {offset = 248 : i64, slots = 8 : i64}
    task.edge 17 @act_free credit consumer -> poller {arrivals = 8 : i64, offset = 312 : i64, slots = 8 : i64}
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
    task.stage @attention attention reads [@qkv[0, 0] 2 x [768] previous, @kv[0, 0] 2 x [8192]] writes [@partials[0, 0] 512 x [66], @kv[0, 0] 2 x [8192]] config {eps = 9.9999999999999995E-7 : f64, head_dim = 64 : i64, inv_freq = @inv_freq, k_gain = @g_k, kv_heads = 2 : i64, max_positions = 4096 : i64, merge_parts = 1 : i64, q_gain = @g_q, q_heads = 8 : i64, qk_norm = "head", rope_theta = 1.000000e+06 : f64, scale = 1.250000e-01 : f64} source "moe.attention" attributes {stream = {bytes = 8192 : i64, order = ["tile", "piece"], piece = 8192 : i64, window = 4 : i64}} {
    }
    task.stage @merge merge reads [@partials[0, 0] 512 x [66]] writes [@attn[0, 0] 2 x [512]] config {head_dim = 64 : i64, merge_parts = 1 : i64, q_heads = 8 : i64} source "moe.attention" attributes {depends = [@attention]} {
    }
    task.weights @w_o n 256 k 512 slot 4 rows ["model.layers.{layer}.self_attn.o_proj.weight"]
    task.exchange @mid [2, 256] bf16 sentinel sets 2 slot 16 edge @mid_words
    task.stage @o_proj linear tiles 4 sms 4 assign #map reads [@attn[0, 0] 2 x [512], @w_o[d0 * 32, 0] 32 x [1], @resid[0, d0 * 64] 2 x [64] previous] writes [@mid[0, d0 * 64] 2 x [64]] config {epilogue = "residual", k = 512 : i64, n = 256 : i64, norm = "none", unit = 32 : i64} source "moe.linear" attributes {depends = [@merge], stream = {bytes = 65536 : i64, order = ["mtile", "block"], piece = 16384 : i64, window = 2 : i64}} {
    }
    task.weights @w_router n 16 k 256 slot 5 rows ["model.layers.{layer}.mlp.gate.weight"]
    task.exchange @logits [2, 16] f32 sentinel sets 2 slot 17 edge @logits_words
    task.buffer @g_mlp [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.post_attention_layernorm.weight", slot = 6 : i64}
    task.stage @router linear tiles 4 sms 4 assign #map reads [@mid[0, 0] 2 x [256], @w_router[d0 * 2, 0] 2 x [1]] writes [@logits[0, d0 * 4] 2 x [4]] config {epilogue = "logits", eps = 9.9999999999999995E-7 : f64, gain = @g_mlp, k = 256 : i64, n = 16 : i64, norm = "rms", unit = 2 : i64} source "moe.router" attributes {depends = [@o_proj], stream = {bytes = 2048 : i64, order = ["mtile", "block"], piece = 2048 : i64, window = 16 : i64}} {
    }
    task.stage @top_k top_k reads [@logits[0, 0] 2 x [16]] writes [] config {experts = 16 : i64, k = 4 : i64, renormalize = true, score = "softmax"} source "moe.top_k" attributes {depends = [@router]} {
    }
    task.weights @w_up n 256 k 256 slot 7 gate_up ["model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight", "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"] {experts = 16 : i64}
    task.exchange @act [8, 128] bf16 sentinel sets 2 slot 18 edge @act_words
    task.stage @expert_up expert_up tiles 4 sms 4 assign #map reads [@w_up[d0 * 32, 0] 32 x [1]] writes [@act[0, d0 * 32] 8 x [32]] config {activation = "silu", experts = 16 : i64, k = 256 : i64, n = 256 : i64, shares_input = @router, top_k = 4 : i64, unit = 32 : i64} source "moe.expert_gate_up" attributes {stream = {bytes = 32768 : i64, order = ["expert", "mtile", "block"], piece = 8192 : i64, window = 6 : i64}} {
    }
    task.weights @w_down n 256 k 128 slot 8 rows ["model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"] {experts = 16 : i64}
    task.stage @expert_down expert_down tiles 4 sms 4 assign #map reads [@act[0, 0] 8 x [128], @w_down[d0 * 32, 0] 32 x [1], @mid[0, d0 * 64] 2 x [64]] writes [@resid[0, d0 * 64] 2 x [64]] config {epilogue = "combine_residual", experts = 16 : i64, k = 128 : i64, n = 256 : i64, top_k = 4 : i64, unit = 32 : i64} source "moe.expert_down" attributes {depends = [@o_proj, @expert_up], kept = @o_proj, stream = {bytes = 16384 : i64, order = ["expert", "mtile", "block"], piece = 4096 : i64, window = 12 : i64}} {
    }
    task.weights @w_head n 512 k 256 slot 9 rows ["lm_head.weight"]
    task.buffer @out [2, 512] f32 global written {slot = 10 : i64}
    task.buffer @g_final [1, 256] bf16 global immutable {checkpoint = "model.norm.weight", slot = 11 : i64}
    task.stage @head linear tiles 4 sms 4 assign #map reads [@resid[0, 0] 2 x [256], @w_head[d0 * 64, 0] 64 x [1]] writes [@out[0, d0 * 128] 2 x [128]] config {epilogue = "head", eps = 9.9999999999999995E-7 : f64, gain = @g_final, k = 256 : i64, n = 512 : i64, norm = "rms", unit = 64 : i64} source "moe.lm_head" attributes {depends = [@expert_down], stream = {bytes = 65536 : i64, order = ["mtile", "block"], piece = 8192 : i64, window = 8 : i64}} {
    }
  }
}

