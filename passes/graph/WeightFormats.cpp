#include "passes/graph/WeightFormats.h"

#include "ir/moe/Moe.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace megalith::graph {

static bool isNvfp4(moe::WeightOp tensor) {
  return tensor.getFormat() == moe::BlockFormatType::getNVFP4(tensor.getContext());
}

/// The tensors of the graph that `weights` is packed from; none if it was written by hand.
static SmallVector<moe::WeightOp> tensorsOf(task::WeightsOp weights, ModuleOp module) {
  SmallVector<moe::WeightOp> tensors;
  auto names = llvm::to_vector(weights.getCheckpoint().getAsValueRange<StringAttr>());
  for (auto tensor : module.getOps<moe::WeightOp>())
    if (llvm::is_contained(names, tensor.getCheckpoint()))
      tensors.push_back(tensor);
  return tensors;
}

void setWeightFormat(task::WeightsOp weights, ModuleOp module) {
  SmallVector<moe::WeightOp> tensors = tensorsOf(weights, module);
  weights.setNvfp4(!tensors.empty() && llvm::all_of(tensors, isNvfp4));
}

static LogicalResult checkWeightFormat(task::WeightsOp weights, ModuleOp module) {
  for (moe::WeightOp tensor : tensorsOf(weights, module)) {
    bool isBlock = isa<moe::BlockFormatType>(tensor.getFormat());
    if (isBlock && !isNvfp4(tensor))
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

LogicalResult checkWeightFormats(ModuleOp module) {
  for (auto kernel : module.getOps<task::KernelOp>())
    for (auto weights : kernel.getOps<task::WeightsOp>())
      if (failed(checkWeightFormat(weights, module)))
        return failure();
  return success();
}

} // namespace megalith::graph
