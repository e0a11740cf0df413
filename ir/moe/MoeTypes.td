// Weight formats, the KV handle, and structured attributes.
#ifndef MEGALITH_IR_MOE_TYPES_TD
#define MEGALITH_IR_MOE_TYPES_TD

include "ir/moe/MoeEnums.td"

class MOE_Type<string name, string typeMnemonic> : TypeDef<Moe_Dialect, name> {
  let mnemonic = typeMnemonic;
  let genVerifyDecl = 1;
}

def MOE_BlockFormat : MOE_Type<"BlockFormat", "block_format"> {
  let summary = "storage of a block-scaled tensor: value = code * scale of its block * global";
  let description = [{
    Unblocked weights use the builtin `bf16` and `f32` as their format. The three in use:

    | | code | block [out, in] | scale | global |
    |---|---|---|---|---|
    | FP8 block | f8E4M3FN | [128, 128] | f32 or bf16 | - |
    | NVFP4 | f4E2M1FN | [1, 16] | f8E4M3FN | f32 |
    | MXFP4 | f4E2M1FN | [1, 32] | f8E8M0FNU | - |

    ```mlir
    !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32>
    ```

    As the element type of an activation [R, N] (`quantize`) a block lies within a row.
  }];
  let parameters = (ins "::mlir::Type":$code, "int64_t":$block_rows, "int64_t":$block_cols,
      "::mlir::Type":$scale, OptionalParameter<"::mlir::Type">:$global);
  let assemblyFormat = [{
    `<` $code `,` `block` `=` `[` $block_rows `,` $block_cols `]` `,` `scale` `=` $scale
    (`,` `global` `=` $global^)? `>`
  }];
  let extraClassDeclaration = [{
    static BlockFormatType getNVFP4(::mlir::MLIRContext *context);
    static BlockFormatType getMXFP4(::mlir::MLIRContext *context);
    /// `scale`: f32 or bf16.
    static BlockFormatType getFP8Block(::mlir::MLIRContext *context, ::mlir::Type scale);
    /// Bytes of a matrix [rows, cols]: codes and block scales, without the global scale.
    int64_t getBytes(int64_t rows, int64_t cols);
  }];
}

/// Activations that may be quantised: the element type is then a block format.
def MOE_Quantized : MOE_StaticTensor<[MOE_BlockFormat], 2, "static 2-D tensor of a block format">;
def MOE_MaybeQuantized : MOE_StaticTensor<[BF16, F32, MOE_BlockFormat], 2,
                                          "static 2-D tensor of bf16, f32 or a block format">;

def MOE_KV : MOE_Type<"KV", "kv"> {
  let summary = "handle of one layer's key/value cache, of all sequences of the step";
  let description = [{
    `heads` KV heads of `head_dim` channels, for keys and as many for values, each stored as
    `element` (bf16 or f8E4M3FN). `positions`: the most a sequence may have. `window` > 0: only
    that many positions are kept (a ring). A value: `kv_append` returns the handle that holds the
    new rows.
  }];
  let parameters = (ins "int64_t":$heads, "int64_t":$head_dim, "::mlir::Type":$element,
      "int64_t":$positions, DefaultValuedParameter<"int64_t", "0">:$window);
  let assemblyFormat = "`<` struct(params) `>`";
}

class MOE_Attr<string name, string attrMnemonic> : AttrDef<Moe_Dialect, name> {
  let mnemonic = attrMnemonic;
  let genVerifyDecl = 1;
}

def MOE_Shard : MOE_Attr<"Shard", "shard"> {
  let summary = "a weight cut into equal consecutive parts along `dim`, one per rank";
  let parameters = (ins "int64_t":$dim, "int64_t":$ranks);
  let assemblyFormat = "`<` struct(params) `>`";
}

def MOE_Part : MOE_Attr<"Part", "part"> {
  let summary = "a weight that is one of `count` equal consecutive parts of its checkpoint tensor";
  let description = [{
    Along `dim`, of which the checkpoint holds `count` times what the weight's shape says; this is
    part `index`. Gate and up rows in one tensor are two parts. Global scales of a block format
    have a column per part.
  }];
  let parameters = (ins "int64_t":$dim, "int64_t":$index, "int64_t":$count);
  let assemblyFormat = "`<` struct(params) `>`";
}

def MOE_RopeScaling : MOE_Attr<"RopeScaling", "rope_scaling"> {
  let summary = "stretching of rotary frequencies";
  let description = [{
    `parameters`, by kind; numbers are f64, factor lists dense arrays:
    linear: factor; yarn: factor, original_context, beta_fast, beta_slow, attention_factor;
    llama3: factor, low_freq_factor, high_freq_factor, original_context;
    longrope: short_factor, long_factor, original_context, attention_factor.
  }];
  let parameters = (ins EnumParameter<MOE_RopeScalingKind>:$kind,
      "::mlir::DictionaryAttr":$parameters);
  let assemblyFormat = "`<` $kind `,` $parameters `>`";
}

#endif
