// How the weights of stages are stored.
#ifndef MEGALITH_PASSES_GRAPH_WEIGHTFORMATS_H
#define MEGALITH_PASSES_GRAPH_WEIGHTFORMATS_H

#include "ir/task/Task.h"

#include "mlir/IR/BuiltinOps.h"

namespace megalith::graph {

/// Gives `weights` the format of the `moe.weight`s of the module that it is packed from: NVFP4
/// tiles if all of them are NVFP4, else bf16 strips.
void setWeightFormat(task::WeightsOp weights, mlir::ModuleOp module);

/// Refuses what `task.weights` cannot hold: other block formats, NVFP4 and other tensors in one,
/// NVFP4 rows that do not fill tiles.
mlir::LogicalResult checkWeightFormats(mlir::ModuleOp module);

} // namespace megalith::graph

#endif // MEGALITH_PASSES_GRAPH_WEIGHTFORMATS_H
