// RUN: megalith-opt %s --split-input-file --verify-diagnostics

// expected-note @+1 {{the weight is defined here}}
moe.weight @table [100, 32] of bf16 from "w"
func.func @embed_width(%t: tensor<2xi32>) {
  // expected-error @+1 {{expected weight of shape [100, 64] but got @table of [100, 32]}}
  %0 = moe.embed %t weight(@table) : tensor<2xi32> -> tensor<2x64xbf16>
  return
}

// -----

moe.weight @table [100, 32] of bf16 from "w"
func.func @embed_rows(%t: tensor<2xi32>) {
  // expected-error @+1 {{expected result of shape [2, 32] but got [4, 32]}}
  %0 = moe.embed %t weight(@table) : tensor<2xi32> -> tensor<4x32xbf16>
  return
}

// -----

func.func @embed_unknown(%t: tensor<2xi32>) {
  // expected-error @+1 {{expected weight to name a moe.weight but got @table, which is not defined}}
  %0 = moe.embed %t weight(@table) : tensor<2xi32> -> tensor<2x32xbf16>
  return
}

// -----

func.func @weight_is_a_function(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected weight to name a moe.weight but got @weight_is_a_function, a func.func}}
  %0 = moe.linear %x weight(@weight_is_a_function) : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @dynamic_rows(%x: tensor<?x32xbf16>) {
  // expected-error @+1 {{operand #0 must be static 2-D tensor of bf16 or f32, but got 'tensor<?x32xbf16>'}}
  %0 = moe.norm %x rms_weightless {eps = 1.0e-6} : tensor<?x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @half_precision(%x: tensor<1x32xf16>) {
  // expected-error @+1 {{operand #0 must be static 2-D tensor of bf16 or f32, but got 'tensor<1x32xf16>'}}
  %0 = moe.norm %x rms_weightless {eps = 1.0e-6} : tensor<1x32xf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @norm_eps(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected eps to be finite and above 0 but got 0}}
  %0 = moe.norm %x rms_weightless {eps = 0.0} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @norm_eps_negative(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected eps to be finite and above 0 but got -1}}
  %0 = moe.norm %x rms_weightless {eps = -1.0} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @norm_without_weight(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected weight to be given for kind rms but got none}}
  %0 = moe.norm %x rms {eps = 1.0e-6} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

moe.weight @w [32] of bf16 from "w"
func.func @norm_weightless_with_weight(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected weight to be absent for kind rms_weightless but got one}}
  %0 = moe.norm %x rms_weightless weight(@w) {eps = 1.0e-6} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

moe.weight @w [32] of bf16 from "w"
func.func @norm_bias(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected bias to be given for kind layer_bias but got none}}
  %0 = moe.norm %x layer_bias weight(@w) {eps = 1.0e-6} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

// expected-note @+1 {{the weight is defined here}}
moe.weight @w [32] of bf16 from "w"
func.func @norm_weight_over_head(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected weight of shape [16] but got @w of [32]}}
  %0 = moe.norm %x rms over head weight(@w) {eps = 1.0e-6, head_dim = 16} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @norm_head_dim(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected the row's width to be a multiple of head_dim 24 but got 32}}
  %0 = moe.norm %x rms_weightless over head {eps = 1.0e-6, head_dim = 24} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @norm_head_dim_over_row(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected head_dim to be absent over row but got one}}
  %0 = moe.norm %x rms_weightless {eps = 1.0e-6, head_dim = 16} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

// expected-note @+1 {{the weight is defined here}}
moe.weight @w [64, 32] of bf16 from "w"
func.func @linear_transposed(%x: tensor<1x64xbf16>) {
  // expected-error @+1 {{expected weight of shape [32, 64] but got @w of [64, 32]}}
  %0 = moe.linear %x weight(@w) : tensor<1x64xbf16> -> tensor<1x32xbf16>
  return
}

// -----

// expected-note @+1 {{the weight is defined here}}
moe.weight @w [64, 32] of bf16 from "w" sharded <dim = 0, ranks = 2>
func.func @linear_unsharded(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected weight of shape [64, 32] but got @w of [32, 32]}}
  %0 = moe.linear %x weight(@w) : tensor<1x32xbf16> -> tensor<1x64xbf16>
  return
}

// -----

func.func @residual_type(%s: tensor<1x32xf32>, %b: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected result of type 'tensor<1x32xf32>' but got 'tensor<1x32xbf16>'}}
  %0 = moe.residual %s, %b plain : tensor<1x32xf32>, tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @residual_width(%s: tensor<1x32xbf16>, %b: tensor<1x64xbf16>) {
  // expected-error @+1 {{expected branch of shape [1, 32] but got [1, 64]}}
  %0 = moe.residual %s, %b plain : tensor<1x32xbf16>, tensor<1x64xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @residual_plain_scale(%s: tensor<1x32xbf16>, %b: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected scale to be absent for kind plain but got one}}
  %0 = moe.residual %s, %b plain {scale = 2.0} : tensor<1x32xbf16>, tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @residual_gate(%s: tensor<1x32xbf16>, %b: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected gate to be given for kind gated but got none}}
  %0 = moe.residual %s, %b gated {temperature = 0.3, floor = 1.0e-3} : tensor<1x32xbf16>, tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

moe.weight @g [32] of bf16 from "g"
func.func @residual_gated_twice(%s: tensor<1x32xbf16>, %b: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected 1 branch for kind gated but got 2}}
  %0 = moe.residual %s, %b, %b gated gate(@g) {temperature = 0.3, floor = 1.0e-3} : tensor<1x32xbf16>, tensor<1x32xbf16>, tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @gather_width(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected result of shape [1, 128] but got [1, 64]}}
  %0 = moe.all_gather %x {ranks = 4} : tensor<1x32xbf16> -> tensor<1x64xbf16>
  return
}

// -----

func.func @reduce_ranks(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected ranks of at least 1 but got 0}}
  %0 = moe.all_reduce %x {ranks = 0} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return
}

// -----

func.func @head_rounded(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{result #0 must be static 2-D tensor of f32, but got 'tensor<1x100xbf16>'}}
  %0 = moe.lm_head %x weight(@w) : tensor<1x32xbf16> -> tensor<1x100xbf16>
  return
}

// -----

moe.weight @w [100, 32] of bf16 from "w"
func.func @head_vocabulary(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected valid_vocab of 1 to 100 but got 101}}
  %0 = moe.lm_head %x weight(@w) {valid_vocab = 101} : tensor<1x32xbf16> -> tensor<1x100xf32>
  return
}

// -----

func.func @head_softcap(%x: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected softcap to be finite and above 0 but got 0}}
  %0 = moe.lm_head %x weight(@w) {softcap = 0.0} : tensor<1x32xbf16> -> tensor<1x100xf32>
  return
}
