//===- Nvfp4ExpertsTest.cpp - NVFP4 experts from the graph on -------------===//
//
// Small models whose experts are NVFP4, through all passes, the proof and the emitted source: on
// the host platform equal to the reference, launch by launch, and the same bits under every
// schedule.
//
//===----------------------------------------------------------------------===//

#include "models/reference/context.h"
#include "runtime/packing_nvfp4.h"
#include "tests/host/Bench.h"
#include "tests/host/Cells.h"

#include <catch2/catch.hpp>

using namespace megalith;
using namespace megalith::test;
using runtime::WeightForm;

namespace {

constexpr const char *kQwen = "qwen3-moe-small.test.json", *kMuse = "muse-spark-mini.test.json";

/// Products are formed with numbers of few bits and added in the same order as the reference's, so
/// that of experts nothing differs. What does is a rounding that an exponential's last bit moves,
/// and with quantised activations the code that such a rounding moves.
void checkLaunches(const check::Report &report, bool activations = false) {
  int64_t exact = 0;
  for (const check::LaunchReport &launch : report.launches) {
    INFO("launch " << launch.launch);
    CHECK(launch.passes());
    CHECK(launch.whole.has_value() == (launch.head.has_value() && !activations));
    exact += *launch.residual < 1e-6;
  }
  CHECK(exact >= 2); // one is the embedding's
}

const models::Quantization kExperts = {.experts = true},
                           kActivations = {.experts = true, .activations = true};

void compare(const char *config, int64_t rows, const check::Workload &workload,
             const models::Quantization &quantization = kExperts,
             runtime::LaunchMode launch = runtime::LaunchMode::Fused, int64_t sms = 4) {
  const bool open = llvm::StringRef(config) == kMuse || quantization.activations;
  Bench bench(config, rows, sms, {.maxPages = kMaxPages, .poolPages = kPoolPages, .open = open},
              launch, /*tp=*/1, quantization);
  const runtime::Plan &plan = bench.subject->plan;
  REQUIRE(plan.weight("w_up_nvfp4")->form == WeightForm::GateUpNvfp4);
  REQUIRE(plan.weight("w_down_nvfp4")->form == WeightForm::Nvfp4);
  INFO(config << ", rows " << rows << ": " << workload.str());
  check::Outcome first;
  const check::Report report = bench.compare(workload, 1, &first);
  INFO(report.table());
  checkLaunches(report, quantization.activations);
  CHECK(bench.run(workload, 3) == first);
}

check::Workload oneStep(std::vector<check::Sequence> sequences) {
  return {.seed = 1, .steps = 1, .sequences = std::move(sequences)};
}

} // namespace

TEST_CASE("the reference adds in the order of the layout") {
  for (int64_t k : {128, 256, 512, 640, 768, 1408, 2176, 2432, 4096, 17920}) {
    const runtime::Nvfp4Layout layout(16, k);
    const int64_t chunk = reference::canonicalChunk(k);
    REQUIRE(chunk == 16 * layout.chunk16);
    REQUIRE(reference::scaledBlockSteps(chunk) == layout.kb);
    for (int64_t i = 0; i < chunk; ++i)
      REQUIRE(reference::blockColumnAt(i, chunk) == layout.columnAt(i));
  }
}

// As a published checkpoint has it: attention too.
TEST_CASE("Qwen3, attention and experts, rows 1") {
  compare(kQwen, 1, cells(1).front().workload,
          {.text = R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16,
                       "exclude_modules": ["lm_head", "*.mlp.gate"]}})",
           .source = "hf_quant_config.json"});
}

TEST_CASE("Qwen3, rows 4, a launch a stage") {
  compare(kQwen, 4, cells(4).front().workload, kExperts, runtime::LaunchMode::PerStage);
}

// 16 tiles of gates and ups of an expert are dealt out over 7 SMs.
TEST_CASE("Qwen3, quantised activations, tiles dealt out, rows 2") {
  compare(kQwen, 2, oneStep({{.start = 129}, {.start = 17, .content = 1}}), kActivations,
          runtime::LaunchMode::Fused, /*sms=*/7);
}

// Experts in a width of their own, their outputs normed.
TEST_CASE("Muse Spark, rows 8") {
  compare(kMuse, 8, oneStep({{.start = 250, .rows = 4}, {.start = 5, .rows = 2, .content = 1}}));
}

TEST_CASE("Muse Spark, quantised activations, rows 2") {
  compare(kMuse, 2, oneStep({{.start = 255}, {.start = 17, .content = 1}}), kActivations);
}

TEST_CASE("Muse Spark: the first and last layers are bf16, and so are their kernels") {
  Bench bench(kMuse, 1, 4, {.maxPages = kMaxPages, .poolPages = kPoolPages},
              runtime::LaunchMode::Fused, /*tp=*/1, kExperts);
  const runtime::Plan &plan = bench.subject->plan;
  std::vector<std::string> launches;
  for (const runtime::Launch &launch : plan.launches)
    launches.push_back(launch.kernel);
  CHECK(launches == std::vector<std::string>{"embed", "sliding", "full_nvfp4", "sliding_nvfp4",
                                             "sliding_nvfp4", "sliding_nvfp4", "last"});
  auto binds = [&](const char *kernel, const std::string &weight) {
    return llvm::any_of(plan.kernel(kernel)->slots,
                        [&](const runtime::SlotBinding &slot) { return slot.name == weight; });
  };
  for (const std::string weight : {"w_up", "w_down"}) {
    CHECK((binds("sliding", weight) && !binds("sliding", weight + "_nvfp4")));
    CHECK((binds("sliding_nvfp4", weight + "_nvfp4") && !binds("sliding_nvfp4", weight)));
    CHECK((binds("last", weight) && !binds("last", weight + "_nvfp4")));
  }
  const check::Report report = bench.compare(oneStep({{.start = 255}}), 1);
  INFO(report.table());
  checkLaunches(report);
}
