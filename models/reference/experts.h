//===- experts.h - Routing and the experts -----------------------*- C++ -*-===//
//
// R rows, k experts a row, P = R * k pairs; pair row * k + slot is the slot-th expert of that row.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_REFERENCE_EXPERTS_H
#define MEGALITH_MODELS_REFERENCE_EXPERTS_H

#include "models/reference/dense.h"

#include <functional>

namespace megalith::reference {

/// Expert ids [R * k] in slot order; -1 in dead rows.
using ExpertIds = std::vector<int32_t>;

/// A layer's routing, as the kernel's optional `routing_out` (DESIGN section 5).
struct Routing {
  Matrix logits;    ///< [R, E], unrounded
  Matrix selection; ///< [R, E]: what was compared, logits or score + bias
  ExpertIds ids;    ///< [R, k]
  Matrix weights;   ///< [R, k]
};

/// Chooses k experts a row in descending selection value, ties to the lower index; the selection
/// value is the logit or, with `bias` [E], score + bias. A weight is the expert's score without
/// bias, renormalised as the rule says. With `replay` the ids are given and only weights computed,
/// from these logits.
Routing topK(const Matrix &logits, const TopKRule &rule, std::span<const double> bias,
             const ExpertIds *replay, const Context &context);

/// y[p] = W_e x[p's source] (+ b_e) for every pair with an expert e = ids[p]; other pairs are zero.
/// Source row: p / k if `x` has one row per row of the step, p if it has one per pair. `weightOf`
/// and `biasOf` give an expert's weights; `biasOf` may be empty.
Matrix expertLinear(const Matrix &x, const ExpertIds &ids, int64_t k, int64_t outputs,
                    const std::function<WeightView(int32_t)> &weightOf,
                    const std::function<std::vector<double>(int32_t)> &biasOf, Element element,
                    const Context &context);

/// activation(gate) * (up + up_offset), clamped first if the rule says so.
Matrix glu(const Matrix &gate, const Matrix &up, const GluRule &rule, Element element,
           const Context &context);

/// Sum over a row's slots, in slot order, of weight * y.
Matrix combine(const Matrix &weights, const Matrix &y, const CombineRule &rule, Element element,
               const Context &context);

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_EXPERTS_H
