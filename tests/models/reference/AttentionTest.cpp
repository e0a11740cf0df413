//===- AttentionTest.cpp - Grouped-query attention over the cache ---------===//

#include "models/reference/attention.h"
#include "tests/models/reference/TestSupport.h"

using namespace megalith::reference;

namespace {

constexpr int64_t kHeads = 6, kKvHeads = 2, kDim = 16;

/// The textbook formula: one softmax over the keys first .. last.
double expected(const Matrix &q, int64_t r, const KvStore &cache, int64_t sequence, int64_t head,
                int64_t d, int64_t first, int64_t last, double scale, double sink = -INFINITY) {
  const int64_t kvHead = head / (kHeads / kKvHeads);
  double numerator = 0, denominator = std::exp(sink);
  for (int64_t j = first; j <= last; ++j) {
    double dot = 0;
    for (int64_t i = 0; i < kDim; ++i)
      dot += q.at(r, head * kDim + i) * cache.key(sequence, j, kvHead)[size_t(i)];
    numerator += std::exp(scale * dot) * cache.value(sequence, j, kvHead)[size_t(d)];
    denominator += std::exp(scale * dot);
  }
  return numerator / denominator;
}

} // namespace

TEST_CASE("With a bound on scores nothing is relative to the largest") {
  const Step step = rowsAt({700});
  KvStore cache(kKvHeads, kDim);
  cache.fillHashed(1, 0, 0, 701);
  const Matrix q = randomMatrix(1, kHeads * kDim, 23, 4);
  AttentionRule rule{kHeads, 0.25};
  auto difference = [&](Precision precision) {
    const Context context{precision, &step, 1};
    rule.bounded = false;
    const Matrix usual = attention(q, cache, rule, {}, Element::F32, context);
    rule.bounded = true;
    return relativeRms(attention(q, cache, rule, {}, Element::F32, context), usual);
  };
  CHECK(difference(Precision::F64) < 1e-12);
  // As bf16 numbers the probabilities round elsewhere.
  const double rounded = difference(Precision::Contract);
  CHECK(rounded > 1e-5);
  CHECK(rounded < 4e-3);
}

TEST_CASE("Attention equals one softmax over the visible keys") {
  // Sequence 0 has two rows at 40, 41; sequence 1 one row at position 0; sequence 2 at 700 (two
  // blocks of 16 a piece); one dead row.
  const std::vector<SequenceInput> inputs = {{40, {0, 0}}, {0, {0}}, {700, {0}}};
  const Step step = makeStep(inputs, 5);
  const Context context{Precision::F64, &step, 2};
  KvStore cache(kKvHeads, kDim);
  cache.fillHashed(1, 0, 0, 40);
  cache.fillHashed(1, 0, 2, 700);
  const Matrix k = randomMatrix(5, kKvHeads * kDim, 21), v = randomMatrix(5, kKvHeads * kDim, 22);
  appendKv(cache, k, v, Element::Bf16, {}, context);
  CHECK(cache.positions(0) == 42);
  CHECK(cache.positions(1) == 1);
  CHECK(cache.positions(2) == 701);
  CHECK(cache.key(0, 41, 1)[3] == k.at(1, kDim + 3));
  CHECK(cache.value(2, 700, 0)[3] == v.at(3, 3));

  const Matrix q = randomMatrix(5, kHeads * kDim, 23, 4);
  AttentionRule rule{kHeads, 0.25};
  const int64_t last[] = {40, 41, 0, 700};
  const int64_t sequence[] = {0, 0, 1, 2};

  auto check = [&](auto &&firstKey, std::span<const double> sinks) {
    const Matrix out = attention(q, cache, rule, sinks, Element::Bf16, context);
    for (int64_t r = 0; r < 4; ++r)
      for (int64_t head = 0; head < kHeads; ++head)
        CHECK(out.at(r, head * kDim + 5) ==
              Approx(expected(q, r, cache, sequence[r], head, 5, firstKey(last[r]), last[r], 0.25,
                              sinks.empty() ? -INFINITY : sinks[size_t(head)])));
    for (double value : out.row(4))
      CHECK(value == 0);
  };
  SECTION("full") {
    check([](int64_t) { return 0; }, {});
  }
  SECTION("window, own key included") {
    rule.mask = AttentionRule::Mask::Window;
    rule.extent = 17;
    check([](int64_t p) { return std::max<int64_t>(0, p - 16); }, {});
  }
  SECTION("chunk") {
    rule.mask = AttentionRule::Mask::Chunk;
    rule.extent = 21; // position 41 is a chunk's last
    check([](int64_t p) { return p / 21 * 21; }, {});
  }
  SECTION("sinks join the denominator only") {
    const std::vector<double> sinks = {1, -1, 2, 0.5, 3, -2};
    check([](int64_t) { return 0; }, sinks);
  }
}

TEST_CASE("In contract precision probabilities enter the product as bf16") {
  const Step step = rowsAt({2});
  const Context contract{Precision::Contract, &step, 1};
  KvStore cache(1, 1);
  const std::vector<double> one = {1};
  std::vector<double> key = {0};
  const double keys[] = {0.0, -1.0, -2.0};
  for (int64_t j = 0; j < 3; ++j) {
    key[0] = keys[j];
    cache.write(0, j, key, one);
  }
  Matrix q(1, 1);
  q.at(0, 0) = 1;
  const Matrix out = attention(q, cache, {1, 1.0}, {}, Element::F32, contract);
  const float p1 = std::exp(-1.0f), p2 = std::exp(-2.0f);
  using megalith::models::r16;
  CHECK(out.at(0, 0) == (1.0f + r16(p1) + r16(p2)) / (1.0f + p1 + p2));
  CHECK(attention(q, cache, {1, 1.0}, {}, Element::F32, {Precision::F32, &step, 1}).at(0, 0) == 1);
}

TEST_CASE("A row's bits do not depend on the bucket or on other sequences") {
  KvStore cache(kKvHeads, kDim);
  for (int64_t sequence = 0; sequence < 3; ++sequence)
    cache.fillHashed(1, 4, sequence, 100, /*source=*/7); // equal histories
  const Matrix one = randomMatrix(1, kHeads * kDim, 24);
  Matrix three(4, kHeads * kDim);
  for (int64_t r = 0; r < 3; ++r)
    std::ranges::copy(one.row(0), three.row(r).begin());
  const Step alone = rowsAt({99}), together = rowsAt({99, 99, 99}, 4);
  const AttentionRule rule{kHeads, 0.25};
  const Matrix a = attention(one, cache, rule, {}, Element::Bf16, {Precision::Contract, &alone, 1});
  const Matrix b =
      attention(three, cache, rule, {}, Element::Bf16, {Precision::Contract, &together, 2});
  for (int64_t r = 0; r < 3; ++r)
    CHECK(std::ranges::equal(b.row(r), a.row(0)));
}
