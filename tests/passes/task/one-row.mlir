// One row: a slice of nine strips of which a block fits a slot is one m-tile to consumers, with two sums; they load a
// block while they multiply the one before.
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s
// Two rows: two m-tiles, one after the other.
// RUN: sed -e 's/ rows 1 / rows 2 /; s/\[1, /[2, /g; s/ 1 x \[/ 2 x [/g' %s | megalith-opt --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s --check-prefix=TWO

// CHECK: task.ring @ring {{[0-9]+}} x 16384
task.kernel @first "embed" target "sm_90a" sms 4 rows 1 {
  task.buffer @embedding [1000, 4096] bf16 global immutable {slot = 0}
  task.weights @w_many n 384 k 4096 slot 2 rows ["many"]
  task.weights @w_few n 16 k 4096 slot 3 rows ["few"]
  task.weights @w_nine n 72 k 384 slot 4 rows ["nine"]
  task.buffer @resid [1, 4096] bf16 global value
  task.buffer @y [1, 384] bf16 global value
  task.buffer @out_few [1, 16] bf16 global written {slot = 5}
  task.buffer @out_nine [1, 72] bf16 global written {slot = 6}
  task.stage @embed embed tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@embedding[0, 0] 1000 x [4096]] writes [@resid[0, d0 * 1024] 1 x [1024]]
      config {hidden = 4096, vocab = 1000} {
  }
  // CHECK: task.stage @few linear {{.*}} base = "Linear<w_few, 16, 4096, 2, 4>"
  // CHECK: task.for "piece" in 2
  // CHECK: task.copy "copy_piece<w_full, ring, few>" ["mtile", "piece"]
  // CHECK: task.compute "gemv_blocks<few, ring>" ["sum", "slot", "mtile", "piece", "column"]
  task.stage @few linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@resid[0, 0] 1 x [4096], @w_few[d0 * 2, 0] 2 x [8]] writes [@out_few[0, d0 * 4] 1 x [4]]
      config {n = 16, k = 4096, unit = 2, norm = "none", epilogue = "store"} {
  }
  task.stage @many linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@resid[0, 0] 1 x [4096], @w_many[d0 * 48, 0] 48 x [8]] writes [@y[0, d0 * 96] 1 x [96]]
      config {n = 384, k = 4096, unit = 48, norm = "none", epilogue = "store"} {
  }
  // CHECK: task.stage @nine linear {{.*}} base = "Linear<w_nine, 72, 384, 9>"
  // CHECK-SAME: stream = {bytes = 13824 : i64, joined, order = ["mtile", "block"], piece = 13824 : i64
  // CHECK: task.for "mtile" in 1
  // CHECK: task.copy "copy_piece<w_full, ring, WholeSlice<nine>>" ["mtile", "block"] {{.*}}@w_nine[d0 * 9 + d1 * 9, d2] 9 x [1]
  // CHECK: task.local "sum" : "ChunkSum" = "{}"
  // CHECK-NEXT: task.local "rest" : "ChunkSum" = "{}"
  // CHECK-NEXT: task.local "held" : "Held<WholeSlice<nine>>"
  // CHECK: task.compute "gemv_ahead<WholeSlice<nine>, ring>" ["sum", "rest", "held", "slot", "mtile", "block", "column"]
  // CHECK: task.compute "gemv_held<WholeSlice<nine>>" ["sum", "rest", "held", "column"]
  // CHECK-NEXT: task.acquire @p_free
  // CHECK-NEXT: task.compute "store_part<part>" ["place", "sum", "rest"]
  // CHECK-NEXT: task.signal @p_full
  // CHECK: task.for "mtile" in 1
  // CHECK-NEXT: task.wait @p_full
  // CHECK-NEXT: task.compute "sum_slice<part>" ["place"] {{.*}}
  // CHECK-NEXT: task.release @p_free
  // CHECK-NEXT: task.compute "epilogue_store_bf16<WholeSlice<nine>, out_nine>" ["mtile", "sum"] {{.*}}@out_nine[0, d0 * 18 + d1 * 18] 1 x [18]
  // TWO-NOT: gemv_ahead
  // TWO: task.compute "gemv_block<nine, ring>" ["sum", "slot", "mtile", "block", "column"]
  task.stage @nine linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@y[0, 0] 1 x [384], @w_nine[d0 * 9, 0] 9 x [1]] writes [@out_nine[0, d0 * 18] 1 x [18]]
      config {n = 72, k = 384, unit = 9, norm = "none", epilogue = "store"} {
  }
}
