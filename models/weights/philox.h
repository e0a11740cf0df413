//===- philox.h - Deterministic weights from a counter hash ------*- C++ -*-===//
//
// DESIGN section 5: a weight is a pure function of (seed, checkpoint name, element index), so that
// NumPy, the evaluator and a kernel agree bit by bit without a checkpoint. Only integer arithmetic
// and one exact multiplication by a power of two: nothing here depends on rounding mode, fused
// multiply-add or a maths library. Compiles as host C++ and as CUDA (offline or NVRTC; the latter
// must have uint32_t and uint64_t declared before).
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_WEIGHTS_PHILOX_H
#define MEGALITH_MODELS_WEIGHTS_PHILOX_H

#ifndef __CUDACC_RTC__
#include <cstdint>
#endif

#ifdef __CUDACC__
#define MEGALITH_PHILOX_FN __host__ __device__ inline
#else
#define MEGALITH_PHILOX_FN inline
#endif

namespace megalith::models {

/// The four output words of one Philox block.
struct PhiloxBlock {
  uint32_t word[4];
};

/// Added to the two key words after each round.
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

/// One round on the counter c0 .. c3.
MEGALITH_PHILOX_FN void philoxRound(uint32_t key0, uint32_t key1, uint32_t &c0, uint32_t &c1,
                                    uint32_t &c2, uint32_t &c3) {
  const uint64_t product0 = uint64_t(0xD2511F53u) * c0;
  const uint64_t product1 = uint64_t(0xCD9E8D57u) * c2;
  c0 = uint32_t(product1 >> 32) ^ c1 ^ key0;
  c1 = uint32_t(product1);
  c2 = uint32_t(product0 >> 32) ^ c3 ^ key1;
  c3 = uint32_t(product0);
}

/// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
/// `key0`, `key1` form the key, `c0` to `c3` the counter.
MEGALITH_PHILOX_FN PhiloxBlock philox4x32(uint32_t key0, uint32_t key1, uint32_t c0, uint32_t c1,
                                          uint32_t c2, uint32_t c3) {
  for (int round = 0; round < 10; ++round) {
    philoxRound(key0, key1, c0, c1, c2, c3);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return PhiloxBlock{{c0, c1, c2, c3}};
}

/// FNV-1a, 32 bits, of `length` bytes at `text`: the second key word of a tensor.
MEGALITH_PHILOX_FN uint32_t fnv1a32(const char *text, uint64_t length) {
  uint32_t hash = 0x811C9DC5u;
  for (uint64_t i = 0; i < length; ++i)
    hash = (hash ^ uint32_t(static_cast<unsigned char>(text[i]))) * 0x01000193u;
  return hash;
}

/// Output word 0 of the block that belongs to element `index`.
MEGALITH_PHILOX_FN uint32_t hashWord(uint32_t seed, uint32_t nameHash, uint64_t index) {
  return philox4x32(seed, nameHash, uint32_t(index), uint32_t(index >> 32), 0, 0).word[0];
}

/// r16((2u - 1) * scale) with u = (top 24 bits of `word`) / 2^24; `scale` is a power of two.
///
/// (2u - 1) * 2^24 is an even integer m of at most 25 bits. It is rounded to bf16's eight
/// significant bits, to nearest, ties to even, while still an integer; what is left is exact.
MEGALITH_PHILOX_FN float weightFromWord(uint32_t word, float scale) {
  const uint32_t twice = (word >> 8) << 1;
  const bool negative = twice < 0x1000000u;
  uint32_t m = negative ? 0x1000000u - twice : twice - 0x1000000u;
  // shift = max(0, bit length of m - 8), found by halving.
  uint32_t shift = 0;
  uint32_t rest = m >> 8;
  if (rest >> 8) {
    shift += 8;
    rest >>= 8;
  }
  if (rest >> 4) {
    shift += 4;
    rest >>= 4;
  }
  if (rest >> 2) {
    shift += 2;
    rest >>= 2;
  }
  if (rest >> 1) {
    shift += 1;
    rest >>= 1;
  }
  shift += rest;
  if (shift != 0) {
    const uint32_t odd = (m >> shift) & 1u;
    m = (m + (1u << (shift - 1)) - 1u + odd) >> shift << shift;
  }
  const float magnitude = float(m) * (scale * 0x1p-24f);
  return negative ? -magnitude : magnitude;
}

/// Element `index` (row-major in the unsharded checkpoint tensor) of the tensor whose checkpoint
/// name hashes to `nameHash`. The result is a bf16 number.
MEGALITH_PHILOX_FN float weightValue(uint32_t seed, uint32_t nameHash, uint64_t index,
                                     float scale) {
  return weightFromWord(hashWord(seed, nameHash, index), scale);
}

/// 2^round(log2 sqrt(3 / k)) for a contraction width `k` >= 1: outputs of a row of uniform weights
/// keep about the variance of their inputs. Halves round away from zero, so k = 1536 gives 2^-5.
/// Decided in integers: the scale is 2^-e with e the number of i >= 0 for which k >= 3 * 2^(2i+1).
MEGALITH_PHILOX_FN float weightScale(uint64_t k) {
  if (k == 1)
    return 2.0f;
  float scale = 1.0f;
  for (uint64_t bound = 6; k >= bound && scale > 0x1p-28f; bound <<= 2)
    scale *= 0.5f;
  return scale;
}

/// The scale of norm gains, which are r16(1 + w): small enough to keep every gain in [15/16,
/// 17/16], large enough that a forgotten gain changes a layer by percents.
constexpr float kGainScale = 0x1p-4f;

/// The scale of KV contents made up for a test: about the spread of a normalised key.
constexpr float kKvScale = 1.0f;

/// KV contents: element index of (sequence, position, KV head, channel) in the tensor
/// "kv.{layer}.k" or "kv.{layer}.v", which reserves 2^20 positions a sequence, so that a value
/// does not depend on how long a run is.
MEGALITH_PHILOX_FN uint64_t kvIndex(uint64_t sequence, uint64_t position, uint64_t kvHeads,
                                    uint64_t headDim, uint64_t head, uint64_t channel) {
  return (((sequence << 20) + position) * kvHeads + head) * headDim + channel;
}

/// The made-up token of (sequence, position), in [0, vocab): the tensor "tokens".
MEGALITH_PHILOX_FN uint32_t hashedToken(uint32_t seed, uint64_t sequence, uint64_t position,
                                        uint32_t vocab) {
  return hashWord(seed, fnv1a32("tokens", 6), (sequence << 20) + position) % vocab;
}

} // namespace megalith::models

#undef MEGALITH_PHILOX_FN
#endif // MEGALITH_MODELS_WEIGHTS_PHILOX_H
