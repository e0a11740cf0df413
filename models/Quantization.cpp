//===- Quantization.cpp - which weights of a checkpoint are quantised -------===//

#include "models/Quantization.h"

#include "llvm/Support/GlobPattern.h"

using namespace llvm;

namespace megalith::models {

static constexpr const char *kMend = "only NVFP4 is supported, of experts and, in some families, "
                                     "attention: use such a checkpoint";

/// Does one of the patterns ("*" stands for anything) name `module`, or all that is in it?
static bool isExcluded(ArrayRef<std::string> patterns, const std::string &module) {
  for (const std::string &pattern : patterns) {
    auto glob = GlobPattern::create(pattern);
    if (!glob) {
      consumeError(glob.takeError()); // read as plain text
      if (pattern == module)
        return true;
      continue;
    }
    if (glob->match(module) || glob->match(module + ".x"))
      return true;
  }
  return false;
}

/// What of layer `l` the patterns leave to be quantised.
static void readLayer(ConfigReader &reader, ArrayRef<std::string> excluded,
                      const QuantModules &modules, ModelConfig &config, int64_t l) {
  const std::string layer = (modules.layers + Twine(l) + ".").str();
  auto isPlain = [&](StringRef module) { return isExcluded(excluded, layer + module.str()); };
  auto expect = [&](StringRef module) {
    if (!isPlain(module))
      reader.fail("exclude_modules", "a pattern for " + layer + module, "none", kMend);
  };
  config.nvfp4Experts.push_back(!isPlain(modules.experts));
  for_each(modules.plain, expect);
  const bool nvfp4 = !modules.attention.empty() && !all_of(modules.attention, isPlain);
  config.nvfp4Attention.push_back(nvfp4);
  for (StringRef module : modules.attention)
    if (nvfp4 && isPlain(module))
      reader.fail("exclude_modules",
                  "patterns for all of layer " + Twine(l) + "'s attention or for none",
                  "one for " + layer + module, kMend);
}

void quantizeExperts(const QuantModules &modules, ModelConfig &config) {
  config.nvfp4Experts.assign(size_t(config.layers), true);
  if (modules.endsArePlain)
    config.nvfp4Experts.front() = config.nvfp4Experts.back() = false;
}

void readQuantization(ConfigReader &reader, const QuantModules &modules, ModelConfig &config) {
  reader.expectString("quant_method", "modelopt", kMend);
  reader.ignore({"producer"});
  const json::Object *object = reader.object("quantization");
  if (!object) {
    reader.fail("quantization", "an object", "nothing",
                "give the checkpoint's "
                "hf_quant_config.json");
    return;
  }
  ConfigReader nested(*object, reader.getSource(), reader.path("quantization"));
  if (!nested.has("quant_algo"))
    nested.fail("quant_algo", "\"NVFP4\"", "nothing", kMend);
  nested.expectString("quant_algo", "NVFP4", kMend);
  nested.expectInteger("group_size", 16, "another block size");
  config.kvScales = nested.has("kv_cache_quant_algo");
  nested.expectString("kv_cache_quant_algo", "FP8", "correct the value");
  std::vector<std::string> excluded = nested.anyStrings("exclude_modules");
  if (modules.endsArePlain && !nested.has("exclude_modules")) {
    quantizeExperts(modules, config);
  } else {
    for (int64_t l = 0; l < config.layers; ++l)
      readLayer(nested, excluded, modules, config, l);
    for (StringRef module : modules.model)
      if (!isExcluded(excluded, module.str()))
        nested.fail("exclude_modules", "a pattern for " + module, "none", kMend);
  }
  nested.expectNoOthers("NVFP4 quantisation");
  if (nested.failed())
    reader.adopt(nested.takeError());
}

} // namespace megalith::models
