//===- FaultsTest.cpp - Faults on the host platform -----------------------===//

#include "tests/faults/Faults.h"
#include "runtime/host_backend.h"
#include "tests/host/Bench.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::test;
using Catch::Matchers::Contains;

namespace {

void write(const std::string &file, llvm::StringRef text) {
  REQUIRE(!llvm::sys::fs::create_directories(llvm::sys::path::parent_path(file)));
  std::error_code error;
  llvm::raw_fd_ostream(file, error) << text;
  REQUIRE(!error);
}

check::Workload workload() {
  return {.sequences = {{.start = 33, .rows = 1, .content = 0},
                        {.start = 17, .rows = 1, .content = 1}}};
}

/// The good plan, with one kernel replaced.
struct Faulty {
  explicit Faulty(Bench &bench) : bench(bench) {
    llvm::SmallString<128> temporary;
    REQUIRE(!llvm::sys::fs::createUniqueDirectory("megalith-faults", temporary));
    folder = temporary.str().str();
  }
  ~Faulty() { llvm::sys::fs::remove_directories(folder); }

  /// What running it says; "" if nothing is wrong.
  std::string run(const Fault &fault, uint64_t seed) {
    for (const runtime::Kernel &kernel : bench.subject->plan.kernels) {
      const std::string source = readSource(bench.subject->folder + "/" + kernel.file);
      write(folder + "/" + kernel.file, source);
      if (kernel.name != "layer")
        continue;
      auto planted = plant(fault, source);
      if (!planted)
        FAIL(llvm::toString(planted.takeError()));
      write(folder + "/" + kernel.file, planted->source);
      for (const auto &[name, text] : planted->headers)
        write(folder + "/include/" + name, text);
    }
    runtime::HostBackend backend({.compile = {.includeFolder = folder + "/include"}, .seed = seed});
    auto session = check::Session::create(
        *bench.subject->graph, bench.subject->plan, folder, backend,
        {.layer = 1, .deadlineNs = 100'000'000, .ranks = {.together = fault.tp > 1}});
    if (!session)
      FAIL(llvm::toString(session.takeError()));
    auto outcome = (*session)->run(workload());
    return outcome ? "" : llvm::toString(outcome.takeError());
  }

  Bench &bench;
  std::string folder;
};

} // namespace

TEST_CASE("each planted fault ends in a message that names where it is stuck") {
  Bench one("qwen3-moe-small.test.json", 2, 8);
  Bench two("qwen3-moe-small.test.json", 2, 4, {.ranks = {.together = true}},
            runtime::LaunchMode::Fused, /*tp=*/2);
  for (const Fault &fault : faults()) {
    if (!fault.onHost)
      continue;
    Faulty faulty(fault.tp == 1 ? one : two);
    const std::string said = faulty.run(fault, 3);
    INFO(fault.name << ": " << fault.what << "\n" << said.substr(0, 4000));
    // First the wait that is the cause, by name; then everything that waits.
    CHECK_THAT(said, Contains("waited longer than 100 ms for edge ") && Contains("(kernel ") &&
                         Contains("deadlock: no thread can run"));
    CHECK(namedEdge(said) == fault.edge);
  }
}
