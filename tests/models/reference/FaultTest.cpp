//===- FaultTest.cpp - Planted faults exceed the tolerances ---------------===//

#include "models/reference/attention.h"
#include "models/reference/compare.h"
#include "tests/models/reference/ModelSupport.h"

#include <map>
#include <set>

using namespace megalith::reference;
using namespace megalith::models;

namespace {

/// Hashed weights whose routers have the same row for experts 3i, 3i + 1, 3i + 2, so that selecting
/// an even number of experts cuts through a tie.
class TiedRouters final : public WeightSource {
public:
  llvm::Expected<std::unique_ptr<WeightTensor>> open(const TensorSpec &spec) const override {
    auto tensor = hashed.open(spec);
    if (!tensor || !llvm::StringRef(spec.name).ends_with(".gate.weight"))
      return tensor;
    return std::make_unique<Tied>(std::move(*tensor));
  }

private:
  struct Tied final : WeightTensor {
    explicit Tied(std::unique_ptr<WeightTensor> base) : base(std::move(base)) {}
    using WeightTensor::row;
    void row(int64_t index, std::span<float> out) const override { base->row(index / 3 * 3, out); }
    std::unique_ptr<WeightTensor> base;
  };
  HashedWeights hashed{kSeed};
};

/// Two sequences with made-up histories (one over several blocks of 16), a row each, and a
/// sequence of two rows; one dead row.
Step makeInputs() {
  const std::vector<SequenceInput> inputs = {hashedInput(0, 70, 1, 512), hashedInput(1, 9, 1, 512),
                                             hashedInput(2, 20, 2, 512)};
  return makeStep(inputs, 5);
}

/// The largest difference of a layer, each started from the right residual and given the right
/// expert ids, as kernels are compared: a fault gets no help from routing that flips. Only where
/// the fault is in the selection do layers choose for themselves.
double largestLayerDifference(Model &model, const WeightSource &weights, Fault fault) {
  const Step step = makeInputs();
  const auto right = llvm::cantFail(Evaluator::create(*model.module, weights));
  const auto wrong =
      llvm::cantFail(Evaluator::create(*model.module, weights, {Precision::Contract, 2, fault}));
  const bool selects = fault == Fault::TopKSkipsBest || fault == Fault::TiesToHigher;
  auto rightCaches = filledCaches(right, {70, 9, 20}), wrongCaches = rightCaches;
  Matrix residual = llvm::cantFail(right.embed(step));
  double largest = 0;
  for (size_t l = 0; l < rightCaches.size(); ++l) {
    const LayerResult expected =
        llvm::cantFail(right.layer(int64_t(l), residual, rightCaches[l], step));
    const LayerResult actual = llvm::cantFail(wrong.layer(
        int64_t(l), residual, wrongCaches[l], step, selects ? nullptr : &expected.routing->ids));
    largest = std::max(largest, relativeRms(actual.residual, expected.residual));
    residual = expected.residual;
  }
  return largest;
}

} // namespace

/// Faults in what these families do not have; MuseSparkTest.cpp plants them.
static bool isElsewhere(Fault fault) {
  return fault == Fault::WindowOffByOne || fault == Fault::WindowTooLong ||
         (fault >= Fault::GainNotCentred && fault <= Fault::SoftcapOmitted);
}

TEST_CASE("Every fault exceeds the tolerance of a layer for at least one family") {
  std::map<Fault, double> largest;
  for (const char *family : kFamilies) {
    Model model = Model::small(family);
    const TiedRouters tied;
    for (Fault fault : allFaults()) {
      if (isElsewhere(fault))
        continue;
      const WeightSource &weights =
          fault == Fault::TiesToHigher ? static_cast<const WeightSource &>(tied) : model.weights;
      const double difference = largestLayerDifference(model, weights, fault);
      largest[fault] = std::max(largest[fault], difference);
    }
  }
  CHECK(largest.size() == 16);
  for (const auto &[fault, difference] : largest) {
    INFO(faultName(fault) << ": " << difference);
    CHECK(difference > kLayerTolerance);
  }
}

TEST_CASE("A window one position too short exceeds the tolerance") {
  const Step step = rowsAt({90});
  const Context context{Precision::Contract, &step, 1};
  KvStore cache(2, 64);
  cache.fillHashed(kSeed, 0, 0, 91);
  const Matrix q = randomMatrix(1, 8 * 64, 41);
  for (auto mask : {AttentionRule::Mask::Window, AttentionRule::Mask::Chunk}) {
    AttentionRule rule{8, 0.125, mask, 24};
    const Matrix right = attention(q, cache, rule, {}, Element::Bf16, context);
    plant(Fault::WindowOffByOne, rule);
    CHECK(relativeRms(attention(q, cache, rule, {}, Element::Bf16, context), right) >
          kLayerTolerance);
  }
}

TEST_CASE("Faults have distinct names, and no fault changes nothing") {
  std::set<std::string_view> names;
  for (Fault fault : allFaults())
    names.insert(faultName(fault));
  CHECK(names.size() == allFaults().size());
  CHECK(names.count(faultName(Fault::None)) == 0);
  Model model = Model::small("mixtral");
  CHECK(largestLayerDifference(model, model.weights, Fault::QkNormGainOmitted) == 0);
}
