//===- CostTableTest.cpp - Reading and writing cost tables ----------------===//

#include "passes/costs/CostTable.h"

#include "llvm/Support/Error.h"

#include <catch2/catch.hpp>

using namespace megalith::costs;
using Catch::Matchers::Contains;

namespace {

CostTable small() {
  CostTable table;
  table.target = "sm_90a";
  table.device = "NVIDIA H200";
  table.sms = 132;
  table.driverCuda = 13000;
  table.nvrtc = "13.0";
  table.costs = {{"hop.4k.us", "us", Measured{1.25, 1.225, 1.256, 7}, "all to all"},
                 {"nvlink.one_way", "ns", std::nullopt, "one GPU"}};
  return table;
}

const std::string kText = toJson(small());

/// kText with one occurrence replaced.
std::string with(const std::string &from, const std::string &to) {
  std::string text = kText;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string errorOf(const std::string &text) {
  auto table = parseCostTable(text, "t.json");
  if (table)
    return "no error";
  return llvm::toString(table.takeError());
}

template <class T> std::string errorOf(llvm::Expected<T> value) {
  return value ? "no error" : llvm::toString(value.takeError());
}

} // namespace

TEST_CASE("a table comes back as it was written", "[costs]") {
  auto table = parseCostTable(kText, "t.json");
  if (!table)
    FAIL(llvm::toString(table.takeError()));
  CHECK(table->target == "sm_90a");
  CHECK(table->device == "NVIDIA H200");
  CHECK(table->sms == 132);
  CHECK(table->driverCuda == 13000);
  CHECK(table->nvrtc == "13.0");
  REQUIRE(table->costs.size() == 2);
  const Cost &hop = table->costs[0];
  CHECK(hop.name == "hop.4k.us");
  CHECK(hop.unit == "us");
  REQUIRE(hop.measured);
  CHECK(hop.measured->value == 1.25);
  CHECK(hop.measured->p10 == 1.225);
  CHECK(hop.measured->p90 == 1.256);
  CHECK(hop.measured->runs == 7);
  CHECK(hop.note == "all to all");
  CHECK_FALSE(table->costs[1].measured);
  CHECK(table->costs[1].note == "one GPU");
  CHECK(toJson(*table) == kText);
}

TEST_CASE("values by name; what is missing says so", "[costs]") {
  const CostTable table = small();
  auto value = table.value("hop.4k.us");
  REQUIRE(bool(value));
  CHECK(*value == 1.25);
  CHECK(table.find("hop.4k.us") == &table.costs[0]);
  CHECK(table.find("hop.4k") == nullptr);
  CHECK(errorOf(table.value("hop.4k")) ==
        "cost table of sm_90a: expected a cost 'hop.4k' but there is none; make a new table with "
        "megalith calibrate --target sm_90a");
  CHECK(errorOf(table.value("nvlink.one_way")) ==
        "cost table of sm_90a: 'nvlink.one_way' was not measured: one GPU");
}

TEST_CASE("the text for people has every cost", "[costs]") {
  const std::string text = toText(small());
  CHECK_THAT(text, Contains("sm_90a on NVIDIA H200 (132 SMs), driver for CUDA 13.0, NVRTC 13.0"));
  CHECK_THAT(text, Contains("hop.4k.us             1.25 us     [1.225 .. 1.256]"));
  CHECK_THAT(text, Contains("nvlink.one_way           - ns     one GPU"));
}

TEST_CASE("a damaged table is refused, with the place", "[costs]") {
  const std::pair<std::string, std::string> cases[] = {
      {"{", "t.json: expected a cost table in JSON: "},
      {"[]", "t.json: expected an object but got an array"},
      {R"({"version": 6, "model": "x"})",
       "t.json: expected a cost table, with \"device\" and \"costs\", but got another object; "},
      {R"({"format": "megalith-trace", "version": 1})",
       "but got another object, of format 'megalith-trace'; megalith calibrate makes one"},
      {with("\"version\": 1", "\"version\": 2"),
       "t.json: version: expected 1 but got 2; make a new table with megalith calibrate"},
      {with("\"version\": 1", "\"version\": \"1\""),
       "t.json: version: expected a whole number but got a string"},
      {with("\"version\": 1,", ""), "t.json: version: expected a whole number but got nothing"},
      {with("\"target\": \"sm_90a\",", ""),
       "t.json: target: expected a string that is not empty but got nothing"},
      {with("\"target\"", "\"made\": 1, \"target\""), "t.json: expected no field 'made'"},
      {with("\"device\": {", "\"device\": 1, \"costs\": {"), "t.json: "},
      {with("\"sms\": 132", "\"sms\": 0"), "t.json: device: sms: expected at least 1 but got 0"},
      {with("\"nvrtc\": \"13.0\"", "\"nvrtc\": null"),
       "t.json: device: nvrtc: expected a string that is not empty but got null"},
      {with("\"hop.4k.us\"", "\"hop..us\""),
       "t.json: cost 0: name: expected words of a-z, 0-9 and _ joined by dots but got 'hop..us'"},
      {with("\"hop.4k.us\"", "\"Hop\""), "but got 'Hop'"},
      {with("\"hop.4k.us\"", "\"nvlink.one_way\""),
       "t.json: cost 1: expected every name once but 'nvlink.one_way' comes again"},
      {with("\"unit\":\"us\"", "\"unit\":\"s\""),
       "t.json: cost 0 (hop.4k.us): unit: expected one of us, ns, "},
      {with("\"value\":1.25,", ""),
       "t.json: cost 0 (hop.4k.us): value: expected a number or null but got nothing"},
      {with("\"value\":1.25", "\"value\":\"1.25\""),
       "t.json: cost 0 (hop.4k.us): value: expected a number but got a string"},
      {with("\"value\":1.25", "\"value\":-1.25"),
       "value: expected a number from 0 on but got -1.25"},
      {with("\"value\":1.25", "\"value\":1.5"),
       "t.json: cost 0 (hop.4k.us): expected p10 <= value <= p90 but got 1.225"},
      {with("\"p10\":1.225,", ""), "p10: expected a number but got nothing"},
      {with("\"runs\":7", "\"runs\":0"), "runs: expected at least 1 but got 0"},
      {with("\"how\":\"all to all\"", "\"how\":\"\""),
       "how: expected a string that is not empty but got a string"},
      {with("\"how\"", "\"why\""), "t.json: cost 0 (hop.4k.us): expected no field 'why'"},
      {with("\"reason\":\"one GPU\"", "\"how\":\"one GPU\""),
       "t.json: cost 1 (nvlink.one_way): expected no field 'how'"},
  };
  for (const auto &[text, message] : cases) {
    INFO(text);
    CHECK_THAT(errorOf(text), Contains(message));
  }
  CHECK_THAT(errorOf(readCostTable("/none/t.json")), Contains("/none/t.json: "));
}

TEST_CASE("the tables of this repository can be read and have what passes ask for", "[costs]") {
  auto table = readCostTable("passes/costs/h200.json");
  if (!table)
    FAIL(llvm::toString(table.takeError()));
  CHECK(table->target == "sm_90a");
  for (const char *name :
       {"hbm.read.sms128.piece16k.window3", "l2.read.window4", "restart.experts.burst1.first",
        "hop.4k.one.window0", "hop.4k.one.window2.stream", "route.pieces1", "merge.32x11",
        "mbarrier.signal_to_wait", "drain.gemv.16k", "norm.2048", "topk.128",
        "boundary.programmatic.pieces1", "clock.loaded"}) {
    auto value = table->value(name);
    INFO(name);
    if (!value)
      FAIL(llvm::toString(value.takeError()));
    CHECK(*value > 0);
  }
}
