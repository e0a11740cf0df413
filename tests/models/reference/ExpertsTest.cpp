//===- ExpertsTest.cpp - Routing and the experts --------------------------===//

#include "models/reference/experts.h"
#include "tests/models/reference/TestSupport.h"

#include <algorithm>

using namespace megalith::reference;

namespace {
const Step kStep = rowsAt({0, 1}, 3); // rows 0 and 1 live
const Context kExact{Precision::F64, &kStep, 2};

Matrix logitsOf(std::vector<double> row) {
  Matrix logits(3, int64_t(row.size()));
  std::ranges::copy(row, logits.row(0).begin());
  std::ranges::copy(row, logits.row(1).begin());
  return logits;
}

ExpertIds idsOfRow0(const Routing &routing, int64_t k) {
  return {routing.ids.begin(), routing.ids.begin() + k};
}
} // namespace

TEST_CASE("top-k selects in descending order, ties to the lower index") {
  const Matrix logits = logitsOf({1, 3, 2, 3, 0, 2});
  TopKRule rule{TopKRule::Score::SoftmaxAll, 4};
  const Routing routing = topK(logits, rule, {}, nullptr, kExact);
  CHECK(idsOfRow0(routing, 4) == ExpertIds{1, 3, 2, 5});
  CHECK(ExpertIds(routing.ids.end() - 4, routing.ids.end()) == ExpertIds{-1, -1, -1, -1});
  CHECK(routing.weights.at(2, 0) == 0); // dead
  rule.tiesToHigher = true;
  CHECK(idsOfRow0(topK(logits, rule, {}, nullptr, kExact), 4) == ExpertIds{3, 1, 5, 2});
  rule.skipBest = true;
  CHECK(idsOfRow0(topK(logits, rule, {}, nullptr, kExact), 4) == ExpertIds{1, 5, 2, 0});
}

TEST_CASE("Scores and weights") {
  const Matrix logits = logitsOf({0, std::log(2), std::log(5)});
  TopKRule rule{TopKRule::Score::SoftmaxAll, 2};
  auto weights = [&] {
    const Routing routing = topK(logits, rule, {}, nullptr, kExact);
    return std::pair(routing.weights.at(1, 0), routing.weights.at(1, 1));
  };
  SECTION("softmax over all") {
    CHECK(weights().first == Approx(5.0 / 8));
    CHECK(weights().second == Approx(2.0 / 8));
  }
  SECTION("renormalised and scaled") {
    rule.renormalize = true;
    rule.scale = 3;
    CHECK(weights().first == Approx(15.0 / 7));
    CHECK(weights().second == Approx(6.0 / 7));
  }
  SECTION("softmax over the selected is the same as renormalised") {
    rule.score = TopKRule::Score::SoftmaxSelected;
    CHECK(weights().first == Approx(5.0 / 7));
    CHECK(weights().second == Approx(2.0 / 7));
  }
  SECTION("sigmoid with a selection bias: selection by score + bias, weight without") {
    rule.score = TopKRule::Score::Sigmoid;
    const std::vector<double> bias = {1, 0, 0};
    const Routing routing = topK(logits, rule, bias, nullptr, kExact);
    CHECK(idsOfRow0(routing, 2) == ExpertIds{0, 2});
    CHECK(routing.selection.at(0, 0) == Approx(1.5));
    CHECK(routing.weights.at(0, 0) == Approx(0.5));
    CHECK(routing.weights.at(0, 1) == Approx(5.0 / 6));
  }
  SECTION("replayed ids take their weights from these logits, in the given order") {
    rule.renormalize = true;
    const ExpertIds replay = {0, 1, 1, 2, -1, -1};
    const Routing routing = topK(logits, rule, {}, &replay, kExact);
    CHECK(routing.ids == replay);
    CHECK(routing.weights.at(0, 0) == Approx(1.0 / 3));
    CHECK(routing.weights.at(1, 1) == Approx(5.0 / 7));
  }
}

TEST_CASE("Each pair goes through its own expert") {
  const MatrixTensor w(randomMatrix(4 * 5, 8, 31)); // four experts of [5, 8] in one tensor
  const Matrix b = randomMatrix(4, 5, 32), x = randomMatrix(3, 8, 33), xp = randomMatrix(6, 8, 34);
  const ExpertIds ids = {2, 0, 2, 3, -1, -1};
  auto weightOf = [&](int32_t e) { return WeightView{&w, e * 5, 5, 8}; };
  auto biasOf = [&](int32_t e) { return std::vector<double>(b.row(e).begin(), b.row(e).end()); };
  for (bool perPair : {false, true}) {
    const Matrix &from = perPair ? xp : x;
    const Matrix y = expertLinear(from, ids, 2, 5, weightOf, biasOf, Element::Bf16, kExact);
    REQUIRE(y.rows == 6);
    for (int64_t p = 0; p < 4; ++p)
      for (int64_t n = 0; n < 5; ++n) {
        double sum = b.at(ids[size_t(p)], n);
        for (int64_t i = 0; i < 8; ++i)
          sum += from.at(perPair ? p : p / 2, i) * w.matrix.at(ids[size_t(p)] * 5 + n, i);
        CHECK(y.at(p, n) == Approx(sum));
      }
    CHECK(y.at(4, 0) == 0);
  }
}

TEST_CASE("Gated linear units") {
  Matrix gate(1, 1), up(1, 1);
  gate.values = {9.0};
  up.values = {-8.0};
  auto value = [&](const GluRule &rule) {
    return glu(gate, up, rule, Element::Bf16, kExact).at(0, 0);
  };
  CHECK(value({}) == Approx(-8 * 9 / (1 + std::exp(-9.0))));
  CHECK(value({GluRule::Activation::ScaledSilu, 7.0, 1.702, 1.0}) ==
        Approx(7 / (1 + std::exp(-1.702 * 7)) * (-7.0 + 1)));
  gate.values = {0.7};
  CHECK(value({GluRule::Activation::GeluTanh}) ==
        Approx(-8 * 0.35 *
               (1 + std::tanh(std::sqrt(2 / M_PI) * (0.7 + 0.044715 * 0.7 * 0.7 * 0.7)))));
}

TEST_CASE("combine adds in slot order with one rounding") {
  Matrix weights(3, 3), y(9, 1);
  // In fp32, (2^24 + 1) + 1 differs from 2^24 + (1 + 1).
  weights.values = {1, 1, 1, 0.5, 0.25, 2, 0, 0, 0};
  y.values = {0x1p24, 1, 1, 4, 8, 3, 0, 0, 0};
  const Context context{Precision::F32, &kStep, 1};
  const Matrix sum = combine(weights, y, {}, Element::F32, context);
  CHECK(sum.at(0, 0) == 0x1p24);
  CHECK(sum.at(1, 0) == 10);
  CHECK(combine(weights, y, {.ignoreWeights = true}, Element::F32, context).at(1, 0) == Approx(5));
}

TEST_CASE("combine can round every product and sum") {
  Matrix weights(1, 2), y(2, 1);
  weights.values = {1, 1};
  y.values = {1, 0x1p-9};
  const Context context{Precision::Contract, &kStep, 1};
  y.values[0] = 1 + 0x1p-8; // the sum lies half way between two bf16 numbers
  CHECK(combine(weights, y, {}, Element::Bf16, context).at(0, 0) == 1 + 0x1p-7);
  CHECK(combine(weights, y, {.roundEach = true}, Element::Bf16, context).at(0, 0) == 1);
}
