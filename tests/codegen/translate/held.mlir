// Consumers of one row hold pieces of a stage whose words come from other ranks while they would only wait: six at
// most, and one at least is left to the run behind, which goes on where they end. Not with two rows, nor where rows
// are of this rank alone.
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' > %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: megalith-translate --emit-kernels --no-digests %t.mlir | FileCheck %s --check-prefix=SOURCE
// RUN: sed -e 's/rows 1 attr/rows 2 attr/; s/\[1, /[2, /; s/ 1 x \[/ 2 x [/g; s/@armed \[2/@armed [1/' %s > %t.two.mlir
// RUN: megalith-opt %t.two.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s --check-prefix=TWO

// CHECK: task.stage @narrow linear {{.*}}base = "Linear<w_narrow, 32, 8192, 4, 2>"
// CHECK: task.role consumer
// CHECK: task.local "held" : "HeldPieces<narrow, Cta, 6>"
// CHECK-NEXT: task.for "piece" in 6 attributes {unrolled} {
// CHECK-NEXT: task.wait @w_full {{.*}}"const int slot"
// CHECK-NEXT: task.compute "hold_piece<narrow, ring>" ["held", "slot", "piece"] reads [] writes [] ring @ring
// CHECK-NEXT: task.release @w_free
// CHECK-NEXT: }
// CHECK: task.poll "poll_chunk<x_words, narrow::In>"
// CHECK: task.compute "multiply_held<narrow>" ["sum", "held", "column"] reads [@xs{{.*}}] writes []
// CHECK-NEXT: task.for "piece" in 2 {
// CHECK: task.compute "gemv_blocks<narrow, ring>" ["sum", "slot", "mtile", "6 + piece", "column"]
// CHECK: task.stage @own
// CHECK-NOT: hold_piece
// TWO-NOT: hold_piece

// SOURCE: HeldPieces<narrow, Cta, 6> held;
// SOURCE-NEXT: MEGALITH_UNROLL_ALL
// SOURCE-NEXT: for (int piece = 0; piece < 6; ++piece) {
// SOURCE-NEXT:   const int slot = wait<w_full>(cta);
// SOURCE-NEXT:   hold_piece<narrow, ring>(cta, held, slot, piece);
// SOURCE-NEXT:   release<w_free>(cta);
// SOURCE-NEXT: }
// SOURCE: multiply_held<narrow>(cta, sum, held, column);
// SOURCE-NEXT: multiply_pieces_from<w_full, w_free, ring, narrow>(cta, sum, mtile, 6, 2, column);
task.kernel @behind "layer" target "sm_90a" sms 4 rows 1 attributes {ranks = 2 : i64} {
  task.buffer @embedding [1000, 8192] bf16 global immutable {slot = 0}
  task.weights @w_narrow n 32 k 8192 slot 2 rows ["narrow"]
  task.edge 0 @armed_words words poller -> poller
  task.exchange @armed [1, 8] i32 number sets 1 slot 5 edge @armed_words {peers}
  task.buffer @x [1, 8192] bf16 global value {peers}
  task.weights @w_own n 32 k 32 slot 4 rows ["own"]
  task.buffer @y [1, 32] bf16 global value
  task.buffer @out [1, 32] bf16 global written {slot = 6}
  task.stage @embed embed tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@embedding[0, 0] 1000 x [8192]] writes [@x[0, d0 * 1024] 1 x [1024] own]
      config {hidden = 8192, vocab = 1000} {
  }
  task.stage @narrow linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@x[0, 0] 1 x [8192], @w_narrow[d0 * 4, 0] 4 x [16]] writes [@y[0, d0 * 8] 1 x [8]]
      config {n = 32, k = 8192, unit = 4, norm = "none", epilogue = "store"} {
  }
  task.stage @own linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@y[0, 0] 1 x [32], @w_own[d0 * 4, 0] 4 x [1]] writes [@out[0, d0 * 8] 1 x [8]]
      config {n = 32, k = 32, unit = 4, norm = "none", epilogue = "store"} {
  }
  task.stage @launch_end launch_end reads [] writes [] config {} {
  }
}
