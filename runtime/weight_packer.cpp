//===- weight_packer.cpp - Transforms and packing -------------------------===//

#include "runtime/weight_packer.h"

#include "runtime/error.h"
#include "runtime/packing.h"

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

/// Rows after the part's transforms (validate() has checked them).
int64_t rowsAfter(const WeightPart &part) {
  int64_t rows = tensorRows(part);
  for (const Transform &t : part.transforms)
    if (t.axis == Axis::Rows && (t.kind == TransformKind::Slice || t.kind == TransformKind::Pad))
      rows = t.count;
  return rows;
}

/// Which row of the tensor row `row` of the transformed part comes from; -1: a row of padding.
int64_t sourceRow(const WeightPart &part, int64_t row) {
  // Extents before each transform, to undo them from the last to the first.
  std::vector<int64_t> before;
  int64_t rows = tensorRows(part);
  for (const Transform &t : part.transforms) {
    before.push_back(rows);
    if (t.axis == Axis::Rows && (t.kind == TransformKind::Slice || t.kind == TransformKind::Pad))
      rows = t.count;
  }
  for (size_t i = part.transforms.size(); i-- > 0;) {
    const Transform &t = part.transforms[i];
    switch (t.kind) {
    case TransformKind::Slice:
      row += t.axis == Axis::Rows ? t.first : 0;
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
      break;
    }
  }
  return row;
}

/// Applies what transforms do within a row.
void transformColumns(const WeightPart &part, std::vector<uint16_t> &values) {
  for (const Transform &t : part.transforms) {
    if (t.kind == TransformKind::AddOne) {
      for (uint16_t &value : values)
        value = narrow(1.0f + widen(value));
    } else if (t.axis == Axis::Columns && t.kind == TransformKind::Slice) {
      values.erase(values.begin(), values.begin() + t.first);
      values.resize(t.count);
    } else if (t.axis == Axis::Columns && t.kind == TransformKind::Pad) {
      values.resize(t.count, 0);
    }
  }
}

/// Stores bf16 numbers as the weight's element.
void store(Element element, std::span<const uint16_t> values, unsigned char *out) {
  if (element == Element::Bf16) {
    std::memcpy(out, values.data(), values.size_bytes());
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const float wide = widen(values[i]);
    std::memcpy(out + 4 * i, &wide, 4);
  }
}

} // namespace

int64_t segmentCount(const Weight &weight) {
  return std::max<int64_t>(1, weight.experts);
}

int64_t segmentBytes(const Weight &weight) {
  switch (weight.form) {
  case WeightForm::Strips:
  case WeightForm::GateUpStrips:
    return StripLayout(weight.n, weight.k).bytes();
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

llvm::Expected<WeightPacker> WeightPacker::open(const Weight &weight, int64_t layer,
                                                const OpenTensor &openTensor) {
  WeightPacker packer(weight, layer);
  for (const WeightPart &part : weight.parts) {
    const bool perExpert = llvm::StringRef(part.tensor).contains("{expert}");
    const int64_t count = perExpert ? segmentCount(weight) : 1;
    packer.partRows.push_back(rowsAfter(part) / (perExpert ? 1 : segmentCount(weight)));
    std::vector<TensorRow> &opened = packer.tensors.emplace_back();
    for (int64_t expert = 0; expert < count; ++expert) {
      auto tensor = openTensor(tensorName(part, layer, expert), part.shape, part.gain);
      if (!tensor)
        return problem("weight '{0}' of layer {1}: {2}", weight.name, layer,
                       llvm::toString(tensor.takeError()));
      opened.push_back(std::move(*tensor));
    }
  }
  return packer;
}

void WeightPacker::partRow(size_t part, int64_t segment, int64_t row,
                           std::span<uint16_t> out) const {
  const WeightPart &from = spec.parts[part];
  const bool perExpert = tensors[part].size() > 1;
  const int64_t source = sourceRow(from, perExpert ? row : segment * partRows[part] + row);
  std::vector<uint16_t> values(from.shape.back(), 0);
  if (source >= 0) {
    tensors[part][perExpert ? segment : 0](source, values);
    transformColumns(from, values);
    std::copy_n(values.begin(), out.size(), out.begin());
  } else {
    std::fill(out.begin(), out.end(), uint16_t(0));
  }
}

void WeightPacker::row(int64_t segment, int64_t row, std::span<uint16_t> out) const {
  if (spec.form == WeightForm::GateUpStrips)
    return partRow(row % 2, segment, row / 2, out);
  size_t part = 0;
  while (row >= partRows[part])
    row -= partRows[part++];
  partRow(part, segment, row, out);
}

void WeightPacker::pack(int64_t segment, unsigned char *out, unsigned threads) const {
  switch (spec.form) {
  case WeightForm::Strips:
  case WeightForm::GateUpStrips: {
    const StripLayout layout(spec.n, spec.k);
    auto packRange = [&](int64_t first, int64_t count) {
      packStrips(
          layout, first, count,
          [&](int64_t index, std::span<uint16_t> values) { row(segment, index, values); }, out);
    };
    const int64_t share = (layout.strips + threads - 1) / threads;
    std::vector<std::thread> workers;
    for (int64_t first = share; first < layout.strips; first += share)
      workers.emplace_back(packRange, first, std::min(share, layout.strips - first));
    packRange(0, std::min(share, layout.strips));
    for (std::thread &worker : workers)
      worker.join();
    return;
  }
  case WeightForm::Vector:
    std::memset(out, 0, segmentBytes(spec));
    [[fallthrough]];
  case WeightForm::Table: {
    std::vector<uint16_t> values(spec.k);
    for (int64_t index = 0; index < spec.n; ++index) {
      row(segment, index, values);
      store(spec.element, values, out + index * spec.k * elementBytes(spec.element));
    }
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
