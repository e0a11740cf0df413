// How the weights of stages are stored.
#ifndef MEGALITH_PASSES_GRAPH_WEIGHTFORMATS_H
#define MEGALITH_PASSES_GRAPH_WEIGHTFORMATS_H

#include "ir/moe/Moe.h"
#include "ir/task/Task.h"

namespace megalith::graph {

/// Whether all `tensors` are NVFP4.
bool isNvfp4(llvm::ArrayRef<moe::WeightOp> tensors);

/// Refuses, at a tensor, what the `task.weights` packed from `tensors` cannot hold: other block
/// formats, NVFP4 and other tensors in one, NVFP4 rows that do not fill tiles.
llvm::LogicalResult checkWeightFormats(task::WeightsOp weights,
                                       llvm::ArrayRef<moe::WeightOp> tensors);

} // namespace megalith::graph

#endif // MEGALITH_PASSES_GRAPH_WEIGHTFORMATS_H
