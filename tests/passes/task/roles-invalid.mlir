// What the lowering refuses: a kernel that is not planned, or lowered already, and writes it has no call for.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(task.kernel(task-lower-to-roles))'

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected exchanges in place of values: run task-materialize-exchanges first}}
  task.buffer @h [1, 8] bf16 global value
}

// -----

// expected-error @+1 {{expected planned memory: run task-plan-memory first}}
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
}

// -----

// expected-error @+1 {{expected stages without role regions, but it is at role level}}
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 smem 0 {
  task.buffer @logits [1, 2] f32 global immutable {slot = 0}
  task.stage @s top_k reads [@logits[0, 0] 1 x [2]] writes [] config {experts = 2, k = 1, score = "softmax", renormalize = true} {
    task.role poller {
    }
  }
}

// -----

// What a linear stage writes must be words or an output.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 smem 1024 {
  task.buffer @x [1, 128] bf16 global immutable {slot = 0}
  task.buffer @y [1, 128] bf16 global immutable {slot = 1}
  task.weights @w n 128 k 128 slot 2 rows ["w"]
  task.buffer @xs [1, 128] bf16 smem scratch
  task.buffer @part [128, 8] f32 smem scratch
  task.edge 0 @w_full bytes producer -> consumer {slots = 2}
  task.edge 1 @w_free credit consumer -> producer {slots = 2, arrivals = 8}
  task.ring @ring 2 x 4096 full @w_full free @w_free
  task.edge 2 @p_full mbarrier consumer -> epilogue {arrivals = 8}
  task.edge 3 @p_free credit epilogue -> consumer
  // expected-error @+1 {{expected a linear stage to write an exchange or, without a residual, a written buffer, but it writes @y}}
  task.stage @s linear tiles 4 sms 4 reads [@x[0, 0] 1 x [128], @w[d0 * 16, 0] 16 x [1]]
      writes [@y[0, d0 * 32] 1 x [32]] config {n = 128, k = 128, unit = 16, epilogue = "store"} {
  }
}

// -----

// Partial results lie by merge part: an exchange of another shape would be read past its end.
task.kernel @k "layer" target "sm_90a" sms 4 rows 1 smem 65536 {
  task.buffer @kv [1, 8192] bf16 global pages {slot = 0}
  task.exchange @qkv [1, 192] bf16 sentinel sets 3 slot 1 edge @qkv_words
  task.exchange @partials [32, 66] f32 epoch sets 1 slot 2 edge @partials_words
  task.buffer @qkv_in [1, 192] bf16 smem scratch
  task.buffer @q_rows [8, 64] bf16 smem scratch {row_bytes = 160}
  task.buffer @tail [1, 2048] bf16 smem scratch
  task.buffer @apart [16, 68] f32 smem scratch
  task.buffer @mparts [32, 24] f32 smem scratch
  task.edge 0 @qkv_words words epilogue -> poller
  task.edge 1 @partials_words words consumer -> poller
  // expected-error @+1 {{expected @partials to hold 64 records (row, query head, merge part, split) of 34 values for 2 merge parts of an even number of channels, but got 32 x 66}}
  task.stage @attention attention reads [@qkv[0, 0] 1 x [192] previous, @kv[0, 0] 1 x [8192]]
      writes [@partials[0, 0] 32 x [66], @kv[0, 0] 1 x [8192]]
      config {q_heads = 1, kv_heads = 1, head_dim = 64, scale = 0.125, qk_norm = "none", merge_parts = 2} {
  }
}
