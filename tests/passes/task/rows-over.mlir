// When nothing else fits, experts' activations come to the bytes where activation rows have been, behind an edge
// from the consumers (docs/kernel-contract.md section 14); without it the proof refuses them.
// RUN: megalith-opt %S/Inputs/wide-experts.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory{shared-bytes=126000},task-lower-to-roles),task-verify)' | FileCheck %s
// RUN: megalith-opt %S/Inputs/wide-experts.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory{shared-bytes=126000},task-lower-to-roles))' | sed -e '/task.wait @rows_over/d; /task.signal @rows_over/d' | not megalith-opt --task-verify 2>&1 | FileCheck %s --check-prefix=RACE
// RUN: not megalith-opt %S/Inputs/wide-experts.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory{shared-bytes=120000}))' 2>&1 | FileCheck %s --check-prefix=LESS

// CHECK: task.edge [[#]] @rows_over mbarrier consumer -> poller {arrivals = 8
// CHECK: task.buffer @xs [16, 512] bf16 smem scratch {alias = "dense", offset = [[#AT:]] : i64
// CHECK: task.buffer @act_rows [16, 2048] bf16 smem scratch {alias = "dense", guard = @act_full, offset = [[#AT]] : i64
// CHECK: task.stage @expert_down
// CHECK: task.role poller
// CHECK-NEXT: task.wait @rows_over
// CHECK-NEXT: task.for "entry" in @active
// CHECK: task.role consumer
// CHECK-NEXT: task.signal @rows_over
// CHECK-NEXT: task.for "entry" in @active

// RACE: the write of @act_rows {{.*}} is not ordered after the write of it by the poller of @expert_down

// LESS: rows bucket 16 of kernel @layer does not fit sm_90a: needs 122624 bytes of shared memory of
