//===- StepBuilder.h - builds the module of one model -----------------------===//
#ifndef MEGALITH_MODELS_STEPBUILDER_H
#define MEGALITH_MODELS_STEPBUILDER_H

#include "ir/moe/Moe.h"
#include "models/ModelConfig.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <utility>

namespace megalith::models {

/// Names and shapes for the operations of the moe dialect, in the words of a ModelConfig. Families
/// compose these; activations are bf16 unless said otherwise (`spec/models.md` section 1b), the
/// residual stream as the config says. `where` becomes an operation's location:
/// "layer.self_attn.q_proj", in the config's file.
class StepBuilder {
public:
  StepBuilder(mlir::MLIRContext &context, const ModelConfig &config, int64_t rows,
              int64_t positions);

  const ModelConfig &config;
  mlir::OpBuilder builder;

  /// Defines a weight at module level and names it; kinds of layer that share a weight define it
  /// once. `format`: bf16 if null. `part`: none if null.
  mlir::FlatSymbolRefAttr weight(llvm::StringRef symbol, llvm::ArrayRef<int64_t> shape,
                                 llvm::StringRef checkpoint, mlir::Type format = {},
                                 moe::PartAttr part = {});

  mlir::RankedTensorType bf16(int64_t rows, int64_t columns);
  mlir::RankedTensorType f32(int64_t rows, int64_t columns);
  /// The residual stream's type.
  mlir::RankedTensorType streamType();
  mlir::Location loc(llvm::StringRef where);

  /// @embed: the embedding row of each token, then what `after` makes of it (nothing, if null).
  using Body = llvm::function_ref<mlir::Value(mlir::Value)>;
  void embed(llvm::StringRef checkpoint, Body after = nullptr);
  /// A layer function; `body` maps residual and cache to their successors.
  using LayerBody =
      llvm::function_ref<std::pair<mlir::Value, mlir::Value>(mlir::Value stream, mlir::Value kv)>;
  void layer(llvm::StringRef symbol, LayerBody body) { layer(symbol, kvType, body); }
  void layer(llvm::StringRef symbol, moe::KVType kv, LayerBody body);
  /// @head: RMS norm, then the vocabulary's logits.
  void head(llvm::StringRef normCheckpoint, llvm::StringRef headCheckpoint);
  /// @head: `body` maps the residual to logits [R, V].
  void head(Body body);
  /// moe.step @decode of these layers.
  void step(llvm::ArrayRef<std::string> layerSymbols);

  /// The type of a layer's cache. `window`: positions that its ring keeps, 0: all.
  moe::KVType cache(int64_t window);
  /// Writes a step's keys and values, with the scales that the checkpoint has for them.
  /// `attention`: what its attention's tensors are called, "model.layers.{layer}.self_attn.".
  mlir::Value kvAppend(mlir::Value kv, mlir::Value k, mlir::Value v, llvm::StringRef attention,
                       llvm::StringRef where);

  /// RMS norm of the rows with the config's eps.
  mlir::Value rmsNorm(mlir::Value x, mlir::FlatSymbolRefAttr gain, llvm::StringRef where);
  mlir::Value residual(mlir::Value stream, mlir::Value branch, llvm::StringRef where);

  mlir::OwningOpRef<mlir::ModuleOp> take() { return std::move(module); }

  const int64_t rows;
  const int64_t positions; ///< the most of a sequence
  const moe::KVType kvType;

private:
  /// A function at the module's end; the builder is left in its body.
  mlir::Block *function(llvm::StringRef symbol, mlir::TypeRange inputs, mlir::TypeRange results);
  void functionReturn(mlir::ValueRange values);

  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace megalith::models

#endif // MEGALITH_MODELS_STEPBUILDER_H
