// What must happen exactly once, and to whom words go.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -task-verify

// Half of the words that SMs publish is read by nobody.
task.kernel @half_read "toy" target "sm_90a" sms 1 rows 1 {
  // expected-error @+1 {{of @half_read: @h has words that are published but never polled, the first at row 0, column 4; expected some SM to read each: a task.poll whose reads cover it}}
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.launch_dependents
      // expected-note @+1 {{the poller of @s polls others here}}
      task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 1 x [4]] writes [@xs[0, 0] 1 x [4]]
    }
    task.role epilogue {
      task.launch_wait
      task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8]]
    }
  }
}

// -----

// Rows behind a partition table: polls wait for all who publish, but somebody must.
task.kernel @nobody "toy" target "sm_90a" sms 1 rows 1 {
  task.exchange @p [8, 6] f32 epoch sets 1 slot 0 edge @p_words
  task.buffer @xs [8, 6] f32 smem scratch
  // expected-note @+1 {{the edge is declared here}}
  task.edge 0 @p_words words consumer -> poller
  task.table @tile size 1 partition = "tile"
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      // expected-error @+1 {{deadlock: the poller of @s polls words of @p_words that nothing publishes in this launch}}
      task.poll "poll_partials" [] waits @p_words reads [@p[0, 0, 0] 8 x [6] table @tile] writes [@xs[0, 0] 8 x [6]]
    }
  }
}

// -----

// Of each expert's matrix the second half of the strips is missing; and no expert is number 0.
task.kernel @experts "toy" target "sm_90a" sms 1 rows 1 {
  // expected-error @+1 {{of @experts: @w has blocks that no SM streams, the first at argument 0 of a table, row 4, column 0; expected each exactly once: slices that join, and loops over all of them}}
  task.weights @w n 16 k 128 slot 0 rows ["w.{expert}"] {experts = 4 : i64}
  // expected-error @+1 {{is streamed for argument 1 of its table but not for the one before; expected arguments to count from 0}}
  task.weights @v n 8 k 128 slot 1 rows ["v.{expert}"] {experts = 4 : i64}
  task.ring @ring 8 x 4096 full @w_full free @w_free
  task.edge 0 @w_full bytes producer -> consumer {slots = 8 : i64}
  task.edge 1 @w_free credit consumer -> producer {slots = 8 : i64, arrivals = 8 : i64}
  task.table @expert size 4 uniform = "expert"
  task.stage @s linear reads [@w[0, 0] 8 x [1], @v[0, 0] 4 x [1]] writes [] config {} {
    task.role producer {
      task.for "e" in 2 {
        task.acquire @w_free
        // expected-note @+1 {{the producer of @s streams others here}}
        task.copy "copy_piece" [] @w[d1, 0, 0] 4 x [1] table @expert to @ring signals @w_full
        task.acquire @w_free
        task.copy "copy_piece" [] @v[d1 + 1, 0, 0] 4 x [1] table @expert to @ring signals @w_full
      }
    }
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "i" in 4 {
        task.wait @w_full
        task.compute "gemv" [] reads [] writes [] ring @ring
        task.release @w_free
      }
    }
  }
}

// -----

// Positions are kept apart by the pages' tables and nothing else.
task.kernel @pages "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @kv [8, 64] bf16 global pages {slot = 0 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      // expected-error @+1 {{touches the pages @kv without an injective table, which alone keeps positions apart; add table @name to the access}}
      task.compute "append" [] reads [] writes [@kv[0, 0] 1 x [64]]
    }
  }
}

// -----

// The first launch of a looping kernel has none before it.
module attributes {megalith.launches = [@loop, @loop]} {
  task.kernel @loop "step" target "sm_90a" sms 1 rows 1 attributes {launches = 2 : i64, layered = 0 : i64} {
    task.exchange @h [1, 8] bf16 sentinel sets 3 slot 0 edge @h_words
    task.buffer @xs [1, 8] bf16 smem scratch
    task.edge 0 @h_words words poller -> poller
    task.edge 1 @complete launches poller -> poller {slot = 1 : i64}
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait @complete
        task.rearm @h
        // expected-error @+1 {{the poller of @s polls the previous set in the kernel's first launch, whose words no launch of this kernel publishes; expected the current set, or a stage that runs later (during)}}
        task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 1 x [8] previous] writes [@xs[0, 0] 1 x [8]]
        task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8]]
        task.launch_done @complete
      }
    }
  }
}

// -----

// Words that cross belong to the launch before; and a launch must want them.
module attributes {megalith.launches = [@reader, @writer]} {
  task.kernel @writer "toy" target "sm_90a" sms 1 rows 1 {
    task.exchange @h [1, 8] bf16 sentinel sets 3 slot 0 edge @h_words
    task.edge 0 @h_words words epilogue -> poller
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait
        task.rearm @h
        task.launch_dependents
      }
      task.role epilogue {
        task.launch_wait
        // expected-note @+1 {{the epilogue of @s in @writer publishes them, in launch 1}}
        task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8]]
      }
    }
  }
  task.kernel @reader "toy" target "sm_90a" sms 1 rows 1 {
    task.exchange @h [1, 8] bf16 sentinel sets 3 slot 0 edge @h_words
    task.buffer @xs [1, 8] bf16 smem scratch
    task.edge 0 @h_words words epilogue -> poller
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        // expected-error @+1 {{polls words of @h in launch 0 that the launch before publishes, but this is the step's first}}
        task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 1 x [8] previous] writes [@xs[0, 0] 1 x [8]]
        task.launch_wait
        task.rearm @h
        task.launch_dependents
      }
    }
  }
}

// -----

module attributes {megalith.launches = [@writer]} {
  task.kernel @writer "toy" target "sm_90a" sms 1 rows 1 {
    task.exchange @h [1, 8] bf16 sentinel sets 3 slot 0 edge @h_words
    task.edge 0 @h_words words epilogue -> poller
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait
        task.rearm @h
        task.launch_dependents
      }
      task.role epilogue {
        task.launch_wait
        // expected-error @+1 {{publishes words of @h in launch 0, which neither this launch nor the next polls}}
        task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8]]
      }
    }
  }
}

// -----

// Only the launch that owns a set writes it.
task.kernel @older "toy" target "sm_90a" sms 1 rows 1 {
  task.exchange @h [1, 8] bf16 sentinel sets 3 slot 0 edge @h_words
  task.edge 0 @h_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role epilogue {
      // expected-error @+1 {{stores to the previous set of @h; expected the current one}}
      task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8] previous]
    }
    task.role poller {
      task.launch_wait
    }
  }
}

// -----

task.kernel @idle "toy" target "sm_90a" sms 1 rows 1 {
  task.exchange @h [1, 8] bf16 sentinel sets 3 slot 0 edge @h_words
  task.edge 0 @h_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{expected to read words of @h_words}}
      task.poll "poll_rows" [] waits @h_words reads [] writes []
    }
  }
}

// -----

// What launches hand on is read once by a kernel, unless it was written again.
module attributes {megalith.launches = [@writer, @reader, @reader]} {
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
  task.kernel @reader "stage" target "sm_90a" sms 1 rows 1 {
    task.exchange @h [1, 8] bf16 plain sets 1 slot 0 edge @h_words
    task.buffer @xs [1, 8] bf16 smem scratch
    task.edge 0 @h_words launch epilogue -> poller
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait
        task.launch_dependents
        // expected-error @+1 {{reads @h in launch 2, which its kernel read before and no launch has written since launch 0; expected the writer between the two}}
        task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
      }
    }
  }
}

// -----

// Weights of the next layer, in the last launch.
module attributes {megalith.launches = [@over, @over]} {
  task.kernel @over "step" target "sm_90a" sms 1 rows 1 attributes {launches = 2 : i64, layered = 3 : i64} {
    task.buffer @gain [1, 8] bf16 global immutable {checkpoint = "norm", layer_offset = 1 : i64, slot = 2 : i64}
    task.edge 0 @complete launches poller -> poller {slot = 1 : i64}
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait @complete
        // expected-error @+1 {{reads @gain of the layer after the launch's own in the last launch too, which has none; expected a stage `during` launches before 1}}
        task.compute "norm" [] reads [@gain[0, 0] 1 x [8]] writes []
        task.launch_done @complete
      }
    }
  }
}
