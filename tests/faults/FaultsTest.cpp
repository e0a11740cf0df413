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

  /// What running it says; "" if nothing is wrong. The fault is planted into the kernel of that
  /// name.
  std::string run(const Fault &fault, uint64_t seed, const check::Workload &rows,
                  llvm::StringRef planted = "layer") {
    for (const runtime::Kernel &kernel : bench.subject->plan.kernels) {
      const std::string source = readSource(bench.subject->folder + "/" + kernel.file);
      write(folder + "/" + kernel.file, source);
      if (kernel.name != planted)
        continue;
      auto edited = plant(fault, source);
      if (!edited)
        FAIL(llvm::toString(edited.takeError()));
      write(folder + "/" + kernel.file, edited->source);
      for (const auto &[name, text] : edited->headers)
        write(folder + "/include/" + name, text);
    }
    runtime::HostBackend backend({.compile = {.includeFolder = folder + "/include"}, .seed = seed});
    auto session = check::Session::create(
        *bench.subject->graph, bench.subject->plan, folder, backend,
        {.layer = 1, .deadlineNs = 100'000'000, .ranks = {.together = fault.tp > 1}});
    if (!session)
      FAIL(llvm::toString(session.takeError()));
    auto outcome = (*session)->run(rows);
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
    const std::string said = faulty.run(fault, 3, workload());
    INFO(fault.name << ": " << fault.what << "\n" << said.substr(0, 4000));
    // First the wait that is the cause, by name; then everything that waits.
    CHECK_THAT(said, Contains("waited longer than 100 ms for edge ") && Contains("(kernel ") &&
                         Contains("deadlock: no thread can run"));
    CHECK(namedEdge(said) == fault.edge);
  }
}

TEST_CASE("a poll of two exchanges names the one whose words are missing, and their place") {
  Bench bench("muse-spark-tiny.test.json", 1, 4);
  // Of each pair's eight sums of squares SM 3 makes the last two.
  const Fault fault = {"absent-squares",
                       "SM 3 publishes no sums of squares of experts' outputs",
                       "squares_words",
                       {{"codegen/device/forward.cuh", "  place.store(float_word(squares))",
                         "  if (cta.sm != 3)\n    place.store(float_word(squares))"},
                        {"codegen/device/expert_norm.cuh", "if (g < 2 && pair < count)\n",
                         "if (g < 2 && pair < count && cta.sm != 3)\n"}}};
  Faulty faulty(bench);
  const std::string said =
      faulty.run(fault, 3, {.sequences = {{.start = 33, .rows = 1, .content = 0}}}, "last");
  INFO(said.substr(0, 4000));
  CHECK(namedEdge(said) == fault.edge);
  CHECK_THAT(llvm::StringRef(said).split('\n').first.str(), Contains("expected 4, saw 4"));
}
