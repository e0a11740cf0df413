//===- Import.cpp - megalith import -----------------------------------------===//

#include "models/Import.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Files.h"

#include "mlir/IR/MLIRContext.h"

using namespace llvm;

namespace megalith::cli {

static Error runImport(const Arguments &arguments) {
  Expected<int64_t> rows = arguments.integer("rows", 1, 16, 1);
  if (!rows)
    return rows.takeError();
  Expected<int64_t> context = arguments.integer("max-context", 1, int64_t(1) << 27, 0);
  if (!context)
    return context.takeError();
  Expected<ConfigText> config = readConfig(arguments.positional(), "a Hugging Face config.json");
  if (!config)
    return config.takeError();

  mlir::MLIRContext mlirContext;
  auto module = models::importConfig(mlirContext, config->text, config->file,
                                     {.rows = *rows, .maxContext = *context});
  if (!module)
    return with(Exit::Input, module.takeError());
  std::string text;
  raw_string_ostream os(text);
  (*module)->print(os);
  os << "\n";
  return writeText(arguments.text("o"), text);
}

static constexpr Option kOptions[] = {
    {"rows", "<n>", "most rows of a step, 1 to 16 (1)"},
    {"max-context", "<n>", "most positions of a sequence (the config's max_position_embeddings)"},
    {"o", "<file>", "write there (standard output)"},
};

const Command kImport = {
    {"import", "print a model's graph in the moe dialect", "<config.json>",
     "a Hugging Face config of type qwen3_moe or mixtral", kOptions,
     "megalith import models/configs/qwen3-30b-a3b.json --rows 4"},
    runImport,
};

} // namespace megalith::cli
