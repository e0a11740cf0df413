// What orders two accesses of shared memory, and what does not: docs/memory-order.md. Each error
// names both tasks, the range, the missing edge and what to do.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -task-verify

// A slot is given back before anybody knows that its copy has landed.
task.kernel @not_landed "toy" target "sm_90a" sms 1 rows 1 {
  task.weights @w n 6 k 128 slot 0 rows ["w"]
  task.ring @ring 2 x 4096 full @w_full free @w_free
  task.edge 0 @w_full bytes producer -> consumer {slots = 2 : i64}
  task.edge 1 @w_free credit consumer -> producer {slots = 2 : i64, arrivals = 8 : i64}
  task.stage @s linear reads [@w[0, 0] 3 x [1]] writes [] config {} {
    task.role producer {
      task.for "i" in 3 {
        task.acquire @w_free
        // expected-note @+2 {{the earlier access is here}}
        // expected-error @+1 {{by the producer of @s is not ordered after the bulk copy into it by the producer of @s; expected a wait for @w_full, which the copy's bytes complete, between them}}
        task.copy "copy_piece" [] @w[d1, 0] 1 x [1] to @ring signals @w_full
      }
    }
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.release @w_free
      task.for "i" in 3 {
        task.wait @w_full
        task.compute "gemv" [] reads [] writes [] ring @ring
      }
      task.release @w_free
      task.release @w_free
    }
  }
}

// -----

// Rows of an earlier launch come by bulk copies, which land at the next signal of @x_full; @told
// says only that they are under way.
task.kernel @writer "stage" target "sm_90a" sms 1 rows 1 {
  task.exchange @h [1, 8] bf16 plain sets 1 slot 0 edge @h_words
  task.edge 0 @h_words launch epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role epilogue {
      task.launch_wait
      task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8]]
    }
  }
}
task.kernel @fetched "stage" target "sm_90a" sms 1 rows 1 {
  task.exchange @h [1, 8] bf16 plain sets 1 slot 0 edge @h_words
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words launch epilogue -> poller
  task.edge 1 @x_full mbarrier poller -> consumer
  task.edge 2 @told mbarrier poller -> consumer
  task.stage @rows linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      // expected-note @+1 {{the earlier access is here}}
      task.poll "fetch_rows" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]] joins @x_full
      task.signal @told
      task.signal @x_full
    }
    task.role consumer {
      task.wait @told
      // expected-error @+1 {{the read of @xs rows [0, 1) columns [0, 8) by the consumer of @rows is not ordered after the bulk copy into it by the poller of @rows; expected a wait for @x_full, which the copy's bytes complete, between them}}
      task.compute "f" [] reads [@xs[0, 0] 1 x [8]] writes []
      task.wait @x_full
    }
  }
}

// -----

// Stores and bulk copies are of different proxies.
task.kernel @writer "stage" target "sm_90a" sms 1 rows 1 {
  task.exchange @h [1, 8] bf16 plain sets 1 slot 0 edge @h_words
  task.edge 0 @h_words launch epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role epilogue {
      task.launch_wait
      task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8]]
    }
  }
}
task.kernel @proxies "stage" target "sm_90a" sms 1 rows 1 {
  task.exchange @h [1, 8] bf16 plain sets 1 slot 0 edge @h_words
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words launch epilogue -> poller
  task.edge 1 @x_full mbarrier poller -> consumer
  task.edge 2 @done mbarrier consumer -> poller {arrivals = 8 : i64}
  task.stage @rows linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      task.wait @done
      // expected-error @+1 {{the bulk copy into @xs rows [0, 1) columns [0, 8) by the poller of @rows is not ordered after the write of it by the consumer of @rows; expected another buffer, since only fence.proxy.async orders stores before a bulk copy}}
      task.poll "fetch_rows" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]] joins @x_full
      task.signal @x_full
    }
    task.role consumer {
      // expected-note @+1 {{the earlier access is here}}
      task.compute "clear" [] reads [] writes [@xs[0, 0] 1 x [8]]
      task.signal @done
      task.wait @x_full
    }
  }
}

// -----

// Two buffers in the same bytes: what one holds is gone once the other is filled, by the same role too.
task.kernel @overlaid "toy" target "sm_90a" sms 1 rows 1 smem 64 {
  task.buffer @a [1, 8] bf16 smem scratch {offset = 0 : i64}
  task.buffer @b [1, 8] bf16 smem scratch {offset = 8 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      // expected-note @+1 {{the poller of @s writes it here}}
      task.compute "fill" [] reads [] writes [@a[0, 0] 1 x [8]]
      task.compute "fill" [] reads [] writes [@b[0, 0] 1 x [8]]
      // expected-error @+1 {{reads @a rows [0, 1) columns [0, 8), not all of which filling 0 wrote}}
      task.compute "use" [] reads [@a[0, 0] 1 x [8]] writes []
      task.compute "fill" [] reads [] writes [@a[0, 0] 1 x [8]]
      // expected-error @+1 {{the poller of @s fills @b over bytes of @a, which the same op reads; expected buffers that lie apart}}
      task.compute "move" [] reads [@a[0, 0] 1 x [8]] writes [@b[0, 0] 1 x [8]]
    }
  }
}

// -----

task.kernel @beyond "toy" target "sm_90a" sms 1 rows 1 smem 24 {
  // expected-error @+1 {{is placed at bytes 16 to 32 of shared memory, of which the kernel has 24; expected a lower offset, or more smem}}
  task.buffer @a [1, 8] bf16 smem scratch {offset = 16 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// Two buffers at one place: a warp that is done with the first does not know that others are.
task.kernel @over "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch {offset = 64 : i64}
  task.buffer @part [1, 8] f32 smem scratch {offset = 64 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      // expected-note @+1 {{the earlier access is here}}
      task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
      task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
      // expected-error @+1 {{the consumer of @s touches @part, which has bytes of @xs, while other warps of the consumer may still be at the consumer of @s; expected a task.refill, or an edge to another role and one back, between them}}
      task.compute "store_part" [] reads [] writes [@part[0, 0] 1 x [8]]
    }
  }
}

// -----

// Nobody is said to meet: the next turn fills what other warps may still read.
task.kernel @turns "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch {offset = 64 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        // expected-error @+1 {{fills @xs rows [0, 1) columns [0, 8) again, while other warps of the consumer may still be at it; expected a task.refill before}}
        task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
      }
    }
  }
}

// -----

// The next launch of a step begins anew, but warps may still be in the one before.
module attributes {megalith.launches = [@next, @next]} {
  task.kernel @next "step" target "sm_90a" sms 1 rows 1 attributes {launches = 2 : i64, layered = 0 : i64} {
    task.buffer @xs [1, 8] f32 smem scratch
    task.edge 0 @complete launches poller -> poller {slot = 1 : i64}
    task.edge 1 @over mbarrier consumer -> poller {slots = 2 : i64, arrivals = 8 : i64}
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait @complete
        task.wait @over
        task.launch_done @complete
      }
      task.role consumer {
        // expected-error @+1 {{fills @xs rows [0, 1) columns [0, 8) again, while other warps of the consumer may still be at it; expected a task.refill before}}
        task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
        task.signal @over
      }
    }
  }
}

// -----

// Once they heard of the launch's end, which is that of all warps, none is.
module attributes {megalith.launches = [@told, @told]} {
  task.kernel @told "step" target "sm_90a" sms 1 rows 1 attributes {launches = 2 : i64, layered = 0 : i64} {
    task.buffer @xs [1, 8] f32 smem scratch
    task.edge 0 @complete launches poller -> poller {slot = 1 : i64}
    task.edge 1 @over mbarrier consumer -> poller {arrivals = 8 : i64}
    task.edge 2 @begin mbarrier poller -> consumer
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait @complete
        task.signal @begin
        task.wait @over
        task.launch_done @complete
      }
      task.role consumer {
        task.wait @begin
        task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
        task.signal @over
      }
    }
  }
}

// -----

// Who works in place reads too, whatever that warp has written by now.
task.kernel @in_place "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch {offset = 64 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        // expected-error @+1 {{fills @xs rows [0, 1) columns [0, 8) again, while other warps of the consumer may still be at it; expected a task.refill before}}
        task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
        task.compute "quantize_input" [] reads [@xs[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
      }
    }
  }
}

// -----

// Of sums that no other step reads the warps read each other's within the one that fills them.
task.kernel @sums "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @sums [2, 8] f32 smem scratch {offset = 64 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        // expected-error @+1 {{fills @sums rows [0, 2) columns [0, 8) again, while other warps of the consumer may still be at it; expected a task.refill before}}
        task.compute "norm_row" [] reads [] writes [@sums[0, 0] 2 x [8]]
      }
    }
  }
}

// -----

// So they do although a step reads another filling of the buffer.
task.kernel @sums_then_part "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @sums [2, 8] f32 smem scratch {offset = 64 : i64}
  task.buffer @xs [1, 8] f32 smem scratch {offset = 128 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        // expected-error @+1 {{fills @sums rows [0, 2) columns [0, 8) again, while other warps of the consumer may still be at it; expected a task.refill before}}
        task.compute "norm_row" [] reads [] writes [@sums[0, 0] 2 x [8]]
      }
      task.refill @xs
      task.compute "store_part" [] reads [] writes [@sums[0, 0] 2 x [8]]
      task.compute "add" [] reads [@sums[0, 0] 2 x [8]] writes []
    }
  }
}

// -----

// Or an earlier one: nobody comes for what the turns left.
task.kernel @part_then_sums "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @sums [2, 8] f32 smem scratch {offset = 64 : i64}
  task.buffer @xs [1, 8] f32 smem scratch {offset = 128 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "store_part" [] reads [] writes [@sums[0, 0] 2 x [8]]
      task.compute "add" [] reads [@sums[0, 0] 2 x [8]] writes []
      task.refill @xs
      task.for "turn" in 2 {
        // expected-error @+1 {{fills @sums rows [0, 2) columns [0, 8) again, while other warps of the consumer may still be at it; expected a task.refill before}}
        task.compute "norm_row" [] reads [] writes [@sums[0, 0] 2 x [8]]
      }
    }
  }
}

// -----

// Another stage's shares are no continuation of what a stage has left.
task.kernel @sums_of_stages "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @sums [2, 8] f32 smem scratch {offset = 64 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "norm_row" [] reads [] writes [@sums[0, 0] 2 x [8]]
    }
  }
  task.stage @t linear reads [] writes [] config {} {
    task.role consumer {
      // expected-error @+1 {{fills @sums rows [0, 2) columns [0, 8) again, while other warps of the consumer may still be at it; expected a task.refill before}}
      task.compute "store_part" [] reads [] writes [@sums[0, 0] 2 x [8]]
      task.compute "add" [] reads [@sums[0, 0] 2 x [8]] writes []
    }
  }
}

// -----

// Nor are another function's, in one stage: warps may still be within the first.
task.kernel @sums_of_functions "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @sums [2, 8] f32 smem scratch {offset = 64 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "norm_row" [] reads [] writes [@sums[0, 0] 2 x [8]]
      // expected-error @+1 {{fills @sums rows [0, 2) columns [0, 8) again, while other warps of the consumer may still be at it; expected a task.refill before}}
      task.compute "store_part" [] reads [] writes [@sums[0, 0] 2 x [8]]
      task.compute "add" [] reads [@sums[0, 0] 2 x [8]] writes []
    }
  }
}

// -----

// Shares are read where pieces of them have all been.
task.kernel @sums_by_rows "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @sums [2, 8] f32 smem scratch {offset = 64 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        task.compute "store_part" [] reads [] writes [@sums[0, 0] 2 x [8]]
      }
      task.for "row" in 2 {
        task.compute "add" [] reads [@sums[d1, 0] 1 x [8]] writes []
      }
    }
  }
}

// -----

// Half of them is not all.
task.kernel @sums_by_half "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @sums [2, 8] f32 smem scratch {offset = 64 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        // expected-error @+1 {{fills @sums rows [0, 2) columns [0, 8) again}}
        task.compute "store_part" [] reads [] writes [@sums[0, 0] 2 x [8]]
      }
      task.compute "add" [] reads [@sums[0, 0] 1 x [8]] writes []
    }
  }
}

// -----

// A refill in a launch begins a filling that no launch's is.
module attributes {megalith.launches = [@k, @k]} {
  task.kernel @k "refilled" target "sm_90a" sms 1 rows 1 attributes {launches = 2 : i64, layered = 0 : i64} {
    task.buffer @xs [1, 8] f32 smem scratch
    task.edge 0 @complete launches poller -> poller {slot = 1 : i64}
    task.edge 1 @over mbarrier consumer -> poller {arrivals = 8 : i64}
    task.edge 2 @begin mbarrier poller -> consumer
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait @complete
        task.signal @begin
        task.wait @over
        task.launch_done @complete
      }
      task.role consumer {
        task.wait @begin
      }
    }
    task.stage @t linear reads [] writes [] config {} attributes {during = array<i64: 1, 2>} {
      task.role consumer {
        // expected-note @+1 {{the consumer of @t writes it here}}
        task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
        task.refill @xs
        // expected-error @+1 {{reads @xs rows [0, 1) columns [0, 8), not all of which filling 2 wrote}}
        task.compute "gemv2" [] reads [@xs[0, 0] 1 x [8]] writes []
      }
    }
    task.stage @e linear reads [] writes [] config {} {
      task.role consumer {
        task.signal @over
      }
    }
  }
}

// -----

// Nor is what an earlier launch left, refilled there, this one's.
module attributes {megalith.launches = [@k, @k]} {
  task.kernel @k "left_refilled" target "sm_90a" sms 1 rows 1 attributes {launches = 2 : i64, layered = 0 : i64} {
    task.buffer @xs [1, 8] f32 smem scratch
    task.edge 0 @complete launches poller -> poller {slot = 1 : i64}
    task.edge 1 @over mbarrier consumer -> poller {arrivals = 8 : i64}
    task.edge 2 @begin mbarrier poller -> consumer
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait @complete
        task.signal @begin
        task.wait @over
        task.launch_done @complete
      }
      task.role consumer {
        task.wait @begin
      }
    }
    task.stage @t linear reads [] writes [] config {} attributes {during = array<i64: 0, 1>} {
      task.role consumer {
        task.refill @xs
        // expected-note @+1 {{the consumer of @t writes it here}}
        task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
      }
    }
    task.stage @e linear reads [] writes [] config {} {
      task.role consumer {
        // expected-error @+1 {{reads @xs rows [0, 1) columns [0, 8), not all of which filling 2 wrote}}
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
        task.signal @over
      }
    }
  }
}

// -----

// They met, or fill shares of their own, which they read once they have met.
task.kernel @shares "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch {offset = 64 : i64}
  task.buffer @apart [1, 8] f32 smem scratch {offset = 128 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        task.refill @xs
        task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
        task.for "piece" in 2 {
          task.compute "keep" [] reads [] writes [@apart[0, 0] 1 x [8]]
        }
        task.compute "join" [] reads [@apart[0, 0] 1 x [8]] writes []
      }
    }
  }
}

// -----

// They met, or another role heard from all of them.
task.kernel @over_after_refill "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch {offset = 64 : i64}
  task.buffer @part [1, 8] f32 smem scratch {offset = 64 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
      task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
      task.refill @part
      task.compute "store_part" [] reads [] writes [@part[0, 0] 1 x [8]]
      task.compute "add" [] reads [@part[0, 0] 1 x [8]] writes []
    }
  }
}
task.kernel @over_after_edges "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch {offset = 64 : i64}
  task.buffer @part [1, 8] f32 smem scratch {offset = 64 : i64}
  task.edge 0 @told mbarrier consumer -> epilogue {arrivals = 8 : i64, offset = 0 : i64}
  task.edge 1 @back mbarrier epilogue -> consumer {offset = 8 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
      task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
      task.signal @told
      task.wait @back
      task.compute "store_part" [] reads [] writes [@part[0, 0] 1 x [8]]
      task.compute "add" [] reads [@part[0, 0] 1 x [8]] writes []
    }
    task.role epilogue {
      task.wait @told
      task.signal @back
    }
  }
}
