// Words where a launch writes every one, epochs where the step decides or a set is too large to re-arm;
// mbarriers between roles of one SM; each kernel re-arms the words of all.
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges),task-select-protocol)' | FileCheck %s
// RUN: megalith-opt %S/Inputs/launches.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges),task-select-protocol)' | FileCheck %s --check-prefix=PLAN

// CHECK: task.exchange @resid [2, 256] bf16 sentinel sets 3
// CHECK: task.exchange @partials [512, 66] f32 epoch sets 1
// CHECK: task.exchange @logits [2, 16] f32 sentinel sets 2
// CHECK: task.edge [[#]] @p_full mbarrier consumer -> epilogue {arrivals = 8 : i64, slots = 2 : i64{{[,}]}}
// CHECK: task.edge [[#]] @p_free credit epilogue -> consumer {slots = 2 : i64{{[,}]}}
// CHECK: task.edge [[#]] @routed mbarrier consumer -> producer, poller, epilogue {arrivals = 8 : i64{{[,}]}}
// CHECK-NOT: routed_free

// The first kernel never touches @mid, but re-arms it for the second; not @wide, whose epochs never repeat.
// PLAN-LABEL: task.kernel @first
// PLAN: task.exchange @mid [2, 256] bf16 sentinel sets 2 slot 5 edge @mid_words
// PLAN: task.edge [[#]] @mid_words words
// PLAN-NOT: @wide
// PLAN-LABEL: task.kernel @second
// PLAN: task.exchange @wide [2, 9216] f32 epoch sets 1
