//===- weight_packer.cpp - Transforms and packing -------------------------===//

#include "runtime/weight_packer.h"

#include "runtime/error.h"
#include "runtime/packing.h"

#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

namespace megalith::runtime {

namespace {

float widen(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

/// Round to nearest even, as r16 of the rounding contract.
uint16_t narrow(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

std::string replaced(std::string text, llvm::StringRef what, int64_t number) {
  for (size_t at; (at = text.find(what.data(), 0, what.size())) != std::string::npos;)
    text.replace(at, what.size(), std::to_string(number));
  return text;
}

int64_t tensorRows(const WeightPart &part) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < part.shape.size(); ++i)
    rows *= part.shape[i];
  return rows;
}

/// Whether `count` rows are left. Shards have become slices: planOfRank.
bool setsRows(const Transform &t) {
  return t.axis == Axis::Rows && (t.kind == TransformKind::Slice || t.kind == TransformKind::Pad);
}

/// Ranges of rows that a slice is taken of.
int64_t groupsOf(const Transform &t) {
  return t.kind == TransformKind::Slice ? std::max<int64_t>(1, t.groups) : 1;
}

/// Rows after the part's transforms (validate() has checked them).
int64_t rowsAfter(const WeightPart &part) {
  int64_t rows = tensorRows(part);
  for (const Transform &t : part.transforms)
    if (setsRows(t))
      rows = t.count * groupsOf(t);
  return rows;
}

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

/// What a transform makes of one number.
float transformed(const Transform &t, float value) {
  const float u = t.temperature > 0 ? value / float(t.temperature) : 0;
  switch (t.kind) {
  case TransformKind::AddOne:
    return widen(narrow(1.0f + value));
  case TransformKind::GateAlpha:
    return std::sqrt(std::max(sigmoid(-u) * (1.0f + sigmoid(u)), float(t.floor)));
  case TransformKind::GateBeta:
    return sigmoid(u);
  case TransformKind::Slice:
  case TransformKind::Permute:
  case TransformKind::Interleave:
  case TransformKind::Pad:
  case TransformKind::Shard:
    break;
  }
  return value;
}

float number(uint16_t bits) {
  return widen(bits);
}
float number(float value) {
  return value;
}
void assign(uint16_t &to, float value) {
  to = narrow(value);
}
void assign(float &to, float value) {
  to = value;
}

/// Applies what transforms do within a row.
template <class T> void transformColumns(const WeightPart &part, std::vector<T> &values) {
  for (const Transform &t : part.transforms) {
    const bool isOfColumns = t.axis == Axis::Columns;
    switch (t.kind) {
    case TransformKind::AddOne:
    case TransformKind::GateAlpha:
    case TransformKind::GateBeta:
      for (T &value : values)
        assign(value, transformed(t, number(value)));
      break;
    case TransformKind::Slice:
      if (isOfColumns) {
        values.erase(values.begin(), values.begin() + t.first);
        values.resize(t.count);
      }
      break;
    case TransformKind::Pad:
      if (isOfColumns)
        values.resize(t.count, T(0));
      break;
    case TransformKind::Permute:
    case TransformKind::Interleave:
    case TransformKind::Shard:
      break;
    }
  }
}

} // namespace

int64_t sourceRow(const WeightPart &part, int64_t row) {
  // Extents before each transform, to undo them from the last to the first.
  llvm::SmallVector<int64_t, 4> before;
  int64_t rows = tensorRows(part);
  for (const Transform &t : part.transforms) {
    before.push_back(rows);
    if (setsRows(t))
      rows = t.count * groupsOf(t);
  }
  for (size_t i = part.transforms.size(); i-- > 0;) {
    const Transform &t = part.transforms[i];
    switch (t.kind) {
    case TransformKind::Slice:
      if (t.axis == Axis::Rows)
        row = row / t.count * (before[i] / groupsOf(t)) + t.first + row % t.count;
      break;
    case TransformKind::Pad:
      if (t.axis == Axis::Rows && row >= before[i])
        return -1;
      break;
    case TransformKind::Permute: {
      const int64_t group = int64_t(t.order.size());
      row = row / group * group + t.order[row % group];
      break;
    }
    case TransformKind::Interleave:
      row = row % t.groups * (before[i] / t.groups) + row / t.groups;
      break;
    case TransformKind::AddOne:
    case TransformKind::Shard:
    case TransformKind::GateAlpha:
    case TransformKind::GateBeta:
      break;
    }
  }
  return row;
}

void TensorRow::operator()(int64_t row, std::span<uint16_t> out) const {
  if (narrow)
    return narrow(row, out);
  std::vector<float> values(out.size());
  wide(row, values);
  std::transform(values.begin(), values.end(), out.begin(), megalith::runtime::narrow);
}

void TensorRow::operator()(int64_t row, std::span<float> out) const {
  if (wide)
    return wide(row, out);
  std::vector<uint16_t> values(out.size());
  narrow(row, values);
  std::transform(values.begin(), values.end(), out.begin(), widen);
}

int64_t segmentCount(const Weight &weight) {
  return std::max<int64_t>(1, weight.experts);
}

int64_t segmentBytes(const Weight &weight) {
  switch (weight.form) {
  case WeightForm::Strips:
  case WeightForm::GateUpStrips: {
    const StripLayout layout(weight.n, weight.k);
    return weight.element == Element::F32 ? wideBytes(layout) : layout.bytes();
  }
  case WeightForm::Nvfp4:
  case WeightForm::GateUpNvfp4:
    return Nvfp4Layout(weight.n, weight.k).bytes();
  case WeightForm::Vector:
    return paddedVector(weight.k) * elementBytes(weight.element);
  case WeightForm::Table:
    return weight.n * weight.k * elementBytes(weight.element);
  case WeightForm::InverseFrequencies:
    return weight.k / 2 * 4;
  }
  return 0;
}

std::string tensorName(const WeightPart &part, int64_t layer, int64_t expert) {
  return replaced(replaced(part.tensor, "{layer}", layer), "{expert}", expert);
}

static TensorUse useOf(const WeightPart &part) {
  const bool isCentred =
      std::any_of(part.transforms.begin(), part.transforms.end(),
                  [](const Transform &t) { return t.kind == TransformKind::AddOne; });
  return !part.gain ? kMatrix : isCentred ? kCentredGain : kGain;
}

llvm::Expected<WeightPacker> WeightPacker::open(const Weight &weight, int64_t layer,
                                                const OpenTensor &openTensor) {
  WeightPacker packer(weight, layer);
  auto fail = [&](llvm::Error error) {
    return problem("weight '{0}' of layer {1}: {2}", weight.name, layer,
                   llvm::toString(std::move(error)));
  };
  if (weight.isNvfp4() && !openTensor.blocks)
    return problem("weight '{0}' of layer {1} is NVFP4, of which this source of weights has none",
                   weight.name, layer);
  for (const WeightPart &part : weight.parts) {
    const bool perExpert = llvm::StringRef(part.tensor).contains("{expert}");
    const int64_t count = perExpert ? segmentCount(weight) : 1;
    packer.partRows.push_back(rowsAfter(part) / (perExpert ? 1 : segmentCount(weight)));
    std::vector<TensorRow> &opened = packer.tensors.emplace_back();
    std::vector<BlockRows> &openedBlocks = packer.blocks.emplace_back();
    for (int64_t expert = 0; expert < count; ++expert) {
      const std::string name = tensorName(part, layer, expert);
      if (weight.isNvfp4()) {
        auto tensor = openTensor.blocks(name, part.shape);
        if (!tensor)
          return fail(tensor.takeError());
        openedBlocks.push_back(std::move(*tensor));
      } else {
        auto tensor = openTensor(name, part.shape, useOf(part));
        if (!tensor)
          return fail(tensor.takeError());
        opened.push_back(std::move(*tensor));
      }
    }
  }
  if (weight.isNvfp4())
    if (llvm::Error error = packer.collectFactors())
      return fail(std::move(error));
  return packer;
}

llvm::Error WeightPacker::collectFactors() {
  for (int64_t segment = 0; segment < segmentCount(spec); ++segment) {
    Nvfp4Factors &found = factors.emplace_back();
    int64_t first[2] = {-1, -1};
    bool hasInput = false;
    for (int64_t row = 0; row < spec.n; ++row) {
      const Origin from = origin(segment, row);
      if (from.source < 0)
        continue;
      const BlockRows &rows = blocks[from.part][from.tensor];
      const float global = rows.global(from.source), input = rows.inputScale(from.source);
      if (first[row % 2] < 0)
        found.global[row % 2] = global;
      else if (found.global[row % 2] != global)
        return problem("segment {0}: rows {1} and {2} have the factors {3} and {4}, expected one "
                       "for all {5} rows (as gates or ups of one expert have)",
                       segment, first[row % 2], row, found.global[row % 2], global,
                       row % 2 ? "odd" : "even");
      first[row % 2] = row;
      if (hasInput && found.inputScale != input)
        return problem("segment {0}: rows before {1} have the input scale {2}, row {1} has {3}; "
                       "expected one, since they meet the same activations",
                       segment, row, found.inputScale, input);
      found.inputScale = input;
      hasInput = true;
    }
  }
  // All experts' gates and ups read the same rows, which are quantised once.
  float most = 0;
  for (const Nvfp4Factors &each : factors)
    most = std::max(most, each.inputScale);
  for (auto [segment, found] : llvm::enumerate(factors)) {
    if (spec.isGateUp())
      found.inputScale = most;
    if (!nvfp4FactorsFit(found))
      return problem("segment {0}: factors {1} and {2} with input scale {3} are too large or small",
                     segment, found.global[0], found.global[1], found.inputScale);
  }
  return llvm::Error::success();
}

WeightPacker::Origin WeightPacker::origin(int64_t segment, int64_t row) const {
  size_t part = 0;
  if (spec.isGateUp()) {
    part = size_t(row % 2);
    row /= 2;
  } else {
    while (row >= partRows[part])
      row -= partRows[part++];
  }
  const WeightPart &from = spec.parts[part];
  const bool perExpert = llvm::StringRef(from.tensor).contains("{expert}");
  return {part, perExpert ? size_t(segment) : 0,
          sourceRow(from, perExpert ? row : segment * partRows[part] + row)};
}

template <class T>
void WeightPacker::stackedRow(int64_t segment, int64_t row, std::span<T> out) const {
  const Origin from = origin(segment, row);
  if (from.source < 0) {
    std::fill(out.begin(), out.end(), T(0));
    return;
  }
  const WeightPart &part = spec.parts[from.part];
  std::vector<T> values(part.shape.back(), T(0));
  tensors[from.part][from.tensor](from.source, std::span<T>(values));
  transformColumns(part, values);
  std::copy_n(values.begin(), out.size(), out.begin());
}

void WeightPacker::row(int64_t segment, int64_t row, std::span<uint16_t> out) const {
  stackedRow(segment, row, out);
}
void WeightPacker::row(int64_t segment, int64_t row, std::span<float> out) const {
  stackedRow(segment, row, out);
}

void WeightPacker::blockRow(int64_t segment, int64_t row, std::span<uint8_t> codes,
                            std::span<uint8_t> scales) const {
  const Origin from = origin(segment, row);
  if (from.source < 0) {
    std::fill(codes.begin(), codes.end(), uint8_t(0));
    std::fill(scales.begin(), scales.end(), uint8_t(0));
    return;
  }
  const WeightPart &part = spec.parts[from.part];
  int64_t first = 0; // of the columns that slices leave
  for (const Transform &t : part.transforms)
    first += t.kind == TransformKind::Slice && t.axis == Axis::Columns ? t.first : 0;
  std::vector<uint8_t> allCodes(part.shape.back() / 2), allScales(part.shape.back() / 16);
  blocks[from.part][from.tensor].row(from.source, allCodes, allScales);
  std::copy_n(allCodes.begin() + first / 2, codes.size(), codes.begin());
  std::copy_n(allScales.begin() + first / 16, scales.size(), scales.begin());
}

void WeightPacker::share(int64_t count, unsigned threads,
                         llvm::function_ref<void(int64_t first, int64_t count)> pack) {
  const int64_t each = (count + threads - 1) / threads;
  std::vector<std::thread> workers;
  for (int64_t first = each; first < count; first += each)
    workers.emplace_back(pack, first, std::min(each, count - first));
  pack(0, std::min(each, count));
  for (std::thread &worker : workers)
    worker.join();
}

void WeightPacker::pack(int64_t segment, unsigned char *out, unsigned threads) const {
  switch (spec.form) {
  case WeightForm::Strips:
  case WeightForm::GateUpStrips: {
    const StripLayout layout(spec.n, spec.k);
    share(layout.strips, threads, [&](int64_t first, int64_t count) {
      if (spec.element == Element::F32)
        return packWideStrips(
            layout, first, count,
            [&](int64_t index, std::span<float> values) { row(segment, index, values); }, out);
      packStrips(
          layout, first, count,
          [&](int64_t index, std::span<uint16_t> values) { row(segment, index, values); }, out);
    });
    return;
  }
  case WeightForm::Nvfp4:
  case WeightForm::GateUpNvfp4: {
    const Nvfp4Layout layout(spec.n, spec.k);
    share(layout.tiles, threads, [&](int64_t first, int64_t count) {
      packNvfp4(
          layout, first, count,
          [&](int64_t index, std::span<uint8_t> codes, std::span<uint8_t> scales) {
            blockRow(segment, index, codes, scales);
          },
          out);
    });
    packNvfp4Factors(layout, factors[segment], out);
    return;
  }
  case WeightForm::Vector:
    std::memset(out, 0, segmentBytes(spec));
    [[fallthrough]];
  case WeightForm::Table: {
    auto copyRows = [&](auto zero) {
      std::vector<decltype(zero)> values(spec.k, zero);
      for (int64_t index = 0; index < spec.n; ++index) {
        row(segment, index, std::span(values));
        std::memcpy(out + index * spec.k * sizeof zero, values.data(), spec.k * sizeof zero);
      }
    };
    if (spec.element == Element::F32)
      copyRows(0.0f);
    else
      copyRows(uint16_t(0));
    return;
  }
  case WeightForm::InverseFrequencies: {
    const std::vector<float> table = inverseFrequencies(spec.k, spec.theta);
    std::memcpy(out, table.data(), 4 * table.size());
    return;
  }
  }
}

} // namespace megalith::runtime
