// Forms that the toy kernel has not: a guarded stage, tiles, a symbol's trips, words of the launch
// before, epochs, shared buffers of each element type, a kernel without work for a role.
// RUN: megalith-translate --emit-kernels --no-digests %s | FileCheck %s

// CHECK: // Kernel tiles_test (test) for sm_100a, 148 SMs, at most 4 rows.
// CHECK: #include "codegen/device/attention.cuh"
// CHECK: #include "codegen/device/edges.cuh"
// CHECK: #include "codegen/device/exchange.cuh"
// CHECK: #include "codegen/device/tiles.cuh"
// CHECK: namespace megalith::tiles_test {
// CHECK: static constexpr int kEdges = 3;
// CHECK: static constexpr uint32_t kSharedBytes = 8192;
task.kernel @tiles_test "test" target "sm_100a" sms 148 rows 4 smem 8192 {
  // CHECK: constexpr int kv = 3;
  task.buffer @kv [1, 1] bf16 global pages {slot = 3}
  // CHECK: using qkv = Words<0, 4, 256, 3>;
  // CHECK: using partials = Epochs<1, 88>;
  task.exchange @qkv [4, 512] bf16 sentinel sets 3 slot 0 edge @qkv_words
  task.exchange @partials [4, 64] f32 epoch sets 1 slot 1 edge @partials_words
  // CHECK: using scores = WordRows<0, 4, 128>;
  // CHECK: using qkv_in = SlottedRows<4096, 4, 512, 2>;
  task.buffer @scores [4, 128] f32 smem scratch {offset = 0}
  task.buffer @qkv_in [4, 512] i8 smem scratch {offset = 4096, slots = 2, guard = @qkv_full}
  // CHECK: struct qkv_full : MbarrierEdge<0, 8176, 2, 1> { // poller -> consumer, epilogue
  // CHECK: static constexpr char kName[] = "qkv_full";
  task.edge 0 @qkv_full mbarrier poller -> consumer, epilogue {slots = 2, offset = 8176}
  // CHECK: struct qkv_words : WordsEdge<1, qkv> {
  task.edge 1 @qkv_words words epilogue -> poller
  // CHECK: struct partials_words : EpochEdge<2, partials> {
  task.edge 2 @partials_words words epilogue -> poller
  // A symbol and a table may be called like something in a device header: neither is printed.
  task.symbol @attention_tile in 0 to 8 = "tile.full_units"
  task.table @attention_tiles size 8 partition = "tile"

  // CHECK: // moe.attention at stages.mlir:[[# @LINE + 6]]
  // CHECK-NEXT: struct attention : Attention<Config, 1, 4, 1, 128, 128, 1, QkNorm::none, 0.0f, 1.0f, kv> {
  // CHECK-NEXT:   static constexpr int kPlace = qkv_in::kOffset;
  // CHECK-NEXT:   static constexpr int kPool = kv;
  // CHECK-NEXT:   using QkvIn = qkv_in;
  // CHECK-NEXT: };
  task.stage @attention attention sms 100 reads [] writes []
      config {base = "Attention<Config, 1, 4, 1, 128, 128, 1, QkNorm::none, 0.0f, 1.0f, kv>",
              QkvIn = @qkv_in, kPlace = @qkv_in, kPool = @kv, head_dim = 128}
      source "moe.attention" {
    // CHECK: MEGALITH_DEVICE void producer(Cta &) {}

    // CHECK: MEGALITH_DEVICE void poller(Cta &cta) {
    // CHECK-NEXT:   // attention
    // CHECK-NEXT:   if (cta.sm < 100) {
    // CHECK-NEXT:     AttentionTiles<attention> tile_list(*cta.args.step, cta.sm);
    // CHECK-NEXT:     MEGALITH_UNROLL(1)
    // CHECK-NEXT:     for (AttentionTiles<attention>::Tile tile; tile_list.next(tile);) {
    // CHECK-NEXT:       poll_qkv_tile<attention, Previous<qkv_words>>(cta, tile, 0);
    // CHECK-NEXT:       signal<qkv_full>(cta);
    // CHECK-NEXT:     }
    // CHECK-NEXT:   }
    // CHECK-NEXT: }
    task.role poller {
      task.for "tile" in 4 iterate "AttentionTiles<attention>" {
        task.poll "poll_qkv_tile<attention, Previous<qkv_words>>" ["tile", "0"] waits @qkv_words
            reads [@qkv[0, 0] 4 x [512] previous] writes [@qkv_in[0, 0] 4 x [512]]
        task.signal @qkv_full
      }
    }
    // CHECK: for (int i = 0; i < tile.full_units; ++i)
    // CHECK-NEXT: consumer_sync();
    task.role consumer {
      task.for "i" in @attention_tile {
        task.compute "consumer_sync()" [] reads [] writes []
      }
    }
  }
}
