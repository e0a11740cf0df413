//===- Quantization.cpp - --quant, --act, --kv ----------------------------===//

#include "tools/megalith/Quantization.h"

#include "runtime/json_text.h"
#include "tools/megalith/Failure.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace megalith::cli {

/// Whether a hf_quant_config.json says in so many words that weights are not quantised.
static bool saysNone(StringRef text) {
  Expected<json::Value> value = runtime::parseJson(text);
  if (!value) {
    consumeError(value.takeError()); // the importer says what is wrong
    return false;
  }
  const json::Object *top = value->getAsObject();
  const json::Object *inner = top ? top->getObject("quantization") : nullptr;
  const json::Value *algorithm = inner ? inner->get("quant_algo") : nullptr;
  return algorithm && algorithm->getAsNull();
}

Expected<models::Quantization> readQuantization(StringRef file, StringRef quant, StringRef act,
                                                StringRef kv) {
  models::Quantization result;
  result.activations = act == "nvfp4";
  result.e4m3Kv = kv == "e4m3";
  result.experts = quant == "nvfp4";
  if (result.experts || quant == "none")
    return result;
  SmallString<128> source(quant);
  if (quant.empty()) {
    source = sys::path::parent_path(file);
    sys::path::append(source, "hf_quant_config.json");
    if (!sys::fs::exists(source))
      return result;
  }
  Expected<std::string> text = readText(source, "a hf_quant_config.json");
  if (!text)
    return text.takeError();
  if (text->empty())
    return failure(Exit::Input, "{0}: expected a hf_quant_config.json but the file is empty",
                   source);
  if (!saysNone(*text)) {
    result.text = std::move(*text);
    result.source = source.str().str();
  }
  return result;
}

Expected<models::Quantization> readQuantization(const ConfigText &config,
                                                const Arguments &arguments) {
  Expected<StringRef> act = arguments.choice("act", {"bf16", "nvfp4"});
  if (!act)
    return act.takeError();
  Expected<StringRef> kv = arguments.choice("kv", {"bf16", "e4m3"});
  if (!kv)
    return kv.takeError();
  return readQuantization(config.file, arguments.text("quant"), *act, *kv);
}

std::string optionsOf(const models::Quantization &quantization) {
  std::string text;
  if (quantization.experts)
    text += " --quant nvfp4";
  else if (!quantization.source.empty())
    text += (" --quant " + sys::path::filename(quantization.source)).str();
  if (quantization.activations)
    text += " --act nvfp4";
  if (quantization.e4m3Kv)
    text += " --kv e4m3";
  return text;
}

} // namespace megalith::cli
