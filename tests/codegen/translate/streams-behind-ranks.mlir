// Pieces of a stage whose rows come from other ranks go one at a time while those words are waited for: the ring
// is full long before, and words come sooner. What finds no room in the ring is waited for itself. Not so the
// first stage of a launch, which has no time, nor rows of this rank alone.
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' > %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: megalith-translate --emit-kernels --no-digests %t.mlir | FileCheck %s --check-prefix=SOURCE

// SOURCE: stream_pieces<w_free, w_full, 2, ring, first>(cta, mtile, 16);
// SOURCE: stream_pieces<w_free, w_full, 1, ring, second>(cta, mtile, 12);
// SOURCE-NEXT: stream_pieces_from<w_free, w_full, 3, ring, second>(cta, mtile, 12, 4);

// CHECK: task.ring @ring 12 x 16384
// CHECK: task.stage @first linear {{.*}} window = 2 : i64}
// CHECK: task.stage @second linear {{.*}} stream = {bytes = 262144 : i64, late_window = 3 : i64, {{.*}} piece = 16384 : i64, window = 1 : i64}
// CHECK: task.for "block" in 12
// CHECK-NEXT: task.acquire @w_free
// CHECK-NEXT: task.pace @w_full window 1
// CHECK-NEXT: task.copy "copy_piece<w_full, ring, second>" ["mtile", "block"] @w_second[d0 * 8 + d1 * 8, d2] 8 x [1]
// CHECK: task.for "block" in 4
// CHECK-NEXT: task.acquire @w_free
// CHECK-NEXT: task.pace @w_full window 3
// CHECK-NEXT: task.copy "copy_piece<w_full, ring, second>" ["mtile", "12 + block"] @w_second[d0 * 8 + d1 * 8, d2 + 12] 8 x [1]
task.kernel @behind "layer" target "sm_90a" sms 4 rows 1 attributes {ranks = 2 : i64} {
  task.buffer @embedding [1000, 8192] bf16 global immutable {slot = 0}
  task.weights @w_first n 4096 k 8192 slot 2 rows ["first"]
  task.weights @w_second n 64 k 8192 slot 3 rows ["second"]
  task.edge 0 @armed_words words poller -> poller
  task.exchange @armed [1, 8] i32 number sets 1 slot 5 edge @armed_words {peers}
  task.buffer @x [1, 8192] bf16 global value {peers}
  task.buffer @h [1, 8192] bf16 global value {peers}
  task.weights @w_third n 64 k 64 slot 4 rows ["third"]
  task.buffer @y [1, 64] bf16 global value
  task.buffer @out [1, 64] bf16 global written {slot = 6}
  task.stage @embed embed tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@embedding[0, 0] 1000 x [8192]] writes [@x[0, d0 * 1024] 1 x [1024] own]
      config {hidden = 8192, vocab = 1000} {
  }
  task.stage @first linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@x[0, 0] 1 x [8192], @w_first[d0 * 512, 0] 512 x [16]] writes [@h[0, d0 * 1024] 1 x [1024] own]
      config {n = 4096, k = 8192, unit = 512, norm = "none", epilogue = "store"} {
  }
  task.stage @second linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@h[0, 0] 1 x [8192], @w_second[d0 * 8, 0] 8 x [16]] writes [@y[0, d0 * 16] 1 x [16]]
      config {n = 64, k = 8192, unit = 8, norm = "none", epilogue = "store"} {
  }
  task.stage @third linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@y[0, 0] 1 x [64], @w_third[d0 * 8, 0] 8 x [1]] writes [@out[0, d0 * 16] 1 x [16]]
      config {n = 64, k = 64, unit = 8, norm = "none", epilogue = "store"} {
  }
  task.stage @launch_end launch_end reads [] writes [] config {} {
  }
}
