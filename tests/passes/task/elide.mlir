// A second linear stage that wants the very rows of the stage before it takes them from shared memory;
// its read and so its wait are gone. Other rows, or another norm, are polled again.
// RUN: megalith-opt %S/Inputs/branches.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges))' | FileCheck %s
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges))' | FileCheck %s --check-prefix=LAYER

// CHECK: task.stage @branch_a {{.*}} reads [@x[0, 0] 2 x [256] previous, @w_a[d0 * 32, 0] 32 x [1]]
// CHECK: task.stage @branch_b {{.*}} reads [@w_b[d0 * 32, 0] 32 x [1]] {{.*}}shares_input = @branch_a
// CHECK: task.stage @join {{.*}} reads [@a[0, 0] 2 x [256], @w_out[d0 * 32, 0] 32 x [1], @b[0, d0 * 64] 2 x [64]]

// LAYER: task.stage @o_proj {{.*}} reads [@attn[0, 0] 2 x [512]
// LAYER: task.stage @router {{.*}} reads [@mid[0, 0] 2 x [256]
// LAYER: task.stage @qkv_proj {{.*}} reads [@resid[0, 0] 2 x [256]
