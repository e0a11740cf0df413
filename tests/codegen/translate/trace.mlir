// A kernel that records is the same kernel with calls of codegen/device/trace.cuh between its steps;
// without `trace` there is nothing of it.
// RUN: megalith-opt %s --pass-pipeline='builtin.module(task.kernel(task-trace))' | megalith-translate --emit-kernels --no-digests | FileCheck %s
// RUN: megalith-translate --emit-kernels --no-digests %s | FileCheck %s --check-prefix=OFF

// OFF-NOT: {{trace_|timed_|kStage|kTrace}}
// OFF: return epilogue(cta);

// CHECK: #include "codegen/device/trace.cuh"
// CHECK: static constexpr int kTraceStages = 3;
task.kernel @traced "test" target "sm_90a" sms 4 rows 1 smem 8192 {
  task.weights @w n 8 k 128 slot 0 rows ["w"]
  task.exchange @h [1, 8] bf16 sentinel sets 2 slot 1 edge @h_words
  task.exchange @y [1, 8] bf16 sentinel sets 2 slot 2 edge @y_words
  task.ring @ring 2 x 2048 full @w_full free @w_free {offset = 0}
  task.buffer @part [128, 8] f32 smem scratch {guard = @p_full, offset = 4096, type = "Part<$offset, $slots>"}
  task.edge 0 @h_words words epilogue -> consumer
  task.edge 1 @w_full bytes producer -> consumer {offset = 7936, slots = 2}
  task.edge 2 @w_free credit consumer -> producer {offset = 7952, slots = 2, arrivals = 8}
  task.edge 3 @p_full mbarrier consumer -> epilogue {offset = 7968, arrivals = 8}
  task.edge 4 @p_free credit epilogue -> consumer {offset = 7976}
  task.edge 5 @x_full mbarrier poller -> consumer {offset = 7984}
  task.edge 6 @y_words words consumer -> poller

  // CHECK: struct first : Linear<w, 8, 128, 1> {
  // CHECK-NEXT: static constexpr int kStage = 0;
  // CHECK: struct second {
  // CHECK-NEXT: static constexpr int kStage = 1;

  // CHECK: void producer(Cta &cta) {
  // CHECK-NEXT: // first
  // CHECK-NEXT: if (cta.sm < 2) {
  // CHECK-NEXT: acquire<w_free>(cta);
  // CHECK-NEXT: copy_piece<w_full, ring, first>(cta, 0, 0);
  // CHECK-NEXT: trace_stage<first>(cta);
  // CHECK-NEXT: }
  // CHECK-NEXT: }

  // A role that does nothing records nothing.
  // CHECK: void poller(Cta &) {}

  // Handing over ends the work; the step in a loop of its own gets braces for it.
  // CHECK: void consumer(Cta &cta) {
  // CHECK: timed_wait<x_full>(cta);
  // CHECK-NEXT: trace_poll(cta);
  // CHECK-NEXT: poll_chunk<h_words, first::In>(cta);
  // CHECK-NEXT: trace_polled(cta);
  // CHECK-NEXT: const int slot = timed_piece<w_full>(cta);
  // CHECK-NEXT: release<w_free>(cta);
  // CHECK-NEXT: for (int i = 0; i < 1; ++i) {
  // CHECK-NEXT: trace_product(cta);
  // CHECK-NEXT: acquire<p_free>(cta);
  // CHECK-NEXT: }
  // CHECK: trace_consumer<first>(cta);

  // A run of pieces takes the time of its waits itself.
  // CHECK: // second
  // CHECK-NEXT: multiply_pieces<w_full, w_free, ring, second>(cta, sum, 0, 2, column);
  // CHECK-NEXT: trace_consumer<second>(cta);

  // Polls in a row are timed as one; what was polled is handed over as it is.
  // CHECK: // third
  // CHECK-NEXT: {
  // CHECK-NEXT: trace_poll(cta);
  // CHECK-NEXT: poll_stream<third, h_words>(cta, stream);
  // CHECK-NEXT: Words branch;
  // CHECK-NEXT: poll_branch<third, h_words>(cta, branch);
  // CHECK-NEXT: trace_polled_product(cta);
  // CHECK-NEXT: join_row<third, y_words>(cta, stream, branch);
  // CHECK-NEXT: trace_poll(cta);
  // CHECK-NEXT: poll_stream<third, h_words>(cta, stream);
  // CHECK-NEXT: trace_polled(cta);
  // CHECK-NEXT: const int seen = stream.seen;
  // CHECK-NEXT: trace_poll(cta);
  // CHECK-NEXT: poll_branch<third, h_words>(cta, branch);
  // CHECK-NEXT: trace_polled(cta);
  // CHECK-NEXT: trace_consumer<third>(cta);

  // CHECK: void epilogue(Cta &cta) {
  // CHECK: launch_wait();
  // CHECK-NEXT: timed_wait<p_full>(cta);
  // CHECK-NEXT: trace_epilogue<first>(cta);
  // CHECK: // second
  // CHECK-NEXT: nothing();
  // CHECK-NEXT: trace_epilogue<second>(cta);

  // CHECK: MEGALITH_KERNEL(traced) {
  // CHECK: make_barriers<
  // CHECK: setup(cta);
  // CHECK: trace_begin(cta);
  // CHECK-NEXT: switch (cta.role) {
  // CHECK-NEXT: case Role::producer:
  // CHECK-NEXT: producer(cta);
  // CHECK-NEXT: break;
  // CHECK: case Role::epilogue:
  // CHECK-NEXT: epilogue(cta);
  // CHECK-NEXT: break;
  // CHECK-NEXT: }
  // CHECK-NEXT: trace_end(cta);
  // CHECK-NEXT: }
  task.stage @first linear sms 2 reads [] writes [] config {base = "Linear<w, 8, 128, 1>"} {
    task.role producer {
      task.acquire @w_free
      task.copy "copy_piece<w_full, ring, first>" ["0", "0"] @w[0, 0] 1 x [1] to @ring signals @w_full
    }
    task.role consumer {
      task.wait @x_full
      task.poll "poll_chunk<h_words, first::In>" [] waits @h_words reads [@h[0, 0] 1 x [8]] writes []
      task.wait @w_full {result = "const int slot"}
      task.release @w_free
      task.for "i" in 1 {
        task.acquire @p_free
      }
      task.signal @p_full
    }
    task.role epilogue {
      task.launch_wait
      task.wait @p_full
    }
  }
  task.stage @second linear reads [] writes [] config {} {
    task.role consumer {
      task.for "piece" in 2 {
        task.wait @w_full {result = "const int slot"}
        task.compute "gemv_blocks<second, ring>" ["sum", "slot", "0", "piece", "column"] reads [] writes []
        task.release @w_free
      }
    }
    task.role epilogue {
      task.compute "nothing()" [] reads [] writes []
    }
  }
  task.stage @third linear reads [] writes [] config {} {
    task.role consumer {
      task.poll "poll_stream<third, h_words>" ["stream"] waits @h_words reads [@h[0, 0] 1 x [8]] writes []
      task.local "branch" : "Words"
      task.poll "poll_branch<third, h_words>" ["branch"] waits @h_words reads [@h[0, 0] 1 x [8]] writes []
      task.compute "join_row<third, y_words>" ["stream", "branch"] reads [] writes [@y[0, 0] 1 x [8]]
      task.poll "poll_stream<third, h_words>" ["stream"] waits @h_words reads [@h[0, 0] 1 x [8]] writes []
      task.local "seen" : "const int" = "stream.seen"
      task.poll "poll_branch<third, h_words>" ["branch"] waits @h_words reads [@h[0, 0] 1 x [8]] writes []
    }
  }
}
