// A step of three equal layers is cut into three kernels, and each becomes sliced stages.
// RUN: megalith-opt %s --moe-cut-launches | FileCheck %s --check-prefix=CUT
// RUN: megalith-opt %s -pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=8},task.kernel(task-choose-tiles,task-assign-sms))' | FileCheck %s
// With SMs to spare a head's partial results are merged in four parts, each with its own m and l.
// RUN: megalith-opt %s -pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=132})' | FileCheck %s --check-prefix=PARTS

// Launches in order, equal layers once; what crosses a boundary is the residual and the raw q, k, v.
// CUT: module attributes {megalith.launches = [@embed, @layer, @layer, @last]}
// CUT: func.func @embed(%{{.*}}: tensor<2xi32>) -> (tensor<2x256xbf16>, tensor<2x512xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>)
// CUT: moe.qkv_proj {{.*}}megalith.next
// CUT: func.func @layer(%[[S:.*]]: tensor<2x256xbf16>, %[[Q:.*]]: tensor<2x512xbf16>, %[[K:.*]]: tensor<2x128xbf16>, %[[V:.*]]: tensor<2x128xbf16>, %{{.*}}: !moe.kv
// The layer's own projections are gone: their results came in.
// CUT-NEXT: moe.qk_norm %[[Q]], %[[K]]
// CUT: moe.residual %[[S]]
// CUT: moe.qkv_proj {{.*}}megalith.next
// CUT: func.func @last
// CUT: moe.lm_head
// CUT-NOT: moe.step

// CHECK: module attributes {megalith.launches = [@embed, @layer, @layer, @last]}
// CHECK: task.kernel @embed "embed" target "sm_90a" sms 8 rows 2
// CHECK: task.buffer @embedding [512, 256] bf16 global immutable {checkpoint = "model.embed_tokens.weight", slot = 0 : i64}
// CHECK: task.stage @embed embed tiles 8 sms 8 {{.*}} writes [@resid[0, d0 * 32] 2 x [32]]
// CHECK: task.weights @w_qkv n 768 k 256 {{.*}}layer_offset = 1
// CHECK: task.stage @qkv_proj linear {{.*}} norm = "rms", unit = 48

// Norm, qk-norm, rope, KV write, activation, combine and residuals have no stage of their own.
// CHECK: task.kernel @layer
// CHECK: task.stage @attention attention reads [@qkv[0, 0] 2 x [768] previous, @kv[0, 0] 2 x [8192]] writes [@partials{{.*}}, @kv
// CHECK-SAME: merge_parts = 1 : i64, {{.*}}qk_norm = "head"
// PARTS: task.buffer @partials [2048, 18] f32 global value
// PARTS: merge_parts = 4 : i64
// CHECK: task.stage @merge merge
// CHECK: task.stage @o_proj linear tiles 8 sms 8 {{.*}}@resid[0, d0 * 32] 2 x [32] previous] writes [@mid[0, d0 * 32] 2 x [32]] config {epilogue = "residual"
// CHECK: task.stage @router linear {{.*}} config {epilogue = "logits"
// CHECK: task.stage @top_k top_k {{.*}} config {{.*}}renormalize = true
// CHECK: task.weights @w_up n 256 k 256 {{.*}} gate_up
// The experts take the rows that the router's stage left normed.
// CHECK: task.stage @expert_up expert_up {{.*}} writes [@act[0, d0 * 16] 8 x [16]] {{.*}}shares_input = @router
// CHECK: task.stage @expert_down expert_down {{.*}} writes [@resid[0, d0 * 32] 2 x [32]] config {epilogue = "combine_residual"
// CHECK: task.stage @qkv_proj linear

// CHECK: task.kernel @last
// CHECK: task.buffer @out [2, 512] f32 global written
// CHECK: task.stage @head linear {{.*}} config {epilogue = "head"
// CHECK-NOT: moe.weight

moe.weight @embed_tokens [512, 256] of bf16 from "model.embed_tokens.weight"
moe.weight @input_norm [256] of bf16 from "model.layers.{layer}.input_layernorm.weight"
moe.weight @mlp_norm [256] of bf16 from "model.layers.{layer}.post_attention_layernorm.weight"
moe.weight @q_proj [512, 256] of bf16 from "model.layers.{layer}.self_attn.q_proj.weight"
moe.weight @k_proj [128, 256] of bf16 from "model.layers.{layer}.self_attn.k_proj.weight"
moe.weight @v_proj [128, 256] of bf16 from "model.layers.{layer}.self_attn.v_proj.weight"
moe.weight @q_norm [64] of bf16 from "model.layers.{layer}.self_attn.q_norm.weight"
moe.weight @k_norm [64] of bf16 from "model.layers.{layer}.self_attn.k_norm.weight"
moe.weight @o_proj [256, 512] of bf16 from "model.layers.{layer}.self_attn.o_proj.weight"
moe.weight @router [16, 256] of bf16 from "model.layers.{layer}.mlp.gate.weight"
moe.weight @experts_gate [16, 128, 256] of bf16 from "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight"
moe.weight @experts_up [16, 128, 256] of bf16 from "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"
moe.weight @experts_down [16, 256, 128] of bf16 from "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"
moe.weight @final_norm [256] of bf16 from "model.norm.weight"
moe.weight @lm_head [512, 256] of bf16 from "lm_head.weight"

func.func @embed(%tokens: tensor<2xi32>) -> tensor<2x256xbf16> {
  %s = moe.embed %tokens weight(@embed_tokens) : tensor<2xi32> -> tensor<2x256xbf16>
  return %s : tensor<2x256xbf16>
}

func.func @layer(%s0: tensor<2x256xbf16>, %kv0: !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 1024>)
    -> (tensor<2x256xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 1024>) {
  %x = moe.norm %s0 rms weight(@input_norm) {eps = 1.0e-6} : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %q, %k, %v = moe.qkv_proj %x q(@q_proj) k(@k_proj) v(@v_proj) {heads = 8, kv_heads = 2, head_dim = 64}
      : tensor<2x256xbf16> -> tensor<2x512xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>
  %qn, %kn = moe.qk_norm %q, %k rms q(@q_norm) k(@k_norm) {head_dim = 64, eps = 1.0e-6}
      : tensor<2x512xbf16>, tensor<2x128xbf16> -> tensor<2x512xbf16>, tensor<2x128xbf16>
  %qr, %kr = moe.rope %qn, %kn half_split {head_dim = 64, rotary_dims = 64, theta = 1.0e6}
      : tensor<2x512xbf16>, tensor<2x128xbf16> -> tensor<2x512xbf16>, tensor<2x128xbf16>
  %kv = moe.kv_append %kv0, %kr, %v : !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 1024>, tensor<2x128xbf16>, tensor<2x128xbf16>
  %o = moe.attention %qr, %kv full {heads = 8, scale = 0.125}
      : tensor<2x512xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 1024> -> tensor<2x512xbf16>
  %a = moe.linear %o weight(@o_proj) : tensor<2x512xbf16> -> tensor<2x256xbf16>
  %s1 = moe.residual %s0, %a plain : tensor<2x256xbf16>, tensor<2x256xbf16> -> tensor<2x256xbf16>
  %y = moe.norm %s1 rms weight(@mlp_norm) {eps = 1.0e-6} : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %z = moe.router %y weight(@router) : tensor<2x256xbf16> -> tensor<2x16xf32>
  %ids, %w = moe.top_k %z softmax {k = 4, renormalize = true} : tensor<2x16xf32> -> tensor<2x4xi32>, tensor<2x4xf32>
  %g, %u = moe.expert_gate_up %y, %ids gate(@experts_gate) up(@experts_up)
      : tensor<2x256xbf16>, tensor<2x4xi32> -> tensor<8x128xbf16>, tensor<8x128xbf16>
  %h = moe.glu %g, %u silu : tensor<8x128xbf16>, tensor<8x128xbf16> -> tensor<8x128xbf16>
  %d = moe.expert_down %h, %ids weight(@experts_down) : tensor<8x128xbf16>, tensor<2x4xi32> -> tensor<8x256xbf16>
  %m = moe.combine %w, %d : tensor<2x4xf32>, tensor<8x256xbf16> -> tensor<2x256xbf16>
  %s2 = moe.residual %s1, %m plain : tensor<2x256xbf16>, tensor<2x256xbf16> -> tensor<2x256xbf16>
  return %s2, %kv : tensor<2x256xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 1024>
}

func.func @head(%s: tensor<2x256xbf16>) -> tensor<2x512xf32> {
  %x = moe.norm %s rms weight(@final_norm) {eps = 1.0e-6} : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %z = moe.lm_head %x weight(@lm_head) : tensor<2x256xbf16> -> tensor<2x512xf32>
  return %z : tensor<2x512xf32>
}

moe.step @decode embed(@embed) layers(@layer * 3) head(@head)
