// Passes write down why they decided, from the numbers that they decided by: other numbers, other reasons.
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-choose-tiles,task-assign-sms,task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory))' | FileCheck %s --check-prefixes=CHECK,ALL
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-choose-tiles,task-assign-sms,task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory{shared-bytes=90000}))' | FileCheck %s --check-prefixes=TIGHT,ALL

// CHECK: task.kernel @layer {{.*}}because = "attention and the dense phase apart: leaves the ring 147456 bytes, 98304 are wanted", by = "task-plan-memory", chose = "attention and the dense phase apart"
// TIGHT: task.kernel @layer {{.*}}because = "attention and the dense phase apart: needs {{[0-9]+}} of 88976 bytes; {{.*}}", by = "task-plan-memory", chose = "{{single slots|attention and the dense phase share}}
// ALL: task.exchange @partials {{.*}}depends on its sequences, so none can be re-armed; {{.*}} chose = "epoch", what = "words"
// ALL-SAME: because = "a word of another launch never matches: no set is emptied", by = "task-select-protocol", chose = "1", what = "sets"
// ALL: task.edge {{.*}} @attn_words words epilogue -> consumer {{.*}}because = "@o_proj read whole rows, once: each consumer warp polls the part that it multiplies"
// CHECK: task.ring @ring {{.*}}because = "of 231424 bytes buffers take
// TIGHT: task.ring @ring {{.*}}because = "of 88976 bytes buffers take
// ALL: task.stage @o_proj {{.*}}because = "128 strips over 8 SMs are at least 16 on one
// ALL: task.stage @expert_down {{.*}}because = "on all 8 SMs the tile reads just what the same SM's tile of @o_proj wrote
