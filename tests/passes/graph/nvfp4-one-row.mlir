// NVFP4 experts of one row: few pieces an SM, and who has one unit of the down projection gets two
// halves instead.

// RUN: sed -e '1i !nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>' -e 's/^\(moe.weight @experts_.*\) of bf16/\1 of !nvfp4/' %S/gated-stream.mlir > %t.mlir
// RUN: sed -e 's/<2x/<1x/g; s/<8x128/<4x128/g' %t.mlir | megalith-opt -pass-pipeline='builtin.module(megalith-pipeline{sms=16},task-verify)' | FileCheck %s
// RUN: megalith-opt %t.mlir -pass-pipeline='builtin.module(megalith-pipeline{sms=16},task-verify)' | FileCheck %s --check-prefix=TWO

// CHECK: task.stage @expert_up
// CHECK: task.refill @xs
// CHECK: task.wait @routed
// CHECK: task.compute "gemv_block<expert_up, ring>"

// 32 tiles of four experts on 16 SMs: two an SM, of two experts.
// CHECK: task.stage @expert_down {{.*}}base = "Nvfp4<w_down_nvfp4, 128, 128, 1>", dealt = true
// CHECK-SAME: at most 2 tiles a SM take {{.*}} of two experts: the earlier one's activations need no wait
// CHECK-SAME: chose = "1 tile at a time dealt out over all 16 SMs

// Of two rows there are more.
// TWO: task.stage @expert_down {{.*}}base = "Nvfp4<w_down_nvfp4, 128, 128, 2>", dealt = true
