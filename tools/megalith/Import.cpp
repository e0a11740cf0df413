//===- Import.cpp - megalith import -----------------------------------------===//

#include "models/Import.h"
#include "passes/graph/GraphPasses.h"
#include "passes/graph/ShardSchemes.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Failure.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/Quantization.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace megalith::cli {

/// "name=value,name=value"
static Expected<std::vector<std::pair<std::string, std::string>>> readChoices(StringRef text) {
  std::vector<std::pair<std::string, std::string>> choices;
  for (StringRef word : split(text, ',')) {
    auto [name, value] = word.split('=');
    if (!text.empty() && (name.empty() || value.empty()))
      return failure(Exit::CommandLine,
                     "--choose: expected name=value, separated by commas, but got '{0}'", word);
    if (!text.empty())
      choices.emplace_back(name.str(), value.str());
  }
  return choices;
}

/// The module of one of `ranks` ranks; what the schemes cost goes to standard error.
static Error shard(mlir::ModuleOp module, const ConfigText &config, const ShardOptions &options) {
  errs() << describe(
      compareSchemes(module, options.ranks, [](const ShardScheme &) { return true; }),
      options.ranks);
  mlir::PassManager manager(module.getContext());
  manager.addPass(createShard(options));
  // The first error is the message; what follows from it is noise.
  std::string message;
  mlir::ScopedDiagnosticHandler handler(module.getContext(), [&](mlir::Diagnostic &diagnostic) {
    if (message.empty())
      message = diagnostic.str();
    return mlir::success();
  });
  if (mlir::failed(manager.run(module)))
    return failure(Exit::Input, "{0}: --tp {1}: {2}; choose other ranks or another scheme",
                   config.file, options.ranks, message);
  return Error::success();
}

/// --tp and how; nothing is checked that the pass checks.
static Expected<ShardOptions> shardOptions(const Arguments &arguments) {
  ShardOptions options;
  Expected<int64_t> ranks = arguments.integer("tp", 1, 64, 1);
  if (!ranks)
    return ranks.takeError();
  Expected<StringRef> experts = arguments.choice("tp-experts", {"auto", "nn", "nn-sums", "nk"});
  if (!experts)
    return experts.takeError();
  Expected<StringRef> output = arguments.choice("tp-o-proj", {"auto", "n", "k-ordered", "k"});
  if (!output)
    return output.takeError();
  Expected<StringRef> order = arguments.choice("tp-order", {"fixed", "free"});
  if (!order)
    return order.takeError();
  options.ranks = *ranks;
  options.experts = experts->str();
  options.outputProjection = output->str();
  options.freeOrder = *order == "free";
  return options;
}

static Error runImport(const Arguments &arguments) {
  Expected<int64_t> rows = arguments.integer("rows", 1, 16, 1);
  if (!rows)
    return rows.takeError();
  Expected<int64_t> context = arguments.integer("max-context", 1, int64_t(1) << 27, 0);
  if (!context)
    return context.takeError();
  Expected<ShardOptions> ranks = shardOptions(arguments);
  if (!ranks)
    return ranks.takeError();
  auto choices = readChoices(arguments.text("choose"));
  if (!choices)
    return choices.takeError();
  Expected<ConfigText> config = readConfig(arguments.positional(), "a Hugging Face config.json");
  if (!config)
    return config.takeError();
  auto quantization = readQuantization(*config, arguments);
  if (!quantization)
    return quantization.takeError();
  models::ImportOptions options{.rows = *rows,
                                .maxContext = *context,
                                .quantization = std::move(*quantization),
                                .choices = std::move(*choices)};

  mlir::MLIRContext mlirContext;
  auto module = models::importConfig(mlirContext, config->text, config->file, options);
  if (!module)
    return with(Exit::Input, module.takeError());
  if (ranks->ranks > 1)
    if (Error error = shard(**module, *config, *ranks))
      return error;
  std::string text;
  raw_string_ostream os(text);
  (*module)->print(os);
  os << "\n";
  return writeText(arguments.text("o"), text);
}

static constexpr Option kOptions[] = {
    {"rows", "<n>", "most rows of a step, 1 to 16 (1)"},
    {"max-context", "<n>", "most positions of a sequence (the config's max_position_embeddings)"},
    {"quant", "<what>", kQuantHelp},
    {"act", "<type>", kActHelp},
    {"kv", "<type>", kKvHelp},
    {"choose", "<list>", "name=value of choices that the model's sources leave open"},
    {"tp", "<n>",
     "print what one of n ranks computes; what schemes cost goes to standard error (1)"},
    {"tp-experts", "<scheme>", "auto, nn, nn-sums, nk: how the experts' matrices are cut (auto)"},
    {"tp-o-proj", "<scheme>", "auto, n, k-ordered, k: the same behind attention (auto)"},
    {"tp-order", "<order>", "fixed: auto keeps the sums' order of one rank; free (fixed)"},
    {"o", "<file>", "write there (standard output)"},
};

const Command kImport = {
    {"import", "print a model's graph in the moe dialect", "<config.json>",
     "a Hugging Face config of type qwen3_moe, mixtral or muse_spark", kOptions,
     "megalith import models/configs/qwen3-30b-a3b.json --rows 4"},
    runImport,
};

} // namespace megalith::cli
