// What constants bound, and what they do not.
// RUN: megalith-opt %s --moe-bound-scores | FileCheck %s

!kv = !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 1048576>
!kv8 = !moe.kv<heads = 2, head_dim = 64, element = f8E4M3FN, positions = 1048576>
!q = tensor<1x256xbf16>
!k = tensor<1x128xbf16>

moe.weight @gain [64] of bf16 from "g"
moe.weight @sinks [4] of bf16 from "s"

// 64 * 0.6841258107984375 = 43.784, times (1 + 2^-8)^2 for the two norms and (1 + 2^-16).
// CHECK-LABEL: @norms
// CHECK: moe.attention {{.*}} score_bound = 44.12{{[0-9]+}}
func.func @norms(%q: !q, %k: !k, %v: !k, %kv: !kv) -> tensor<1x256xf32> {
  %q1, %k1 = moe.qk_norm %q, %k rms_weightless {head_dim = 64, eps = 1.0e-5} : !q, !k -> !q, !k
  %kv1 = moe.kv_append %kv, %k1, %v : !kv, !k, !k
  %o = moe.attention %q1, %kv1 full {heads = 4, scale = 0.6841258107984375} : !q, !kv -> tensor<1x256xf32>
  return %o : tensor<1x256xf32>
}

// Each rotation rounds once more: (1 + 2^-8)^4.
// CHECK-LABEL: @rotated
// CHECK: moe.attention {{.*}} score_bound = 44.47{{[0-9]+}}
func.func @rotated(%q: !q, %k: !k, %v: !k, %kv: !kv) -> tensor<1x256xf32> {
  %q1, %k1 = moe.qk_norm %q, %k rms_weightless {head_dim = 64, eps = 1.0e-5} : !q, !k -> !q, !k
  %q2, %k2 = moe.rope %q1, %k1 half_split {head_dim = 64, rotary_dims = 64, theta = 5.0e5} : !q, !k -> !q, !k
  %kv1 = moe.kv_append %kv, %k2, %v : !kv, !k, !k
  %o = moe.attention %q2, %kv1 window {heads = 4, scale = 0.6841258107984375, extent = 2048} : !q, !kv -> tensor<1x256xf32>
  return %o : tensor<1x256xf32>
}

// The factor may stand on q instead.
// CHECK-LABEL: @query_scale
// CHECK: moe.attention {{.*}} score_bound = 44.12{{[0-9]+}}
func.func @query_scale(%q: !q, %k: !k, %v: !k, %kv: !kv) -> tensor<1x256xf32> {
  %q1, %k1 = moe.qk_norm %q, %k rms_weightless {head_dim = 64, eps = 1.0e-5, q_scale = 5.4730064863875} : !q, !k -> !q, !k
  %kv1 = moe.kv_append %kv, %k1, %v : !kv, !k, !k
  %o = moe.attention %q1, %kv1 full {heads = 4, scale = 0.125} : !q, !kv -> tensor<1x256xf32>
  return %o : tensor<1x256xf32>
}

// A cache of three mantissa bits rounds more, below 2^-6 by half of 2^-9 whatever the number.
// CHECK-LABEL: @fp8_cache
// CHECK: moe.attention {{.*}} score_bound = 46.92{{[0-9]+}}
func.func @fp8_cache(%q: !q, %k: !k, %v: !k, %kv: !kv8) -> tensor<1x256xf32> {
  %q1, %k1 = moe.qk_norm %q, %k rms_weightless {head_dim = 64, eps = 1.0e-5} : !q, !k -> !q, !k
  %kv1 = moe.kv_append %kv, %k1, %v : !kv8, !k, !k
  %o = moe.attention %q1, %kv1 full {heads = 4, scale = 0.6841258107984375} : !q, !kv8 -> tensor<1x256xf32>
  return %o : tensor<1x256xf32>
}

// exp(64.5) for a million keys: too much.
// CHECK-LABEL: @too_large
// CHECK: moe.attention
// CHECK-NOT: score_bound
func.func @too_large(%q: !q, %k: !k, %v: !k, %kv: !kv) -> tensor<1x256xf32> {
  %q1, %k1 = moe.qk_norm %q, %k rms_weightless {head_dim = 64, eps = 1.0e-5} : !q, !k -> !q, !k
  %kv1 = moe.kv_append %kv, %k1, %v : !kv, !k, !k
  %o = moe.attention %q1, %kv1 full {heads = 4, scale = 1.0} : !q, !kv -> tensor<1x256xf32>
  return %o : tensor<1x256xf32>
}

// A weight decides how long a query is.
// CHECK-LABEL: @weighted
// CHECK: moe.attention
// CHECK-NOT: score_bound
func.func @weighted(%q: !q, %k: !k, %v: !k, %kv: !kv) -> tensor<1x256xf32> {
  %q1, %k1 = moe.qk_norm %q, %k rms q(@gain) k(@gain) {head_dim = 64, eps = 1.0e-5} : !q, !k -> !q, !k
  %kv1 = moe.kv_append %kv, %k1, %v : !kv, !k, !k
  %o = moe.attention %q1, %kv1 full {heads = 4, scale = 0.125} : !q, !kv -> tensor<1x256xf32>
  return %o : tensor<1x256xf32>
}

// Keys as projected.
// CHECK-LABEL: @keys_not_normed
// CHECK: moe.attention
// CHECK-NOT: score_bound
func.func @keys_not_normed(%q: !q, %k: !k, %v: !k, %kv: !kv) -> tensor<1x256xf32> {
  %q1, %k1 = moe.qk_norm %q, %k rms_weightless {head_dim = 64, eps = 1.0e-5} : !q, !k -> !q, !k
  %kv1 = moe.kv_append %kv, %k, %v : !kv, !k, !k
  %o = moe.attention %q1, %kv1 full {heads = 4, scale = 0.125} : !q, !kv -> tensor<1x256xf32>
  return %o : tensor<1x256xf32>
}

// A cache from elsewhere.
// CHECK-LABEL: @cache_of_others
// CHECK: moe.attention
// CHECK-NOT: score_bound
func.func @cache_of_others(%q: !q, %k: !k, %kv: !kv) -> tensor<1x256xf32> {
  %q1, %k1 = moe.qk_norm %q, %k rms_weightless {head_dim = 64, eps = 1.0e-5} : !q, !k -> !q, !k
  %o = moe.attention %q1, %kv full {heads = 4, scale = 0.125} : !q, !kv -> tensor<1x256xf32>
  return %o : tensor<1x256xf32>
}

// A sink's logit is a weight.
// CHECK-LABEL: @with_sinks
// CHECK: moe.attention
// CHECK-NOT: score_bound
func.func @with_sinks(%q: !q, %k: !k, %v: !k, %kv: !kv) -> tensor<1x256xf32> {
  %q1, %k1 = moe.qk_norm %q, %k rms_weightless {head_dim = 64, eps = 1.0e-5} : !q, !k -> !q, !k
  %kv1 = moe.kv_append %kv, %k1, %v : !kv, !k, !k
  %o = moe.attention %q1, %kv1 full sinks(@sinks) {heads = 4, scale = 0.125} : !q, !kv -> tensor<1x256xf32>
  return %o : tensor<1x256xf32>
}
