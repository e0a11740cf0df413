// Activation rows too wide for shared memory come in parts of K (docs/kernel-contract.md section 14): parts
// outermost, all m-tiles of the SM in each, their sums in registers; m-tiles that registers have no room for
// are another group. Stages that shared rows read them themselves; rows that are normed stay whole.
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams{input-bytes=20000}),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s --check-prefix=WHOLE
// Only whole blocks make a part.
// RUN: sed 's/unit = 56, norm = "none"/unit = 56, k_parts = 3, norm = "none"/' %s | not megalith-opt --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges))' 2>&1 | FileCheck %s --check-prefix=BAD

// BAD: expected k_parts to divide the 2 blocks of K, and K to be a multiple of 128, but got 3 parts of 1024

// CHECK: task.buffer @xs [16, 512] bf16 smem scratch
// WHOLE: task.buffer @xs [16, 1024] bf16 smem scratch
// WHOLE-NOT: k_part
task.kernel @first "embed" target "sm_90a" sms 4 rows 16 {
  task.buffer @embedding [1000, 1024] bf16 global immutable {slot = 0}
  task.weights @w_many n 448 k 1024 slot 2 rows ["many"]
  task.weights @w_few n 64 k 1024 slot 3 rows ["few"]
  task.buffer @resid [16, 1024] bf16 global value
  task.buffer @out_many [16, 448] bf16 global written {slot = 4}
  task.buffer @out_few [16, 64] bf16 global written {slot = 5}
  task.stage @embed embed tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@embedding[0, 0] 1000 x [1024]] writes [@resid[0, d0 * 256] 16 x [256]]
      config {hidden = 1024, vocab = 1000} {
  }
  // 7 m-tiles, of 16 sums a lane each: groups of 3. Each of the two parts is one of the two blocks.
  // CHECK: task.stage @many linear {{.*}} config {In = "Rows<xs::kOffset, Config::kRows, 512>"{{.*}}k_parts = 2
  // CHECK-SAME: order = ["k_part", "mtile", "block"]
  // CHECK: task.role producer
  // CHECK-NEXT: task.for "group" in 3
  // CHECK-NEXT: task.for "k_part" in 2
  // CHECK-NEXT: task.for "mtile" in [3, d1 * -3 + 7]
  // CHECK-NEXT: task.for "block" in 1
  // CHECK: task.copy "copy_piece<w_full, ring, many>" ["group * 3 + mtile", "k_part * 1 + block"] {{.*}}@w_many[d0 * 56 + (d1 * 3 + d3) * 8, d2 + d4] 8 x [1]
  // CHECK: task.role consumer
  // CHECK: task.for "group" in 3
  // CHECK-NEXT: task.local "sums[3]" : "ChunkSums" = "{}"
  // CHECK-NEXT: task.for "k_part" in 2
  // CHECK-NEXT: task.refill @xs
  // CHECK-NEXT: task.poll "poll_chunk_part<resid_words, many::In, 2>" ["k_part"] waits @resid_words reads [@resid[0, d2 * 64] 16 x [64], @resid[0, d2 * 64 + 128] 16 x [64],
  // CHECK-SAME: @resid[0, d2 * 64 + 896] 16 x [64]] writes [@xs[0, 0] 16 x [512]]
  // CHECK-NEXT: task.local "column" : "const Columns" = "dense_columns<many, many::In>(cta)"
  // CHECK-NEXT: task.for "mtile" in [3, d1 * -3 + 7] attributes {unrolled}
  // CHECK-NEXT: task.for "block" in 1
  // CHECK-NEXT: task.wait @w_full
  // CHECK-NEXT: task.compute "gemv_block<many, ring>" ["sums[mtile]", "slot", "group * 3 + mtile", "block", "column"]
  // CHECK: task.for "mtile" in [3, d1 * -3 + 7] attributes {unrolled}
  // CHECK-NEXT: task.acquire @p_free
  // CHECK-NEXT: task.compute "store_part<part>" ["place", "sums[mtile]"]
  task.stage @many linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@resid[0, 0] 16 x [1024], @w_many[d0 * 56, 0] 56 x [2]] writes [@out_many[0, d0 * 112] 16 x [112]]
      config {n = 448, k = 1024, unit = 56, norm = "none", epilogue = "store"} {
  }
  // It would have shared the rows.
  // WHOLE: task.stage @few {{.*}}shares_input = @many
  // CHECK: task.stage @few linear {{.*}}reads [@resid[0, 0] 16 x [1024], {{.*}}k_parts = 2
  // CHECK: task.poll "poll_chunk_part<resid_words, few::In, 2>"
  task.stage @few linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@resid[0, 0] 16 x [1024], @w_few[d0 * 8, 0] 8 x [2]] writes [@out_few[0, d0 * 16] 16 x [16]]
      config {n = 64, k = 1024, unit = 8, norm = "none", epilogue = "store"} {
  }
}
