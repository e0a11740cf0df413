//===- Traffic.cpp - Bytes that a step cannot do without --------------------===//

#include "tools/bench/Traffic.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace megalith::bench {

using runtime::Plan;
using runtime::Weight;
using runtime::WeightForm;

Traffic &Traffic::operator+=(const Traffic &other) {
  dense += other.dense;
  experts += other.experts;
  kv += other.kv;
  return *this;
}

/// Bytes of one segment without padding.
static int64_t netBytes(const Weight &weight, int64_t rows) {
  switch (weight.form) {
  case WeightForm::Strips:
  case WeightForm::GateUpStrips:
    return weight.n * weight.k * elementBytes(weight.element);
  case WeightForm::Nvfp4: // codes and scales
  case WeightForm::GateUpNvfp4:
    return weight.n * weight.k * 9 / 16;
  case WeightForm::Vector:
    return weight.k * elementBytes(weight.element);
  case WeightForm::Table: // a row of it for each row of the step
    return rows * weight.k * elementBytes(weight.element);
  case WeightForm::InverseFrequencies:
    return weight.k / 2 * 4;
  }
  return 0;
}

/// Whether ranks have parts of it.
static bool isDivided(const Weight &weight) {
  return std::any_of(weight.parts.begin(), weight.parts.end(), [](const runtime::WeightPart &part) {
    return std::any_of(
        part.transforms.begin(), part.transforms.end(),
        [](const runtime::Transform &t) { return t.kind == runtime::TransformKind::Shard; });
  });
}

Traffic launchTraffic(const Plan &plan, int64_t launch, std::span<const int64_t> activeExperts,
                      const Histories &histories) {
  Traffic traffic;
  const runtime::Launch &which = plan.launches[size_t(launch)];
  for (const runtime::SlotBinding &slot : plan.kernel(which.kernel)->slots) {
    if (!slot.isUsedIn(launch))
      continue;
    if (slot.role == runtime::SlotRole::Kv) {
      const int64_t window = plan.buffer(slot.name)->window;
      const int64_t read = window ? std::min(window, histories.positions) : histories.positions;
      const int64_t each = elementBytes(plan.buffer(slot.name)->element);
      traffic.kv += histories.count * read * 2 * plan.kvHeads * plan.headDim * each; // K and V
      continue;
    }
    const Weight *weight = plan.weight(slot.name);
    if (!weight)
      continue;
    const int64_t bytes = netBytes(*weight, plan.rows) / (isDivided(*weight) ? 1 : plan.tp);
    if (weight->experts)
      traffic.experts += bytes * activeExperts[size_t(which.layer + slot.layerOffset)];
    else
      traffic.dense += bytes;
  }
  return traffic;
}

Traffic stepTraffic(const Plan &plan, std::span<const int64_t> activeExperts,
                    const Histories &histories) {
  Traffic traffic;
  for (size_t launch = 0; launch < plan.launches.size(); ++launch)
    traffic += launchTraffic(plan, int64_t(launch), activeExperts, histories);
  return traffic;
}

int64_t distinctExperts(std::span<const float> logits, int64_t experts, int64_t k,
                        std::span<const float> bias) {
  std::set<int64_t> chosen;
  for (size_t first = 0; first + size_t(experts) <= logits.size(); first += size_t(experts)) {
    std::vector<float> values;
    for (size_t e = 0; e < size_t(experts); ++e) {
      float value = logits[first + e];
      if (!bias.empty())
        value = 1 / (1 + std::exp(-value)) + bias[e];
      values.push_back(std::isnan(value) ? -INFINITY : value); // NaN is below everything
    }
    std::vector<int64_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return values[size_t(a)] > values[size_t(b)]; });
    chosen.insert(order.begin(), order.begin() + k);
  }
  return int64_t(chosen.size());
}

} // namespace megalith::bench
