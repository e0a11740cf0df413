//===- fault.cpp - Planted formula faults ---------------------------------===//

#include "models/reference/fault.h"

#include <array>
#include <utility>

namespace megalith::reference {

namespace {
constexpr std::pair<Fault, std::string_view> kNames[] = {
    {Fault::NormEps, "norm-eps"},
    {Fault::NormGainOmitted, "norm-gain-omitted"},
    {Fault::QkNormGainOmitted, "qk-norm-gain-omitted"},
    {Fault::RopeAdjacentPairs, "rope-adjacent-pairs"},
    {Fault::RopeTheta, "rope-theta"},
    {Fault::SoftmaxScale, "softmax-scale"},
    {Fault::CausalOffByOne, "causal-off-by-one"},
    {Fault::ValueOffByOne, "value-off-by-one"},
    {Fault::GqaInterleaved, "gqa-interleaved"},
    {Fault::WindowOffByOne, "window-off-by-one"},
    {Fault::WindowTooLong, "window-too-long"},
    {Fault::RouterNotNormalized, "router-not-normalized"},
    {Fault::TopKSkipsBest, "top-k-skips-best"},
    {Fault::TiesToHigher, "ties-to-higher"},
    {Fault::GateUpSwapped, "gate-up-swapped"},
    {Fault::SiluIsGelu, "silu-is-gelu"},
    {Fault::CombineUnweighted, "combine-unweighted"},
    {Fault::ResidualDropped, "residual-dropped"},
    {Fault::GainNotCentred, "gain-not-centred"},
    {Fault::InputScaledAfter, "input-scaled-after"},
    {Fault::HeadNormOverRow, "head-norm-over-row"},
    {Fault::QueryKeyNormOmitted, "query-key-norm-omitted"},
    {Fault::OutputGateOmitted, "output-gate-omitted"},
    {Fault::ResidualSwapped, "residual-swapped"},
    {Fault::ResidualTemperature, "residual-temperature"},
    {Fault::ResidualFloor, "residual-floor"},
    {Fault::RouterUnscaled, "router-unscaled"},
    {Fault::ScoreIsSoftmax, "score-is-softmax"},
    {Fault::SelectionUnbiased, "selection-unbiased"},
    {Fault::BiasInWeights, "bias-in-weights"},
    {Fault::NormAfterWeighting, "norm-after-weighting"},
    {Fault::HeadUnscaled, "head-unscaled"},
    {Fault::SoftcapOmitted, "softcap-omitted"},
};
} // namespace

std::span<const Fault> allFaults() {
  static const auto faults = [] {
    std::array<Fault, std::size(kNames)> all;
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = kNames[i].first;
    return all;
  }();
  return faults;
}

std::string_view faultName(Fault fault) {
  for (const auto &[value, name] : kNames)
    if (value == fault)
      return name;
  return "none";
}

void plant(Fault fault, NormRule &rule, bool ofQueriesAndKeys) {
  if (fault == Fault::NormEps && !ofQueriesAndKeys)
    rule.eps *= 1000;
  if (fault == (ofQueriesAndKeys ? Fault::QkNormGainOmitted : Fault::NormGainOmitted))
    rule.ignoreWeight = true;
  if (fault == Fault::GainNotCentred)
    rule.onePlus = false;
  if (fault == Fault::InputScaledAfter && rule.kind == NormRule::Kind::RmsInputScaled)
    rule.kind = NormRule::Kind::Rms;
  if (fault == Fault::HeadNormOverRow)
    rule.group = 0;
  if (fault == Fault::QueryKeyNormOmitted && ofQueriesAndKeys)
    rule.omitted = true;
}

void plant(Fault fault, RopeRule &rule) {
  if (fault == Fault::RopeAdjacentPairs)
    rule.pairing = rule.pairing == RopeRule::Pairing::HalfSplit ? RopeRule::Pairing::Adjacent
                                                                : RopeRule::Pairing::HalfSplit;
  if (fault == Fault::RopeTheta)
    rule.theta /= 100;
}

void plant(Fault fault, AttentionRule &rule) {
  if (fault == Fault::SoftmaxScale)
    rule.scale *= 2;
  if (fault == Fault::CausalOffByOne)
    rule.causalShift = -1;
  if (fault == Fault::ValueOffByOne)
    rule.valueShift = -1;
  if (fault == Fault::GqaInterleaved)
    rule.interleavedHeads = true;
  if (fault == Fault::WindowOffByOne)
    rule.extent -= 1;
  if (fault == Fault::WindowTooLong)
    rule.extent += 1;
}

void plant(Fault fault, TopKRule &rule) {
  if (fault == Fault::RouterNotNormalized) {
    rule.renormalize = false;
    if (rule.score == TopKRule::Score::SoftmaxSelected)
      rule.score = TopKRule::Score::SoftmaxAll;
  }
  if (fault == Fault::TopKSkipsBest)
    rule.skipBest = true;
  if (fault == Fault::TiesToHigher)
    rule.tiesToHigher = true;
  if (fault == Fault::ScoreIsSoftmax && rule.score == TopKRule::Score::Sigmoid)
    rule.score = TopKRule::Score::SoftmaxAll;
  if (fault == Fault::SelectionUnbiased)
    rule.ignoreBias = true;
  if (fault == Fault::BiasInWeights)
    rule.biasInWeights = true;
}

void plant(Fault fault, GluRule &rule) {
  if (fault == Fault::GateUpSwapped)
    rule.swapped = true;
  if (fault == Fault::SiluIsGelu)
    rule.activation = GluRule::Activation::GeluTanh;
}

void plant(Fault fault, ResidualRule &rule) {
  if (fault == Fault::ResidualDropped)
    rule.dropStream = true;
  if (fault == Fault::ResidualSwapped)
    rule.swapped = true;
  if (fault == Fault::ResidualTemperature)
    rule.temperature = 1;
  if (fault == Fault::ResidualFloor)
    rule.floor = 0;
}

void plant(Fault fault, CombineRule &rule) {
  if (fault == Fault::CombineUnweighted)
    rule.ignoreWeights = true;
}

void plant(Fault fault, OutputGateRule &rule) {
  if (fault == Fault::OutputGateOmitted)
    rule.omitted = true;
}

void plant(Fault fault, HeadRule &rule) {
  if (fault == Fault::HeadUnscaled)
    rule.multiplier = 1;
  if (fault == Fault::SoftcapOmitted)
    rule.softcap.reset();
}

void plant(Fault fault, LinearRule &rule) {
  if (fault == Fault::RouterUnscaled)
    rule.multiplier = 1;
}

} // namespace megalith::reference
