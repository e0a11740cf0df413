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
  task.buffer @part [128, 8] f32 smem scratch {slots = 2, offset = 65536, guard = @p_full, type = "Part<$offset, $slots>"}

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
             @gain[0, 0] 1 x [512],
             @w1[d0 * 32, 0] 32 x [1]]
      writes [@h[0, d0 * 64] 1 x [64]]
      config {n = 256, k = 512, unit = 32, base = "Linear<w1, 256, 512, 32>", Norm = "RmsNorm<xs, gain, 1.0e-6f>"}
      source "moe.linear \"linear1\"" {
    task.role producer {
      task.for "m" in 4 {
        task.for "b" in 1 {
          task.acquire @w_free
          // CHECK: task.pace @w_full window 2
          task.pace @w_full window 2
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
      task.compute "read_rows<xs, x>" []
          reads [@x[0, 0] 1 x [512]]
          writes [@xs[0, 0] 1 x [512]]
      task.signal @x_full
    }
    task.role consumer {
      task.wait @x_full
      task.compute "rms_norm<norm_linear1::Norm>" []
          reads [@xs[0, 0] 1 x [512],
                 @gain[0, 0] 1 x [512]]
          writes [@xs[0, 0] 1 x [512]]
      task.local "column" : "const Column" = "dense_column<norm_linear1, xs>(cta)"
      task.for "m" in 4 {
        task.local "sum" : "ChunkSum" = "{}"
        task.for "b" in 1 {
          task.wait @w_full {result = "const int slot"}
          task.compute "gemv_block<norm_linear1, ring>" ["sum", "slot", "m", "b", "column"]
              reads [@xs[0, 0] 1 x [512]]
              writes [] ring @ring
          task.release @w_free
        }
        task.acquire @p_free {result = "const int place"}
        task.compute "store_part<part>" ["place", "sum"] reads []
            writes [@part[0, 0] 128 x [8]]
        task.signal @p_full
      }
      task.release @x_free
    }
    task.role epilogue {
      task.launch_wait
      task.for "m" in 4 {
        task.wait @p_full {result = "const int place"}
        task.compute "sum_chunks<part>" ["place"]
            reads [@part[0, 0] 128 x [8]]
            writes [] {result = "const Fragment sum"}
        task.release @p_free
        // CHECK: task.compute "epilogue_words<norm_linear1, h_words>" ["m", "sum"]
        task.compute "epilogue_words<norm_linear1, h_words>" ["m", "sum"]
            reads []
            writes [@h[0, d0 * 64 + d1 * 16] 1 x [16]]
      }
    }
  }

  // Each SM makes 32 rows of out: 16 strips, 2 m-tiles.
  task.stage @linear2 linear tiles 4 sms 4 assign affine_map<(t) -> (t, 0)>
      reads [@h[0, 0] 1 x [256],
             @w2[d0 * 16, 0] 16 x [1]]
      writes [@out[0, d0 * 32] 1 x [32]]
      config {n = 128, k = 256, unit = 16, base = "Linear<w2, 128, 256, 16>", In = "Rows<xs::kOffset, Config::kRows, 256>"}
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
      // CHECK: task.poll "poll_rows<h_words, linear2::In>" [] waits @h_words
      task.poll "poll_rows<h_words, linear2::In>" [] waits @h_words
          reads [@h[0, 0] 1 x [256]]
          writes [@xs[0, 0] 1 x [256]]
      task.signal @x_full
    }
    task.role consumer {
      task.wait @x_full
      task.local "column" : "const Column" = "dense_column<linear2, linear2::In>(cta)"
      task.for "m" in 2 {
        task.local "sum" : "ChunkSum" = "{}"
        task.for "b" in 1 {
          task.wait @w_full {result = "const int slot"}
          task.compute "gemv_block<linear2, ring>" ["sum", "slot", "m", "b", "column"]
              reads [@xs[0, 0] 1 x [256]]
              writes [] ring @ring
          task.release @w_free
        }
        task.acquire @p_free {result = "const int place"}
        task.compute "store_part<part>" ["place", "sum"] reads []
            writes [@part[0, 0] 128 x [8]]
        task.signal @p_full
      }
      task.release @x_free
    }
    task.role epilogue {
      task.for "m" in 2 {
        task.wait @p_full {result = "const int place"}
        task.compute "sum_chunks<part>" ["place"]
            reads [@part[0, 0] 128 x [8]]
            writes [] {result = "const Fragment sum"}
        task.release @p_free
        task.compute "epilogue_store_bf16<linear2, out>" ["m", "sum"]
            reads []
            writes [@out[0, d0 * 32 + d1 * 16] 1 x [16]]
      }
    }
  }
}
