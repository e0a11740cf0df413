// RUN: megalith-opt %s --split-input-file --verify-diagnostics

func.func @cast_shape(%x: tensor<2x32xbf16>) {
  // expected-error @+1 {{expected result of shape [2, 32] but got [2, 16]}}
  %0 = moe.cast %x : tensor<2x32xbf16> -> tensor<2x16xf32>
  return
}

// -----

func.func @quantize_to_bf16(%x: tensor<2x32xbf16>) {
  // expected-error @+1 {{result #0 must be static 2-D tensor of a block format, but got 'tensor<2x32xbf16>'}}
  %0 = moe.quantize %x : tensor<2x32xbf16> -> tensor<2x32xbf16>
  return
}

// -----

!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
func.func @quantize_without_global(%x: tensor<2x32xbf16>) {
  // expected-error @+1 {{expected global to be given with a global scale in the format but got none}}
  %0 = moe.quantize %x : tensor<2x32xbf16> -> tensor<2x32x!nvfp4>
  return
}

// -----

!mxfp4 = !moe.block_format<f4E2M1FN, block = [1, 32], scale = f8E8M0FNU>
moe.weight @s [8] of f32 from "s"
func.func @quantize_with_global(%x: tensor<2x32xbf16>) {
  // expected-error @+1 {{expected global to be absent without a global scale in the format but got one}}
  %0 = moe.quantize %x global(@s) : tensor<2x32xbf16> -> tensor<2x32x!mxfp4>
  return
}

// -----

!fp8 = !moe.block_format<f8E4M3FN, block = [128, 128], scale = f32>
func.func @quantize_blocks_of_rows(%x: tensor<128x128xbf16>) {
  // expected-error @+1 {{expected blocks within a row but got blocks of 128 rows}}
  %0 = moe.quantize %x : tensor<128x128xbf16> -> tensor<128x128x!fp8>
  return
}

// -----

!mxfp4 = !moe.block_format<f4E2M1FN, block = [1, 32], scale = f8E8M0FNU>
func.func @quantize_broken_block(%x: tensor<2x48xbf16>) {
  // expected-error @+1 {{expected the row's width to be a multiple of the block's width 32 but got 48}}
  %0 = moe.quantize %x : tensor<2x48xbf16> -> tensor<2x48x!mxfp4>
  return
}

// -----

!mxfp4 = !moe.block_format<f4E2M1FN, block = [1, 32], scale = f8E8M0FNU>
func.func @quantize_ids_without_global(%x: tensor<2x32xbf16>, %ids: tensor<1x2xi32>) {
  // expected-error @+1 {{expected ids only with a global scale, which they choose, but got some}}
  %0 = moe.quantize %x of %ids : tensor<1x2xi32> : tensor<2x32xbf16> -> tensor<2x32x!mxfp4>
  return
}

// -----

!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
moe.weight @s [8] of f32 from "s"
func.func @quantize_pairs(%x: tensor<2x32xbf16>, %ids: tensor<2x2xi32>) {
  // expected-error @+1 {{expected ids of as many pairs as there are rows, 2, but got 4}}
  %0 = moe.quantize %x of %ids : tensor<2x2xi32> global(@s) : tensor<2x32xbf16> -> tensor<2x32x!nvfp4>
  return
}

// -----

!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
moe.weight @s [8] of bf16 from "s"
func.func @quantize_global_format(%x: tensor<2x32xbf16>) {
  // expected-error @+1 {{expected global to be f32 of shape [experts] or [experts, n] but got @s of 'bf16' [8]}}
  %0 = moe.quantize %x global(@s) : tensor<2x32xbf16> -> tensor<2x32x!nvfp4>
  return
}

// -----

!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
func.func @gather_of_another_format(%x: tensor<2x32x!nvfp4>) {
  // expected-error @+1 {{expected a block format to be gathered as it is, '!moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>', but got 'bf16'}}
  %0 = moe.all_gather %x {ranks = 2} : tensor<2x32x!nvfp4> -> tensor<2x64xbf16>
  return
}

// -----

!nvfp4 = !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
func.func @gather_of_broken_blocks(%x: tensor<2x8x!nvfp4>) {
  // expected-error @+1 {{expected the rank's channels to be a multiple of the block's width 16 but got 8}}
  %0 = moe.all_gather %x {ranks = 2} : tensor<2x8x!nvfp4> -> tensor<2x16x!nvfp4>
  return
}

// -----

func.func @reduce_partials(%x: tensor<2x64xf32>) {
  // expected-error @+1 {{expected result of shape [2, 16] but got [2, 64]}}
  %0 = moe.all_reduce %x {ranks = 2, partials = 4} : tensor<2x64xf32> -> tensor<2x64xf32>
  return
}

// -----

moe.weight @w [32, 64] of bf16 from "w"
moe.weight @b [32] of bf16 from "b"
func.func @partials_with_bias(%x: tensor<2x64xbf16>) {
  // expected-error @+1 {{expected no bias with partials 2, where it would be added to every sum, but got one}}
  %0 = moe.linear %x weight(@w) bias(@b) {partials = 2} : tensor<2x64xbf16> -> tensor<2x64xf32>
  return
}

// -----

moe.weight @w [32, 64] of bf16 from "w"
func.func @partials_rounded(%x: tensor<2x64xbf16>) {
  // expected-error @+1 {{expected partial sums of f32 but got 'tensor<2x64xbf16>'}}
  %0 = moe.linear %x weight(@w) {partials = 2} : tensor<2x64xbf16> -> tensor<2x64xbf16>
  return
}

// -----

func.func @square_sums_chunk(%x: tensor<2x64xbf16>) {
  // expected-error @+1 {{expected the row's width to be a multiple of chunk 48 but got 64}}
  %0 = moe.square_sums %x {chunk = 48} : tensor<2x64xbf16> -> tensor<2x1xf32>
  return
}

// -----

func.func @sums_without_width(%y: tensor<2x64xbf16>, %s: tensor<2x4xf32>) {
  // expected-error @+1 {{expected width to be given with sums but got none}}
  %0 = moe.expert_norm %y rms_weightless sums(%s : tensor<2x4xf32>) {eps = 1.0e-8} : tensor<2x64xbf16> -> tensor<2x64xf32>
  return
}

// -----

func.func @sums_of_other_rows(%y: tensor<2x64xbf16>, %s: tensor<1x4xf32>) {
  // expected-error @+1 {{expected sums of shape [2, 4] but got [1, 4]}}
  %0 = moe.expert_norm %y rms_weightless sums(%s : tensor<1x4xf32>) {eps = 1.0e-8, width = 128} : tensor<2x64xbf16> -> tensor<2x64xf32>
  return
}

// -----

func.func @query_scale(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) {
  // expected-error @+1 {{expected q_scale to be finite and above 0 but got 0}}
  %0, %1 = moe.qk_norm %q, %k rms_weightless {head_dim = 16, eps = 1.0e-5, q_scale = 0.0} : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return
}

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 4096>
func.func @bound(%q: tensor<1x64xbf16>, %kv: !kv) {
  // expected-error @+1 {{expected score_bound to be finite and above 0 but got -1}}
  %0 = moe.attention %q, %kv full {heads = 4, scale = 0.25, score_bound = -1.0} : tensor<1x64xbf16>, !kv -> tensor<1x64xf32>
  return
}

// -----

// expected-error @+1 {{expected a part along a dimension below 2 but got 2}}
moe.weight @w [32, 64] of bf16 from "w" part <dim = 2, index = 0, count = 2>

// -----

// expected-error @+1 {{expected index of 0 to count - 1 but got 2 of 2}}
moe.weight @w [32, 64] of bf16 from "w" part <dim = 0, index = 2, count = 2>
