// The toy kernel on the host platform, against a plain C++ reference, under many seeds.
#include "runtime/host/machine.h"
#include "tests/codegen/HostHarness.h"

#include "llvm/Support/Error.h"

#include <catch2/catch.hpp>

extern "C" {
extern const megalith::host::KernelRecord megalith_kernel_m0_rows1;
extern const megalith::host::KernelRecord megalith_kernel_m0_rows8;
extern const megalith::host::KernelRecord megalith_kernel_m0_dropped_wait;
}

using namespace megalith;
using namespace megalith::test;

namespace {

constexpr int kIn = 512, kHidden = 256, kOut = 128, kSms = 4, kSeeds = 50;
// Sets, re-arming and wrap-around of the exchange need three launches in a row.
constexpr int kLaunches = 4;
constexpr uint32_t kSharedBytes = 82304;

/// Inputs of a chain of launches, each with its own x.
struct Toy {
  explicit Toy(int rows) : rows(rows), rng(7) {
    for (int i = 0; i < kLaunches; ++i)
      x.push_back(Matrix::random(rng, rows, kIn, 1));
    pack(w1, packed1);
    pack(w2, packed2);
  }

  std::vector<float> reference(int launch, int row) const {
    const auto n = rmsNorm(x[launch].floats(row), gain.floats(0), 1e-6);
    return rounded(multiply(w2, rounded(multiply(w1, n))));
  }

  int rows;
  std::mt19937 rng;
  std::vector<Matrix> x;
  Matrix gain = Matrix::random(rng, 1, kIn, 0.25f, 1);
  Matrix w1 = Matrix::random(rng, kHidden, kIn, 0.0625f);
  Matrix w2 = Matrix::random(rng, kOut, kHidden, 0.0625f);
  std::vector<unsigned char> packed1, packed2;
};

/// Runs the chain; the outputs of all launches, bf16 bits.
llvm::Expected<std::vector<Matrix>> run(Toy &toy, const host::KernelRecord &kernel, uint64_t seed) {
  host::Options options;
  options.sms = kSms;
  options.smem_bytes = kSharedBytes;
  options.seed = seed;
  host::Machine machine(options);

  std::vector<Matrix> out(kLaunches, Matrix(toy.rows, kOut));
  std::vector<uint32_t> h(2 * static_cast<size_t>(toy.rows) * kHidden / 2, runtime::kEmptyWord);
  StepDescriptor step = {};
  step.live_rows = toy.rows;
  step.sequences = 1;
  step.seq[0] = {0, toy.rows, 0};
  OneFault fault;
  const auto bytes = [](auto &v) { return v.size() * sizeof(v[0]); };
  machine.registerBuffer(&step, sizeof step, "step", host::Access::read);
  machine.registerBuffer(toy.gain.bits.data(), bytes(toy.gain.bits), "gain", host::Access::read);
  machine.registerBuffer(toy.packed1.data(), bytes(toy.packed1), "w1", host::Access::read);
  machine.registerBuffer(toy.packed2.data(), bytes(toy.packed2), "w2", host::Access::read);
  machine.registerBuffer(h.data(), bytes(h), "h");

  std::vector<host::Launch> launches;
  for (int i = 0; i < kLaunches; ++i) {
    auto &x = toy.x[i].bits;
    host::poison(out[i].bits.data(), bytes(out[i].bits));
    machine.registerBuffer(x.data(), bytes(x), "x", host::Access::read);
    machine.registerBuffer(out[i].bits.data(), bytes(out[i].bits), "out");
    LaunchArgs args = {};
    args.step = &step;
    args.launch_in_step = static_cast<uint32_t>(i);
    args.fault = &fault.table;
    void *buffers[] = {x.data(), toy.gain.bits.data(), toy.packed1.data(), toy.packed2.data(),
                       h.data(), out[i].bits.data()};
    std::copy(std::begin(buffers), std::end(buffers), args.buffer);
    launches.push_back({&kernel, args});
  }
  auto report = machine.run(launches);
  if (!report)
    return report.takeError();
  return out;
}

void checkAllSeeds(int rows, const host::KernelRecord &kernel) {
  Toy toy(rows);
  std::vector<Matrix> first;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    auto out = run(toy, kernel, seed);
    INFO("seed " << seed);
    if (!out)
      FAIL(llvm::toString(out.takeError()));
    if (first.empty())
      first = *out;
    for (int launch = 0; launch < kLaunches; ++launch)
      REQUIRE((*out)[launch].bits == first[launch].bits);
  }
  for (int launch = 0; launch < kLaunches; ++launch)
    for (int row = 0; row < rows; ++row) {
      INFO("launch " << launch << " row " << row);
      CHECK(relativeRms(first[launch].floats(row), toy.reference(launch, row)) < 4e-3);
    }
}

} // namespace

TEST_CASE("the toy kernel equals the reference, with the same bits under every seed", "[m0]") {
  SECTION("one row") {
    checkAllSeeds(1, megalith_kernel_m0_rows1);
  }
  SECTION("eight rows") {
    checkAllSeeds(8, megalith_kernel_m0_rows8);
  }
}

TEST_CASE("a row's bits do not depend on the rows bucket", "[m0]") {
  Toy eight(8), one(1);
  one.gain = eight.gain;
  one.packed1 = eight.packed1;
  one.packed2 = eight.packed2;
  auto wide = run(eight, megalith_kernel_m0_rows8, 1);
  REQUIRE(bool(wide));
  for (int row = 0; row < 8; ++row) {
    for (int launch = 0; launch < kLaunches; ++launch)
      one.x[launch].bits.assign(eight.x[launch].row(row).begin(), eight.x[launch].row(row).end());
    auto narrow = run(one, megalith_kernel_m0_rows1, 1);
    REQUIRE(bool(narrow));
    for (int launch = 0; launch < kLaunches; ++launch)
      CHECK(std::ranges::equal((*narrow)[launch].row(0), (*wide)[launch].row(row)));
  }
}

TEST_CASE("a missing wait is noticed by at least one seed", "[m0]") {
  Toy toy(1);
  auto right = run(toy, megalith_kernel_m0_rows1, 1);
  REQUIRE(bool(right));
  int noticed = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    auto out = run(toy, megalith_kernel_m0_dropped_wait, seed);
    if (!out) {
      llvm::consumeError(out.takeError());
      ++noticed;
      continue;
    }
    bool same = true;
    for (int launch = 0; launch < kLaunches; ++launch)
      same = same && (*out)[launch].bits == (*right)[launch].bits;
    noticed += same ? 0 : 1;
  }
  CHECK(noticed > 0);
}
