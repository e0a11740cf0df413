// The closed choices an operation may make; each prints as a bare word.
#ifndef MEGALITH_IR_MOE_ENUMS_TD
#define MEGALITH_IR_MOE_ENUMS_TD

include "ir/moe/MoeBase.td"

class MOE_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let genSpecializedAttr = 0;
  let cppNamespace = "::megalith::moe";
}
// Such an attribute prints a space of its own, so operations put an empty literal in front of it.
class MOE_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<Moe_Dialect, info, mnemonic>;

def MOE_NormKind : MOE_Enum<"NormKind", "formula of a norm over n channels", [
  I32EnumAttrCase<"Rms", 0, "rms">,                         // x * rsqrt(mean x^2 + eps) * w
  I32EnumAttrCase<"RmsInputScaled", 1, "rms_input_scaled">, // t = r(x * w); t * rsqrt(mean t^2 + eps)
  I32EnumAttrCase<"RmsWeightless", 2, "rms_weightless">,    // x * rsqrt(mean x^2 + eps)
  I32EnumAttrCase<"Layer", 3, "layer">,                     // (x - mean) * rsqrt(var + eps) * w
  I32EnumAttrCase<"LayerBias", 4, "layer_bias">             // the same + b
]>;
def MOE_NormKindAttr : MOE_EnumAttr<MOE_NormKind, "norm_kind">;

def MOE_NormOver : MOE_Enum<"NormOver", "channels that share one statistic", [
  I32EnumAttrCase<"Row", 0, "row">, I32EnumAttrCase<"Head", 1, "head">
]>;
def MOE_NormOverAttr : MOE_EnumAttr<MOE_NormOver, "norm_over">;

def MOE_Gain : MOE_Enum<"Gain", "how a norm's weight enters", [
  I32EnumAttrCase<"Absolute", 0, "absolute">, // w
  I32EnumAttrCase<"OnePlus", 1, "one_plus">   // r16(1 + w), as stored zero-centred
]>;
def MOE_GainAttr : MOE_EnumAttr<MOE_Gain, "gain">;

def MOE_RopePairing : MOE_Enum<"RopePairing", "which two channels of a head rotate together", [
  I32EnumAttrCase<"HalfSplit", 0, "half_split">, // (j, j + rotary_dims / 2)
  I32EnumAttrCase<"Adjacent", 1, "adjacent">     // (2j, 2j + 1)
]>;
def MOE_RopePairingAttr : MOE_EnumAttr<MOE_RopePairing, "rope_pairing">;

def MOE_RopeScalingKind : MOE_Enum<"RopeScalingKind", "how rotary frequencies are stretched", [
  I32EnumAttrCase<"Linear", 0, "linear">, I32EnumAttrCase<"Yarn", 1, "yarn">,
  I32EnumAttrCase<"Llama3", 2, "llama3">, I32EnumAttrCase<"LongRope", 3, "longrope">
]>;

def MOE_AttentionMask : MOE_Enum<"AttentionMask", "keys that a query at position p may see", [
  I32EnumAttrCase<"Full", 0, "full">,     // 0 .. p
  I32EnumAttrCase<"Window", 1, "window">, // p - extent + 1 .. p, its own key included
  I32EnumAttrCase<"Chunk", 2, "chunk">    // floor(p / extent) * extent .. p
]>;
def MOE_AttentionMaskAttr : MOE_EnumAttr<MOE_AttentionMask, "attention_mask">;

def MOE_ResidualKind : MOE_Enum<"ResidualKind", "how branches join the residual stream s", [
  I32EnumAttrCase<"Plain", 0, "plain">,   // s + sum of branches
  I32EnumAttrCase<"Scaled", 1, "scaled">, // s + scale * sum of branches
  I32EnumAttrCase<"Gated", 2, "gated">    // alpha * s + beta * branch, both from a gate vector
]>;
def MOE_ResidualKindAttr : MOE_EnumAttr<MOE_ResidualKind, "residual_kind">;

def MOE_RouterPrecision : MOE_Enum<"RouterPrecision", "how a router's products are formed", [
  I32EnumAttrCase<"F32", 0, "f32">,      // fp32 weights as they are
  I32EnumAttrCase<"TF32", 1, "tf32">,    // weights rounded to 10 mantissa bits
  I32EnumAttrCase<"BF16x2", 2, "bf16x2"> // w = r16(w) + r16(w - r16(w)), two bf16 products
]>;
def MOE_RouterPrecisionAttr : MOE_EnumAttr<MOE_RouterPrecision, "router_precision">;

def MOE_Score : MOE_Enum<"Score", "expert score from router logits z", [
  I32EnumAttrCase<"Softmax", 0, "softmax">, I32EnumAttrCase<"Sigmoid", 1, "sigmoid">
]>;
def MOE_ScoreAttr : MOE_EnumAttr<MOE_Score, "score">;

def MOE_ScoreOver : MOE_Enum<"ScoreOver", "experts that a softmax is taken over", [
  I32EnumAttrCase<"All", 0, "all">, I32EnumAttrCase<"Selected", 1, "selected">
]>;
def MOE_ScoreOverAttr : MOE_EnumAttr<MOE_ScoreOver, "score_over">;

def MOE_Activation : MOE_Enum<"Activation", "nonlinearity of a gated linear unit", [
  I32EnumAttrCase<"Silu", 0, "silu">,        // g / (1 + exp(-g))
  I32EnumAttrCase<"GeluTanh", 1, "gelu_tanh">,
  I32EnumAttrCase<"ScaledSilu", 2, "scaled_silu"> // g / (1 + exp(-alpha g))
]>;
def MOE_ActivationAttr : MOE_EnumAttr<MOE_Activation, "activation">;

#endif
