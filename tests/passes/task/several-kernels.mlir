// One pass object serves several kernels, one after another without threads: none forgets the one before.
// RUN: megalith-opt %S/Inputs/launches.mlir --mlir-disable-threading --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges))' | FileCheck %s

// CHECK-LABEL: task.kernel @first
// CHECK: task.stage @qkv_proj {{.*}}depends = [@embed]
// CHECK-LABEL: task.kernel @second
// CHECK: task.stage @next {{.*}}depends = [@o_proj]
