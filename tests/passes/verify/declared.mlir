// Ranges of symbols, sizes of tables and the edges after which numbers are known follow from the
// shapes of stages: another declaration would have the proof leave cases out. CTAs that are to be
// there at once fit.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -task-verify

task.kernel @narrowed "layer" target "sm_90a" sms 4 rows 2 {
  // expected-error @+1 {{@full_pieces of kernel @narrowed: expected 'in 0 to 8 per_sm = "full_pieces<a>(tile)"', as far as it goes by the shape of stage @a, but got 'in 0 to 7 per_sm = "full_pieces<a>(tile)"'}}
  task.symbol @full_pieces in 0 to 7 per_sm = "full_pieces<a>(tile)"
  // expected-error @+1 {{expected 'in 0 to 32 per_sm = "AttentionTiles<a>(*cta.args.step, cta.sm).count()"'}}
  task.symbol @attention_tiles in 1 to 32 per_sm = "AttentionTiles<a>(*cta.args.step, cta.sm).count()"
  // expected-error @+1 {{@attention_tile of kernel @narrowed: expected 'size 128 partition = "tile"', as far as it goes by the shape of stage @a, but got 'size 127 partition = "tile"'}}
  task.table @attention_tile size 127 partition = "tile"
  // expected-error @+1 {{expected 'size 1024 injective = "units of a tile, below start"'}}
  task.table @kv_piece size 1024 partition = "units of a tile, below start"
  // expected-note @+1 {{the stage is here}}
  task.stage @a attention reads [] writes [] config {head_dim = 64 : i64, kv_heads = 2 : i64, max_positions = 4096 : i64} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// Longer sequences than the declaration is for.
task.kernel @longer "layer" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected 'in 0 to 64 per_sm = "full_pieces<a>(tile)"', as far as it goes by the shape of stage @a, but got 'in 0 to 4 per_sm = "full_pieces<a>(tile)"'}}
  task.symbol @full_pieces in 0 to 4 per_sm = "full_pieces<a>(tile)"
  // expected-note @+1 {{the stage is here}}
  task.stage @a attention reads [] writes [] config {head_dim = 128 : i64, kv_heads = 2 : i64, max_positions = 65536 : i64} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

task.kernel @forgotten "layer" target "sm_90a" sms 4 rows 2 {
  task.edge 0 @routed mbarrier consumer -> producer {arrivals = 8 : i64}
  // expected-error @+1 {{expected 'in 0 to 8 after @routed = "platform::ld_shared<int32_t>(&routing_table<r>(cta)->active)"', as far as it goes by the shape of stage @up, but got 'in 0 to 8 = }}
  task.symbol @active in 0 to 8 = "platform::ld_shared<int32_t>(&routing_table<r>(cta)->active)"
  // expected-error @+1 {{@expert_id of kernel @forgotten: expected 'size 16 uniform}}
  task.table @expert_id size 3 uniform = "routing_table<r>(cta)->expert"
  task.stage @r top_k reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
  // expected-note @+1 {{the stage is here}}
  task.stage @up expert_up reads [] writes [] config {experts = 16 : i64, top_k = 4 : i64} {
  }
}

// -----

task.kernel @nobodys "layer" target "sm_90a" sms 4 rows 2 {
  // expected-error @+1 {{@tiles of kernel @nobodys: expected one that follows from the shape of an attention, merge or expert stage, since nothing else says as far as it goes}}
  task.symbol @tiles in 0 to 4 = "tiles"
  task.stage @a linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

task.kernel @elsewhere "layer" target "sm_90a" sms 4 rows 2 {
  task.edge 0 @routed mbarrier consumer -> producer {arrivals = 8 : i64}
  // expected-note @+1 {{the weights are here}}
  task.weights @w n 24 k 128 slot 3 rows ["w.{expert}"] {experts = 8 : i64}
  task.symbol @active in 0 to 8 after @routed = "platform::ld_shared<int32_t>(&routing_table<r>(cta)->active)"
  task.table @expert_id size 16 uniform = "routing_table<r>(cta)->expert"
  task.stage @r top_k reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{of stage @r in kernel @elsewhere runs @active times, which is a number of another stage's; expected one of its own or a constant}}
      task.for "e" in @active {
        task.launch_wait
      }
    }
  }
  task.stage @up expert_up reads [] writes [] config {experts = 16 : i64, top_k = 4 : i64} {
    task.role epilogue {
      task.for "e" in @active {
        // expected-error @+1 {{reads @w of kernel @elsewhere at @expert_id, which is below 16, but the weights are of 8 experts; expected as many}}
        task.compute "use" [] reads [@w[d1, 0, 0] 1 x [1] table @expert_id] writes []
      }
    }
  }
}

// -----

module attributes {megalith.launches = [@hand]} {
  // expected-error @+1 {{@hand is of kind "toy", so nothing bounds its symbols and tables, but the module has launches; expected a kernel of a model's kind}}
  task.kernel @hand "toy" target "sm_90a" sms 1 rows 1 {
    task.symbol @tiles in 0 to 4 = "tiles"
    task.stage @s linear reads [] writes [] config {} {
      task.role poller {
        task.launch_wait
        task.launch_dependents
      }
    }
  }
}

// -----

task.kernel @nowhere "toy" target "sm_90a" sms 1 rows 1 {
  // expected-error @+1 {{@n of kernel @nowhere is known after @xs, which is no edge of the kernel; expected one}}
  task.symbol @n in 0 to 4 after @xs = "n"
  task.buffer @xs [1, 8] bf16 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// A number that the poller finds: each role waits for it, the poller itself signals first.
task.kernel @early "toy" target "sm_90a" sms 1 rows 1 {
  // expected-note @+2 {{the edge is declared here}}
  // expected-error @+1 {{of @early on SM 0: edge @found is signalled 1 times by the poller but waited for 0 times by the epilogue}}
  task.edge 0 @found mbarrier poller -> consumer, epilogue
  task.symbol @n in 0 to 2 after @found = "n"
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      // expected-error @+1 {{of @early on SM 0: runs @n times, which is known after @found, but the poller of @s has not signalled that edge; expected a task.signal of it before the loop}}
      task.for "i" in @n {
        task.compute "early" [] reads [] writes []
      }
      // expected-note @+1 {{the poller of @s signals it here}}
      task.signal @found
      task.for "i" in @n {
        task.compute "known" [] reads [] writes []
      }
    }
    task.role consumer {
      task.wait @found
      task.for "i" in @n {
        task.compute "known" [] reads [] writes []
      }
    }
    task.role epilogue {
      // expected-error @+1 {{runs @n times, which is known after @found, but the epilogue of @s has not waited for that edge; expected a task.wait of it before the loop}}
      task.for "i" in @n {
        task.compute "early" [] reads [] writes []
      }
    }
  }
}

// -----

// expected-error @+1 {{@large: expected at most 232448 bytes of shared memory, as each of 1 CTAs on an SM of sm_90a can have that are to be there at once, but got smem 400000; make rings and buffers smaller}}
task.kernel @large "toy" target "sm_90a" sms 1 rows 1 smem 400000 {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// expected-error @+1 {{@two: expected at most 115712 bytes of shared memory, as each of 2 CTAs on an SM of sm_90a can have that are to be there at once, but got smem 115713; make rings and buffers smaller, or residents 1}}
task.kernel @two "toy" target "sm_90a" sms 1 rows 1 smem 115713 attributes {residents = 2 : i64} {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// As much as there is.
task.kernel @full "toy" target "sm_90a" sms 1 rows 1 smem 115712 attributes {residents = 2 : i64} {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// expected-error @+1 {{@unknown: expected a target whose shared memory is known, so that all CTAs are there at once, but got "sm_30"}}
task.kernel @unknown "toy" target "sm_30" sms 1 rows 1 smem 1024 {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

task.kernel @unsaid "layer" target "sm_90a" sms 1 rows 1 {
  // expected-error @+1 {{has a place in shared memory, but kernel @unsaid says not how much it has; add smem}}
  task.buffer @xs [1, 8] bf16 smem scratch {offset = 0 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}
