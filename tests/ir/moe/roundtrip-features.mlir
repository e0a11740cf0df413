// Attributes that the first two families do not use.
// RUN: megalith-opt %s | megalith-opt | FileCheck %s

// CHECK: moe.weight @nvfp4 [8, 64, 32] of !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32> from "l.{layer}.e.{expert}.up"
moe.weight @nvfp4 [8, 64, 32] of !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32> from "l.{layer}.e.{expert}.up"
// CHECK: moe.weight @mxfp4 [8, 64, 32] of !moe.block_format<f4E2M1FN, block = [1, 32], scale = f8E8M0FNU> from
moe.weight @mxfp4 [8, 64, 32] of !moe.block_format<f4E2M1FN, block = [1, 32], scale = f8E8M0FNU> from "l.{layer}.gate_up"
// CHECK: of !moe.block_format<f8E4M3FN, block = [128, 128], scale = f32> from "l.{layer}.q" sharded <dim = 0, ranks = 2>
moe.weight @k_scale [1] of f32 from "l.{layer}.k_scale"
moe.weight @v_scale [1] of f32 from "l.{layer}.v_scale"
moe.weight @fp8 [128, 32] of !moe.block_format<f8E4M3FN, block = [128, 128], scale = f32> from "l.{layer}.q" sharded <dim = 0, ranks = 2>
moe.weight @kw [32, 32] of bf16 from "l.{layer}.k"
moe.weight @vector [32] of f32 from "l.{layer}.v"
moe.weight @wide [64] of bf16 from "l.{layer}.w"
moe.weight @head [16] of bf16 from "l.{layer}.n"
moe.weight @sinks [4] of bf16 from "l.{layer}.sinks"
moe.weight @expert_bias [8, 64] of bf16 from "l.{layer}.b"
moe.weight @router [8, 32] of f32 from "l.{layer}.r"
moe.weight @selection [8] of f32 from "l.{layer}.s"
moe.weight @vocab [100, 32] of bf16 from "head"
moe.weight @vocab_bias [100] of bf16 from "head_bias"

func.func @norms(%x: tensor<1x32xf32>) {
  // CHECK: moe.norm %{{.*}} rms weight(@vector) gain one_plus {eps
  %0 = moe.norm %x rms weight(@vector) gain one_plus {eps = 1.0e-5} : tensor<1x32xf32> -> tensor<1x32xbf16>
  // CHECK: moe.norm %{{.*}} rms_input_scaled weight(@vector)
  %1 = moe.norm %x rms_input_scaled weight(@vector) {eps = 1.0e-8} : tensor<1x32xf32> -> tensor<1x32xbf16>
  // CHECK: moe.norm %{{.*}} rms_weightless over head {eps = {{.*}}, head_dim = 16 : i64}
  %2 = moe.norm %x rms_weightless over head {eps = 1.0e-5, head_dim = 16} : tensor<1x32xf32> -> tensor<1x32xf32>
  // CHECK: moe.norm %{{.*}} layer weight(@vector)
  %3 = moe.norm %x layer weight(@vector) {eps = 1.0e-5} : tensor<1x32xf32> -> tensor<1x32xbf16>
  // CHECK: moe.norm %{{.*}} layer_bias weight(@vector) bias(@vector)
  %4 = moe.norm %x layer_bias weight(@vector) bias(@vector) {eps = 1.0e-5} : tensor<1x32xf32> -> tensor<1x32xbf16>
  // CHECK: moe.expert_norm %{{.*}} rms_input_scaled weight(@vector) gain one_plus
  %5 = moe.expert_norm %4 rms_input_scaled weight(@vector) gain one_plus {eps = 1.0e-8} : tensor<1x32xbf16> -> tensor<1x32xf32>
  return
}

func.func @attention(%x: tensor<1x32xbf16>, %kv: !moe.kv<heads = 2, head_dim = 16, element = f8E4M3FN, positions = 4096, window = 131>) -> tensor<1x64xbf16> {
  // CHECK: moe.qkv_proj %{{.*}} q(@fp8, @wide) k(@kw, @vector) v(@kw, @vector) {clip = 8.000000e+00 : f64
  %q, %k, %v = moe.qkv_proj %x q(@fp8, @wide) k(@kw, @vector) v(@kw, @vector) {heads = 4, kv_heads = 2, head_dim = 16, clip = 8.0}
      : tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>, tensor<1x32xbf16>
  // CHECK: moe.qk_norm %{{.*}}, %{{.*}} rms over row q(@wide) k(@vector)
  %q1, %k1 = moe.qk_norm %q, %k rms over row q(@wide) k(@vector) {head_dim = 16, eps = 1.0e-6}
      : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  // CHECK: moe.qk_norm %{{.*}}, %{{.*}} rms_weightless {
  %q2, %k2 = moe.qk_norm %q1, %k1 rms_weightless {head_dim = 16, eps = 1.0e-6}
      : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  // CHECK: moe.rope %{{.*}}, %{{.*}} adjacent scaling <yarn, {attention_factor = 1.250000e+00 : f64
  %q3, %k3 = moe.rope %q2, %k2 adjacent scaling <yarn, {factor = 32.0, original_context = 4096.0, beta_fast = 32.0, beta_slow = 1.0, attention_factor = 1.25}> {head_dim = 16, rotary_dims = 8, theta = 1.5e5}
      : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  // CHECK: moe.kv_append %{{.*}}, %{{.*}}, %{{.*}} k_scale(@k_scale) v_scale(@v_scale) : !moe.kv<
  %kv1 = moe.kv_append %kv, %k3, %v k_scale(@k_scale) v_scale(@v_scale) : !moe.kv<heads = 2, head_dim = 16, element = f8E4M3FN, positions = 4096, window = 131>, tensor<1x32xbf16>, tensor<1x32xbf16>
  // CHECK: moe.attention %{{.*}}, %{{.*}} window sinks(@sinks) {extent = 128 : i64
  %o = moe.attention %q3, %kv1 window sinks(@sinks) {heads = 4, scale = 0.25, extent = 128}
      : tensor<1x64xbf16>, !moe.kv<heads = 2, head_dim = 16, element = f8E4M3FN, positions = 4096, window = 131> -> tensor<1x64xbf16>
  // CHECK: moe.output_gate %{{.*}}, %{{.*}} : tensor<1x64xbf16>, tensor<1x64xbf16> -> tensor<1x64xbf16>
  %g = moe.output_gate %o, %q : tensor<1x64xbf16>, tensor<1x64xbf16> -> tensor<1x64xbf16>
  return %g : tensor<1x64xbf16>
}

func.func @experts(%x: tensor<1x32xbf16>, %h0: tensor<1x64xbf16>) {
  // CHECK: moe.router %{{.*}} weight(@router) bias(@selection) {multiplier = 1.250000e-01 : f64}
  %z = moe.router %x weight(@router) bias(@selection) {multiplier = 0.125} : tensor<1x32xbf16> -> tensor<1x8xf32>
  // CHECK: moe.top_k %{{.*}} sigmoid selection_bias(@selection) {groups = 4 : i64, k = 2 : i64, renormalize = true, renormalize_eps = {{.*}}, scale = 2.500000e+00 : f64, top_groups = 2 : i64}
  %ids, %w = moe.top_k %z sigmoid selection_bias(@selection) {k = 2, renormalize = true, renormalize_eps = 1.0e-15, scale = 2.5, groups = 4, top_groups = 2} : tensor<1x8xf32> -> tensor<1x2xi32>, tensor<1x2xf32>
  // CHECK: moe.top_k %{{.*}} softmax over selected {k = 2 : i64}
  %ids2, %w2 = moe.top_k %z softmax over selected {k = 2} : tensor<1x8xf32> -> tensor<1x2xi32>, tensor<1x2xf32>
  // CHECK: moe.expert_gate_up %{{.*}}, %{{.*}} gate(@nvfp4, @expert_bias) up(@mxfp4, @expert_bias)
  %g, %u = moe.expert_gate_up %x, %ids gate(@nvfp4, @expert_bias) up(@mxfp4, @expert_bias)
      : tensor<1x32xbf16>, tensor<1x2xi32> -> tensor<2x64xbf16>, tensor<2x64xbf16>
  // CHECK: moe.glu %{{.*}}, %{{.*}} scaled_silu {alpha = 1.702000e+00 : f64, clamp = 7.000000e+00 : f64, up_offset = 1.000000e+00 : f64}
  %h = moe.glu %g, %u scaled_silu {alpha = 1.702, clamp = 7.0, up_offset = 1.0} : tensor<2x64xbf16>, tensor<2x64xbf16> -> tensor<2x64xbf16>
  return
}

func.func @residuals(%s: tensor<1x32xf32>, %a: tensor<1x32xbf16>, %b: tensor<1x32xbf16>) {
  // CHECK: moe.residual %{{.*}}, %{{.*}}, %{{.*}} plain : tensor<1x32xf32>, tensor<1x32xbf16>, tensor<1x32xbf16> -> tensor<1x32xf32>
  %0 = moe.residual %s, %a, %b plain : tensor<1x32xf32>, tensor<1x32xbf16>, tensor<1x32xbf16> -> tensor<1x32xf32>
  // CHECK: moe.residual %{{.*}}, %{{.*}} scaled {scale = 2.200000e-01 : f64}
  %1 = moe.residual %0, %a scaled {scale = 0.22} : tensor<1x32xf32>, tensor<1x32xbf16> -> tensor<1x32xf32>
  // CHECK: moe.residual %{{.*}}, %{{.*}} gated gate(@vector) {floor = 1.000000e-03 : f64, temperature = 3.000000e-01 : f64}
  %2 = moe.residual %1, %a gated gate(@vector) {temperature = 0.3, floor = 1.0e-3} : tensor<1x32xf32>, tensor<1x32xbf16> -> tensor<1x32xf32>
  // CHECK: moe.all_reduce %{{.*}} {ranks = 8 : i64}
  %3 = moe.all_reduce %2 {ranks = 8} : tensor<1x32xf32> -> tensor<1x32xbf16>
  // CHECK: moe.all_gather %{{.*}} {ranks = 2 : i64} : tensor<1x32xbf16> -> tensor<1x64xbf16>
  %4 = moe.all_gather %3 {ranks = 2} : tensor<1x32xbf16> -> tensor<1x64xbf16>
  // CHECK: moe.lm_head %{{.*}} weight(@vocab) bias(@vocab_bias) {multiplier = 5.000000e-01 : f64, softcap = 2.000000e+01 : f64, valid_vocab = 99 : i64}
  %5 = moe.lm_head %3 weight(@vocab) bias(@vocab_bias) {multiplier = 0.5, softcap = 20.0, valid_vocab = 99} : tensor<1x32xbf16> -> tensor<1x100xf32>
  return
}
