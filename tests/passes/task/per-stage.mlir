// A launch a stage: each stage's kernel once, values handed on by the end of a launch, routing and rows
// that stages shared done again, layers of the launches listed; half of an SM's memory, so that the next
// launch starts early; the whole is proved.
// RUN: megalith-opt %S/Inputs/model.mlir --pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=8},task.kernel(task-choose-tiles,task-assign-sms),task-cut-stages)' | FileCheck %s
// RUN: megalith-opt %S/Inputs/model.mlir --pass-pipeline='builtin.module(megalith-pipeline{sms=8 launch=per-stage},task-verify)' | FileCheck %s --check-prefix=ROLES
// RUN: megalith-opt %S/Inputs/model.mlir --pass-pipeline='builtin.module(megalith-pipeline{sms=11 launch=per-stage},task-verify)' | FileCheck %s --check-prefix=ROLES
// RUN: not megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges),task-cut-stages)' 2>&1 | FileCheck %s --check-prefix=LATE

// CHECK: megalith.launch_layers = array<i64: 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2>
// CHECK-SAME: megalith.launches = [@embed, @qkv_proj, @attention, @merge, @o_proj, @router, @expert_up, @expert_down, @qkv_proj, @attention
// CHECK-SAME: @expert_down, @head]

// CHECK-LABEL: task.kernel @embed "stage"
// CHECK-NEXT: @embedding
// CHECK-NEXT: task.buffer @resid [2, 256] bf16 global value {by_launch}
// CHECK-NEXT: task.stage @embed

// CHECK-LABEL: task.kernel @qkv_proj "stage"
// CHECK-NOT: layer_offset
// CHECK: task.stage @qkv_proj

// CHECK-LABEL: task.kernel @attention "stage"
// CHECK: task.stage @attention attention reads [@qkv[0, 0] 2 x [768], @kv
// CHECK-LABEL: task.kernel @merge "stage"
// CHECK-LABEL: task.kernel @o_proj "stage"
// CHECK-NOT: previous
// CHECK-LABEL: task.kernel @router "stage"

// The rows that the router had normed in shared memory, and its logits.
// CHECK-LABEL: task.kernel @expert_up "stage"
// CHECK: task.stage @top_k
// CHECK: task.stage @expert_up {{.*}} reads [@mid[0, 0] 2 x [256], @w_up
// CHECK-SAME: gain = @{{g_mlp|g_mlp_norm}}
// CHECK-SAME: norm = "rms"

// CHECK-LABEL: task.kernel @expert_down "stage"
// CHECK: task.stage @top_k
// CHECK: task.stage @expert_down
// CHECK-LABEL: task.kernel @head "stage"
// CHECK-NOT: task.kernel

// ROLES-LABEL: task.kernel @merge "stage"{{.*}}residents = 2
// ROLES: task.exchange @partials [512, 66] f32 triple sets 1
// ROLES: task.exchange @attn [2, 512] bf16 plain sets 1
// ROLES: task.edge [[#]] @partials_words launch epilogue -> poller
// ROLES-NOT: task.rearm
// The next launch may start as soon as the one before is over.
// ROLES: task.role poller
// ROLES-NEXT: task.launch_wait
// ROLES-NEXT: task.launch_dependents
// Weights do not wait for it.
// ROLES-LABEL: task.kernel @o_proj
// ROLES: task.role producer
// ROLES-NOT: task.launch_wait
// ROLES: task.role

// LATE: expected values, not exchanges: stages are cut apart before task-materialize-exchanges
