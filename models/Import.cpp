//===- Import.cpp - from a Hugging Face config to the moe dialect -----------===//

#include "models/Import.h"
#include "models/Family.h"
#include "models/JsonText.h"
#include "models/Quantization.h"
#include "models/StepBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

namespace megalith::models {

static constexpr int64_t kMaxRows = 16;

std::vector<StringRef> supportedModelTypes() {
  std::vector<StringRef> names;
  for (const Family *family : families())
    names.push_back(family->modelType);
  return names;
}

/// The family that model_type names, or null with an error in the reader.
static const Family *findFamily(ConfigReader &reader, const json::Object &object) {
  const json::Value *type = object.get("model_type");
  for (const Family *family : families())
    if (type && type->getAsString() == family->modelType) {
      reader.ignore({"model_type"});
      return family;
    }
  reader.fail("model_type", "one of " + join(supportedModelTypes(), ", "),
              type ? describe(*type) : "nothing",
              "give the config.json of a model of one of these types");
  return nullptr;
}

/// The family's choices: the defaults, changed by `given`.
static Error readChoices(const Family &family, const ImportOptions &options, ModelConfig &config) {
  SmallVector<StringRef> names;
  for (const Choice &choice : family.choices) {
    names.push_back(choice.name);
    config.choices[choice.name.str()] = choice.values.front().str();
  }
  for (const auto &[name, value] : options.choices) {
    const Choice *choice = find_if(family.choices, [&](const Choice &c) { return c.name == name; });
    if (choice == family.choices.end())
      return createStringError(
          formatv("{0}: choice {1}: expected {2} but got {1}={3}; see models/README.md",
                  config.source, name,
                  names.empty() ? "no choices for " + config.modelType
                                : "one of " + join(names, ", ") + " for " + config.modelType,
                  value));
    if (!is_contained(choice->values, value))
      return createStringError(formatv("{0}: choice {1}: expected one of {2} but got {3}; see "
                                       "models/README.md",
                                       config.source, name, join(choice->values, ", "), value));
    config.choices[name] = value;
  }
  return Error::success();
}

/// Which weights are quantised.
static Error readQuantization(const Family &family, const Quantization &options,
                              ModelConfig &config) {
  if (!options.text.empty()) {
    Expected<json::Object> object = parseJsonObject(options.text, options.source);
    if (!object)
      return object.takeError();
    ConfigReader reader(*object, options.source);
    readQuantization(reader, family.modules, config);
    reader.expectNoOthers("hf_quant_config.json");
    if (Error error = reader.takeError())
      return error;
  } else if (options.experts) {
    quantizeExperts(family.modules, config);
  }
  config.e4m3Kv = options.e4m3Kv;
  config.nvfp4Activations = options.activations;
  if (options.activations && !is_contained(config.nvfp4Experts, true))
    return createStringError(formatv("{0}: NVFP4 activations: expected experts with NVFP4 weights "
                                     "but got none; give the checkpoint's hf_quant_config.json",
                                     config.source));
  return Error::success();
}

/// Parses, and says which family it was.
static Expected<std::pair<ModelConfig, const Family *>> read(StringRef text, StringRef source,
                                                             const ImportOptions &options) {
  Expected<json::Object> object = parseJsonObject(text, source);
  if (!object)
    return object.takeError();
  ConfigReader reader(*object, source);
  ModelConfig config;
  const Family *family = findFamily(reader, *object);
  if (family) {
    config.modelType = family->modelType.str();
    config.source = source.str();
    if (Error error = readChoices(*family, options, config))
      return error;
    family->read(reader, config);
    reader.expectNoOthers(family->modelType);
  }
  if (Error error = reader.takeError())
    return error;
  if (Error error = readQuantization(*family, options.quantization, config))
    return error;
  return std::pair(std::move(config), family);
}

Expected<ModelConfig> parseConfig(StringRef text, StringRef source, const ImportOptions &options) {
  auto result = read(text, source, options);
  if (!result)
    return result.takeError();
  return std::move(result->first);
}

static Error checkOptions(const ImportOptions &options, const ModelConfig &config) {
  if (options.rows < 1 || options.rows > kMaxRows)
    return createStringError(formatv("{0}: rows: expected 1 to {1} but got {2}; choose the most "
                                     "rows that a step will have",
                                     config.source, kMaxRows, options.rows));
  if (options.maxContext < 0 || options.maxContext > config.maxPositions)
    return createStringError(formatv(
        "{0}: maximum context: expected 1 to max_position_embeddings {1} (0 for the latter) "
        "but got {2}; choose a smaller context",
        config.source, config.maxPositions, options.maxContext));
  return Error::success();
}

Expected<mlir::OwningOpRef<mlir::ModuleOp>> importConfig(mlir::MLIRContext &context, StringRef text,
                                                         StringRef source,
                                                         const ImportOptions &options) {
  auto result = read(text, source, options);
  if (!result)
    return result.takeError();
  const auto &[config, family] = *result;
  if (Error error = checkOptions(options, config))
    return error;

  context.loadDialect<moe::MoeDialect, mlir::func::FuncDialect>();
  const int64_t positions =
      std::max(options.maxContext ? options.maxContext : config.maxPositions, options.leastContext);
  StepBuilder builder(context, config, options.rows, positions);
  family->build(builder);
  mlir::OwningOpRef<mlir::ModuleOp> module = builder.take();

  // What read() accepts must verify: a failure here is a fault of the importer, yet no crash.
  std::string diagnostics;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    diagnostics += diagnostic.str() + " ";
    return mlir::success();
  });
  if (mlir::failed(mlir::verify(*module)))
    return createStringError(formatv("{0}: expected the imported module to verify but got: {1}; "
                                     "please report this as a fault of the importer",
                                     source, diagnostics));
  return module;
}

} // namespace megalith::models
