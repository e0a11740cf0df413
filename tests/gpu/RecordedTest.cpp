//===- RecordedTest.cpp - `check compare`, of what the host platform left -===//

#include "tests/gpu/Recorded.h"
#include "tests/gpu/RealModel.h"
#include "tests/host/Bench.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::test;

namespace {

/// A small model, and what a step of its launches left, as `check record` writes it.
struct Recording {
  static constexpr int64_t kContext = 17;
  static constexpr const char *kConfig = "qwen3-moe-small.test.json";

  Bench bench{kConfig, 1, 4};
  std::vector<check::LaunchValues> values;

  Recording() {
    auto recorded = bench.session->record(steadyWorkload(1, kContext));
    REQUIRE(bool(recorded));
    values = std::move(*recorded);
    REQUIRE(values.size() > 3);
    // Where Artifact::load looks, beside the artifact's target.
    REQUIRE(!llvm::writeToOutput(bench.folder + "/config.json", [](llvm::raw_ostream &os) {
      os << readSource(std::string("models/configs/") + kConfig);
      return llvm::Error::success();
    }));
  }

  /// What `check compare` says of the launches; empty: all is within tolerance.
  std::string compare(const std::vector<int64_t> &launches) {
    const runtime::Plan plan = runtime::planOfAll(bench.subject->plan);
    REQUIRE(!check::writeValues(valuesFile(bench.folder, plan, kContext), values));
    return llvm::toString(
        compareRecorded(bench.subject->folder, bench.folder, {kContext}, launches));
  }
};

} // namespace

TEST_CASE("what launches left is compared, all of it or some launches", "[check]") {
  Recording recording;
  CHECK(recording.compare({}).empty());
  CHECK(recording.compare({0, 2}).empty());
  CHECK(recording.compare({int64_t(recording.values.size())}) ==
        llvm::formatv("launch {0}: expected one of 0 to {1}", recording.values.size(),
                      recording.values.size() - 1)
            .str());

  // What launch 1 left is wrong: so is launch 2, which starts from it, and no other.
  for (auto &value : recording.values[1].residual.values)
    value *= 1.5;
  const std::string wrong = "not within tolerance: context 17";
  CHECK(recording.compare({}) == wrong);
  CHECK(recording.compare({1}) == wrong);
  CHECK(recording.compare({2}) == wrong);
  CHECK(recording.compare({0, 3}).empty());

  recording.values.pop_back();
  CHECK(recording.compare({0}).find("the plan has") != std::string::npos);
}
