// norm -> linear -> linear over 4 SMs, one row: what tests/ir/task/m0.mlir holds at role level.
task.kernel @m0 "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @x [1, 512] bf16 global immutable {slot = 0}
  task.buffer @gain [1, 512] bf16 global immutable {slot = 1}
  task.buffer @out [1, 128] bf16 global written {slot = 5}
  task.weights @w1 n 256 k 512 slot 2 rows ["w1"]
  task.weights @w2 n 128 k 256 slot 3 rows ["w2"]
  task.buffer @h [1, 256] bf16 global value

  task.stage @norm_linear1 linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@x[0, 0] 1 x [512], @w1[d0 * 32, 0] 32 x [1]]
      writes [@h[0, d0 * 64] 1 x [64]]
      config {n = 256, k = 512, unit = 32, norm = "rms", eps = 1.0e-06 : f64, gain = @gain, epilogue = "store"}
      source "moe.linear" {
  }
  task.stage @linear2 linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@h[0, 0] 1 x [256], @w2[d0 * 16, 0] 16 x [1]]
      writes [@out[0, d0 * 32] 1 x [32]]
      config {n = 128, k = 256, unit = 16, norm = "none", epilogue = "store"}
      source "moe.linear" {
  }
}
