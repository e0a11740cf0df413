//===- device_fill.cpp - Made-up weights and KV pages on the GPU ----------===//

#include "runtime/device_fill.h"

#include "runtime/error.h"
#include "runtime/packing.h"
#include "runtime/weight_packer.h"

#include <algorithm>
#include <cassert>

namespace megalith::runtime {

namespace {

uint32_t hashOf(const std::string &name) {
  return models::fnv1a32(name.data(), name.size());
}

int64_t rowsOf(const WeightPart &part) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < part.shape.size(); ++i)
    rows *= part.shape[i];
  return rows;
}

} // namespace

std::optional<FillSegment> fillSegment(const Weight &weight, int64_t layer, int64_t segment,
                                       uint32_t seed, unsigned char *out) {
  const bool isMatrix =
      weight.form == WeightForm::Strips || weight.form == WeightForm::GateUpStrips;
  const int64_t bytes = segmentBytes(weight);
  if (weight.form == WeightForm::InverseFrequencies || weight.element != Element::Bf16 ||
      weight.parts.size() > kMaxFillParts || bytes % 16 || (weight.n > 1 && weight.k % 8))
    return std::nullopt;
  FillSegment fill = {.out = out,
                      .pieces = uint32_t(bytes / 16),
                      .seed = seed,
                      .form = weight.form == WeightForm::GateUpStrips ? kFillGateUp
                              : isMatrix                              ? kFillStrips
                                                                      : kFillRows,
                      .parts = int32_t(weight.parts.size()),
                      .n = weight.n,
                      .k = weight.k};
  if (isMatrix) {
    const StripLayout layout(weight.n, weight.k);
    fill.strips = uint32_t(layout.strips);
    fill.kb = uint32_t(layout.kb);
    fill.chunk16 = uint32_t(layout.chunk16);
  }
  for (size_t p = 0; p < weight.parts.size(); ++p) {
    const WeightPart &part = weight.parts[p];
    if (!part.transforms.empty() || part.shape.back() != weight.k)
      return std::nullopt;
    const bool perExpert = llvm::StringRef(part.tensor).contains("{expert}");
    // A tensor that serves all experts has their rows one after another.
    const int64_t rows = rowsOf(part) / (perExpert ? 1 : segmentCount(weight));
    fill.part[p] = {.name_hash = hashOf(tensorName(part, layer, perExpert ? segment : 0)),
                    .gain = part.gain,
                    .scale = part.gain ? models::kGainScale
                                       : models::weightScale(uint64_t(part.shape.back())),
                    .rows = int32_t(rows),
                    .first_row = perExpert ? 0 : segment * rows};
  }
  return fill;
}

FillPages fillPages(const Plan &plan, int64_t layer, uint32_t seed, unsigned char *pool,
                    const int32_t *pages, int64_t count) {
  const std::string name = "kv." + std::to_string(layer) + ".";
  return {.pool = pool,
          .pages = pages,
          .count = int32_t(count),
          .heads = int32_t(plan.kvHeads),
          .dim = int32_t(plan.headDim),
          .seed = seed,
          .key_hash = hashOf(name + "k"),
          .value_hash = hashOf(name + "v"),
          .poison = kPoisonWord};
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
  const unsigned ctas = unsigned(std::clamp(pages.count, 1, driver.info().sms * 8));
  return driver.launch(pagesKernel, {.ctas = ctas, .threads = kFillThreads}, &pages);
}

} // namespace megalith::runtime
