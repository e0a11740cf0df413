//===- ShardSchemes.h - ways to cut a model over ranks, and what they cost --===//
#ifndef MEGALITH_PASSES_GRAPH_SHARDSCHEMES_H
#define MEGALITH_PASSES_GRAPH_SHARDSCHEMES_H

#include "ir/moe/Moe.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>
#include <string>
#include <vector>

namespace megalith {

/// How two matrices are cut (`moe-shard`); all else follows.
struct ShardScheme {
  enum class Experts { NN, NNSums, NK };
  enum class OutputProjection { N, KOrdered, K };
  Experts experts = Experts::NN;
  OutputProjection outputProjection = OutputProjection::KOrdered;
  /// Partial sums of ranks are rounded to bf16 before they are exchanged.
  bool bf16Sums = false;

  /// Does every sum keep the order that it has on one rank?
  bool isOrdered() const {
    return experts != Experts::NK && outputProjection != OutputProjection::K;
  }
  /// "experts nn, o_proj k-ordered"
  std::string str() const;
};

/// The words of the pass's options; none if there is no such word.
std::optional<ShardScheme::Experts> parseExperts(llvm::StringRef word);
std::optional<ShardScheme::OutputProjection> parseOutputProjection(llvm::StringRef word);

/// Cuts a module with a moe.step for one of `ranks` ranks. Errors are reported at the operations.
llvm::LogicalResult shardModule(mlir::ModuleOp module, int64_t ranks, const ShardScheme &scheme);

/// One exchange of a layer.
struct ExchangeCost {
  std::string what;  ///< the operation it comes from, and how: "mlp.experts.down all_gather"
  int64_t bytes = 0; ///< that a rank receives, for one row
  int64_t stops = 0; ///< times that ranks wait for one another
  double microseconds = 0;
};

/// The exchanges of one kind of layer under one scheme.
struct LayerCost {
  std::string kind;   ///< the layer's function
  int64_t layers = 0; ///< of the step, that are of this kind
  std::vector<ExchangeCost> exchanges;

  int64_t bytes() const;
  int64_t stops() const;
  double microseconds() const;
};

/// From a product to the next one that needs its words, all in: an exchange within a GPU beside a
/// stream of 3 TB/s (docs/performance.md, E) and what the way over NVLink adds, 0.4 us
/// (docs/calibration.md, two GPUs; more than two were not measured).
constexpr double kHopMicroseconds = 2.0;
/// What an SM's warps take in of a gathered value, of which each SM polls the whole: 62 ns a KB
/// (docs/calibration.md). The links give more.
constexpr double kGatherBytesPerMicrosecond = 16.5e3;

/// What a sharded module exchanges. An all_reduce takes the cheaper of its two forms: every rank
/// sends all to all (one stop), or each rank sums a part and all gather it (two).
std::vector<LayerCost> layerCosts(mlir::ModuleOp sharded);

/// A scheme and what all layers of the step cost with it.
struct SchemeCost {
  ShardScheme scheme;
  std::vector<LayerCost> layers;
  double microseconds() const;
};

/// Every scheme that `allowed` lets pass and the module takes, the cheapest first.
std::vector<SchemeCost> compareSchemes(mlir::ModuleOp module, int64_t ranks,
                                       llvm::function_ref<bool(const ShardScheme &)> allowed,
                                       bool bf16Sums = false);

/// A table of bytes, stops and time per layer of every scheme, and the exchanges of the first.
std::string describe(llvm::ArrayRef<SchemeCost> schemes, int64_t ranks);

} // namespace megalith

#endif // MEGALITH_PASSES_GRAPH_SHARDSCHEMES_H
