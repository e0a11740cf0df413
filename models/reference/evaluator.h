//===- evaluator.h - The moe graph on the CPU --------------------*- C++ -*-===//
//
// The reference that kernels are compared with (DESIGN section 5). It interprets a module of the
// moe dialect with weights read on demand: one layer of a large model costs the weights of that
// layer's active experts. A sharded module (`moe-shard`) is run on all of its ranks; what goes in
// and comes out is that of the whole model.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_MODELS_REFERENCE_EVALUATOR_H
#define MEGALITH_MODELS_REFERENCE_EVALUATOR_H

#include "ir/moe/Moe.h"
#include "models/reference/experts.h"
#include "models/reference/fault.h"
#include "models/reference/kv.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace megalith::reference {

class Interpreter;

struct EvaluatorOptions {
  Precision precision = Precision::Contract;
  unsigned threads = 2; ///< does not change results
  Fault fault = Fault::None;
  Inner inner = Inner::Ascending;
};

/// What a layer gives.
struct LayerResult {
  Matrix residual;                ///< after the layer, [R, H]
  std::optional<Routing> routing; ///< none in a layer without experts
  Matrix qkv;                     ///< its q, k, v projections and linears of the same input (an
                                  ///< output gate) side by side, before norm and rope
};

/// What a step gives.
struct StepResult {
  Matrix embedded;                 ///< residual before layer 0
  std::vector<LayerResult> layers; ///< residual taps, router logits, ids, weights
  Matrix logits;                   ///< [R, vocab]
};

/// Evaluates the module's `moe.step`. R is the number of rows of the step given, not the bucket of
/// the module's types, so that a whole prompt can be one step. Rows that are dead compute nothing.
class Evaluator {
public:
  /// Fails unless the module has exactly one moe.step. Module and weights must outlive the
  /// evaluator.
  static llvm::Expected<Evaluator>
  create(mlir::ModuleOp module, const models::WeightSource &weights, EvaluatorOptions options = {});

  int64_t numLayers() const { return int64_t(layerFunctions.size()); }
  int64_t numRanks() const { return ranks; }

  /// Empty caches, one per layer; or that of one.
  std::vector<KvStore> makeCaches() const;
  KvStore makeCache(int64_t layer) const;

  /// A whole step; appends to the caches. `routingIn`: empty, or per layer the ids to replay, where
  /// an empty list means that the layer chooses itself.
  llvm::Expected<StepResult> step(const Step &step, std::vector<KvStore> &caches,
                                  std::span<const ExpertIds> routingIn = {}) const;

  /// Residual before layer 0.
  llvm::Expected<Matrix> embed(const Step &step) const;

  /// One layer from the residual before it, [R, H]; appends to its cache. `routingIn`: ids to
  /// replay, or null.
  llvm::Expected<LayerResult> layer(int64_t index, const Matrix &residual, KvStore &cache,
                                    const Step &step, const ExpertIds *routingIn = nullptr) const;

  /// The q, k, v projections of a layer from the residual before it: with `layer`, what crosses a
  /// kernel boundary. Touches no cache.
  llvm::Expected<Matrix> projections(int64_t index, const Matrix &residual, const Step &step) const;

  /// What the layer's top_k makes of router logits [R, E] that came from elsewhere.
  llvm::Expected<Routing> route(int64_t index, const Matrix &logits, const Step &step) const;

  /// Logits from the last layer's residual.
  llvm::Expected<Matrix> head(const Matrix &residual, const Step &step) const;

private:
  Evaluator(const models::WeightSource &weights, EvaluatorOptions options)
      : weights(&weights), options(options) {}

  llvm::Expected<Context> contextOf(const Step &step, const Matrix *residual) const;
  /// One interpreter a rank; `caches` is empty or has one of each.
  std::vector<Interpreter> interpreters(const Context &context, int64_t layer,
                                        std::span<KvStore *const> caches,
                                        const ExpertIds *routingIn) const;
  /// A layer's function, up to `stopAfter` if it is not empty; from it the residual and qkv.
  llvm::Expected<LayerResult> runLayer(int64_t index, const Matrix &residual, KvStore *cache,
                                       const Step &step, const ExpertIds *routingIn,
                                       llvm::StringRef stopAfter) const;

  const models::WeightSource *weights;
  EvaluatorOptions options;
  int64_t ranks = 1;
  mlir::FunctionOpInterface embedFunction, headFunction;
  std::vector<mlir::FunctionOpInterface> layerFunctions;
};

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_EVALUATOR_H
