//===- dense.h - Norms, projections, rope, residual --------------*- C++ -*-===//
//
// Each function takes and returns matrices of [rows, channels] and rounds its result once, to
// `element`, as the context's precision says (docs/spec/models.md section 1b). Dead rows give zeros
// unless a bias says otherwise; nothing downstream reads them.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_REFERENCE_DENSE_H
#define MEGALITH_MODELS_REFERENCE_DENSE_H

#include "models/reference/context.h"
#include "models/reference/matrix.h"
#include "models/reference/rules.h"
#include "models/weights/nvfp4.h"
#include "models/weights/weights.h"

namespace megalith::reference {

/// Consecutive rows of an opened tensor, whole or cut to consecutive columns: a matrix [out, in] or
/// one expert's part of [E, out, in], or what a rank has of it.
struct WeightView {
  const models::WeightTensor *tensor = nullptr;
  int64_t firstRow = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t firstColumn = 0;
  int64_t tensorColumns = 0; ///< of the tensor; 0: as many as the view has
  /// The same tensor, if it is block-scaled: products are formed with code * scale, and the global
  /// factor is applied to their sum.
  const models::BlockTensor *blocks = nullptr;
  Element element = Element::Bf16; ///< format of the weight; bf16 rounds what an F32 file holds
  WeightPrecision precision = WeightPrecision::AsStored; ///< counts in contract precision only
};

/// Rows of the embedding table [vocab, hidden] for the live rows' tokens, times `multiplier`; zeros
/// for tokens outside of the table's rows, which begin with token `firstToken`.
Matrix embed(const WeightView &table, double multiplier, int64_t firstToken, Element element,
             const Context &context);

/// Normalises each group of rule.group channels. `weight` and `bias` are empty or have one element
/// per channel of a group.
Matrix norm(const Matrix &x, const NormRule &rule, std::span<const double> weight,
            std::span<const double> bias, Element element, const Context &context);

/// x W^T (+ b), live rows only; `bias` is empty or has one element per output.
Matrix linear(const Matrix &x, const WeightView &weight, std::span<const double> bias,
              const LinearRule &rule, Element element, const Context &context);

/// A weight and the rows it meets: row xRows[i] of the input gives row outRows[i] of the output.
struct Projection {
  WeightView weight;
  std::vector<int64_t> xRows, outRows;
};

/// The core of every projection: out[outRows[i]] = W x[xRows[i]] unrounded, for each of them. Sums
/// of quantised operands are multiplied once, by the product of their factors.
void project(const Matrix &x, std::span<const Projection> projections, Matrix &out,
             const Context &context);

/// x W^T of a rank that has consecutive columns of W, as sums of `partials` equal chunks side by
/// side, each in ascending order: [rows, partials * W.rows], fp32.
Matrix partialSums(const Matrix &x, const WeightView &weight, int64_t partials,
                   const Context &context);

/// Sum over ranks and each rank's `partials` sums, in ascending order, rounded once.
Matrix allReduce(std::span<const Matrix *const> ranks, int64_t partials, Element element,
                 const Context &context);

/// Channels of all ranks side by side.
Matrix allGather(std::span<const Matrix *const> ranks);

/// Sums of squares of `chunk` channels each, of x or, with a gain, of x * gain as an input-scaled
/// norm rounds it.
Matrix squareSums(const Matrix &x, const NormRule &rule, int64_t chunk,
                  std::span<const double> weight, const Context &context);

/// A norm whose mean square over `width` channels comes from `sums`, added in ascending order.
Matrix normWithSums(const Matrix &x, const NormRule &rule, const Matrix &sums, int64_t width,
                    std::span<const double> weight, Element element, const Context &context);

/// Each row in NVFP4: code * block scale, with the row's global scale as its factor. `globals` has
/// one for every row. Quantised in every precision.
Matrix quantize(const Matrix &x, std::span<const double> globals);

/// Rotates the first rotary_dims channels of every head by the row's position.
Matrix rope(const Matrix &x, const RopeRule &rule, Element element, const Context &context);

/// x in another element type.
Matrix cast(const Matrix &x, Element element, const Context &context);

/// x * sigmoid(gate); a gate channel covers x.columns / gate.columns channels of x.
Matrix outputGate(const Matrix &x, const Matrix &gate, const OutputGateRule &rule, Element element,
                  const Context &context);

/// Joins branches into the residual stream; `gate` is used by the gated kind only.
Matrix residual(const Matrix &stream, std::span<const Matrix *const> branches,
                const ResidualRule &rule, std::span<const double> gate, Element element,
                const Context &context);

/// Logits: multiplier, softcap and vocabulary mask applied to x W^T (+ b). The weight's rows begin
/// with id `firstId`.
Matrix head(const Matrix &x, const WeightView &weight, std::span<const double> bias,
            const HeadRule &rule, int64_t firstId, const Context &context);

/// A vector weight (gain, bias, gate) in full.
std::vector<double> readVector(const WeightView &weight, const Context &context);

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_DENSE_H
