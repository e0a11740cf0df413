// Two parallel branches through every pass: they stay independent, and only the join waits for both.
// RUN: megalith-opt %S/Inputs/branches.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges))' | FileCheck %s --check-prefix=DATA
// RUN: megalith-opt %S/Inputs/branches.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol)' | FileCheck %s --check-prefix=PLAN
// RUN: megalith-opt %S/Inputs/branches.mlir --pass-pipeline='builtin.module(task.kernel(task-materialize-exchanges,task-elide-exchanges,task-plan-streams),task-select-protocol,task.kernel(task-plan-memory,task-lower-to-roles),task-verify)' | FileCheck %s --check-prefix=ROLES

// DATA: task.exchange @a [2, 256] bf16 sentinel sets 2
// DATA: task.edge [[#]] @a_words words epilogue -> consumer{{$| \{why}}
// The join's epilogue adds its own slice of @b, so it polls it itself.
// DATA: task.edge [[#]] @b_words words epilogue -> epilogue{{$| \{why}}
// DATA: task.stage @branch_a
// DATA-NOT: depends
// DATA: task.stage @join {{.*}}depends = [@branch_a, @branch_b]

// PLAN: task.stage @branch_b {{.*}}shares_input = @branch_a
// PLAN-NOT: depends
// PLAN: task.stage @join

// Rows are brought and normed once for both branches.
// ROLES: task.stage @branch_a
// ROLES: task.poll "poll_chunk<Previous<x_words>, branch_a::In>" [] waits @x_words reads [@x[0, 0] 2 x [256] previous]
// ROLES: rms_norm<branch_a::Norm>
// ROLES: task.stage @branch_b
// ROLES-NOT: task.poll
// ROLES-NOT: rms_norm
// The prologue follows the last poll of the previous launch, before the join polls this launch's.
// ROLES: role epilogue
// ROLES: epilogue_words<branch_b, b_words>
// ROLES: role poller
// ROLES-NEXT: task.launch_wait
// ROLES-NEXT: task.rearm @x
// ROLES-NEXT: task.rearm @a
// ROLES-NEXT: task.rearm @b
// ROLES-NEXT: task.rearm @y
// ROLES-NEXT: task.launch_dependents
// ROLES: task.stage @join
// ROLES: role consumer
// ROLES-NEXT: task.launch_wait
// ROLES-NEXT: task.refill @xs
// ROLES-NEXT: task.poll "poll_chunk<a_words, join::In>" [] waits @a_words
// ROLES: role epilogue
// ROLES-NEXT: task.poll "fetch_slice<join, b_words, join_kept>" [] waits @b_words reads [@b[0, d0 * 64] 2 x [64]] writes [@join_kept[0, 0] 2 x [64]]
// ROLES: task.compute "epilogue_residual<join, y_words, join_kept>" ["mtile", "sum"] reads [@join_kept[0, 0] 2 x [64]] writes [@y[0, d0 * 64 + d1 * 16] 2 x [16], @join_kept[0, 0] 2 x [64]]
