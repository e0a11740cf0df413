// The dialect itself: its map, and the constraints that its operations share.
#ifndef MEGALITH_IR_MOE_BASE_TD
#define MEGALITH_IR_MOE_BASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Moe_Dialect : Dialect {
  let name = "moe";
  let cppNamespace = "::megalith::moe";
  let summary = "What one decode step of a Mixture-of-Experts model computes";
  let description = [{
    # Map

    ```
    module
      moe.weight @...          one per checkpoint tensor family: shape, format, name, sharding
      func.func @embed         tokens [R]            -> residual [R, H]
      func.func @<layer kind>  (residual, !moe.kv)   -> (residual, !moe.kv)     one per KIND of layer
      func.func @head          residual              -> logits [R, V]
      moe.step                 embed, layer -> kind, head
    ```

    | part of a layer | operations, in the usual order |
    |---|---|
    | attention | `norm` `qkv_proj` `qk_norm` `rope` `kv_append` `attention` `output_gate` `linear` `residual` |
    | experts   | `norm` `router` `top_k` `expert_gate_up` `glu` `expert_down` `expert_norm` `combine` `residual` |
    | ends      | `embed` `lm_head` |
    | types     | `cast` `quantize` |
    | ranks     | `all_gather` `all_reduce` `square_sums` |

    Files: `MoeBase.td` (this), `MoeEnums.td`, `MoeTypes.td` (formats, KV handle, attributes),
    `MoeModuleOps.td` (weight, step), `MoeAttentionOps.td`, `MoeExpertOps.td`, `MoeOps.td` (all).

    # Rules

    - *Shapes.* Activations are static two-dimensional row-major tensors. The leading dimension is
      the rows bucket R or, between `expert_gate_up` and `combine`, the pairs P = R * k, where pair
      `row * k + slot` is the slot-th expert of that row. Heads lie one after another in a row:
      channel = head * head_dim + d.
    - *Rounding.* Inside an operation all arithmetic is fp32; every result is rounded once, to its
      element type, where it is defined. The element type may be a block format (`quantize`).
    - *Weights* are referred to by symbol. A matrix is [out, in], as in the checkpoint; a matrix of
      experts is [E, out, in]. An operation sees a weight's local shape (after its sharding).
    - *Position, sequence and token of a row* come from the step descriptor and are not operands.
    - *Nothing names a model.* What distinguishes families is attributes and which operations occur.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

class MOE_StaticTensor<list<Type> elements, int rank, string text>
    : ConfinedType<TensorRankOf<elements, [rank]>, [HasStaticShapePred], text,
                   "::mlir::RankedTensorType">;

/// Activations: [rows or pairs, channels].
def MOE_Act : MOE_StaticTensor<[BF16, F32], 2, "static 2-D tensor of bf16 or f32">;
/// Values that are never rounded to 16 bits: logits, routing weights.
def MOE_F32 : MOE_StaticTensor<[F32], 2, "static 2-D tensor of f32">;
/// Expert ids: [rows, k].
def MOE_Ids : MOE_StaticTensor<[I32], 2, "static 2-D tensor of i32">;
/// Token ids: [rows].
def MOE_Tokens : MOE_StaticTensor<[I32], 1, "static 1-D tensor of i32">;

/// A count or a width: builtin i64, but signed in C++, so that -1 reads as such in a message.
def MOE_I64 : TypedSignlessIntegerAttrBase<I64, "int64_t", "64-bit integer"> {
  let convertFromStorage = "$_self.getInt()";
}
/// A constant: builtin f64, a plain double in C++.
def MOE_F64 : FloatAttrBase<F64, "64-bit float"> {
  let returnType = "double";
  let convertFromStorage = "$_self.getValueAsDouble()";
}

class MOE_Op<string mnemonic, list<Trait> traits = []> : Op<Moe_Dialect, mnemonic, traits>;

#endif
