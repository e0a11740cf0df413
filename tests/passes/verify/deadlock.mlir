// Faults that no op's own verifier can see, each named with its roles and edge.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -task-verify

// Every SM polls what only comes after its own poll: a circle over roles and SMs.
task.kernel @circle "toy" target "sm_90a" sms 2 rows 1 {
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words
  task.buffer @xs [1, 8] bf16 smem scratch {guard = @x_full}
  task.edge 0 @h_words words epilogue -> poller
  task.edge 1 @x_full mbarrier poller -> epilogue
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.launch_dependents
      // expected-note @+2 {{the poller of @s is blocked here}}
      // expected-error @+1 {{deadlock: the poller of @s polls words of @h_words that nothing publishes in this launch; expected a task.compute of the epilogue that writes them}}
      task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
      task.signal @x_full
    }
    task.role epilogue {
      task.launch_wait
      // expected-note @+2 {{the epilogue of @s is blocked here}}
      // expected-error @+1 {{deadlock: the epilogue of @s waits for use 0 of edge @x_full, which the poller signals 0 times; expected a signal for each wait}}
      task.wait @x_full
      task.compute "publish" [] reads [@xs[0, 0] 1 x [8]] writes [@h[0, d0 * 4] 1 x [4]]
    }
  }
}

// -----

// Two SMs publish the same words.
task.kernel @twice "toy" target "sm_90a" sms 2 rows 1 {
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.launch_dependents
      task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
    }
    task.role epilogue {
      task.launch_wait
      // expected-note @+2 {{the epilogue of @s on SM 0 was the first}}
      // expected-error @+1 {{the epilogue of @s publishes words of @h rows [0, 1) columns [0, 8) that were published before in this launch; expected places that lie apart}}
      task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8]]
    }
  }
}

// -----

// The consumer reads what the poller may still be writing: no edge orders them.
task.kernel @race "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @x [1, 8] bf16 global immutable {slot = 0}
  task.buffer @xs [1, 8] bf16 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      // expected-note @+1 {{the earlier access is here}}
      task.compute "load_rows" [] reads [@x[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
    }
    task.role consumer {
      // expected-error @+1 {{the read of @xs rows [0, 1) columns [0, 8) by the consumer of @s is not ordered after the write of it by the poller of @s; expected an edge from the poller to the consumer}}
      task.compute "f" [] reads [@xs[0, 0] 1 x [8]] writes []
    }
  }
}

// -----

// A plan's kernels re-arm each other's exchanges, since sets alternate from launch to launch.
task.kernel @one "toy" target "sm_90a" sms 1 rows 1 {
  // expected-error @+1 {{is re-armed 0 times; expected once, by every SM in every launch}}
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words
  task.edge 0 @h_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}
// expected-error @+1 {{expected exchange @h with the same shape and sets as in the plan's other kernels}}
task.kernel @two "toy" target "sm_90a" sms 1 rows 1 {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// Two barriers in the same bytes: arrivals of one would complete the other.
task.kernel @shared_barrier "toy" target "sm_90a" sms 1 rows 1 {
  // expected-note @+1 {{the other is declared here}}
  task.edge 0 @a mbarrier poller -> consumer {offset = 0 : i64, slots = 2 : i64}
  // expected-error @+1 {{of @shared_barrier: @b is placed at bytes 8 to 16 of shared memory, some of which belong to @a at 0 to 16; expected places that lie apart: give one another offset}}
  task.edge 1 @b mbarrier poller -> consumer {offset = 8 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// Words past the end of an exchange never come.
task.kernel @past_the_end "toy" target "sm_90a" sms 1 rows 1 {
  task.exchange @h [1, 8] bf16 sentinel sets 3 slot 0 edge @h_words
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.launch_dependents
      // expected-error @+1 {{touches @h rows [0, 1) columns [4, 12), outside its 1 x 8}}
      task.poll "poll_rows" [] waits @h_words reads [@h[0, 4] 1 x [8] previous] writes [@xs[0, 0] 1 x [8]]
      // expected-error @+1 {{touches @xs rows [0, 1)}}
      task.compute "read" [] reads [@xs[0, 9223372036854775807] 1 x [8]] writes []
    }
  }
}

// -----

// Launches hand words on that prove nothing: reading them before the launch before is over is a race.
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
task.kernel @hasty "stage" target "sm_90a" sms 1 rows 1 {
  task.exchange @h [1, 8] bf16 plain sets 1 slot 0 edge @h_words
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words launch epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{reading what an earlier launch wrote needs the previous launch to be complete}}
      task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// In one launch nothing orders them.
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
task.kernel @both "stage" target "sm_90a" sms 1 rows 1 {
  task.exchange @h [1, 8] bf16 plain sets 1 slot 0 edge @h_words
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words launch epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
    }
    task.role epilogue {
      task.launch_wait
      // expected-error @+1 {{writes @h, which this kernel reads too; expected the reader in a later launch}}
      task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [8]]
    }
  }
}
