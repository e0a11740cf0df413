// One model whose layers hold two parallel branches, followed through every pass from its graph to the
// proof: at no level does a branch come to wait for the other, and only their join waits for both.
// RUN: megalith-opt %s --mlir-disable-threading --pass-pipeline='builtin.module(megalith-pipeline{sms=4},task-verify)' --mlir-print-ir-after-all -o /dev/null 2>&1 | FileCheck %s

// CHECK-LABEL: After CutLaunches
// CHECK: func.func @layer
// CHECK: %[[Y:.*]] = moe.norm {{.*}} weight(@mlp_norm)
// CHECK-NEXT: %[[A:.*]] = moe.linear %[[Y]] weight(@a_in)
// CHECK-NEXT: %[[B:.*]] = moe.linear %[[Y]] weight(@b_in)
// CHECK-NEXT: %[[C:.*]] = moe.linear %[[A]] weight(@a_out)
// CHECK-NEXT: %[[D:.*]] = moe.linear %[[B]] weight(@b_out)
// CHECK-NEXT: moe.residual %[[C]], %[[D]] plain

// The join is fused into the last stage of branch b, which reads branch a's result beside its own rows.
// CHECK-LABEL: After ConvertToTask
// CHECK: task.kernel @layer
// CHECK: task.stage @a_in linear {{.*}}reads [@mid[0, 0] 2 x [128], @w_a_in{{.*}}writes [@y_a_in[
// CHECK: task.stage @b_in linear {{.*}}reads [@w_b_in[0, 0] 32 x [1]] writes [@y_b_in[{{.*}}shares_input = @a_in
// CHECK: task.stage @a_out linear {{.*}}reads [@y_a_in[0, 0] 2 x [128], @w_a_out[0, 0] 64 x [1]] writes [@y_a_out[
// CHECK: task.stage @b_out linear {{.*}}reads [@y_b_in[0, 0] 2 x [64], @w_b_out[0, 0] 64 x [1], @y_a_out[0, 0] 2 x [128]] writes

// CHECK-LABEL: After ChooseTiles (task-choose-tiles) //----- //{{[[:space:]]}}task.kernel @layer
// CHECK: task.stage @a_out linear tiles 4 sms 4 reads [@y_a_in[0, 0] 2 x [128], @w_a_out[d0 * 16, 0] 16 x [1]] writes [@y_a_out[0, d0 * 32] 2 x [32]]
// CHECK: task.stage @b_out linear tiles 4 sms 4 reads [@y_b_in[0, 0] 2 x [64], @w_b_out[d0 * 16, 0] 16 x [1], @y_a_out[0, d0 * 32] 2 x [32]]

// CHECK-LABEL: After AssignSms (task-assign-sms) //----- //{{[[:space:]]}}task.kernel @layer
// CHECK: task.stage @a_out linear tiles 4 sms 4 assign
// CHECK: task.stage @b_out linear tiles 4 sms 4 assign

// CHECK-LABEL: After MaterializeExchanges (task-materialize-exchanges) //----- //{{[[:space:]]}}task.kernel @layer
// CHECK: task.edge [[#]] @y_a_in_words words epilogue -> consumer{{$| \{why}}
// CHECK: task.edge [[#]] @y_b_in_words words epilogue -> consumer{{$| \{why}}
// CHECK: task.edge [[#]] @y_a_out_words words epilogue -> epilogue{{$| \{why}}
// CHECK: task.stage @a_in {{.*}}depends = [@o_proj]{{[,}]}}
// CHECK: task.stage @b_in
// CHECK-NOT: depends
// CHECK: task.stage @a_out {{.*}}depends = [@a_in]{{[,}]}}
// CHECK: task.stage @b_out {{.*}}depends = [@b_in, @a_out]{{[,}]}}

// CHECK-LABEL: After ElideExchanges (task-elide-exchanges) //----- //{{[[:space:]]}}task.kernel @layer
// CHECK: task.stage @b_in
// CHECK-NOT: depends
// CHECK: task.stage @a_out {{.*}}depends = [@a_in]{{[,}]}}
// CHECK: task.stage @b_out {{.*}}depends = [@b_in, @a_out]{{[,}]}}

// CHECK-LABEL: After PlanStreams (task-plan-streams) //----- //{{[[:space:]]}}task.kernel @layer
// CHECK: task.stage @b_in {{.*}}attributes {stream =
// CHECK: task.stage @a_out {{.*}}depends = [@a_in], stream =
// CHECK: task.stage @b_out {{.*}}depends = [@b_in, @a_out], stream =

// CHECK-LABEL: After SelectProtocol
// CHECK: task.kernel @layer
// CHECK: task.exchange @y_a_in [2, 128] bf16 sentinel sets 2
// CHECK: task.exchange @y_b_in [2, 64] bf16 sentinel sets 2
// CHECK: task.exchange @y_a_out [2, 128] bf16 sentinel sets 2

// CHECK-LABEL: After PlanMemory (task-plan-memory) //----- //{{[[:space:]]}}task.kernel @layer
// CHECK: task.buffer @b_out_kept [2, 32] bf16 smem scratch {offset =

// Both branches take the rows normed once; each then polls its own, and branch a's result is polled by
// the join's epilogue alone.
// CHECK-LABEL: After LowerToRoles (task-lower-to-roles) //----- //{{[[:space:]]}}task.kernel @layer
// CHECK: task.stage @a_in
// CHECK: task.poll {{.*}}waits @mid_words
// CHECK: task.compute "epilogue_words<a_in, y_a_in_words>"
// CHECK: task.stage @b_in
// CHECK-NOT: task.poll
// CHECK: task.compute "epilogue_words<b_in, y_b_in_words>"
// CHECK-NOT: task.poll
// CHECK: task.stage @a_out
// CHECK: task.poll "poll_chunk<y_a_in_words, a_out::In>"
// CHECK-NOT: task.poll
// CHECK: task.stage @b_out
// CHECK: task.poll "poll_chunk<y_b_in_words, b_out::In>"
// CHECK-NOT: task.poll
// CHECK: task.role epilogue
// CHECK-NEXT: task.poll "fetch_slice<b_out, y_a_out_words, b_out_kept>"
// CHECK-NOT: task.poll
// CHECK: task.stage @mix

// CHECK-LABEL: After VerifyTask
// CHECK: task.kernel @layer

moe.weight @embed_tokens [512, 128] of bf16 from "model.embed_tokens.weight"
moe.weight @input_norm [128] of bf16 from "model.layers.{layer}.input_layernorm.weight"
moe.weight @mlp_norm [128] of bf16 from "model.layers.{layer}.post_attention_layernorm.weight"
moe.weight @q_proj [256, 128] of bf16 from "model.layers.{layer}.self_attn.q_proj.weight"
moe.weight @k_proj [64, 128] of bf16 from "model.layers.{layer}.self_attn.k_proj.weight"
moe.weight @v_proj [64, 128] of bf16 from "model.layers.{layer}.self_attn.v_proj.weight"
moe.weight @o_proj [128, 256] of bf16 from "model.layers.{layer}.self_attn.o_proj.weight"
moe.weight @a_in [128, 128] of bf16 from "model.layers.{layer}.a_in.weight"
moe.weight @b_in [64, 128] of bf16 from "model.layers.{layer}.b_in.weight"
moe.weight @a_out [128, 128] of bf16 from "model.layers.{layer}.a_out.weight"
moe.weight @b_out [128, 64] of bf16 from "model.layers.{layer}.b_out.weight"
moe.weight @mix [128, 128] of bf16 from "model.layers.{layer}.mix.weight"
moe.weight @final_norm [128] of bf16 from "model.norm.weight"
moe.weight @lm_head [512, 128] of bf16 from "lm_head.weight"

!rows = tensor<2x128xbf16>
!pages = !moe.kv<heads = 1, head_dim = 64, element = bf16, positions = 1024>

func.func @embed(%tokens: tensor<2xi32>) -> !rows {
  %s = moe.embed %tokens weight(@embed_tokens) : tensor<2xi32> -> !rows
  return %s : !rows
}

func.func @layer(%s0: !rows, %kv0: !pages) -> (!rows, !pages) {
  %x = moe.norm %s0 rms weight(@input_norm) {eps = 1.0e-6} : !rows -> !rows
  %q, %k, %v = moe.qkv_proj %x q(@q_proj) k(@k_proj) v(@v_proj) {heads = 4, kv_heads = 1, head_dim = 64}
      : !rows -> tensor<2x256xbf16>, tensor<2x64xbf16>, tensor<2x64xbf16>
  %qr, %kr = moe.rope %q, %k half_split {head_dim = 64, rotary_dims = 64, theta = 1.0e6}
      : tensor<2x256xbf16>, tensor<2x64xbf16> -> tensor<2x256xbf16>, tensor<2x64xbf16>
  %kv = moe.kv_append %kv0, %kr, %v : !pages, tensor<2x64xbf16>, tensor<2x64xbf16>
  %o = moe.attention %qr, %kv full {heads = 4, scale = 0.125} : tensor<2x256xbf16>, !pages -> tensor<2x256xbf16>
  %p = moe.linear %o weight(@o_proj) : tensor<2x256xbf16> -> !rows
  %s1 = moe.residual %s0, %p plain : !rows, !rows -> !rows
  %y = moe.norm %s1 rms weight(@mlp_norm) {eps = 1.0e-6} : !rows -> !rows
  // The two branches.
  %a = moe.linear %y weight(@a_in) : !rows -> !rows
  %b = moe.linear %y weight(@b_in) : !rows -> tensor<2x64xbf16>
  %c = moe.linear %a weight(@a_out) : !rows -> !rows
  %d = moe.linear %b weight(@b_out) : tensor<2x64xbf16> -> !rows
  // Their join.
  %e = moe.residual %c, %d plain : !rows, !rows -> !rows
  %m = moe.linear %e weight(@mix) : !rows -> !rows
  %s2 = moe.residual %s1, %m plain : !rows, !rows -> !rows
  return %s2, %kv : !rows, !pages
}

func.func @head(%s: !rows) -> tensor<2x512xf32> {
  %x = moe.norm %s rms weight(@final_norm) {eps = 1.0e-6} : !rows -> !rows
  %z = moe.lm_head %x weight(@lm_head) : !rows -> tensor<2x512xf32>
  return %z : tensor<2x512xf32>
}

moe.step @decode embed(@embed) layers(@layer * 3) head(@head)
