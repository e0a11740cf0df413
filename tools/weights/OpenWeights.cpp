//===- OpenWeights.cpp - Weights for the runtime's packer -----------------===//

#include "tools/weights/OpenWeights.h"

#include "models/weights/nvfp4.h"

namespace megalith {

runtime::OpenTensor openTensors(const models::WeightSource &weights) {
  using Shape = std::vector<int64_t>;
  runtime::OpenTensor open =
      [&weights](const std::string &name, const Shape &shape,
                 runtime::TensorUse use) -> llvm::Expected<runtime::TensorRow> {
    auto tensor = weights.open({name, shape,
                                use == runtime::kGain          ? models::TensorRole::Gain
                                : use == runtime::kCentredGain ? models::TensorRole::CentredGain
                                                               : models::TensorRole::Matrix});
    if (!tensor)
      return tensor.takeError();
    return [shared = std::shared_ptr<models::WeightTensor>(std::move(*tensor))](
               int64_t row, auto out) { shared->row(row, out); };
  };
  open.blocks = [&weights](const std::string &name,
                           const Shape &shape) -> llvm::Expected<runtime::BlockRows> {
    auto tensor = weights.openBlocks({name, shape}, models::BlockFormat::nvfp4());
    if (!tensor)
      return tensor.takeError();
    const std::shared_ptr<models::BlockTensor> shared(std::move(*tensor));
    return runtime::BlockRows{
        [shared](int64_t row, std::span<uint8_t> codes, std::span<uint8_t> scales) {
          shared->stored(row, codes, scales);
        },
        [shared](int64_t row) { return shared->global(row); },
        [shared](int64_t row) { return shared->hasInputScale() ? shared->inputScale(row) : 0.0f; }};
  };
  return open;
}

} // namespace megalith
