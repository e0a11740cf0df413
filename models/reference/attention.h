//===- attention.h - Grouped-query attention over the cache ------*- C++ -*-===//
#ifndef MEGALITH_MODELS_REFERENCE_ATTENTION_H
#define MEGALITH_MODELS_REFERENCE_ATTENTION_H

#include "models/reference/context.h"
#include "models/reference/kv.h"
#include "models/reference/matrix.h"
#include "models/reference/rules.h"

namespace megalith::reference {

/// Writes each live row's key and value [rows, heads * head_dim] at its position. `element` is the
/// cache's.
void appendKv(KvStore &cache, const Matrix &key, const Matrix &value, Element element,
              const Context &context);

/// softmax(scale q.k) v per live row and query head over the keys its mask allows; the step's own
/// keys must be in the cache. `sinks` is empty or has a logit per query head that joins the
/// denominator only.
///
/// The keys 0 .. n-1 of a sequence (n - 1: its last live row's position) are cut into pieces of
/// 16 * ceil(ceil(n / 16) / 32), merged in ascending order (DESIGN section 5). A piece is taken in
/// units of 16 positions, each unit's probabilities relative to the largest score up to it. In
/// contract precision a probability enters the product with v as bf16 and the sum of probabilities
/// as fp32: which maximum it is relative to decides how it rounds, so the unit is part of the
/// contract.
Matrix attention(const Matrix &q, const KvStore &cache, const AttentionRule &rule,
                 std::span<const double> sinks, Element element, const Context &context);

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_ATTENTION_H
