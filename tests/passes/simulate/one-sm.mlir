// One SM, one stage of two pieces: times that can be added up by hand from Inputs/toy.json.
// RUN: megalith-opt %s --task-simulate="costs=%S/Inputs/toy.json launches=2" 2>&1 | FileCheck %s

// The CTA's roles begin at 300. A look at a free slot takes the producer 50, a copy 100; its bytes
// flow 500 after it was issued, at 16.384 a ns, half of it while two flow. So the first piece, issued
// at 350, has 150 ns alone and the rest beside the second: it lands at 2700, the second at 2850.
// CHECK: one-sm.mlir:{{.*}}: remark: predicted, producer: 300.0 to 600.0 ns
// The launch before is over for 500; griddepcontrol.wait takes 900 from the begin.
// CHECK: remark: predicted, poller: 300.0 to 900.0 ns
// A product takes 100, passing a full or free slot 50: 2700 + 100 + 50, + 50 + 100 + 50, 50 more for
// a free slot, 50 to store and 50 to signal. The second piece is there: a look of 50.
// CHECK: remark: predicted, consumer: 300.0 to 3200.0 ns, waited 0.0, stalled 2450.0
// The chunks' signal of 3150 is seen 70 later; 80 to add them up, 50 to release, 60 to store.
// CHECK: remark: predicted, epilogue: 300.0 to 3410.0 ns
task.kernel @one "toy" target "sm_90a" sms 1 rows 1 smem 131072 {
  task.weights @w n 16 k 1024 slot 0 rows ["w"]
  task.buffer @out [1, 16] bf16 global written {slot = 1}
  task.ring @ring 4 x 16384 full @w_full free @w_free {offset = 0}
  task.buffer @part [128, 8] f32 smem scratch {slots = 2, offset = 65536, guard = @p_full}
  task.edge 0 @w_full bytes producer -> consumer {slots = 4, offset = 80000}
  task.edge 1 @w_free credit consumer -> producer {slots = 4, arrivals = 8, offset = 80032}
  task.edge 2 @p_full mbarrier consumer -> epilogue {slots = 2, arrivals = 8, offset = 80064}
  task.edge 3 @p_free credit epilogue -> consumer {slots = 2, offset = 80080}
  task.stage @linear linear tiles 1 sms 1 assign affine_map<(t) -> (t, 0)>
      reads [@w[d0 * 8, 0] 8 x [2]] writes [@out[0, d0 * 16] 1 x [16]]
      config {n = 16, k = 1024, unit = 8} {
    task.role producer {
      task.for "b" in 2 {
        task.acquire @w_free
        task.pace @w_full window 2
        task.copy "copy_piece" ["b"] @w[d0 * 8, d1] 8 x [1] to @ring signals @w_full
      }
    }
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "b" in 2 {
        task.wait @w_full
        task.compute "gemv_block<linear, ring>" [] reads [] writes [] ring @ring
        task.release @w_free
      }
      task.acquire @p_free
      task.compute "store_part<part>" [] reads [] writes [@part[0, 0] 128 x [8]]
      task.signal @p_full
    }
    task.role epilogue {
      task.wait @p_full
      task.compute "sum_chunks<part>" [] reads [@part[0, 0] 128 x [8]] writes []
      task.release @p_free
      task.compute "epilogue_store_bf16<linear, 1>" [] reads [] writes [@out[0, d0 * 16] 1 x [16]]
    }
  }
}
