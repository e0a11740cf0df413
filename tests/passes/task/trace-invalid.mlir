// Kernels that cannot record.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(task.kernel(task-trace))'

// expected-error @+1 {{expected role regions, but the stages hold none: run task-lower-to-roles before task-trace}}
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 smem 0 {
}

// -----

task.kernel @k "toy" target "sm_90a" sms 4 rows 1 smem 0 {
  // expected-error @+1 {{expected slot 31 to be free for the records of a kernel that is traced, but this has it: give it another}}
  task.buffer @x [1, 128] bf16 global immutable {slot = 31}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.compute "nothing()" [] reads [] writes []
    }
  }
}
