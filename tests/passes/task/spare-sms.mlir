// A kernel with more SMs than its slices need is as correct as one without: the waits that every SM owes
// (routing, attention's last use of shared bytes) stand in stages that every SM runs.
// RUN: sed 's/sms 8 rows 2/sms 11 rows 2/' %S/Inputs/layer.mlir > %t
// RUN: megalith-opt %t --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s
// RUN: megalith-opt %t --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory{shared-bytes=85000},task-lower-to-roles),task-verify)' | FileCheck %s

// CHECK: task.kernel @layer "layer" target "sm_90a" sms 11 rows 2
// The merge tiles go round all SMs; the last ones have one fewer.
// CHECK: task.for "piece" in [(-d0 + 26) floordiv 11] iterate "MergeTiles<attention>"
// CHECK: task.stage @o_proj linear tiles 8 sms 8
