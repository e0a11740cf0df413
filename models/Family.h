//===- Family.h - one family of models, as the importer sees it -------------===//
#ifndef MEGALITH_MODELS_FAMILY_H
#define MEGALITH_MODELS_FAMILY_H

#include "models/ConfigReader.h"
#include "models/ModelConfig.h"

namespace megalith::models {

class StepBuilder;

/// Something that public sources settle in different ways: a name, what it may be, the default
/// first.
struct Choice {
  llvm::StringRef name;
  llvm::ArrayRef<llvm::StringRef> values;
};

/// What tools that quantise checkpoints call the linear modules of a family.
struct QuantModules {
  llvm::StringRef layers;  ///< "model.layers.", then a number, "." and the names below
  llvm::StringRef experts; ///< may be NVFP4
  /// May be NVFP4, all in a layer or none.
  llvm::ArrayRef<llvm::StringRef> attention;
  /// Always bf16, as are those of `model`, which stand outside of layers.
  llvm::ArrayRef<llvm::StringRef> plain, model;
  /// The first and last layers' experts stay bf16 where nothing is said by name.
  bool endsArePlain = false;
};

/// A new family is a new file that defines one of these, a declaration here, and a line in
/// Families.cpp.
struct Family {
  /// The config's model_type.
  llvm::StringRef modelType;
  /// Reads every field of the config; errors stay in the reader.
  void (*read)(ConfigReader &reader, ModelConfig &config);
  /// Builds the model's functions from a config that `read` accepted.
  void (*build)(StepBuilder &builder);
  llvm::ArrayRef<Choice> choices = {};
  QuantModules modules = {};
};

extern const Family kMixtral;
extern const Family kMuseSpark;
extern const Family kQwen3Moe;

/// All families, by model type in alphabetical order.
llvm::ArrayRef<const Family *> families();

} // namespace megalith::models

#endif // MEGALITH_MODELS_FAMILY_H
