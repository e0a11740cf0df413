// A small model cut over two ranks, in every way.
// RUN: megalith-opt %S/small-model.mlir --moe-shard="ranks=2" | FileCheck %s
// RUN: megalith-opt %S/small-model.mlir --moe-shard="ranks=2 experts=nk o-proj=k sums=bf16" | FileCheck %s --check-prefix=FREE
// RUN: megalith-opt %S/small-model.mlir --moe-shard="ranks=2 experts=nn o-proj=n" | FileCheck %s --check-prefix=ROWS
// RUN: megalith-opt %S/small-model.mlir --moe-shard="ranks=2 free-order=true" | FileCheck %s --check-prefix=AUTO
// RUN: megalith-opt %S/small-model.mlir --moe-shard="ranks=1" | FileCheck %s --check-prefix=ONE
// RUN: megalith-opt %S/small-model.mlir --moe-shard="ranks=2 report=true" | FileCheck %s --check-prefix=REPORT
// RUN: megalith-opt %s --moe-shard="ranks=2 experts=nn-sums" --split-input-file | FileCheck %s --check-prefix=SUMS

// Weights along heads, output channels, the experts' inner width, the vocabulary.
// CHECK: module attributes {megalith.ranks = 2 : i64}
// CHECK: @embed_tokens {{.*}} sharded <dim = 0, ranks = 2>
// CHECK: @input_norm [256] of bf16 from "model.layers.{layer}.input_layernorm.weight"{{$}}
// CHECK: @q_proj {{.*}} sharded <dim = 0, ranks = 2>
// CHECK: @q_norm [64] of bf16 from "model.layers.{layer}.self_attn.q_norm.weight"{{$}}
// CHECK: @o_proj {{.*}} sharded <dim = 1, ranks = 2>
// CHECK: @router {{.*}}.gate.weight"{{$}}
// CHECK: @experts_up {{.*}} sharded <dim = 1, ranks = 2>
// CHECK: @experts_down {{.*}} sharded <dim = 1, ranks = 2>
// CHECK: @lm_head {{.*}} sharded <dim = 0, ranks = 2>

// CHECK: func.func @embed
// CHECK: moe.embed
// CHECK-NEXT: moe.all_reduce {{.*}} : tensor<2x256xbf16> -> tensor<2x256xbf16>

// CHECK: func.func @layer(%{{.*}}: tensor<2x256xbf16>, %{{.*}}: !moe.kv<heads = 1,
// CHECK: moe.qkv_proj {{.*}}heads = 4 : i64, kv_heads = 1 : i64{{.*}} -> tensor<2x256xbf16>, tensor<2x64xbf16>, tensor<2x64xbf16>
// CHECK: moe.attention {{.*}}heads = 4 : i64{{.*}} -> tensor<2x256xbf16>
// Sums in the order of one rank: four canonical chunks of eight are this rank's.
// CHECK: moe.linear {{.*}} weight(@o_proj) {partials = 4 : i64} : tensor<2x256xbf16> -> tensor<2x1024xf32>
// CHECK-NEXT: moe.all_reduce {{.*}} {partials = 4 : i64, ranks = 2 : i64} : tensor<2x1024xf32> -> tensor<2x256xbf16>
// CHECK: moe.router {{.*}} -> tensor<2x16xf32>
// CHECK: moe.glu {{.*}} -> tensor<8x64xbf16>
// CHECK-NEXT: moe.all_gather {{.*}} : tensor<8x64xbf16> -> tensor<8x128xbf16>
// CHECK-NEXT: moe.expert_down {{.*}} -> tensor<8x128xbf16>
// Weighted before it is gathered, where no norm stands between.
// CHECK-NEXT: %[[M:.*]] = moe.combine {{.*}} -> tensor<2x128xbf16>
// CHECK-NEXT: moe.all_gather %[[M]] {{.*}} -> tensor<2x256xbf16>
// CHECK: func.func @head
// CHECK: moe.lm_head {{.*}} -> tensor<2x256xf32>
// CHECK-NEXT: moe.all_gather {{.*}} -> tensor<2x512xf32>

// FREE: @experts_down {{.*}} sharded <dim = 2, ranks = 2>
// FREE: moe.linear {{.*}} weight(@o_proj) : tensor<2x256xbf16> -> tensor<2x256xbf16>
// FREE-NEXT: moe.all_reduce {{.*}} {ranks = 2 : i64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
// FREE: moe.glu
// FREE-NEXT: %[[Y:.*]] = moe.expert_down {{.*}} : tensor<8x64xbf16>, tensor<2x4xi32> -> tensor<8x256xbf16>
// FREE-NEXT: moe.all_reduce %[[Y]] {{.*}} : tensor<8x256xbf16> -> tensor<8x256xbf16>

// ROWS: @o_proj {{.*}} sharded <dim = 0, ranks = 2>
// ROWS: moe.attention
// ROWS-NEXT: moe.all_gather {{.*}} : tensor<2x256xbf16> -> tensor<2x512xbf16>
// ROWS-NEXT: moe.linear {{.*}} : tensor<2x512xbf16> -> tensor<2x128xbf16>
// ROWS-NEXT: moe.all_gather {{.*}} : tensor<2x128xbf16> -> tensor<2x256xbf16>

// Fewest stops, where any order will do.
// AUTO: moe.linear {{.*}} weight(@o_proj) : tensor<2x256xbf16> -> tensor<2x256xf32>
// AUTO: moe.expert_down
// AUTO-NEXT: moe.all_reduce

// ONE-NOT: megalith.ranks
// ONE-NOT: moe.all_

// REPORT: 2 ranks: what a rank receives for a row, and stops, per layer
// REPORT-NEXT: @layer, 3 layer(s)
// REPORT-NEXT: experts nk, o_proj k {{ *}}5120 bytes  2 stops
// REPORT: experts nn, o_proj n {{ *}}1536 bytes  4 stops
// REPORT: all_reduce (one shot) linear {{ *}}1024 bytes  1 stop(s)

// A norm of each expert's output: its sums of squares first, then only the weighted sum.
moe.weight @table [64, 256] of bf16 from "t"
moe.weight @q [128, 256] of bf16 from "q"
moe.weight @o [256, 128] of bf16 from "o"
moe.weight @router [8, 256] of f32 from "r"
moe.weight @gate [8, 64, 256] of bf16 from "e" part <dim = 1, index = 0, count = 2>
moe.weight @up [8, 64, 256] of bf16 from "e" part <dim = 1, index = 1, count = 2>
moe.weight @down [8, 256, 64] of bf16 from "d"
moe.weight @norm [256] of bf16 from "n"
moe.weight @gate_proj [128, 256] of bf16 from "g"

// SUMS: @gate {{.*}} part <dim = 1, index = 0, count = 2> sharded <dim = 1, ranks = 2>
// SUMS: @norm {{.*}} sharded <dim = 0, ranks = 2>
func.func @embed(%t: tensor<1xi32>) -> tensor<1x256xbf16> {
  %0 = moe.embed %t weight(@table) : tensor<1xi32> -> tensor<1x256xbf16>
  return %0 : tensor<1x256xbf16>
}
// SUMS: func.func @layer
func.func @layer(%s: tensor<1x256xbf16>, %kv: !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 64>) -> (tensor<1x256xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 64>) {
  %q, %k, %v = moe.qkv_proj %s q(@q) k(@q) v(@q) {heads = 2, kv_heads = 2, head_dim = 64} : tensor<1x256xbf16> -> tensor<1x128xbf16>, tensor<1x128xbf16>, tensor<1x128xbf16>
  %g = moe.linear %s weight(@gate_proj) : tensor<1x256xbf16> -> tensor<1x128xbf16>
  %kv1 = moe.kv_append %kv, %k, %v : !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 64>, tensor<1x128xbf16>, tensor<1x128xbf16>
  // A norm per head and a gate per channel stay on the rank of the head.
  // SUMS: moe.attention {{.*}} -> tensor<1x64xf32>
  // SUMS-NEXT: moe.norm {{.*}} over head
  // SUMS-NEXT: moe.output_gate {{.*}} : tensor<1x64xf32>, tensor<1x64xbf16> -> tensor<1x64xbf16>
  %o = moe.attention %q, %kv1 full {heads = 2, scale = 0.125} : tensor<1x128xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 64> -> tensor<1x128xf32>
  %n = moe.norm %o rms_weightless over head {eps = 1.0e-5, head_dim = 64} : tensor<1x128xf32> -> tensor<1x128xf32>
  %og = moe.output_gate %n, %g : tensor<1x128xf32>, tensor<1x128xbf16> -> tensor<1x128xbf16>
  %a = moe.linear %og weight(@o) : tensor<1x128xbf16> -> tensor<1x256xbf16>
  %z = moe.router %a weight(@router) : tensor<1x256xbf16> -> tensor<1x8xf32>
  %ids, %w = moe.top_k %z sigmoid {k = 2} : tensor<1x8xf32> -> tensor<1x2xi32>, tensor<1x2xf32>
  %gate, %up = moe.expert_gate_up %a, %ids gate(@gate) up(@up) : tensor<1x256xbf16>, tensor<1x2xi32> -> tensor<2x64xbf16>, tensor<2x64xbf16>
  %h = moe.glu %gate, %up silu : tensor<2x64xbf16>, tensor<2x64xbf16> -> tensor<2x64xbf16>
  // SUMS: %[[Y:.*]] = moe.expert_down {{.*}} -> tensor<2x128xbf16>
  // SUMS-NEXT: %[[S:.*]] = moe.square_sums %[[Y]] weight(@norm) gain one_plus {chunk = 32 : i64} : tensor<2x128xbf16> -> tensor<2x4xf32>
  // SUMS-NEXT: %[[A:.*]] = moe.all_gather %[[S]] {{.*}} -> tensor<2x8xf32>
  // SUMS-NEXT: moe.expert_norm %[[Y]] rms_input_scaled sums(%[[A]] : tensor<2x8xf32>) weight(@norm) gain one_plus {eps = {{.*}}, width = 256 : i64}
  // SUMS-NEXT: moe.combine {{.*}} -> tensor<1x128xbf16>
  // SUMS-NEXT: moe.all_gather
  %y = moe.expert_down %h, %ids weight(@down) : tensor<2x64xbf16>, tensor<1x2xi32> -> tensor<2x256xbf16>
  %yn = moe.expert_norm %y rms_input_scaled weight(@norm) gain one_plus {eps = 1.0e-8} : tensor<2x256xbf16> -> tensor<2x256xf32>
  %m = moe.combine %w, %yn : tensor<1x2xf32>, tensor<2x256xf32> -> tensor<1x256xbf16>
  %r = moe.residual %s, %m plain : tensor<1x256xbf16>, tensor<1x256xbf16> -> tensor<1x256xbf16>
  return %r, %kv1 : tensor<1x256xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 64>
}
func.func @head(%s: tensor<1x256xbf16>) -> tensor<1x64xf32> {
  %0 = moe.lm_head %s weight(@table) : tensor<1x256xbf16> -> tensor<1x64xf32>
  return %0 : tensor<1x64xf32>
}
moe.step @decode embed(@embed) layers(@layer) head(@head)
