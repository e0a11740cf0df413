// RUN: megalith-opt %s --split-input-file --verify-diagnostics

func.func @router_rows(%x: tensor<2x32xbf16>) {
  // expected-error @+1 {{expected result of shape [2, 8] but got [1, 8]}}
  %0 = moe.router %x weight(@w) : tensor<2x32xbf16> -> tensor<1x8xf32>
  return
}

// -----

// expected-note @+1 {{the weight is defined here}}
moe.weight @w [16, 32] of bf16 from "w"
func.func @router_experts(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected weight of shape [8, 32] but got @w of [16, 32]}}
  %0 = moe.router %x weight(@w) : tensor<1x32xbf16> -> tensor<1x8xf32>
  return
}

// -----

func.func @router_rounded(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{result #0 must be static 2-D tensor of f32, but got 'tensor<1x8xbf16>'}}
  %0 = moe.router %x weight(@w) : tensor<1x32xbf16> -> tensor<1x8xbf16>
  return
}

// -----

func.func @top_k_above_experts(%z: tensor<1x8xf32>) {
  // expected-error @+1 {{expected k of 1 to 8 experts but got 9}}
  %0, %1 = moe.top_k %z softmax {k = 9} : tensor<1x8xf32> -> tensor<1x9xi32>, tensor<1x9xf32>
  return
}

// -----

func.func @top_k_zero(%z: tensor<1x8xf32>) {
  // expected-error @+1 {{expected k of 1 to 8 experts but got -1}}
  %0, %1 = moe.top_k %z softmax {k = -1} : tensor<1x8xf32> -> tensor<1x1xi32>, tensor<1x1xf32>
  return
}

// -----

func.func @top_k_ids(%z: tensor<2x8xf32>) {
  // expected-error @+1 {{expected result ids of shape [2, 4] but got [2, 2]}}
  %0, %1 = moe.top_k %z softmax {k = 4} : tensor<2x8xf32> -> tensor<2x2xi32>, tensor<2x4xf32>
  return
}

// -----

func.func @top_k_id_type(%z: tensor<2x8xf32>) {
  // expected-error @+1 {{result #0 must be static 2-D tensor of i32, but got 'tensor<2x4xi64>'}}
  %0, %1 = moe.top_k %z softmax {k = 4} : tensor<2x8xf32> -> tensor<2x4xi64>, tensor<2x4xf32>
  return
}

// -----

func.func @top_k_sigmoid_over_selected(%z: tensor<1x8xf32>) {
  // expected-error @+1 {{expected score softmax over selected experts but got sigmoid}}
  %0, %1 = moe.top_k %z sigmoid over selected {k = 2} : tensor<1x8xf32> -> tensor<1x2xi32>, tensor<1x2xf32>
  return
}

// -----

func.func @top_k_eps(%z: tensor<1x8xf32>) {
  // expected-error @+1 {{expected renormalize_eps to be finite and at least 0 but got -1}}
  %0, %1 = moe.top_k %z sigmoid {k = 2, renormalize = true, renormalize_eps = -1.0} : tensor<1x8xf32> -> tensor<1x2xi32>, tensor<1x2xf32>
  return
}

// -----

func.func @top_k_lone_groups(%z: tensor<1x8xf32>) {
  // expected-error @+1 {{expected top_groups to be given with groups but got none}}
  %0, %1 = moe.top_k %z sigmoid {k = 2, groups = 4} : tensor<1x8xf32> -> tensor<1x2xi32>, tensor<1x2xf32>
  return
}

// -----

func.func @top_k_uneven_groups(%z: tensor<1x8xf32>) {
  // expected-error @+1 {{expected experts to be a multiple of groups 3 but got 8}}
  %0, %1 = moe.top_k %z sigmoid {k = 2, groups = 3, top_groups = 1} : tensor<1x8xf32> -> tensor<1x2xi32>, tensor<1x2xf32>
  return
}

// -----

func.func @top_k_few_candidates(%z: tensor<1x8xf32>) {
  // expected-error @+1 {{expected k of at most the 2 experts of the top groups but got 3}}
  %0, %1 = moe.top_k %z sigmoid {k = 3, groups = 4, top_groups = 1} : tensor<1x8xf32> -> tensor<1x3xi32>, tensor<1x3xf32>
  return
}

// -----

// expected-note @+1 {{the weight is defined here}}
moe.weight @bias [4] of f32 from "b"
func.func @top_k_bias(%z: tensor<1x8xf32>) {
  // expected-error @+1 {{expected selection_bias of shape [8] but got @bias of [4]}}
  %0, %1 = moe.top_k %z sigmoid selection_bias(@bias) {k = 2} : tensor<1x8xf32> -> tensor<1x2xi32>, tensor<1x2xf32>
  return
}

// -----

func.func @pairs(%x: tensor<2x32xbf16>, %ids: tensor<2x4xi32>) {
  // expected-error @+1 {{expected result gate of shape [8, 64] but got [4, 64]}}
  %0, %1 = moe.expert_gate_up %x, %ids gate(@w) up(@w) : tensor<2x32xbf16>, tensor<2x4xi32> -> tensor<4x64xbf16>, tensor<8x64xbf16>
  return
}

// -----

func.func @gate_up_differ(%x: tensor<1x32xbf16>, %ids: tensor<1x4xi32>) {
  // expected-error @+1 {{expected result up of shape [4, 64] but got [4, 32]}}
  %0, %1 = moe.expert_gate_up %x, %ids gate(@w) up(@w) : tensor<1x32xbf16>, tensor<1x4xi32> -> tensor<4x64xbf16>, tensor<4x32xbf16>
  return
}

// -----

func.func @ids_of_other_rows(%x: tensor<2x32xbf16>, %ids: tensor<1x4xi32>) {
  // expected-error @+1 {{expected ids of shape [2, 4] but got [1, 4]}}
  %0, %1 = moe.expert_gate_up %x, %ids gate(@w) up(@w) : tensor<2x32xbf16>, tensor<1x4xi32> -> tensor<8x64xbf16>, tensor<8x64xbf16>
  return
}

// -----

moe.weight @gate [8, 64, 32] of bf16 from "g"
// expected-note @+1 {{the weight is defined here}}
moe.weight @up [4, 64, 32] of bf16 from "u"
func.func @experts_differ(%x: tensor<1x32xbf16>, %ids: tensor<1x4xi32>) {
  // expected-error @+1 {{expected weight of up of shape [8, 64, 32] but got @up of [4, 64, 32]}}
  %0, %1 = moe.expert_gate_up %x, %ids gate(@gate) up(@up) : tensor<1x32xbf16>, tensor<1x4xi32> -> tensor<4x64xbf16>, tensor<4x64xbf16>
  return
}

// -----

func.func @lone_bias(%x: tensor<1x32xbf16>, %ids: tensor<1x4xi32>) {
  // expected-error @+1 {{expected bias of up to be given as gate has one but got none}}
  %0, %1 = moe.expert_gate_up %x, %ids gate(@w, @b) up(@w) : tensor<1x32xbf16>, tensor<1x4xi32> -> tensor<4x64xbf16>, tensor<4x64xbf16>
  return
}

// -----

func.func @glu_shapes(%g: tensor<4x64xbf16>, %u: tensor<4x32xbf16>) {
  // expected-error @+1 {{expected up of shape [4, 64] but got [4, 32]}}
  %0 = moe.glu %g, %u silu : tensor<4x64xbf16>, tensor<4x32xbf16> -> tensor<4x64xbf16>
  return
}

// -----

func.func @glu_alpha(%g: tensor<4x64xbf16>) {
  // expected-error @+1 {{expected alpha to be given for scaled_silu but got none}}
  %0 = moe.glu %g, %g scaled_silu : tensor<4x64xbf16>, tensor<4x64xbf16> -> tensor<4x64xbf16>
  return
}

// -----

func.func @glu_clamp(%g: tensor<4x64xbf16>) {
  // expected-error @+1 {{expected clamp to be finite and above 0 but got -7}}
  %0 = moe.glu %g, %g silu {clamp = -7.0} : tensor<4x64xbf16>, tensor<4x64xbf16> -> tensor<4x64xbf16>
  return
}

// -----

func.func @down_pairs(%h: tensor<4x64xbf16>, %ids: tensor<2x4xi32>) {
  // expected-error @+1 {{expected input of shape [8, 64] but got [4, 64]}}
  %0 = moe.expert_down %h, %ids weight(@w) : tensor<4x64xbf16>, tensor<2x4xi32> -> tensor<8x32xbf16>
  return
}

// -----

// expected-note @+1 {{the weight is defined here}}
moe.weight @w [8, 64, 32] of bf16 from "w"
func.func @down_transposed(%h: tensor<4x64xbf16>, %ids: tensor<1x4xi32>) {
  // expected-error @+1 {{expected weight of shape [8, 32, 64] but got @w of [8, 64, 32]}}
  %0 = moe.expert_down %h, %ids weight(@w) : tensor<4x64xbf16>, tensor<1x4xi32> -> tensor<4x32xbf16>
  return
}

// -----

func.func @expert_norm_kind(%y: tensor<4x32xbf16>) {
  // expected-error @+1 {{expected kind rms, rms_input_scaled or rms_weightless but got layer}}
  %0 = moe.expert_norm %y layer {eps = 1.0e-6} : tensor<4x32xbf16> -> tensor<4x32xbf16>
  return
}

// -----

func.func @combine_pairs(%w: tensor<2x4xf32>, %y: tensor<4x32xbf16>) {
  // expected-error @+1 {{expected input of shape [8, 32] but got [4, 32]}}
  %0 = moe.combine %w, %y : tensor<2x4xf32>, tensor<4x32xbf16> -> tensor<2x32xbf16>
  return
}

// -----

func.func @combine_rows(%w: tensor<2x4xf32>, %y: tensor<8x32xbf16>) {
  // expected-error @+1 {{expected result of shape [2, 32] but got [1, 32]}}
  %0 = moe.combine %w, %y : tensor<2x4xf32>, tensor<8x32xbf16> -> tensor<1x32xbf16>
  return
}
