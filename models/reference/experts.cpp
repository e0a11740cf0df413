//===- experts.cpp - Routing and the experts ------------------------------===//

#include "models/reference/experts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace megalith::reference {

namespace {

template <class T> std::vector<T> softmax(std::vector<T> z) {
  const T maximum = *std::max_element(z.begin(), z.end());
  T sum = 0;
  for (T &value : z) {
    value = std::exp(value - maximum);
    sum += value;
  }
  for (T &value : z)
    value /= sum;
  return z;
}

/// The k best experts in order. Stable sorting of ascending ids gives ties to the lower index.
std::vector<int32_t> select(std::span<const double> values, const TopKRule &rule) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  if (rule.tiesToHigher)
    std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return values[size_t(a)] > values[size_t(b)]; });
  const int64_t first = rule.skipBest && rule.k < int64_t(order.size()) ? 1 : 0;
  return {order.begin() + first, order.begin() + first + rule.k};
}

template <class T>
std::vector<T> weightsOf(const std::vector<T> &logits, const std::vector<T> &scores,
                         std::span<const int32_t> ids, const TopKRule &rule) {
  std::vector<T> weights;
  for (int32_t id : ids)
    weights.push_back(rule.score == TopKRule::Score::SoftmaxSelected ? logits[size_t(id)]
                                                                     : scores[size_t(id)]);
  if (rule.score == TopKRule::Score::SoftmaxSelected)
    weights = softmax(weights);
  if (rule.renormalize) {
    const T sum = std::accumulate(weights.begin(), weights.end(), T(0)) + T(rule.renormalizeEps);
    for (T &weight : weights)
      weight /= sum;
  }
  for (T &weight : weights)
    weight *= T(rule.scale);
  return weights;
}

template <class T> T activate(T gate, const GluRule &rule, Inner inner) {
  switch (rule.activation) {
  case GluRule::Activation::Silu:
    return gate / (T(1) + exponential(-gate, inner));
  case GluRule::Activation::ScaledSilu:
    return gate / (T(1) + exponential(-T(rule.alpha) * gate, inner));
  case GluRule::Activation::GeluTanh:
    break;
  }
  const T u = T(0.7978845608028654) * (gate + T(0.044715) * gate * gate * gate);
  return T(0.5) * gate * (T(1) + std::tanh(u));
}

} // namespace

Routing topK(const Matrix &logits, const TopKRule &rule, std::span<const double> bias,
             const ExpertIds *replay, const Context &context) {
  Routing routing{logits, logits, ExpertIds(size_t(logits.rows * rule.k), -1),
                  Matrix(logits.rows, rule.k)};
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < logits.rows; ++r) {
      if (!context.live(r))
        continue;
      const std::span<const double> row = logits.row(r);
      const std::vector<T> z(row.begin(), row.end());
      std::vector<T> scores = z;
      if (rule.score == TopKRule::Score::Sigmoid)
        for (T &value : scores)
          value = T(1) / (T(1) + exponential(-value, context.inner));
      else
        scores = softmax(scores);
      if (!bias.empty())
        for (size_t e = 0; e < scores.size(); ++e) {
          const T biased = scores[e] + T(bias[e]);
          routing.selection.at(r, int64_t(e)) = double(rule.ignoreBias ? scores[e] : biased);
          if (rule.biasInWeights)
            scores[e] = biased;
        }
      const std::span<int32_t> ids(routing.ids.data() + r * rule.k, size_t(rule.k));
      if (replay)
        std::copy_n(replay->begin() + r * rule.k, rule.k, ids.begin());
      else
        std::ranges::copy(select(routing.selection.row(r), rule), ids.begin());
      std::ranges::copy(weightsOf(z, scores, ids, rule), routing.weights.row(r).begin());
    }
  });
  return routing;
}

Matrix expertLinear(const Matrix &x, const ExpertIds &ids, int64_t k, int64_t outputs,
                    const std::function<WeightView(int32_t)> &weightOf,
                    const std::function<std::vector<double>(int32_t)> &biasOf, Element element,
                    const Context &context) {
  const bool perPair = x.rows == int64_t(ids.size());
  std::map<int32_t, std::vector<int64_t>> pairsOf;
  for (size_t p = 0; p < ids.size(); ++p)
    if (ids[p] >= 0)
      pairsOf[ids[p]].push_back(int64_t(p));
  Matrix out(int64_t(ids.size()), outputs);
  std::vector<Projection> projections;
  for (const auto &[expert, pairs] : pairsOf) {
    Projection &projection = projections.emplace_back();
    projection.weight = weightOf(expert);
    projection.outRows = pairs;
    for (int64_t p : pairs)
      projection.xRows.push_back(perPair ? p : p / k);
  }
  project(x, projections, out, context);
  for (const auto &[expert, pairs] : pairsOf) {
    const std::vector<double> bias = biasOf ? biasOf(expert) : std::vector<double>();
    withArithmetic(context.precision, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t p : pairs)
        for (int64_t n = 0; n < outputs; ++n) {
          T y = T(out.at(p, n));
          if (!bias.empty())
            y += T(bias[size_t(n)]);
          out.at(p, n) = context.store(double(y), element);
        }
    });
  }
  return out;
}

Matrix glu(const Matrix &gate, const Matrix &up, const GluRule &rule, Element element,
           const Context &context) {
  Matrix out(gate.rows, gate.columns);
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < out.values.size(); ++i) {
      T g = T(gate.values[i]), u = T(up.values[i]);
      if (rule.swapped)
        std::swap(g, u);
      if (rule.clamp) {
        g = std::min(g, T(*rule.clamp));
        u = std::clamp(u, T(-*rule.clamp), T(*rule.clamp));
      }
      out.values[i] =
          context.store(double(activate(g, rule, context.inner) * (u + T(rule.upOffset))), element);
    }
  });
  return out;
}

Matrix combine(const Matrix &weights, const Matrix &y, const CombineRule &rule, Element element,
               const Context &context) {
  Matrix out(weights.rows, y.columns);
  const int64_t k = weights.columns;
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < weights.rows; ++r) {
      if (!context.live(r))
        continue;
      for (int64_t c = 0; c < y.columns; ++c) {
        T sum = 0;
        for (int64_t slot = 0; slot < k; ++slot) {
          const T weight = rule.ignoreWeights ? T(1) / T(k) : T(weights.at(r, slot));
          T term = weight * T(y.at(r * k + slot, c));
          if (rule.roundEach)
            term = T(context.store(double(term), element));
          sum += term;
          if (rule.roundEach)
            sum = T(context.store(double(sum), element));
        }
        out.at(r, c) = context.store(double(sum), element);
      }
    }
  });
  return out;
}

} // namespace megalith::reference
