// RUN: megalith-opt %s --split-input-file --verify-diagnostics

moe.weight @w [32, 32] of bf16 from "w"
func.func @qkv_groups(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected heads to be a multiple of kv_heads 3 but got 4}}
  %q, %k, %v = moe.qkv_proj %x q(@w) k(@w) v(@w) {heads = 4, kv_heads = 3, head_dim = 8}
      : tensor<1x32xbf16> -> tensor<1x32xbf16>, tensor<1x24xbf16>, tensor<1x24xbf16>
  return
}

// -----

moe.weight @w [32, 32] of bf16 from "w"
func.func @qkv_zero_heads(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected kv_heads of at least 1 but got 0}}
  %q, %k, %v = moe.qkv_proj %x q(@w) k(@w) v(@w) {heads = 4, kv_heads = 0, head_dim = 8}
      : tensor<1x32xbf16> -> tensor<1x32xbf16>, tensor<1x32xbf16>, tensor<1x32xbf16>
  return
}

// -----

moe.weight @w [32, 32] of bf16 from "w"
func.func @qkv_width(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected result q of shape [1, 64] but got [1, 32]}}
  %q, %k, %v = moe.qkv_proj %x q(@w) k(@w) v(@w) {heads = 4, kv_heads = 2, head_dim = 16}
      : tensor<1x32xbf16> -> tensor<1x32xbf16>, tensor<1x32xbf16>, tensor<1x32xbf16>
  return
}

// -----

// expected-note @+1 {{the weight is defined here}}
moe.weight @w [32, 32] of bf16 from "w"
func.func @qkv_weight(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected weight of k of shape [16, 32] but got @w of [32, 32]}}
  %q, %k, %v = moe.qkv_proj %x q(@w) k(@w) v(@w) {heads = 4, kv_heads = 2, head_dim = 8}
      : tensor<1x32xbf16> -> tensor<1x32xbf16>, tensor<1x16xbf16>, tensor<1x16xbf16>
  return
}

// -----

moe.weight @w [32, 32] of bf16 from "w"
moe.weight @b [32] of bf16 from "b"
func.func @qkv_lone_bias(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected bias of k to be given as q has one but got none}}
  %q, %k, %v = moe.qkv_proj %x q(@w, @b) k(@w) v(@w) {heads = 4, kv_heads = 4, head_dim = 8}
      : tensor<1x32xbf16> -> tensor<1x32xbf16>, tensor<1x32xbf16>, tensor<1x32xbf16>
  return
}

// -----

func.func @qk_norm_kind(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected kind rms or rms_weightless but got layer}}
  %0, %1 = moe.qk_norm %q, %k layer {head_dim = 16, eps = 1.0e-6} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

moe.weight @w [16] of bf16 from "w"
func.func @qk_norm_one_weight(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected weight of k to be given for kind rms but got none}}
  %0, %1 = moe.qk_norm %q, %k rms q(@w) {head_dim = 16, eps = 1.0e-6} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

// expected-note @+1 {{the weight is defined here}}
moe.weight @w [16] of bf16 from "w"
func.func @qk_norm_over_row(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected weight of q of shape [64] but got @w of [16]}}
  %0, %1 = moe.qk_norm %q, %k rms over row q(@w) k(@w) {head_dim = 16, eps = 1.0e-6} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

func.func @rope_dims(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected rotary_dims to be even and from 0 to head_dim 16 but got 18}}
  %0, %1 = moe.rope %q, %k half_split {head_dim = 16, rotary_dims = 18, theta = 1.0e4} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

func.func @rope_odd(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected rotary_dims to be even and from 0 to head_dim 16 but got 7}}
  %0, %1 = moe.rope %q, %k half_split {head_dim = 16, rotary_dims = 7, theta = 1.0e4} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

func.func @rope_theta(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected theta to be finite and above 0 but got 0}}
  %0, %1 = moe.rope %q, %k half_split {head_dim = 16, rotary_dims = 16, theta = 0.0} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

func.func @rope_partial_head(%q: tensor<1x40xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected the width of q to be a multiple of head_dim 16 but got 40}}
  %0, %1 = moe.rope %q, %k half_split {head_dim = 16, rotary_dims = 16, theta = 1.0e4} : tensor<1x40xbf16>, tensor<1x32xbf16> -> tensor<1x40xbf16>, tensor<1x32xbf16>
  return
}

// -----

func.func @rope_rows(%q: tensor<2x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected k of shape [2, 32] but got [1, 32]}}
  %0, %1 = moe.rope %q, %k half_split {head_dim = 16, rotary_dims = 16, theta = 1.0e4} : tensor<2x64xbf16>, tensor<1x32xbf16> -> tensor<2x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

func.func @rope_scaling_missing(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected parameter 'factor' of linear scaling but got none}}
  %0, %1 = moe.rope %q, %k half_split scaling <linear, {}> {head_dim = 16, rotary_dims = 16, theta = 1.0e4} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

func.func @rope_scaling_extra(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected a parameter of linear scaling but got 'beta'}}
  %0, %1 = moe.rope %q, %k half_split scaling <linear, {factor = 2.0, beta = 1.0}> {head_dim = 16, rotary_dims = 16, theta = 1.0e4} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

func.func @rope_scaling_type(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected parameter 'factor' to be an f64 but got "two"}}
  %0, %1 = moe.rope %q, %k half_split scaling <linear, {factor = "two"}> {head_dim = 16, rotary_dims = 16, theta = 1.0e4} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64>
func.func @append_width(%kv: !kv, %k: tensor<1x64xbf16>, %v: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected k of shape [1, 32] but got [1, 64]}}
  %0 = moe.kv_append %kv, %k, %v : !kv, tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64>
func.func @append_rows(%kv: !kv, %k: tensor<1x32xbf16>, %v: tensor<2x32xbf16>) {
  // expected-error @+1 {{expected v of shape [1, 32] but got [2, 32]}}
  %0 = moe.kv_append %kv, %k, %v : !kv, tensor<1x32xbf16>, tensor<2x32xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 3, head_dim = 16, element = bf16, positions = 64>
func.func @attention_groups(%q: tensor<1x64xbf16>, %kv: !kv) {
  // expected-error @+1 {{expected heads to be a multiple of the cache's heads 3 but got 4}}
  %0 = moe.attention %q, %kv full {heads = 4, scale = 0.25} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 32, element = bf16, positions = 64>
func.func @attention_head_dim(%q: tensor<1x64xbf16>, %kv: !kv) {
  // expected-error @+1 {{expected q of shape [1, 128] but got [1, 64]}}
  %0 = moe.attention %q, %kv full {heads = 4, scale = 0.25} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64>
func.func @attention_scale(%q: tensor<1x64xbf16>, %kv: !kv) {
  // expected-error @+1 {{expected scale to be finite and above 0 but got -2.5}}
  %0 = moe.attention %q, %kv full {heads = 4, scale = -2.5} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64>
func.func @attention_no_extent(%q: tensor<1x64xbf16>, %kv: !kv) {
  // expected-error @+1 {{expected extent to be given for mask window but got none}}
  %0 = moe.attention %q, %kv window {heads = 4, scale = 0.25} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64>
func.func @attention_empty_window(%q: tensor<1x64xbf16>, %kv: !kv) {
  // expected-error @+1 {{expected extent of at least 1 but got 0}}
  %0 = moe.attention %q, %kv window {heads = 4, scale = 0.25, extent = 0} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64, window = 16>
func.func @attention_beyond_ring(%q: tensor<1x64xbf16>, %kv: !kv) {
  // expected-error @+1 {{expected an extent within the cache's window 16 but got extent 17}}
  %0 = moe.attention %q, %kv window {heads = 4, scale = 0.25, extent = 17} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64, window = 16>
func.func @attention_full_over_ring(%q: tensor<1x64xbf16>, %kv: !kv) {
  // expected-error @+1 {{expected an extent within the cache's window 16 but got mask full}}
  %0 = moe.attention %q, %kv full {heads = 4, scale = 0.25} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return
}

// -----

moe.weight @sinks [2] of bf16 from "s" // expected-note {{the weight is defined here}}
!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64>
func.func @attention_sinks(%q: tensor<1x64xbf16>, %kv: !kv) {
  // expected-error @+1 {{expected sinks of shape [4] but got @sinks of [2]}}
  %0 = moe.attention %q, %kv full sinks(@sinks) {heads = 4, scale = 0.25} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return
}

// -----

func.func @gate_width(%x: tensor<1x64xbf16>, %g: tensor<1x48xbf16>) {
  // expected-error @+1 {{expected the row's width to be a multiple of the gate's width 48 but got 64}}
  %0 = moe.output_gate %x, %g : tensor<1x64xbf16>, tensor<1x48xbf16> -> tensor<1x64xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = f8E4M3FN, positions = 64>
moe.weight @k_scale [1] of f32 from "k_scale"
func.func @append_one_scale(%kv: !kv, %k: tensor<1x32xbf16>, %v: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected both k_scale and v_scale or neither, but got k_scale alone}}
  %0 = moe.kv_append %kv, %k, %v k_scale(@k_scale) : !kv, tensor<1x32xbf16>, tensor<1x32xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64>
moe.weight @scale [1] of f32 from "scale"
func.func @append_scaled_bf16(%kv: !kv, %k: tensor<1x32xbf16>, %v: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected scales of a cache of f8E4M3FN, but got one of 'bf16'}}
  %0 = moe.kv_append %kv, %k, %v k_scale(@scale) v_scale(@scale) : !kv, tensor<1x32xbf16>, tensor<1x32xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = f8E4M3FN, positions = 64>
// expected-note @+1 {{the weight is defined here}}
moe.weight @scales [2] of f32 from "scales"
func.func @append_scale_a_head(%kv: !kv, %k: tensor<1x32xbf16>, %v: tensor<1x32xbf16>) {
  // expected-error @+1 {{[1]}}
  %0 = moe.kv_append %kv, %k, %v k_scale(@scales) v_scale(@scales) : !kv, tensor<1x32xbf16>, tensor<1x32xbf16>
  return
}
