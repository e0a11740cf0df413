// An fp32 stream with gated residuals and normed branches, gated attention with and without a window,
// experts in a width of their own whose outputs are normed: which stages and exchanges that becomes
// (docs/kernel-contract.md section 12), down to role regions that are proved.
// RUN: megalith-opt %s --moe-cut-launches | FileCheck %s --check-prefix=CUT
// RUN: megalith-opt %s -pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=8},task.kernel(task-choose-tiles,task-assign-sms))' | FileCheck %s
// RUN: megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=8},task-verify)' | FileCheck %s --check-prefix=ROLES
// RUN: megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=11},task-verify)' | FileCheck %s --check-prefix=ROLES
// RUN: megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2},task-verify)' | FileCheck %s --check-prefix=RANKS
// RUN: sed -e 's/<2x/<4x/g; s/<8x128/<16x128/g' %s | megalith-opt -pass-pipeline='builtin.module(megalith-pipeline{sms=8},task-verify)' | FileCheck %s --check-prefix=DEALT
// RUN: sed -e 's/<2x/<4x/g; s/<8x128/<16x128/g' %s | megalith-opt -pass-pipeline='builtin.module(megalith-pipeline{sms=3},task-verify)' | FileCheck %s --check-prefix=FEW
// RUN: sed -e 's/<2x/<1x/g; s/<8x128/<4x128/g' %s | megalith-opt -pass-pipeline='builtin.module(megalith-pipeline{sms=2},task-verify)' | FileCheck %s --check-prefix=ONE
// RUN: sed -e 's/<2x/<1x/g; s/<8x128/<4x128/g' %s | megalith-opt -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2},task-verify)' | FileCheck %s --check-prefix=ADDED
// RUN: sed -e 's/<2x/<1x/g; s/<8x128/<4x128/g' %s | megalith-opt -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2 experts=nk},task-verify)' | FileCheck %s --check-prefix=ONEPART
// RUN: not megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=4})' 2>&1 | FileCheck %s --check-prefix=FOUR
// RUN: megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2 experts=nk},task-verify)' | FileCheck %s --check-prefix=PARTS
// RUN: megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=4 experts=nk sums=bf16},task-verify)' | FileCheck %s --check-prefix=ROUNDED
// RUN: megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2 o-proj=k},task-verify)' | FileCheck %s --check-prefix=HEADS
// RUN: megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=4 experts=nk o-proj=k sums=bf16},task-verify)' | FileCheck %s --check-prefix=BOTH
// RUN: not megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2 o-proj=k-ordered})' 2>&1 | FileCheck %s --check-prefix=ORDERED
// RUN: megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2 experts=nn-sums},task-verify)' | FileCheck %s --check-prefix=RANKS
// RUN: not megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2 experts=nn})' 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: not megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2 experts=kn})' 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: not megalith-opt %s -pass-pipeline='builtin.module(megalith-pipeline{sms=3 ranks=2 sums=f16})' 2>&1 | FileCheck %s --check-prefix=TYPE

// The gate's projection crosses the boundary with q, k and v.
// CUT: func.func @sliding(%{{.*}}: tensor<2x256xf32>, %{{.*}}: tensor<2x256xbf16>, %{{.*}}: tensor<2x128xbf16>, %{{.*}}: tensor<2x128xbf16>, %[[GATE:.*]]: tensor<2x256xbf16>, %{{.*}}: !moe.kv
// CUT-NOT: moe.linear {{.*}}@gate_proj
// CUT: moe.output_gate %{{.*}}, %[[GATE]]

// Embeddings are normed where they are read; without a branch a rows stage norms only.
// CHECK: task.kernel @embed
// CHECK: task.stage @embed embed reads {{.*}} writes [@resid[0, 0] 2 x [256]] config {{.*}}norm = "rms"
// CHECK: task.stage @in_rows rows reads [@resid[0, 0] 2 x [256]] writes [] config {branch_norm = "absent"
// CHECK: task.weights @w_qkv n 768 k 256 {{.*}}gate_proj.weight"] {layer_offset = 1
// CHECK: task.stage @qkv_proj linear {{.*}}shares_input = @in_rows

// CHECK: task.kernel @sliding
// CHECK: task.buffer @kv_window {{.*}} pages
// CHECK: task.stage @attention {{.*}}qk_norm = "head"{{.*}}rope_theta = {{.*}}window = 64
// CHECK: task.stage @merge merge reads [@partials{{.*}}, @qkv[0, 0] 2 x [768] previous] {{.*}}merge_parts = 1 : i64, norm = "head"
// CHECK: task.stage @o_proj linear {{.*}}@y_o_proj{{.*}}epilogue = "store"
// CHECK: task.buffer @c_attention_gate [2, 256] f32 global immutable {{.*}}kind = "residual_gate"
// CHECK: task.stage @mid_rows rows reads [@y_o_proj{{.*}}, @resid[0, 0] 2 x [256] previous] writes [@mid[0, 0] 2 x [256]] config {{.*}}branch_norm = "rms"
// CHECK: task.weights @w_router n 16 k 256 {{.*}}{wide}
// CHECK: task.stage @router linear {{.*}}multiplier = 5.000000e-01 : f64{{.*}}shares_input = @mid_rows
// What needs no routing goes before it.
// CHECK: task.stage @pooler linear {{.*}}shares_input = @mid_rows
// CHECK: task.stage @top_k top_k {{.*}}bias = @router_bias{{.*}}renormalize_eps = 1.000000e-15
// CHECK: task.stage @expert_up expert_up {{.*}}@y_pooler{{.*}}gain = @g_pre_expert_norm
// A slice of expert_down is whole groups of eight strips; combine deals out rows, whole sectors of each.
// CHECK: task.stage @expert_down expert_down tiles 8 sms 8 {{.*}} writes [@t[0, d0 * 16] 8 x [16], @squares[0, d0] 8 x [1]] config {epilogue = "squares"{{.*}}unit = 8
// CHECK: task.stage @combine_experts combine sms 8 reads [@t[0, 0] 8 x [128], @squares[0, 0] 8 x [8]] writes [@m[0, 0] 2 x [128]] {{.*}}row_sms = 4
// CHECK: task.stage @unpooler linear {{.*}}@m[0, 0] 2 x [128]
// CHECK: task.stage @out_rows rows reads [@y_unpooler{{.*}}, @mid[0, 0] 2 x [256]] writes [@resid[0, 0] 2 x [256]] config {{.*}}branch_norm = "input_scaled"
// CHECK: task.stage @qkv_proj linear {{.*}}shares_input = @out_rows

// CHECK: task.kernel @last
// CHECK: task.buffer @kv [
// CHECK-NOT: @inv_freq
// What is left of the stream is the host's, so the head's rows come from its words.
// CHECK: task.stage @out_rows rows {{.*}} writes [@resid
// CHECK: task.stage @final_rows rows reads [@resid[0, 0] 2 x [256]] writes [] {{.*}}round_stream = true
// CHECK: task.stage @head linear {{.*}}multiplier = 5.000000e-01 : f64{{.*}}softcap = 2.000000e+01

// ROLES: task.kernel @embed
// ROLES: task.compute "publish_normed_embedding<embed, resid_words, {{.*}}>"
// ROLES: task.poll "poll_stream<in_rows, resid_words>" ["row", "stream"] waits @resid_words
// ROLES-NEXT: task.compute "norm_row<in_rows>" ["row", "stream"]
// ROLES: task.kernel @sliding
// ROLES: task.poll "fetch_gate<attention, Previous<qkv_words>>" ["piece", "gate"] waits @qkv_words
// ROLES: task.compute "merge_gated<attention, merge, attn_words>"
// ROLES: task.stage @mid_rows rows
// ROLES: task.refill @xs
// ROLES: task.for "row" in 2
// ROLES-NEXT: task.local "stream" : "StreamWords<mid_rows>"
// ROLES-NEXT: task.poll "poll_stream<mid_rows, Previous<resid_words>>" ["row", "stream"] waits @resid_words reads [@resid[d1, 0] 1 x [256] previous, {{.*}} writes []
// ROLES-NEXT: task.local "branch" : "BranchWords<mid_rows>"
// ROLES-NEXT: task.poll "poll_branch<mid_rows, y_o_proj_words>" ["row", "branch"] waits @y_o_proj_words reads [@y_o_proj[d1, 0] 1 x [256]] writes []
// ROLES-NEXT: task.compute "join_row<mid_rows, mid_words>" ["row", "stream", "branch"] reads {{.*}} writes [@xs[d1, 0] 1 x [256], @row_sums[d1 * 2, 0] 2 x [8], @mid
// ROLES: task.compute "wide_block<router, ring, router::In>"
// ROLES: task.compute "store_wide_part<part, router>"
// ROLES: task.compute "epilogue_logits<router, logits_words>" ["mtile", "sum", "5.00000000e-01f"]
// ROLES: task.local "gain" : "const uint32_t" = "output_gain<expert_down, g_post_expert_norm>(cta, mtile)"
// ROLES-NEXT: task.wait @p_full
// ROLES: task.compute "epilogue_outputs<expert_down, t_words, squares_words, g_post_expert_norm>" ["mtile", "sum", "gain", "expert.pairs", "expert.count"] {{.*}} writes [@t[d1, 0, d0 * 16 + d2 * 16] 2 x [16{{.*}}] table @expert_id, @squares[d1, 0, d0 + d2] 2 x [1] table @expert_id]
// ROLES: base = "Combine<down_rows, pair_scales, 128, 1.00000000e-08f>"
// ROLES: task.poll "poll_outputs<combine_experts, t_words>" ["cta.sm / [[S:[0-9]]]", "cta.sm % [[S]]"] waits @t_words reads [@t[(d0 floordiv [[S]]) * 4, (d0 mod [[S]]) * {{[0-9]+}}] 4 x [{{.*}}]]
// ROLES-NEXT: task.poll "poll_scales<combine_experts, squares_words>" ["cta.sm / [[S]]"] waits @squares_words reads [@squares[(d0 floordiv [[S]]) * 4, 0] 4 x [8]]
// ROLES-NEXT: task.compute "combine_normed<combine_experts, m_words>"
// ROLES: task.poll "poll_stream<out_rows, mid_words>"
// ROLES: task.compute "join_row<out_rows, resid_words>"
// ROLES: task.kernel @last
// ROLES: task.compute "epilogue_head<head, out, LogitRule<5.00000000e-01f, 2.00000000e+01f, 512>>"

// One row: the poller routes, and the consumers wait for it with their rows normed.
// Attention and merge of one row are the consumers' alone.
// ONE: task.edge {{[0-9]+}} @partials_words words consumer -> consumer
// ONE: task.edge {{[0-9]+}} @attn_words words consumer -> consumer
// ONE: task.local "words" : "HeadWords<attention>"
// ONE-NEXT: task.poll "poll_heads<attention, Previous<qkv_words>>" ["tile", "words"] waits @qkv_words reads [@qkv[0, 0] 1 x [768] previous] writes []
// ONE-NEXT: task.compute "attention_begin<attention>" ["tile", "words", "constants", "state"]
// ONE: task.for "piece" in 2 iterate "MergeTiles<attention>"
// ONE: task.poll "fetch_gate<attention, Previous<qkv_words>>" ["piece", "gate"]
// ONE-NEXT: task.refill @mparts
// ONE-NEXT: task.poll "poll_partials<attention, partials_words>" ["piece"] waits @partials_words
// ONE-NEXT: task.compute "merge_gated<attention, merge, attn_words>" ["piece", "gate"] reads [@mparts[0, 0] 32 x [88]] writes [@attn[
// ONE: task.compute "load_bias<top_k>" [] reads [@router_bias
// ONE: task.poll "poll_own_row<logits_words, logits_rows>"
// ONE: task.compute "route_row<top_k>" ["bias"] reads [@logits_rows{{.*}} writes [@routing[0, 0] 1 x
// ONE-NEXT: task.signal @routed
// ONE-NEXT: task.compute "weigh_row<top_k>" [] reads [@logits_rows{{.*}} writes [@pair_weights[0, 0] 1 x [4]]
// ONE-NEXT: task.signal @weighed
// ONE: task.compute "rms_norm<expert_up::Norm>"
// ONE-NEXT: task.wait @routed
// Every SM adds the pairs of a single row for itself, and multiplies their sum.
// ONE: task.wait @weighed
// ONE-NOT: combine_experts
// ONE: task.stage @unpooler linear {{.*}}reads [@t[0, 0] 4 x [128], @squares[0, 0] 4 x [8], @w_unpooler{{.*}}Pairs = "PairRow<In, pair_scales, 4, 2, 1.00000000e-08f>"{{.*}}pairs = 4
// ONE: task.refill @xs
// ONE-NEXT: task.local "row" : "PairRowSums<unpooler::Pairs>" = "{}"
// ONE-NEXT: task.for "group" in 2 {
// ONE-NEXT: task.local "words" : "PairWords<unpooler::Pairs>"
// ONE-NEXT: task.poll "poll_pair_words<unpooler::Pairs, squares_words, t_words>" ["group", "words"] waits @t_words and @squares_words reads [@squares[d1 * 2, 0] 2 x [8], @t[d1 * 2, 0] 2 x [128]] writes [@pair_scales[0, d1 * 2] 1 x [2]]
// ONE-NEXT: task.compute "add_pairs<unpooler::Pairs>" ["group", "words", "weights_of<top_k>(cta)", "row"] reads [@pair_scales[0, d1 * 2] 1 x [2], @pair_weights{{.*}} writes [] meets always
// ONE: task.compute "store_pairs<unpooler::Pairs>" ["row"] reads [@pair_scales[0, 0] 1 x [4]] writes [@xs[0, 0] 1 x [128]]
// ONE-NOT: @m_words

// Outputs then go to all ranks; where ranks make parts of them, sums do as ever.
// ADDED: task.exchange @t [4, 128] bf16 {{.*}}{peers
// ADDED-NOT: task.exchange @m [
// ADDED: "epilogue_outputs<expert_down, t_words, squares_words, g_post_expert_norm>" {{.*}}@t[d1, 0, d0 * 32 + d2 * 16] 1 x [16] table @expert_id own, @squares[d1, 0, d0 * 2 + d2] 1 x [1] table @expert_id own]
// ADDED: task.poll "poll_pair_words<unpooler::Pairs, squares_words, t_words>" {{.*}}@t[d1 * 2, 0] 2 x [128]] writes
// ONEPART: task.poll "poll_parts<combine_experts, down_parts_words, g_post_expert_norm>"

// Four rows are dealt out: two SMs do a row together, whoever multiplies reads the normed rows; those of the
// launch's own stream lie behind its words. With three SMs each has a row, and one a second.
// DEALT: task.kernel @embed
// DEALT: task.poll "poll_stream<in_rows, resid_words>" ["cta.sm / 2", "stream"] waits @resid_words reads [@resid[d0 floordiv 2, 0] 1 x [256]
// DEALT: task.compute "deal_norm_row<in_rows, x_words, 2>" ["cta.sm / 2", "cta.sm % 2", "stream"] {{.*}}@x[d0 floordiv 2, (d0 mod 2) * 128] 1 x [128]]
// DEALT: task.poll "poll_chunk<x_words, qkv_proj::In>"
// DEALT: task.kernel @sliding
// DEALT: task.exchange @mid [4, 384] f32
// DEALT: task.stage @mid_rows rows {{.*}}writes [@mid[0, 0] 4 x [256], @mid[0, 256] 4 x [128]]
// DEALT: task.refill @row_sums
// DEALT: task.poll "poll_stream<mid_rows, Previous<resid_words>>"
// DEALT: task.poll "poll_branch<mid_rows, y_o_proj_words>" ["cta.sm / 2", "branch"] waits @y_o_proj_words reads [@y_o_proj[d0 floordiv 2, 0] 1 x [256]] writes []
// DEALT-NEXT: task.compute "deal_row<mid_rows, mid_words, Behind<mid_words, 256>, 2>" ["cta.sm / 2", "cta.sm % 2", "stream", "branch"]
// DEALT-SAME: @mid[d0 floordiv 2, (d0 mod 2) * 128] 1 x [128], @mid[d0 floordiv 2, (d0 mod 2) * 64 + 256] 1 x [64]]
// DEALT: task.poll "poll_chunk<Behind<mid_words, 256>, router::In>" [] waits @mid_words reads [@mid[0, 256] 4 x [128]]
// DEALT: task.stage @pooler linear {{.*}}shares_input = @router
// DEALT: task.compute "deal_row<out_rows, resid_words, x_words, 2>"
// DEALT: task.kernel @last
// DEALT: task.compute "deal_row<out_rows, resid_words, void, 2>"
// DEALT: task.compute "deal_norm_row<final_rows, x_words, 2>"
// FEW: task.for "turn" in [(-d0) floordiv 3 + 2]
// FEW: task.poll "poll_stream<in_rows, resid_words>" ["cta.sm + turn * 3", "stream"] waits @resid_words reads [@resid[d0 + d1 * 3, 0] 1 x [256]

// Two ranks: rows of the stream and the router on each, whole; slices of what is multiplied to both.
// RANKS: task.kernel @embed
// RANKS: task.compute "publish_normed_embedding<embed, resid_words, {{.*}}>" {{.*}}writes [@resid[0, d0 * 88] 2 x [88, d0 * -88 + 256]]
// RANKS: task.weights @w_qkv n 384 {{.*}}rank_rows = array<i64: 128, 64, 64, 128>
// RANKS: task.exchange @qkv {{.*}}rank_parts = array<i64: 128, 1, 64, 1, 64, 1, 128, 1>
// RANKS: task.kernel @sliding
// RANKS: "merge_gated<attention, merge, attn_words>" {{.*}} writes [@attn[{{.*}}] 1 x [64] own]
// RANKS: task.exchange @y_o_proj [2, 256] {{.*}}{peers
// RANKS: "epilogue_words<o_proj, y_o_proj_words>" {{.*}} own]
// RANKS: task.compute "join_row<mid_rows, mid_words>" {{.*}} @mid[d1, d0 * 88] 1 x [88, d0 * -88 + 256]]
// RANKS: task.weights @w_router n 16 k 256
// RANKS-NOT: rank_rows
// RANKS: task.weights @w_pooler n 64 {{.*}}rank_rows = array<i64: 64>
// RANKS: task.weights @w_up n 128 {{.*}}rank_rows = array<i64: 64, 64>
// RANKS: task.weights @w_down n 64 {{.*}}rank_rows = array<i64: 64>
// RANKS: task.buffer @g_post_expert_norm [1, 64] {{.*}}rank_parts = array<i64: 64, 1>
// RANKS: task.exchange @t [8, 64] {{.*}}rank_parts = array<i64: 64, 1>
// RANKS: "epilogue_outputs<expert_down, t_words, squares_words, g_post_expert_norm>" {{.*}}@t[d1, 0, d0 * 32 + d2 * 16] 2 x [16] table @expert_id, @squares[d1, 0, d0 * 2 + d2] 2 x [1] table @expert_id own]
// RANKS: task.poll "poll_outputs<combine_experts, t_words>" ["cta.sm", "0"] {{.*}}@t[d0 * 4, 0] 4 x [64]]
// RANKS: task.poll "poll_scales<combine_experts, squares_words>" ["cta.sm"] {{.*}}@squares[d0 * 4, 0] 4 x [8]]
// RANKS: "combine_normed<combine_experts, m_words>" {{.*}}@m[d0, 0] 1 x [64] own]
// RANKS: task.kernel @last
// RANKS: "epilogue_head<head, out, LogitRule<5.00000000e-01f, 2.00000000e+01f, 512>>"

// Two ranks that divide the down projection by K: activations are each rank's own, parts of the outputs go to both, who
// add them, so that sums of squares and what follows stay on a rank.
// PARTS: task.kernel @sliding
// PARTS: task.weights @w_up n 128 {{.*}}rank_rows = array<i64: 64, 64>
// PARTS: task.exchange @act [8, 64] {{.*}}rank_parts = array<i64: 64, 1>
// PARTS: task.weights @w_down n 128 k 64
// PARTS-NOT: rank_rows
// PARTS: task.exchange @down_parts [8, 256] f32 sentinel sets 2 {{.*}}{peers
// PARTS: "epilogue_parts<expert_down, down_parts_words>" {{.*}} writes [@down_parts[d1, 0, d0 * 48 + d2 * 16] 2 x [16{{.*}}] table @expert_id own]
// PARTS: task.stage @combine_experts combine {{.*}}reads [@down_parts[0, 0] 8 x [256], @squares[0, 0] 8 x [8]] writes [@m[0, 0] 2 x [128], @squares[0, 0] 8 x [8]] {{.*}}gain = @g_post_expert_norm{{.*}}parts = 2
// PARTS: task.poll "poll_parts<combine_experts, down_parts_words, g_post_expert_norm>" {{.*}}@down_parts[d0 * 4, 0] 4 x [128], @down_parts[d0 * 4, 128] 4 x [128], @g_post_expert_norm[0, 0] 1 x [128]] writes [@down_rows
// PARTS-NEXT: task.compute "publish_squares<combine_experts, squares_words>" {{.*}}@squares[d0 * 4, 0] 4 x [8]]
// PARTS-NEXT: task.poll "poll_scales<combine_experts, squares_words>"
// PARTS-NEXT: task.compute "combine_normed<combine_experts, m_words>" {{.*}}@m[d0, 0] 1 x [128]]
// ROUNDED: task.exchange @down_parts [8, 512] bf16 sentinel sets 2 {{.*}}{peers
// ROUNDED: task.poll "poll_parts<{{.*}}@down_parts[d0 * 4, 384] 4 x [128], @g_post
// The matrix behind attention likewise: what heads made stays, an SM adds all parts of its slice.
// HEADS: task.kernel @sliding
// HEADS: task.exchange @attn [2, 128] {{.*}}rank_parts = array<i64: 128, 1>
// HEADS: task.weights @w_o n 256 k 128
// HEADS: task.exchange @o_parts [2, 512] f32 sentinel sets 2 {{.*}}{peers
// HEADS: task.edge {{.*}} @o_parts_words words epilogue -> epilogue
// HEADS: task.exchange @y_o_proj [2, 256] bf16
// HEADS: task.stage @o_proj linear {{.*}}reads [@attn[0, 0] 2 x [128], @w_o{{.*}}, @o_parts[0, 0] 2 x [512]] writes [@o_parts[0, d0 * 96] 2 x [96{{.*}}] own, @y_o_proj[0, d0 * 96] 2 x [96{{.*}}]] config {{.*}}epilogue = "parts"
// HEADS: task.compute "epilogue_logits<o_proj, o_parts_words>" {{.*}} own]
// HEADS: task.poll "poll_slice_parts<o_proj, o_parts_words, o_proj_kept>" [] waits @o_parts_words reads [@o_parts[0, d0 * 96] 2 x [96, d0 * -96 + 256], @o_parts[0, d0 * 96 + 256] 2 x [96, d0 * -96 + 256]] writes [@o_proj_kept
// HEADS-NEXT: task.compute "publish_slice<o_proj, y_o_proj_words, o_proj_kept>" [] {{.*}} writes [@y_o_proj[0, d0 * 96] 2 x [96, d0 * -96 + 256]]
// BOTH: task.exchange @o_parts [2, 1024] bf16 sentinel sets 2 {{.*}}{peers
// BOTH: task.compute "epilogue_words<o_proj, o_parts_words>" {{.*}} own]
// BOTH: task.exchange @down_parts [8, 512] bf16
// ORDERED: task-split-ranks: o-proj k-ordered has no kernels: {{.*}}expected o-proj (--tp-o-proj) n, whose bits are those of one rank, or k

// WHOLE: has outputs that are normed one by one: kernels exchange sums of their squares, not the outputs; expected experts (--tp-experts) nn-sums, auto or nk
// WORD: task-split-ranks: expected experts of auto, nn, nn-sums or nk but got kn
// TYPE: task-split-ranks: expected sums of f32 or bf16 but got f16

// FOUR: writes 8 columns of @squares, which 4 ranks cannot divide; expected a multiple of 16
moe.weight @embed_tokens [512, 256] of bf16 from "embed_tokens.weight"
moe.weight @input_norm [256] of bf16 from "layers.{layer}.input_layernorm.weight"
moe.weight @q_proj [256, 256] of bf16 from "layers.{layer}.self_attn.q_proj.weight"
moe.weight @k_proj [128, 256] of bf16 from "layers.{layer}.self_attn.k_proj.weight"
moe.weight @v_proj [128, 256] of bf16 from "layers.{layer}.self_attn.v_proj.weight"
moe.weight @gate_proj [256, 256] of bf16 from "layers.{layer}.self_attn.gate_proj.weight"
moe.weight @o_proj [256, 256] of bf16 from "layers.{layer}.self_attn.o_proj.weight"
moe.weight @attention_gate [256] of bf16 from "layers.{layer}.post_attention_residual_gate.gate"
moe.weight @feedforward_norm [256] of bf16 from "layers.{layer}.pre_feedforward_layernorm.weight"
moe.weight @router [16, 256] of f32 from "layers.{layer}.mlp.gate.weight"
moe.weight @router_bias [16] of f32 from "layers.{layer}.mlp.gate.e_score_correction_bias"
moe.weight @pooler [128, 256] of bf16 from "layers.{layer}.mlp.pre_expert_proj.weight"
moe.weight @pre_expert_norm [128] of bf16 from "layers.{layer}.mlp.pre_expert_norm.weight"
moe.weight @experts_gate [16, 128, 128] of bf16 from "layers.{layer}.mlp.experts.gate_up_proj" part <dim = 1, index = 0, count = 2>
moe.weight @experts_up [16, 128, 128] of bf16 from "layers.{layer}.mlp.experts.gate_up_proj" part <dim = 1, index = 1, count = 2>
moe.weight @experts_down [16, 128, 128] of bf16 from "layers.{layer}.mlp.experts.down_proj"
moe.weight @post_expert_norm [128] of bf16 from "layers.{layer}.mlp.experts.post_expert_norm.weight"
moe.weight @unpooler [256, 128] of bf16 from "layers.{layer}.mlp.post_expert_proj.weight"
moe.weight @post_feedforward_norm [256] of bf16 from "layers.{layer}.post_feedforward_layernorm.weight"
moe.weight @feedforward_gate [256] of bf16 from "layers.{layer}.post_feedforward_residual_gate.gate"
moe.weight @final_norm [256] of bf16 from "norm.weight"
moe.weight @lm_head [512, 256] of bf16 from "lm_head.weight"
func.func @embed(%arg0: tensor<2xi32>) -> tensor<2x256xf32> {
  %0 = moe.embed %arg0 weight(@embed_tokens) : tensor<2xi32> -> tensor<2x256xbf16>
  %1 = moe.norm %0 rms_weightless {eps = 1.000000e-05 : f64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %2 = moe.cast %1 : tensor<2x256xbf16> -> tensor<2x256xf32>
  return %2 : tensor<2x256xf32>
}
func.func @sliding(%arg0: tensor<2x256xf32>, %arg1: !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096, window = 65>) -> (tensor<2x256xf32>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096, window = 65>) {
  %0 = moe.norm %arg0 rms weight(@input_norm) gain one_plus {eps = 1.000000e-05 : f64} : tensor<2x256xf32> -> tensor<2x256xbf16>
  %q, %k, %v = moe.qkv_proj %0 q(@q_proj) k(@k_proj) v(@v_proj) {head_dim = 64 : i64, heads = 4 : i64, kv_heads = 2 : i64} : tensor<2x256xbf16> -> tensor<2x256xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>
  %1 = moe.linear %0 weight(@gate_proj) : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %q_out, %k_out = moe.qk_norm %q, %k rms_weightless {eps = 1.000000e-05 : f64, head_dim = 64 : i64} : tensor<2x256xbf16>, tensor<2x128xbf16> -> tensor<2x256xbf16>, tensor<2x128xbf16>
  %q_out_0, %k_out_1 = moe.rope %q_out, %k_out half_split {head_dim = 64 : i64, rotary_dims = 64 : i64, theta = 5.000000e+05 : f64} : tensor<2x256xbf16>, tensor<2x128xbf16> -> tensor<2x256xbf16>, tensor<2x128xbf16>
  %2 = moe.kv_append %arg1, %k_out_1, %v : !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096, window = 65>, tensor<2x128xbf16>, tensor<2x128xbf16>
  %3 = moe.attention %q_out_0, %2 window {extent = 64 : i64, heads = 4 : i64, scale = 0.68412581079843748 : f64} : tensor<2x256xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096, window = 65> -> tensor<2x256xf32>
  %4 = moe.norm %3 rms_weightless over head {eps = 1.000000e-05 : f64, head_dim = 64 : i64} : tensor<2x256xf32> -> tensor<2x256xf32>
  %5 = moe.output_gate %4, %1 : tensor<2x256xf32>, tensor<2x256xbf16> -> tensor<2x256xbf16>
  %6 = moe.linear %5 weight(@o_proj) : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %7 = moe.norm %6 rms_weightless {eps = 1.000000e-08 : f64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %8 = moe.residual %arg0, %7 gated gate(@attention_gate) {floor = 1.000000e-03 : f64, temperature = 3.000000e-01 : f64} : tensor<2x256xf32>, tensor<2x256xbf16> -> tensor<2x256xf32>
  %9 = moe.norm %8 rms weight(@feedforward_norm) gain one_plus {eps = 1.000000e-05 : f64} : tensor<2x256xf32> -> tensor<2x256xbf16>
  %10 = moe.router %9 weight(@router) {multiplier = 5.000000e-01 : f64} : tensor<2x256xbf16> -> tensor<2x16xf32>
  %ids, %weights = moe.top_k %10 sigmoid selection_bias(@router_bias) {k = 4 : i64, renormalize = true, renormalize_eps = 1.000000e-15 : f64} : tensor<2x16xf32> -> tensor<2x4xi32>, tensor<2x4xf32>
  %11 = moe.linear %9 weight(@pooler) : tensor<2x256xbf16> -> tensor<2x128xbf16>
  %12 = moe.norm %11 rms weight(@pre_expert_norm) gain one_plus {eps = 1.000000e-05 : f64} : tensor<2x128xbf16> -> tensor<2x128xbf16>
  %gate, %up = moe.expert_gate_up %12, %ids gate(@experts_gate) up(@experts_up) : tensor<2x128xbf16>, tensor<2x4xi32> -> tensor<8x128xbf16>, tensor<8x128xbf16>
  %13 = moe.glu %gate, %up silu : tensor<8x128xbf16>, tensor<8x128xbf16> -> tensor<8x128xbf16>
  %14 = moe.expert_down %13, %ids weight(@experts_down) : tensor<8x128xbf16>, tensor<2x4xi32> -> tensor<8x128xbf16>
  %15 = moe.expert_norm %14 rms_input_scaled weight(@post_expert_norm) gain one_plus {eps = 1.000000e-08 : f64} : tensor<8x128xbf16> -> tensor<8x128xf32>
  %16 = moe.combine %weights, %15 : tensor<2x4xf32>, tensor<8x128xf32> -> tensor<2x128xbf16>
  %17 = moe.linear %16 weight(@unpooler) : tensor<2x128xbf16> -> tensor<2x256xbf16>
  %18 = moe.norm %17 rms_input_scaled weight(@post_feedforward_norm) gain one_plus {eps = 1.000000e-08 : f64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %19 = moe.residual %8, %18 gated gate(@feedforward_gate) {floor = 1.000000e-03 : f64, temperature = 3.000000e-01 : f64} : tensor<2x256xf32>, tensor<2x256xbf16> -> tensor<2x256xf32>
  return %19, %2 : tensor<2x256xf32>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096, window = 65>
}
func.func @full(%arg0: tensor<2x256xf32>, %arg1: !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>) -> (tensor<2x256xf32>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>) {
  %0 = moe.norm %arg0 rms weight(@input_norm) gain one_plus {eps = 1.000000e-05 : f64} : tensor<2x256xf32> -> tensor<2x256xbf16>
  %q, %k, %v = moe.qkv_proj %0 q(@q_proj) k(@k_proj) v(@v_proj) {head_dim = 64 : i64, heads = 4 : i64, kv_heads = 2 : i64} : tensor<2x256xbf16> -> tensor<2x256xbf16>, tensor<2x128xbf16>, tensor<2x128xbf16>
  %1 = moe.linear %0 weight(@gate_proj) : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %q_out, %k_out = moe.qk_norm %q, %k rms_weightless {eps = 1.000000e-05 : f64, head_dim = 64 : i64} : tensor<2x256xbf16>, tensor<2x128xbf16> -> tensor<2x256xbf16>, tensor<2x128xbf16>
  %2 = moe.kv_append %arg1, %k_out, %v : !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>, tensor<2x128xbf16>, tensor<2x128xbf16>
  %3 = moe.attention %q_out, %2 full {heads = 4 : i64, scale = 0.68412581079843748 : f64} : tensor<2x256xbf16>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096> -> tensor<2x256xf32>
  %4 = moe.norm %3 rms_weightless over head {eps = 1.000000e-05 : f64, head_dim = 64 : i64} : tensor<2x256xf32> -> tensor<2x256xf32>
  %5 = moe.output_gate %4, %1 : tensor<2x256xf32>, tensor<2x256xbf16> -> tensor<2x256xbf16>
  %6 = moe.linear %5 weight(@o_proj) : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %7 = moe.norm %6 rms_weightless {eps = 1.000000e-08 : f64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %8 = moe.residual %arg0, %7 gated gate(@attention_gate) {floor = 1.000000e-03 : f64, temperature = 3.000000e-01 : f64} : tensor<2x256xf32>, tensor<2x256xbf16> -> tensor<2x256xf32>
  %9 = moe.norm %8 rms weight(@feedforward_norm) gain one_plus {eps = 1.000000e-05 : f64} : tensor<2x256xf32> -> tensor<2x256xbf16>
  %10 = moe.router %9 weight(@router) {multiplier = 5.000000e-01 : f64} : tensor<2x256xbf16> -> tensor<2x16xf32>
  %ids, %weights = moe.top_k %10 sigmoid selection_bias(@router_bias) {k = 4 : i64, renormalize = true, renormalize_eps = 1.000000e-15 : f64} : tensor<2x16xf32> -> tensor<2x4xi32>, tensor<2x4xf32>
  %11 = moe.linear %9 weight(@pooler) : tensor<2x256xbf16> -> tensor<2x128xbf16>
  %12 = moe.norm %11 rms weight(@pre_expert_norm) gain one_plus {eps = 1.000000e-05 : f64} : tensor<2x128xbf16> -> tensor<2x128xbf16>
  %gate, %up = moe.expert_gate_up %12, %ids gate(@experts_gate) up(@experts_up) : tensor<2x128xbf16>, tensor<2x4xi32> -> tensor<8x128xbf16>, tensor<8x128xbf16>
  %13 = moe.glu %gate, %up silu : tensor<8x128xbf16>, tensor<8x128xbf16> -> tensor<8x128xbf16>
  %14 = moe.expert_down %13, %ids weight(@experts_down) : tensor<8x128xbf16>, tensor<2x4xi32> -> tensor<8x128xbf16>
  %15 = moe.expert_norm %14 rms_input_scaled weight(@post_expert_norm) gain one_plus {eps = 1.000000e-08 : f64} : tensor<8x128xbf16> -> tensor<8x128xf32>
  %16 = moe.combine %weights, %15 : tensor<2x4xf32>, tensor<8x128xf32> -> tensor<2x128xbf16>
  %17 = moe.linear %16 weight(@unpooler) : tensor<2x128xbf16> -> tensor<2x256xbf16>
  %18 = moe.norm %17 rms_input_scaled weight(@post_feedforward_norm) gain one_plus {eps = 1.000000e-08 : f64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %19 = moe.residual %8, %18 gated gate(@feedforward_gate) {floor = 1.000000e-03 : f64, temperature = 3.000000e-01 : f64} : tensor<2x256xf32>, tensor<2x256xbf16> -> tensor<2x256xf32>
  return %19, %2 : tensor<2x256xf32>, !moe.kv<heads = 2, head_dim = 64, element = bf16, positions = 4096>
}
func.func @head(%arg0: tensor<2x256xf32>) -> tensor<2x512xf32> {
  %0 = moe.cast %arg0 : tensor<2x256xf32> -> tensor<2x256xbf16>
  %1 = moe.norm %0 rms weight(@final_norm) {eps = 1.000000e-05 : f64} : tensor<2x256xbf16> -> tensor<2x256xbf16>
  %2 = moe.lm_head %1 weight(@lm_head) {multiplier = 5.000000e-01 : f64, softcap = 2.000000e+01 : f64} : tensor<2x256xbf16> -> tensor<2x512xf32>
  return %2 : tensor<2x512xf32>
}
moe.step @decode embed(@embed) layers(@sliding, @full) head(@head)
