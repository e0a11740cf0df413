// Two ranks, two SMs each: what joins them is proved, and every way to leave it out is told.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -task-verify

// Each SM stores two columns of its rank's share to both replicas, and polls all eight.
task.kernel @fine "toy" target "sm_90a" sms 2 rows 1 attributes {ranks = 2 : i64} {
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
  task.exchange @armed [1, 4] i32 number sets 1 slot 1 edge @armed_words {peers}
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words words epilogue -> poller
  task.edge 1 @armed_words words poller -> poller
  task.stage @exchange linear reads [] writes [] config {} {
    task.role epilogue {
      task.launch_wait
      task.compute "publish" [] reads [] writes [@h[0, d0 * 2] 1 x [2] own]
    }
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.compute "tell_armed" [] reads [] writes [@armed[0, d0] 1 x [1] own]
      task.launch_dependents
      task.poll "poll" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
    }
  }
  task.stage @launch_end launch_end reads [] writes [] config {} {
    task.role poller {
      task.for "peer" in 2 {
        task.poll "await_armed" ["peer"] waits @armed_words reads [@armed[0, d1 * 2 + d0] 1 x [1]] writes []
      }
    }
  }
}

// -----

// Told before it is so.
task.kernel @early "toy" target "sm_90a" sms 2 rows 1 attributes {ranks = 2 : i64} {
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
  task.exchange @armed [1, 4] i32 number sets 1 slot 1 edge @armed_words {peers}
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words words epilogue -> poller
  task.edge 1 @armed_words words poller -> poller
  task.stage @exchange linear reads [] writes [] config {} {
    task.role epilogue {
      task.launch_wait
      task.compute "publish" [] reads [] writes [@h[0, d0 * 2] 1 x [2] own]
    }
    task.role poller {
      task.launch_wait
      // expected-error @+1 {{on SM 0: tells other ranks that they may store to the next launch's sets, but the poller does not know that this SM has re-armed @h; expected its task.rearm, or an edge from it, before}}
      task.compute "tell_armed" [] reads [] writes [@armed[0, d0] 1 x [1] own]
      task.rearm @h
      task.launch_dependents
      task.poll "poll" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
      task.for "peer" in 2 {
        task.poll "await_armed" ["peer"] waits @armed_words reads [@armed[0, d1 * 2 + d0] 1 x [1]] writes []
      }
    }
  }
}

// -----

// Nobody waits for it.
task.kernel @unheard "toy" target "sm_90a" sms 2 rows 1 attributes {ranks = 2 : i64} {
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
  // expected-error @+1 {{on SM 0: is not heard of whole on rank 0: its next launch could store to sets that another rank has not emptied yet; expected its SMs to poll every number}}
  task.exchange @armed [1, 4] i32 number sets 1 slot 1 edge @armed_words {peers}
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words words epilogue -> poller
  task.edge 1 @armed_words words poller -> poller
  task.stage @exchange linear reads [] writes [] config {} {
    task.role epilogue {
      task.launch_wait
      task.compute "publish" [] reads [] writes [@h[0, d0 * 2] 1 x [2] own]
    }
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.compute "tell_armed" [] reads [] writes [@armed[0, d0] 1 x [1] own]
      task.launch_dependents
      task.poll "poll" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
    }
  }
}

// -----

// Each SM hears of its own rank only.
task.kernel @at_home "toy" target "sm_90a" sms 2 rows 1 attributes {ranks = 2 : i64} {
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
  // expected-error @+1 {{on SM 0: is not heard of whole on rank 0}}
  task.exchange @armed [1, 4] i32 number sets 1 slot 1 edge @armed_words {peers}
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words words epilogue -> poller
  task.edge 1 @armed_words words poller -> poller
  task.stage @exchange linear reads [] writes [] config {} {
    task.role epilogue {
      task.launch_wait
      task.compute "publish" [] reads [] writes [@h[0, d0 * 2] 1 x [2] own]
    }
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.compute "tell_armed" [] reads [] writes [@armed[0, d0] 1 x [1] own]
      task.launch_dependents
      task.poll "poll" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
      task.poll "await_armed" [] waits @armed_words reads [@armed[0, d0] 1 x [1] own] writes []
    }
  }
}

// -----

// Nobody tells: whoever waits for it waits for ever.
task.kernel @untold "toy" target "sm_90a" sms 2 rows 1 attributes {ranks = 2 : i64} {
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
  // expected-error @+1 {{on SM 0: is not heard of whole on rank 0}}
  task.exchange @armed [1, 4] i32 number sets 1 slot 1 edge @armed_words {peers}
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words words epilogue -> poller
  task.edge 1 @armed_words words poller -> poller
  task.stage @exchange linear reads [] writes [] config {} {
    task.role epilogue {
      task.launch_wait
      task.compute "publish" [] reads [] writes [@h[0, d0 * 2] 1 x [2] own]
    }
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.launch_dependents
      task.poll "poll" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
    }
  }
}

// -----

// expected-error @+1 {{expected one exchange of numbers, through which 2 ranks tell each other that they have re-armed, but got 0}}
task.kernel @silent "toy" target "sm_90a" sms 1 rows 1 attributes {ranks = 2 : i64} {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// Both ranks store the first share: twice stored, and the second never.
task.kernel @same_share "toy" target "sm_90a" sms 1 rows 1 attributes {ranks = 2 : i64} {
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
  task.exchange @armed [1, 2] i32 number sets 1 slot 1 edge @armed_words {peers}
  task.buffer @xs [1, 8] bf16 smem scratch
  // expected-note @+1 {{the edge is declared here}}
  task.edge 0 @h_words words epilogue -> poller
  task.edge 1 @armed_words words poller -> poller
  task.stage @exchange linear reads [] writes [] config {} {
    task.role epilogue {
      task.launch_wait
      // expected-note @+2 {{was the first}}
      // expected-error @+1 {{publishes words of @h rows [0, 1) columns [0, 4) that were published before in this launch}}
      task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [4]]
    }
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.compute "tell_armed" [] reads [] writes [@armed[0, d0] 1 x [1] own]
      task.launch_dependents
      // expected-error @+1 {{polls words of @h_words that nothing publishes in this launch}}
      task.poll "poll" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
      task.for "peer" in 2 {
        task.poll "await_armed" ["peer"] waits @armed_words reads [@armed[0, d1 + d0] 1 x [1]] writes []
      }
    }
  }
}

// -----

// A share behind the last.
task.kernel @outside "toy" target "sm_90a" sms 1 rows 1 attributes {ranks = 2 : i64} {
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
  task.exchange @armed [1, 2] i32 number sets 1 slot 1 edge @armed_words {peers}
  task.edge 0 @h_words words epilogue -> epilogue
  task.edge 1 @armed_words words poller -> poller
  task.stage @exchange linear reads [] writes [] config {} {
    task.role epilogue {
      task.launch_wait
      // expected-error @+1 {{on SM 0: touches @h rows [0, 1) columns [4, 12), outside its 1 x 8}}
      task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8] own]
      task.poll "poll" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes []
    }
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.compute "tell_armed" [] reads [] writes [@armed[0, d0] 1 x [1] own]
      task.launch_dependents
      task.for "peer" in 2 {
        task.poll "await_armed" ["peer"] waits @armed_words reads [@armed[0, d1 + d0] 1 x [1]] writes []
      }
    }
  }
}
