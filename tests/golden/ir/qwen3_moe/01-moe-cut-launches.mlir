module attributes {megalith.launches = [@embed, @layer, @layer, @last], megalith.model = "qwen3-moe-small.test"} {
  moe.weight @embed_tokens [512, 256] of bf16 from "model.embed_tokens.weight"
  moe.weight @input_norm [256] of bf16 from "model.layers.{layer}.input_layernorm.weight"
  moe.weight @q_proj [512, 256] of bf16 from "model.layers.{layer}.self_attn.q_proj.weight"
  moe.weight @k_proj [128, 256] of bf16 from "model.layers.{layer}.self_attn.k_proj.weight"
  moe.weight @v_proj [128, 256] of bf16 from "model.layers.{layer}.self_attn.v_proj.weight"
  moe.weight @q_norm [64] of bf16 from "model.layers.{layer}.self_attn.q_norm.weight"
  moe.weight @k_norm [64] of bf16 from "model.layers.{layer}.self_attn.k_norm.weight"
  moe.weight @o_proj [256, 512] of bf16 from "model.layers.{layer}.self_attn.o_proj.weight"
  moe.weight @post_attention_norm [256] of bf16 from "model.layers.{layer}.post_attention_layernorm.weight"
  moe.weight @router [16, 256] of bf16 from "model.layers.{layer}.mlp.gate.weight"
  moe.weight @experts_gate [16, 128, 256] of bf16 from "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight"
  moe.weight @experts_up [16, 128, 256] of bf16 from "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"
  moe.weight @experts_down [16, 256, 128] of bf16 from "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"
  moe.weight @final_norm [256] of bf16 from "model.norm.weight"
  moe.weight @lm_head [512, 256] of bf16 from "lm_head.weight"
  func.func @embed(%arg0: tensor<2xi32>) -> (tensor<2x256xbf16>, tensor<2x512xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>) attributes {megalith.launch = "embed", why = [{because = "a launch ends behind the projections of the next layer, so that only their words and the residual cross; 1 of 4 launches is between layers of these kinds", by = "moe-cut-launches", chose = "from the embedding to the q, k, v of a layer @layer", what = "launch"}]} {
    %0 = moe.embed %arg0 weight(@embed_tokens) : tensor<2xi32> -> tensor<2x256xbf16>
    %1 = moe.norm %0 rms weight(@input_norm) {eps = 9.9999999999999995E-7 : f64, megalith.next} : tensor<2x256xbf16> -> tensor<2x256xbf16>
    %q, %k, %v = moe.qkv_proj %1 q(@q_proj) k(@k_proj) v(@v_proj) {head_dim = 64 : i64, heads = 8 : i64, kv_heads = 2 : i64, megalith.next} : tensor<2x256xbf16> -> tensor<2x512xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>
    return %0, %q, %k, %v : tensor<2x256xbf16>, tensor<2x512xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>
  }
  func.func @layer(%arg0: tensor<2x256xbf16>, %arg1: tensor<2x512xbf16>, %arg2: tensor<2x128xbf16>, %arg3: tensor<2x128xbf16>, %arg4: !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>) -> (tensor<2x256xbf16>, tensor<2x512xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>) attributes {megalith.launch = "layer", why = [{because = "a launch ends behind the projections of the next layer, so that only their words and the residual cross; 2 of 4 launches are between layers of these kinds", by = "moe-cut-launches", chose = "from attention of a layer @layer to the q, k, v of a layer @layer", what = "launch"}]} {
    %q_out, %k_out = moe.qk_norm %arg1, %arg2 rms q(@q_norm) k(@k_norm) {eps = 9.9999999999999995E-7 : f64, head_dim = 64 : i64} : tensor<2x512xbf16>, tensor<2x128xbf16> -> tensor<2x512xbf16>, tensor<2x128xbf16>
    %q_out_0, %k_out_1 = moe.rope %q_out, %k_out half_split {head_dim = 64 : i64, rotary_dims = 64 : i64, theta = 1.000000e+06 : f64} : tensor<2x512xbf16>, tensor<2x128xbf16> -> tensor<2x512xbf16>, tensor<2x128xbf16>
    %0 = moe.kv_append %arg4, %k_out_1, %arg3 : !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>, tensor<2x128xbf16>, tensor<2x128xbf16>
    %1 = moe.attention %q_out_0, %0 full {heads = 8 : i64, scale = 1.250000e-01 : f64} : tensor<2x512xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096> -> tensor<2x512xbf16>
    %2 = moe.linear %1 weight(@o_proj) : tensor<2x512xbf16> -> tensor<2x256xbf16>
    %3 = moe.residual %arg0, %2 plain : tensor<2x256xbf16>, tensor<2x256xbf16> -> tensor<2x256xbf16>
    %4 = moe.norm %3 rms weight(@post_attention_norm) {eps = 9.9999999999999995E-7 : f64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
    %5 = moe.router %4 weight(@router) : tensor<2x256xbf16> -> tensor<2x16xf32>
    %ids, %weights = moe.top_k %5 softmax {k = 4 : i64, renormalize = true} : tensor<2x16xf32> -> tensor<2x4xi32>, tensor<2x4xf32>
    %gate, %up = moe.expert_gate_up %4, %ids gate(@experts_gate) up(@experts_up) : tensor<2x256xbf16>, tensor<2x4xi32> -> tensor<8x128xbf16>, tensor<8x128xbf16>
    %6 = moe.glu %gate, %up silu : tensor<8x128xbf16>, tensor<8x128xbf16> -> tensor<8x128xbf16>
    %7 = moe.expert_down %6, %ids weight(@experts_down) : tensor<8x128xbf16>, tensor<2x4xi32> -> tensor<8x256xbf16>
    %8 = moe.combine %weights, %7 : tensor<2x4xf32>, tensor<8x256xbf16> -> tensor<2x256xbf16>
    %9 = moe.residual %3, %8 plain : tensor<2x256xbf16>, tensor<2x256xbf16> -> tensor<2x256xbf16>
    %10 = moe.norm %9 rms weight(@input_norm) {eps = 9.9999999999999995E-7 : f64, megalith.next} : tensor<2x256xbf16> -> tensor<2x256xbf16>
    %q, %k, %v = moe.qkv_proj %10 q(@q_proj) k(@k_proj) v(@v_proj) {head_dim = 64 : i64, heads = 8 : i64, kv_heads = 2 : i64, megalith.next} : tensor<2x256xbf16> -> tensor<2x512xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>
    return %9, %q, %k, %v, %0 : tensor<2x256xbf16>, tensor<2x512xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>
  }
  func.func @last(%arg0: tensor<2x256xbf16>, %arg1: tensor<2x512xbf16>, %arg2: tensor<2x128xbf16>, %arg3: tensor<2x128xbf16>, %arg4: !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>) -> (tensor<2x256xbf16>, tensor<2x512xf32>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>) attributes {megalith.launch = "last", why = [{because = "a launch ends behind the projections of the next layer, so that only their words and the residual cross; 1 of 4 launches is between layers of these kinds", by = "moe-cut-launches", chose = "from attention of a layer @layer to the logits", what = "launch"}]} {
    %q_out, %k_out = moe.qk_norm %arg1, %arg2 rms q(@q_norm) k(@k_norm) {eps = 9.9999999999999995E-7 : f64, head_dim = 64 : i64} : tensor<2x512xbf16>, tensor<2x128xbf16> -> tensor<2x512xbf16>, tensor<2x128xbf16>
    %q_out_0, %k_out_1 = moe.rope %q_out, %k_out half_split {head_dim = 64 : i64, rotary_dims = 64 : i64, theta = 1.000000e+06 : f64} : tensor<2x512xbf16>, tensor<2x128xbf16> -> tensor<2x512xbf16>, tensor<2x128xbf16>
    %0 = moe.kv_append %arg4, %k_out_1, %arg3 : !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>, tensor<2x128xbf16>, tensor<2x128xbf16>
    %1 = moe.attention %q_out_0, %0 full {heads = 8 : i64, scale = 1.250000e-01 : f64} : tensor<2x512xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096> -> tensor<2x512xbf16>
    %2 = moe.linear %1 weight(@o_proj) : tensor<2x512xbf16> -> tensor<2x256xbf16>
    %3 = moe.residual %arg0, %2 plain : tensor<2x256xbf16>, tensor<2x256xbf16> -> tensor<2x256xbf16>
    %4 = moe.norm %3 rms weight(@post_attention_norm) {eps = 9.9999999999999995E-7 : f64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
    %5 = moe.router %4 weight(@router) : tensor<2x256xbf16> -> tensor<2x16xf32>
    %ids, %weights = moe.top_k %5 softmax {k = 4 : i64, renormalize = true} : tensor<2x16xf32> -> tensor<2x4xi32>, tensor<2x4xf32>
    %gate, %up = moe.expert_gate_up %4, %ids gate(@experts_gate) up(@experts_up) : tensor<2x256xbf16>, tensor<2x4xi32> -> tensor<8x128xbf16>, tensor<8x128xbf16>
    %6 = moe.glu %gate, %up silu : tensor<8x128xbf16>, tensor<8x128xbf16> -> tensor<8x128xbf16>
    %7 = moe.expert_down %6, %ids weight(@experts_down) : tensor<8x128xbf16>, tensor<2x4xi32> -> tensor<8x256xbf16>
    %8 = moe.combine %weights, %7 : tensor<2x4xf32>, tensor<8x256xbf16> -> tensor<2x256xbf16>
    %9 = moe.residual %3, %8 plain : tensor<2x256xbf16>, tensor<2x256xbf16> -> tensor<2x256xbf16>
    %10 = moe.norm %9 rms weight(@final_norm) {eps = 9.9999999999999995E-7 : f64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
    %11 = moe.lm_head %10 weight(@lm_head) : tensor<2x256xbf16> -> tensor<2x512xf32>
    return %9, %11, %0 : tensor<2x256xbf16>, tensor<2x512xf32>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>
  }
}

