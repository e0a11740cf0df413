//===- KeptWeights.cpp - Made-up weights, made up once --------------------===//

#include "tools/check/KeptWeights.h"

#include "models/weights/bf16.h"
#include "models/weights/nvfp4.h"

#include <algorithm>
#include <atomic>

namespace megalith::check {

using models::WeightTensor;

/// Rows as bf16, each made by the thread that asks for it first.
class KeptWeights::Tensor {
public:
  Tensor(std::unique_ptr<WeightTensor> from, const models::TensorSpec &spec)
      : from(std::move(from)), columns(size_t(spec.columns())), rows(size_t(spec.rows())),
        values(new uint16_t[rows * columns]), states(rows) {}

  void row(int64_t index, std::span<float> out) {
    std::atomic<State> &state = states[size_t(index)];
    const std::span<uint16_t> kept(values.get() + size_t(index) * columns, columns);
    if (state.load(std::memory_order_acquire) == Made) {
      std::transform(kept.begin(), kept.end(), out.begin(), models::fromBf16);
      return;
    }
    from->row(index, out);
    State none = None;
    if (!state.compare_exchange_strong(none, Taken, std::memory_order_relaxed))
      return; // another thread keeps it
    std::transform(out.begin(), out.end(), kept.begin(), models::toBf16);
    state.store(Made, std::memory_order_release);
  }

private:
  enum State : uint8_t { None, Taken, Made };
  std::unique_ptr<WeightTensor> from;
  size_t columns, rows;
  std::unique_ptr<uint16_t[]> values; ///< not cleared: what is not read costs no memory
  std::vector<std::atomic<State>> states;
};

namespace {
class View final : public WeightTensor {
public:
  explicit View(std::shared_ptr<KeptWeights::Tensor> tensor) : tensor(std::move(tensor)) {}
  void row(int64_t index, std::span<float> out) const override { tensor->row(index, out); }

private:
  std::shared_ptr<KeptWeights::Tensor> tensor;
};
} // namespace

llvm::Expected<std::unique_ptr<WeightTensor>>
KeptWeights::open(const models::TensorSpec &spec) const {
  if (spec.role == models::TensorRole::InputScale)
    return from.open(spec);
  std::shared_ptr<Tensor> &tensor = tensors[spec.str()];
  if (!tensor) {
    auto opened = from.open(spec);
    if (!opened)
      return opened.takeError();
    tensor = std::make_shared<Tensor>(std::move(*opened), spec);
  }
  return std::make_unique<View>(tensor);
}

llvm::Expected<std::unique_ptr<models::BlockTensor>>
KeptWeights::openBlocks(const models::TensorSpec &spec, const models::BlockFormat &format) const {
  return from.openBlocks(spec, format);
}

} // namespace megalith::check
