// Two launches of one plan: the embedding with the first projection, and a stand-in for a layer.
module attributes {megalith.model = "toy-2"} {
  task.kernel @first "embed" target "sm_90a" sms 4 rows 2 {
    task.buffer @embedding [1000, 256] bf16 global immutable {slot = 0}
    task.buffer @g_attn [1, 256] bf16 global immutable {slot = 1}
    task.weights @w_qkv n 320 k 256 slot 2 rows ["qkv"]
    task.buffer @resid [2, 256] bf16 global value {crossing}
    task.buffer @qkv [2, 320] bf16 global value {crossing}
    task.stage @embed embed tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
        reads [@embedding[0, 0] 1000 x [256]] writes [@resid[0, d0 * 64] 2 x [64]]
        config {hidden = 256, vocab = 1000} {
    }
    // 160 strips in slices of 60: the third SM has 40, the fourth none.
    task.stage @qkv_proj linear tiles 3 sms 3 assign affine_map<(t) -> (t, 0)>
        reads [@resid[0, 0] 2 x [256], @w_qkv[d0 * 60, 0] 60 x [1]]
        writes [@qkv[0, d0 * 120] 2 x [120, 320 - d0 * 120]]
        config {n = 320, k = 256, unit = 60, norm = "rms", eps = 1.0e-06 : f64, gain = @g_attn, epilogue = "qkv"} {
    }
  }
  task.kernel @second "layer" target "sm_90a" sms 4 rows 2 {
    task.weights @w_o n 256 k 320 slot 0 rows ["o"]
    task.weights @w_x n 256 k 256 slot 1 rows ["x"]
    task.buffer @resid [2, 256] bf16 global value {crossing}
    task.buffer @qkv [2, 320] bf16 global value {crossing}
    task.buffer @mid [2, 256] bf16 global value
    task.buffer @wide [2, 9216] f32 global value
    task.weights @w_wide n 9216 k 256 slot 2 rows ["wide"]
    task.stage @o_proj linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
        reads [@qkv[0, 0] 2 x [320] previous, @w_o[d0 * 32, 0] 32 x [3], @resid[0, d0 * 64] 2 x [64] previous]
        writes [@mid[0, d0 * 64] 2 x [64]]
        config {n = 256, k = 320, unit = 32, norm = "none", epilogue = "residual"} {
    }
    task.stage @next linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
        reads [@mid[0, 0] 2 x [256], @w_x[d0 * 32, 0] 32 x [1]]
        writes [@resid[0, d0 * 64] 2 x [64]]
        config {n = 256, k = 256, unit = 32, norm = "none", epilogue = "store"} {
    }
    task.stage @sums linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
        reads [@mid[0, 0] 2 x [256], @w_wide[d0 * 1152, 0] 1152 x [1]]
        writes [@wide[0, d0 * 2304] 2 x [2304]]
        config {n = 9216, k = 256, unit = 1152, norm = "none", epilogue = "logits"} {
    }
  }
}
