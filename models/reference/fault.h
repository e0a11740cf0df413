//===- fault.h - Planted formula faults --------------------------*- C++ -*-===//
//
// A tolerance proves something only if plausible mistakes exceed it. Each fault is one such
// mistake; tests evaluate with it and demand to be told.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_REFERENCE_FAULT_H
#define MEGALITH_MODELS_REFERENCE_FAULT_H

#include "models/reference/rules.h"

#include <span>
#include <string_view>

namespace megalith::reference {

enum class Fault {
  None,
  NormEps,             ///< row norms: eps a thousand times too large
  NormGainOmitted,     ///< row norms without their weight
  QkNormGainOmitted,   ///< query and key norms without their weight
  RopeAdjacentPairs,   ///< the other rope pairing
  RopeTheta,           ///< theta divided by 100
  SoftmaxScale,        ///< attention scores twice too large
  CausalOffByOne,      ///< a query does not see its own key
  ValueOffByOne,       ///< values read one position too early
  GqaInterleaved,      ///< query head h reads KV head h mod kv_heads
  WindowOffByOne,      ///< a window or chunk one position too short
  WindowTooLong,       ///< a window or chunk one position too long
  RouterNotNormalized, ///< expert weights do not sum to one
  TopKSkipsBest,       ///< experts of places 2 .. k + 1
  TiesToHigher,        ///< equal logits select the higher expert (shows only where logits tie)
  GateUpSwapped,       ///< activation on up instead of on gate
  SiluIsGelu,          ///< gelu instead of silu
  CombineUnweighted,   ///< expert outputs averaged
  ResidualDropped,     ///< a branch replaces the residual stream
  GainNotCentred,      ///< w for a gain that is stored as 1 + w
  InputScaledAfter,    ///< norms whose gain belongs on the input have it on the result
  HeadNormOverRow,     ///< norms over a head take the whole row
  QueryKeyNormOmitted, ///< queries and keys as projected
  OutputGateOmitted,   ///< attention's output ungated
  ResidualSwapped,     ///< alpha and beta change places
  ResidualTemperature, ///< the gate's temperature is one
  ResidualFloor,       ///< alpha without its floor
  RouterUnscaled,      ///< router logits without their multiplier
  ScoreIsSoftmax,      ///< softmax instead of sigmoid
  SelectionUnbiased,   ///< experts selected without their bias
  BiasInWeights,       ///< the selection's bias also weights
  NormAfterWeighting,  ///< the experts' norm on their sum
  HeadUnscaled,        ///< logits without their multiplier
  SoftcapOmitted,      ///< logits without their cap
};

/// All faults but None.
std::span<const Fault> allFaults();

/// "rope-theta"; for messages and command lines.
std::string_view faultName(Fault fault);

/// Changes a rule as `fault` says; leaves it alone if the fault is about something else.
void plant(Fault fault, NormRule &rule, bool ofQueriesAndKeys);
void plant(Fault fault, RopeRule &rule);
void plant(Fault fault, AttentionRule &rule);
void plant(Fault fault, TopKRule &rule);
void plant(Fault fault, GluRule &rule);
void plant(Fault fault, ResidualRule &rule);
void plant(Fault fault, CombineRule &rule);
void plant(Fault fault, OutputGateRule &rule);
void plant(Fault fault, HeadRule &rule);
/// Of a router.
void plant(Fault fault, LinearRule &rule);

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_FAULT_H
