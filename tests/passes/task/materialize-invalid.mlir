// What materialization refuses, by name of the stage, the value and the place.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges))'

// A reader needs more than its writer makes.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @x [1, 128] bf16 global immutable {slot = 0}
  task.weights @w1 n 128 k 128 slot 2 rows ["w1"]
  task.weights @w2 n 128 k 256 slot 3 rows ["w2"]
  task.buffer @h [1, 256] bf16 global value
  task.buffer @out [1, 128] bf16 global written {slot = 4}
  task.stage @one linear tiles 4 sms 4
      reads [@x[0, 0] 1 x [128], @w1[d0 * 16, 0] 16 x [1]] writes [@h[0, d0 * 32] 1 x [32]]
      config {n = 128, k = 128, unit = 16, epilogue = "store"} {
  }
  // expected-error @+1 {{reads row 0, column 128 of @h in tile 0, but no stage of this launch writes it}}
  task.stage @two linear tiles 4 sms 4
      reads [@h[0, 0] 1 x [256], @w2[d0 * 16, 0] 16 x [1]] writes [@out[0, d0 * 32] 1 x [32]]
      config {n = 128, k = 256, unit = 16, epilogue = "store"} {
  }
}

// -----

// Two tiles write the same element.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @x [1, 128] bf16 global immutable {slot = 0}
  task.weights @w1 n 128 k 128 slot 2 rows ["w1"]
  task.buffer @h [1, 128] bf16 global value
  // expected-error @+1 {{writes row 0, column 32 of @h in tile 1, which another tile writes too}}
  task.stage @one linear tiles 4 sms 4
      reads [@x[0, 0] 1 x [128], @w1[d0 * 16, 0] 16 x [1]] writes [@h[0, d0 * 32] 1 x [33, 128 - d0 * 32]]
      config {n = 128, k = 128, unit = 16, epilogue = "store"} {
  }
}

// -----

// The slices do not cover the matrix.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @x [1, 128] bf16 global immutable {slot = 0}
  task.weights @w1 n 128 k 128 slot 2 rows ["w1"]
  task.buffer @h [1, 128] bf16 global value
  // expected-error @+1 {{expected slices of unit strips on 3 SMs to cover 64 strips, but unit is 16}}
  task.stage @one linear tiles 3 sms 3
      reads [@x[0, 0] 1 x [128], @w1[d0 * 16, 0] 16 x [1]] writes [@h[0, d0 * 32] 1 x [32]]
      config {n = 128, k = 128, unit = 16, epilogue = "store"} {
  }
}

// -----

// NVFP4 tiles are packed whole.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @x [1, 128] bf16 global immutable {slot = 0}
  task.weights @w1 n 96 k 128 slot 2 rows ["w1"] {nvfp4}
  task.buffer @h [1, 96] bf16 global value
  // expected-error @+1 {{expected slices of whole tiles of 8 strips, since @w1 is NVFP4, but unit is 12}}
  task.stage @one linear tiles 4 sms 4
      reads [@x[0, 0] 1 x [128], @w1[d0 * 12, 0] 12 x [1]] writes [@h[0, d0 * 24] 1 x [24]]
      config {n = 96, k = 128, unit = 12, epilogue = "store"} {
  }
}

// -----

// A stage without the numbers of its kind.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @x [1, 128] bf16 global value {crossing}
  // expected-error @+1 {{expected config to hold 'head_dim'}}
  task.stage @merge merge reads [@x[0, 0] 1 x [128] previous] writes [] config {q_heads = 2} {
  }
}

// -----

// A key of the wrong type is not taken for an absent one.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @logits [1, 16] f32 global value {crossing}
  // expected-error @+1 {{expected config key 'renormalize' to be true or false, but got 1 : i64}}
  task.stage @top_k top_k reads [@logits[0, 0] 1 x [16] previous] writes []
      config {experts = 16, k = 1, score = "softmax", renormalize = 1} {
  }
}

// -----

// A choice that no device function has.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @logits [1, 16] f32 global value {crossing}
  // expected-error @+1 {{expected config key 'score' to be one of softmax softmax_selected sigmoid, but got "entmax"}}
  task.stage @top_k top_k reads [@logits[0, 0] 1 x [16] previous] writes []
      config {experts = 16, k = 1, score = "entmax", renormalize = true} {
  }
}

// -----

// A key that nobody would read.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @partials [32, 66] f32 global value {crossing}
  // expected-error @+1 {{config key 'window' means nothing to a merge stage}}
  task.stage @merge merge reads [@partials[0, 0] 32 x [66] previous] writes []
      config {q_heads = 1, head_dim = 64, window = 128} {
  }
}

// -----

// A norm without its epsilon.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @x [1, 128] bf16 global immutable {slot = 0}
  task.buffer @out [1, 128] bf16 global written {slot = 1}
  task.weights @w n 128 k 128 slot 2 rows ["w"]
  // expected-error @+1 {{expected config to hold 'eps', since the stage norms}}
  task.stage @s linear tiles 4 sms 4 reads [@x[0, 0] 1 x [128], @w[d0 * 16, 0] 16 x [1]]
      writes [@out[0, d0 * 32] 1 x [32]] config {n = 128, k = 128, unit = 16, epilogue = "store", norm = "rms"} {
  }
}
