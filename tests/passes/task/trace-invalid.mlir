// Kernels that cannot record.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(task.kernel(task-trace))'

// expected-error @+1 {{expected role regions, but the stages hold none: run task-lower-to-roles before task-trace}}
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 smem 0 {
}

// -----

// expected-warning @+1 {{kernel k records nothing: slot 39, where records go, is x's}}
task.kernel @k "toy" target "sm_90a" sms 4 rows 1 smem 0 {
  task.buffer @x [1, 128] bf16 global immutable {slot = 39}
  task.stage @s linear reads [] writes [] config {} {
    task.role poller {
      task.compute "nothing()" [] reads [] writes []
    }
  }
}
