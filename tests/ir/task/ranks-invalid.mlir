// What of several ranks one op alone can tell to be wrong.
// RUN: megalith-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{expected 1, 2, 4 or 8 ranks, but got 3}}
task.kernel @three "toy" target "sm_90a" sms 1 rows 1 attributes {ranks = 3 : i64} {
}

// -----

task.kernel @alone "toy" target "sm_90a" sms 1 rows 1 {
  task.edge 0 @h_words words epilogue -> poller
  // expected-error @+1 {{expected several ranks to share an exchange of sentinel words or numbers in whole words, but got 1 rank(s) and 8 columns of sentinel words}}
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
}

// -----

task.kernel @uneven "toy" target "sm_90a" sms 1 rows 1 attributes {ranks = 4 : i64} {
  task.edge 0 @h_words words epilogue -> poller
  // expected-error @+1 {{but got 4 rank(s) and 12 columns of sentinel words}}
  task.exchange @h [1, 12] bf16 sentinel sets 2 slot 0 edge @h_words {peers}
}

// -----

task.kernel @numbers "toy" target "sm_90a" sms 1 rows 1 attributes {ranks = 2 : i64} {
  task.edge 0 @n_words words poller -> poller
  // expected-error @+1 {{expected numbers to be i32 and for ranks (peers)}}
  task.exchange @n [1, 2] i32 number sets 1 slot 0 edge @n_words
}

// -----

task.kernel @own "toy" target "sm_90a" sms 1 rows 1 attributes {ranks = 2 : i64} {
  task.edge 0 @h_words words epilogue -> poller
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 0 edge @h_words
  task.stage @s linear reads [] writes [] config {} {
    task.role epilogue {
      // expected-error @+1 {{expected @h to be an exchange of ranks (peers), since a rank's own share of it is meant}}
      task.compute "publish" [] reads [] writes [@h[0, 0] 1 x [4] own]
    }
  }
}

// -----

task.kernel @parts "toy" target "sm_90a" sms 1 rows 1 attributes {ranks = 2 : i64} {
  // expected-error @+1 {{expected rank_parts to be pairs (columns, ranks that share them) of 8 columns in all, but got [4, 1, 4, 4]}}
  task.buffer @out [1, 8] f32 global written {slot = 0 : i64, rank_parts = array<i64: 4, 1, 4, 4>}
}
