// A small model as a graph: three equal layers of attention and experts, two rows.
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
