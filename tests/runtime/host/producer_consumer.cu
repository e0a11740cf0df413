// A small kernel of four roles, written against the platform only. It builds with nvcc and, as it
// stands, for the host: one source on two platforms.
//
// Per launch n every SM multiplies its kPieces pieces of weights (16 KB each, streamed through a
// ring of kSlots) with activations; the epilogue adds the 8 consumer warps' sums and publishes 128
// fp32 words, times n + 1; every SM's poller collects the words of all SMs and stores their sum.
// Buffers: 0 weights [sm][piece][warp][step][lane][16 B], 1 activations [piece][warp][step][lane]
// [8 B], 2 exchange [2 sets][sm][128] words, 3 out [launch][sm][128] fp32. args.layer = SMs.
#include "codegen/device/platform.cuh"

namespace megalith::test {
using namespace megalith::platform;

constexpr int kPieces = 6, kSlots = 4, kSteps = 4, kPieceBytes = 16384, kWords = 128;
constexpr uint32_t kEmpty = 0xFFFFFFFFu;
constexpr int kFull = 0, kFree = 64, kPart = 128, kRing = 1024;
constexpr int kActs = kRing + kSlots * kPieceBytes;           // one piece: 8 warps x kSteps x 256 B
constexpr int kPartials = kActs + kPieces * 8 * kSteps * 256; // [warp][128] fp32
[[maybe_unused]] constexpr int kSmemBytes = kPartials + 8 * kWords * 4;

struct FullEdge {
  static constexpr char kName[] = "full";
};
struct FreeEdge {
  static constexpr char kName[] = "free";
};
struct PartEdge {
  static constexpr char kName[] = "part";
};
struct WordsEdge {
  static constexpr char kName[] = "words";
};

MEGALITH_DEVICE uint64_t *barrier(int offset, int slot) {
  return reinterpret_cast<uint64_t *>(smem() + offset + 8 * slot);
}

template <class Edge>
MEGALITH_DEVICE void wait(const LaunchArgs &args, uint64_t *bar, uint32_t parity, uint32_t id) {
  mark<verb::Wait, Edge>();
  uint64_t start = now_ns();
  while (!mbarrier_try_wait(bar, parity))
    if (now_ns() - start > args.deadline_ns)
      fail(args.fault, id, parity, 0);
  mark_end();
}

MEGALITH_DEVICE void produce(const LaunchArgs &args) {
  auto *weights = static_cast<const unsigned char *>(args.buffer[0]);
  for (int p = 0; p < kPieces; ++p) {
    int slot = p % kSlots;
    wait<FreeEdge>(args, barrier(kFree, slot), ((p / kSlots) & 1) ^ 1, 1);
    if (lane() == 0) {
      mbarrier_arrive_expect_tx(barrier(kFull, slot), kPieceBytes);
      cp_async_bulk(smem() + kRing + slot * kPieceBytes,
                    weights + static_cast<size_t>(sm() * kPieces + p) * kPieceBytes, kPieceBytes,
                    barrier(kFull, slot));
    }
    warp_sync();
  }
}

MEGALITH_DEVICE void consume(const LaunchArgs &args, int w) {
  auto *acts = static_cast<const unsigned char *>(args.buffer[1]);
  float acc[1][4] = {};
  for (int p = 0; p < kPieces; ++p) {
    int slot = p % kSlots;
    unsigned char *b = smem() + kActs + (p * 8 + w) * kSteps * 256 + lane() * 8;
    for (int s = 0; s < kSteps; ++s)
      st_shared(b + s * 256, ld_const<u32x2>(acts + ((p * 8 + w) * kSteps + s) * 256 + lane() * 8));
    wait<FullEdge>(args, barrier(kFull, slot), (p / kSlots) & 1, 0);
    mma_k_loop(acc, {kSteps, smem() + kRing + slot * kPieceBytes + w * kSteps * 512 + lane() * 16,
                     0, 1, 512, true, b, 256, true});
    warp_sync();
    if (lane() == 0)
      mbarrier_arrive(barrier(kFree, slot));
  }
  for (int i = 0; i < 4; ++i)
    st_shared(smem() + kPartials + (w * kWords + i * 32 + lane()) * 4, acc[0][i]);
  warp_sync();
  if (lane() == 0)
    mbarrier_arrive(barrier(kPart, 0));
}

MEGALITH_DEVICE uint32_t *words(const LaunchArgs &args, uint32_t set, int of_sm) {
  return static_cast<uint32_t *>(args.buffer[2]) + (set * args.layer + of_sm) * kWords;
}

MEGALITH_DEVICE void publish(const LaunchArgs &args) {
  launch_wait();
  wait<PartEdge>(args, barrier(kPart, 0), 0, 2);
  float scale = static_cast<float>(args.launch_in_step + 1); // so that old words are wrong words
  mark<verb::Publish, WordsEdge>();
  for (int i = lane(); i < kWords; i += 32) {
    float sum = 0;
    for (int w = 0; w < 8; ++w)
      sum += ld_shared<float>(smem() + kPartials + (w * kWords + i) * 4);
    st_relaxed<Scope::gpu>(words(args, args.launch_in_step % 2, sm()) + i,
                           float_to_bits(sum * scale));
  }
  mark_end();
}

MEGALITH_DEVICE void collect(const LaunchArgs &args) {
  launch_wait();
  uint32_t n = args.launch_in_step;
  for (int i = lane(); i < kWords; i += 32)
    st_relaxed<Scope::gpu>(words(args, (n + 1) % 2, sm()) + i, kEmpty);
  launch_dependents();
  auto *out = static_cast<float *>(args.buffer[3]) + (n * args.layer + sm()) * kWords;
  mark<verb::Poll, WordsEdge>();
  float sum[4] = {0, 0, 0, 0};
  uint64_t start = now_ns();
  for (int from = 0; from < args.layer; ++from) {
    const uint32_t *at = words(args, n % 2, from) + lane() * 4;
    u32x4 v = ld_relaxed_v4<Scope::gpu>(at);
    while (any_sync(v.x == kEmpty || v.y == kEmpty || v.z == kEmpty || v.w == kEmpty)) {
      if (now_ns() - start > args.deadline_ns)
        fail(args.fault, 3, static_cast<uint64_t>(from), v.x);
      // Whose words are here already has nothing to wait for, but stays with its warp.
      if (v.x == kEmpty || v.y == kEmpty || v.z == kEmpty || v.w == kEmpty)
        poll_pause(at);
      v = ld_relaxed_v4<Scope::gpu>(at);
    }
    sum[0] += bits_to_float(v.x);
    sum[1] += bits_to_float(v.y);
    sum[2] += bits_to_float(v.z);
    sum[3] += bits_to_float(v.w);
  }
  mark_end();
  for (int i = 0; i < 4; ++i)
    st_global(out + lane() * 4 + i, sum[i]);
}

MEGALITH_KERNEL(producer_consumer) {
  if (warp() == 0 && lane() == 0) {
    for (int slot = 0; slot < kSlots; ++slot) {
      mbarrier_init(barrier(kFull, slot), 1);
      mbarrier_init(barrier(kFree, slot), 8);
    }
    mbarrier_init(barrier(kPart, 0), 8);
    fence_mbarrier_init();
  }
  cta_sync();
  int w = warp();
  if (w == 0)
    produce(args);
  else if (w == 1)
    collect(args);
  else if (w < 10)
    consume(args, w - 2);
  else
    publish(args);
}

} // namespace megalith::test
