// What a loop over launches has no form for is refused by name.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics -task-merge-launches

module attributes {megalith.launches = [@a, @b, @a]} {
  // expected-error @+1 {{has launches that do not follow one another}}
  task.kernel @a "layer" target "sm_90a" sms 2 rows 1 {
  }
  task.kernel @b "layer" target "sm_90a" sms 2 rows 1 {
  }
}

// -----

// expected-error @+1 {{expected megalith.launches to name the kernel of each launch}}
module {
}

// -----

module attributes {megalith.launches = [@a, @b]} {
  task.kernel @a "embed" target "sm_90a" sms 2 rows 1 {
    task.buffer @table [8, 8] bf16 global immutable {slot = 0 : i64}
  }
  task.kernel @b "last" target "sm_90a" sms 2 rows 1 {
    // expected-error @+1 {{differs from the declaration of that name in another launch of the step}}
    task.buffer @table [8, 16] bf16 global immutable {slot = 0 : i64}
  }
}

// -----

module attributes {megalith.launches = [@a, @b]} {
  task.kernel @a "embed" target "sm_90a" sms 2 rows 1 {
  }
  // expected-error @+1 {{expected stages without role regions, for the target, SMs and rows of @a}}
  task.kernel @b "last" target "sm_90a" sms 3 rows 1 {
  }
}
