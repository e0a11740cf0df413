// A cache of e4m3 becomes pages of e4m3, with the scales of its keys and values if it has any.
// RUN: sed -e 's/element = bf16/element = f8E4M3FN/' %S/small-model.mlir | megalith-opt -pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=8})' | FileCheck %s
// RUN: sed -e 's/element = bf16/element = f8E4M3FN/' -e '/moe.weight @input_norm/i moe.weight @ks [1] of f32 from "l.{layer}.k_scale"\nmoe.weight @vs [1] of f32 from "l.{layer}.v_scale"' -e '/moe.kv_append/s/ : / k_scale(@ks) v_scale(@vs) : /' %S/small-model.mlir | megalith-opt -pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=8})' | FileCheck %s --check-prefix=SCALED

// CHECK: task.kernel @layer
// CHECK: task.buffer @kv [2, 8192] f8E4M3FN global pages
// CHECK-NOT: k_scale
// CHECK: task.kernel @last

// SCALED: task.kernel @layer
// SCALED-DAG: task.buffer @k_scale [1, 1] f32 global immutable {checkpoint = "l.{layer}.k_scale"
// SCALED-DAG: task.buffer @v_scale [1, 1] f32 global immutable {checkpoint = "l.{layer}.v_scale"
// SCALED: task.stage @attention attention {{.*}}k_scale = @k_scale{{.*}}v_scale = @v_scale
