//===- device_fill.cpp - Made-up weights and KV pages on the GPU ----------===//

#include "runtime/device_fill.h"

#include "runtime/error.h"
#include "runtime/packing.h"
#include "runtime/packing_nvfp4.h"
#include "runtime/step.h"
#include "runtime/weight_packer.h"

#include <algorithm>
#include <cassert>

namespace megalith::runtime {

namespace {

bool isPerExpert(const WeightPart &part) {
  return llvm::StringRef(part.tensor).contains("{expert}");
}

uint32_t hashOf(const std::string &name) {
  return models::fnv1a32(name.data(), name.size());
}

/// Rows of part `p` in one segment.
int64_t rowsOf(const Weight &weight, size_t p) {
  if (weight.isGateUp())
    return weight.n / 2;
  int64_t rows = 1;
  const WeightPart &part = weight.parts[p];
  for (size_t i = 0; i + 1 < part.shape.size(); ++i)
    rows *= part.shape[i];
  for (const Transform &t : part.transforms)
    if (t.axis == Axis::Rows && t.kind == TransformKind::Slice)
      rows = t.count * std::max<int64_t>(1, t.groups);
  return rows / (isPerExpert(part) ? 1 : segmentCount(weight));
}

/// Where the rows of part `p` of a segment come from, if they are consecutive: every `stride`-th
/// from `from`.
std::optional<int64_t> firstRow(const Weight &weight, size_t p, int64_t segment, int64_t from = 0,
                                int64_t stride = 1) {
  const WeightPart &part = weight.parts[p];
  const int64_t rows = rowsOf(weight, p), base = isPerExpert(part) ? 0 : segment * rows;
  const int64_t first = sourceRow(part, base + from);
  for (int64_t row = from, i = 0; row < rows; row += stride, ++i)
    if (sourceRow(part, base + row) != first + i)
      return std::nullopt;
  return first;
}

/// The first of the consecutive columns that a part takes; none where its numbers are changed.
std::optional<int64_t> firstColumn(const WeightPart &part) {
  int64_t first = 0;
  for (const Transform &t : part.transforms) {
    if (t.kind != TransformKind::Slice && t.kind != TransformKind::Permute &&
        t.kind != TransformKind::Interleave)
      return std::nullopt;
    if (t.kind == TransformKind::Slice && t.axis == Axis::Columns)
      first += t.first;
  }
  return first;
}

} // namespace

std::optional<FillSegment> fillSegment(const Weight &weight, int64_t layer, int64_t segment,
                                       uint32_t seed, unsigned char *out) {
  const bool isStrips =
      weight.form == WeightForm::Strips || weight.form == WeightForm::GateUpStrips;
  const int64_t bytes = segmentBytes(weight);
  if (weight.form == WeightForm::InverseFrequencies || weight.element != Element::Bf16 ||
      weight.parts.size() > kMaxFillParts || bytes % 16 || (weight.n > 1 && weight.k % 8))
    return std::nullopt;
  FillSegment fill = {.out = out,
                      .pieces = uint32_t(bytes / 16),
                      .seed = seed,
                      .form = isStrips           ? kFillStrips
                              : weight.isNvfp4() ? kFillNvfp4
                                                 : kFillRows,
                      .n = weight.n,
                      .k = weight.k};
  if (isStrips) {
    const StripLayout layout(weight.n, weight.k);
    fill.strips = uint32_t(layout.strips);
    fill.kb = uint32_t(layout.kb);
    fill.chunk16 = uint32_t(layout.chunk16);
  } else if (weight.isNvfp4()) {
    const Nvfp4Layout layout(weight.n, weight.k);
    fill.strips = uint32_t(layout.tiles);
    fill.kb = uint32_t(layout.kb);
    fill.chunk16 = uint32_t(layout.chunk16);
    fill.group = uint32_t(layout.group);
  }
  auto add = [&](size_t p, int64_t rows, std::optional<int64_t> first) {
    const WeightPart &part = weight.parts[p];
    const std::optional<int64_t> column = firstColumn(part);
    if (!first || !column)
      return false;
    fill.part[fill.parts++] = {
        .name_hash = hashOf(tensorName(part, layer, isPerExpert(part) ? segment : 0)),
        .gain = part.gain,
        .scale = part.gain ? models::kGainScale : models::weightScale(uint64_t(part.shape.back())),
        .rows = int32_t(rows),
        .first_row = *first,
        .columns = part.shape.back(),
        .first_column = *column};
    return true;
  };
  bool pairs = weight.isGateUp();
  // One tensor of gates and ups, permuted so that they alternate, is as good as two.
  if (weight.parts.size() == 1 && weight.n > 1 && weight.n % 2 == 0 &&
      weight.form != WeightForm::Table && !firstRow(weight, 0, segment)) {
    pairs = true;
    for (int64_t half : {0, 1})
      if (!add(0, weight.n / 2, firstRow(weight, 0, segment, half, 2)))
        return std::nullopt;
  } else {
    for (size_t p = 0; p < weight.parts.size(); ++p)
      if (!add(p, rowsOf(weight, p), firstRow(weight, p, segment)))
        return std::nullopt;
  }
  if (pairs)
    fill.form = weight.isNvfp4() ? kFillNvfp4GateUp : kFillGateUp;
  return fill;
}

FillPages fillPages(const Plan &plan, int64_t layer, uint32_t seed, unsigned char *pool,
                    const int32_t *pages, int64_t count, int64_t start) {
  const std::string name = "kv." + std::to_string(layer) + ".";
  int64_t first = 0;
  bool isE4m3 = false;
  for (const Launch &launch : plan.launches)
    for (const SlotBinding &slot : plan.kernel(launch.kernel)->slots)
      if (slot.role == SlotRole::Kv && launch.layer + slot.layerOffset == layer) {
        const Buffer &buffer = *plan.buffer(slot.name);
        isE4m3 = buffer.element == Element::E4m3;
        if (int64_t window = buffer.window; window && !plan.loopingKernel()) {
          count = std::min(count, start / kPagePositions + 1);
          first = std::max<int64_t>(0, count - ringPages(window));
        }
      }
  return {.pool = pool,
          .pages = pages,
          .first = int32_t(first),
          .count = int32_t(count),
          .heads = int32_t(plan.kvHeads),
          .dim = int32_t(plan.headDim),
          .element_bytes = isE4m3 ? 1 : 2,
          .seed = seed,
          .key_hash = hashOf(name + "k"),
          .value_hash = hashOf(name + "v"),
          .start = start,
          .poison = isE4m3 ? 0x7F7F7F7Fu : kPoisonWord}; // NaN
}

llvm::Expected<std::unique_ptr<DeviceFill>> DeviceFill::create(Driver &driver, const Nvrtc &nvrtc,
                                                               llvm::StringRef target) {
  auto compiled = nvrtc.compile("#include \"runtime/device_fill.cuh\"\n", "device_fill.cu",
                                deviceFillHeaders(), target);
  if (!compiled)
    return compiled.takeError();
  std::unique_ptr<DeviceFill> fill(new DeviceFill(driver));
  auto module = driver.loadModule(compiled->cubin, "device_fill.cubin", nvrtc.version());
  if (!module)
    return module.takeError();
  fill->module = *module;
  auto segmentKernel = driver.function(*module, "megalith_fill_segment", 0);
  if (!segmentKernel)
    return segmentKernel.takeError();
  fill->segmentKernel = *segmentKernel;
  auto pagesKernel = driver.function(*module, "megalith_fill_pages", 0);
  if (!pagesKernel)
    return pagesKernel.takeError();
  fill->pagesKernel = *pagesKernel;
  return fill;
}

DeviceFill::~DeviceFill() {
  if (module)
    driver.unloadModule(module);
}

llvm::Error DeviceFill::fill(const FillSegment &segment) {
  const int64_t wanted = (int64_t(segment.pieces) + kFillThreads - 1) / kFillThreads;
  const unsigned ctas = unsigned(std::min<int64_t>(wanted, driver.info().sms * 16));
  return driver.launch(segmentKernel, {.ctas = ctas, .threads = kFillThreads}, &segment);
}

llvm::Error DeviceFill::fill(const FillPages &pages) {
  const unsigned ctas = unsigned(std::clamp(pages.count - pages.first, 1, driver.info().sms * 8));
  return driver.launch(pagesKernel, {.ctas = ctas, .threads = kFillThreads}, &pages);
}

} // namespace megalith::runtime
