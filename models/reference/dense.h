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
#include "models/weights/weights.h"

namespace megalith::reference {

/// Consecutive rows of an opened tensor: a matrix [out, in] or one expert's part of [E, out, in].
struct WeightView {
  const models::WeightTensor *tensor = nullptr;
  int64_t firstRow = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  Element element = Element::Bf16; ///< format of the weight; bf16 rounds what an F32 file holds
  WeightPrecision precision = WeightPrecision::AsStored; ///< counts in contract precision only
};

/// Rows of the embedding table [vocab, hidden] for the live rows' tokens, times `multiplier`.
Matrix embed(const WeightView &table, double multiplier, Element element, const Context &context);

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

/// The core of every projection: out[outRows[i]] = W x[xRows[i]] unrounded, for each of them.
void project(const Matrix &x, std::span<const Projection> projections, Matrix &out,
             const Context &context);

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

/// Logits: multiplier, softcap and vocabulary mask applied to x W^T (+ b).
Matrix head(const Matrix &x, const WeightView &weight, std::span<const double> bias,
            const HeadRule &rule, const Context &context);

/// A vector weight (gain, bias, gate) in full.
std::vector<double> readVector(const WeightView &weight, const Context &context);

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_DENSE_H
