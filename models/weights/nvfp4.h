//===- nvfp4.h - Block-scaled weights and activations ------------*- C++ -*-===//
//
// NVFP4 as ModelOpt writes it (docs/spec/muse-spark-open.md section 7), and what MXFP4 and FP8 with
// block scales share with it: a number is code * scale of its block (* global factor).
//
//   | | code | block [rows, columns] | scale | global |
//   | NVFP4 | e2m1 | [1, 16] | e4m3 | fp32, one for a tensor, an expert, or its gate or up part |
//   | MXFP4 | e2m1 | [1, 32] | e8m0 | - |
//   | FP8 block | e4m3 | [128, 128], cut short at the edges | fp32 or bf16 | - |
//
// Codes of four bits lie two to a byte, the even column in the low half; scales row by row.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_WEIGHTS_NVFP4_H
#define MEGALITH_MODELS_WEIGHTS_NVFP4_H

#include "models/weights/weights.h"

namespace megalith::models {

/// How the numbers of a tensor are stored.
struct BlockFormat {
  enum class Code { E2m1, E4m3 };
  enum class Scale { E4m3, E8m0, F32, Bf16 };

  Code code;
  int64_t blockRows, blockColumns;
  Scale scale;
  bool global; ///< a further fp32 factor

  static constexpr BlockFormat nvfp4() { return {Code::E2m1, 1, 16, Scale::E4m3, true}; }
  static constexpr BlockFormat mxfp4() { return {Code::E2m1, 1, 32, Scale::E8m0, false}; }
  static constexpr BlockFormat fp8Block(Scale scale = Scale::F32) {
    return {Code::E4m3, 128, 128, scale, false};
  }
  bool operator==(const BlockFormat &) const = default;

  /// Bytes of the codes of a row. E2m1 rows have an even number of columns.
  int64_t codeBytes(int64_t columns) const { return code == Code::E2m1 ? columns / 2 : columns; }
  /// Blocks that a row of `columns` columns, or `rows` rows, touch.
  int64_t blocksAcross(int64_t columns) const {
    return (columns + blockColumns - 1) / blockColumns;
  }
  int64_t blocksDown(int64_t rows) const { return (rows + blockRows - 1) / blockRows; }
  int64_t scaleBytes() const { return scale == Scale::F32 ? 4 : scale == Scale::Bf16 ? 2 : 1; }
};

/// The value of a stored scale at `at` (little-endian).
float scaleValue(BlockFormat::Scale scale, const unsigned char *at);

/// One row decoded: code * scale, a single fp32 product (exact, and a bf16 number, for NVFP4 and
/// MXFP4 whose result is normal). `codes`: codeBytes; `scales`: those of the row's blocks.
void decodeRow(const BlockFormat &format, std::span<const uint8_t> codes,
               std::span<const uint8_t> scales, std::span<float> out);

/// NVFP4 codes (bytes: half as many as values) and scales (a sixteenth) of a row. `global` is the
/// tensor's nvfp4Global, or of activations the calibrated input scale (spec section 7.3); the
/// number of values is a multiple of 16. A NaN makes its block's scale NaN.
void quantizeNvfp4(std::span<const float> values, float global, std::span<uint8_t> codes,
                   std::span<uint8_t> scales);

/// An activation row as the W4A4 product sees it: each value replaced by code * scale, to be
/// multiplied, with the weight's, by inputScale * weight_scale_2 after the sum (spec section 7.3).
void quantizeActivations(std::span<const float> values, float inputScale, std::span<float> out);

/// MXFP4 codes and scales of a row; a multiple of 32 values.
void quantizeMxfp4(std::span<const float> values, std::span<uint8_t> codes,
                   std::span<uint8_t> scales);

/// A matrix [rows, columns] as e4m3 codes [rows, columns] and fp32 scales, one for each 128 x 128
/// block: scale = amax / 448 (1 for a block of zeros), code = e4m3(value / scale).
void quantizeFp8Blocks(std::span<const float> values, int64_t rows, int64_t columns,
                       std::span<uint8_t> codes, std::span<float> scales);

/// An opened block-scaled tensor. As a WeightTensor it reads as the format means it, with the
/// global factor: code * scale * global, both products rounded to fp32.
class BlockTensor : public WeightTensor {
public:
  BlockTensor(const BlockFormat &format, int64_t columns) : format(format), columns(columns) {}

  const BlockFormat format;
  const int64_t columns;

  /// Row `index` as it is stored: format.codeBytes(columns) bytes of codes, and the scales of the
  /// blocks that the row touches, blocksAcross * scaleBytes bytes.
  virtual void stored(int64_t index, std::span<uint8_t> codes, std::span<uint8_t> scales) const = 0;
  /// The global factor of row `index`; 1 where the format has none.
  virtual float global(int64_t index) const = 0;
  /// Whether the activations' scales are known: a checkpoint for bf16 activations has none.
  virtual bool hasInputScale() const = 0;
  /// The calibrated scale of the activations that meet row `index` (spec section 7.3); 1 where
  /// there is none.
  virtual float inputScale(int64_t index) const = 0;

  using WeightTensor::row;
  void row(int64_t index, std::span<float> out) const override;
  /// Row `index` without the global factor: what a kernel multiplies before it applies
  /// global(index) to the sum.
  void unscaledRow(int64_t index, std::span<float> out) const;
};

/// Global factor of made-up NVFP4 weights contracted over k: that of amax = weightScale(k), so the
/// same for all experts (DESIGN section 5).
float hashedGlobal(int64_t k);

/// Input scale of made-up NVFP4 weights: activations calibrated to 8 at most. What is larger
/// saturates, as in a real model.
inline constexpr float kHashedActivationMax = 8.0f;

} // namespace megalith::models

#endif // MEGALITH_MODELS_WEIGHTS_NVFP4_H
