#include "passes/graph/WeightFormats.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace megalith::graph {

static bool isOneNvfp4(moe::WeightOp tensor) {
  return tensor.getFormat() == moe::BlockFormatType::getNVFP4(tensor.getContext());
}

bool isNvfp4(ArrayRef<moe::WeightOp> tensors) {
  return llvm::all_of(tensors, isOneNvfp4);
}

LogicalResult checkWeightFormats(task::WeightsOp weights, ArrayRef<moe::WeightOp> tensors) {
  for (moe::WeightOp tensor : tensors) {
    bool isBlock = isa<moe::BlockFormatType>(tensor.getFormat());
    if (isBlock && !isOneNvfp4(tensor))
      return tensor.emitOpError()
             << "has no kernel form yet: of block formats only NVFP4, but it is "
             << tensor.getFormat();
    if (isBlock != weights.getNvfp4())
      return tensor.emitOpError()
             << "has no kernel form yet: NVFP4 and other tensors in one matrix, "
                "as "
             << weights.getCheckpoint();
  }
  return weights.verify(); // NVFP4 has rules of its own
}

} // namespace megalith::graph
