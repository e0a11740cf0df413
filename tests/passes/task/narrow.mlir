// Where an SM's slice is narrow, a ring piece is several blocks of K of an m-tile: as many as a slot has room
// for, in equal pieces that no part of K cuts. Slices of whole m-tiles keep one block a piece.
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams{input-bytes=10000}),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s --check-prefix=PARTS

// CHECK: task.ring @ring {{[0-9]+}} x 16384
task.kernel @first "embed" target "sm_90a" sms 4 rows 2 {
  task.buffer @embedding [1000, 4096] bf16 global immutable {slot = 0}
  task.weights @w_many n 64 k 4096 slot 2 rows ["many"]
  task.weights @w_few n 16 k 4096 slot 3 rows ["few"]
  task.buffer @resid [2, 4096] bf16 global value
  task.buffer @out_many [2, 64] bf16 global written {slot = 4}
  task.buffer @out_few [2, 16] bf16 global written {slot = 5}
  task.stage @embed embed tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@embedding[0, 0] 1000 x [4096]] writes [@resid[0, d0 * 1024] 2 x [1024]]
      config {hidden = 4096, vocab = 1000} {
  }
  // CHECK: task.stage @many linear {{.*}} base = "Linear<w_many, 64, 4096, 8>"
  // CHECK-SAME: order = ["mtile", "block"], piece = 16384 : i64
  // CHECK: task.copy "copy_piece<w_full, ring, many>" ["mtile", "block"] {{.*}}@w_many[d0 * 8 + d1 * 8, d2] 8 x [1]
  task.stage @many linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@resid[0, 0] 2 x [4096], @w_many[d0 * 8, 0] 8 x [8]] writes [@out_many[0, d0 * 16] 2 x [16]]
      config {n = 64, k = 4096, unit = 8, norm = "none", epilogue = "store"} {
  }
  // Two strips are 4 KB a block: four of the eight blocks.
  // CHECK: task.stage @few linear {{.*}} base = "Linear<w_few, 16, 4096, 2, 4>"
  // CHECK-SAME: stream = {blocks = 4 : i64, {{.*}}order = ["mtile", "piece"], piece = 16384 : i64, window = 4 : i64}
  // CHECK: task.for "piece" in 2
  // CHECK: task.copy "copy_piece<w_full, ring, few>" ["mtile", "piece"] {{.*}}@w_few[d0 * 2 + d1 * 8, d2 * 4] 2 x [4]
  // CHECK: task.for "piece" in 2
  // CHECK-NEXT: task.wait @w_full
  // CHECK-NEXT: task.compute "gemv_blocks<few, ring>" ["sum", "slot", "mtile", "piece", "column"]
  // CHECK-NEXT: task.release @w_free
  // Two parts of K, a piece each.
  // PARTS: task.stage @few linear {{.*}}k_parts = 2
  // PARTS: task.copy "copy_piece<w_full, ring, few>" ["mtile", "k_part * 1 + piece"] {{.*}}@w_few[d0 * 2 + d2 * 8, (d1 + d3) * 4] 2 x [4]
  // PARTS: task.compute "gemv_blocks<few, ring>" ["sums[mtile]", "slot", "mtile", "piece", "column"]
  task.stage @few linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@resid[0, 0] 2 x [4096], @w_few[d0 * 2, 0] 2 x [8]] writes [@out_few[0, d0 * 4] 2 x [4]]
      config {n = 16, k = 4096, unit = 2, norm = "none", epilogue = "store"} {
  }
}

// Nine strips an SM: eight in pieces of a block, and one, of which a block were 2 KB, in pieces of eight blocks.
// CHECK: task.kernel @last_tile
task.kernel @last_tile "embed" target "sm_90a" sms 4 rows 2 {
  task.buffer @embedding [1000, 4096] bf16 global immutable {slot = 0}
  task.weights @w_nine n 72 k 4096 slot 2 rows ["nine"]
  task.buffer @resid [2, 4096] bf16 global value
  task.buffer @out_nine [2, 72] bf16 global written {slot = 4}
  task.stage @embed embed tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@embedding[0, 0] 1000 x [4096]] writes [@resid[0, d0 * 1024] 2 x [1024]]
      config {hidden = 4096, vocab = 1000} {
  }
  // CHECK: task.stage @nine linear {{.*}} base = "Linear<w_nine, 72, 4096, 9>"
  // CHECK-SAME: stream = {bytes = {{[0-9]+}} : i64, last_blocks = 8 : i64, order = ["mtile", "block"], piece = 16384 : i64, window = 4 : i64}
  // CHECK: task.for "mtile" in 1
  // CHECK: task.for "block" in 8
  // CHECK: task.copy "copy_piece<w_full, ring, nine>" ["mtile", "block"] {{.*}}@w_nine[d0 * 9 + d1 * 8, d2] 8 x [1]
  // CHECK: task.for "mtile" in 1
  // CHECK: task.for "piece" in 1
  // CHECK: task.copy "copy_piece<w_full, ring, LastTile<nine, 8>>" ["1 + mtile", "piece"] {{.*}}@w_nine[d0 * 9 + d1 * 8 + 8, d2 * 8] 1 x [8]
  // CHECK: task.compute "gemv_block<nine, ring>" ["sum", "slot", "mtile", "block", "column"]
  // CHECK: task.compute "gemv_blocks<LastTile<nine, 8>, ring>" ["sum", "slot", "1 + mtile", "piece", "column"]
  // CHECK: task.for "mtile" in 2
  // CHECK-NEXT: task.wait @p_full
  task.stage @nine linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@resid[0, 0] 2 x [4096], @w_nine[d0 * 9, 0] 9 x [8]] writes [@out_nine[0, d0 * 18] 2 x [18]]
      config {n = 72, k = 4096, unit = 9, norm = "none", epilogue = "store"} {
  }
}
