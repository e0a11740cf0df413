//===- Quantization.h - which weights of a checkpoint are quantised ---------===//
#ifndef MEGALITH_MODELS_QUANTIZATION_H
#define MEGALITH_MODELS_QUANTIZATION_H

#include "models/Family.h"

namespace megalith::models {

/// Reads a hf_quant_config.json as ModelOpt writes it: NVFP4 in blocks of 16, all linear modules
/// but those that its patterns exclude. Refuses other formats, and NVFP4 where the family's graph
/// has bf16. That it names a format for the KV cache says that the checkpoint holds scales for it
/// (`kvScales`); whether the cache is e4m3 is for who deploys the model to say.
void readQuantization(ConfigReader &reader, const QuantModules &modules, ModelConfig &config);

/// NVFP4 experts and nothing else, in the layers where such checkpoints of the family have them.
void quantizeExperts(const QuantModules &modules, ModelConfig &config);

} // namespace megalith::models

#endif // MEGALITH_MODELS_QUANTIZATION_H
