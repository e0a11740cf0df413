// Where launches hand on all that SMs exchange, nothing is polled while weights stream: 64 KB may be under way.
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-plan-streams))' | FileCheck %s

// CHECK: task.stage @s {{.*}}piece = 16384 : i64, window = 4 : i64}
task.kernel @k "stage" target "sm_90a" sms 4 rows 1 {
  task.buffer @x [1, 512] bf16 global value {by_launch}
  task.buffer @y [1, 64] bf16 global value {by_launch}
  task.weights @w n 64 k 512 slot 2 rows ["w"]
  task.stage @s linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@x[0, 0] 1 x [512], @w[d0 * 8, 0] 8 x [1]] writes [@y[0, d0 * 16] 1 x [16]]
      config {n = 64, k = 512, unit = 8, epilogue = "store", norm = "none"} {
  }
}
