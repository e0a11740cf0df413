//===- OpenWeights.h - Weights for the runtime's packer ----------*- C++ -*-===//
//
// The runtime knows neither checkpoints nor made-up weights; this joins it to models/weights.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_WEIGHTS_OPENWEIGHTS_H
#define MEGALITH_TOOLS_WEIGHTS_OPENWEIGHTS_H

#include "models/weights/weights.h"
#include "runtime/weight_packer.h"

namespace megalith {

/// Tensors of `weights`, which must outlive the result, as bf16 rows and as NVFP4 blocks.
runtime::OpenTensor openTensors(const models::WeightSource &weights);

} // namespace megalith

#endif // MEGALITH_TOOLS_WEIGHTS_OPENWEIGHTS_H
