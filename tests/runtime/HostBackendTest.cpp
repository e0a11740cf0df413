//===- HostBackendTest.cpp - A plan through the executor on the CPU -------===//
//
// A kernel small enough to check by hand, run as the real ones are: source compiled by g++, weights
// packed on demand, crossing words between launches, results read back.
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/ChainPlan.h"

#include "codegen/headers.h"
#include "runtime/execute.h"
#include "runtime/host_backend.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

using namespace megalith;
using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

/// Folder with the kernel, the device headers and a cache, gone at the end.
struct Folder {
  llvm::SmallString<128> path;
  Folder() {
    REQUIRE(!llvm::sys::fs::createUniqueDirectory("host", path));
    REQUIRE(!writeDeviceHeaders((path + "/include").str()));
    std::ofstream(path.str().str() + "/chain.cu") << kChainSource;
  }
  ~Folder() { llvm::sys::fs::remove_directories(path); }
  HostBackendOptions options(uint64_t seed = 1) const {
    return {.compile = {.includeFolder = (path + "/include").str(),
                        .cacheFolder = (path + "/cache").str()},
            .seed = seed};
  }
};

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
    auto executor =
        Executor::create(chainPlan(), folder.path, backend, chainNumbers(&rowsRead), {});
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
  auto executor = Executor::create(chainPlan(), folder.path, backend, chainNumbers(&rowsRead),
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
  auto executor = Executor::create(chainPlan(), folder.path, backend, chainNumbers(&rowsRead),
                                   {.firstLaunch = 1, .launchBase = 6});
  REQUIRE(bool(executor));
  REQUIRE(!(*executor)->setStep(std::vector<StepSequence>{{.tokens = {0}, .pages = {0}}}));
  const std::string problem = text((*executor)->runLaunches(1, 1));
  CHECK_THAT(problem, Contains("launch 7 (kernel chain, layer 1)") &&
                          Contains("edge 1 'sums' (all -> all): expected 1, saw 0"));
  // And in the machine's list of everything that waits:
  CHECK_THAT(problem, Contains("poll of 'sum' + 4 (edge 1 'sums', expected 1, saw 0)"));
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
  REQUIRE(bool(compileForHost(kChainSource, "chain.cu", options)));
  CHECK(objects() == 1);
  REQUIRE(bool(compileForHost(kChainSource, "chain.cu", options)));
  CHECK(objects() == 1);
  REQUIRE(bool(compileForHost(std::string(kChainSource) + "// changed\n", "chain.cu", options)));
  CHECK(objects() == 2);
  std::ofstream(options.includeFolder + "/runtime/abi.h", std::ios::app) << "// changed\n";
  REQUIRE(bool(compileForHost(kChainSource, "chain.cu", options)));
  CHECK(objects() == 3);
}

TEST_CASE("a damaged object is compiled again") {
  Folder folder;
  const HostCompileOptions options = folder.options().compile;
  REQUIRE(bool(compileForHost(kChainSource, "chain.cu", options)));
  std::error_code error;
  const std::string object =
      llvm::sys::fs::directory_iterator(options.cacheFolder + "/host", error)->path() +
      "/kernel.so";
  uint64_t whole = 0, after = 0;
  REQUIRE(!llvm::sys::fs::file_size(object, whole));
  for (uint64_t left : {uint64_t(0), uint64_t(100), whole / 2}) {
    CAPTURE(left);
    std::filesystem::resize_file(object, left);
    CHECK(bool(compileForHost(kChainSource, "chain.cu", options)));
    REQUIRE(!llvm::sys::fs::file_size(object, after));
    CHECK(after == whole);
  }
}

TEST_CASE("what does not compile or is not there says so") {
  Folder folder;
  const HostCompileOptions options = folder.options().compile;
  auto bad = compileForHost("int f() { return undefined_name; }\n", "kernels/bad.cu", options);
  REQUIRE(!bad);
  CHECK_THAT(text(bad.takeError()), Contains("bad.cu:1") && Contains("undefined_name"));
  auto library = compileForHost(kChainSource, "chain.cu", options);
  REQUIRE(bool(library));
  auto other = hostKernel(*library, "other");
  REQUIRE(!other);
  CHECK_THAT(text(other.takeError()), Contains("no kernel 'other'"));
  HostCompileOptions nowhere = options;
  nowhere.includeFolder = "/nowhere";
  auto missing = compileForHost(kChainSource, "chain.cu", nowhere);
  REQUIRE(!missing);
  CHECK_THAT(text(missing.takeError()), Contains("include folder '/nowhere'"));
  int rowsRead = 0;
  HostBackend backend(folder.options());
  auto executor = Executor::create(chainPlan(), "/nowhere", backend, chainNumbers(&rowsRead), {});
  REQUIRE(!executor);
  CHECK_THAT(text(executor.takeError()),
             Contains("/nowhere/chain.cu") && Contains("compile the plan again"));
}
