//===- dense.cpp - Norms, projections, rope, residual ---------------------===//

#include "models/reference/dense.h"

#include "models/reference/parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace megalith::reference {

namespace {

/// `value` with 10 mantissa bits, to nearest, ties to even.
float roundTF32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0xFFFu + ((bits >> 13) & 1u)) & ~0x1FFFu);
}

float inPrecision(float value, WeightPrecision precision) {
  switch (precision) {
  case WeightPrecision::AsStored:
    return value;
  case WeightPrecision::TF32:
    return roundTF32(value);
  case WeightPrecision::BF16x2:
    break;
  }
  const float high = models::r16(value);
  return high + models::r16(value - high); // at most 24 bits: exact
}

/// One row of a weight in the arithmetic type, without its global factor. `scratch` is for reuse.
template <class T>
void readRow(const WeightView &view, int64_t row, const Context &context,
             std::vector<float> &scratch, T *out) {
  scratch.resize(size_t(view.tensorColumns ? view.tensorColumns : view.columns));
  if (view.blocks)
    view.blocks->unscaledRow(view.firstRow + row, scratch);
  else
    view.tensor->row(view.firstRow + row, std::span<float>(scratch));
  const float *from = scratch.data() + view.firstColumn;
  const bool contract = context.precision == Precision::Contract;
  const bool round = contract && view.element == Element::Bf16;
  for (int64_t i = 0; i < view.columns; ++i)
    out[i] = T(round ? models::r16(from[i]) : from[i]);
  if (contract && view.precision != WeightPrecision::AsStored)
    for (int64_t i = 0; i < view.columns; ++i)
      out[i] = T(inPrecision(float(out[i]), view.precision));
}

template <class T> std::vector<T> toArithmetic(std::span<const double> values) {
  return std::vector<T>(values.begin(), values.end());
}

/// x * weight as an input-scaled norm rounds it.
template <class T>
void scaleInput(std::vector<T> &x, std::span<const T> weight, const NormRule &rule,
                const Context &context) {
  if (rule.kind == NormRule::Kind::RmsInputScaled && !weight.empty())
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = T(context.store(double(x[i] * weight[i]), rule.scaledAs));
}

/// The gain in the arithmetic type, as the rule has it.
template <class T>
std::vector<T> gainOf(std::span<const double> weight, const NormRule &rule,
                      const Context &context) {
  std::vector<T> gain = toArithmetic<T>(rule.ignoreWeight ? std::span<const double>() : weight);
  if (rule.onePlus)
    for (T &value : gain)
      value = T(context.store(double(T(1) + value), Element::Bf16));
  return gain;
}

/// One group of channels, in place of the formulas in NormRule. `given`: its mean square, or null.
template <class T>
void normGroup(std::span<const double> in, const NormRule &rule, std::span<const T> weight,
               std::span<const T> bias, Element element, const Context &context,
               std::span<double> out, const T *given = nullptr) {
  const int64_t n = rule.group;
  std::vector<T> x = toArithmetic<T>(in);
  const bool inputScaled = rule.kind == NormRule::Kind::RmsInputScaled;
  scaleInput(x, weight, rule, context);
  if (rule.kind == NormRule::Kind::Layer) {
    const std::vector<T> ones(size_t(n), T(1));
    const T mean = canonicalDot(x.data(), ones.data(), n) / T(n);
    for (T &value : x)
      value -= mean;
  }
  const bool ascending = context.inner == Inner::Ascending;
  const T meanSquare = given       ? *given
                       : ascending ? canonicalDot(x.data(), x.data(), n) / T(n)
                                   : innerDot(x.data(), x.data(), n, context.inner, 1) / T(n);
  const T inverse = context.inner == Inner::Paired ? std::sqrt(T(1) / (meanSquare + T(rule.eps)))
                                                   : T(1) / std::sqrt(meanSquare + T(rule.eps));
  for (int64_t i = 0; i < n; ++i) {
    T y = x[size_t(i)] * inverse;
    if (!weight.empty() && !inputScaled)
      y *= weight[size_t(i)];
    if (!bias.empty())
      y += bias[size_t(i)];
    out[size_t(i)] = context.store(double(y * T(rule.scale)), element);
  }
}

std::vector<int64_t> liveRows(const Context &context) {
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < context.rows(); ++r)
    if (context.live(r))
      rows.push_back(r);
  return rows;
}

template <class T> T sigmoid(T x, Inner inner) {
  return T(1) / (T(1) + exponential(-x, inner));
}

} // namespace

std::vector<double> readVector(const WeightView &weight, const Context &context) {
  std::vector<float> scratch;
  std::vector<double> values(static_cast<size_t>(weight.columns));
  readRow<double>(weight, 0, context, scratch, values.data());
  return values;
}

Matrix embed(const WeightView &table, double multiplier, int64_t firstToken, Element element,
             const Context &context) {
  Matrix out(context.rows(), table.columns);
  std::vector<float> scratch;
  for (int64_t r : liveRows(context)) {
    std::span<double> row = out.row(r);
    const int64_t index = context.step->rows[size_t(r)].token - firstToken;
    if (index < 0 || index >= table.rows)
      continue;
    readRow<double>(table, index, context, scratch, row.data());
    withArithmetic(context.precision, [&](auto zero) {
      using T = decltype(zero);
      for (double &value : row)
        value = context.store(double(T(value) * T(multiplier)), element);
    });
  }
  return out;
}

Matrix norm(const Matrix &x, const NormRule &given, std::span<const double> weight,
            std::span<const double> bias, Element element, const Context &context) {
  Matrix out(x.rows, x.columns);
  NormRule rule = given;
  if (rule.group == 0)
    rule.group = x.columns;
  if (rule.omitted)
    return cast(x, element, context);
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> w = gainOf<T>(weight, rule, context);
    const std::vector<T> b = toArithmetic<T>(bias);
    for (int64_t r = 0; r < x.rows; ++r)
      for (int64_t first = 0; first < x.columns; first += rule.group)
        normGroup<T>(x.row(r).subspan(size_t(first), size_t(rule.group)), rule, w, b, element,
                     context, out.row(r).subspan(size_t(first), size_t(rule.group)));
  });
  return out;
}

Matrix squareSums(const Matrix &x, const NormRule &rule, int64_t chunk,
                  std::span<const double> weight, const Context &context) {
  Matrix out(x.rows, x.columns / chunk);
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> w = gainOf<T>(weight, rule, context);
    for (int64_t r = 0; r < x.rows; ++r) {
      std::vector<T> t = toArithmetic<T>(x.row(r));
      scaleInput<T>(t, w, rule, context);
      for (int64_t c = 0; c < out.columns; ++c) {
        T sum = 0;
        for (int64_t i = c * chunk; i < (c + 1) * chunk; ++i)
          sum += t[size_t(i)] * t[size_t(i)];
        out.at(r, c) = double(sum);
      }
    }
  });
  return out;
}

Matrix normWithSums(const Matrix &x, const NormRule &rule, const Matrix &sums, int64_t width,
                    std::span<const double> weight, Element element, const Context &context) {
  Matrix out(x.rows, x.columns);
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> w = gainOf<T>(weight, rule, context);
    for (int64_t r = 0; r < x.rows; ++r) {
      T sum = T(sums.at(r, 0));
      for (int64_t c = 1; c < sums.columns; ++c)
        sum += T(sums.at(r, c));
      const T meanSquare = sum / T(width);
      normGroup<T>(x.row(r), rule, w, {}, element, context, out.row(r), &meanSquare);
    }
  });
  return out;
}

Matrix quantize(const Matrix &x, std::span<const double> globals) {
  Matrix out(x.rows, x.columns);
  std::vector<float> row(static_cast<size_t>(x.columns)), coded(row.size());
  for (int64_t r = 0; r < x.rows; ++r) {
    std::ranges::copy(x.row(r), row.begin());
    models::quantizeActivations(row, float(globals[size_t(r)]), coded);
    std::ranges::copy(coded, out.row(r).begin());
  }
  out.rowFactors.assign(globals.begin(), globals.end());
  return out;
}

Matrix allGather(std::span<const Matrix *const> ranks) {
  Matrix out(ranks[0]->rows, ranks[0]->columns * int64_t(ranks.size()));
  out.rowFactors = ranks[0]->rowFactors; // of whole rows, so the same on every rank
  for (int64_t r = 0; r < out.rows; ++r)
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      std::ranges::copy(ranks[rank]->row(r),
                        out.row(r).begin() + int64_t(rank) * ranks[0]->columns);
  return out;
}

Matrix allReduce(std::span<const Matrix *const> ranks, int64_t partials, Element element,
                 const Context &context) {
  const int64_t width = ranks[0]->columns / partials;
  Matrix out(ranks[0]->rows, width);
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < out.rows; ++r)
      for (int64_t n = 0; n < width; ++n) {
        T sum = T(ranks[0]->at(r, n));
        for (int64_t part = 1; part < partials * int64_t(ranks.size()); ++part)
          sum += T(ranks[size_t(part / partials)]->at(r, part % partials * width + n));
        out.at(r, n) = context.store(double(sum), element);
      }
  });
  return out;
}

Matrix partialSums(const Matrix &x, const WeightView &weight, int64_t partials,
                   const Context &context) {
  Matrix out(x.rows, partials * weight.rows);
  const int64_t chunk = weight.columns / partials;
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    std::vector<float> scratch;
    std::vector<T> w(static_cast<size_t>(weight.columns));
    for (int64_t n = 0; n < weight.rows; ++n) {
      readRow(weight, n, context, scratch, w.data());
      for (int64_t r : liveRows(context)) {
        const std::vector<T> in = toArithmetic<T>(x.row(r));
        for (int64_t part = 0; part < partials; ++part) {
          const T sum = chunkSums<1>(in.data() + part * chunk, w.data() + part * chunk, chunk,
                                     chunk, stripBlockSteps(chunk))[0];
          out.at(r, part * weight.rows + n) = double(sum);
        }
      }
    }
  });
  return out;
}

void project(const Matrix &x, std::span<const Projection> projections, Matrix &out,
             const Context &context) {
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    std::vector<std::vector<std::vector<T>>> inputs; // of each projection, its rows of x
    std::vector<int64_t> firstRows = {0};            // its weight's rows among all
    for (const Projection &projection : projections) {
      std::vector<std::vector<T>> &rows = inputs.emplace_back();
      for (int64_t r : projection.xRows)
        rows.push_back(projection.weight.blocks ? inBlockOrder(toArithmetic<T>(x.row(r)))
                                                : toArithmetic<T>(x.row(r)));
      firstRows.push_back(firstRows.back() + projection.weight.rows);
    }
    // All rows of all weights at once: many small weights would cost more threads than time.
    parallelFor(firstRows.back(), context.threads, [&](int64_t begin, int64_t end) {
      std::vector<float> scratch;
      std::vector<T> w;
      size_t p = size_t(std::ranges::upper_bound(firstRows, begin) - firstRows.begin()) - 1;
      for (int64_t i = begin; i < end; ++i) {
        while (i >= firstRows[p + 1])
          ++p;
        const WeightView &weight = projections[p].weight;
        const int64_t n = i - firstRows[p];
        w.resize(size_t(weight.columns));
        readRow(weight, n, context, scratch, w.data());
        if (weight.blocks)
          w = inBlockOrder(w);
        const int64_t width = int64_t(w.size()), chunk = canonicalChunk(width);
        const bool isWide = !weight.blocks && weight.element == Element::F32;
        const int64_t steps = isWide          ? 1
                              : weight.blocks ? scaledBlockSteps(chunk)
                                              : stripBlockSteps(chunk);
        const T global = weight.blocks ? T(weight.blocks->global(weight.firstRow + n)) : T(1);
        for (size_t row = 0; row < inputs[p].size(); ++row) {
          const T *in = inputs[p][row].data();
          T sum = context.inner != Inner::Ascending
                      ? innerDot(in, w.data(), width, context.inner, steps)
                  : isWide ? canonicalDot(in, w.data(), width)
                           : matrixDot(in, w.data(), width, steps);
          if (!x.rowFactors.empty())
            sum *= T(x.rowFactors[size_t(projections[p].xRows[row])]) * global;
          else if (weight.blocks)
            sum *= global;
          out.at(projections[p].outRows[row], n) = double(sum);
        }
      }
    });
  });
}

Matrix linear(const Matrix &x, const WeightView &weight, std::span<const double> bias,
              const LinearRule &rule, Element element, const Context &context) {
  Matrix out(x.rows, weight.rows);
  const std::vector<int64_t> rows = liveRows(context);
  const Projection all{weight, rows, rows};
  project(x, {&all, 1}, out, context);
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r : rows)
      for (int64_t n = 0; n < weight.rows; ++n) {
        T y = T(out.at(r, n));
        if (!bias.empty())
          y += T(bias[size_t(n)]);
        if (rule.clip > 0)
          y = std::min(std::max(y, T(-rule.clip)), T(rule.clip));
        out.at(r, n) = context.store(double(y * T(rule.multiplier)), element);
      }
  });
  return out;
}

Matrix rope(const Matrix &x, const RopeRule &rule, Element element, const Context &context) {
  Matrix out = x;
  const int64_t pairs = rule.rotaryDims / 2;
  const bool adjacent = rule.pairing == RopeRule::Pairing::Adjacent;
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r : liveRows(context)) {
      const T position = T(context.step->rows[size_t(r)].position);
      for (int64_t j = 0; j < pairs; ++j) {
        // The frequency is a constant of the model: exact first, then rounded to the arithmetic.
        const T frequency = T(std::pow(rule.theta, -2.0 * double(j) / double(rule.rotaryDims)));
        const T cosine = std::cos(position * frequency), sine = std::sin(position * frequency);
        const int64_t first = adjacent ? 2 * j : j;
        const int64_t second = adjacent ? 2 * j + 1 : j + pairs;
        for (int64_t head = 0; head < x.columns; head += rule.headDim) {
          const T a = T(x.at(r, head + first)), b = T(x.at(r, head + second));
          out.at(r, head + first) = double(a * cosine - b * sine);
          out.at(r, head + second) = double(b * cosine + a * sine);
        }
      }
    }
  });
  for (double &value : out.values)
    value = context.store(value, element);
  return out;
}

Matrix cast(const Matrix &x, Element element, const Context &context) {
  Matrix out = x;
  for (double &value : out.values)
    value = context.store(value, element);
  return out;
}

Matrix outputGate(const Matrix &x, const Matrix &gate, const OutputGateRule &rule, Element element,
                  const Context &context) {
  Matrix out(x.rows, x.columns);
  const int64_t span = x.columns / gate.columns;
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < x.rows; ++r)
      for (int64_t c = 0; c < x.columns; ++c) {
        T factor = rule.omitted ? T(1) : sigmoid(T(gate.at(r, c / span)), context.inner);
        if (rule.roundGate)
          factor = T(context.store(double(factor), *rule.roundGate));
        out.at(r, c) = context.store(double(T(x.at(r, c)) * factor), element);
      }
  });
  return out;
}

Matrix residual(const Matrix &stream, std::span<const Matrix *const> branches,
                const ResidualRule &rule, std::span<const double> gate, Element element,
                const Context &context) {
  Matrix out(stream.rows, stream.columns);
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t c = 0; c < stream.columns; ++c) {
      T alpha = T(1), beta = T(rule.scale);
      if (rule.gated) {
        // 1 - beta^2 would cancel where beta is close to one.
        const T u = T(gate[size_t(c)]) / T(rule.temperature);
        beta = sigmoid(u, Inner::Ascending);
        alpha = std::sqrt(std::max(sigmoid(-u, Inner::Ascending) * (T(1) + beta), T(rule.floor)));
      }
      if (rule.dropStream)
        alpha = T(0);
      if (rule.swapped)
        std::swap(alpha, beta);
      for (int64_t r = 0; r < stream.rows; ++r) {
        T sum = T(branches[0]->at(r, c));
        for (size_t b = 1; b < branches.size(); ++b)
          sum += T(branches[b]->at(r, c));
        out.at(r, c) = context.store(double(alpha * T(stream.at(r, c)) + beta * sum), element);
      }
    }
  });
  return out;
}

Matrix head(const Matrix &x, const WeightView &weight, std::span<const double> bias,
            const HeadRule &rule, int64_t firstId, const Context &context) {
  Matrix logits = linear(x, weight, bias, {0, rule.multiplier}, Element::F32, context);
  if (rule.softcap)
    withArithmetic(context.precision, [&](auto zero) {
      using T = decltype(zero);
      for (double &value : logits.values)
        value = double(T(*rule.softcap) * std::tanh(T(value) / T(*rule.softcap)));
    });
  if (rule.validVocab)
    for (int64_t r = 0; r < logits.rows; ++r)
      for (int64_t v = std::max<int64_t>(0, *rule.validVocab - firstId); v < logits.columns; ++v)
        logits.at(r, v) = -std::numeric_limits<double>::infinity();
  return logits;
}

} // namespace megalith::reference
