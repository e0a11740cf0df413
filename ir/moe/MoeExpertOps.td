// Routing and the experts. R rows, k experts a row, P = R * k pairs, E experts, I inner width.
#ifndef MEGALITH_IR_MOE_EXPERT_OPS_TD
#define MEGALITH_IR_MOE_EXPERT_OPS_TD

include "ir/moe/MoeAttentionOps.td"

def MOE_RouterOp : MOE_WeightedOp<"router"> {
  let summary = "router logits, fp32 and unrounded";
  let description = [{
    x [R, H], weight [E, H], bias [E] -> [R, E]: (x W^T + b) * multiplier. What becomes of the
    logits (softmax, sigmoid, ...) is `top_k`'s business. `precision`: see `RouterPrecision`.
  }];
  let arguments = (ins MOE_Act:$input, FlatSymbolRefAttr:$weight,
      OptionalAttr<FlatSymbolRefAttr>:$bias, DefaultValuedAttr<MOE_F64, "1.0">:$multiplier,
      DefaultValuedAttr<MOE_RouterPrecisionAttr, "RouterPrecision::F32">:$precision);
  let results = (outs MOE_F32:$logits);
  let assemblyFormat = [{
    $input `weight` `(` $weight `)` (`bias` `(` $bias^ `)`)? (`as` `` $precision^)? attr-dict
    `:` type($input) `->` type($logits)
  }];
}

def MOE_TopKOp : MOE_WeightedOp<"top_k"> {
  let summary = "choose k experts a row and their weights";
  let description = [{
    logits [R, E] -> ids [R, k], weights [R, k], in descending selection value, ties to the lower
    index. The selection value is the logit or, with `selection_bias` [E], score + bias.
    The score is softmax over all experts, softmax over the selected ones, or sigmoid. A weight is
    the chosen expert's score without bias; with `renormalize` divided by (the sum of the k weights
    + `renormalize_eps`); then times `scale`.
    With `groups` G and `top_groups` T, only the best T of G equal groups of experts compete, a
    group ranked by the sum of its two best selection values. All in fp32.
  }];
  let arguments = (ins MOE_F32:$logits, MOE_ScoreAttr:$score, MOE_I64:$k,
      DefaultValuedAttr<MOE_ScoreOverAttr, "ScoreOver::All">:$over,
      DefaultValuedAttr<BoolAttr, "false">:$renormalize,
      DefaultValuedAttr<MOE_F64, "0.0">:$renormalize_eps, DefaultValuedAttr<MOE_F64, "1.0">:$scale,
      OptionalAttr<FlatSymbolRefAttr>:$selection_bias,
      OptionalAttr<MOE_I64>:$groups, OptionalAttr<MOE_I64>:$top_groups);
  let results = (outs MOE_Ids:$ids, MOE_F32:$weights);
  let assemblyFormat = [{
    $logits `` $score (`over` `` $over^)? (`selection_bias` `(` $selection_bias^ `)`)? attr-dict
    `:` type($logits) `->` type($ids) `,` type($weights)
  }];
}

def MOE_ExpertGateUpOp : MOE_WeightedOp<"expert_gate_up"> {
  let summary = "gate and up projection of every (row, expert) pair";
  let description = [{
    x [R, H], ids [R, k] -> gate, up [P, I]; pair p = row * k + slot uses row p / k and expert
    ids[row, slot]. Weights [E, I, H], biases [E, I], both or none. The input may be quantised; it
    then counts with the values that its codes mean.
  }];
  let arguments = (ins MOE_MaybeQuantized:$input, MOE_Ids:$ids, FlatSymbolRefAttr:$gate_weight,
      FlatSymbolRefAttr:$up_weight, OptionalAttr<FlatSymbolRefAttr>:$gate_bias,
      OptionalAttr<FlatSymbolRefAttr>:$up_bias);
  let results = (outs MOE_Act:$gate, MOE_Act:$up);
  let assemblyFormat = [{
    $input `,` $ids `gate` `(` $gate_weight (`,` $gate_bias^)? `)`
    `up` `(` $up_weight (`,` $up_bias^)? `)` attr-dict
    `:` type($input) `,` type($ids) `->` type($gate) `,` type($up)
  }];
}

def MOE_GluOp : MOE_Op<"glu", [Pure]> {
  let summary = "activation(gate) * (up + up_offset)";
  let description = [{
    gate, up [P, I] (or [R, I] of a dense MLP) -> the same shape. With `clamp` c first
    gate = min(gate, c) and up = clamp(up, -c, c). `alpha` is given exactly for scaled_silu.
  }];
  let arguments = (ins MOE_Act:$gate, MOE_Act:$up, MOE_ActivationAttr:$activation,
      OptionalAttr<MOE_F64>:$clamp, OptionalAttr<MOE_F64>:$alpha,
      DefaultValuedAttr<MOE_F64, "0.0">:$up_offset);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $gate `,` $up `` $activation attr-dict `:` type($gate) `,` type($up) `->` type($result)
  }];
  let hasVerifier = 1;
}

def MOE_ExpertDownOp : MOE_WeightedOp<"expert_down"> {
  let summary = "down projection of every (row, expert) pair";
  let description = [{
    x [P, I], ids [R, k] -> [P, H]. Weight [E, H, I], bias [E, H]. The input may be quantised.
  }];
  let arguments = (ins MOE_MaybeQuantized:$input, MOE_Ids:$ids, FlatSymbolRefAttr:$weight,
      OptionalAttr<FlatSymbolRefAttr>:$bias);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $input `,` $ids `weight` `(` $weight `)` (`bias` `(` $bias^ `)`)? attr-dict
    `:` type($input) `,` type($ids) `->` type($result)
  }];
}

def MOE_ExpertNormOp : MOE_WeightedOp<"expert_norm"> {
  let summary = "norm of each pair's output, before it is weighted";
  let description = [{
    y [P, H] -> [P, H]; weight [H], shared by all experts. Kind rms, rms_input_scaled or
    rms_weightless, as in `norm`. With `sums` [P, c] of `width` channels in all (`square_sums` of
    every rank) their sum in ascending order over `width` is the mean square.
  }];
  let arguments = (ins MOE_Act:$input, Optional<MOE_F32>:$sums, MOE_NormKindAttr:$kind,
      MOE_F64:$eps, OptionalAttr<FlatSymbolRefAttr>:$weight,
      DefaultValuedAttr<MOE_GainAttr, "Gain::Absolute">:$gain, OptionalAttr<MOE_I64>:$width);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $input `` $kind (`sums` `(` $sums^ `:` type($sums) `)`)? (`weight` `(` $weight^ `)`)? (`gain` `` $gain^)? attr-dict
    `:` type($input) `->` type($result)
  }];
}

def MOE_CombineOp : MOE_Op<"combine", [Pure]> {
  let summary = "sum of a row's expert outputs by weight, in slot order";
  let description = [{
    weights [R, k], y [P, H] -> [R, H]: sum over slots, fp32, rounded once. With `round_each` every
    product and every sum is rounded to the result's element type.
  }];
  let arguments = (ins MOE_F32:$weights, MOE_Act:$input, UnitAttr:$round_each);
  let results = (outs MOE_Act:$result);
  let assemblyFormat = [{
    $weights `,` $input attr-dict `:` type($weights) `,` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif
