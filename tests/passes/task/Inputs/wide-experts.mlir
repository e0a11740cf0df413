// The layer of layer.mlir with 16 rows and experts as wide as 2048: their activations take more than the rows.
task.kernel @layer "layer" target "sm_90a" sms 8 rows 16 {
  task.buffer @g_mlp [1, 256] bf16 global immutable {slot = 0}
  task.buffer @g_attn [1, 256] bf16 global immutable {slot = 1}
  task.buffer @g_q [1, 64] bf16 global immutable {slot = 2}
  task.buffer @g_k [1, 64] bf16 global immutable {slot = 3}
  task.buffer @inv_freq [1, 32] f32 global immutable {slot = 4}
  task.buffer @kv [2, 8192] bf16 global pages {slot = 5}
  task.weights @w_o n 256 k 512 slot 6 rows ["o"]
  task.weights @w_router n 16 k 256 slot 7 rows ["router"]
  task.weights @w_up n 4096 k 256 slot 8 gate_up ["gate", "up"] {experts = 16}
  task.weights @w_down n 256 k 2048 slot 9 rows ["down"] {experts = 16}
  task.weights @w_qkv n 768 k 256 slot 10 rows ["q", "k", "v"] {layer_offset = 1}
  task.buffer @resid [16, 256] bf16 global value {crossing}
  task.buffer @qkv [16, 768] bf16 global value {crossing}
  task.buffer @partials [4096, 66] f32 global value
  task.buffer @attn [16, 512] bf16 global value
  task.buffer @mid [16, 256] bf16 global value
  task.buffer @logits [16, 16] f32 global value
  task.buffer @act [64, 2048] bf16 global value

  task.stage @attention attention reads [@qkv[0, 0] 16 x [768] previous, @kv[0, 0] 2 x [8192]]
      writes [@partials[0, 0] 4096 x [66], @kv[0, 0] 2 x [8192]]
      config {q_heads = 8, kv_heads = 2, head_dim = 64, scale = 0.125 : f64, rope_theta = 1.0e+06 : f64, qk_norm = "head",
              eps = 1.0e-06 : f64, q_gain = @g_q, k_gain = @g_k, inv_freq = @inv_freq, max_positions = 4096}
      source "moe.attention" {
  }
  task.stage @merge merge reads [@partials[0, 0] 4096 x [66]] writes [@attn[0, 0] 16 x [512]]
      config {q_heads = 8, head_dim = 64} source "moe.attention" {
  }
  task.stage @o_proj linear tiles 8 sms 8 assign affine_map<(t) -> (t, 0)>
      reads [@attn[0, 0] 16 x [512], @w_o[d0 * 16, 0] 16 x [1], @resid[0, d0 * 32] 16 x [32] previous]
      writes [@mid[0, d0 * 32] 16 x [32]]
      config {n = 256, k = 512, unit = 16, norm = "none", epilogue = "residual"} source "moe.linear" {
  }
  task.stage @router linear tiles 8 sms 8 assign affine_map<(t) -> (t, 0)>
      reads [@mid[0, 0] 16 x [256], @w_router[d0, 0] 1 x [1]]
      writes [@logits[0, d0 * 2] 16 x [2]]
      config {n = 16, k = 256, unit = 1, norm = "rms", eps = 1.0e-06 : f64, gain = @g_mlp, epilogue = "logits"} source "moe.router" {
  }
  task.stage @top_k top_k reads [@logits[0, 0] 16 x [16]] writes []
      config {experts = 16, k = 4, score = "softmax", renormalize = true} source "moe.top_k" {
  }
  task.stage @expert_up expert_up tiles 8 sms 8 assign affine_map<(t) -> (t, 0)>
      reads [@w_up[d0 * 256, 0] 256 x [1]] writes [@act[0, d0 * 256] 64 x [256]]
      config {n = 4096, k = 256, unit = 256, experts = 16, top_k = 4, activation = "silu", shares_input = @router} source "moe.expert_gate_up" {
  }
  task.stage @expert_down expert_down tiles 8 sms 8 assign affine_map<(t) -> (t, 0)>
      reads [@act[0, 0] 64 x [2048], @w_down[d0 * 16, 0] 16 x [4], @mid[0, d0 * 32] 16 x [32]]
      writes [@resid[0, d0 * 32] 16 x [32]]
      config {n = 256, k = 2048, unit = 16, experts = 16, top_k = 4, epilogue = "combine_residual"} source "moe.combine" {
  }
  task.stage @qkv_proj linear tiles 8 sms 8 assign affine_map<(t) -> (t, 0)>
      reads [@resid[0, 0] 16 x [256], @w_qkv[d0 * 48, 0] 48 x [1]]
      writes [@qkv[0, d0 * 96] 16 x [96]]
      config {n = 768, k = 256, unit = 48, norm = "rms", eps = 1.0e-06 : f64, gain = @g_attn, epilogue = "qkv"} source "moe.qkv_proj" {
  }
}
