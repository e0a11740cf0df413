// What memory planning refuses: a bucket that no layout fits, by model and bytes; an unknown target.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory))'

module attributes {megalith.model = "Mixtral-8x7B"} {
  // expected-error-re @+1 {{rows bucket 16 of Mixtral-8x7B does not fit sm_90a: needs {{[0-9]+}} bytes of shared memory of 231424; compile smaller buckets}}
  task.kernel @layer "layer" target "sm_90a" sms 128 rows 16 {
    task.buffer @x [16, 4096] bf16 global immutable {slot = 0}
    task.weights @w_router n 8 k 4096 slot 1 rows ["router"]
    task.weights @w_up n 28672 k 4096 slot 2 gate_up ["gate", "up"] {experts = 8}
    task.weights @w_down n 4096 k 14336 slot 3 rows ["down"] {experts = 8}
    task.buffer @resid [16, 4096] bf16 global value {crossing}
    task.buffer @logits [16, 8] f32 global value
    task.buffer @act [32, 14336] bf16 global value
    task.stage @router linear tiles 4 sms 4
        reads [@x[0, 0] 16 x [4096], @w_router[d0, 0] 1 x [8]] writes [@logits[0, d0 * 2] 16 x [2]]
        config {n = 8, k = 4096, unit = 1, epilogue = "logits"} {
    }
    task.stage @top_k top_k reads [@logits[0, 0] 16 x [8]] writes [] config {experts = 8, k = 2, score = "softmax", renormalize = true} {
    }
    task.stage @expert_up expert_up tiles 128 sms 128
        reads [@w_up[d0 * 112, 0] 112 x [8]] writes [@act[0, d0 * 112] 32 x [112]]
        config {n = 28672, k = 4096, unit = 112, experts = 8, top_k = 2, activation = "silu", shares_input = @router} {
    }
    task.stage @expert_down expert_down tiles 128 sms 128
        reads [@act[0, 0] 32 x [14336], @w_down[d0 * 16, 0] 16 x [28], @resid[0, d0 * 32] 16 x [32] previous]
        writes [@resid[0, d0 * 32] 16 x [32]]
        config {n = 4096, k = 14336, unit = 16, experts = 8, top_k = 2, epilogue = "combine_residual"} {
    }
  }
}

// -----

// One row that is too wide: no bucket is smaller.
module attributes {megalith.model = "wide"} {
  // expected-error-re @+1 {{rows bucket 1 of wide does not fit sm_90a: needs {{[0-9]+}} bytes of shared memory of 231424; there is no smaller bucket}}
  task.kernel @wide "toy" target "sm_90a" sms 4 rows 1 {
    task.buffer @x [1, 131072] bf16 global immutable {slot = 0}
    task.weights @w n 64 k 131072 slot 1 rows ["w"]
    task.buffer @out [1, 64] bf16 global written {slot = 2}
    task.stage @proj linear tiles 4 sms 4
        reads [@x[0, 0] 1 x [131072], @w[d0 * 8, 0] 8 x [256]] writes [@out[0, d0 * 16] 1 x [16]]
        config {n = 64, k = 131072, unit = 8, epilogue = "store"} {
    }
  }
}

// -----

// expected-error @+1 {{expected a target whose shared memory is known, but got sm_1; give shared-bytes}}
task.kernel @k "toy" target "sm_1" sms 4 rows 1 {
}
