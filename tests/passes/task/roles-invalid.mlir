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
  task.stage @s top_k reads [@logits[0, 0] 1 x [2]] writes [] config {experts = 2, k = 1} {
    task.role poller {
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 smem 1024 {
  task.buffer @logits [1, 16] f32 global immutable {slot = 0}
  task.buffer @logits_rows [1, 16] f32 smem scratch
  task.buffer @routing [1, 16] i32 smem scratch
  // expected-error @+1 {{expected score 'softmax', 'softmax_selected' or 'sigmoid', but got 'entmax'}}
  task.stage @top_k top_k reads [@logits[0, 0] 1 x [16]] writes [] config {experts = 16, k = 1, score = "entmax"} {
  }
}
