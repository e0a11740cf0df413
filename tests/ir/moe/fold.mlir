// What leaves every bit alone goes; what does not, stays.
// RUN: megalith-opt %s --canonicalize | FileCheck %s

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 4096>

moe.weight @gain [32] of bf16 from "w"

// CHECK-LABEL: @no_rotation
// CHECK-SAME: (%[[Q:.*]]: tensor<1x64xbf16>, %[[K:.*]]: tensor<1x32xbf16>)
// CHECK-NEXT: return %[[Q]], %[[K]]
func.func @no_rotation(%q: tensor<1x64xbf16>, %k: tensor<1x32xbf16>) -> (tensor<1x64xbf16>, tensor<1x32xbf16>) {
  %0, %1 = moe.rope %q, %k half_split {head_dim = 16, rotary_dims = 0, theta = 1.0e4}
      : tensor<1x64xbf16>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return %0, %1 : tensor<1x64xbf16>, tensor<1x32xbf16>
}

// The rounding of q remains to be done.
// CHECK-LABEL: @no_rotation_but_rounding
// CHECK: moe.rope
func.func @no_rotation_but_rounding(%q: tensor<1x64xf32>, %k: tensor<1x32xbf16>) -> tensor<1x64xbf16> {
  %0, %1 = moe.rope %q, %k half_split {head_dim = 16, rotary_dims = 0, theta = 1.0e4}
      : tensor<1x64xf32>, tensor<1x32xbf16> -> tensor<1x64xbf16>, tensor<1x32xbf16>
  return %0 : tensor<1x64xbf16>
}

// CHECK-LABEL: @one_rank
// CHECK-SAME: (%[[X:.*]]: tensor<1x32xbf16>)
// CHECK-NEXT: return %[[X]]
func.func @one_rank(%x: tensor<1x32xbf16>) -> tensor<1x32xbf16> {
  %0 = moe.all_gather %x {ranks = 1} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  %1 = moe.all_reduce %0 {ranks = 1} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return %1 : tensor<1x32xbf16>
}

// CHECK-LABEL: @same_type
// CHECK-SAME: (%[[X:.*]]: tensor<1x32xbf16>)
// CHECK-NEXT: return %[[X]]
func.func @same_type(%x: tensor<1x32xbf16>) -> tensor<1x32xbf16> {
  %0 = moe.cast %x : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return %0 : tensor<1x32xbf16>
}

// Down and up again has rounded.
// CHECK-LABEL: @narrowed
// CHECK-COUNT-2: moe.cast
func.func @narrowed(%x: tensor<1x32xf32>) -> tensor<1x32xf32> {
  %0 = moe.cast %x : tensor<1x32xf32> -> tensor<1x32xbf16>
  %1 = moe.cast %0 : tensor<1x32xbf16> -> tensor<1x32xf32>
  return %1 : tensor<1x32xf32>
}

// CHECK-LABEL: @two_ranks
// CHECK: moe.all_reduce
func.func @two_ranks(%x: tensor<1x32xbf16>) -> tensor<1x32xbf16> {
  %0 = moe.all_reduce %x {ranks = 2} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return %0 : tensor<1x32xbf16>
}

// CHECK-LABEL: @scale_of_one
// CHECK: moe.residual %{{.*}}, %{{.*}} plain :
func.func @scale_of_one(%s: tensor<1x32xbf16>, %b: tensor<1x32xbf16>) -> tensor<1x32xbf16> {
  %0 = moe.residual %s, %b scaled {scale = 1.0} : tensor<1x32xbf16>, tensor<1x32xbf16> -> tensor<1x32xbf16>
  return %0 : tensor<1x32xbf16>
}

// CHECK-LABEL: @other_scale
// CHECK: moe.residual %{{.*}}, %{{.*}} scaled {scale = 5.000000e-01 : f64}
func.func @other_scale(%s: tensor<1x32xbf16>, %b: tensor<1x32xbf16>) -> tensor<1x32xbf16> {
  %0 = moe.residual %s, %b scaled {scale = 0.5} : tensor<1x32xbf16>, tensor<1x32xbf16> -> tensor<1x32xbf16>
  return %0 : tensor<1x32xbf16>
}

// CHECK-LABEL: @window_covers_all
// CHECK: moe.attention %{{.*}}, %{{.*}} full {heads = 4 : i64, scale = 2.500000e-01 : f64}
func.func @window_covers_all(%q: tensor<1x64xbf16>, %kv: !kv) -> tensor<1x64xbf16> {
  %0 = moe.attention %q, %kv window {heads = 4, scale = 0.25, extent = 4096} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return %0 : tensor<1x64xbf16>
}

// CHECK-LABEL: @window_hides_one
// CHECK: moe.attention %{{.*}}, %{{.*}} window {extent = 4095 : i64
func.func @window_hides_one(%q: tensor<1x64xbf16>, %kv: !kv) -> tensor<1x64xbf16> {
  %0 = moe.attention %q, %kv window {heads = 4, scale = 0.25, extent = 4095} : tensor<1x64xbf16>, !kv -> tensor<1x64xbf16>
  return %0 : tensor<1x64xbf16>
}

// A norm of a norm is not the norm: eps enters twice.
// CHECK-LABEL: @norms_stay
// CHECK-COUNT-2: moe.norm
func.func @norms_stay(%x: tensor<1x32xbf16>) -> tensor<1x32xbf16> {
  %0 = moe.norm %x rms_weightless {eps = 1.0e-6} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  %1 = moe.norm %0 rms_weightless {eps = 1.0e-6} : tensor<1x32xbf16> -> tensor<1x32xbf16>
  return %1 : tensor<1x32xbf16>
}
