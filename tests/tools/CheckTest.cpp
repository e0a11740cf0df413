//===- CheckTest.cpp - What tools/check makes of differences --------------===//

#include "models/reference/compare.h"
#include "tools/check/Difference.h"
#include "tools/check/MirroredWeights.h"
#include "tools/check/Report.h"
#include "tools/check/Workload.h"

#include <catch2/catch.hpp>

#include <limits>

using namespace megalith::check;
using megalith::reference::kLayerTolerance;
using megalith::reference::Matrix;
using megalith::reference::Step;

namespace {

/// Two sequences, of one row and of two, around a dead row.
Workload workload() {
  return {.seed = 4,
          .steps = 2,
          .sequences = {{.start = 63}, {.start = 5, .rows = 2, .content = 1, .firstRow = 2}}};
}

Step step(int64_t index = 0) {
  return stepOf(sequencesOf(workload(), index, 100), 4);
}

Matrix ones() {
  Matrix matrix(4, 8);
  for (double &value : matrix.values)
    value = 1;
  return matrix;
}

LaunchReport launch(int64_t index, double residual) {
  return {.step = index, .launch = 1, .kernel = "layer", .layer = 0, .residual = residual};
}

} // namespace

TEST_CASE("a workload's steps follow each other") {
  const auto first = sequencesOf(workload(), 0, 100), second = sequencesOf(workload(), 1, 100);
  CHECK(first[0].start == 63);
  CHECK(second[0].start == 64);
  CHECK(second[1].start == 7);
  CHECK(first[1].tokens.size() == 2);
  CHECK(first[0].pages == second[0].pages);
  // 65 positions in all take two pages, 9 take one; no page is used twice.
  CHECK(workload().totalPages() == 3);
  CHECK(first[0].pages == std::vector<int32_t>{2, 0});
  CHECK(first[1].pages == std::vector<int32_t>{1});
  CHECK(workload().str() == "2 step(s) of [63+1 #0, 5+2 #1 at row 2]");
}

TEST_CASE("the evaluator's step has the same rows, dead ones included") {
  const Step made = step(1);
  CHECK_FALSE(bool(made.validate()));
  CHECK(made.rows[0].live);
  CHECK_FALSE(made.rows[1].live);
  CHECK(made.rows[3].sequence == 1);
  CHECK(made.rows[3].position == 8);
}

TEST_CASE("the same content gives the same tokens") {
  Workload twice = workload();
  twice.sequences[1] = {.start = 63, .content = 0};
  const auto made = sequencesOf(twice, 0, 100);
  CHECK(made[0].tokens == made[1].tokens);
}

TEST_CASE("the first difference is found") {
  Matrix actual = ones();
  CHECK(locate(actual, ones(), step(), kLayerTolerance).empty());
  actual.at(1, 0) = 5; // a dead row
  CHECK(locate(actual, ones(), step(), kLayerTolerance).empty());
  actual.at(2, 3) = 1.5;
  actual.at(2, 5) = std::numeric_limits<double>::quiet_NaN();
  actual.at(3, 0) = 9;
  CHECK(locate(actual, ones(), step(), kLayerTolerance) ==
        "row 2, channels 3..5 (2 of 8 wrong): first 1.50, expected 1.00");
}

TEST_CASE("rounding is not a difference") {
  Matrix actual = ones();
  for (double &value : actual.values)
    value += 0.004;
  CHECK(locate(actual, ones(), step(), kLayerTolerance).empty());
}

TEST_CASE("a dead row must be zero") {
  Matrix actual = ones();
  CHECK(locateInDeadRows(actual, step()) == "row 1, channel 0: 1.00 in a dead row");
  for (double &value : actual.row(1))
    value = 0;
  CHECK(locateInDeadRows(actual, step()).empty());
}

TEST_CASE("a report passes by its root mean square over steps, with one step at most twice that") {
  const double t = kLayerTolerance;
  CHECK_FALSE(Report{}.passes());
  CHECK(Report{{launch(0, t), launch(1, t)}}.passes());
  CHECK(Report{{launch(0, 1.4 * t), launch(1, 0)}}.passes());
  CHECK_FALSE(Report{{launch(0, 1.5 * t), launch(1, 0)}}.passes());
  CHECK(Report{{launch(0, 1.5 * t), launch(1, 0)}}.table().find("FAILS") != std::string::npos);
  CHECK(Report{{launch(0, 1.4 * t), launch(1, 0)}}.table().find("FAILS") == std::string::npos);
  CHECK_FALSE(Report{{launch(0, 2.1 * t), launch(1, 0), launch(2, 0), launch(3, 0), launch(4, 0)}}
                  .passes());
  CHECK_FALSE(Report{{launch(0, std::numeric_limits<double>::infinity())}}.passes());
  CHECK_FALSE(Report{{launch(0, std::numeric_limits<double>::quiet_NaN())}}.passes());
}

TEST_CASE("other experts than top-k of the own logits, or a located difference, never pass") {
  LaunchReport wrong = launch(0, 0);
  wrong.wrongRows = 1;
  CHECK_FALSE(Report{{wrong}}.passes());
  LaunchReport located = launch(3, 0);
  located.difference = "residual: row 1, channel 0: 1.00 in a dead row";
  const Report report{{launch(0, 0), located}};
  CHECK_FALSE(report.passes());
  CHECK(report.largest().difference == "step 3, launch 1 (layer, layer 0): " + located.difference);
  CHECK(report.table().find("FAILS residual: row 1") != std::string::npos);
}

namespace {

/// Element (row, column) of every tensor is 100 row + column.
class Numbered final : public megalith::models::WeightSource {
  class Tensor final : public megalith::models::WeightTensor {
    void row(int64_t index, std::span<float> out) const override {
      for (size_t c = 0; c < out.size(); ++c)
        out[c] = float(100 * index) + float(c);
    }
  };

public:
  llvm::Expected<std::unique_ptr<megalith::models::WeightTensor>>
  open(const megalith::models::TensorSpec &) const override {
    return std::make_unique<Tensor>();
  }
};

} // namespace

TEST_CASE("mirrored weights repeat rank 0's share of what ranks divide") {
  using namespace megalith::runtime;
  const auto shard = [](int64_t count, int64_t matrices = 0, Axis axis = Axis::Rows) {
    return Transform{.kind = TransformKind::Shard,
                     .axis = axis,
                     .count = count,
                     .groups = 1,
                     .matrices = matrices};
  };
  // Two experts with 4 gate and 4 up rows each; two ranks.
  const auto half = [&](int64_t first) {
    return WeightPart{.tensor = "l.{layer}.gate_up",
                      .shape = {2, 8, 3},
                      .transforms = {{.first = first, .count = 4, .groups = 2}, shard(2, 2)}};
  };
  const Plan plan = {
      .tp = 2,
      .weights = {{.name = "up", .parts = {half(0), half(4)}},
                  {.name = "o",
                   .parts = {{.tensor = "l.{layer}.o", .shape = {6, 3}, .transforms = {shard(3)}}}},
                  {.name = "router", .parts = {{.tensor = "l.{layer}.router", .shape = {6, 3}}}},
                  {.name = "gain",
                   .parts = {{.tensor = "l.{layer}.gain",
                              .shape = {4},
                              .transforms = {{.kind = TransformKind::AddOne},
                                             shard(2, 0, Axis::Columns)}}}}}};
  const Numbered numbered;
  const MirroredWeights mirrored(numbered, plan);
  const auto rows = [&](const std::string &name, std::vector<int64_t> shape) {
    auto tensor = mirrored.open({name, shape});
    REQUIRE(bool(tensor));
    std::vector<int64_t> found;
    const megalith::models::TensorSpec spec{name, shape};
    for (int64_t r = 0; r < spec.rows(); ++r) {
      std::vector<float> values(size_t(spec.columns()));
      (*tensor)->row(r, values);
      found.push_back(int64_t(values[0]) / 100);
    }
    return found;
  };
  CHECK(rows("l.12.gate_up", {2, 8, 3}) ==
        std::vector<int64_t>{0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13});
  CHECK(rows("l.0.o", {6, 3}) == std::vector<int64_t>{0, 1, 2, 0, 1, 2});
  // Neither divided, nor named like what is.
  CHECK(rows("l.0.router", {6, 3}) == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(rows("l.x.o", {6, 3}) == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(rows("l.0.o.more", {6, 3}) == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
  auto gain = mirrored.open({"l.7.gain", {4}});
  REQUIRE(bool(gain));
  std::vector<float> values(4);
  (*gain)->row(0, std::span<float>(values));
  CHECK(values == std::vector<float>{0, 1, 0, 1});
}
