//===- GoldenTest.cpp - Against an implementation that is not ours --------===//
//
// Goldens: tests/golden/make_model_goldens.py.
//
//===----------------------------------------------------------------------===//

#include "models/weights/safetensors.h"
#include "tests/models/reference/ModelSupport.h"

using namespace megalith::reference;
using namespace megalith::models;

namespace {

Matrix read(const SafetensorsWeights &file, const std::string &name, int64_t rows,
            int64_t columns) {
  auto tensor = llvm::cantFail(file.open({name, {rows, columns}}));
  Matrix matrix(rows, columns);
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    tensor->row(r, std::span<float>(row));
    std::ranges::copy(row, matrix.row(r).begin());
  }
  return matrix;
}

} // namespace

TEST_CASE("fp32 and fp64 agree with the float32 goldens within 1e-5 a layer") {
  for (const char *family : kFamilies) {
    Model model = Model::small(family);
    const auto golden = llvm::cantFail(SafetensorsWeights::load(
        std::string("tests/golden/models/") + family + "/golden.safetensors"));
    const int64_t numSteps = 4;
    std::vector<float> rowsOfStep(static_cast<size_t>(numSteps));
    llvm::cantFail(golden->open({"steps", {numSteps}}))->row(0, std::span<float>(rowsOfStep));

    for (Precision precision : {Precision::F32, Precision::F64}) {
      const Evaluator evaluator = model.evaluator({precision});
      std::vector<KvStore> caches = evaluator.makeCaches();
      int64_t start = 0;
      for (int64_t s = 0; s < numSteps; ++s) {
        const int64_t rows = int64_t(rowsOfStep[size_t(s)]);
        const SequenceInput input = hashedInput(0, start, rows, 512);
        const StepResult result =
            llvm::cantFail(evaluator.step(makeStep({&input, 1}, rows), caches));
        const std::string prefix = "step" + std::to_string(s) + ".";
        for (int64_t l = 0; l < evaluator.numLayers(); ++l) {
          INFO(family << " " << prefix << "layer" << l);
          const Matrix expected = read(*golden, prefix + "layer" + std::to_string(l), rows, 256);
          CHECK(relativeRms(result.layers[size_t(l)].residual, expected) <= 1e-5);
        }
        INFO(family << " " << prefix << "logits");
        CHECK(relativeRms(result.logits, read(*golden, prefix + "logits", rows, 512)) <= 1e-5);
        start += rows;
      }
    }
  }
}
