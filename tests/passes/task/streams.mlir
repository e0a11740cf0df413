// The producer's order, the largest piece and the window of every stage; ring slots hold a whole m-tile of the widest.
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-plan-streams))' | FileCheck %s

// CHECK: task.edge 0 @w_full bytes producer -> consumer {slots = 2 : i64}
// CHECK: task.edge 1 @w_free credit consumer -> producer {arrivals = 8 : i64, slots = 2 : i64}
// CHECK: task.ring @ring 2 x 16384 full @w_full free @w_free
// CHECK: task.stage @attention {{.*}}stream = {bytes = 16384 : i64, order = ["tile", "piece"], piece = 16384 : i64, window = 2 : i64}
// CHECK: task.stage @merge
// CHECK-NOT: stream
// CHECK: task.stage @o_proj {{.*}}stream = {bytes = 32768 : i64, order = ["mtile", "block"], piece = 16384 : i64, window = 2 : i64}
// CHECK: task.stage @router {{.*}}stream = {bytes = 1024 : i64, order = ["mtile", "block"], piece = 1024 : i64, window = 32 : i64}
// CHECK: task.stage @expert_up {{.*}}order = ["expert", "mtile", "block"], piece = 8192 : i64, window = 6 : i64}
