// From a model's graph to proved role regions: what the first half of the pipeline writes, the second
// half reads, at SM counts that divide the slices and that do not.
// RUN: megalith-opt %S/Inputs/model.mlir --pass-pipeline='builtin.module(megalith-pipeline{sms=8},task-verify)' | FileCheck %s
// RUN: megalith-opt %S/Inputs/model.mlir --pass-pipeline='builtin.module(megalith-pipeline{sms=11},task-verify)' | FileCheck %s

// CHECK: megalith.launches
// CHECK: task.kernel @embed{{.*}} "embed" target "sm_90a"
// CHECK: task.compute "publish_embedding<embed, resid_words>"
// CHECK: task.kernel @{{.*}} "layer"
// CHECK: task.compute "combine<expert_down, resid_words, o_proj_kept, down_rows, {{[0-9]+}}>"
// CHECK: task.kernel @{{.*}} "last"
// CHECK: task.compute "epilogue_head<head, out>"
