//===- ModelSupport.h - Models for evaluator tests ---------------*- C++ -*-===//
#ifndef MEGALITH_TESTS_MODELS_REFERENCE_MODELSUPPORT_H
#define MEGALITH_TESTS_MODELS_REFERENCE_MODELSUPPORT_H

#include "models/Import.h"
#include "models/reference/evaluator.h"
#include "tests/models/reference/TestSupport.h"

#include "llvm/Support/MemoryBuffer.h"

namespace megalith::reference {

/// The seed of the goldens.
constexpr uint32_t kSeed = 1;

inline const char *const kFamilies[] = {"qwen3_moe", "mixtral"};

/// An imported config with hashed weights.
struct Model {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  models::HashedWeights weights{kSeed};

  explicit Model(llvm::StringRef config, const models::ImportOptions &options = {}) {
    const std::string path = ("models/configs/" + config).str();
    auto text = llvm::MemoryBuffer::getFile(path);
    REQUIRE(text);
    auto imported = models::importConfig(context, (*text)->getBuffer(), path, options);
    if (!imported)
      FAIL(llvm::toString(imported.takeError()));
    module = std::move(*imported);
  }

  /// The small Muse Spark with NVFP4 experts in all layers but the first and the last, whose inputs
  /// are NVFP4 as well if `activations`.
  static models::ImportOptions nvfp4(bool activations, int64_t rows = 1) {
    auto text =
        llvm::MemoryBuffer::getFile("models/configs/muse-spark-open-nvfp4.quant.assembled.json");
    REQUIRE(text);
    models::ImportOptions options;
    options.rows = rows;
    options.quantization = {
        .text = (*text)->getBuffer().str(), .source = "quant.json", .activations = activations};
    return options;
  }

  static Model small(llvm::StringRef family) {
    return Model(family == "mixtral" ? "mixtral-small.test.json" : "qwen3-moe-small.test.json");
  }

  Evaluator evaluator(EvaluatorOptions options = {}) {
    return llvm::cantFail(Evaluator::create(*module, weights, options));
  }
};

/// Hashed tokens of a sequence at positions start .. start + count - 1.
inline SequenceInput hashedInput(int64_t sequence, int64_t start, int64_t count, uint32_t vocab) {
  SequenceInput input{start, {}};
  for (int64_t i = 0; i < count; ++i)
    input.tokens.push_back(
        int32_t(models::hashedToken(kSeed, uint64_t(sequence), uint64_t(start + i), vocab)));
  return input;
}

/// Caches of an evaluator with `lengths[s]` made-up positions of sequence s in every layer.
inline std::vector<KvStore> filledCaches(const Evaluator &evaluator,
                                         std::initializer_list<int64_t> lengths) {
  std::vector<KvStore> caches = evaluator.makeCaches();
  for (size_t l = 0; l < caches.size(); ++l)
    for (size_t s = 0; s < lengths.size(); ++s)
      caches[l].fillHashed(kSeed, int64_t(l), int64_t(s), lengths.begin()[s]);
  return caches;
}

} // namespace megalith::reference

#endif // MEGALITH_TESTS_MODELS_REFERENCE_MODELSUPPORT_H
