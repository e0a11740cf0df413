// Barriers, then buffers, then the ring with what is left; when that is too little, attention's buffers
// and those of the dense phase share bytes, ordered by two edges.
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory))' | FileCheck %s
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory{shared-bytes=85000}))' | FileCheck %s --check-prefix=TIGHT

// CHECK: task.kernel @layer "layer" target "sm_90a" sms 8 rows 2 smem 216320
// CHECK: task.edge [[#]] @w_full bytes producer -> consumer {offset = 0 : i64, slots = 9 : i64}
// CHECK: task.ring @ring 9 x 16384 {{.*}}offset = 68864
// CHECK-NOT: attention_done
// CHECK: task.buffer @qkv_in [2, 384] bf16 smem scratch {guard = @qkv_full, offset = 384 : i64, slots = 2 : i64, type = "SlottedRows<$offset, $rows, 768, $slots>"}
// CHECK: task.buffer @q_rows [8, 64] bf16 smem scratch {offset = 3456 : i64, row_bytes = 160 : i64
// CHECK: task.buffer @xs [2, 512] bf16 smem scratch {offset = [[#]] : i64, row_bytes = 1056 : i64
// CHECK: task.buffer @o_proj_kept [2, 32] bf16
// CHECK: task.buffer @act_rows [2, 128] bf16 smem scratch {guard = @act_full, {{.*}}row_bytes = 288 : i64, slots = 8 : i64

// TIGHT: task.edge [[#]] @act_full mbarrier poller -> consumer {offset = [[#]] : i64{{[,}]}}
// TIGHT: task.edge [[#]] @attention_done mbarrier consumer -> poller {arrivals = 8 : i64, offset = [[#]] : i64{{[,}]}}
// TIGHT: task.edge [[#]] @merge_done mbarrier epilogue -> poller, consumer
// TIGHT: task.buffer @qkv_in {{.*}}alias = "attention", guard = @qkv_full, offset = [[#AT:]] : i64
// TIGHT: task.buffer @xs {{.*}}alias = "dense", offset = [[#AT]] : i64
