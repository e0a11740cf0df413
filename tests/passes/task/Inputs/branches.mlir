// Two parallel branches: x -> a, x -> b, (a, b) -> y. The join multiplies a and adds its slice of b.
task.kernel @branches "toy" target "sm_90a" sms 4 rows 2 {
  task.buffer @gain [1, 256] bf16 global immutable {slot = 0}
  task.weights @w_a n 256 k 256 slot 2 rows ["a"]
  task.weights @w_b n 256 k 256 slot 3 rows ["b"]
  task.weights @w_out n 256 k 256 slot 4 rows ["out"]
  task.buffer @x [2, 256] bf16 global value {crossing}
  task.buffer @a [2, 256] bf16 global value
  task.buffer @b [2, 256] bf16 global value
  task.buffer @y [2, 256] bf16 global value {crossing}

  task.stage @branch_a linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@x[0, 0] 2 x [256] previous, @w_a[d0 * 32, 0] 32 x [1]]
      writes [@a[0, d0 * 64] 2 x [64]]
      config {n = 256, k = 256, unit = 32, norm = "rms", eps = 1.0e-06 : f64, gain = @gain, epilogue = "store"} {
  }
  task.stage @branch_b linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@x[0, 0] 2 x [256] previous, @w_b[d0 * 32, 0] 32 x [1]]
      writes [@b[0, d0 * 64] 2 x [64]]
      config {n = 256, k = 256, unit = 32, norm = "rms", eps = 1.0e-06 : f64, gain = @gain, epilogue = "store"} {
  }
  task.stage @join linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@a[0, 0] 2 x [256], @w_out[d0 * 32, 0] 32 x [1], @b[0, d0 * 64] 2 x [64]]
      writes [@y[0, d0 * 64] 2 x [64]]
      config {n = 256, k = 256, unit = 32, norm = "none", epilogue = "residual"} {
  }
}
