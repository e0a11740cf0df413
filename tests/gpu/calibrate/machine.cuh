// What needs the machine's own registers or instructions, so has no host form: the clock, and what
// code costs that no cache holds yet.
#pragma once

#include "codegen/device/gemv.cuh"
#include "tests/gpu/calibrate/code.cuh"
#include "tests/gpu/calibrate/stream.cuh"

namespace megalith::calibrate {

struct ClockConfig {
  static constexpr int kSms = 1, kRows = 1, kEdges = 2;
};
inline constexpr int kClockSlots = 8;
inline constexpr uint32_t kClockBars = kClockSlots * kPieceBytes, kClockDone = kClockBars + 64;
struct clock_put : MbarrierEdge<0, kClockBars, kClockSlots, 1> {
  static constexpr char kName[] = "clock_put";
};
struct clock_got : MbarrierEdge<1, kClockBars, kClockSlots, 1> {
  static constexpr char kName[] = "clock_got";
};

/// For job.pause ns every SM counts its clocks: with job.variant its consumers multiply all the
/// time, or with job.stride the product of a piece every so many ns; with job.window its producer
/// streams.
/// Sample: [0] clocks, [1] ns of the same time.
MEGALITH_DEVICE void clocks(const LaunchArgs &args) {
  Cta<ClockConfig> cta(args);
  const Job job = job_of(cta);
  const uint64_t begin = platform::now_ns();
  const auto over = [&] { return platform::now_ns() - begin > job.pause; };
  setup<clock_put>(cta);
  if (cta.role == Role::epilogue) {
    const auto clock = static_cast<uint64_t>(clock64());
    const uint64_t start = platform::now_ns();
    while (!over())
      ;
    const uint64_t passed = static_cast<uint64_t>(clock64()) - clock;
    report(cta, &sample_of(cta)->sum[1], platform::now_ns() - start);
    report(cta, &sample_of(cta)->sum[0], passed);
  } else if (cta.role == Role::producer && job.window) {
    Stream<clock_put, clock_got, Ring<0, kClockSlots, kPieceBytes>> stream{job};
    for (uint32_t i = 0; i < job.window; ++i)
      stream.issue(cta);
    while (!platform::any_sync(over())) {
      stream.take(cta);
      stream.issue(cta);
    }
    while (stream.got.number < stream.put.number)
      stream.take(cta);
    report_wrong(cta, stream.wrong);
  } else if (cta.role == Role::consumer && job.variant) {
    // Whatever the stream brings: operands that change, as in a decode step.
    float sum[1][4] = {};
    for (uint32_t pieces = 1; !platform::any_sync(over()); ++pieces) {
      for (int i = 0; i < (job.stride ? 1 : 16); ++i)
        platform::mma_k_loop(sum, {.steps = 4,
                                   .a = cta.smem + (i % kClockSlots) * kPieceBytes +
                                        2048 * (cta.lane / 4) + 16 * (cta.lane % 4),
                                   .j0 = 4 * cta.role_warp,
                                   .swap = 0,
                                   .a_stride = 64,
                                   .a_valid = true,
                                   .b = cta.smem + 8 * cta.lane,
                                   .b_stride = 256,
                                   .b_valid = true});
      while (job.stride && platform::now_ns() - begin < uint64_t{pieces} * job.stride)
        ;
    }
    if (sum[0][0] == 12345.0f) // keeps the products
      report(cta, &sample_of(cta)->sum[2], 1);
  }
}

/// One warp an SM runs Kilobytes KB of code that has no jump, twice; the rest of the CTA sleeps.
/// Sample: ns of [0] the first pass, [1] the second.
template <int Kilobytes> MEGALITH_DEVICE void straight(const LaunchArgs &args) {
  Cta<ClockConfig> cta(args);
  cta.settle();
  if (cta.warp != 0)
    return;
  const Job job = job_of(cta);
  meet(cta, job, 0, 0);
  float a = 0, b = 1, c = 2, d = 3;
  const float factor = 1.0f / static_cast<float>(job.rounds);
  uint64_t passed[2];
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    const uint64_t begin = platform::now_ns();
#pragma unroll
    for (int i = 0; i < Kilobytes; ++i)
      asm volatile(MEGALITH_CODE_1K : "+f"(a), "+f"(b), "+f"(c), "+f"(d) : "f"(factor));
    const uint64_t time = platform::now_ns() - begin;
    if (pass == 0)
      passed[0] = time;
    else
      passed[1] = time;
  }
  report(cta, &sample_of(cta)->sum[0], passed[0]);
  report(cta, &sample_of(cta)->sum[1], passed[1]);
  if (a + b + c + d == 12345.0f) // keeps the code
    report(cta, &sample_of(cta)->sum[2], 1);
}

} // namespace megalith::calibrate
