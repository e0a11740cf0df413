// What stands at module level: weights and the step.
#ifndef MEGALITH_IR_MOE_MODULE_OPS_TD
#define MEGALITH_IR_MOE_MODULE_OPS_TD

include "ir/moe/MoeTypes.td"
include "mlir/IR/SymbolInterfaces.td"

def MOE_WeightOp : MOE_Op<"weight", [Symbol]> {
  let summary = "a checkpoint tensor, or the tensors of the same name over layers and experts";
  let description = [{
    `shape` is the unsharded logical shape in elements ([out, in], [E, out, in], [n]); `format` is
    bf16, f32 or a `!moe.block_format`. `checkpoint` may hold `{layer}` (the index in the step's
    list) and `{expert}` (then dimension 0 of the shape counts the experts, one tensor each).
    `part`: the weight is a part of that tensor; sharding then cuts the part.

    ```mlir
    moe.weight @experts_up [128, 768, 2048] of bf16
        from "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"
    moe.weight @gate [256, 4096, 4096] of bf16 from "model.layers.{layer}.mlp.experts.gate_up_proj"
        part <dim = 1, index = 0, count = 2>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DenseI64ArrayAttr:$shape, TypeAttr:$format,
      StrAttr:$checkpoint, OptionalAttr<MOE_Shard>:$shard, OptionalAttr<MOE_Part>:$part);
  let assemblyFormat = [{
    $sym_name $shape `of` $format `from` $checkpoint (`part` $part^)? (`sharded` $shard^)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    static constexpr ::llvm::StringLiteral kLayer = "{layer}";
    static constexpr ::llvm::StringLiteral kExpert = "{expert}";
    /// One tensor per layer / per expert in the checkpoint?
    bool isPerLayer() { return getCheckpoint().contains(kLayer); }
    bool isPerExpert() { return getCheckpoint().contains(kExpert); }
    /// The shape of the tensor in the checkpoint: `shape`, wider where this is a part.
    ::llvm::SmallVector<int64_t> getCheckpointShape();
    /// The shape one rank holds.
    ::llvm::SmallVector<int64_t> getLocalShape();
    /// The checkpoint name with its placeholders filled in.
    std::string getTensorName(int64_t layer, int64_t expert);
  }];
}

def MOE_StepOp : MOE_Op<"step", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "one decode step: embedding, layers in order, head";
  let description = [{
    `layers[l]` is the function of layer l: (residual, !moe.kv) -> (residual, !moe.kv); equal
    neighbours print as `@kind * n`. `embed`: tokens [R] -> residual; `head`: residual -> logits
    [R, V] in f32. The residual's type is the same throughout; each layer has a cache of its own.

    ```mlir
    moe.step @decode embed(@embed) layers(@dense, @sparse * 45) head(@head)
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$embed,
      TypedArrayAttrBase<FlatSymbolRefAttr, "layer functions">:$layers, FlatSymbolRefAttr:$head);
  let assemblyFormat = [{
    $sym_name `embed` `(` $embed `)` `layers` `(` custom<Layers>($layers) `)` `head` `(` $head `)`
    attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getNumLayers() { return getLayers().size(); }
    ::mlir::FlatSymbolRefAttr getLayer(int64_t l) {
      return ::llvm::cast<::mlir::FlatSymbolRefAttr>(getLayers()[l]);
    }
  }];
}

#endif
