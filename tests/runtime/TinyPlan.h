//===- TinyPlan.h - A plan with one of everything ----------------*- C++ -*-===//
#ifndef MEGALITH_TESTS_RUNTIME_TINYPLAN_H
#define MEGALITH_TESTS_RUNTIME_TINYPLAN_H

#include "runtime/packing.h"
#include "runtime/plan.h"

namespace megalith::runtime {

/// Two launches of one kernel over two layers: not a model, but valid.
inline Plan tinyPlan() {
  Plan plan{.model = "tiny",
            .target = "sm_90a",
            .sms = 4,
            .rows = 2,
            .tp = 1,
            .layers = 2,
            .kvHeads = 1,
            .headDim = 16,
            .maxPositions = 1000,
            .weightLayout = kWeightLayoutDigest};
  plan.buffers = {
      {.name = "resid", .bytes = 512, .sets = 3, .crossing = true, .shape = {2, 128}},
      {.name = "kv",
       .kind = BufferKind::Kv,
       .bytes = KvLayout{1, 16}.pageBytes(),
       .perLayer = true,
       .init = BufferInit::Poison},
      {.name = "partials", .kind = BufferKind::Epoch, .bytes = 64, .init = BufferInit::Zero},
      {.name = "logits",
       .kind = BufferKind::Output,
       .bytes = 64,
       .init = BufferInit::Poison,
       .element = Element::F32,
       .shape = {2, 8}},
      {.name = "resid_tap",
       .kind = BufferKind::Output,
       .bytes = 512,
       .perLayer = true,
       .init = BufferInit::Poison,
       .shape = {2, 128}}};
  plan.weights = {
      {.name = "qkv",
       .n = 48,
       .k = 128,
       .parts = {{.tensor = "model.layers.{layer}.q.weight", .shape = {16, 128}},
                 {.tensor = "model.layers.{layer}.k.weight", .shape = {16, 128}},
                 {.tensor = "model.layers.{layer}.v.weight", .shape = {16, 128}}}},
      {.name = "expert_up",
       .form = WeightForm::GateUpStrips,
       .n = 64,
       .k = 128,
       .experts = 3,
       .parts = {{.tensor = "model.layers.{layer}.mlp.{expert}.gate.weight", .shape = {32, 128}},
                 {.tensor = "model.layers.{layer}.mlp.{expert}.up.weight", .shape = {32, 128}}}},
      {.name = "inv_freq",
       .form = WeightForm::InverseFrequencies,
       .element = Element::F32,
       .k = 16,
       .perLayer = false,
       .theta = 1e4},
      {.name = "norm",
       .form = WeightForm::Vector,
       .k = 128,
       .parts = {{.tensor = "model.layers.{layer}.norm.weight",
                  .shape = {128},
                  .gain = true,
                  .transforms = {{.kind = TransformKind::AddOne}}}}},
      {.name = "embedding",
       .form = WeightForm::Table,
       .n = 8,
       .k = 128,
       .perLayer = false,
       .parts = {{.tensor = "model.embed.weight", .shape = {8, 128}}}}};
  plan.kernels = {{.name = "layer",
                   .file = "kernels/layer.cu",
                   .smemBytes = 4096,
                   .slots = {{0, "resid", SlotRole::Exchange},
                             {1, "qkv", SlotRole::Weights},
                             {2, "kv", SlotRole::Kv},
                             {3, "inv_freq", SlotRole::Immutable},
                             {4, "logits", SlotRole::Output},
                             {5, "resid_tap", SlotRole::Tap},
                             {6, "expert_up", SlotRole::Weights},
                             {7, "norm", SlotRole::Weights},
                             {8, "embedding", SlotRole::Weights},
                             {9, "partials", SlotRole::Exchange}},
                   .edges = {{0, "weights_full", "producer", "consumer"},
                             {1, "resid_words", "epilogue", "poller"}},
                   .resources = KernelResources{.registers = 90, .codeBytes = 4096}}};
  plan.launches = {{"layer", 0}, {"layer", 1}};
  return plan;
}

} // namespace megalith::runtime

#endif // MEGALITH_TESTS_RUNTIME_TINYPLAN_H
