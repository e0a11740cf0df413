//===- M0EmittedTest.cpp - The emitted toy kernel on the host platform ----===//
//
// What megalith-translate prints for tests/ir/task/m0.mlir, compiled by g++, under 50 schedules of
// an adversarial machine: equal to a plain reference, with the same bits each time; and the proof's
// counterpart, that a kernel without one of its waits fails under at least one schedule.
//
//===----------------------------------------------------------------------===//

#include "runtime/host/load.h"
#include "runtime/host/machine.h"
#include "runtime/packing.h"
#include "tests/codegen/emit/Kernel.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <bit>
#include <cmath>
#include <random>

using namespace megalith;
using namespace megalith::task;
using megalith::test::Kernels;

namespace {

constexpr int kIn = 512, kHidden = 256, kOut = 128, kSms = 4, kSeeds = 50;
// Sets, re-arming and wrap-around of the exchange need three launches in a row.
constexpr int kLaunches = 4;

using Bits = std::vector<uint16_t>;

uint16_t toBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
float fromBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

Bits randomBits(std::mt19937 &rng, size_t count, float scale, float offset = 0) {
  std::uniform_real_distribution<float> uniform(-scale, scale);
  Bits bits(count);
  for (uint16_t &b : bits)
    b = toBf16(offset + uniform(rng));
  return bits;
}

/// r16 of W x, summed in double.
Bits multiply(const Bits &w, const Bits &x) {
  Bits y(w.size() / x.size());
  for (size_t row = 0; row < y.size(); ++row) {
    double sum = 0;
    for (size_t k = 0; k < x.size(); ++k)
      sum += double(fromBf16(w[row * x.size() + k])) * fromBf16(x[k]);
    y[row] = toBf16(float(sum));
  }
  return y;
}

Bits rmsNorm(const Bits &x, const Bits &gain) {
  double squares = 0;
  for (uint16_t v : x)
    squares += double(fromBf16(v)) * fromBf16(v);
  const double scale = 1 / std::sqrt(squares / double(x.size()) + 1e-6);
  Bits y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    y[i] = toBf16(float(fromBf16(x[i]) * scale * fromBf16(gain[i])));
  return y;
}

std::vector<unsigned char> pack(const Bits &w, int rows, int cols) {
  const runtime::StripLayout layout(rows, cols);
  std::vector<unsigned char> bytes(layout.bytes());
  runtime::packStrips(
      layout, 0, layout.strips,
      [&](int64_t row, std::span<uint16_t> out) {
        std::copy_n(w.begin() + row * cols, cols, out.begin());
      },
      bytes.data());
  return bytes;
}

/// One set of inputs and the outputs they must have.
struct Toy {
  std::mt19937 rng{7};
  Bits gain = randomBits(rng, kIn, 0.25f, 1);
  Bits w1 = randomBits(rng, kHidden *kIn, 0.0625f);
  Bits w2 = randomBits(rng, kOut *kHidden, 0.0625f);
  std::vector<unsigned char> packed1 = pack(w1, kHidden, kIn), packed2 = pack(w2, kOut, kHidden);
  std::vector<Bits> x;

  Toy() {
    for (int launch = 0; launch < kLaunches; ++launch)
      x.push_back(randomBits(rng, kIn, 1));
  }
  Bits reference(int launch) const { return multiply(w2, multiply(w1, rmsNorm(x[launch], gain))); }
};

/// Root mean square of the difference, relative to `want`; infinite if anything is not finite.
double relativeRms(const Bits &got, const Bits &want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double a = fromBf16(got[i]), b = fromBf16(want[i]);
    if (!std::isfinite(a))
      return INFINITY;
    error += (a - b) * (a - b);
    norm += b * b;
  }
  return std::sqrt(error / norm);
}

/// Emitted source, compiled for the host.
class HostKernel {
public:
  explicit HostKernel(Kernels &kernels) : smem(*kernels.first().getSmemBytes()) {
    const std::string source = kernels.emit();
    llvm::SmallString<128> folder;
    REQUIRE(!llvm::sys::fs::createUniqueDirectory("m0", folder));
    const std::string file = (folder + "/m0.cu").str();
    std::error_code error;
    llvm::raw_fd_ostream(file, error) << source;
    REQUIRE(!error);
    auto compiled = host::KernelLibrary::compile(file, ".", (folder + "/m0.so").str());
    llvm::sys::fs::remove_directories(folder); // stays mapped
    INFO(source);
    if (!compiled)
      FAIL(llvm::toString(compiled.takeError()));
    library.emplace(std::move(*compiled));
    auto found = library->kernel("m0");
    if (!found)
      FAIL(llvm::toString(found.takeError()));
    kernel = *found;
  }

  /// The outputs of a chain of launches.
  llvm::Expected<std::vector<Bits>> run(Toy &toy, uint64_t seed) const {
    host::Options options;
    options.sms = kSms;
    options.smem_bytes = smem;
    options.seed = seed;
    host::Machine machine(options);
    std::vector<Bits> out(kLaunches, Bits(kOut));
    std::vector<uint32_t> h(2 * kHidden / 2, 0xFFFFFFFFu);
    StepDescriptor step = {};
    step.live_rows = 1;
    step.sequences = 1;
    step.seq[0] = {0, 1, 0};
    OneFault fault;
    auto add = [&](auto &data, const char *name, host::Access access) {
      machine.registerBuffer(data.data(), data.size() * sizeof(data[0]), name, access);
    };
    machine.registerBuffer(&step, sizeof step, "step", host::Access::read);
    add(toy.gain, "gain", host::Access::read);
    add(toy.packed1, "w1", host::Access::read);
    add(toy.packed2, "w2", host::Access::read);
    add(h, "h", host::Access::read_write);
    std::vector<host::Launch> launches;
    for (int i = 0; i < kLaunches; ++i) {
      host::poison(out[i].data(), out[i].size() * sizeof(uint16_t));
      add(toy.x[i], "x", host::Access::read);
      add(out[i], "out", host::Access::read_write);
      LaunchArgs args = {};
      args.step = &step;
      args.launch_in_step = static_cast<uint32_t>(i);
      args.fault = &fault.table;
      void *buffers[] = {toy.x[i].data(),    toy.gain.data(), toy.packed1.data(),
                         toy.packed2.data(), h.data(),        out[i].data()};
      std::copy(std::begin(buffers), std::end(buffers), args.buffer);
      launches.push_back({kernel, args});
    }
    auto report = machine.run(launches);
    if (!report)
      return report.takeError();
    return out;
  }

private:
  uint32_t smem;
  std::optional<host::KernelLibrary> library;
  const host::KernelRecord *kernel = nullptr;
};

/// How many of the seeds show that the kernel is wrong: a fault, or other bits than `right`.
int noticed(const HostKernel &kernel, Toy &toy, const std::vector<Bits> &right) {
  int count = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    auto out = kernel.run(toy, seed);
    count += !out || *out != right;
    if (!out)
      llvm::consumeError(out.takeError());
  }
  return count;
}

/// Removes a step. What the slot it returned was used for stays: slot 0 of the first use.
void drop(mlir::Operation *op) {
  mlir::OpBuilder builder(op);
  if (auto result = op->getAttrOfType<mlir::StringAttr>("result")) {
    auto [type, name] = result.getValue().rsplit(' ');
    LocalOp::create(builder, op->getLoc(), builder.getStringAttr(name), builder.getStringAttr(type),
                    builder.getStringAttr("0"));
  }
  op->erase();
}

} // namespace

TEST_CASE("the emitted toy kernel equals the reference, with the same bits under every seed") {
  Kernels kernels;
  HostKernel kernel(kernels);
  Toy toy;
  std::vector<Bits> first;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    auto out = kernel.run(toy, seed);
    INFO("seed " << seed);
    if (!out)
      FAIL(llvm::toString(out.takeError()));
    if (first.empty())
      first = *out;
    REQUIRE(*out == first);
  }
  for (int launch = 0; launch < kLaunches; ++launch)
    CHECK(relativeRms(first[launch], toy.reference(launch)) < 4e-3);
}

TEST_CASE("a kernel without one of its waits fails under at least one seed") {
  Toy toy;
  Kernels whole;
  auto right = HostKernel(whole).run(toy, 1);
  REQUIRE(bool(right));
  std::vector<int> sites;
  int total = 0;
  whole.first().walk([&](mlir::Operation *op) {
    if (llvm::isa<WaitOp, PollOp>(op))
      sites.push_back(total);
    ++total;
  });
  REQUIRE(sites.size() == 7); // x_full, w_full and p_full of two stages, h_words
  for (int site : sites) {
    Kernels kernels;
    mlir::Operation *op = nullptr;
    int n = site;
    kernels.first().walk([&](mlir::Operation *other) {
      if (n-- == 0)
        op = other;
    });
    std::string what;
    llvm::raw_string_ostream(what) << *op;
    drop(op);
    INFO("without " << what);
    CHECK(noticed(HostKernel(kernels), toy, *right) > 0);
  }
}
