//===- rules.h - What an operation computes ----------------------*- C++ -*-===//
//
// The attributes of the moe operations as plain structs, so that formulas can be tested without an
// IR. Fields under "faults only" have no attribute: planted faults (fault.h) set them.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_REFERENCE_RULES_H
#define MEGALITH_MODELS_REFERENCE_RULES_H

#include <cstdint>
#include <optional>

namespace megalith::reference {

/// The element type a value is declared with. E4m3: of caches only.
enum class Element { F32, Bf16, E4m3 };

/// x * rsqrt(mean x^2 + eps) * w; with w on the input first (input scaled); (x - mean) *
/// rsqrt(var + eps) * w + b (layer); all times scale. An absent weight is one, an absent bias zero.
struct NormRule {
  enum class Kind { Rms, RmsInputScaled, Layer };
  Kind kind = Kind::Rms;
  double eps = 0;
  int64_t group = 0;    ///< channels that share one statistic, 0: all; weights have as many
  bool onePlus = false; ///< the gain is r16(1 + w)
  double scale = 1;
  Element scaledAs = Element::Bf16; ///< type that x * w is rounded to (input scaled)
  // faults only
  bool ignoreWeight = false;
  bool omitted = false;
};

struct RopeRule {
  enum class Pairing { HalfSplit, Adjacent };
  Pairing pairing = Pairing::HalfSplit;
  int64_t headDim = 0;
  int64_t rotaryDims = 0;
  double theta = 0;
};

struct AttentionRule {
  enum class Mask { Full, Window, Chunk };
  int64_t heads = 0;
  double scale = 0;
  Mask mask = Mask::Full;
  int64_t extent = 0;
  bool bounded = false; ///< probabilities are relative to a score of 0, not to the largest so far
  double keyScale = 1, valueScale = 1; ///< a cache holds keys and values divided by these
  // faults only
  int64_t causalShift = 0;       ///< the last key seen is position + this
  int64_t valueShift = 0;        ///< the value of key j is read at j + this
  bool interleavedHeads = false; ///< query head h reads KV head h mod kv_heads
};

struct TopKRule {
  enum class Score { SoftmaxAll, SoftmaxSelected, Sigmoid };
  Score score = Score::SoftmaxAll;
  int64_t k = 0;
  bool renormalize = false;
  double renormalizeEps = 0;
  double scale = 1;
  // faults only
  bool tiesToHigher = false;
  bool skipBest = false;      ///< selects places 2 .. k + 1
  bool ignoreBias = false;    ///< selects by the score alone
  bool biasInWeights = false; ///< a weight is score + bias
};

struct GluRule {
  enum class Activation { Silu, GeluTanh, ScaledSilu };
  Activation activation = Activation::Silu;
  std::optional<double> clamp;
  double alpha = 1;
  double upOffset = 0;
  // faults only
  bool swapped = false; ///< gate and up change places
};

/// s + scale * (sum of branches), or per channel alpha s + beta branch from a gate vector:
/// u = gate / temperature, beta = sigmoid(u), alpha = sqrt(max(sigmoid(-u) (1 + beta), floor)).
struct ResidualRule {
  bool gated = false;
  double scale = 1;
  double temperature = 1;
  double floor = 0;
  // faults only
  bool dropStream = false;
  bool swapped = false; ///< alpha and beta change places
};

/// x * sigmoid(gate).
struct OutputGateRule {
  std::optional<Element> roundGate; ///< sigmoid(gate) is rounded to this first
  // faults only
  bool omitted = false;
};

struct CombineRule {
  bool roundEach = false; ///< every product and sum is rounded to the result's type
  // faults only
  bool ignoreWeights = false; ///< every expert counts 1 / k
};

/// (x W^T + b) clamped to [-clip, clip] if clip > 0, times multiplier.
struct LinearRule {
  double clip = 0;
  double multiplier = 1;
};

/// What a matrix unit makes of a weight that is wider than its operands.
enum class WeightPrecision {
  AsStored,
  TF32,  ///< rounded to 10 mantissa bits, ties to even
  BF16x2 ///< r16(w) + r16(w - r16(w))
};

struct HeadRule {
  double multiplier = 1;
  std::optional<double> softcap;
  std::optional<int64_t> validVocab;
};

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_RULES_H
