//===- HostBackendTest.cpp - A plan through the executor on the CPU -------===//
//
// A kernel small enough to check by hand, run as the real ones are: source compiled by g++, weights
// packed on demand, crossing words between launches, results read back.
//
//===----------------------------------------------------------------------===//

#include "codegen/headers.h"
#include "runtime/execute.h"
#include "runtime/host_backend.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

using namespace megalith;
using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

// Launch n adds, on SM s, word s of layer `layer`'s expert `row_token[0]` to word s of what launch
// n-1 left (0 before the first), and publishes the sum as a crossing word and as output.
constexpr const char *kSource = R"(
#include "codegen/device/platform.cuh"
namespace megalith {
MEGALITH_KERNEL(chain) {
  using namespace platform;
  if (warp() != 0 || lane() != 0)
    return;
  const uint64_t n = ld_global<uint64_t>(&args.step->launch_base) + args.launch_in_step;
  const int expert = ld_global<int32_t>(&args.step->row_token[0]);
  const uint32_t *weights = static_cast<const uint32_t *>(args.buffer[1]) + expert * 128;
  uint32_t *words = static_cast<uint32_t *>(args.buffer[0]);
  uint32_t before = 0;
  if (n > 0) {
    const uint32_t *from = words + (n - 1) % 3 * 4 + sm();
    const uint64_t since = now_ns();
    while ((before = ld_relaxed<Scope::gpu>(from)) == 0xFFFFFFFFu) {
      if (now_ns() - since > args.deadline_ns)
        fail(args.fault, 1, 1, 0, n);
      poll_pause(from);
    }
  }
  launch_wait();
  if (n > 1)
    st_relaxed<Scope::gpu>(words + (n - 2) % 3 * 4 + sm(), 0xFFFFFFFFu);
  const uint32_t sum = before + ld_const<uint32_t>(weights + sm());
  st_relaxed<Scope::gpu>(words + n % 3 * 4 + sm(), sum);
  st_global<uint32_t>(static_cast<uint32_t *>(args.buffer[2]) + sm(), sum);
  launch_dependents();
}
} // namespace megalith
)";

/// Folder with the kernel, the device headers and a cache, gone at the end.
struct Folder {
  llvm::SmallString<128> path;
  Folder() {
    REQUIRE(!llvm::sys::fs::createUniqueDirectory("host", path));
    REQUIRE(!writeDeviceHeaders((path + "/include").str()));
    std::ofstream(path.str().str() + "/chain.cu") << kSource;
  }
  ~Folder() { llvm::sys::fs::remove_directories(path); }
  HostBackendOptions options(uint64_t seed = 1) const {
    return {.compile = {.includeFolder = (path + "/include").str(),
                        .cacheFolder = (path + "/cache").str()},
            .seed = seed};
  }
};

Plan chainPlan() {
  Plan plan{.model = "chain",
            .target = "sm_90a",
            .sms = 4,
            .rows = 1,
            .tp = 1,
            .layers = 2,
            .kvHeads = 1,
            .headDim = 16,
            .vocab = 3,
            .weightLayout = kWeightLayoutDigest};
  plan.buffers = {
      {.name = "sum", .bytes = 16, .sets = 3, .crossing = true, .element = Element::U32},
      {.name = "out",
       .kind = BufferKind::Output,
       .bytes = 16,
       .perLayer = true,
       .init = BufferInit::Poison,
       .element = Element::U32}};
  plan.weights = {{.name = "bank",
                   .form = WeightForm::Table,
                   .n = 2,
                   .k = 128,
                   .experts = 3,
                   .parts = {{.tensor = "{layer}.{expert}", .shape = {2, 128}}}}};
  plan.kernels = {{.name = "chain",
                   .file = "chain.cu",
                   .slots = {{0, "sum", SlotRole::Exchange},
                             {1, "bank", SlotRole::Weights},
                             {2, "out", SlotRole::Output}},
                   .edges = {{0, "unused", "", ""}, {1, "sums", "all", "all"}}}};
  plan.launches = {{"chain", 0}, {"chain", 1}};
  return plan;
}

/// Word i of row 0 of expert e of layer l is 100 * l + 10 * e + i + 1.
OpenTensor numbers(int &rowsRead) {
  return [&rowsRead](const std::string &name, const std::vector<int64_t> &,
                     bool) -> llvm::Expected<TensorRow> {
    const int base = 100 * (name[0] - '0') + 10 * (name[2] - '0');
    return TensorRow([base, &rowsRead](int64_t, std::span<uint16_t> out) {
      ++rowsRead;
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = i % 2 ? 0 : uint16_t(base + i / 2 + 1); // the low half of a word
    });
  };
}

std::vector<uint32_t> words(llvm::Expected<std::vector<unsigned char>> bytes) {
  REQUIRE(bool(bytes));
  std::vector<uint32_t> result(bytes->size() / 4);
  std::memcpy(result.data(), bytes->data(), bytes->size());
  return result;
}

std::string text(llvm::Error error) {
  return llvm::toString(std::move(error));
}

} // namespace

TEST_CASE("a plan runs on the host platform, step after step and under many seeds") {
  Folder folder;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    int rowsRead = 0;
    HostBackend backend(folder.options(seed));
    auto executor = Executor::create(chainPlan(), folder.path, backend, numbers(rowsRead), {});
    if (!executor)
      FAIL(text(executor.takeError()));
    CHECK(rowsRead == 0); // nothing is packed before it is read
    const std::vector<StepSequence> step = {{.tokens = {2}, .pages = {0}}};
    uint32_t sum[4] = {};
    for (int times = 0; times < 3; ++times) {
      REQUIRE(!(*executor)->setStep(step));
      const std::string problem = text((*executor)->runStep());
      REQUIRE(problem == "");
      for (int layer = 0; layer < 2; ++layer) {
        const auto out = words((*executor)->readBuffer("out", layer));
        for (uint32_t s = 0; s < 4; ++s)
          CHECK(out[s] == (sum[s] += 100 * layer + 20 + s + 1));
      }
    }
    CHECK(rowsRead == 2 * 2); // one expert of three in each layer, two rows each
    CHECK((*executor)->launchBase() == 6);
  }
}

TEST_CASE("one launch alone reads what the host left for it") {
  Folder folder;
  int rowsRead = 0;
  HostBackend backend(folder.options());
  auto executor = Executor::create(chainPlan(), folder.path, backend, numbers(rowsRead),
                                   {.firstLaunch = 1, .launchBase = 6});
  REQUIRE(bool(executor));
  REQUIRE(!(*executor)->setStep(std::vector<StepSequence>{{.tokens = {0}, .pages = {0}}}));
  const uint32_t before[4] = {1000, 2000, 3000, 4000};
  REQUIRE((*executor)->launchNumber(1) == 7);
  REQUIRE(!(*executor)->writeBuffer(
      "sum", {reinterpret_cast<const unsigned char *>(before), sizeof before}, 0, 6 % 3));
  REQUIRE(!(*executor)->runLaunches(1, 1));
  CHECK(words((*executor)->readBuffer("out", 1)) == std::vector<uint32_t>{1101, 2102, 3103, 4104});
  CHECK(words((*executor)->readBuffer("sum", 0, 7 % 3)) ==
        std::vector<uint32_t>{1101, 2102, 3103, 4104});
}

TEST_CASE("words that never come end in an error that names the wait, and a new run works") {
  Folder folder;
  int rowsRead = 0;
  HostBackend backend(folder.options());
  auto executor = Executor::create(chainPlan(), folder.path, backend, numbers(rowsRead),
                                   {.firstLaunch = 1, .launchBase = 6});
  REQUIRE(bool(executor));
  REQUIRE(!(*executor)->setStep(std::vector<StepSequence>{{.tokens = {0}, .pages = {0}}}));
  const std::string problem = text((*executor)->runLaunches(1, 1));
  CHECK_THAT(problem, Contains("'sum'") || Contains("edge 1 'sums'"));
  const uint32_t before[4] = {};
  REQUIRE(!(*executor)->writeBuffer(
      "sum", {reinterpret_cast<const unsigned char *>(before), sizeof before}, 0, 6 % 3));
  CHECK(text((*executor)->runLaunches(1, 1)) == "");
}

TEST_CASE("compiled kernels are found again, and changed ones are not") {
  Folder folder;
  HostCompileOptions options = folder.options().compile;
  auto objects = [&] {
    int count = 0;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(options.cacheFolder + "/host", error), end;
         it != end && !error; it.increment(error))
      ++count;
    return count;
  };
  REQUIRE(bool(compileForHost(kSource, "chain.cu", options)));
  CHECK(objects() == 1);
  REQUIRE(bool(compileForHost(kSource, "chain.cu", options)));
  CHECK(objects() == 1);
  REQUIRE(bool(compileForHost(std::string(kSource) + "// changed\n", "chain.cu", options)));
  CHECK(objects() == 2);
  std::ofstream(options.includeFolder + "/runtime/abi.h", std::ios::app) << "// changed\n";
  REQUIRE(bool(compileForHost(kSource, "chain.cu", options)));
  CHECK(objects() == 3);
}

TEST_CASE("what does not compile or is not there says so") {
  Folder folder;
  const HostCompileOptions options = folder.options().compile;
  auto bad = compileForHost("int f() { return undefined_name; }\n", "kernels/bad.cu", options);
  REQUIRE(!bad);
  CHECK_THAT(text(bad.takeError()), Contains("bad.cu:1") && Contains("undefined_name"));
  auto library = compileForHost(kSource, "chain.cu", options);
  REQUIRE(bool(library));
  auto other = hostKernel(*library, "other");
  REQUIRE(!other);
  CHECK_THAT(text(other.takeError()), Contains("no kernel 'other'"));
  HostCompileOptions nowhere = options;
  nowhere.includeFolder = "/nowhere";
  auto missing = compileForHost(kSource, "chain.cu", nowhere);
  REQUIRE(!missing);
  CHECK_THAT(text(missing.takeError()), Contains("include folder '/nowhere'"));
  int rowsRead = 0;
  HostBackend backend(folder.options());
  auto executor = Executor::create(chainPlan(), "/nowhere", backend, numbers(rowsRead), {});
  REQUIRE(!executor);
  CHECK_THAT(text(executor.takeError()),
             Contains("/nowhere/chain.cu") && Contains("compile the plan again"));
}
