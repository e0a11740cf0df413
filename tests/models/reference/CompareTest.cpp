//===- CompareTest.cpp - A kernel against the evaluator -------------------===//

#include "models/reference/compare.h"
#include "tests/models/reference/ModelSupport.h"

using namespace megalith::reference;
using Catch::Matchers::Contains;

namespace {

/// A layer of a small model with a "kernel" that computed just what the evaluator does.
struct Comparison {
  Model model = Model::small("qwen3_moe");
  Evaluator evaluator = model.evaluator();
  SequenceInput input = hashedInput(0, 33, 2, 512);
  Step step = makeStep({&input, 1}, 4);
  KvStore cache = filledCaches(evaluator, {33})[1];
  Matrix residual = randomMatrix(4, 256, 51);
  KernelLayer kernel;

  Comparison() {
    KvStore scratch = cache;
    const LayerResult result = llvm::cantFail(evaluator.layer(1, residual, scratch, step));
    kernel = {result.residual, result.routing->logits, result.routing->ids,
              result.routing->weights};
  }
  LayerComparison compare() {
    return llvm::cantFail(compareLayer(evaluator, 1, residual, cache, step, kernel));
  }
};

} // namespace

TEST_CASE("A kernel that computes what the evaluator does passes without a difference") {
  Comparison c;
  const LayerComparison same = c.compare();
  CHECK(same.residual == 0);
  CHECK(same.logits == 0);
  CHECK(same.weights == 0);
  CHECK(same.passes());
  CHECK(same.str() == "residual 0.0e+00, logits 0.0e+00, weights 0.0e+00 (tolerance 4e-03), 0 "
                      "row(s) with wrong ids, 0 near tie(s)");
  // Dead rows are not looked at.
  for (double &value : c.kernel.residual.row(3))
    value = 1e9;
  c.kernel.ids.back() = 77;
  CHECK(c.compare().passes());
}

TEST_CASE("Residuals, logits, weights and ids are each told apart") {
  Comparison c;
  SECTION("residual") {
    c.kernel.residual.at(1, 7) += 1;
    CHECK(c.compare().residual > kLayerTolerance);
  }
  SECTION("not finite") {
    c.kernel.residual.at(0, 0) = NAN;
    CHECK(std::isinf(c.compare().residual));
  }
  SECTION("logits") {
    c.kernel.logits.at(1, 3) -= 0.1;
    CHECK(c.compare().logits > kLayerTolerance);
  }
  SECTION("weights") {
    std::swap(c.kernel.weights.at(0, 0), c.kernel.weights.at(0, 3));
    CHECK(c.compare().weights > kLayerTolerance);
  }
  SECTION("ids that are not top-k of the kernel's logits, with all else right for them") {
    std::swap(c.kernel.ids[0], c.kernel.ids[1]);
    std::swap(c.kernel.weights.at(0, 0), c.kernel.weights.at(0, 1));
    const LayerComparison comparison = c.compare();
    CHECK(comparison.wrongRows == 1);
    CHECK(comparison.nearTies == 0);
  }
  CHECK(!c.compare().passes());
}

TEST_CASE("A near-tie that falls the other way is counted and passes") {
  Comparison c;
  // The kernel's logits put the fifth expert of row 0 just above the fourth, and it did as they
  // say.
  auto row = c.kernel.logits.row(0);
  std::vector<int32_t> order(16);
  for (int32_t e = 0; e < 16; ++e)
    order[size_t(e)] = e;
  std::ranges::sort(order, [&](int32_t a, int32_t b) { return row[size_t(a)] > row[size_t(b)]; });
  const double fourth = row[size_t(order[3])], fifth = row[size_t(order[4])];
  row[size_t(order[3])] = (fourth + fifth) / 2 - 1e-6;
  row[size_t(order[4])] = (fourth + fifth) / 2;
  c.kernel.ids[3] = order[4];
  KvStore scratch = c.cache;
  const LayerResult forced =
      llvm::cantFail(c.evaluator.layer(1, c.residual, scratch, c.step, &c.kernel.ids));
  c.kernel.residual = forced.residual;
  c.kernel.weights = forced.routing->weights;
  const LayerComparison comparison = c.compare();
  CHECK(comparison.residual == 0);
  CHECK(comparison.wrongRows == 0);
  CHECK(comparison.nearTies == 1);
}

TEST_CASE("Results of the wrong shape are refused or infinitely far") {
  Comparison c;
  c.kernel.residual = Matrix(4, 255);
  CHECK(std::isinf(c.compare().residual));
  auto routed = c.evaluator.route(1, Matrix(4, 15), c.step);
  REQUIRE(!routed);
  CHECK_THAT(llvm::toString(routed.takeError()),
             Contains("expected logits of 4 rows of 16 experts, got 4 of 15"));
}
