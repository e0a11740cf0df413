// The dense half of a layer, and the two ends of the model.
#ifndef MEGALITH_IR_MOE_ATTENTION_OPS_TD
#define MEGALITH_IR_MOE_ATTENTION_OPS_TD

include "ir/moe/MoeTypes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

/// An operation without side effects whose weights are checked against the module's symbols.
class MOE_WeightedOp<string mnemonic, list<Trait> traits = []>
    : MOE_Op<mnemonic, traits # [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let hasVerifier = 1;
}

def MOE_EmbedOp : MOE_WeightedOp<"embed"> {
  let summary = "row of the embedding table for each token, times `multiplier`";
  let description = [{
    tokens [R]; weight [V, H]; result [R, H]. With a weight that is sharded over the vocabulary, a
    rank without the token's row gives zeros, so that `all_reduce` completes it.
  }];
  let arguments = (ins MOE_Tokens:$tokens, FlatSymbolRefAttr:$weight,
      DefaultValuedAttr<MOE_F64, "1.0">:$multiplier);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $tokens `weight` `(` $weight `)` attr-dict `:` type($tokens) `->` type($result)
  }];
}

def MOE_NormOp : MOE_WeightedOp<"norm"> {
  let summary = "normalise each row, or each head of a row";
  let description = [{
    x [R, N] -> [R, N]; weight and bias [N] or, over heads, [head_dim]. Kinds and where the weight
    enters: `NormKind`, `Gain`. `rms_input_scaled` rounds x * w to the element type of x first
    (`spec/muse-spark-open.md` section 2); a weight r16(1 + w) is rounded before. `rms_weightless` takes no weight, `layer_bias` alone a
    bias. `head_dim` is given exactly when `over` is head.
  }];
  let arguments = (ins MOE_Act:$input, MOE_NormKindAttr:$kind, MOE_F64:$eps,
      OptionalAttr<FlatSymbolRefAttr>:$weight, OptionalAttr<FlatSymbolRefAttr>:$bias,
      DefaultValuedAttr<MOE_NormOverAttr, "NormOver::Row">:$over,
      OptionalAttr<MOE_I64>:$head_dim,
      DefaultValuedAttr<MOE_GainAttr, "Gain::Absolute">:$gain);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $input `` $kind (`over` `` $over^)? (`weight` `(` $weight^ `)`)? (`bias` `(` $bias^ `)`)?
    (`gain` `` $gain^)? attr-dict `:` type($input) `->` type($result)
  }];
}

def MOE_QkvProjOp : MOE_WeightedOp<"qkv_proj"> {
  let summary = "the three attention projections of the same input";
  let description = [{
    x [R, H] -> q [R, heads * head_dim], k and v [R, kv_heads * head_dim]; weights [out, H], biases
    [out], all three or none. Query head h reads KV head h / (heads / kv_heads). `clip` > 0 clamps
    all three results to [-clip, clip] before they are rounded.
  }];
  let arguments = (ins MOE_Act:$input, FlatSymbolRefAttr:$q_weight, FlatSymbolRefAttr:$k_weight,
      FlatSymbolRefAttr:$v_weight, MOE_I64:$heads, MOE_I64:$kv_heads, MOE_I64:$head_dim,
      OptionalAttr<FlatSymbolRefAttr>:$q_bias, OptionalAttr<FlatSymbolRefAttr>:$k_bias,
      OptionalAttr<FlatSymbolRefAttr>:$v_bias, OptionalAttr<MOE_F64>:$clip);
  let results = (outs MOE_Act:$q, MOE_Act:$k, MOE_Act:$v);
  let assemblyFormat = [{
    $input `q` `(` $q_weight (`,` $q_bias^)? `)` `k` `(` $k_weight (`,` $k_bias^)? `)`
    `v` `(` $v_weight (`,` $v_bias^)? `)` attr-dict
    `:` type($input) `->` type($q) `,` type($k) `,` type($v)
  }];
}

def MOE_QkNormOp : MOE_WeightedOp<"qk_norm"> {
  let summary = "norm of queries and keys, per head or over the full width";
  let description = [{
    q [R, heads * head_dim], k [R, kv_heads * head_dim] -> the same; kind rms (both weights: [head_dim]
    per head, the full width over the row) or rms_weightless. q is multiplied by `q_scale` before it
    is rounded.
  }];
  let arguments = (ins MOE_Act:$q, MOE_Act:$k, MOE_NormKindAttr:$kind, MOE_I64:$head_dim,
      MOE_F64:$eps, OptionalAttr<FlatSymbolRefAttr>:$q_weight,
      OptionalAttr<FlatSymbolRefAttr>:$k_weight,
      DefaultValuedAttr<MOE_NormOverAttr, "NormOver::Head">:$over,
      DefaultValuedAttr<MOE_GainAttr, "Gain::Absolute">:$gain,
      DefaultValuedAttr<MOE_F64, "1.0">:$q_scale);
  let results = (outs MOE_Act:$q_out, MOE_Act:$k_out);
  let assemblyFormat = [{
    $q `,` $k `` $kind (`over` `` $over^)? (`q` `(` $q_weight^ `)`)? (`k` `(` $k_weight^ `)`)?
    (`gain` `` $gain^)? attr-dict `:` type($q) `,` type($k) `->` type($q_out) `,` type($k_out)
  }];
}

def MOE_RopeOp : MOE_Op<"rope", [Pure]> {
  let summary = "rotary position embedding of queries and keys";
  let description = [{
    q [R, heads * head_dim], k [R, kv_heads * head_dim] -> the same. Of each head the first
    `rotary_dims` channels rotate, pair j by position * theta^(-2j / rotary_dims), with the row's
    position from the step descriptor; angle, sine, cosine and rotation in fp32.
    `rotary_dims` = 0 is the identity and folds away.
  }];
  let arguments = (ins MOE_Act:$q, MOE_Act:$k, MOE_I64:$head_dim, MOE_I64:$rotary_dims,
      MOE_F64:$theta, MOE_RopePairingAttr:$pairing, OptionalAttr<MOE_RopeScaling>:$scaling);
  let results = (outs MOE_Act:$q_out, MOE_Act:$k_out);
  let assemblyFormat = [{
    $q `,` $k `` $pairing (`scaling` $scaling^)? attr-dict
    `:` type($q) `,` type($k) `->` type($q_out) `,` type($k_out)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MOE_KvAppendOp : MOE_WeightedOp<"kv_append", [AllTypesMatch<["kv", "result"]>]> {
  let summary = "write each live row's key and value at its position";
  let description = [{
    k and v [R, kv_heads * head_dim] are rounded to the cache's element type. The returned handle
    holds them beside all that `kv` holds; who reads it reads what was rounded, this step's rows
    included. f8E4M3FN: to nearest even, magnitudes above 448 to 448, NaN stays NaN.

    `k_scale`, `v_scale`: both or none, only of a cache of f8E4M3FN; weights [1] of f32, one each
    for all heads and positions of the layer. The cache then holds x / scale, rounded, and
    attention over the returned handle multiplies by the scales: scores by `k_scale`, what comes of
    the values by `v_scale`. Without them scales are 1.
  }];
  let arguments = (ins MOE_KV:$kv, MOE_Act:$k, MOE_Act:$v,
      OptionalAttr<FlatSymbolRefAttr>:$k_scale, OptionalAttr<FlatSymbolRefAttr>:$v_scale);
  let results = (outs MOE_KV:$result);
  let assemblyFormat = [{
    $kv `,` $k `,` $v (`k_scale` `(` $k_scale^ `)`)? (`v_scale` `(` $v_scale^ `)`)? attr-dict
    `:` qualified(type($kv)) `,` type($k) `,` type($v)
  }];
}

def MOE_AttentionOp : MOE_WeightedOp<"attention"> {
  let summary = "causal grouped-query attention of the step's rows over the cache";
  let description = [{
    q [R, heads * head_dim], with head_dim that of the cache -> [R, heads * head_dim]. Row r sees
    the keys of its own sequence that `mask` allows at its position, rows of the same step included:
    softmax(scale * q.k) v. Scores, softmax and the sum of probabilities in fp32; a probability
    enters the product with v as bf16 (`spec/models.md` section 1b). `extent` is given unless the
    mask is full. `sinks` [heads]: a logit per head that joins the softmax's denominator only.
    A window that no sequence can outgrow is the full mask (canonicalised).
    `score_bound` (`moe-bound-scores`): |scale * q.k| never exceeds it, and exp of it times any
    number of keys stays finite in fp32: the running maximum may be left out.
  }];
  let arguments = (ins MOE_Act:$q, MOE_KV:$kv, MOE_I64:$heads, MOE_F64:$scale,
      DefaultValuedAttr<MOE_AttentionMaskAttr, "AttentionMask::Full">:$mask,
      OptionalAttr<MOE_I64>:$extent, OptionalAttr<FlatSymbolRefAttr>:$sinks,
      OptionalAttr<MOE_F64>:$score_bound);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $q `,` $kv `` $mask (`sinks` `(` $sinks^ `)`)? attr-dict
    `:` type($q) `,` qualified(type($kv)) `->` type($result)
  }];
  let hasCanonicalizeMethod = 1;
}

def MOE_OutputGateOp : MOE_Op<"output_gate", [Pure]> {
  let summary = "x * sigmoid(gate), with one gate per channel, per group of channels, or per row";
  let description = [{
    x [R, N], gate [R, G] with G dividing N -> [R, N]; channel c is scaled by gate c / (N / G).
    With `round_gate` sigmoid(gate) is rounded to the gate's element type before it multiplies.
  }];
  let arguments = (ins MOE_Act:$input, MOE_Act:$gate, UnitAttr:$round_gate);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $input `,` $gate attr-dict `:` type($input) `,` type($gate) `->` type($result)
  }];
  let hasVerifier = 1;
}

def MOE_LinearOp : MOE_WeightedOp<"linear"> {
  let summary = "x W^T (+ b)";
  let description = [{
    x [R, K], weight [N, K], bias [N] -> [R, N]. With `partials` c > 1, of a weight sharded over K:
    [R, c * N], the sums of the rank's c canonical chunks of K side by side (no bias), which
    `all_reduce` adds in the order of one rank.
  }];
  let arguments = (ins MOE_Act:$input, FlatSymbolRefAttr:$weight,
      OptionalAttr<FlatSymbolRefAttr>:$bias, DefaultValuedAttr<MOE_I64, "1">:$partials);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $input `weight` `(` $weight `)` (`bias` `(` $bias^ `)`)? attr-dict
    `:` type($input) `->` type($result)
  }];
}

def MOE_CastOp : MOE_Op<"cast", [Pure]> {
  let summary = "x in another element type: widened exactly, or narrowed with one rounding";
  let description = "x [R, N] -> [R, N]. To the same type: folds away.";
  let arguments = (ins MOE_Act:$input);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MOE_QuantizeOp : MOE_WeightedOp<"quantize"> {
  let summary = "x in a block format: codes and block scales chosen from x, the global scale given";
  let description = [{
    x [R, N] -> [R, N] whose element type is a block format with blocks [1, b]. For NVFP4 with the
    global scale g: block scale = e4m3(amax of the block / (6 g)), code = e2m1(x / (scale * g)), both
    to nearest even, saturating; the value is code * scale * g
    (`spec/muse-spark-open.md` sections 7.2, 7.3). `global` is given exactly if the format has a global
    scale: a tensor of f32, [E] or [E, n]. g is its largest element or, with `ids` of shape [R / k, k],
    for row p the largest of expert ids[p / k, p mod k].
  }];
  let arguments = (ins MOE_Act:$input, Optional<MOE_Ids>:$ids,
      OptionalAttr<FlatSymbolRefAttr>:$global);
  let results = (outs MOE_Quantized:$result);
  let assemblyFormat = [{
    $input (`of` $ids^ `:` type($ids))? (`global` `(` $global^ `)`)? attr-dict
    `:` type($input) `->` type($result)
  }];
}

def MOE_ResidualOp : MOE_WeightedOp<"residual"> {
  let summary = "join one branch or several parallel ones into the residual stream";
  let description = [{
    s [R, H], branches [R, H] -> [R, H] of the type of s, with one rounding; kinds: `ResidualKind`.
    `scale` is given exactly for scaled. For gated, `gate` [H], `temperature` and `floor` give per
    channel u = gate / temperature, beta = sigmoid(u), alpha = sqrt(max(sigmoid(-u) * (1 + beta),
    floor)), that is sqrt(1 - beta^2) without cancellation, and there is one branch
    (`spec/muse-spark-open.md` section 3). Scale 1 is plain (canonicalised).
  }];
  let arguments = (ins MOE_Act:$stream, Variadic<MOE_Act>:$branches,
      DefaultValuedAttr<MOE_ResidualKindAttr, "ResidualKind::Plain">:$kind,
      OptionalAttr<MOE_F64>:$scale, OptionalAttr<FlatSymbolRefAttr>:$gate,
      OptionalAttr<MOE_F64>:$temperature, OptionalAttr<MOE_F64>:$floor);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $stream `,` $branches `` $kind (`gate` `(` $gate^ `)`)? attr-dict
    `:` type($stream) `,` type($branches) `->` type($result)
  }];
  let hasCanonicalizeMethod = 1;
}

def MOE_LmHeadOp : MOE_WeightedOp<"lm_head"> {
  let summary = "logits over the vocabulary, unrounded";
  let description = [{
    x [R, H], weight [V, H], bias [V] -> f32 [R, V]: z = (x W^T + b) * multiplier, then with
    `softcap` C: C * tanh(z / C), then ids from `valid_vocab` on are -inf. With a weight that is
    sharded over the vocabulary: the rank's ids.
  }];
  let arguments = (ins MOE_Act:$input, FlatSymbolRefAttr:$weight,
      OptionalAttr<FlatSymbolRefAttr>:$bias, DefaultValuedAttr<MOE_F64, "1.0">:$multiplier,
      OptionalAttr<MOE_F64>:$softcap, OptionalAttr<MOE_I64>:$valid_vocab);
  let results = (outs MOE_F32:$result);
  let assemblyFormat = [{
    $input `weight` `(` $weight `)` (`bias` `(` $bias^ `)`)? attr-dict
    `:` type($input) `->` type($result)
  }];
}

class MOE_CollectiveOp<string mnemonic, list<Trait> traits = []> : MOE_Op<mnemonic, traits # [Pure]> {
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MOE_AllGatherOp : MOE_CollectiveOp<"all_gather"> {
  let summary = "channels of all ranks side by side: [R, n] -> [R, n * ranks]";
  let description = [{
    Rank r's channels are r * n .. (r + 1) * n - 1. Codes and scales of a block format travel as they
    are, blocks unbroken. One rank: folds away.
  }];
  let arguments = (ins MOE_MaybeQuantized:$input, MOE_I64:$ranks);
  let results = (outs MOE_MaybeQuantized:$result);
}

def MOE_AllReduceOp : MOE_CollectiveOp<"all_reduce"> {
  let summary = "fp32 sum over ranks in ascending order, rounded once";
  let description = [{
    [R, n] of f32 partial sums or bf16 -> [R, n]. With `partials` c: [R, c * n], c sums of each rank
    (`linear`), added in ascending order of (rank, sum). One rank, one sum, same type: folds away.
  }];
  let arguments = (ins MOE_Act:$input, MOE_I64:$ranks,
      DefaultValuedAttr<MOE_I64, "1">:$partials);
  let results = (outs MOE_Act:$result);
}

def MOE_SquareSumsOp : MOE_WeightedOp<"square_sums"> {
  let summary = "sums of squares of consecutive channels, for a norm over more than one rank";
  let description = [{
    x [P, n] -> f32 [P, n / chunk]: sum of t^2 over each `chunk` channels, where t is x or, with
    `weight` [n], x * weight rounded to the element type of x, as `rms_input_scaled` has it.
    `expert_norm` takes the gathered sums of all ranks and adds them in ascending order.
  }];
  let arguments = (ins MOE_Act:$input, MOE_I64:$chunk, OptionalAttr<FlatSymbolRefAttr>:$weight,
      DefaultValuedAttr<MOE_GainAttr, "Gain::Absolute">:$gain);
  let results = (outs MOE_F32:$result);
  let assemblyFormat = [{
    $input (`weight` `(` $weight^ `)`)? (`gain` `` $gain^)? attr-dict
    `:` type($input) `->` type($result)
  }];
}

#endif
