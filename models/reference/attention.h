//===- attention.h - Grouped-query attention over the cache ------*- C++ -*-===//
#ifndef MEGALITH_MODELS_REFERENCE_ATTENTION_H
#define MEGALITH_MODELS_REFERENCE_ATTENTION_H

#include "models/reference/context.h"
#include "models/reference/kv.h"
#include "models/reference/matrix.h"
#include "models/reference/rules.h"

namespace megalith::reference {

/// What a cache's keys and values are divided by before they are rounded.
struct KvScales {
  double key = 1, value = 1;
};

/// Writes each live row's key and value [rows, heads * head_dim] at its position, divided in fp32
/// and rounded to `element`, the cache's.
void appendKv(KvStore &cache, const Matrix &key, const Matrix &value, Element element,
              const KvScales &scales, const Context &context);

/// softmax(scale q.k) v per live row and query head over the keys its mask allows; the step's own
/// keys must be in the cache. `sinks` is empty or has a logit per query head that joins the
/// denominator only.
/// Scores are q.k times (scale * key scale), and a chunk's sum of p v is multiplied by the value
/// scale when all its keys are in.
///
/// The keys 0 .. n-1 of a sequence (n - 1: its last live row's position) are cut into pieces of
/// 16 * ceil(ceil(n / 16) / 32), merged in ascending order (DESIGN section 5). With a window only
/// the n keys are cut from the unit on in which the window of the sequence's first live row begins.
/// A piece is taken in units of 16 positions. Its pairs of units are dealt to chunks in turn: to 8
/// / T, rounded down but at least 1, where T = ceil(live rows of the sequence * query heads per key
/// head / 8). Each unit's probabilities are relative to the largest score of the units of its chunk
/// up to it; chunks are merged in ascending order. In contract precision a probability enters the
/// product with v as bf16 and the sum of probabilities as fp32: which maximum it is relative to
/// decides how it rounds, so units and chunks are part of the contract. With a bound on scores
/// (`moe-bound-scores`) there is no maximum: all probabilities are relative to a score of 0.
Matrix attention(const Matrix &q, const KvStore &cache, const AttentionRule &rule,
                 std::span<const double> sinks, Element element, const Context &context);

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_ATTENTION_H
