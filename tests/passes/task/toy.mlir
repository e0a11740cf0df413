// The whole second half of the pipeline on the toy gives, in substance, the role level that
// tests/ir/task/m0.mlir holds by hand.
// RUN: megalith-opt %S/Inputs/toy.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory{ring-slots=4},task-lower-to-roles),task-verify)' | FileCheck %s

// CHECK: task.exchange @h [1, 256] bf16 sentinel sets 2 slot 4 edge @h_words
// CHECK: task.ring @ring 4 x 16384 full @w_full free @w_free
// CHECK: task.buffer @xs [1, 512] bf16 smem scratch {offset = {{.*}}row_bytes = 1056
// CHECK: task.buffer @part [128, 8] f32 smem scratch {guard = @p_full, {{.*}}slots = 2 : i64, type = "Part<$offset, $slots>"}

// CHECK: task.stage @norm_linear1 {{.*}} config {In = "Rows<xs::kOffset, Config::kRows, 512>", Norm = "RmsNorm<In, gain, 1.00000000e-06f>", base = "Linear<w1, 256, 512, 32>"
// CHECK-NEXT: role producer
// CHECK-NEXT: task.for "mtile" in 4
// CHECK-NEXT: task.for "block" in 1
// CHECK-NEXT: task.acquire @w_free
// CHECK-NEXT: task.pace @w_full window 2
// CHECK-NEXT: task.copy "copy_piece<w_full, ring, norm_linear1>" ["mtile", "block"] @w1[d0 * 32 + d1 * 8, d2] 8 x [1] to @ring signals @w_full
// Gains are loaded before the rows are there; what a warp multiplies it brings itself.
// CHECK: role consumer
// CHECK-NEXT: task.compute "load_gains<norm_linear1::Norm>" [] reads [@gain[0, 0] 1 x [512]] writes [] {result = "const auto gains"}
// CHECK-NEXT: task.refill @xs
// CHECK-NEXT: task.compute "read_chunk<norm_linear1::In, x>" [] reads [@x[0, 0] 1 x [512]] writes [@xs[0, 0] 1 x [512]]
// CHECK-NEXT: task.compute "rms_norm<norm_linear1::Norm>" ["gains"] reads [@xs[0, 0] 1 x [512]] writes [@xs[0, 0] 1 x [512]]
// CHECK-NEXT: task.local "column" : "const Column" = "dense_column<norm_linear1, norm_linear1::In>(cta)"
// CHECK-NEXT: task.for "mtile" in 4
// CHECK-NEXT: task.local "sum" : "ChunkSum" = "{}"
// CHECK-NEXT: task.for "block" in 1
// CHECK-NEXT: task.wait @w_full {result = "const int slot"}
// CHECK-NEXT: task.compute "gemv_block<norm_linear1, ring>" ["sum", "slot", "mtile", "block", "column"] reads [@xs[0, 0] 1 x [512]] writes [] ring @ring
// CHECK-NEXT: task.release @w_free
// CHECK: task.acquire @p_free {result = "const int place"}
// CHECK-NEXT: task.compute "store_part<part>" ["place", "sum"] reads [] writes [@part[0, 0] 128 x [8]]
// CHECK-NEXT: task.signal @p_full
// CHECK: role epilogue
// CHECK-NEXT: task.launch_wait
// CHECK-NEXT: task.for "mtile" in 4
// CHECK-NEXT: task.wait @p_full {result = "const int place"}
// CHECK-NEXT: task.compute "sum_chunks<part>" ["place"] reads [@part[0, 0] 128 x [8]] writes [] {result = "const Fragment sum"}
// CHECK-NEXT: task.release @p_free
// CHECK-NEXT: task.compute "epilogue_words<norm_linear1, h_words>" ["mtile", "sum"] reads [] writes [@h[0, d0 * 64 + d1 * 16] 1 x [16]]
// The prologue comes after the previous launch's words (here: none) and before this launch's are polled.
// CHECK: role poller
// CHECK-NEXT: task.launch_wait
// CHECK-NEXT: task.rearm @h
// CHECK-NEXT: task.launch_dependents

// CHECK: task.stage @linear2
// CHECK: role consumer
// CHECK-NEXT: task.launch_wait
// CHECK-NEXT: task.refill @xs
// CHECK-NEXT: task.poll "poll_chunk<h_words, linear2::In>" [] waits @h_words reads [@h[0, 0] 1 x [256]] writes [@xs[0, 0] 1 x [256]]
// CHECK: role epilogue
// CHECK-NOT: launch_wait
// CHECK: task.compute "epilogue_store_bf16<WholeSlice<linear2>, out>" ["mtile", "sum"] reads [] writes [@out[0, d0 * 32 + d1 * 32] 1 x [32]]
