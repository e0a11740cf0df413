// Two parallel branches stay two chains of values: only the stage that joins them reads both.
// RUN: megalith-opt %s -pass-pipeline='builtin.module(moe-convert-to-task{sms=4},task.kernel(task-choose-tiles,task-assign-sms))' | FileCheck %s

// CHECK: task.kernel @branches "toy"
// CHECK: task.stage @wa linear {{.*}}reads [@x[0, 0] 1 x [128], @w_wa[d0 * 8, 0] 8 x [1]] writes [@y_wa
// CHECK-SAME: norm = "rms"
// The second branch starts from the same normed rows, which its SM holds already.
// CHECK: task.stage @wb linear {{.*}}reads [@w_wb[d0 * 4, 0] 4 x [1]] writes [@y_wb{{.*}}shares_input = @wa
// CHECK: task.stage @wc linear {{.*}}reads [@y_wa{{.*}}, @w_wc{{.*}}] writes [@y_wc
// CHECK: task.stage @wd linear {{.*}}reads [@y_wb{{.*}}, @w_wd{{.*}}, @y_wc[0, d0 * 32] 1 x [32]] writes [@{{resid|mid}}
// CHECK: task.stage @we linear {{.*}} writes [@out

moe.weight @wa [64, 128] of bf16 from "a"
moe.weight @wb [32, 128] of bf16 from "b"
moe.weight @wc [128, 64] of bf16 from "c"
moe.weight @wd [128, 32] of bf16 from "d"
moe.weight @we [64, 128] of bf16 from "e"
moe.weight @gain [128] of bf16 from "g"
func.func @branches(%x: tensor<1x128xbf16>) -> tensor<1x64xbf16> attributes {megalith.launch = "toy"} {
  %n = moe.norm %x rms weight(@gain) {eps = 1.0e-6} : tensor<1x128xbf16> -> tensor<1x128xbf16>
  %a = moe.linear %n weight(@wa) : tensor<1x128xbf16> -> tensor<1x64xbf16>
  %b = moe.linear %n weight(@wb) : tensor<1x128xbf16> -> tensor<1x32xbf16>
  %c = moe.linear %a weight(@wc) : tensor<1x64xbf16> -> tensor<1x128xbf16>
  %d = moe.linear %b weight(@wd) : tensor<1x32xbf16> -> tensor<1x128xbf16>
  %s = moe.residual %c, %d plain : tensor<1x128xbf16>, tensor<1x128xbf16> -> tensor<1x128xbf16>
  %o = moe.linear %s weight(@we) : tensor<1x128xbf16> -> tensor<1x64xbf16>
  return %o : tensor<1x64xbf16>
}
