//===- Decoder.h - what decoders with GQA and gated experts share -----------===//
#ifndef MEGALITH_MODELS_DECODER_H
#define MEGALITH_MODELS_DECODER_H

#include "models/ConfigReader.h"
#include "models/StepBuilder.h"

#include <string>
#include <vector>

namespace megalith::models {

/// What a config may leave out; the values are those of the family's own config class.
struct DecoderDefaults {
  double normEps;
  double ropeTheta;
  llvm::StringRef architecture; ///< the only entry of "architectures"
};

/// The fields that name shapes and constants of a decoder, all but the experts'. Refuses what such
/// a decoder cannot do: quantised weights, scaled RoPE, tied or non-bf16 weights, another
/// activation.
void readDecoder(ConfigReader &reader, ModelConfig &config, const DecoderDefaults &defaults);

/// num_experts_per_tok, the field that counts the experts, and the one with their inner width.
void readExperts(ConfigReader &reader, ModelConfig &config, llvm::StringRef countField,
                 llvm::StringRef widthField);

/// Checkpoint names of an expert block, with {layer} and {expert}.
struct ExpertNames {
  llvm::StringRef router, gate, up, down;
};

/// What buildAttention multiplies by, as QuantModules names them.
inline constexpr llvm::StringRef kAttentionModules[] = {"self_attn.q_proj", "self_attn.k_proj",
                                                        "self_attn.v_proj", "self_attn.o_proj"};

/// What of a layer is NVFP4; kinds of layers differ in nothing else.
struct LayerFormats {
  bool attention = false, experts = false;
};

/// Attention weights under "model.layers.{layer}.self_attn.", with a weighted per-head QK norm if
/// `qkNorm`. Norm, attention over all positions, output projection, residual.
std::pair<mlir::Value, mlir::Value> buildAttention(StepBuilder &b, mlir::Value stream,
                                                   mlir::Value kv, bool qkNorm,
                                                   const LayerFormats &formats);

/// Norm, softmax top-k router, SwiGLU experts, residual. `over`: what the softmax runs over.
mlir::Value buildExperts(StepBuilder &b, mlir::Value stream, const ExpertNames &names,
                         moe::ScoreOver over, bool renormalize, const LayerFormats &formats);

/// A function for every kind of layer there is, made by `make`. Returns each layer's.
using MakeLayer = llvm::function_ref<std::pair<mlir::Value, mlir::Value>(
    mlir::Value stream, mlir::Value kv, const LayerFormats &formats)>;
std::vector<std::string> buildLayers(StepBuilder &b, MakeLayer make);

} // namespace megalith::models

#endif // MEGALITH_MODELS_DECODER_H
