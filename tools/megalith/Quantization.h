//===- Quantization.h - --quant, --act, --kv ------------------------------===//
#ifndef MEGALITH_TOOLS_MEGALITH_QUANTIZATION_H
#define MEGALITH_TOOLS_MEGALITH_QUANTIZATION_H

#include "models/Import.h"
#include "tools/megalith/Arguments.h"
#include "tools/megalith/Files.h"

namespace megalith::cli {

/// Of a config in `file`. `quant`: "nvfp4", the experts as the family's quantised checkpoints have
/// them; "none"; a file; or "", the hf_quant_config.json beside `file` if there is one, as tools
/// that quantise checkpoints leave it. `act`: "bf16" or "nvfp4". `kv`: "bf16" or "e4m3", what
/// keys and values are kept as.
llvm::Expected<models::Quantization> readQuantization(llvm::StringRef file, llvm::StringRef quant,
                                                      llvm::StringRef act, llvm::StringRef kv);

/// The same of a command's options.
llvm::Expected<models::Quantization> readQuantization(const ConfigText &config,
                                                      const Arguments &arguments);

/// " --quant nvfp4 --act nvfp4 --kv e4m3": the options that say so.
std::string optionsOf(const models::Quantization &quantization);

} // namespace megalith::cli

#endif // MEGALITH_TOOLS_MEGALITH_QUANTIZATION_H
