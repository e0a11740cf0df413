//===- ChainPlan.h - A small kernel whose results are known ------*- C++ -*-===//
//
// Exercises what the runtime promises kernels: weights of the launch's layer, crossing words in
// three sets, the launch counter, overlapping launches, the fault record. Runs on both platforms.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TESTS_RUNTIME_CHAINPLAN_H
#define MEGALITH_TESTS_RUNTIME_CHAINPLAN_H

#include "runtime/packing.h"
#include "runtime/plan.h"
#include "runtime/weight_packer.h"

namespace megalith::runtime {

// Launch n adds, on SM s, word s of layer `layer`'s expert `row_token[0]` to word s of what launch
// n-1 left (0 before the first), and publishes the sum as a crossing word and as output.
inline constexpr const char *kChainSource = R"(
#include "codegen/device/platform.cuh"
namespace megalith {
MEGALITH_KERNEL(chain) {
  using namespace platform;
  if (warp() != 0 || lane() != 0)
    return;
  const uint64_t n = ld_global<uint64_t>(&args.step->launch_base) + args.launch_in_step;
  const int expert = ld_global<int32_t>(&args.step->row_token[0]);
  const uint32_t *weights = static_cast<const uint32_t *>(args.buffer[1]) + expert * 128;
  uint32_t *words = static_cast<uint32_t *>(args.buffer[0]);
  uint32_t before = 0;
  if (n > 0) {
    const uint32_t *from = words + (n - 1) % 3 * 4 + sm();
    const uint64_t since = now_ns();
    while ((before = ld_relaxed<Scope::gpu>(from)) == 0xFFFFFFFFu) {
      if (now_ns() - since > args.deadline_ns)
        fail(args.fault, 1, 1, 0, n);
      poll_pause(from);
    }
  }
  launch_wait();
  if (n > 1)
    st_relaxed<Scope::gpu>(words + (n - 2) % 3 * 4 + sm(), 0xFFFFFFFFu);
  const uint32_t sum = before + ld_const<uint32_t>(weights + sm());
  st_relaxed<Scope::gpu>(words + n % 3 * 4 + sm(), sum);
  st_global<uint32_t>(static_cast<uint32_t *>(args.buffer[2]) + sm(), sum);
  launch_dependents();
}
} // namespace megalith
)";

/// Two launches of the kernel above, one a layer, over an expert bank.
inline Plan chainPlan() {
  Plan plan{.model = "chain",
            .target = "sm_90a",
            .sms = 4,
            .rows = 1,
            .tp = 1,
            .layers = 2,
            .kvHeads = 1,
            .headDim = 16,
            .vocab = 3,
            .weightLayout = kWeightLayoutDigest};
  plan.buffers = {
      {.name = "sum", .bytes = 16, .sets = 3, .crossing = true, .element = Element::U32},
      {.name = "out",
       .kind = BufferKind::Output,
       .bytes = 16,
       .perLayer = true,
       .init = BufferInit::Poison,
       .element = Element::U32}};
  plan.weights = {{.name = "bank",
                   .form = WeightForm::Table,
                   .n = 2,
                   .k = 128,
                   .experts = 3,
                   .parts = {{.tensor = "{layer}.{expert}", .shape = {2, 128}}}}};
  plan.kernels = {{.name = "chain",
                   .file = "chain.cu",
                   .slots = {{0, "sum", SlotRole::Exchange},
                             {1, "bank", SlotRole::Weights},
                             {2, "out", SlotRole::Output}},
                   .edges = {{0, "unused", "", ""}, {1, "sums", "all", "all"}}}};
  plan.launches = {{"chain", 0}, {"chain", 1}};
  return plan;
}

/// Bank contents: word i of row 0 of expert e of layer l is 100 * l + 10 * e + i + 1.
inline OpenTensor chainNumbers(int *rowsRead = nullptr) {
  return [rowsRead](const std::string &name, const std::vector<int64_t> &,
                    bool) -> llvm::Expected<TensorRow> {
    const int base = 100 * (name[0] - '0') + 10 * (name[2] - '0');
    return TensorRow([base, rowsRead](int64_t, std::span<uint16_t> out) {
      if (rowsRead)
        ++*rowsRead;
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = i % 2 ? 0 : uint16_t(base + i / 2 + 1); // the low half of a word
    });
  };
}

} // namespace megalith::runtime

#endif // MEGALITH_TESTS_RUNTIME_CHAINPLAN_H
