//===- DenseTest.cpp - Norms, projections, rope, residual -----------------===//

#include "tests/models/reference/TestSupport.h"

using namespace megalith::reference;
using megalith::models::r16;

namespace {
const Step kStep = rowsAt({0, 5, 100}, 4); // three live rows and a dead one
Context contextOf(Precision precision, unsigned threads = 2) {
  return {precision, &kStep, threads};
}
const Context kExact = contextOf(Precision::F64);
const Context kContract = contextOf(Precision::Contract);
} // namespace

TEST_CASE("store rounds as the precision says") {
  const double third = 1.0 / 3;
  CHECK(kExact.store(third, Element::Bf16) == third);
  CHECK(contextOf(Precision::F32).store(third, Element::Bf16) == double(float(third)));
  CHECK(kContract.store(third, Element::F32) == double(float(third)));
  CHECK(kContract.store(third, Element::Bf16) == double(r16(float(third))));
}

TEST_CASE("A dot product is summed in canonical chunks") {
  CHECK(canonicalChunk(2048) == 256);
  CHECK(canonicalChunk(768) == 96);
  CHECK(canonicalChunk(100) == 16);
  CHECK(canonicalChunk(8) == 16);
  for (int64_t k : {8, 100, 128, 130, 2048}) {
    const Matrix x = randomMatrix(1, k, 1), w = randomMatrix(1, k, 2);
    const std::vector<float> a(x.values.begin(), x.values.end());
    const std::vector<float> b(w.values.begin(), w.values.end());
    float total = 0;
    const int64_t chunk = canonicalChunk(k);
    for (int64_t first = 0; first < k; first += chunk) {
      float sum = 0;
      for (int64_t i = first; i < std::min(k, first + chunk); ++i)
        sum += a[size_t(i)] * b[size_t(i)];
      total = first == 0 ? sum : total + sum;
    }
    CHECK(canonicalDot(a.data(), b.data(), k) == total);
  }
}

TEST_CASE("Even and odd steps of blocks are summed apart") {
  CHECK(stripBlockSteps(1024) == 4);
  CHECK(stripBlockSteps(96) == 3);
  CHECK(stripBlockSteps(32) == 2);
  CHECK(stripBlockSteps(16) == 1);
  for (int64_t k : {8, 100, 128, 130, 768, 2048}) {
    const Matrix x = randomMatrix(1, k, 1), w = randomMatrix(1, k, 2);
    const std::vector<float> a(x.values.begin(), x.values.end());
    const std::vector<float> b(w.values.begin(), w.values.end());
    float total = 0;
    const int64_t chunk = canonicalChunk(k), block = 16 * stripBlockSteps(chunk);
    for (int64_t first = 0; first < k; first += chunk) {
      float even = 0, odd = 0;
      for (int64_t i = 0; i < std::min(k - first, chunk); ++i)
        (i % block / 16 % 2 ? odd : even) += a[size_t(first + i)] * b[size_t(first + i)];
      total = first == 0 ? even + odd : total + (even + odd);
    }
    CHECK(matrixDot(a.data(), b.data(), k, block / 16) == total);
  }
}

TEST_CASE("Norms follow their formulas") {
  const int64_t n = 48;
  const Matrix x = randomMatrix(4, n, 3), w = randomMatrix(1, n, 4), b = randomMatrix(1, n, 5);
  NormRule rule{NormRule::Kind::Rms, 1e-3, n};

  SECTION("rms, over the row and per head") {
    for (int64_t group : {n, n / 3}) {
      rule.group = group;
      const Matrix y = norm(x, rule, w.row(0).first(size_t(group)), {}, Element::Bf16, kExact);
      for (int64_t r = 0; r < 4; ++r)
        for (int64_t c = 0; c < n; ++c) {
          double sum = 0;
          for (int64_t i = c / group * group; i < c / group * group + group; ++i)
            sum += x.at(r, i) * x.at(r, i);
          CHECK(y.at(r, c) ==
                Approx(x.at(r, c) / std::sqrt(sum / double(group) + 1e-3) * w.at(0, c % group)));
        }
    }
  }
  SECTION("input scaled") {
    rule.kind = NormRule::Kind::RmsInputScaled;
    const Matrix y = norm(x, rule, w.row(0), {}, Element::Bf16, kExact);
    double sum = 0;
    for (int64_t c = 0; c < n; ++c)
      sum += std::pow(x.at(1, c) * w.at(0, c), 2);
    for (int64_t c = 0; c < n; ++c)
      CHECK(y.at(1, c) == Approx(x.at(1, c) * w.at(0, c) / std::sqrt(sum / double(n) + 1e-3)));
  }
  SECTION("layer norm with bias") {
    rule.kind = NormRule::Kind::Layer;
    const Matrix y = norm(x, rule, w.row(0), b.row(0), Element::Bf16, kExact);
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < n; ++c)
      mean += x.at(1, c) / double(n);
    for (int64_t c = 0; c < n; ++c)
      variance += std::pow(x.at(1, c) - mean, 2) / double(n);
    for (int64_t c = 0; c < n; ++c)
      CHECK(y.at(1, c) ==
            Approx((x.at(1, c) - mean) / std::sqrt(variance + 1e-3) * w.at(0, c) + b.at(0, c)));
  }
  SECTION("a zero-centred gain is rounded after one is added") {
    rule.onePlus = true;
    const Matrix y = norm(x, rule, w.row(0), {}, Element::F32, kContract);
    rule.onePlus = false;
    Matrix gain = w;
    for (double &value : gain.values)
      value = r16(1.0f + float(value));
    CHECK(y.values == norm(x, rule, gain.row(0), {}, Element::F32, kContract).values);
  }
  SECTION("contract results are bf16 numbers near the exact ones") {
    const Matrix exact = norm(x, rule, w.row(0), {}, Element::Bf16, kExact);
    const Matrix rounded = norm(x, rule, w.row(0), {}, Element::Bf16, kContract);
    for (size_t i = 0; i < exact.values.size(); ++i) {
      CHECK(rounded.values[i] == double(r16(float(rounded.values[i]))));
      CHECK(rounded.values[i] == Approx(exact.values[i]).epsilon(0x1p-8));
    }
  }
}

TEST_CASE("linear skips dead rows and applies bias, clip and multiplier in order") {
  const Matrix x = randomMatrix(4, 40, 6), b = randomMatrix(1, 7, 8);
  const MatrixTensor w(randomMatrix(7, 40, 7));
  const Matrix y = linear(x, w.view(), b.row(0), {0.5, 3}, Element::Bf16, kExact);
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t n = 0; n < 7; ++n) {
      double sum = b.at(0, n);
      for (int64_t i = 0; i < 40; ++i)
        sum += x.at(r, i) * w.matrix.at(n, i);
      CHECK(y.at(r, n) == Approx(3 * std::min(0.5, std::max(-0.5, sum))));
    }
  for (double value : y.row(3))
    CHECK(value == 0);
  // The number of threads changes nothing.
  CHECK(
      linear(x, w.view(), b.row(0), {}, Element::Bf16, contextOf(Precision::Contract, 1)).values ==
      linear(x, w.view(), b.row(0), {}, Element::Bf16, contextOf(Precision::Contract, 3)).values);
}

TEST_CASE("Weights of a bf16 format are rounded in contract precision only") {
  Matrix third(1, 1), one(4, 1);
  third.values = {float(1.0 / 3)};
  one.values = {1, 1, 1, 1};
  const MatrixTensor w(third);
  CHECK(linear(one, w.view(), {}, {}, Element::F32, kContract).at(0, 0) == r16(float(1.0 / 3)));
  CHECK(linear(one, w.view(Element::F32), {}, {}, Element::F32, kContract).at(0, 0) ==
        float(1.0 / 3));
  CHECK(linear(one, w.view(), {}, {}, Element::F32, contextOf(Precision::F32)).at(0, 0) ==
        float(1.0 / 3));
}

TEST_CASE("rope rotates the pairs of each head by position * theta^(-2j/d)") {
  const Matrix x = randomMatrix(4, 2 * 16, 9);
  RopeRule rule{RopeRule::Pairing::HalfSplit, 16, 12, 100};
  for (auto pairing : {RopeRule::Pairing::HalfSplit, RopeRule::Pairing::Adjacent}) {
    rule.pairing = pairing;
    const Matrix y = rope(x, rule, Element::Bf16, kExact);
    CHECK(std::vector<double>(y.row(0).begin(), y.row(0).end()) ==
          std::vector<double>(x.row(0).begin(), x.row(0).end())); // position 0
    for (int64_t head = 0; head < 2; ++head)
      for (int64_t j = 0; j < 6; ++j) {
        const bool half = pairing == RopeRule::Pairing::HalfSplit;
        const int64_t a = head * 16 + (half ? j : 2 * j), b = half ? a + 6 : a + 1;
        const double angle = 5 * std::pow(100, -double(j) / 6);
        CHECK(y.at(1, a) == Approx(x.at(1, a) * std::cos(angle) - x.at(1, b) * std::sin(angle)));
        CHECK(y.at(1, b) == Approx(x.at(1, a) * std::sin(angle) + x.at(1, b) * std::cos(angle)));
      }
    for (int64_t c = 12; c < 16; ++c) // beyond rotary_dims
      CHECK(y.at(2, c) == x.at(2, c));
  }
}

TEST_CASE("residual joins branches with one rounding") {
  const Matrix s = randomMatrix(4, 8, 10), a = randomMatrix(4, 8, 11), b = randomMatrix(4, 8, 12);
  const Matrix *branches[] = {&a, &b};
  ResidualRule rule;
  rule.scale = 0.25;
  CHECK(residual(s, branches, rule, {}, Element::Bf16, kExact).at(1, 2) ==
        Approx(s.at(1, 2) + 0.25 * (a.at(1, 2) + b.at(1, 2))));
  CHECK(residual(s, {branches, 1}, {}, {}, Element::Bf16, kContract).at(1, 2) ==
        r16(float(s.at(1, 2)) + float(a.at(1, 2))));

  rule = {true, 1, 2.0, 0.01};
  const Matrix gate = randomMatrix(1, 8, 13, 8);
  const double beta = 1 / (1 + std::exp(-gate.at(0, 2) / 2));
  CHECK(residual(s, {branches, 1}, rule, gate.row(0), Element::F32, kExact).at(1, 2) ==
        Approx(std::sqrt(std::max(1 - beta * beta, 0.01)) * s.at(1, 2) + beta * a.at(1, 2)));
}

TEST_CASE("the residual gate's coefficients are those of the specification's table") {
  // docs/spec/muse-spark-open.md section 3: gate, alpha, beta.
  const double table[][3] = {{-2, 0.999999, 0.001271}, {-0.5, 0.987300, 0.158869},
                             {0, 0.866025, 0.5},       {0.5, 0.540832, 0.841131},
                             {2, 0.050403, 0.998729},  {3, 0.031623, 0.999955}};
  const ResidualRule rule{true, 1, 0.3, 1e-3};
  Matrix one(1, 1), zero(1, 1);
  one.values[0] = 1;
  const Step step = rowsAt({0});
  for (Precision precision : {Precision::Contract, Precision::F32, Precision::F64}) {
    const Context context{precision, &step, 1};
    const Matrix *toZero[] = {&zero}, *toOne[] = {&one};
    for (const auto &[gate, alpha, beta] : table) {
      CHECK(residual(one, toZero, rule, {&gate, 1}, Element::F32, context).at(0, 0) ==
            Approx(alpha).margin(1e-6));
      CHECK(residual(zero, toOne, rule, {&gate, 1}, Element::F32, context).at(0, 0) ==
            Approx(beta).margin(1e-6));
    }
  }
}

TEST_CASE("roundings beside a result's own") {
  const Step step = rowsAt({0});
  const Context contract{Precision::Contract, &step, 1};
  const Matrix x = randomMatrix(1, 64, 21), gate = randomMatrix(1, 64, 22);
  const std::vector<double> gain(64, 1.01171875); // a bf16 number

  // An input-scaled norm rounds x * w to the type of x, whatever its result is.
  NormRule rule{NormRule::Kind::RmsInputScaled, 1e-8, 64};
  const Matrix rounded = norm(x, rule, gain, {}, Element::F32, contract);
  rule.scaledAs = Element::F32;
  const Matrix exact = norm(x, rule, gain, {}, Element::F32, contract);
  double square = 0;
  for (int64_t c = 0; c < 64; ++c)
    square += std::pow(r16(float(x.at(0, c) * gain[0])), 2);
  CHECK(rounded.at(0, 5) == Approx(r16(float(x.at(0, 5) * gain[0])) / std::sqrt(square / 64)));
  CHECK(relativeRms(rounded, exact) > 1e-4);

  const double sigmoid = 1 / (1 + std::exp(-gate.at(0, 3)));
  CHECK(outputGate(x, gate, {Element::Bf16}, Element::F32, contract).at(0, 3) ==
        Approx(x.at(0, 3) * r16(float(sigmoid))).epsilon(1e-7));

  Matrix value(1, 1);
  value.values[0] = 1 + 1.0 / 512;
  CHECK(cast(value, Element::Bf16, contract).at(0, 0) == 1);
  CHECK(cast(value, Element::F32, contract).at(0, 0) == value.at(0, 0));
}

TEST_CASE("a weight in the precisions of matrix units") {
  const Step step = rowsAt({0});
  Matrix one(1, 1);
  one.values[0] = 1;
  const float weight = 1 + 0x1p-11f + 0x1p-20f;
  Matrix matrix(1, 1);
  matrix.values[0] = weight;
  const MatrixTensor tensor(matrix);
  auto product = [&](WeightPrecision precision, Precision mode) {
    WeightView view = tensor.view(Element::F32);
    view.precision = precision;
    return linear(one, view, {}, {}, Element::F32, {mode, &step, 1}).at(0, 0);
  };
  CHECK(product(WeightPrecision::AsStored, Precision::Contract) == weight);
  CHECK(product(WeightPrecision::TF32, Precision::Contract) == 1 + 0x1p-10);
  CHECK(product(WeightPrecision::BF16x2, Precision::Contract) == 1 + 0x1p-11);
  // Nothing is rounded but in the contract.
  CHECK(product(WeightPrecision::TF32, Precision::F32) == weight);
}

TEST_CASE("embedding, output gate and head") {
  const std::vector<SequenceInput> inputs = {{0, {2, 0}}};
  const Step step = makeStep(inputs, 3);
  const Context context{Precision::Contract, &step, 1};
  const MatrixTensor table(randomMatrix(3, 8, 14));
  const Matrix x = embed(table.view(), 1.5, 0, Element::Bf16, context);
  CHECK(x.at(0, 1) == r16(1.5f * float(table.matrix.at(2, 1))));
  CHECK(x.at(1, 1) == r16(1.5f * float(table.matrix.at(0, 1))));
  CHECK(x.at(2, 1) == 0);

  const Matrix gate = randomMatrix(3, 2, 15);
  CHECK(outputGate(x, gate, {}, Element::F32, context).at(1, 5) ==
        Approx(x.at(1, 5) / (1 + std::exp(-gate.at(1, 1)))));

  HeadRule rule{2.0, 3.0, 2};
  const Matrix logits = head(x, table.view(), {}, rule, 0, context);
  double sum = 0;
  for (int64_t i = 0; i < 8; ++i)
    sum += x.at(1, i) * table.matrix.at(1, i);
  CHECK(logits.at(1, 1) == Approx(3 * std::tanh(2 * sum / 3)));
  CHECK(std::isinf(logits.at(1, 2)));
}

TEST_CASE("A step that contradicts itself is refused") {
  Step step = rowsAt({3, 4}, 4);
  CHECK(!step.validate());
  step.rows[3].live = true;
  CHECK(llvm::toString(step.validate()) == "step: row 3 is live but belongs to no sequence's rows");
  step = rowsAt({3, 4}, 4);
  step.rows[1].position = 9;
  CHECK_THAT(llvm::toString(step.validate()),
             Catch::Contains("expected a live row of sequence 1 at position 4, owned once; got a "
                             "live row of sequence 1 at position 9"));
  step = rowsAt({3, 4}, 4);
  step.sequences[1].firstRow = 0;
  CHECK_THAT(llvm::toString(step.validate()), Catch::Contains("step: row 0"));
  step.sequences[1].rows = 9;
  CHECK_THAT(llvm::toString(step.validate()), Catch::Contains("do not fit 4 rows"));
}
