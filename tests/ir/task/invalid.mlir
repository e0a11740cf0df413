// What the ops' own verifiers refuse.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{expected a rows bucket of 1, 2, 4, 8 or 16, but got 3}}
task.kernel @k "toy" target "sm_90a" sms 4 rows 3 {
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected 0 <= min <= max, but got 4 to 2}}
  task.symbol @s in 4 to 2 = "n"
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected a global buffer to have a slot}}
  task.buffer @x [1, 8] bf16 global immutable
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected row_bytes to hold a row of 16 bytes, but got 8}}
  task.buffer @x [1, 8] bf16 smem scratch {row_bytes = 8}
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.edge 0 @w words epilogue -> poller
  // expected-error @+1 {{expected 2 sets, or 3 when the next launch reads, but got 1}}
  task.exchange @h [1, 8] bf16 sentinel sets 1 slot 0 edge @w
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected edge ids to count from 0 without gaps: expected id 0 but got 1}}
  task.edge 1 @w words epilogue -> poller
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.edge 0 @full bytes producer -> consumer {slots = 4}
  task.edge 1 @free credit consumer -> producer {slots = 2, arrivals = 8}
  // expected-error @+1 {{expected edge @free to have the ring's 4 slots, but got 2}}
  task.ring @r 4 x 1024 full @full free @free
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.edge 0 @e mbarrier poller -> consumer
  task.stage @s linear reads [] writes [] config {} {
    task.role epilogue {
      // expected-error @+1 {{expected edge @e to list the epilogue among the roles that wait on it}}
      task.wait @e
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.edge 0 @e mbarrier poller -> consumer
  task.stage @s linear reads [] writes [] config {} {
    task.role consumer {
      // expected-error @+1 {{expected edge @e to be signalled by its source role poller, but this is the consumer}}
      task.signal @e
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.edge 0 @w words epilogue -> poller
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @w
  task.buffer @x [1, 8] bf16 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{expected @h to be a crossing exchange (3 sets)}}
      task.poll "poll_rows" [] waits @w reads [@h[0, 0] 1 x [8] previous] writes [@x[0, 0] 1 x [8]]
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.edge 0 @w words epilogue -> poller
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @w
  task.stage @s linear reads [] writes [] config {} {
    task.role consumer {
      // expected-error @+1 {{expected exchange @h to be read by a poll, which waits for its words}}
      task.compute "f" [] reads [@h[0, 0] 1 x [8]] writes []
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.stage @s linear reads [] writes [] config {} {
    task.role consumer {
      // expected-error @+1 {{expected an access to @nothing to name a buffer, exchange or weights}}
      task.compute "f" [] reads [@nothing[0, 0] 1 x [8]] writes []
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected a buffer of 2 slots to name the edge that counts them}}
  task.buffer @x [1, 8] bf16 smem scratch {slots = 2}
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.edge 0 @full bytes producer -> consumer {slots = 4}
  task.stage @s linear reads [] writes [] config {} {
    task.role producer {
      // expected-error @+1 {{expected a window of 1 to 4 copies, the slots of @full, but got 5}}
      task.pace @full window 5
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.edge 0 @full bytes producer -> consumer {slots = 4}
  task.stage @s linear reads [] writes [] config {} {
    task.role consumer {
      // expected-error @+1 {{expected edge @full to be signalled by its source role producer, but this is the consumer}}
      task.pace @full window 2
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.edge 0 @full mbarrier producer -> consumer {slots = 4}
  task.stage @s linear reads [] writes [] config {} {
    task.role producer {
      // expected-error @+1 {{does not signal a mbarrier edge like @full}}
      task.pace @full window 2
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @x [1, 8] bf16 global immutable {slot = 0}
  task.stage @s linear reads [] writes [] config {} {
    task.role consumer {
      // expected-error @+1 {{expected a shared-memory buffer without a guard, but @x is in global memory}}
      task.refill @x
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @xs [1, 8] bf16 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{expected the consumers, the only role of several warps, but this is the poller}}
      task.refill @xs
    }
  }
}

// -----

// Words of a second exchange need its edge, and the edge words.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.exchange @t [1, 8] bf16 sentinel sets 2 slot 0 edge @t_words
  task.exchange @u [1, 8] bf16 sentinel sets 2 slot 1 edge @u_words
  task.edge 0 @t_words words epilogue -> poller
  task.edge 1 @u_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{expected a poll of @t_words to read the exchange of that edge, but it reads @u}}
      task.poll "poll" [] waits @t_words reads [@t[0, 0] 1 x [8], @u[0, 0] 1 x [8]] writes []
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.exchange @t [1, 8] bf16 sentinel sets 2 slot 0 edge @t_words
  task.exchange @u [1, 8] bf16 sentinel sets 2 slot 1 edge @u_words
  task.edge 0 @t_words words epilogue -> poller
  task.edge 1 @u_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{expected to read words of @u_words}}
      task.poll "poll" [] waits @t_words and @u_words reads [@t[0, 0] 1 x [8]] writes []
    }
  }
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.exchange @t [1, 8] bf16 sentinel sets 2 slot 0 edge @t_words
  task.edge 0 @t_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{expected a poll of two edges to wait for words of each, but got @t_words and @t_words}}
      task.poll "poll" [] waits @t_words and @t_words reads [@t[0, 0] 1 x [8]] writes []
    }
  }
}

// -----

// Nor do bulk copies look at the words of the second.
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 {
  task.exchange @h [1, 8] bf16 plain sets 1 slot 0 edge @h_words
  task.exchange @t [1, 8] bf16 sentinel sets 2 slot 1 edge @t_words
  task.buffer @xs [1, 8] bf16 smem scratch
  task.edge 0 @h_words launch epilogue -> poller
  task.edge 1 @x_full mbarrier poller -> consumer
  task.edge 2 @t_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{expected a poll of two edges to wait for words of each, but got @h_words and @t_words}}
      task.poll "fetch_rows" [] waits @h_words and @t_words reads [@h[0, 0] 1 x [8], @t[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]] joins @x_full
    }
  }
}
