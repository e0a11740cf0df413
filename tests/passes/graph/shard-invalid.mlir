// What cannot be cut over two ranks, and why.
// RUN: megalith-opt %s --split-input-file --verify-diagnostics --moe-shard="ranks=2 experts=nk o-proj=k"
// RUN: not megalith-opt %S/small-model.mlir --moe-shard="ranks=3" 2>&1 | FileCheck %s --check-prefix=HEADS
// RUN: not megalith-opt %S/small-model.mlir --moe-shard="ranks=0" 2>&1 | FileCheck %s --check-prefix=RANKS
// RUN: not megalith-opt %S/small-model.mlir --moe-shard="ranks=2 experts=kn" 2>&1 | FileCheck %s --check-prefix=EXPERTS
// RUN: not megalith-opt %S/small-model.mlir --moe-shard="ranks=2 o-proj=m" 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: not megalith-opt %S/small-model.mlir --moe-shard="ranks=2 sums=fp8" 2>&1 | FileCheck %s --check-prefix=SUMS
// HEADS: expected dimension 0 of @embed_tokens to be a multiple of the ranks, 3, but got 512
// RANKS: moe-shard: expected ranks of 1 to 64 but got 0
// EXPERTS: moe-shard: expected experts of auto, nn, nn-sums or nk but got kn
// OUTPUT: moe-shard: expected o-proj of auto, n, k-ordered or k but got m
// SUMS: moe-shard: expected sums of f32 or bf16 but got fp8

// expected-error @+1 {{expected one moe.step to shard but got 0}}
module {}

// -----

// expected-error @+1 {{expected a module that is not sharded yet but got one for 2 : i64 ranks}}
module attributes {megalith.ranks = 2 : i64} {}

// -----

!kv = !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 64>
moe.weight @table [64, 256] of bf16 from "t"
moe.weight @w [255, 256] of bf16 from "w"
func.func @layer(%s: tensor<1x256xbf16>, %kv: !kv) -> (tensor<1x256xbf16>, !kv) {
  // expected-error @+1 {{expected dimension 0 of @w to be a multiple of the ranks, 2, but got 255}}
  %0 = moe.linear %s weight(@w) : tensor<1x256xbf16> -> tensor<1x255xbf16>
  return %s, %kv : tensor<1x256xbf16>, !kv
}
func.func @embed(%t: tensor<1xi32>) -> tensor<1x256xbf16> {
  %0 = moe.embed %t weight(@table) : tensor<1xi32> -> tensor<1x256xbf16>
  return %0 : tensor<1x256xbf16>
}
func.func @head(%s: tensor<1x256xbf16>) -> tensor<1x64xf32> {
  %0 = moe.lm_head %s weight(@table) : tensor<1x256xbf16> -> tensor<1x64xf32>
  return %0 : tensor<1x64xf32>
}
moe.step @decode embed(@embed) layers(@layer) head(@head)

// -----

!kv = !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 64>
moe.weight @table [64, 256] of bf16 from "t"
moe.weight @q [128, 256] of bf16 from "q"
moe.weight @qn [128] of bf16 from "n"
func.func @layer(%s: tensor<1x256xbf16>, %kv: !kv) -> (tensor<1x256xbf16>, !kv) {
  %q, %k, %v = moe.qkv_proj %s q(@q) k(@q) v(@q) {heads = 2, kv_heads = 2, head_dim = 64} : tensor<1x256xbf16> -> tensor<1x128xbf16>, tensor<1x128xbf16>, tensor<1x128xbf16>
  // expected-error @+1 {{expected a norm per head of q and k, which ranks share out, but got one over the whole row}}
  %q1, %k1 = moe.qk_norm %q, %k rms over row q(@qn) k(@qn) {head_dim = 64, eps = 1.0e-6} : tensor<1x128xbf16>, tensor<1x128xbf16> -> tensor<1x128xbf16>, tensor<1x128xbf16>
  return %s, %kv : tensor<1x256xbf16>, !kv
}
func.func @embed(%t: tensor<1xi32>) -> tensor<1x256xbf16> {
  %0 = moe.embed %t weight(@table) : tensor<1xi32> -> tensor<1x256xbf16>
  return %0 : tensor<1x256xbf16>
}
func.func @head(%s: tensor<1x256xbf16>) -> tensor<1x64xf32> {
  %0 = moe.lm_head %s weight(@table) : tensor<1x256xbf16> -> tensor<1x64xf32>
  return %0 : tensor<1x64xf32>
}
moe.step @decode embed(@embed) layers(@layer) head(@head)

// -----

!kv = !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 64>
moe.weight @table [64, 256] of bf16 from "t"
moe.weight @q [128, 256] of bf16 from "q"
moe.weight @o [256, 128] of bf16 from "o"
moe.weight @b [256] of bf16 from "b"
func.func @layer(%s: tensor<1x256xbf16>, %kv: !kv) -> (tensor<1x256xbf16>, !kv) {
  %q, %k, %v = moe.qkv_proj %s q(@q) k(@q) v(@q) {heads = 2, kv_heads = 2, head_dim = 64} : tensor<1x256xbf16> -> tensor<1x128xbf16>, tensor<1x128xbf16>, tensor<1x128xbf16>
  %o = moe.attention %q, %kv full {heads = 2, scale = 0.125} : tensor<1x128xbf16>, !kv -> tensor<1x128xbf16>
  // expected-error @+1 {{expected no bias behind a matrix that is cut by columns but got one}}
  %a = moe.linear %o weight(@o) bias(@b) : tensor<1x128xbf16> -> tensor<1x256xbf16>
  return %s, %kv : tensor<1x256xbf16>, !kv
}
func.func @embed(%t: tensor<1xi32>) -> tensor<1x256xbf16> {
  %0 = moe.embed %t weight(@table) : tensor<1xi32> -> tensor<1x256xbf16>
  return %0 : tensor<1x256xbf16>
}
func.func @head(%s: tensor<1x256xbf16>) -> tensor<1x64xf32> {
  %0 = moe.lm_head %s weight(@table) : tensor<1x256xbf16> -> tensor<1x64xf32>
  return %0 : tensor<1x64xf32>
}
moe.step @decode embed(@embed) layers(@layer) head(@head)

// -----

!kv = !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 64>
!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
moe.weight @table [64, 256] of bf16 from "t"
moe.weight @router [8, 256] of f32 from "r"
moe.weight @s [8] of f32 from "s"
moe.weight @up [8, 48, 256] of bf16 from "u"
func.func @layer(%s: tensor<1x256xbf16>, %kv: !kv) -> (tensor<1x256xbf16>, !kv) {
  %z = moe.router %s weight(@router) : tensor<1x256xbf16> -> tensor<1x8xf32>
  %ids, %w = moe.top_k %z sigmoid {k = 2} : tensor<1x8xf32> -> tensor<1x2xi32>, tensor<1x2xf32>
  %g, %u = moe.expert_gate_up %s, %ids gate(@up) up(@up) : tensor<1x256xbf16>, tensor<1x2xi32> -> tensor<2x48xbf16>, tensor<2x48xbf16>
  // expected-error @+1 {{expected a rank's channels to be whole blocks of 16 but got 24}}
  %q = moe.quantize %g global(@s) : tensor<2x48xbf16> -> tensor<2x48x!nvfp4>
  return %s, %kv : tensor<1x256xbf16>, !kv
}
func.func @embed(%t: tensor<1xi32>) -> tensor<1x256xbf16> {
  %0 = moe.embed %t weight(@table) : tensor<1xi32> -> tensor<1x256xbf16>
  return %0 : tensor<1x256xbf16>
}
func.func @head(%s: tensor<1x256xbf16>) -> tensor<1x64xf32> {
  %0 = moe.lm_head %s weight(@table) : tensor<1x256xbf16> -> tensor<1x64xf32>
  return %0 : tensor<1x64xf32>
}
moe.step @decode embed(@embed) layers(@layer) head(@head)
