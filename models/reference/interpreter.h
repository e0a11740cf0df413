//===- interpreter.h - Walks one function of the moe graph -------*- C++ -*-===//
#ifndef MEGALITH_MODELS_REFERENCE_INTERPRETER_H
#define MEGALITH_MODELS_REFERENCE_INTERPRETER_H

#include "models/reference/attention.h"
#include "models/reference/experts.h"
#include "models/reference/fault.h"
#include "models/reference/kv.h"
#include "models/reference/op_rules.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

#include "llvm/ADT/DenseMap.h"

namespace megalith::reference {

/// Evaluates the operations of a function one after another, for one rank. One interpreter serves
/// one call of one function: it holds the call's values.
class Interpreter {
public:
  /// `layer`: what {layer} in checkpoint names stands for. `routingIn`: expert ids to replay, or
  /// null. `cache`: what the function's !moe.kv stands for, or null if it has none. `rank`: whose
  /// part of sharded weights this reads.
  Interpreter(const Context &context, const models::WeightSource &weights, Fault fault,
              int64_t layer, KvStore *cache, const ExpertIds *routingIn, int64_t rank = 0)
      : context(context), weights(weights), fault(fault), layer(layer), cache(cache),
        routingIn(routingIn), rank(rank) {}

  // In a vector, moved and never copied.
  Interpreter(Interpreter &&) noexcept = default;

  /// Gives a value, normally an argument of the function.
  void define(mlir::Value value, Matrix matrix) { matrices[value] = std::move(matrix); }

  /// Evaluates the body of `function` on all ranks, in step, as each collective needs values of
  /// all; with `stopAfter`, up to and including the first operation of that name, and an error if
  /// there is none.
  static llvm::Error run(llvm::MutableArrayRef<Interpreter> ranks,
                         mlir::FunctionOpInterface function, llvm::StringRef stopAfter = "");

  /// Evaluates only the function's top_k, on the logits given; an error if it has none.
  llvm::Error runTopK(mlir::FunctionOpInterface function, const Matrix &logits);

  /// The value's matrix, after run.
  const Matrix &matrixOf(mlir::Value value) const { return matrices.find(value)->second; }

  /// What the function's top_k found, if it has one.
  std::optional<Routing> routing;

private:
  /// What needs the values of all ranks: all_gather, all_reduce.
  static llvm::Error exchange(llvm::MutableArrayRef<Interpreter> ranks, mlir::Operation *op);
  llvm::Error visit(mlir::Operation *op);
  llvm::Error visit(moe::EmbedOp op);
  llvm::Error visit(moe::NormOp op);
  llvm::Error visit(moe::QkvProjOp op);
  llvm::Error visit(moe::QkNormOp op);
  llvm::Error visit(moe::RopeOp op);
  llvm::Error visit(moe::KvAppendOp op);
  llvm::Error visit(moe::AttentionOp op);
  llvm::Error visit(moe::OutputGateOp op);
  llvm::Error visit(moe::CastOp op);
  llvm::Error visit(moe::LinearOp op);
  llvm::Error visit(moe::ResidualOp op);
  llvm::Error visit(moe::LmHeadOp op);
  llvm::Error visit(moe::RouterOp op);
  llvm::Error visit(moe::TopKOp op);
  llvm::Error visit(moe::ExpertGateUpOp op);
  llvm::Error visit(moe::GluOp op);
  llvm::Error visit(moe::ExpertDownOp op);
  llvm::Error visit(moe::ExpertNormOp op);
  llvm::Error visit(moe::CombineOp op);
  llvm::Error visit(moe::QuantizeOp op);
  llvm::Error visit(moe::SquareSumsOp op);

  /// A weight, opened for as long as this interpreter lives. `expert` fills {expert}.
  llvm::Expected<WeightView> open(mlir::Operation *op, mlir::FlatSymbolRefAttr ref,
                                  models::TensorRole role = models::TensorRole::Matrix,
                                  int64_t expert = 0);
  /// A vector weight in full, or nothing if `ref` is null.
  llvm::Expected<std::vector<double>>
  vectorOf(mlir::Operation *op, mlir::FlatSymbolRefAttr ref,
           models::TensorRole role = models::TensorRole::Matrix);
  /// What the cache's keys and values are divided by.
  llvm::Expected<KvScales> scalesOf(moe::KvAppendOp op);
  /// input * weight^T + bias into `result`.
  llvm::Error linearInto(mlir::Operation *op, mlir::Value result, mlir::Value input,
                         mlir::FlatSymbolRefAttr weight, mlir::FlatSymbolRefAttr bias,
                         const LinearRule &rule,
                         WeightPrecision precision = WeightPrecision::AsStored);
  /// A projection of every (row, expert) pair into `result`.
  llvm::Error expertsInto(mlir::Operation *op, mlir::Value result, mlir::Value input,
                          mlir::Value ids, mlir::FlatSymbolRefAttr weight,
                          mlir::FlatSymbolRefAttr bias);
  /// A norm of `input` into `result`.
  llvm::Error normInto(mlir::Operation *op, mlir::Value result, mlir::Value input, NormRule rule,
                       mlir::FlatSymbolRefAttr weight, mlir::FlatSymbolRefAttr bias,
                       bool ofQueriesAndKeys);

  const Context &context;
  const models::WeightSource &weights;
  const Fault fault;
  const int64_t layer;
  KvStore *const cache;
  const ExpertIds *const routingIn;
  const int64_t rank;
  llvm::DenseMap<mlir::Value, Matrix> matrices;
  llvm::DenseMap<mlir::Value, ExpertIds> idsOf;
  moe::ExpertNormOp deferredNorm; ///< under Fault::NormAfterWeighting, what combine does as well
  std::vector<std::unique_ptr<models::WeightTensor>> opened;
};

} // namespace megalith::reference

#endif // MEGALITH_MODELS_REFERENCE_INTERPRETER_H
