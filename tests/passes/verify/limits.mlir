// More steps than anyone could prove are a fault, not a hang; sizes that overflow too.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -task-verify

task.kernel @endless "toy" target "sm_90a" sms 1 rows 1 {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      // expected-error @+1 {{on SM 0: runs 9223372036854775807 times, but the proof takes at most 1048576 steps of a role; make the loop shorter}}
      task.for "i" in 9223372036854775807 {
        task.for "j" in 9223372036854775807 {
          task.launch_wait
        }
      }
    }
  }
}

// -----

// Each loop is short enough, but not one in the other.
task.kernel @long "toy" target "sm_90a" sms 1 rows 1 {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.for "i" in 1000000 {
        task.for "j" in 1000000 {
          // expected-error @+1 {{on SM 0: the poller takes more than 1048576 steps up to here, too many to prove; make its loops shorter}}
          task.launch_wait
        }
      }
    }
  }
}

// -----

// Loops around a loop that never runs.
task.kernel @idle "toy" target "sm_90a" sms 1 rows 1 {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.for "i" in 1000000 {
        // expected-error @+1 {{the poller takes more than 1048576 steps up to here}}
        task.for "j" in 1000000 {
          task.for "k" in [d0, 1] {
            task.launch_wait
          }
        }
      }
    }
  }
}

// -----

// The number of trips depends on the SM: 900 long roles that all differ.
// expected-error @+1 {{the kernel takes more than 16777216 steps over all its SMs, too many to prove; make its loops shorter, use fewer SMs or cut}}
task.kernel @wide "toy" target "sm_90a" sms 900 rows 1 {
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      task.for "i" in [d0 * -1 + 500000] {
        task.launch_wait
      }
    }
  }
}

// -----

// What varies with the SM in smaller cases only: 900 SMs of 20,000 steps each would be too many, so
// a case has fewer kinds of SM.
task.kernel @kinds "toy" target "sm_90a" sms 900 rows 1 {
  task.symbol @tiles in 0 to 40000 per_sm = "tiles"
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      task.for "i" in @tiles {
        task.launch_wait
      }
    }
  }
}

// -----

// Places are counted too, where they do not join.
// expected-error @+1 {{the kernel touches global memory in more than 16777216 places over all its SMs}}
task.kernel @places "toy" target "sm_90a" sms 132 rows 1 {
  task.buffer @x [1, 8] bf16 global immutable {slot = 0}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      task.for "i" in 500000 {
        task.compute "f" [] reads [@x[0, d1 mod 7] 1 x [1]] writes []
      }
    }
  }
}

// -----

// Loops without any steps are nothing, however long. Huge shapes cost nothing.
task.kernel @huge "toy" target "sm_90a" sms 4 rows 1 {
  task.buffer @out [4, 1000000000000] bf16 global written {slot = 0}
  task.buffer @big [1000000000, 1000] bf16 smem scratch
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.launch_wait
      task.launch_dependents
      task.for "i" in 1000000000000 {
        task.for "j" in 1000000000000 {
        }
      }
      task.compute "f" [] reads [] writes [@big[0, 0] 1000000000 x [1000], @out[d0, 0] 1 x [1000000000000]]
      task.compute "g" [] reads [@big[500000000, 3] 1 x [7]] writes []
    }
  }
}

// -----

// Sizes whose products no number holds.
task.kernel @overflow "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected at most 17592186044416 elements, more than GPUs hold, but a shape of [9223372036854775807, 9223372036854775807] has more}}
  task.buffer @big [9223372036854775807, 9223372036854775807] bf16 global written {slot = 0}
}

// -----

task.kernel @overflow "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected slots of 0 to 65536, but got 1000000000000}}
  task.edge 0 @e mbarrier poller -> consumer {slots = 1000000000000}
}

// -----

task.kernel @overflow "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected at most 17592186044416 weights, more than GPUs hold, but n 9223372036854775807}}
  task.weights @w n 9223372036854775807 k 9223372036854775807 slot 0 rows ["w"]
}

// -----

task.kernel @overflow "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected a copy of at most 70368744177664 bytes, but 1024 rows of 9223372036854775807 bytes have more}}
  task.buffer @big [1024, 8] bf16 smem scratch {row_bytes = 9223372036854775807}
}

// -----

task.kernel @overflow "toy" target "sm_90a" sms 4 rows 1 {
  // expected-error @+1 {{expected an offset of 0 to 2147483648, but got -8}}
  task.buffer @big [1024, 8] bf16 smem scratch {offset = -8}
}
