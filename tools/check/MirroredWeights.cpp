//===- MirroredWeights.cpp - Weights that repeat rank 0's share -----------===//

#include "tools/check/MirroredWeights.h"

#include "models/weights/nvfp4.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>

namespace megalith::check {

using llvm::Expected;
using llvm::StringRef;
using models::BlockTensor;
using models::WeightTensor;

namespace {

/// Repeats the first `count` elements, if any are given.
template <class T> void repeat(std::span<T> out, int64_t count) {
  if (count)
    for (size_t i = size_t(count); i < out.size(); ++i)
      out[i] = out[i - size_t(count)];
}

class Rows final : public WeightTensor {
public:
  Rows(std::unique_ptr<WeightTensor> from, MirroredWeights::Rule rule)
      : from(std::move(from)), rule(rule) {}
  using WeightTensor::row;
  void row(int64_t index, std::span<float> out) const override {
    from->row(rule.row(index), out);
    repeat(out, rule.columns);
  }

private:
  std::unique_ptr<WeightTensor> from;
  MirroredWeights::Rule rule;
};

class Blocks final : public BlockTensor {
public:
  Blocks(std::unique_ptr<BlockTensor> tensor, MirroredWeights::Rule rule)
      : BlockTensor(tensor->format, tensor->columns), from(std::move(tensor)), rule(rule) {}
  void stored(int64_t index, std::span<uint8_t> codes, std::span<uint8_t> scales) const override {
    from->stored(rule.row(index), codes, scales);
    repeat(codes, rule.columns / 2);
    repeat(scales, rule.columns / 16);
  }
  float global(int64_t index) const override { return from->global(rule.row(index)); }
  bool hasInputScale() const override { return from->hasInputScale(); }
  float inputScale(int64_t index) const override { return from->inputScale(rule.row(index)); }

private:
  std::unique_ptr<BlockTensor> from;
  MirroredWeights::Rule rule;
};

/// Whether `name` is one of a pattern's, whatever the numbers.
bool isOf(StringRef pattern, StringRef name) {
  while (!pattern.empty()) {
    if (pattern.starts_with("{")) {
      const StringRef rest = name.ltrim("0123456789");
      if (rest.size() == name.size())
        return false;
      name = rest;
      pattern = pattern.drop_until([](char c) { return c == '}'; }).drop_front();
      continue;
    }
    if (name.empty() || name.front() != pattern.front())
      return false;
    name = name.drop_front();
    pattern = pattern.drop_front();
  }
  return name.empty();
}

} // namespace

MirroredWeights::MirroredWeights(const models::WeightSource &from, const runtime::Plan &plan)
    : from(from) {
  for (const runtime::Weight &weight : plan.weights)
    for (const runtime::WeightPart &part : weight.parts) {
      int64_t rows = 1;
      for (size_t i = 0; i + 1 < part.shape.size(); ++i)
        rows *= part.shape[i];
      for (const runtime::Transform &t : part.transforms) {
        if (t.kind == runtime::TransformKind::Shard && t.axis == runtime::Axis::Columns)
          divided.push_back({part.tensor, {.columns = t.count}});
        else if (t.kind == runtime::TransformKind::Shard)
          divided.push_back(
              {part.tensor, {.range = rows / std::max<int64_t>(1, t.matrices), .share = t.count}});
        else if (t.kind == runtime::TransformKind::Slice && t.axis == runtime::Axis::Rows)
          rows = t.count * std::max<int64_t>(1, t.groups);
      }
    }
}

MirroredWeights::Rule MirroredWeights::ruleOf(const std::string &tensor) const {
  const auto found = std::find_if(divided.begin(), divided.end(), [&](const Divided &entry) {
    return isOf(entry.pattern, tensor);
  });
  return found == divided.end() ? Rule() : found->rule;
}

Expected<std::unique_ptr<WeightTensor>>
MirroredWeights::open(const models::TensorSpec &spec) const {
  auto opened = from.open(spec);
  const Rule rule = ruleOf(spec.name);
  if (!opened || !rule.isAny())
    return opened;
  return std::make_unique<Rows>(std::move(*opened), rule);
}

Expected<std::unique_ptr<BlockTensor>>
MirroredWeights::openBlocks(const models::TensorSpec &spec,
                            const models::BlockFormat &format) const {
  auto opened = from.openBlocks(spec, format);
  const Rule rule = ruleOf(spec.name);
  if (!opened || !rule.isAny())
    return opened;
  return std::make_unique<Blocks>(std::move(*opened), rule);
}

} // namespace megalith::check
