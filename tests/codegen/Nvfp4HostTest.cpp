// The routed experts with NVFP4 weights on the host platform, under several schedules, bit for bit
// against a reference that adds in the order of the layout.
#include "runtime/host/machine.h"
#include "runtime/packing_nvfp4.h"
#include "tests/codegen/HostHarness.h"
#include "tests/codegen/Nvfp4Widths.h"

#include "models/weights/nvfp4.h"

#include "llvm/Support/Error.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

extern "C" {
extern const megalith::host::KernelRecord megalith_kernel_nvfp4_rows1;
extern const megalith::host::KernelRecord megalith_kernel_nvfp4_rows4;
extern const megalith::host::KernelRecord megalith_kernel_nvfp4_rows8;
extern const megalith::host::KernelRecord megalith_kernel_nvfp4_bits;
}

using namespace megalith;
using namespace megalith::test;

namespace {

constexpr int kExperts = 6, kTopK = 2, kLaunches = 3;

struct Shape {
  const host::KernelRecord &kernel;
  int sms, rows, hidden, inner;
};

/// An NVFP4 matrix as a checkpoint has it, and the factors of the two rows of each strip.
struct Quantised {
  runtime::Nvfp4Layout layout;
  std::vector<uint8_t> codes, scales;
  runtime::Nvfp4Factors factors;

  Quantised(std::mt19937 &rng, int rows, int columns, float global0, float global1)
      : layout(rows, columns), codes(static_cast<size_t>(rows) * columns / 2),
        scales(static_cast<size_t>(rows) * columns / 16), factors{{global0, global1}, 0} {
    for (uint8_t &pair : codes)
      pair = static_cast<uint8_t>(rng());
    for (uint8_t &scale : scales) // all of them, zero and the largest too, most near one
      scale = static_cast<uint8_t>(rng() % 8 ? 0x30 + rng() % 16 : rng() % 0x7F);
  }

  void pack(std::vector<unsigned char> &bank) const {
    const size_t at = bank.size();
    bank.resize(at + static_cast<size_t>(layout.bytes()));
    const int64_t refused = runtime::packNvfp4(
        layout, 0, layout.tiles,
        [&](int64_t row, std::span<uint8_t> rowCodes, std::span<uint8_t> rowScales) {
          std::copy_n(codes.begin() + row * layout.k / 2, layout.k / 2, rowCodes.begin());
          std::copy_n(scales.begin() + row * layout.k / 16, layout.k / 16, rowScales.begin());
        },
        bank.data() + at);
    REQUIRE(refused == -1);
    runtime::packNvfp4Factors(layout, factors, bank.data() + at);
  }

  /// W x, summed as the contract says: fp32, a chunk in the layout's order, chunks ascending, then
  /// the factor.
  std::vector<float> times(const std::vector<float> &x) const {
    std::vector<float> y, row(static_cast<size_t>(layout.k));
    const int64_t width = 16 * layout.chunk16;
    for (int64_t r = 0; r < layout.n; ++r) {
      models::decodeRow(models::BlockFormat::nvfp4(),
                        std::span(codes).subspan(r * layout.k / 2, layout.k / 2),
                        std::span(scales).subspan(r * layout.k / 16, layout.k / 16), row);
      float total = 0;
      for (int64_t chunk = 0; chunk < 8; ++chunk) {
        float even = 0, odd = 0; // steps of a block
        for (int64_t i = 0; i < width; ++i) {
          const int64_t column = chunk * width + layout.columnAt(i);
          if (column < layout.k)
            (i / 16 % layout.kb % 2 ? odd : even) += row[column] * x[column];
        }
        total = chunk ? total + (even + odd) : even + odd;
      }
      y.push_back(total * factors.global[r % 2]);
    }
    return y;
  }
};

struct Weights {
  std::vector<Quantised> gateUp, down; // rows 2i, 2i + 1 of gateUp: gate i, up i

  Weights(std::mt19937 &rng, const Shape &shape) {
    for (int e = 0; e < kExperts; ++e) {
      const float factor = 1 + static_cast<float>(e) / 8;
      gateUp.emplace_back(rng, 2 * shape.inner, shape.hidden, 0x1.2p-7f * factor,
                          0x1.9p-7f / factor);
      const float down_factor = 0x1.3p-6f * factor;
      down.emplace_back(rng, shape.hidden, shape.inner, down_factor, down_factor);
    }
  }
};

float silu(float x) {
  return x / (1.0f + ::exp2f(-1.44269504f * x));
}

/// y of one pair.
std::vector<uint16_t> reference(const Weights &w, int expert, const std::vector<float> &x) {
  const std::vector<float> gu = w.gateUp[expert].times(x);
  std::vector<float> a;
  for (size_t i = 0; i < gu.size(); i += 2)
    a.push_back(round16(silu(round16(gu[i])) * round16(gu[i + 1])));
  std::vector<uint16_t> y;
  for (float value : w.down[expert].times(a))
    y.push_back(toBf16(value));
  return y;
}

/// The Routing struct of nvfp4_by_hand.cu as words.
std::vector<int32_t> routingTable(const std::vector<int> &experts) {
  const int pairs = static_cast<int>(experts.size()), most = std::min(kExperts, pairs);
  std::vector<int32_t> table(static_cast<size_t>(1 + most + most + 1 + pairs));
  int32_t *expert = &table[1], *first = expert + most, *pair = first + most + 1;
  int32_t active = 0, count = 0;
  for (int e = 0; e < kExperts; ++e) {
    const int32_t begin = count;
    for (int p = 0; p < pairs; ++p)
      if (experts[p] == e)
        pair[count++] = p;
    if (count > begin) {
      expert[active] = e;
      first[active++] = begin;
      first[active] = count;
    }
  }
  table[0] = active;
  return table;
}

/// y [launch][pair][hidden] of launches with their own rows and routing.
llvm::Expected<std::vector<std::vector<uint16_t>>> run(const Shape &shape, const Weights &w,
                                                       const std::vector<Matrix> &x,
                                                       const std::vector<std::vector<int>> &experts,
                                                       uint64_t seed) {
  host::Options options;
  options.sms = shape.sms;
  options.seed = seed;
  host::Machine machine(options);
  std::vector<unsigned char> up, down;
  for (int e = 0; e < kExperts; ++e) {
    w.gateUp[e].pack(up);
    w.down[e].pack(down);
  }
  const size_t pairs = static_cast<size_t>(kTopK) * shape.rows;
  std::vector<uint32_t> act(2 * pairs * shape.inner / 2, runtime::kEmptyWord);
  StepDescriptor step = {};
  step.live_rows = shape.rows;
  step.launch_base = 41;
  for (int r = 0; r < shape.rows; ++r)
    step.row_seq[r] = step.sequences++;
  OneFault fault;
  LaunchArgs args = {};
  args.step = &step;
  args.fault = &fault.table;
  const auto bind = [&](int slot, auto &v, const char *name, host::Access access) {
    machine.registerBuffer(const_cast<void *>(static_cast<const void *>(v.data())),
                           v.size() * sizeof(v[0]), name, access);
    args.buffer[slot] = const_cast<void *>(static_cast<const void *>(v.data()));
  };
  machine.registerBuffer(&step, sizeof step, "step", host::Access::read);
  bind(1, up, "up", host::Access::read);
  bind(2, down, "down", host::Access::read);
  bind(4, act, "act", host::Access::read_write);
  std::vector<std::vector<int32_t>> routing;
  std::vector<std::vector<uint16_t>> y;
  for (const auto &choice : experts) {
    routing.push_back(routingTable(choice));
    y.emplace_back(pairs * shape.hidden);
    host::poison(y.back().data(), 2 * y.back().size());
  }
  std::vector<host::Launch> launches;
  for (size_t l = 0; l < x.size(); ++l) {
    bind(0, x[l].bits, "x", host::Access::read);
    bind(3, routing[l], "routing", host::Access::read);
    bind(5, y[l], "y", host::Access::read_write);
    args.launch_in_step = static_cast<uint32_t>(l);
    launches.push_back({&shape.kernel, args});
  }
  auto report = machine.run(launches);
  if (!report)
    return report.takeError();
  return y;
}

void check(const Shape &shape, uint64_t seeds) {
  std::mt19937 rng(shape.hidden);
  const Weights w(rng, shape);
  std::vector<Matrix> x;
  std::vector<std::vector<int>> experts;
  for (int l = 0; l < kLaunches; ++l) {
    x.push_back(Matrix::random(rng, shape.rows, shape.hidden, 1));
    std::vector<int> &choice = experts.emplace_back();
    for (int r = 0; r < shape.rows; ++r) {
      int order[kExperts];
      std::iota(order, order + kExperts, 0);
      std::shuffle(order, order + kExperts, rng);
      choice.insert(choice.end(), order, order + kTopK);
    }
  }
  std::vector<std::vector<uint16_t>> want(kLaunches);
  for (int l = 0; l < kLaunches; ++l)
    for (int p = 0; p < kTopK * shape.rows; ++p) {
      const auto y = reference(w, experts[l][p], x[l].floats(p / kTopK));
      REQUIRE(std::ranges::all_of(y, [](uint16_t v) { return std::isfinite(fromBf16(v)); }));
      want[l].insert(want[l].end(), y.begin(), y.end());
    }
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    auto got = run(shape, w, x, experts, seed);
    if (!got)
      FAIL(llvm::toString(got.takeError()));
    for (int l = 0; l < kLaunches; ++l) {
      size_t different = 0;
      for (size_t i = 0; i < want[l].size(); ++i)
        different += (*got)[l][i] != want[l][i];
      INFO("launch " << l << " of " << want[l].size() << " numbers");
      CHECK(different == 0);
    }
  }
}

} // namespace

TEST_CASE("device code and packing agree about the layout of every width") {
  const auto widths = nvfp4Widths();
  CHECK(widths.size() == 75);
  for (const Nvfp4Width &width : widths) {
    INFO("width " << width.inputs);
    const runtime::Nvfp4Layout layout(40, width.inputs);
    CHECK(width.group == layout.group);
    CHECK(width.blockSteps == layout.kb);
    CHECK(width.bytes == layout.bytes());
  }
}

TEST_CASE("one row: groups of four steps and of one") {
  check({megalith_kernel_nvfp4_rows1, 3, 1, 512, 128}, 4);
}

TEST_CASE("four rows: two blocks of sixteen steps, a padded down projection, idle SMs") {
  check({megalith_kernel_nvfp4_rows4, 7, 4, 4096, 48}, 2);
}

TEST_CASE("eight rows: five steps of one, groups of two, a padded width") {
  check({megalith_kernel_nvfp4_rows8, 5, 8, 528, 256}, 2);
}

TEST_CASE("the kernel of the GPU's check: unrounded sums") {
  constexpr int kRows = 8, kOutputs = 40, kInputs = 1024;
  std::mt19937 rng(9);
  const Quantised w(rng, kOutputs, kInputs, 0x1.6p-9f, 0x1.Ap-11f);
  Matrix x = Matrix::random(rng, kRows, kInputs, 1);
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    host::Machine machine({.sms = 3, .seed = seed});
    std::vector<unsigned char> packed;
    w.pack(packed);
    std::vector<float> y(kRows * kOutputs);
    host::poison(y.data(), 4 * y.size());
    StepDescriptor step = {};
    step.live_rows = kRows;
    OneFault fault;
    LaunchArgs args = {};
    args.step = &step;
    args.fault = &fault.table;
    args.buffer[0] = x.bits.data();
    args.buffer[1] = packed.data();
    args.buffer[2] = y.data();
    machine.registerBuffer(&step, sizeof step, "step", host::Access::read);
    machine.registerBuffer(x.bits.data(), 2 * x.bits.size(), "x", host::Access::read);
    machine.registerBuffer(packed.data(), packed.size(), "w", host::Access::read);
    machine.registerBuffer(y.data(), 4 * y.size(), "y", host::Access::read_write);
    auto report = machine.run({{&megalith_kernel_nvfp4_bits, args}});
    if (!report)
      FAIL(llvm::toString(report.takeError()));
    for (int r = 0; r < kRows; ++r)
      CHECK(std::vector<float>(y.begin() + r * kOutputs, y.begin() + (r + 1) * kOutputs) ==
            w.times(x.floats(r)));
  }
}
