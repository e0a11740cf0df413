// What calls say to each other by name, how often and in which order they are made, and for whom.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -task-verify

// A slot's number comes from the edge that was acquired: one of another number of slots names others.
task.kernel @slots "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @part [8, 8] f32 smem scratch {slots = 2 : i64, guard = @p_full}
  task.edge 0 @p_full mbarrier consumer -> epilogue {slots = 2 : i64, arrivals = 8 : i64}
  task.edge 1 @p_free credit epilogue -> consumer {slots = 1 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.local "sum" : "ChunkSum" = "{}"
      task.for "i" in 3 {
        task.acquire @p_free {result = "const int place"}
        task.local "at" : "const int" = "place + 0"
        task.compute "add" ["sum"] reads [] writes []
        // expected-error @+1 {{touches filling 0 of @part in a slot that @p_free numbers, of whose 1 slots the number is that of use 0; expected an edge with as many slots as the buffer, 2, waited for as often as the buffer was filled}}
        task.compute "store_part" ["at", "sum"] reads [] writes [@part[0, 0] 8 x [8]]
        task.signal @p_full
      }
    }
    task.role epilogue {
      task.for "i" in 3 {
        task.wait @p_full {result = "const int place"}
        task.compute "use" ["place"] reads [@part[0, 0] 8 x [8]] writes []
        task.release @p_free
      }
    }
  }
}

// -----

task.kernel @twice "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
      // expected-note @+1 {{the first is here}}
      task.compute "norm" [] reads [@xs[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
      // expected-error @+1 {{is made twice in one turn, with the same arguments and places; expected once, as a call may add to what it finds}}
      task.compute "norm" [] reads [@xs[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
    }
  }
}

// -----

task.kernel @unused "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      // expected-error @+1 {{computes 'gains', which no later step names; expected the step that uses it}}
      task.compute "load_gains" [] reads [] writes [] {result = "const auto gains"}
      task.compute "load" ["gain"] reads [] writes [@xs[0, 0] 1 x [8]]
    }
  }
}

// -----

task.kernel @variable "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      // expected-error @+1 {{expected a call that fills 'gate' and one that uses it, but got 1 that names it}}
      task.local "gate" : "Gate"
      task.compute "load" ["gate"] reads [] writes [@xs[0, 0] 1 x [8]]
    }
  }
}

// -----

// The norm comes after the products were made of what it changes.
task.kernel @late "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
      task.compute "gemv" [] reads [@xs[0, 4] 1 x [4]] writes []
      // expected-error @+1 {{changes @xs rows [0, 1) columns [0, 8) in place after another step of the filling has read it; expected the change before}}
      task.compute "norm" [] reads [@xs[0, 0] 1 x [8]] writes [@xs[0, 0] 1 x [8]]
    }
  }
}

// -----

task.kernel @chain "toy" target "sm_90a" sms 1 rows 1 {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.local "best" : "Best" = "{}"
      // expected-error @+1 {{expected epilogue_head as call 1 on one state, but got store_candidates; each works on what the one before left}}
      task.compute "store_candidates<4, out>" ["best"] reads [] writes []
      task.for "mtile" in 2 {
        task.compute "epilogue_head<head, out>" ["mtile", "best"] reads [] writes []
      }
    }
  }
}

// -----

// Filled and handed over, but read by nobody.
task.kernel @unread "toy" target "sm_90a" sms 1 rows 1 {
  // expected-error @+1 {{is filled for @full, but no step reads it; expected one that does}}
  task.buffer @part [8, 8] f32 smem scratch {guard = @full}
  task.edge 0 @full mbarrier consumer -> epilogue {arrivals = 8 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "store_part" [] reads [] writes [@part[0, 0] 8 x [8]]
      task.signal @full
    }
    task.role epilogue {
      task.wait @full
    }
  }
}

// -----

// One use is handed over, so one slot would do; but uses are counted modulo the edge's.
task.kernel @few_slots "toy" target "sm_90a" sms 1 rows 1 {
  // expected-error @+1 {{expected the 2 slots of its guard @full, but got 1}}
  task.buffer @part [8, 8] f32 smem scratch {guard = @full}
  task.edge 0 @full mbarrier consumer -> epilogue {arrivals = 8 : i64, slots = 2 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "store_part" [] reads [] writes [@part[0, 0] 8 x [8]]
      task.signal @full
    }
    task.role epilogue {
      task.wait @full
      task.compute "sum_chunks" [] reads [@part[0, 0] 8 x [8]] writes []
    }
  }
}

// -----

// A stage says what its roles must do.
task.kernel @stage "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @gain [1, 8] f32 global immutable {slot = 0 : i64}
  // expected-error @+1 {{expected a step that reads @gain, as the stage says it does, but the kernel has none}}
  task.stage @s linear reads [@gain[0, 0] 1 x [8]] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

task.kernel @pages "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @kv [8, 64] bf16 global pages {slot = 0 : i64}
  // expected-error @+1 {{expected a call that writes @kv, as the stage says it does, but none of its roles has one}}
  task.stage @s linear reads [] writes [@kv[0, 0] 1 x [64]] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// An SM's share of a table is as long as the step makes it.
task.kernel @share "toy" target "sm_90a" sms 1 rows 1 {
  task.exchange @p [6, 6] f32 epoch sets 1 slot 0 edge @p_words
  task.edge 0 @p_words words consumer -> poller
  task.table @tile size 6 partition = "tile"
  task.buffer @xs [6, 6] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      task.poll "poll_partials" [] waits @p_words reads [@p[0, 0, 0] 6 x [6] table @tile] writes [@xs[0, 0] 6 x [6]]
    }
    task.role consumer {
      task.launch_wait
      task.for "tile" in 2 {
        // expected-error @+1 {{writes rows that @tile shares out, but goes through a share of fixed length; expected the loop over 'tile' to take a task.symbol per_sm}}
        task.compute "publish" [] reads [] writes [@p[d1, 0, 0] 1 x [6] table @tile]
      }
    }
  }
}

// -----

// Two SMs would store to one word.
task.kernel @words "toy" target "sm_90a" sms 2 rows 1 {
  task.exchange @h [1, 6] bf16 sentinel sets 2 slot 0 edge @h_words
  task.buffer @xs [1, 6] bf16 smem scratch
  task.edge 0 @h_words words epilogue -> poller
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.rearm @h
      task.launch_dependents
      task.poll "poll_rows" [] waits @h_words reads [@h[0, 0] 1 x [6]] writes [@xs[0, 0] 1 x [6]]
    }
    task.role epilogue {
      task.launch_wait
      // expected-error @+1 {{publishes @h rows [0, 1) columns [0, 3), which begin or end inside a word; expected columns in multiples of 2, which a word holds and is stored with}}
      task.compute "publish" [] reads [] writes [@h[0, d0 * 3] 1 x [3]]
    }
  }
}

// -----

task.kernel @ring "toy" target "sm_90a" sms 1 rows 1 smem 16384 {
  // expected-error @+1 {{expected an offset and slots in multiples of 128 bytes, on which bulk copies land, but got offset 64 and slots of 4096}}
  task.ring @ring 2 x 4096 full @w_full free @w_free {offset = 64 : i64}
  task.edge 0 @w_full bytes producer -> consumer {slots = 2 : i64, offset = 0 : i64}
  task.edge 1 @w_free credit consumer -> producer {slots = 2 : i64, arrivals = 8 : i64, offset = 16 : i64}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
  }
}

// -----

// SM 1 takes no part in the second stage, so the third finds what the first left there.
task.kernel @elsewhere "toy" target "sm_90a" sms 2 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @first linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.refill @xs
      task.compute "load_first" [] reads [] writes [@xs[0, 0] 1 x [8]]
    }
  }
  task.stage @second linear sms 1 reads [] writes [] config {} {
    task.role consumer {
      task.refill @xs
      // expected-note @+1 {{the one on SM 0 is here}}
      task.compute "load_second" [] reads [] writes [@xs[0, 0] 1 x [8]]
    }
  }
  task.stage @third linear reads [] writes [] config {} {
    task.role consumer {
      // expected-error @+1 {{on SM 1: reads @xs as the consumer of @first filled it, but on SM 0 as the consumer of @second did; expected the same step to fill it on every SM}}
      task.compute "use" [] reads [@xs[0, 0] 1 x [8]] writes []
    }
  }
}

// -----

// Rows that look as before, quantised or not: the second product's are not.
task.kernel @bf16 "toy" target "sm_90a" sms 1 rows 1 {
  task.weights @w n 12 k 128 slot 0 rows ["w"]
  task.ring @ring 2 x 4096 full @w_full free @w_free
  task.edge 0 @w_full bytes producer -> consumer {slots = 2 : i64}
  task.edge 1 @w_free credit consumer -> producer {slots = 2 : i64, arrivals = 8 : i64}
  task.buffer @xs [1, 128] bf16 smem scratch
  task.buffer @ys [1, 128] bf16 smem scratch
  task.stage @s linear reads [@w[0, 0] 6 x [1]] writes [] config {quantize = true} {
    task.role producer {
      task.for "i" in 2 {
        task.acquire @w_free
        task.copy "copy_piece" [] @w[d1 * 3, 0] 3 x [1] to @ring signals @w_full
      }
    }
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "load_xs" [] reads [] writes [@xs[0, 0] 1 x [128]]
      task.compute "load_ys" [] reads [] writes [@ys[0, 0] 1 x [128]]
      task.compute "quantize_rows<s, xs>" [] reads [@xs[0, 0] 1 x [128]] writes [@xs[0, 0] 1 x [128]]
      task.wait @w_full
      task.compute "gemv<xs>" [] reads [@xs[0, 0] 1 x [128]] writes [] ring @ring
      task.release @w_free
      task.wait @w_full
      // expected-error @+1 {{meets @ys as load_ys left it, though stage @s quantises its input; expected quantize_rows or quantize_slot, in place, as the last that is done to it before}}
      task.compute "gemv<ys>" [] reads [@ys[0, 0] 1 x [128]] writes [] ring @ring
      task.release @w_free
    }
  }
}

// -----

// What was kept back for the end of a tile is taken up before there is any.
task.kernel @held "toy" target "sm_90a" sms 1 rows 1 {
  task.weights @w n 12 k 128 slot 0 rows ["w"]
  task.ring @ring 2 x 4096 full @w_full free @w_free
  task.edge 0 @w_full bytes producer -> consumer {slots = 2 : i64}
  task.edge 1 @w_free credit consumer -> producer {slots = 2 : i64, arrivals = 8 : i64}
  task.buffer @part [1, 8] f32 smem scratch
  task.stage @s linear reads [@w[0, 0] 6 x [1]] writes [] config {} {
    task.role producer {
      task.for "i" in 2 {
        task.acquire @w_free
        task.copy "copy_piece" [] @w[d1 * 3, 0] 3 x [1] to @ring signals @w_full
      }
    }
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.local "held" : "Held<s>"
      task.local "sum" : "ChunkSum" = "{}"
      // expected-error @+1 {{expected gemv_ahead as call 1 on one state, but got gemv_held; each works on what the one before left}}
      task.compute "gemv_held<s>" ["sum", "held"] reads [] writes []
      task.for "block" in 2 {
        task.wait @w_full
        task.compute "gemv_ahead<s, ring>" ["sum", "held", "block"] reads [] writes [] ring @ring
        task.release @w_free
      }
      task.compute "store_part<part>" ["sum"] reads [] writes [@part[0, 0] 1 x [8]]
    }
  }
}

// -----

// Pieces are multiplied before they are held.
task.kernel @held "toy" target "sm_90a" sms 1 rows 1 {
  task.weights @w n 12 k 128 slot 0 rows ["w"]
  task.ring @ring 2 x 4096 full @w_full free @w_free
  task.edge 0 @w_full bytes producer -> consumer {slots = 2 : i64}
  task.edge 1 @w_free credit consumer -> producer {slots = 2 : i64, arrivals = 8 : i64}
  task.buffer @part [1, 8] f32 smem scratch
  task.stage @s linear reads [@w[0, 0] 6 x [1]] writes [] config {} {
    task.role producer {
      task.for "i" in 2 {
        task.acquire @w_free
        task.copy "copy_piece" [] @w[d1 * 3, 0] 3 x [1] to @ring signals @w_full
      }
    }
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.local "sum" : "ChunkSum" = "{}"
      task.local "held" : "HeldPieces<s, Cta, 2>"
      task.for "mtile" in 1 {
        // expected-error @+1 {{expected hold_piece as call 1 on one state, but got multiply_held; each works on what the one before left}}
        task.compute "multiply_held<s>" ["sum", "held"] reads [] writes []
      }
      task.for "piece" in 2 attributes {unrolled} {
        task.wait @w_full
        task.compute "hold_piece<s, ring>" ["held", "piece"] reads [] writes [] ring @ring
        task.release @w_free
      }
      task.compute "store_part<part>" ["sum"] reads [] writes [@part[0, 0] 1 x [8]]
    }
  }
}

// -----

// A block is multiplied before it is decoded.
task.kernel @held "toy" target "sm_90a" sms 1 rows 1 {
  task.weights @w n 12 k 128 slot 0 rows ["w"]
  task.ring @ring 2 x 4096 full @w_full free @w_free
  task.edge 0 @w_full bytes producer -> consumer {slots = 2 : i64}
  task.edge 1 @w_free credit consumer -> producer {slots = 2 : i64, arrivals = 8 : i64}
  task.buffer @part [1, 8] f32 smem scratch
  task.stage @s linear reads [@w[0, 0] 6 x [1]] writes [] config {} {
    task.role producer {
      task.for "i" in 2 {
        task.acquire @w_free
        task.copy "copy_piece" [] @w[d1 * 3, 0] 3 x [1] to @ring signals @w_full
      }
    }
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.local "sum" : "ChunkSum" = "{}"
      task.local "held" : "DecodedBlock<s>"
      task.for "mtile" in 1 {
        // expected-error @+1 {{expected decode_block as call 1 on one state, but got multiply_decoded; each works on what the one before left}}
        task.compute "multiply_decoded<s>" ["sum", "held"] reads [] writes []
      }
      task.wait @w_full
      task.compute "decode_block<s, ring>" ["held"] reads [] writes [] ring @ring
      task.release @w_free
      task.wait @w_full
      task.compute "gemv_block<s, ring>" ["sum"] reads [] writes [] ring @ring
      task.release @w_free
      task.compute "store_part<part>" ["sum"] reads [] writes [@part[0, 0] 1 x [8]]
    }
  }
}

// -----

// Sums of later pieces would come before those of the block that is held.
task.kernel @held "toy" target "sm_90a" sms 1 rows 1 {
  task.weights @w n 12 k 128 slot 0 rows ["w"]
  task.ring @ring 2 x 4096 full @w_full free @w_free
  task.edge 0 @w_full bytes producer -> consumer {slots = 2 : i64}
  task.edge 1 @w_free credit consumer -> producer {slots = 2 : i64, arrivals = 8 : i64}
  task.buffer @part [1, 8] f32 smem scratch
  task.stage @s linear reads [@w[0, 0] 6 x [1]] writes [] config {} {
    task.role producer {
      task.for "i" in 2 {
        task.acquire @w_free
        task.copy "copy_piece" [] @w[d1 * 3, 0] 3 x [1] to @ring signals @w_full
      }
    }
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.local "held" : "DecodedBlock<s>"
      task.wait @w_full
      task.compute "decode_block<s, ring>" ["held"] reads [] writes [] ring @ring
      task.release @w_free
      task.for "mtile" in 1 {
        task.local "sum" : "ChunkSum" = "{}"
        task.for "block" in 1 {
          task.wait @w_full
          // expected-error @+1 {{expected multiply_held as call 1 on one state, but got gemv_block; each works on what the one before left}}
          task.compute "gemv_block<s, ring>" ["sum", "block"] reads [] writes [] ring @ring
          task.release @w_free
        }
        task.compute "multiply_decoded<s>" ["sum", "held"] reads [] writes []
        task.compute "store_part<part>" ["sum"] reads [] writes [@part[0, 0] 1 x [8]]
      }
    }
  }
}

// -----

// A sum is stored before it is made.
task.kernel @early "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.buffer @part [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]]
      // expected-note @+1 {{it is declared here}}
      task.local "sum" : "ChunkSum" = "{}"
      task.compute "store_part<part>" ["sum"] reads [] writes [@part[0, 0] 1 x [8]]
      task.for "block" in 2 {
        // expected-error @+1 {{changes 'sum', which no later step names; expected the call that takes it behind this one}}
        task.compute "gemv" ["sum", "block"] reads [@xs[0, 0] 1 x [8]] writes []
      }
    }
  }
}

// -----

// Heads meet keys before they have come.
task.kernel @heads "toy" target "sm_90a" sms 1 rows 1 {
  task.exchange @qkv [1, 8] bf16 sentinel sets 2 slot 0 edge @qkv_words
  task.buffer @query [1, 8] bf16 smem scratch
  task.edge 0 @qkv_words words epilogue -> consumer
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.rearm @qkv
      task.launch_dependents
    }
    task.role consumer {
      task.launch_wait
      task.local "words" : "HeadWords<s>"
      // expected-error @+1 {{expected poll_heads as call 1 on one state, but got attention_begin; each works on what the one before left}}
      task.compute "attention_begin<s>" ["words"] reads [] writes [@query[0, 0] 1 x [8]]
      task.poll "poll_heads<s, qkv_words>" ["words"] waits @qkv_words reads [@qkv[0, 0] 1 x [8]] writes []
      task.compute "store_query" ["words"] reads [@query[0, 0] 1 x [8]] writes []
    }
    task.role epilogue {
      task.launch_wait
      task.compute "publish" [] reads [] writes [@qkv[0, 0] 1 x [8]]
    }
  }
}

// -----

// Who says that warps meet in a call must be right.
task.kernel @unmet "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        // expected-error @+1 {{says that all warps meet in it (always), but in load they do not; expected a task.refill before it, or a function of verify::meetingFunctions}}
        task.compute "load" [] reads [] writes [@xs[0, 0] 1 x [8]] meets always
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
      }
    }
  }
}

// -----

// They do so from the second round on,
task.kernel @first_round "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        // expected-error @+1 {{says that all warps meet in it (writing), but in attention_finish they do not; expected a task.refill before it, or a function of verify::meetingFunctions}}
        task.compute "attention_finish<attention>" ["tile", "state", "0"] reads [] writes [@xs[0, 0] 1 x [8]] meets writing
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
      }
    }
  }
}

// -----

// which is a number, whatever else the first is written as,
task.kernel @first_round_again "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        // expected-error @+1 {{says that all warps meet in it (writing), but in attention_finish they do not; expected a task.refill before it, or a function of verify::meetingFunctions}}
        task.compute "attention_finish<attention>" ["tile", "state", "00"] reads [] writes [@xs[0, 0] 1 x [8]] meets writing
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
      }
    }
  }
}

// -----

// but only if the tile has it.
task.kernel @not_always "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        // expected-error @+1 {{says that all warps meet in it (always), but in attention_finish they do not; expected a task.refill before it, or a function of verify::meetingFunctions}}
        task.compute "attention_finish<attention>" ["tile", "state", "1"] reads [] writes [@xs[0, 0] 1 x [8]] meets always
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
      }
    }
  }
}

// -----

task.kernel @later_round "toy" target "sm_90a" sms 1 rows 1 {
  task.buffer @xs [1, 8] f32 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
    }
    task.role consumer {
      task.for "turn" in 2 {
        task.compute "attention_finish<attention>" ["tile", "state", "1"] reads [] writes [@xs[0, 0] 1 x [8]] meets writing
        task.compute "gemv" [] reads [@xs[0, 0] 1 x [8]] writes []
      }
    }
  }
}
