//===- nvfp4.cpp - NVFP4 kernels on a GPU ---------------------------------===//
//
// nvfp4      needs a GPU, its driver and NVRTC; about 20 seconds
//
//   bits     every code, scale and place of the layout through the product, bit for bit against the
//            CPU: sums that are exact in any order, and single elements under every scale
//   fill     an expert that the GPU made up against the host's packing, byte for byte
//   experts  tests/codegen/nvfp4_by_hand.cu at Muse's width: two pairs against the CPU, then timed:
//            all SMs (what memory gives) and 16 SMs (what an SM can take)
//
// The last line is "nvfp4: passed" or "nvfp4: FAILED: why"; exit code 0 or 1.
//
//===----------------------------------------------------------------------===//

#include "tests/gpu/nvfp4.h"

#include "codegen/headers.h"
#include "models/weights/bf16.h"
#include "models/weights/nvfp4.h"
#include "runtime/device_fill.h"
#include "runtime/driver.h"
#include "runtime/error.h"
#include "runtime/nvrtc.h"
#include "runtime/packing_nvfp4.h"
#include "tools/weights/OpenWeights.h"

#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

using namespace megalith;
using namespace megalith::runtime;
using llvm::Error;
using llvm::Expected;

namespace {

constexpr int kHidden = 4096, kInner = 4096, kExperts = 32, kTopK = 8, kSets = kExperts / kTopK;
constexpr uint32_t kSeed = 3;
constexpr uint64_t kDeadlineNs = 2'000'000'000;

/// What launches share. A lost context ends the program, so nothing is released.
struct Machine {
  std::unique_ptr<Driver> driver;
  Nvrtc nvrtc;
  Driver::Address step = 0, fault = 0;
  FaultRecord *record = nullptr;

  Expected<Driver::Function> compile(llvm::StringRef source, llvm::StringRef kernel,
                                     std::vector<std::string> defines, int64_t smemBytes) {
    const std::string target =
        llvm::formatv("sm_{0}{1}a", driver->info().computeMajor, driver->info().computeMinor);
    auto compiled = nvrtc.compile(test::nvfp4Sources().at(source), source, deviceHeaders(), target,
                                  {.extra = std::move(defines)});
    if (!compiled)
      return compiled.takeError();
    const KernelResources &used = compiled->resources[kernel.str()];
    llvm::outs() << llvm::formatv("{0}: {1} registers, {2} bytes spilled\n", kernel, used.registers,
                                  used.spillBytes);
    auto module = driver->loadModule(compiled->cubin, source, nvrtc.version());
    if (!module)
      return module.takeError();
    return driver->function(*module, kernel, smemBytes);
  }

  template <class T> Expected<Driver::Address> upload(const std::vector<T> &values) {
    auto address = driver->allocate(int64_t(values.size() * sizeof(T)));
    if (!address)
      return address;
    if (Error error =
            driver->copyToDevice(*address, values.data(), int64_t(values.size() * sizeof(T))))
      return error;
    return address;
  }

  Error finish() {
    Error error = driver->synchronize();
    if (error && record->valid)
      return problem("a wait missed its deadline: edge {0}, SM {1}, warp {2}, expected {3}, saw "
                     "{4} ({5})",
                     record->edge, record->sm, record->warp, record->expected, record->seen,
                     llvm::toString(std::move(error)));
    return error;
  }

  LaunchArgs args() const {
    LaunchArgs args = {};
    args.step = reinterpret_cast<const StepDescriptor *>(step);
    args.fault = reinterpret_cast<FaultTable *>(fault);
    args.deadline_ns = kDeadlineNs;
    return args;
  }
};

template <class T> void setSlot(LaunchArgs &args, int slot, T address) {
  args.buffer[slot] = reinterpret_cast<void *>(address);
}

Expected<Machine> openMachine() {
  auto nvrtc = Nvrtc::load();
  if (!nvrtc)
    return nvrtc.takeError();
  auto driver = Driver::open();
  if (!driver)
    return driver.takeError();
  Machine machine{std::move(*driver), std::move(*nvrtc)};
  StepDescriptor step = {};
  step.live_rows = 8;
  step.sequences = 8;
  for (int r = 0; r < 16; ++r)
    step.row_seq[r] = r < 8 ? r : -1;
  auto address = machine.upload(std::vector<StepDescriptor>{step});
  if (!address)
    return address.takeError();
  machine.step = *address;
  auto record = machine.driver->allocatePinned(sizeof(OneFault), machine.fault);
  if (!record)
    return record.takeError();
  machine.record = &(new (*record) OneFault)->record;
  return machine;
}

//===----------------------------------------------------------------------===//
// bits
//===----------------------------------------------------------------------===//

constexpr int kRows = 8, kOutputs = 528, kInputs = 4096;

/// An NVFP4 matrix as stored, and packed.
struct Matrix {
  Nvfp4Layout layout{kOutputs, kInputs};
  std::vector<uint8_t> codes = std::vector<uint8_t>(kOutputs * kInputs / 2);
  std::vector<uint8_t> scales = std::vector<uint8_t>(kOutputs * kInputs / 16);
  Nvfp4Factors factors{{0x1.6p-9f, 0x1.Ap-11f}, 0};

  Matrix(std::mt19937 &rng, int firstScale, int count) {
    for (uint8_t &pair : codes)
      pair = uint8_t(rng());
    for (uint8_t &scale : scales)
      scale = uint8_t(firstScale + int(rng() % unsigned(count)));
  }
  std::vector<float> row(int64_t r) const { // code * scale
    std::vector<float> values(kInputs);
    models::decodeRow(models::BlockFormat::nvfp4(),
                      std::span(codes).subspan(size_t(r * kInputs / 2), kInputs / 2),
                      std::span(scales).subspan(size_t(r * kInputs / 16), kInputs / 16), values);
    return values;
  }
  std::vector<unsigned char> packed() const {
    std::vector<unsigned char> bytes(size_t(layout.bytes()));
    packNvfp4(
        layout, 0, layout.tiles,
        [&](int64_t r, std::span<uint8_t> rowCodes, std::span<uint8_t> rowScales) {
          std::copy_n(codes.begin() + r * kInputs / 2, kInputs / 2, rowCodes.begin());
          std::copy_n(scales.begin() + r * kInputs / 16, kInputs / 16, rowScales.begin());
        },
        bytes.data());
    packNvfp4Factors(layout, factors, bytes.data());
    return bytes;
  }
};

/// y of every row of x, which are sparse or small enough for every chunk's sum to be exact.
std::vector<float> product(const Matrix &w, const std::vector<float> &x) {
  std::vector<float> y(kRows * kOutputs);
  for (int n = 0; n < kOutputs; ++n) {
    const std::vector<float> row = w.row(n);
    for (int r = 0; r < kRows; ++r) {
      float total = 0;
      for (int chunk = 0; chunk < 8; ++chunk) {
        double sum = 0;
        for (int k = chunk * kInputs / 8; k < (chunk + 1) * kInputs / 8; ++k)
          sum += double(row[size_t(k)]) * double(x[size_t(r * kInputs + k)]);
        total = chunk ? total + float(sum) : float(sum);
      }
      y[size_t(r * kOutputs + n)] = total * w.factors.global[n % 2];
    }
  }
  return y;
}

struct BitsKernel {
  Machine &machine;
  Driver::Function function;
  Driver::Address x, out;

  Error load(const std::vector<float> &values) {
    std::vector<uint16_t> bits;
    for (float value : values)
      bits.push_back(models::toBf16(value));
    return machine.driver->copyToDevice(x, bits.data(), int64_t(2 * bits.size()));
  }
  Expected<std::vector<float>> run(Driver::Address w) {
    LaunchArgs args = machine.args();
    setSlot(args, 0, x);
    setSlot(args, 1, w);
    setSlot(args, 2, out);
    std::vector<float> y(kRows * kOutputs);
    if (Error error = machine.driver->fill(out, 0x7FC17FC1, int64_t(4 * y.size())))
      return error;
    if (Error error = machine.driver->launch(
            function,
            {.ctas = unsigned(machine.driver->info().sms), .threads = 352, .smemBytes = kSmem},
            &args))
      return error;
    if (Error error = machine.finish())
      return error;
    if (Error error = machine.driver->copyToHost(y.data(), out, int64_t(4 * y.size())))
      return error;
    return y;
  }
  static constexpr unsigned kSmem = 4 * 18432 + 8192 + kRows * (2 * kInputs + 32) + 128;
};

Error compareBits(const std::vector<float> &got, const std::vector<float> &want,
                  const std::string &what) {
  for (size_t i = 0; i < want.size(); ++i)
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i]) &&
        !(got[i] == 0 && want[i] == 0)) // the sign of a sum of zeros is nobody's concern
      return problem("{0}: row {1}, output {2} is {3}, expected {4}", what, i / kOutputs,
                     i % kOutputs, got[i], want[i]);
  return Error::success();
}

Error checkBits(Machine &machine) {
  auto function = machine.compile("tests/gpu/nvfp4_bits.cu", "nvfp4_bits",
                                  {"-DNVFP4_SMS=" + std::to_string(machine.driver->info().sms),
                                   "-DNVFP4_OUTPUTS=" + std::to_string(kOutputs),
                                   "-DNVFP4_INPUTS=" + std::to_string(kInputs)},
                                  BitsKernel::kSmem);
  if (!function)
    return function.takeError();
  auto x = machine.driver->allocate(2 * kRows * kInputs);
  auto out = machine.driver->allocate(4 * kRows * kOutputs);
  if (!x || !out)
    return llvm::joinErrors(x.takeError(), out.takeError());
  BitsKernel kernel{machine, *function, *x, *out};

  // Scales within 2^-2 .. 3.75 and x in halves: 512 products of a chunk need 22 bits.
  std::mt19937 rng(1);
  const Matrix narrow(rng, 0x28, 0x20);
  auto narrowAt = machine.upload(narrow.packed());
  if (!narrowAt)
    return narrowAt.takeError();
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> values(kRows * kInputs);
    for (float &value : values)
      value = float(int(rng() % 9) - 4) * 0.5f;
    if (Error error = kernel.load(values))
      return error;
    auto y = kernel.run(*narrowAt);
    if (!y)
      return y.takeError();
    if (Error error = compareBits(*y, product(narrow, values), "exact sums"))
      return error;
  }
  llvm::outs() << llvm::formatv("bits: {0} exact sums of {1} products\n",
                                kRounds * kRows * kOutputs, kInputs);

  // One element at a time, under every scale.
  const Matrix wide(rng, 1, 0x7E);
  auto wideAt = machine.upload(wide.packed());
  if (!wideAt)
    return wideAt.takeError();
  std::vector<std::vector<float>> rows;
  for (int n = 0; n < kOutputs; ++n)
    rows.push_back(wide.row(n));
  for (int first = 0; first < kInputs; first += kRows) {
    std::vector<float> values(kRows * kInputs), want(kRows * kOutputs);
    for (int r = 0; r < kRows; ++r) {
      values[size_t(r * kInputs + first + r)] = 1;
      for (int n = 0; n < kOutputs; ++n)
        want[size_t(r * kOutputs + n)] =
            rows[size_t(n)][size_t(first + r)] * wide.factors.global[n % 2];
    }
    if (Error error = kernel.load(values))
      return error;
    auto y = kernel.run(*wideAt);
    if (!y)
      return y.takeError();
    if (Error error = compareBits(*y, want, llvm::formatv("columns from {0}", first).str()))
      return error;
  }
  llvm::outs() << llvm::formatv("bits: {0} single elements under 126 scales\n", kOutputs * kInputs);
  return Error::success();
}

//===----------------------------------------------------------------------===//
// fill, experts
//===----------------------------------------------------------------------===//

/// The two banks of a layer, gates and ups in one tensor as Muse has them.
Weight gateUp() {
  Transform pairs = {.kind = TransformKind::Permute};
  for (int64_t i = 0; i < kInner; ++i)
    pairs.order.insert(pairs.order.end(), {i, kInner + i});
  return {.name = "up",
          .form = WeightForm::Nvfp4,
          .n = 2 * kInner,
          .k = kHidden,
          .experts = kExperts,
          .parts = {{.tensor = "layers.{layer}.gate_up_proj",
                     .shape = {kExperts, 2 * kInner, kHidden},
                     .transforms = {pairs}}}};
}
Weight down() {
  return {.name = "down",
          .form = WeightForm::Nvfp4,
          .n = kHidden,
          .k = kInner,
          .experts = kExperts,
          .parts = {{.tensor = "layers.{layer}.down_proj", .shape = {kExperts, kHidden, kInner}}}};
}

/// Makes a bank up on the GPU and looks at one expert of it.
Expected<Driver::Address> fillBank(Machine &machine, DeviceFill &fill, const Weight &weight,
                                   const models::HashedWeights &weights) {
  auto address = machine.driver->allocate(weightBytes(weight));
  if (!address)
    return address;
  const int64_t bytes = segmentBytes(weight);
  for (int64_t s = 0; s < kExperts; ++s) {
    auto segment =
        fillSegment(weight, 1, s, kSeed, reinterpret_cast<unsigned char *>(*address + s * bytes));
    if (!segment)
      return problem("{0}: the GPU cannot make it up", weight.name);
    if (Error error = fill.fill(*segment))
      return error;
  }
  if (Error error = machine.finish())
    return error;
  auto packer = WeightPacker::open(weight, 1, openTensors(weights));
  if (!packer)
    return packer.takeError();
  const int64_t expert = 5;
  std::vector<unsigned char> want(static_cast<size_t>(bytes)), got(want.size());
  packer->pack(expert, want.data(), std::max(1u, std::thread::hardware_concurrency()));
  if (Error error = machine.driver->copyToHost(got.data(), *address + expert * bytes, bytes))
    return error;
  const auto wrong = std::mismatch(want.begin(), want.end(), got.begin());
  if (wrong.first != want.end())
    return problem("{0}: byte {1} of expert {2} is {3}, packing gives {4}", weight.name,
                   wrong.first - want.begin(), expert, int(*wrong.second), int(*wrong.first));
  llvm::outs() << llvm::formatv("fill: {0} bytes of {1} are what packing gives\n", bytes,
                                weight.name);
  return address;
}

/// `rows` rows of W x from `first`, on all cores; each row times its factor, rounded to bf16.
std::vector<float> multiply(const models::BlockTensor &w, int64_t first, int64_t rows,
                            const std::vector<float> &x) {
  std::vector<float> y(static_cast<size_t>(rows));
  const int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> workers;
  for (int64_t t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      std::vector<float> row(x.size());
      for (int64_t n = t; n < rows; n += threads) {
        w.unscaledRow(first + n, row);
        double sum = 0;
        for (size_t k = 0; k < x.size(); ++k)
          sum += double(row[k]) * double(x[k]);
        y[size_t(n)] = models::r16(float(sum) * w.global(first + n));
      }
    });
  for (std::thread &worker : workers)
    worker.join();
  return y;
}

/// What the kernel leaves of one expert.
Expected<std::vector<float>> reference(const models::HashedWeights &weights, int expert,
                                       const std::vector<float> &x) {
  using models::BlockFormat;
  auto up = weights.openBlocks({"layers.1.gate_up_proj", {kExperts, 2 * kInner, kHidden}},
                               BlockFormat::nvfp4());
  auto down =
      weights.openBlocks({"layers.1.down_proj", {kExperts, kHidden, kInner}}, BlockFormat::nvfp4());
  if (!up || !down)
    return llvm::joinErrors(up.takeError(), down.takeError());
  const std::vector<float> gu = multiply(**up, int64_t{expert} * 2 * kInner, 2 * kInner, x);
  std::vector<float> act;
  for (size_t i = 0; i < kInner; ++i)
    act.push_back(models::r16(gu[i] / (1 + std::exp(-gu[i])) * gu[kInner + i]));
  return multiply(**down, int64_t{expert} * kHidden, kHidden, act);
}

struct Banks {
  Driver::Address up, down, x, act;
  std::vector<Driver::Address> routing; ///< kSets choices of experts
  std::vector<float> input;
};

Expected<Banks> prepareBanks(Machine &machine, const models::HashedWeights &weights) {
  const std::string target = llvm::formatv("sm_{0}{1}a", machine.driver->info().computeMajor,
                                           machine.driver->info().computeMinor);
  auto fill = DeviceFill::create(*machine.driver, machine.nvrtc, target);
  if (!fill)
    return fill.takeError();
  Banks banks = {};
  auto up = fillBank(machine, **fill, gateUp(), weights);
  if (!up)
    return up.takeError();
  auto down = fillBank(machine, **fill, ::down(), weights);
  if (!down)
    return down.takeError();
  banks.up = *up;
  banks.down = *down;
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> bits;
  for (int i = 0; i < kHidden; ++i) {
    bits.push_back(models::toBf16(normal(rng)));
    banks.input.push_back(models::fromBf16(bits.back()));
  }
  auto x = machine.upload(bits);
  auto act = machine.driver->allocate(2 * kTopK * kInner * 2);
  if (!x || !act)
    return llvm::joinErrors(x.takeError(), act.takeError());
  banks.x = *x;
  banks.act = *act;
  for (int set = 0; set < kSets; ++set) { // pair p: expert set + kSets * p
    std::vector<int32_t> table = {kTopK};
    for (int p = 0; p < kTopK; ++p)
      table.push_back(set + kSets * p);
    for (int p = 0; p <= kTopK; ++p)
      table.push_back(p);
    for (int p = 0; p < kTopK; ++p)
      table.push_back(p);
    auto address = machine.upload(table);
    if (!address)
      return address.takeError();
    banks.routing.push_back(*address);
  }
  return banks;
}

/// The experts on `sms` SMs: two pairs against `want`, then times.
Error runExperts(Machine &machine, const Banks &banks, int sms,
                 const std::vector<std::pair<int, std::vector<float>>> &want) {
  constexpr int kSlots = 8, kLaunches = 200;
  constexpr unsigned kSmem = 227 * 1024;
  auto number = [](const char *name, int value) {
    return std::string("-DNVFP4_") + name + "=" + std::to_string(value);
  };
  auto function =
      machine.compile("tests/codegen/nvfp4_by_hand.cu", "nvfp4_experts",
                      {"-DNVFP4_NAME=nvfp4_experts", number("SMS", sms), number("ROWS", 1),
                       number("HIDDEN", kHidden), number("INNER", kInner),
                       number("EXPERTS", kExperts), number("TOPK", kTopK), number("SLOTS", kSlots)},
                      kSmem);
  if (!function)
    return function.takeError();
  auto out = machine.driver->allocate(2 * kTopK * kHidden);
  auto from = machine.driver->createEvent(), to = machine.driver->createEvent();
  if (!out || !from || !to)
    return llvm::joinErrors(out.takeError(), llvm::joinErrors(from.takeError(), to.takeError()));
  if (Error error = machine.driver->fill(banks.act, 0xFFFFFFFF, 2 * kTopK * kInner * 2))
    return error;
  uint32_t launch = 0;
  auto enqueue = [&](bool programmatic) {
    LaunchArgs args = machine.args();
    args.launch_in_step = launch;
    setSlot(args, 0, banks.x);
    setSlot(args, 1, banks.up);
    setSlot(args, 2, banks.down);
    setSlot(args, 3, banks.routing[launch++ % kSets]);
    setSlot(args, 4, banks.act);
    setSlot(args, 5, *out);
    return machine.driver->launch(
        *function,
        {.ctas = unsigned(sms), .threads = 352, .smemBytes = kSmem, .programmatic = programmatic},
        &args);
  };
  if (Error error = enqueue(false)) // set 0
    return error;
  if (Error error = machine.finish())
    return error;
  std::vector<uint16_t> y(kTopK * kHidden);
  if (Error error = machine.driver->copyToHost(y.data(), *out, int64_t(2 * y.size())))
    return error;
  for (const auto &[pair, values] : want) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < kHidden; ++i) {
      const double got = models::fromBf16(y[size_t(pair) * kHidden + i]);
      error += (got - values[i]) * (got - values[i]);
      norm += double(values[i]) * values[i];
    }
    const double rms = std::sqrt(error / norm);
    if (!(rms <= 4e-3))
      return problem("experts on {0} SMs, pair {1}: relative RMS {2}, expected at most 4e-3", sms,
                     pair, rms);
    llvm::outs() << llvm::formatv("experts on {0} SMs, pair {1}: relative RMS {2:E1}\n", sms, pair,
                                  rms);
  }
  for (int i = 0; i < 20; ++i)
    if (Error error = enqueue(true))
      return error;
  if (Error error = machine.driver->recordEvent(*from))
    return error;
  for (int i = 0; i < kLaunches; ++i)
    if (Error error = enqueue(true))
      return error;
  if (Error error = machine.driver->recordEvent(*to))
    return error;
  if (Error error = machine.finish())
    return error;
  auto milliseconds = machine.driver->elapsed(*from, *to);
  if (!milliseconds)
    return milliseconds.takeError();
  const double bytes =
      double(kTopK) * (double(segmentBytes(gateUp())) + double(segmentBytes(::down())));
  const double us = double(*milliseconds) * 1000 / kLaunches;
  llvm::outs() << llvm::formatv(
      "experts on {0} SMs: {1:F1} us a launch of {2:F1} MB, {3:F2} TB/s, {4:F1} GB/s an SM\n", sms,
      us, bytes / 1e6, bytes / us / 1e6, bytes / us / 1e3 / sms);
  return Error::success();
}

Error run() {
  auto machine = openMachine();
  if (!machine)
    return machine.takeError();
  const DeviceInfo &info = machine->driver->info();
  llvm::outs() << llvm::formatv("{0}, {1} SMs, NVRTC {2}\n", info.name, info.sms,
                                machine->nvrtc.versionText());
  if (Error error = checkBits(*machine))
    return error;
  const models::HashedWeights weights(kSeed);
  auto banks = prepareBanks(*machine, weights);
  if (!banks)
    return banks.takeError();
  std::vector<std::pair<int, std::vector<float>>> want;
  for (int pair : {0, 5}) {
    auto y = reference(weights, kSets * pair, banks->input);
    if (!y)
      return y.takeError();
    want.emplace_back(pair, std::move(*y));
  }
  for (int sms : {info.sms, 128, 64, 16})
    if (Error error = runExperts(*machine, *banks, sms, want))
      return error;
  return Error::success();
}

} // namespace

int main() {
  llvm::outs().SetUnbuffered();
  if (Error error = run()) {
    llvm::outs() << "nvfp4: FAILED: " << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  llvm::outs() << "nvfp4: passed\n";
  return 0;
}
