// One GPU's kernels become those of one of two ranks: half of every matrix but the router's, half of
// the heads; what all ranks read is stored to both, and they tell each other when they may.
// RUN: megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=2" | FileCheck %s
// RUN: megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=2" --task-verify -o /dev/null
// RUN: megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=8" --task-verify | FileCheck %s --check-prefix=EIGHT
// RUN: not megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=3" 2>&1 | FileCheck %s --check-prefix=THREE
// RUN: megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=2 experts=nn" | FileCheck %s
// RUN: not megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=2 experts=nk" 2>&1 | FileCheck %s --check-prefix=PARTS
// RUN: not megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=2 experts=nn-sums" 2>&1 | FileCheck %s --check-prefix=SUMS
// RUN: not megalith-opt %S/Inputs/model.mlir --megalith-pipeline="sms=4 ranks=2 o-proj=k" 2>&1 | FileCheck %s --check-prefix=HEADS

// CHECK-LABEL: task.kernel @embed {{.*}}attributes {ranks = 2 : i64
// CHECK:       task.exchange @resid [2, 256] bf16 sentinel sets 3 {{.*}}{peers
// CHECK:       task.exchange @armed [1, 8] i32 number sets 1 {{.*}}{peers
// CHECK:       task.compute "publish_embedding<embed, resid_words>" {{.*}}writes [@resid[0, d0 * 32] 2 x [32] own]
// CHECK:       task.weights @w_qkv n 384 {{.*}}rank_rows = array<i64: 256, 64, 64>
// CHECK:       task.exchange @qkv [2, 384] bf16 sentinel sets 3 {{.*}}rank_parts = array<i64: 256, 1, 64, 1, 64, 1>

// CHECK-LABEL: task.kernel @layer
// CHECK:       task.exchange @attn [2, 512] bf16 sentinel sets 2 {{.*}}{peers
// CHECK:       task.stage @attention attention {{.*}}base = "Attention<Config, 2, 4, 1, 64,
// CHECK:       task.role poller
// CHECK:       task.rearm @act
// CHECK-NEXT:  task.compute "tell_armed<armed_words>" [] reads [] writes [@armed[0, d0] 1 x [1] own]
// CHECK-NEXT:  task.launch_dependents
// CHECK:       "merge_splits<attention, attn_words>" {{.*}}writes [@attn[{{.*}}] 1 x [64] own]
// CHECK:       task.weights @w_o n 128 k 512 {{.*}}rank_rows = array<i64: 128>
// CHECK:       task.poll "fetch_slice<{{.*}}reads [@resid[0, d0 * 32] 2 x [32] previous own]
// CHECK:       task.weights @w_router n 16 k 256
// CHECK-NOT:   rank_rows
// CHECK:       task.weights @w_up n 128 k 256 {{.*}}rank_rows = array<i64: 64, 64>
// CHECK:       "epilogue_glu<expert_up, act_words>" {{.*}}table @expert_id own]
// CHECK:       task.stage @launch_end
// CHECK:       task.for "peer" in 2
// CHECK-NEXT:  task.poll "await_armed<armed_words>" ["peer"] waits @armed_words reads [@armed[0, d1 * 4 + d0] 1 x [1]] writes []

// CHECK-LABEL: task.kernel @last
// CHECK:       task.buffer @out [2, 256] f32 global written {rank_parts = array<i64: 256, 1>

// Four ranks have the same KV head; the chunks of attention stay those of all eight query heads.
// EIGHT: rank_parts = array<i64: 64, 1, 64, 4, 64, 4>
// EIGHT: "Attention<Config, 2, 1, 1, 64, 64, {{.*}}g_q, g_k, 4>"

// THREE: has 8 query heads and 2 KV heads, which 3 ranks cannot divide; expected a number of ranks that divides the query heads
// PARTS: adds outputs to the residual where it makes them, for which ranks that divide K have no form yet; expected experts (--tp-experts) nn or auto
// SUMS: has outputs that are not normed one by one, so there are no sums of squares to exchange; expected experts (--tp-experts) nn or auto
// HEADS: adds its outputs to the residual where it makes them, for which ranks that divide K have no form yet; expected o-proj (--tp-o-proj) n or auto
