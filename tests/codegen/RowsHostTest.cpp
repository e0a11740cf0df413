// Wide rows on the host platform: norm with and without gains, padding, canonical words.
#include "runtime/host/machine.h"
#include "tests/codegen/HostHarness.h"

#include "llvm/Support/Error.h"

#include <catch2/catch.hpp>

#include <algorithm>

extern "C" {
extern const megalith::host::KernelRecord megalith_kernel_rows_weighted;
extern const megalith::host::KernelRecord megalith_kernel_rows_weightless;
}

using namespace megalith;
using namespace megalith::test;

namespace {

constexpr int kWidth = 5000, kPadded = 5120, kRows = 2, kSms = 2;

/// Two launches in a row, so that the second polls a set that the first re-armed; its output.
Matrix run(const host::KernelRecord &kernel, Matrix x, Matrix gain, uint64_t seed) {
  host::Options options;
  options.sms = kSms;
  options.seed = seed;
  host::Machine machine(options);
  Matrix out(kRows, kPadded);
  std::vector<uint32_t> words(2 * kRows * kWidth / 2, runtime::kEmptyWord);
  StepDescriptor step = {};
  step.live_rows = kRows;
  OneFault fault;
  machine.registerBuffer(&step, sizeof step, "step", host::Access::read);
  machine.registerBuffer(x.bits.data(), 2 * x.bits.size(), "x", host::Access::read);
  machine.registerBuffer(gain.bits.data(), 2 * gain.bits.size(), "gain", host::Access::read);
  machine.registerBuffer(out.bits.data(), 2 * out.bits.size(), "out");
  machine.registerBuffer(words.data(), 4 * words.size(), "words");
  host::poison(out.bits.data(), 2 * out.bits.size());
  LaunchArgs args = {};
  args.step = &step;
  args.fault = &fault.table;
  void *buffers[] = {x.bits.data(), gain.bits.data(), out.bits.data(), words.data()};
  std::copy(std::begin(buffers), std::end(buffers), args.buffer);
  std::vector<host::Launch> launches = {{&kernel, args}, {&kernel, args}};
  launches[1].args.launch_in_step = 1;
  auto report = machine.run(launches);
  if (!report)
    FAIL(llvm::toString(report.takeError()));
  return out;
}

} // namespace

TEST_CASE("wide rows are normed, exchanged and padded", "[rows]") {
  std::mt19937 rng(5);
  const auto x = Matrix::random(rng, kRows, kWidth, 2);
  const auto gain = Matrix::random(rng, 1, kWidth, 0.5f, 1);
  for (bool weighted : {true, false})
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const auto out =
          run(weighted ? megalith_kernel_rows_weighted : megalith_kernel_rows_weightless, x, gain,
              seed);
      for (int row = 0; row < kRows; ++row) {
        INFO("weighted " << weighted << " seed " << seed << " row " << row);
        auto got = out.floats(row);
        CHECK(std::all_of(got.begin() + kWidth, got.end(), [](float v) { return v == 0; }));
        got.resize(kWidth);
        const auto want =
            rmsNorm(x.floats(row), weighted ? gain.floats(0) : std::vector<float>(), 1e-5);
        CHECK(relativeRms(got, want) < 1e-3);
      }
    }
}

TEST_CASE("a NaN is published in its canonical form and does not look empty", "[rows]") {
  std::mt19937 rng(6);
  auto x = Matrix::random(rng, kRows, kWidth, 2);
  // One NaN makes its row's statistics, hence all its channels, NaN; the other row is unharmed.
  x.bits[17] = 0xFFFF;
  const auto out = run(megalith_kernel_rows_weightless, x, Matrix(1, kWidth), 1);
  CHECK(std::all_of(out.row(0).begin(), out.row(0).begin() + kWidth,
                    [](uint16_t bits) { return bits == 0x7FC0; }));
  auto got = out.floats(1);
  got.resize(kWidth);
  CHECK(relativeRms(got, rmsNorm(x.floats(1), {}, 1e-5)) < 1e-3);
}
