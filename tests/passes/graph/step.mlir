// --scope=step: the launches of a step become turns of one kernel's loop. Stages that launches share stand
// once, with the launches in which they run; SMs wait for each other between launches on a counter.
// RUN: megalith-opt %S/small-model.mlir --megalith-pipeline="target=sm_90a sms=5 launch=step" -o %t
// RUN: FileCheck %s < %t
// RUN: megalith-opt %t --task-verify -o /dev/null

// CHECK-LABEL: task.kernel @step "step" target "sm_90a" sms 5 rows 2
// CHECK-SAME: attributes {launches = 4 : i64, layered = 10 : i64{{[,}]}}
// What differs from launch to launch has the lowest slots.
// CHECK-DAG: task.buffer @embedding {{.*}}slot = 10
// CHECK-DAG: task.weights @w_qkv {{.*}} slot 0 {{.*}}layer_offset = 1
// CHECK-DAG: task.weights @w_down {{.*}} slot 9 {{.*}}
// CHECK-DAG: task.exchange @resid {{.*}} sets 3 slot 11 edge @resid_words
// Polled by the epilogue too, as in the layers' launches.
// CHECK-DAG: task.edge {{.*}} @resid_words words epilogue -> consumer, epilogue
// CHECK-DAG: task.edge {{.*}} @launched mbarrier epilogue -> consumer
// CHECK-DAG: task.edge {{.*}} @consumer_over mbarrier consumer -> epilogue {arrivals = 8
// CHECK-DAG: task.edge {{.*}} @complete launches epilogue -> poller, epilogue {slot = {{[0-9]+}}

// CHECK: task.stage @embed embed {{.*}}during = array<i64: 0, 1>
// CHECK: task.role epilogue {
// CHECK-NEXT: task.launch_wait @complete
// CHECK-NEXT: task.signal @launched
// CHECK: task.role consumer {
// CHECK-NEXT: task.wait @launched
// CHECK: task.role poller {
// CHECK-NEXT: task.launch_wait @complete
// CHECK-NEXT: task.rearm @resid
// CHECK-NOT: task.launch_dependents
// CHECK: task.stage @attention attention {{.*}}during = array<i64: 1, 4>
// The words of the launch before are polled before the wait; pages need none.
// CHECK: task.role poller {
// CHECK: task.poll "poll_qkv_tile<attention, Previous<qkv_words>>"
// CHECK: task.launch_wait @complete
// CHECK: task.role consumer {
// CHECK-NOT: task.launch_wait
// CHECK: task.peek @launched
// CHECK-NEXT: task.compute "publish_partials
// CHECK: task.wait @launched
// CHECK: task.role epilogue {
// CHECK-NEXT: task.launch_wait @complete
// CHECK-NEXT: task.signal @launched
// CHECK: task.stage @o_proj linear {{.*}}during = array<i64: 1, 4>
// CHECK: task.stage @expert_down expert_down {{.*}}during = array<i64: 1, 4>
// CHECK: task.stage @qkv_proj linear {{.*}}depends = [@embed, @expert_down], during = array<i64: 0, 3>
// CHECK: task.stage @head linear {{.*}}during = array<i64: 3, 4>
// CHECK: task.stage @launch_end launch_end reads [] writes [] config {}
// CHECK: task.role producer {
// CHECK-NEXT: task.signal @producer_over
// CHECK: task.role epilogue {
// CHECK-NEXT: task.wait @producer_over
// CHECK-NEXT: task.wait @poller_over
// CHECK-NEXT: task.wait @consumer_over
// CHECK-NEXT: task.launch_done @complete
// CHECK-NOT: task.kernel

// Where attention's bytes are the dense phase's too, the next launch's attention waits for the rows' last use.
// RUN: megalith-opt %S/small-model.mlir --pass-pipeline='builtin.module(moe-cut-launches,moe-convert-to-task{sms=5},task.kernel(task-choose-tiles,task-assign-sms,task-materialize-exchanges,task-elide-exchanges),task-merge-launches,task.kernel(task-plan-streams),task-select-protocol,task.kernel(task-plan-memory{shared-bytes=84000},task-lower-to-roles),task-verify)' | FileCheck %s --check-prefix=ALIAS
// ALIAS: task.edge {{.*}} @dense_done mbarrier consumer -> poller
// ALIAS: task.stage @launch_end
// ALIAS: task.role consumer {
// ALIAS-NEXT: task.signal @dense_done
// ALIAS-NEXT: task.signal @consumer_over
// ALIAS: task.role poller {
// ALIAS-NEXT: task.wait @dense_done
// ALIAS-NEXT: task.signal @poller_over
