//===- Import.h - from a Hugging Face config to the moe dialect -------------===//
//
// The public interface of models/. Errors are one line each: where (file and JSON path), what was
// expected, what was found, how to mend it.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_IMPORT_H
#define MEGALITH_MODELS_IMPORT_H

#include "models/ModelConfig.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <utility>
#include <vector>

namespace megalith::models {

/// Which weights are quantised, and whether activations, keys and values are.
struct Quantization {
  /// Text of the checkpoint's hf_quant_config.json, and its name for messages; "": bf16 weights, or
  /// with `experts` NVFP4 experts as the family's quantised checkpoints have them.
  std::string text, source;
  bool experts = false;
  /// Quantise the experts' inputs to NVFP4 where their weights are NVFP4.
  bool activations = false;
  /// Keep keys and values as e4m3, with the checkpoint's scales if `text` says that it has such
  /// (kv_cache_quant_algo "FP8"), else with 1.
  bool e4m3Kv = false;
};

struct ImportOptions {
  /// Rows bucket: the most live rows of a step, 1 to 16.
  int64_t rows = 1;
  /// Most positions of a sequence; 0: the config's max_position_embeddings.
  int64_t maxContext = 0;
  /// At least so many positions, even beyond the config's: to time contexts that the model was not
  /// made for.
  int64_t leastContext = 0;
  Quantization quantization = {};
  /// Named choices of the family (models/README.md): name, value.
  std::vector<std::pair<std::string, std::string>> choices = {};
};

/// Checks a config's text and reads it. `source` names the file in messages.
llvm::Expected<ModelConfig> parseConfig(llvm::StringRef text, llvm::StringRef source,
                                        const ImportOptions &options = {});

/// Builds the module (weights, @embed, a function per kind of layer, @head, moe.step @decode),
/// which verifies. Loads the dialects it needs into `context`. See ir/moe/MoeBase.td for its shape.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> importConfig(mlir::MLIRContext &context,
                                                               llvm::StringRef text,
                                                               llvm::StringRef source,
                                                               const ImportOptions &options = {});

/// The values of model_type that can be imported, in alphabetical order.
std::vector<llvm::StringRef> supportedModelTypes();

} // namespace megalith::models

#endif // MEGALITH_MODELS_IMPORT_H
