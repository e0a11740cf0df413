// A kernel by hand with what the small one (tests/ir/task/m0.mlir) has not: epochs behind a partition
// table, weights behind a uniform one, an edge with two waiting roles, symbols, buffers that share
// bytes, a ring of two slots.
task.kernel @hand "toy" target "sm_90a" sms 3 rows 2 smem 12288 {
  task.exchange @p [6, 6] f32 epoch sets 1 slot 0 edge @p_words
  task.exchange @h [2, 12] bf16 sentinel sets 2 slot 1 edge @h_words
  task.buffer @out [2, 6] f32 global written {slot = 2 : i64}
  task.weights @w n 24 k 128 slot 3 rows ["w.{expert}"] {experts = 2 : i64}
  task.ring @ring 2 x 2048 full @w_full free @w_free {offset = 4096 : i64}
  task.edge 0 @p_words words consumer -> poller
  task.edge 1 @h_words words epilogue -> consumer
  task.edge 2 @w_full bytes producer -> consumer {slots = 2 : i64, offset = 0 : i64}
  task.edge 3 @w_free credit consumer -> producer {slots = 2 : i64, arrivals = 8 : i64, offset = 16 : i64}
  task.edge 4 @in_full mbarrier poller -> epilogue {slots = 2 : i64, offset = 32 : i64}
  task.edge 5 @in_free credit epilogue -> poller {slots = 2 : i64, offset = 48 : i64}
  task.edge 6 @routed mbarrier consumer -> producer, epilogue {arrivals = 8 : i64, offset = 64 : i64}
  task.edge 7 @sum_full mbarrier consumer -> epilogue {slots = 2 : i64, arrivals = 8 : i64, offset = 72 : i64}
  task.edge 8 @sum_free credit epilogue -> consumer {slots = 2 : i64, offset = 88 : i64}
  task.buffer @in [1, 6] f32 smem scratch {slots = 2 : i64, guard = @in_full, offset = 128 : i64}
  task.buffer @early [2, 12] f32 smem scratch {offset = 256 : i64}
  task.buffer @late [2, 12] bf16 smem scratch {offset = 256 : i64}
  task.buffer @routing [1, 8] i32 smem scratch {offset = 512 : i64}
  task.buffer @sum [8, 8] f32 smem scratch {slots = 2 : i64, guard = @sum_full, offset = 1024 : i64}
  task.buffer @kept [2, 2] f32 smem scratch {offset = 768 : i64}
  task.symbol @tiles in 0 to 2 per_sm = "tiles"
  task.symbol @active in 0 to 2 after @routed = "active"
  task.table @tile size 6 partition = "tile"
  task.table @expert size 2 uniform = "expert"

  task.stage @scatter linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.launch_dependents
      task.for "piece" in 2 {
        task.acquire @in_free
        task.poll "poll_partials" [] waits @p_words reads [@p[d1, 0, 0] 1 x [6] table @tile] writes [@in[0, 0] 1 x [6]]
        task.signal @in_full
      }
    }
    task.role consumer {
      task.launch_wait
      task.for "tile" in @tiles {
        task.refill @early
        task.compute "prepare" [] reads [] writes [@early[0, 0] 2 x [12]]
        task.compute "publish_partials" [] reads [@early[0, 0] 2 x [12]] writes [@p[d1, 0, 0] 1 x [6] table @tile]
      }
    }
    task.role epilogue {
      task.launch_wait
      task.for "piece" in 2 {
        task.wait @in_full
        task.compute "merge" [] reads [@in[0, 0] 1 x [6]] writes [@h[d1, d0 * 4] 1 x [4]]
        task.release @in_free
      }
    }
  }
  task.stage @route top_k reads [] writes [] config {} {
    task.role consumer {
      task.refill @late
      task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 2 x [12]] writes [@late[0, 0] 2 x [12]]
      task.compute "select" [] reads [@late[0, 0] 2 x [12]] writes [@routing[0, 0] 1 x [8]]
      task.signal @routed
    }
    task.role producer {
      task.wait @routed
    }
    task.role epilogue {
      task.wait @routed
    }
  }
  task.stage @experts linear sms 3 reads [@w[d0 * 4, 0] 4 x [1]] writes [] config {} {
    task.role producer {
      task.for "e" in @active {
        task.compute "expert" [] reads [@routing[0, 0] 1 x [8]] writes [] {result = "const int expert"}
        task.acquire @w_free
        task.pace @w_full window 1
        task.copy "copy_piece" ["expert"] @w[d1, d0 * 4, 0] 4 x [1] table @expert to @ring signals @w_full
      }
    }
    task.role consumer {
      task.for "e" in @active {
        task.wait @w_full
        task.compute "gemv" [] reads [@late[0, 0] 2 x [12]] writes [] ring @ring
        task.release @w_free
        task.acquire @sum_free
        task.compute "store" [] reads [] writes [@sum[0, 0] 8 x [8]]
        task.signal @sum_full
      }
    }
    task.role epilogue {
      task.compute "clear" [] reads [] writes [@kept[0, 0] 2 x [2]]
      task.for "e" in @active {
        task.wait @sum_full
        task.compute "add" [] reads [@sum[0, 0] 8 x [8], @kept[0, 0] 2 x [2]] writes [@kept[0, 0] 2 x [2]]
        task.release @sum_free
      }
      task.compute "store_out" [] reads [@kept[0, 0] 2 x [2], @routing[0, 0] 1 x [8]] writes [@out[0, d0 * 2] 2 x [2]]
    }
  }
}
