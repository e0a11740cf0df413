// Role regions of every stage kind of a layer kernel: attention, merge, residual, router, top-k, experts.
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s
// With little memory attention's bytes are reused, after both of their last users have said so.
// RUN: megalith-opt %S/Inputs/layer.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory{shared-bytes=85000},task-lower-to-roles),task-verify)' | FileCheck %s --check-prefix=TIGHT

// Dynamic facts, each declared once.
// CHECK-DAG: task.symbol @attention_tiles in 0 to 16 per_sm = "AttentionTiles<attention>(*cta.args.step, cta.sm).count()"
// CHECK-DAG: task.symbol @full_pieces in 0 to 8 per_sm = "full_pieces<attention>(tile)"
// CHECK-DAG: task.symbol @active in 0 to 8 after @routed = "platform::ld_shared<int32_t>(&routing_table<top_k>(cta)->active)"
// CHECK-DAG: task.table @expert_id size 16 uniform
// CHECK-DAG: task.table @attention_tile size 128 partition

// CHECK: task.stage @attention attention
// CHECK-SAME: base = "Attention<Config, 4, 8, 2, 64, 64, 1, QkNorm::weighted, 1.00000000e-06f, 1.25000000e-01f, kv, inv_freq, g_q, g_k>"
// CHECK: role producer
// CHECK-NEXT: task.for "tile" in @attention_tiles iterate "AttentionTiles<attention>"
// CHECK-NEXT: task.for "piece" in @full_pieces
// CHECK-NEXT: task.acquire @w_free
// CHECK-NEXT: task.pace @w_full window 2
// CHECK-NEXT: task.copy "copy_units<attention, ring, w_full>" ["tile", "piece"] @kv[d1 * 8 + d2, 0, 0] 1 x [8192] table @kv_piece
// CHECK: role poller
// CHECK: task.poll "poll_qkv_tile<attention, Previous<qkv_words>>"
// CHECK: task.launch_wait
// CHECK-NOT: task.rearm @partials
// CHECK: task.launch_dependents
// CHECK: role consumer
// What needs no words of the last launch comes before the wait for them.
// CHECK: attention_prepare
// CHECK-NEXT: task.wait @qkv_full
// CHECK-NEXT: task.compute "attention_begin<attention>"
// CHECK-NEXT: task.release @qkv_free
// CHECK-NEXT: task.for "piece" in @full_pieces
// CHECK-NEXT: task.wait @w_full
// CHECK-NEXT: task.compute "attention_piece<attention, ring>" {{.*}} writes [@apart[0, 0] 64 x [68]] ring @ring
// CHECK-NEXT: task.release @w_free
// CHECK: task.compute "attention_tail<attention>"
// CHECK-NEXT: task.compute "attention_finish<attention>"
// The first store waits for the last launch, as late as it can.
// CHECK-NEXT: task.launch_wait
// CHECK-NEXT: task.compute "publish_partials<attention, partials_words>" {{.*}} writes [@partials[d1, 0, 0] 8 x [66] table @attention_tile]
// CHECK-NEXT: task.compute "attention_append<attention>"
// CHECK-NOT: role epilogue

// CHECK: task.stage @merge
// CHECK: task.for "piece" in 2 iterate "MergeTiles<attention>"
// CHECK: task.poll "poll_partials<attention, partials_words>"
// CHECK: task.compute "merge_splits<attention, attn_words>" {{.*}} writes [@attn[d1 + d0 floordiv 8, (d0 mod 8) * 64] 1 x [64]]

// The previous residual needs no launch_wait and comes before everything else of the stage.
// CHECK: task.stage @o_proj
// CHECK: role epilogue
// CHECK-NEXT: task.poll "fetch_slice<o_proj, Previous<resid_words>, o_proj_kept>"
// CHECK-NOT: launch_wait
// CHECK: epilogue_residual<o_proj, mid_words, o_proj_kept>

// The router keeps its rows for the experts.
// CHECK: task.stage @router
// CHECK: role consumer
// CHECK-NEXT: task.compute "load_gains<router::Norm>"
// CHECK-NEXT: task.refill @xs
// CHECK-NEXT: task.poll "poll_chunk<mid_words, router::In>"
// CHECK-NEXT: task.compute "rms_norm<router::Norm>" ["gains"]
// The routing table is complete on every SM before anyone goes on, also where no expert has a slice.
// CHECK: task.stage @top_k
// CHECK: role poller
// CHECK-NEXT: task.wait @routed
// CHECK: role producer
// CHECK-NEXT: task.wait @routed
// CHECK: role epilogue
// CHECK-NEXT: task.wait @routed
// CHECK: task.poll "poll_own_row<logits_words, logits_rows>"
// CHECK-NEXT: task.compute "select_experts<top_k>"
// CHECK-NEXT: task.compute "group_experts<top_k>"
// CHECK-NEXT: task.signal @routed

// CHECK: task.stage @expert_up
// CHECK-NOT: task.poll
// CHECK: role producer
// CHECK-NEXT: task.for "entry" in @active
// CHECK: task.copy "copy_piece<w_full, ring, expert_up>" ["mtile", "block", "expert.id"] @w_up[d1, d0 * 16 + d2 * 8, d3] 8 x [1] table @expert_id
// CHECK: role consumer
// CHECK: gathered_column<expert_up, expert_up::In, 4>
// CHECK: task.compute "epilogue_glu<expert_up, act_words>" {{.*}} writes [@act[d1, 0, d0 * 16 + d2 * 8] 2 x [8] table @expert_id]

// CHECK: task.stage @expert_down
// CHECK: role producer
// CHECK-NEXT: task.for "entry" in @active
// CHECK: task.poll "poll_expert<act_words, act_rows>" ["slot", "expert.pairs", "expert.count"]
// CHECK: role epilogue
// CHECK-NOT: fetch_slice
// CHECK: epilogue_down<expert_down, down_rows>
// CHECK: task.compute "combine<expert_down, resid_words, o_proj_kept, down_rows, 4>" {{.*}} writes [@resid[0, d0 * 32] 2 x [32]]

// CHECK: task.stage @qkv_proj
// CHECK: epilogue_words<qkv_proj, qkv_words>

// TIGHT: task.stage @attention
// TIGHT: role consumer
// TIGHT: attention_append
// TIGHT: task.signal @attention_done
// TIGHT: task.stage @merge
// TIGHT: role poller
// TIGHT: task.signal @mparts_full
// TIGHT: task.wait @attention_done
// TIGHT-NEXT: task.wait @merge_done
// TIGHT: role consumer
// TIGHT-NEXT: task.wait @merge_done
// TIGHT: role epilogue
// TIGHT: task.release @mparts_free
// TIGHT: task.signal @merge_done
