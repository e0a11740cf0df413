// The smallest whole kernel at role level, by hand: norm -> linear -> linear over 4 SMs, one row
// (x 512 -> norm -> h 256 -> out 128). One exchange (h), one ring, one deadline per wait.
// RUN: megalith-opt %s | megalith-opt | FileCheck %s

// CHECK-LABEL: task.kernel @m0 "toy" target "sm_90a" sms 4 rows 1 smem 74896
task.kernel @m0 "toy" target "sm_90a" sms 4 rows 1 smem 74896 {
  task.buffer @x [1, 512] bf16 global immutable {slot = 0}
  task.buffer @gain [1, 512] bf16 global immutable {slot = 1}
  task.buffer @out [1, 128] bf16 global written {slot = 5}
  task.weights @w1 n 256 k 512 slot 2 rows ["w1"]
  task.weights @w2 n 128 k 256 slot 3 rows ["w2"]
  task.exchange @h [1, 256] bf16 sentinel sets 2 slot 4 edge @h_words
  task.ring @ring 4 x 16384 full @w_full free @w_free {offset = 0}
  task.buffer @xs [1, 512] bf16 smem scratch {row_bytes = 1056, offset = 73728, guard = @x_full}
  task.buffer @part [128, 8] f32 smem scratch {slots = 2, offset = 65536, guard = @p_full}

  // CHECK: task.edge 0 @w_full bytes producer -> consumer {offset = 74784 : i64, slots = 4 : i64}
  task.edge 0 @w_full bytes producer -> consumer {slots = 4, offset = 74784}
  task.edge 1 @w_free credit consumer -> producer {slots = 4, arrivals = 8, offset = 74816}
  task.edge 2 @h_words words epilogue -> poller
  task.edge 3 @x_full mbarrier poller -> consumer {offset = 74848}
  task.edge 4 @x_free credit consumer -> poller {arrivals = 8, offset = 74856}
  task.edge 5 @p_full mbarrier consumer -> epilogue {slots = 2, arrivals = 8, offset = 74864}
  task.edge 6 @p_free credit epilogue -> consumer {slots = 2, offset = 74880}

  // Each SM makes 64 rows of h: 32 strips, 4 m-tiles; K = 512 is one block.
  // CHECK: task.stage @norm_linear1 linear tiles 4 sms 4
  task.stage @norm_linear1 linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@x[0, 0] 1 x [512],
             @w1[d0 * 32, 0] 32 x [1]]
      writes [@h[0, d0 * 64] 1 x [64]]
      config {kUnit = 32, kEps = 1.0e-06 : f32, W = @w1, Source = @x, In = @xs, Gain = @gain, Part = @part, Out = @h}
      source "moe.linear \"linear1\"" {
    task.role producer {
      task.for "m" in 4 {
        task.for "b" in 1 {
          task.acquire @w_free
          // CHECK: task.copy "copy_piece" ["m", "b"] @w1[d0 * 32 + d1 * 8, d2] 8 x [1]
          task.copy "copy_piece" ["m", "b"]
              @w1[d0 * 32 + d1 * 8, d2] 8 x [1]
              to @ring signals @w_full
        }
      }
    }
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.launch_dependents
      task.acquire @x_free
      task.compute "load_rows" []
          reads [@x[0, 0] 1 x [512]]
          writes [@xs[0, 0] 1 x [512]]
      task.signal @x_full
    }
    task.role consumer {
      task.wait @x_full
      task.compute "rms_norm" []
          reads [@xs[0, 0] 1 x [512],
                 @gain[0, 0] 1 x [512]]
          writes [@xs[0, 0] 1 x [512]]
      task.for "m" in 4 {
        task.local "acc" : "Accumulator"
        task.for "b" in 1 {
          task.wait @w_full
          task.compute "gemv_block" ["acc", "m", "b"]
              reads [@xs[0, 0] 1 x [512]]
              writes [] ring @ring
          task.release @w_free
        }
        task.acquire @p_free {result = "const int slot"}
        task.compute "store_part" ["acc", "slot"] reads []
            writes [@part[0, 0] 128 x [8]]
        task.signal @p_full
      }
      task.release @x_free
    }
    task.role epilogue {
      task.launch_wait
      task.for "m" in 4 {
        task.wait @p_full {result = "const int slot"}
        // CHECK: task.compute "publish_rows" ["m", "slot"]
        task.compute "publish_rows" ["m", "slot"]
            reads [@part[0, 0] 128 x [8]]
            writes [@h[0, d0 * 64 + d1 * 16] 1 x [16]]
        task.release @p_free
      }
    }
  }

  // Each SM makes 32 rows of out: 16 strips, 2 m-tiles.
  task.stage @linear2 linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@h[0, 0] 1 x [256],
             @w2[d0 * 16, 0] 16 x [1]]
      writes [@out[0, d0 * 32] 1 x [32]]
      config {kUnit = 16, W = @w2, In = @xs, Part = @part, Out = @out}
      source "moe.linear \"linear2\"" {
    task.role producer {
      task.for "m" in 2 {
        task.for "b" in 1 {
          task.acquire @w_free
          task.copy "copy_piece" ["m", "b"]
              @w2[d0 * 16 + d1 * 8, d2] 8 x [1]
              to @ring signals @w_full
        }
      }
    }
    task.role poller {
      task.acquire @x_free
      // CHECK: task.poll "poll_rows" [] waits @h_words
      task.poll "poll_rows" [] waits @h_words
          reads [@h[0, 0] 1 x [256]]
          writes [@xs[0, 0] 1 x [256]]
      task.signal @x_full
    }
    task.role consumer {
      task.wait @x_full
      task.for "m" in 2 {
        task.local "acc" : "Accumulator"
        task.for "b" in 1 {
          task.wait @w_full
          task.compute "gemv_block" ["acc", "m", "b"]
              reads [@xs[0, 0] 1 x [256]]
              writes [] ring @ring
          task.release @w_free
        }
        task.acquire @p_free {result = "const int slot"}
        task.compute "store_part" ["acc", "slot"] reads []
            writes [@part[0, 0] 128 x [8]]
        task.signal @p_full
      }
      task.release @x_free
    }
    task.role epilogue {
      task.for "m" in 2 {
        task.wait @p_full {result = "const int slot"}
        task.compute "store_rows" ["m", "slot"]
            reads [@part[0, 0] 128 x [8]]
            writes [@out[0, d0 * 32 + d1 * 16] 1 x [16]]
        task.release @p_free
      }
    }
  }
}
