//===- PlanTest.cpp - plan.json round trip and bad files ------------------===//

#include "tests/runtime/TinyPlan.h"

#include "runtime/plan.h"

#include "llvm/Support/FileSystem.h"

#include <catch2/catch.hpp>
#include <fstream>

using namespace megalith::runtime;
using Catch::Matchers::Contains;

namespace {

std::string failure(llvm::Expected<Plan> plan) {
  REQUIRE(!plan);
  std::string text = llvm::toString(plan.takeError());
  CHECK(text.find('\n') == std::string::npos); // one clear line
  return text;
}

/// plan.json with `from` replaced by `to`, once.
std::string edited(const std::string &from, const std::string &to) {
  std::string text = toJson(tinyPlan());
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

} // namespace

TEST_CASE("a plan survives plan.json") {
  const Plan plan = tinyPlan();
  auto again = parsePlan(toJson(plan));
  REQUIRE(bool(again));
  CHECK(*again == plan);
  CHECK(toJson(*again) == toJson(plan));
}

TEST_CASE("a plan survives a file") {
  llvm::SmallString<128> folder;
  REQUIRE(!llvm::sys::fs::createUniqueDirectory("plan", folder));
  const std::string file = folder.str().str() + "/plan.json";
  REQUIRE(!writePlan(tinyPlan(), file));
  auto again = readPlan(file);
  REQUIRE(bool(again));
  CHECK(*again == tinyPlan());

  Plan bad = tinyPlan();
  bad.sms = 0;
  const std::string other = folder.str().str() + "/bad.json";
  CHECK_THAT(llvm::toString(writePlan(bad, other)), Contains("sms is 0"));
  CHECK(!llvm::sys::fs::exists(other));
  llvm::sys::fs::remove_directories(folder);
}

TEST_CASE("files that are no plans") {
  CHECK_THAT(failure(readPlan("/nowhere/plan.json")),
             Contains("/nowhere/plan.json") && Contains("megalith compile"));
  CHECK_THAT(failure(parsePlan("")), Contains("not JSON"));
  CHECK_THAT(failure(parsePlan("[]")), Contains("expected an object"));
  CHECK_THAT(failure(parsePlan("{}")), Contains("version: missing"));
  CHECK_THAT(failure(parsePlan(std::string(1000000, '['))), Contains("nesting of at most 64"));
  const std::string text = toJson(tinyPlan());
  CHECK_THAT(failure(parsePlan(text.substr(0, text.size() / 2), "out/plan.json")),
             Contains("out/plan.json: not JSON") && Contains("complete?"));
}

TEST_CASE("fields that are missing, misspelt or of a wrong kind are named") {
  auto check = [](const std::string &from, const std::string &to, const std::string &want) {
    CHECK_THAT(failure(parsePlan(edited(from, to))), Contains(want));
  };
  const std::string version = std::to_string(kPlanVersion);
  check("\"version\": " + version, "\"version\": 1",
        "version: expected " + version + ", got 1: compile the plan again");
  check("\"sms\": 4,", "", "plan.json: sms: missing");
  check("\"sms\": 4", "\"sms\": \"4\"", "sms: expected an integer, got \"4\"");
  check("\"sms\": 4", "\"sms\": 0", "sms is 0, expected 1..4096");
  check("\"rows\": 2", "\"rows\": 17", "rows is 17");
  check("\"smem_bytes\": 4096", "\"smem\": 4096", "kernels[0].smem_bytes: missing");
  check("\"crossing\": true", "\"croßing\": true", "buffers[0].croßing: unknown field");
  check("\"role\": \"weights\"", "\"role\": \"wights\"",
        "kernels[0].slots[1].role: expected one of weights, immutable");
  check("\"kind\": \"words\"", "\"kind\": 3", "buffers[0].kind: expected one of");
  check("\"tensor\": \"model.layers.{layer}.q.weight\"", "\"tensor\": null",
        "weights[0].parts[0].tensor: expected a string, got null");
  check("strips-2x16", "strips-9x9", "weight layout 'strips-9x9");
}

TEST_CASE("contradictions are named") {
  auto check = [](auto change, const std::string &want) {
    Plan plan = tinyPlan();
    change(plan);
    CHECK_THAT(failure(parsePlan(toJson(plan))), Contains(want));
  };
  check([](Plan &p) { p.launches.clear(); }, "no launches");
  check([](Plan &p) { p.advance = "x"; }, "advance: no kernel is called 'x'");
  check([](Plan &p) { p.launches[0].kernel = "x"; }, "launch 0: no kernel is called 'x'");
  check([](Plan &p) { p.launches[1].layer = 2; }, "launch 1: layer 2, the model has 2");
  check([](Plan &p) { p.kernels[0].slots[1].layerOffset = 1; },
        "launch 1 (layer, layer 1): 'qkv' would be of layer 2, the model has 2");
  check([](Plan &p) { p.kernels[0].slots[1].layerOffset = 2; }, "layer_offset 2");
  check([](Plan &p) { p.headDim = 24; }, "head_dim is 24, expected a multiple of 16");
  check([](Plan &p) { p.weights[0].n = int64_t(1) << 62; }, "expected at most 1073741824");
  check([](Plan &p) { p.weights[0].parts[0].shape = {1 << 30, 1 << 30, 128}; }, "rows");
  check([](Plan &p) { p.buffers[0].bytes = INT64_MAX; }, "expected at most");
  check(
      [](Plan &p) {
        p.buffers[0].shape = {2, int64_t(1) << 62};
      },
      "buffer 'resid': an extent of its shape is 4611686018427387904, expected at most 128");
  check([](Plan &p) { p.buffers[0].shape = {2, -1}; }, "is -1, expected at least 1");
  check([](Plan &p) { p.weights[0].parts[0].transforms = {{.first = 1, .count = INT64_MAX}}; },
        "leaves its 16 rows");
  check([](Plan &p) { p.kernels[0].slots[1].slot = 0; }, "slot 0 is bound twice");
  check([](Plan &p) { p.kernels[0].slots[1].slot = 40; }, "expected 0..39");
  check([](Plan &p) { p.kernels[0].slots[1].name = "y"; }, "no buffer or weight is called 'y'");
  check([](Plan &p) { p.kernels[0].slots[0].role = SlotRole::Kv; }, "cannot be bound as kv");
  check([](Plan &p) { p.kernels[0].edges[1].id = 5; }, "id 5, expected 1");
  check([](Plan &p) { p.buffers[1].name = p.buffers[0].name; }, "the name is used twice");
  check([](Plan &p) { p.buffers[0].sets = 2; }, "crossing words have 2 sets, expected 3");
  check([](Plan &p) { p.buffers[0].init = BufferInit::Zero; }, "words start as 'zero'");
  check([](Plan &p) { p.buffers[0].bytes = 24; }, "multiple of 16");
  check([](Plan &p) { p.buffers[1].bytes += 16; }, "for 1 heads of 16");
  check([](Plan &p) { p.weights[0].n = 64; }, "its parts have 48 rows, expected n = 64");
  check([](Plan &p) { p.weights[0].k = 64; }, "128 columns, expected k = 64");
  check([](Plan &p) { p.weights[0].parts[0].tensor = "q"; }, "must contain '{layer}'");
  check([](Plan &p) { p.weights[1].parts.pop_back(); }, "expected gate and up");
  check([](Plan &p) { p.weights[2].theta = 0; }, "theta > 1");
  check([](Plan &p) { p.weights[0].parts[0].transforms = {{.count = 99}}; },
        "a slice of 99 from 0 leaves its 16 rows");
  auto nvfp4 = [&](std::vector<Transform> transforms, int64_t k, const std::string &want) {
    check(
        [&](Plan &p) {
          p.weights[0].form = WeightForm::Nvfp4;
          p.weights[0].k = k;
          p.weights[0].parts[0].transforms = transforms;
        },
        want);
  };
  nvfp4({}, 100, "NVFP4 rows of k = 100, expected a multiple of 16");
  nvfp4({{.kind = TransformKind::AddOne}}, 128, "add_one of NVFP4 codes");
  nvfp4({{.axis = Axis::Columns, .first = 8, .count = 64}}, 128, "slices 64 columns from 8");
  nvfp4({{.kind = TransformKind::Pad, .axis = Axis::Columns, .count = 256}}, 128,
        "pads the columns of NVFP4 codes");
  check(
      [](Plan &p) {
        p.weights[1].form = WeightForm::GateUpNvfp4;
        p.weights[1].parts.pop_back();
      },
      "gate_up_nvfp4 has 1 parts, expected gate and up");
}

TEST_CASE("NVFP4 forms are written and read") {
  Plan plan = tinyPlan();
  plan.weights[0].form = WeightForm::Nvfp4;
  plan.weights[1].form = WeightForm::GateUpNvfp4;
  auto read = parsePlan(toJson(plan));
  REQUIRE(bool(read));
  CHECK(*read == plan);
}

TEST_CASE("a plan without attention needs no heads") {
  Plan plan = tinyPlan();
  plan.kernels[0].slots.erase(plan.kernels[0].slots.begin() + 2);
  plan.buffers.erase(plan.buffers.begin() + 1);
  plan.kvHeads = plan.headDim = 0;
  CHECK(!validate(plan));
}

TEST_CASE("no damage to a file does more than an error") {
  // Every prefix, and every byte replaced: each is a plan or one line of error.
  const std::string text = toJson(tinyPlan());
  int errors = 0;
  auto look = [&](const std::string &damaged) {
    auto plan = parsePlan(damaged);
    if (plan)
      return;
    ++errors;
    const std::string message = llvm::toString(plan.takeError());
    if (message.empty() || message.find('\n') != std::string::npos)
      FAIL("not one line: " << message);
  };
  for (size_t size = 0; size < text.size(); size += 7)
    look(text.substr(0, size));
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = "9-\"}]x,"[at % 7];
    look(damaged);
  }
  CHECK(errors > int(text.size() / 2));
}
