// Element types that change, quantised activations, and what ranks exchange.
// RUN: megalith-opt %s | megalith-opt | FileCheck %s

!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>

// CHECK: moe.weight @gate [8, 64, 32] of bf16 from "l.{layer}.gate_up" part <dim = 1, index = 0, count = 2>
moe.weight @gate [8, 64, 32] of bf16 from "l.{layer}.gate_up" part <dim = 1, index = 0, count = 2>
// CHECK: moe.weight @up [8, 128, 32] of {{.*}} from "l.{layer}.gate_up" part <dim = 1, index = 1, count = 2> sharded <dim = 1, ranks = 2>
moe.weight @up [8, 128, 32] of !nvfp4 from "l.{layer}.gate_up" part <dim = 1, index = 1, count = 2> sharded <dim = 1, ranks = 2>
moe.weight @down [8, 32, 64] of !nvfp4 from "l.{layer}.down"
moe.weight @scales [8, 2] of f32 from "l.{layer}.gate_up_input_scale"
moe.weight @scale [8] of f32 from "l.{layer}.down_input_scale"
moe.weight @gain [32] of bf16 from "l.{layer}.n"
moe.weight @o [32, 256] of bf16 from "l.{layer}.o" sharded <dim = 1, ranks = 2>
moe.weight @router [8, 32] of f32 from "l.{layer}.r"
moe.weight @table [100, 32] of bf16 from "table" sharded <dim = 0, ranks = 2>
moe.weight @head [100, 32] of bf16 from "head" sharded <dim = 0, ranks = 2>

func.func @types(%x: tensor<2x32xbf16>, %g: tensor<2x32xbf16>) -> tensor<2x32xbf16> {
  // CHECK: moe.cast %{{.*}} : tensor<2x32xbf16> -> tensor<2x32xf32>
  %0 = moe.cast %x : tensor<2x32xbf16> -> tensor<2x32xf32>
  // CHECK: moe.output_gate %{{.*}}, %{{.*}} {round_gate} :
  %1 = moe.output_gate %0, %g {round_gate} : tensor<2x32xf32>, tensor<2x32xbf16> -> tensor<2x32xf32>
  %2 = moe.cast %1 : tensor<2x32xf32> -> tensor<2x32xbf16>
  return %2 : tensor<2x32xbf16>
}

func.func @experts(%x: tensor<2x32xbf16>) -> tensor<2x32xbf16> {
  // CHECK: moe.router %{{.*}} weight(@router) as bf16x2 {multiplier
  %z = moe.router %x weight(@router) as bf16x2 {multiplier = 0.5} : tensor<2x32xbf16> -> tensor<2x8xf32>
  %ids, %w = moe.top_k %z sigmoid {k = 2} : tensor<2x8xf32> -> tensor<2x2xi32>, tensor<2x2xf32>
  // CHECK: moe.quantize %{{.*}} global(@scales) : tensor<2x32xbf16> -> tensor<2x32x!moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>>
  %q = moe.quantize %x global(@scales) : tensor<2x32xbf16> -> tensor<2x32x!nvfp4>
  // CHECK: moe.expert_gate_up {{.*}} : tensor<2x32x!moe.block_format
  %g, %u = moe.expert_gate_up %q, %ids gate(@gate) up(@up) : tensor<2x32x!nvfp4>, tensor<2x2xi32> -> tensor<4x64xbf16>, tensor<4x64xbf16>
  %a = moe.glu %g, %u silu : tensor<4x64xbf16>, tensor<4x64xbf16> -> tensor<4x64xbf16>
  // CHECK: moe.quantize %{{.*}} of %{{.*}} : tensor<2x2xi32> global(@scale) : tensor<4x64xbf16>
  %aq = moe.quantize %a of %ids : tensor<2x2xi32> global(@scale) : tensor<4x64xbf16> -> tensor<4x64x!nvfp4>
  %y = moe.expert_down %aq, %ids weight(@down) : tensor<4x64x!nvfp4>, tensor<2x2xi32> -> tensor<4x32xbf16>
  // CHECK: moe.square_sums %{{.*}} weight(@gain) gain one_plus {chunk = 16 : i64} : tensor<4x32xbf16> -> tensor<4x2xf32>
  %s = moe.square_sums %y weight(@gain) gain one_plus {chunk = 16} : tensor<4x32xbf16> -> tensor<4x2xf32>
  %all = moe.all_gather %s {ranks = 2} : tensor<4x2xf32> -> tensor<4x4xf32>
  // CHECK: moe.expert_norm %{{.*}} rms_input_scaled sums(%{{.*}} : tensor<4x4xf32>) weight(@gain) gain one_plus {eps = {{.*}}, width = 64 : i64}
  %n = moe.expert_norm %y rms_input_scaled sums(%all : tensor<4x4xf32>) weight(@gain) gain one_plus {eps = 1.0e-8, width = 64} : tensor<4x32xbf16> -> tensor<4x32xf32>
  // CHECK: moe.combine %{{.*}}, %{{.*}} {round_each} :
  %m = moe.combine %w, %n {round_each} : tensor<2x2xf32>, tensor<4x32xf32> -> tensor<2x32xbf16>
  return %m : tensor<2x32xbf16>
}

func.func @ranks(%t: tensor<2xi32>, %x: tensor<2x128xbf16>, %q: tensor<4x32x!nvfp4>) -> tensor<2x50xf32> {
  %e = moe.embed %t weight(@table) : tensor<2xi32> -> tensor<2x32xbf16>
  // CHECK: moe.linear %{{.*}} weight(@o) {partials = 4 : i64} : tensor<2x128xbf16> -> tensor<2x128xf32>
  %p = moe.linear %x weight(@o) {partials = 4} : tensor<2x128xbf16> -> tensor<2x128xf32>
  // CHECK: moe.all_reduce %{{.*}} {partials = 4 : i64, ranks = 2 : i64} : tensor<2x128xf32> -> tensor<2x32xbf16>
  %a = moe.all_reduce %p {partials = 4, ranks = 2} : tensor<2x128xf32> -> tensor<2x32xbf16>
  // CHECK: moe.all_gather %{{.*}} {ranks = 2 : i64} : tensor<4x32x!moe.block_format<{{.*}}>> -> tensor<4x64x!moe.block_format<{{.*}}>>
  %g = moe.all_gather %q {ranks = 2} : tensor<4x32x!nvfp4> -> tensor<4x64x!nvfp4>
  // Ids are those of the whole vocabulary.
  // CHECK: moe.lm_head %{{.*}} weight(@head) {valid_vocab = 99 : i64} : tensor<2x32xbf16> -> tensor<2x50xf32>
  %z = moe.lm_head %a weight(@head) {valid_vocab = 99} : tensor<2x32xbf16> -> tensor<2x50xf32>
  return %z : tensor<2x50xf32>
}

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 4096>

func.func @bounded(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>, %kv: !kv) -> tensor<1x64xf32> {
  // CHECK: moe.qk_norm %{{.*}}, %{{.*}} rms_weightless {eps = {{.*}}, head_dim = 16 : i64, q_scale = 5.500000e+00 : f64}
  %q1, %k1 = moe.qk_norm %q, %k rms_weightless {head_dim = 16, eps = 1.0e-5, q_scale = 5.5}
      : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  // CHECK: moe.attention %{{.*}}, %{{.*}} full {heads = 4 : i64, scale = {{.*}}, score_bound = 4.425000e+01 : f64}
  %o = moe.attention %q1, %kv full {heads = 4, scale = 0.25, score_bound = 44.25} : tensor<1x64xbf16>, !kv -> tensor<1x64xf32>
  return %o : tensor<1x64xf32>
}
