// Values of the layer kernel become exchanges: three sets where the next launch reads, else two; the
// residual's slice is polled by the epilogue itself, whole rows by the poller; the slice of @mid that
// the same SM's o_proj wrote stays in shared memory.
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges))' | FileCheck %s

// CHECK-NOT: value
// CHECK: task.exchange @resid [2, 256] bf16 sentinel sets 3 slot 11 edge @resid_words
// CHECK: task.exchange @partials [512, 66] f32 sentinel sets 2 slot 13 edge @partials_words
// CHECK: task.edge 0 @resid_words words epilogue -> consumer, epilogue
// CHECK: task.edge 4 @mid_words words epilogue -> consumer{{$| \{why}}

// What attention and merge wait for comes from the last launch, or from attention.
// CHECK: task.stage @attention attention
// CHECK-NOT: depends
// CHECK: task.stage @merge {{.*}}depends = [@attention]
// CHECK: task.stage @expert_down {{.*}}depends = [@o_proj, @expert_up], kept = @o_proj
// CHECK: task.stage @qkv_proj {{.*}}depends = [@expert_down]
