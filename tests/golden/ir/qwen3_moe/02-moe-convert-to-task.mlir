module attributes {megalith.launches = [@embed, @layer, @layer, @last], megalith.model = "qwen3-moe-small.test"} {
  task.kernel @embed "embed" target "sm_90a" sms 4 rows 2 attributes {why = [{because = "a launch ends behind the projections of the next layer, so that only their words and the residual cross; 1 of 4 launches is between layers of these kinds", by = "moe-cut-launches", chose = "from the embedding to the q, k, v of a layer @layer", what = "launch"}]} {
    task.buffer @embedding [512, 256] bf16 global immutable {checkpoint = "model.embed_tokens.weight", slot = 0 : i64}
    task.buffer @resid [2, 256] bf16 global value {crossing}
    task.stage @embed embed tiles 1 sms 1 reads [@embedding[0, 0] 512 x [256]] writes [@resid[0, 0] 2 x [256]] config {hidden = 256 : i64, vocab = 512 : i64} source "moe.embed" {
    }
    task.weights @w_qkv n 768 k 256 slot 1 rows ["model.layers.{layer}.self_attn.q_proj.weight", "model.layers.{layer}.self_attn.k_proj.weight", "model.layers.{layer}.self_attn.v_proj.weight"] {layer_offset = 1 : i64}
    task.buffer @qkv [2, 768] bf16 global value {crossing}
    task.buffer @g_attn [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.input_layernorm.weight", layer_offset = 1 : i64, slot = 2 : i64}
    task.stage @qkv_proj linear tiles 1 sms 1 reads [@resid[0, 0] 2 x [256], @w_qkv[0, 0] 384 x [1]] writes [@qkv[0, 0] 2 x [768]] config {epilogue = "qkv", eps = 9.9999999999999995E-7 : f64, gain = @g_attn, k = 256 : i64, n = 768 : i64, norm = "rms"} source "moe.qkv_proj" attributes {why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}]} {
    }
  }
  task.kernel @layer "layer" target "sm_90a" sms 4 rows 2 attributes {why = [{because = "a launch ends behind the projections of the next layer, so that only their words and the residual cross; 2 of 4 launches are between layers of these kinds", by = "moe-cut-launches", chose = "from attention of a layer @layer to the q, k, v of a layer @layer", what = "launch"}]} {
    task.buffer @resid [2, 256] bf16 global value {crossing}
    task.buffer @qkv [2, 768] bf16 global value {crossing}
    task.buffer @kv [2, 8192] bf16 global pages {slot = 0 : i64}
    task.buffer @inv_freq [1, 32] f32 global immutable {slot = 1 : i64}
    task.buffer @partials [512, 66] f32 global value
    task.buffer @attn [2, 512] bf16 global value
    task.buffer @g_q [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.q_norm.weight", slot = 2 : i64}
    task.buffer @g_k [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.k_norm.weight", slot = 3 : i64}
    task.stage @attention attention reads [@qkv[0, 0] 2 x [768] previous, @kv[0, 0] 2 x [8192]] writes [@partials[0, 0] 512 x [66], @kv[0, 0] 2 x [8192]] config {eps = 9.9999999999999995E-7 : f64, head_dim = 64 : i64, inv_freq = @inv_freq, k_gain = @g_k, kv_heads = 2 : i64, max_positions = 4096 : i64, merge_parts = 1 : i64, q_gain = @g_q, q_heads = 8 : i64, qk_norm = "head", rope_theta = 1.000000e+06 : f64, scale = 1.250000e-01 : f64} source "moe.attention" attributes {why = [{because = "each tile has its heads' raw words at hand, and each new position one owning tile", by = "moe-convert-to-task", chose = "moe.qk_norm, moe.rope, moe.kv_append", what = "fused"}]} {
    }
    task.stage @merge merge reads [@partials[0, 0] 512 x [66]] writes [@attn[0, 0] 2 x [512]] config {head_dim = 64 : i64, merge_parts = 1 : i64, q_heads = 8 : i64} source "moe.attention" attributes {why = [{because = "2 rows x 8 heads x 4 parts are more than 2 of 4 SMs each: more parts would not spread the reading further", by = "moe-convert-to-task", chose = "1 a query head", what = "parts"}]} {
    }
    task.weights @w_o n 256 k 512 slot 4 rows ["model.layers.{layer}.self_attn.o_proj.weight"]
    task.buffer @mid [2, 256] bf16 global value
    task.stage @o_proj linear tiles 1 sms 1 reads [@attn[0, 0] 2 x [512], @w_o[0, 0] 128 x [1], @resid[0, 0] 2 x [256] previous] writes [@mid[0, 0] 2 x [256]] config {epilogue = "residual", k = 512 : i64, n = 256 : i64, norm = "none"} source "moe.linear" attributes {why = [{because = "only this stage's result is added: its epilogue has the sum in registers", by = "moe-convert-to-task", chose = "moe.residual", what = "fused"}]} {
    }
    task.weights @w_router n 16 k 256 slot 5 rows ["model.layers.{layer}.mlp.gate.weight"]
    task.buffer @logits [2, 16] f32 global value
    task.buffer @g_mlp [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.post_attention_layernorm.weight", slot = 6 : i64}
    task.stage @router linear tiles 1 sms 1 reads [@mid[0, 0] 2 x [256], @w_router[0, 0] 8 x [1]] writes [@logits[0, 0] 2 x [16]] config {epilogue = "logits", eps = 9.9999999999999995E-7 : f64, gain = @g_mlp, k = 256 : i64, n = 16 : i64, norm = "rms"} source "moe.router" attributes {why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}]} {
    }
    task.stage @top_k top_k reads [@logits[0, 0] 2 x [16]] writes [] config {experts = 16 : i64, k = 4 : i64, renormalize = true, score = "softmax"} source "moe.top_k" {
    }
    task.weights @w_up n 256 k 256 slot 7 gate_up ["model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight", "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"] {experts = 16 : i64}
    task.buffer @act [8, 128] bf16 global value
    task.stage @expert_up expert_up tiles 1 sms 1 reads [@w_up[0, 0] 128 x [1]] writes [@act[0, 0] 8 x [128]] config {activation = "silu", experts = 16 : i64, k = 256 : i64, n = 256 : i64, shares_input = @router, top_k = 4 : i64} source "moe.expert_gate_up" attributes {why = [{because = "@router before it left the same rows, normed alike, in shared memory", by = "moe-convert-to-task", chose = "their read", what = "elided, input rows"}, {because = "a strip holds a gate row and its up row: the epilogue has both", by = "moe-convert-to-task", chose = "moe.glu", what = "fused"}]} {
    }
    task.weights @w_down n 256 k 128 slot 8 rows ["model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"] {experts = 16 : i64}
    task.stage @expert_down expert_down tiles 1 sms 1 reads [@act[0, 0] 8 x [128], @w_down[0, 0] 128 x [1], @mid[0, 0] 2 x [256]] writes [@resid[0, 0] 2 x [256]] config {epilogue = "combine_residual", experts = 16 : i64, k = 128 : i64, n = 256 : i64, top_k = 4 : i64} source "moe.expert_down" attributes {why = [{because = "an SM has the slice of all chosen experts, so it can weigh and add them itself", by = "moe-convert-to-task", chose = "moe.combine, moe.residual", what = "fused"}]} {
    }
    task.weights @w_qkv n 768 k 256 slot 9 rows ["model.layers.{layer}.self_attn.q_proj.weight", "model.layers.{layer}.self_attn.k_proj.weight", "model.layers.{layer}.self_attn.v_proj.weight"] {layer_offset = 1 : i64}
    task.buffer @g_attn [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.input_layernorm.weight", layer_offset = 1 : i64, slot = 10 : i64}
    task.stage @qkv_proj linear tiles 1 sms 1 reads [@resid[0, 0] 2 x [256], @w_qkv[0, 0] 384 x [1]] writes [@qkv[0, 0] 2 x [768]] config {epilogue = "qkv", eps = 9.9999999999999995E-7 : f64, gain = @g_attn, k = 256 : i64, n = 768 : i64, norm = "rms"} source "moe.qkv_proj" attributes {why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}]} {
    }
  }
  task.kernel @last "last" target "sm_90a" sms 4 rows 2 attributes {why = [{because = "a launch ends behind the projections of the next layer, so that only their words and the residual cross; 1 of 4 launches is between layers of these kinds", by = "moe-cut-launches", chose = "from attention of a layer @layer to the logits", what = "launch"}]} {
    task.buffer @resid [2, 256] bf16 global value {crossing}
    task.buffer @qkv [2, 768] bf16 global value {crossing}
    task.buffer @kv [2, 8192] bf16 global pages {slot = 0 : i64}
    task.buffer @inv_freq [1, 32] f32 global immutable {slot = 1 : i64}
    task.buffer @partials [512, 66] f32 global value
    task.buffer @attn [2, 512] bf16 global value
    task.buffer @g_q [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.q_norm.weight", slot = 2 : i64}
    task.buffer @g_k [1, 64] bf16 global immutable {checkpoint = "model.layers.{layer}.self_attn.k_norm.weight", slot = 3 : i64}
    task.stage @attention attention reads [@qkv[0, 0] 2 x [768] previous, @kv[0, 0] 2 x [8192]] writes [@partials[0, 0] 512 x [66], @kv[0, 0] 2 x [8192]] config {eps = 9.9999999999999995E-7 : f64, head_dim = 64 : i64, inv_freq = @inv_freq, k_gain = @g_k, kv_heads = 2 : i64, max_positions = 4096 : i64, merge_parts = 1 : i64, q_gain = @g_q, q_heads = 8 : i64, qk_norm = "head", rope_theta = 1.000000e+06 : f64, scale = 1.250000e-01 : f64} source "moe.attention" attributes {why = [{because = "each tile has its heads' raw words at hand, and each new position one owning tile", by = "moe-convert-to-task", chose = "moe.qk_norm, moe.rope, moe.kv_append", what = "fused"}]} {
    }
    task.stage @merge merge reads [@partials[0, 0] 512 x [66]] writes [@attn[0, 0] 2 x [512]] config {head_dim = 64 : i64, merge_parts = 1 : i64, q_heads = 8 : i64} source "moe.attention" attributes {why = [{because = "2 rows x 8 heads x 4 parts are more than 2 of 4 SMs each: more parts would not spread the reading further", by = "moe-convert-to-task", chose = "1 a query head", what = "parts"}]} {
    }
    task.weights @w_o n 256 k 512 slot 4 rows ["model.layers.{layer}.self_attn.o_proj.weight"]
    task.buffer @mid [2, 256] bf16 global value
    task.stage @o_proj linear tiles 1 sms 1 reads [@attn[0, 0] 2 x [512], @w_o[0, 0] 128 x [1], @resid[0, 0] 2 x [256] previous] writes [@mid[0, 0] 2 x [256]] config {epilogue = "residual", k = 512 : i64, n = 256 : i64, norm = "none"} source "moe.linear" attributes {why = [{because = "only this stage's result is added: its epilogue has the sum in registers", by = "moe-convert-to-task", chose = "moe.residual", what = "fused"}]} {
    }
    task.weights @w_router n 16 k 256 slot 5 rows ["model.layers.{layer}.mlp.gate.weight"]
    task.buffer @logits [2, 16] f32 global value
    task.buffer @g_mlp [1, 256] bf16 global immutable {checkpoint = "model.layers.{layer}.post_attention_layernorm.weight", slot = 6 : i64}
    task.stage @router linear tiles 1 sms 1 reads [@mid[0, 0] 2 x [256], @w_router[0, 0] 8 x [1]] writes [@logits[0, 0] 2 x [16]] config {epilogue = "logits", eps = 9.9999999999999995E-7 : f64, gain = @g_mlp, k = 256 : i64, n = 16 : i64, norm = "rms"} source "moe.router" attributes {why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}]} {
    }
    task.stage @top_k top_k reads [@logits[0, 0] 2 x [16]] writes [] config {experts = 16 : i64, k = 4 : i64, renormalize = true, score = "softmax"} source "moe.top_k" {
    }
    task.weights @w_up n 256 k 256 slot 7 gate_up ["model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight", "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"] {experts = 16 : i64}
    task.buffer @act [8, 128] bf16 global value
    task.stage @expert_up expert_up tiles 1 sms 1 reads [@w_up[0, 0] 128 x [1]] writes [@act[0, 0] 8 x [128]] config {activation = "silu", experts = 16 : i64, k = 256 : i64, n = 256 : i64, shares_input = @router, top_k = 4 : i64} source "moe.expert_gate_up" attributes {why = [{because = "@router before it left the same rows, normed alike, in shared memory", by = "moe-convert-to-task", chose = "their read", what = "elided, input rows"}, {because = "a strip holds a gate row and its up row: the epilogue has both", by = "moe-convert-to-task", chose = "moe.glu", what = "fused"}]} {
    }
    task.weights @w_down n 256 k 128 slot 8 rows ["model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"] {experts = 16 : i64}
    task.stage @expert_down expert_down tiles 1 sms 1 reads [@act[0, 0] 8 x [128], @w_down[0, 0] 128 x [1], @mid[0, 0] 2 x [256]] writes [@resid[0, 0] 2 x [256]] config {epilogue = "combine_residual", experts = 16 : i64, k = 128 : i64, n = 256 : i64, top_k = 4 : i64} source "moe.expert_down" attributes {why = [{because = "an SM has the slice of all chosen experts, so it can weigh and add them itself", by = "moe-convert-to-task", chose = "moe.combine, moe.residual", what = "fused"}]} {
    }
    task.weights @w_head n 512 k 256 slot 9 rows ["lm_head.weight"]
    task.buffer @out [2, 512] f32 global written {slot = 10 : i64}
    task.buffer @g_final [1, 256] bf16 global immutable {checkpoint = "model.norm.weight", slot = 11 : i64}
    task.stage @head linear tiles 1 sms 1 reads [@resid[0, 0] 2 x [256], @w_head[0, 0] 256 x [1]] writes [@out[0, 0] 2 x [512]] config {epilogue = "head", eps = 9.9999999999999995E-7 : f64, gain = @g_final, k = 256 : i64, n = 512 : i64, norm = "rms"} source "moe.lm_head" attributes {why = [{because = "every SM reads all 256 values of a row anyway: a norm of its own saves an exchange", by = "moe-convert-to-task", chose = "each SM norms whole rows itself", what = "norm"}]} {
    }
  }
}

