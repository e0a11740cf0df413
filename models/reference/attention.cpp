//===- attention.cpp - Grouped-query attention over the cache -------------===//

#include "models/reference/attention.h"

#include "models/reference/parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace megalith::reference {

void appendKv(KvStore &cache, const Matrix &key, const Matrix &value, Element element,
              const KvScales &scales, const Context &context) {
  const auto scaled = [](double x, double scale) {
    return scale == 1 ? x : double(float(x) / float(scale));
  };
  std::vector<double> k(static_cast<size_t>(key.columns)), v(static_cast<size_t>(value.columns));
  for (int64_t r = 0; r < context.rows(); ++r) {
    if (!context.live(r))
      continue;
    for (int64_t c = 0; c < key.columns; ++c) {
      k[size_t(c)] = context.store(scaled(key.at(r, c), scales.key), element);
      v[size_t(c)] = context.store(scaled(value.at(r, c), scales.value), element);
    }
    const Row &row = context.step->rows[size_t(r)];
    cache.write(row.sequence, row.position, k, v);
  }
}

namespace {

/// The keys [first, end) that a query at `position` may see.
struct KeyRange {
  int64_t first, end;
};

KeyRange visibleKeys(const AttentionRule &rule, int64_t position) {
  KeyRange range{0, std::max<int64_t>(position + 1 + rule.causalShift, 1)};
  if (rule.mask == AttentionRule::Mask::Window)
    range.first = std::max<int64_t>(0, position - rule.extent + 1);
  else if (rule.mask == AttentionRule::Mask::Chunk)
    range.first = position / rule.extent * rule.extent;
  return range;
}

/// Running result over a set of keys: the scores' maximum, the sum of exp(score - maximum) and the
/// values weighted by the same.
template <class T> struct Partial {
  T maximum = -std::numeric_limits<T>::infinity();
  T sum = 0;
  std::vector<T> values;

  /// Adds the other's keys, if it has any; the older result is the left operand.
  void merge(const Partial &other, Inner inner) {
    if (other.sum == T(0))
      return;
    const T both = std::max(maximum, other.maximum);
    const T mine = sum == T(0) ? T(0) : exponential(maximum - both, inner);
    const T theirs = exponential(other.maximum - both, inner);
    maximum = both;
    sum = sum * mine + other.sum * theirs;
    for (size_t d = 0; d < values.size(); ++d)
      values[d] = values[d] * mine + other.values[d] * theirs;
  }
};

constexpr int64_t kUnit = 16;

/// One query head over one chunk of a piece of its keys, unit by unit of 16 positions: the
/// probabilities of a unit are relative to the chunk's largest score so far, and what came before
/// is scaled to it. The piece begins at `first`; its pair p of units is in chunk p % chunks.
template <class T>
Partial<T> attendChunk(const std::vector<T> &query, const KvStore &cache, int64_t sequence,
                       int64_t kvHead, KeyRange keys, int64_t first, int64_t chunk, int64_t chunks,
                       const AttentionRule &rule, const Context &context) {
  const bool roundP = context.precision == Precision::Contract;
  const Inner inner = context.inner;
  Partial<T> partial;
  partial.values.assign(query.size(), T(0));
  if (rule.bounded)
    partial.maximum = 0;
  const T scale = T(rule.scale) * T(rule.keyScale);
  std::vector<T> scores;
  for (int64_t unit = keys.first; unit < keys.end; unit = (unit / kUnit + 1) * kUnit) {
    if ((unit - first) / (2 * kUnit) % chunks != chunk)
      continue;
    const int64_t end = std::min((unit / kUnit + 1) * kUnit, keys.end);
    scores.clear();
    T maximum = partial.maximum;
    for (int64_t j = unit; j < end; ++j) {
      const std::span<const double> key = cache.key(sequence, j, kvHead);
      T dot = 0;
      if (inner == Inner::Ascending) {
        for (size_t d = 0; d < query.size(); ++d)
          dot += query[d] * T(key[d]);
      } else {
        for (size_t d = 0; d < query.size(); d += 16) {
          T part[16] = {};
          const size_t count = std::min<size_t>(16, query.size() - d);
          std::copy_n(key.begin() + ptrdiff_t(d), count, part);
          dot += innerSum(query.data() + d, part, int64_t(count), inner);
        }
      }
      scores.push_back(dot * scale);
      if (!rule.bounded)
        maximum = std::max(maximum, scores.back());
    }
    const T before = exponential(partial.maximum - maximum, inner); // 0 for the first unit
    partial.maximum = maximum;
    partial.sum *= before;
    for (T &value : partial.values)
      value *= before;
    for (int64_t j = unit; j < end; ++j) {
      const T p = exponential(scores[size_t(j - unit)] - maximum, inner);
      partial.sum += p;
      const T entering = roundP ? T(models::r16(float(p))) : p;
      const int64_t at = std::max<int64_t>(0, j + rule.valueShift);
      const std::span<const double> value = cache.value(sequence, at, kvHead);
      for (size_t d = 0; d < query.size(); ++d)
        partial.values[d] += entering * T(value[d]);
    }
  }
  for (T &value : partial.values)
    value *= T(rule.valueScale);
  return partial;
}

/// Chunks of a piece, given the query vectors that share its keys: 8 warps over their column tiles
/// of 8 vectors.
int64_t chunksOf(int64_t vectors) {
  const int64_t columns = (vectors + 7) / 8;
  return 8 / std::clamp<int64_t>(columns, 1, 8);
}

} // namespace

Matrix attention(const Matrix &q, const KvStore &cache, const AttentionRule &rule,
                 std::span<const double> sinks, Element element, const Context &context) {
  Matrix out(q.rows, q.columns);
  const int64_t headDim = cache.headDim, group = rule.heads / cache.heads;
  // Per sequence: keys of its last live row, the first live row's position, live rows.
  std::vector<int64_t> lengths, starts, rows;
  for (const Row &row : context.step->rows)
    if (row.live) {
      lengths.resize(std::max(lengths.size(), size_t(row.sequence) + 1));
      rows.resize(lengths.size());
      starts.resize(lengths.size(), row.position);
      int64_t &start = starts[size_t(row.sequence)];
      start = std::min(start, row.position);
      ++rows[size_t(row.sequence)];
      int64_t &length = lengths[size_t(row.sequence)];
      length = std::max(length, row.position + 1);
    }
  withArithmetic(context.precision, [&](auto zero) {
    using T = decltype(zero);
    auto attend = [&](const Row &row, int64_t r, int64_t head) {
      const int64_t kvHead = rule.interleavedHeads ? head % cache.heads : head / group;
      const std::span<const double> from =
          q.row(r).subspan(size_t(head * headDim), size_t(headDim));
      const std::vector<T> query(from.begin(), from.end());
      const KeyRange keys = visibleKeys(rule, row.position);
      // What is cut: all keys, or from the unit on that the first row's window begins in.
      const int64_t seen = rule.mask == AttentionRule::Mask::Window
                               ? starts[size_t(row.sequence)] - rule.extent + 1
                               : 0;
      const int64_t begin = std::max<int64_t>(0, seen) / kUnit * kUnit;
      const int64_t blocks = (lengths[size_t(row.sequence)] - begin + kUnit - 1) / kUnit;
      const int64_t piece = kUnit * ((blocks + 31) / 32);
      Partial<T> total;
      total.values.assign(size_t(headDim), T(0));
      const int64_t chunks = chunksOf(rows[size_t(row.sequence)] * group);
      for (int64_t p = begin + (keys.first - begin) / piece * piece; p < keys.end; p += piece) {
        const KeyRange range{std::max(p, keys.first), std::min(p + piece, keys.end)};
        Partial<T> split;
        split.values.assign(size_t(headDim), T(0));
        for (int64_t chunk = 0; chunk < chunks; ++chunk)
          split.merge(attendChunk(query, cache, row.sequence, kvHead, range, p, chunk, chunks, rule,
                                  context),
                      context.inner);
        total.merge(split, context.inner);
      }
      if (!sinks.empty()) {
        Partial<T> sink;
        sink.maximum = T(sinks[size_t(head)]);
        sink.sum = 1;
        sink.values.assign(size_t(headDim), T(0));
        total.merge(sink, context.inner);
      }
      for (int64_t d = 0; d < headDim; ++d)
        out.at(r, head * headDim + d) =
            context.store(double(total.values[size_t(d)] / total.sum), element);
    };
    std::vector<int64_t> live;
    for (int64_t r = 0; r < q.rows; ++r)
      if (context.live(r))
        live.push_back(r);
    parallelFor(int64_t(live.size()) * rule.heads, context.threads,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t r = live[size_t(i / rule.heads)];
                    attend(context.step->rows[size_t(r)], r, i % rule.heads);
                  }
                });
  });
  return out;
}

} // namespace megalith::reference
