// Weights, types and the step.
// RUN: megalith-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{expected a shape with dimensions of at least 1 but got [32, 0]}}
moe.weight @w [32, 0] of bf16 from "w"

// -----

// expected-error @+1 {{expected a shape with dimensions of at least 1 but got []}}
moe.weight @w [] of bf16 from "w"

// -----

// expected-error @+1 {{expected format bf16, f32 or !moe.block_format but got 'i32'}}
moe.weight @w [32, 32] of i32 from "w"

// -----

// expected-error @+1 {{expected a checkpoint name but got ""}}
moe.weight @w [32, 32] of bf16 from ""

// -----

// expected-error @+1 {{expected placeholders {layer} and {expert} but got '{head}' in "l.{layer}.{head}"}}
moe.weight @w [32, 32] of bf16 from "l.{layer}.{head}"

// -----

// expected-error @+1 {{expected a shape [experts, ...] with {expert} in the name but got [32]}}
moe.weight @w [32] of bf16 from "l.{layer}.{expert}"

// -----

// expected-error @+1 {{expected a sharded dimension below 2 but got 2}}
moe.weight @w [32, 32] of bf16 from "w" sharded <dim = 2, ranks = 2>

// -----

// expected-error @+1 {{expected the sharded dimension to be a multiple of ranks 3 but got 32}}
moe.weight @w [32, 32] of bf16 from "w" sharded <dim = 0, ranks = 3>

// -----

// expected-error @+1 {{expected ranks of at least 1 but got 0}}
moe.weight @w [32, 32] of bf16 from "w" sharded <dim = 0, ranks = 0>

// -----

// expected-error @+1 {{expected the local inner width to be a multiple of the block's width 16 but got 24}}
moe.weight @w [32, 24] of !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32> from "w"

// -----

// Each rank's share must hold whole blocks.
// expected-error @+1 {{expected the local inner width to be a multiple of the block's width 16 but got 8}}
moe.weight @w [32, 32] of !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32> from "w" sharded <dim = 1, ranks = 4>

// -----

// expected-error @+1 {{expected a matrix for a blocked format but got shape [32]}}
moe.weight @w [32] of !moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = f32> from "w"

// -----

// expected-error @+1 {{expected code f4E2M1FN or f8E4M3FN but got 'bf16'}}
func.func private @f(!moe.block_format<bf16, block = [1, 16], scale = f8E4M3FN>)

// -----

// expected-error @+1 {{expected a block of at least [1, 1] but got [0, 16]}}
func.func private @f(!moe.block_format<f4E2M1FN, block = [0, 16], scale = f8E4M3FN>)

// -----

// expected-error @+1 {{expected scale f8E4M3FN, f8E8M0FNU, bf16 or f32 but got 'i8'}}
func.func private @f(!moe.block_format<f4E2M1FN, block = [1, 16], scale = i8>)

// -----

// expected-error @+1 {{expected global scale f32 but got 'bf16'}}
func.func private @f(!moe.block_format<f4E2M1FN, block = [1, 16], scale = f8E4M3FN, global = bf16>)

// -----

// expected-error @+1 {{expected heads and head_dim of at least 1 but got 0 and 16}}
func.func private @f(!moe.kv<heads = 0, head_dim = 16, element = bf16, positions = 64>)

// -----

// expected-error @+1 {{expected element bf16 or f8E4M3FN but got 'f32'}}
func.func private @f(!moe.kv<heads = 2, head_dim = 16, element = f32, positions = 64>)

// -----

// expected-error @+1 {{expected positions of at least 1 but got 0}}
func.func private @f(!moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 0>)

// -----

// expected-error @+1 {{expected embed to name a function but got @embed, which is not defined}}
moe.step @decode embed(@embed) layers(@layer) head(@head)
func.func private @head(tensor<1x32xbf16>) -> tensor<1x100xf32>

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64>
func.func private @embed(tensor<1xi32>) -> tensor<1x32xbf16>
func.func private @head(tensor<1x32xbf16>) -> tensor<1x100xf32>
// expected-error @+1 {{expected a layer to name a function but got @layer, which is not defined}}
moe.step @decode embed(@embed) layers(@layer * 3) head(@head)

// -----

func.func private @embed(tensor<2xi32>) -> tensor<1x32xbf16>
func.func private @head(tensor<1x32xbf16>) -> tensor<1x100xf32>
// expected-error @+1 {{expected embed of type '(tensor<1xi32>) -> tensor<1x32xbf16>' but got '(tensor<2xi32>) -> tensor<1x32xbf16>'}}
moe.step @decode embed(@embed) layers(@layer) head(@head)

// -----

func.func private @embed(tensor<1xi32>) -> tensor<1x32xbf16>
func.func private @head(tensor<1x64xbf16>) -> tensor<1x100xf32>
// expected-error @+1 {{expected head of type ('tensor<1x32xbf16>') -> logits [R, V] but got '(tensor<1x64xbf16>) -> tensor<1x100xf32>'}}
moe.step @decode embed(@embed) layers(@layer) head(@head)

// -----

func.func private @embed(tensor<1xi32>) -> tensor<1x32xbf16>
func.func private @head(tensor<1x32xbf16>) -> tensor<1x100xf32>
func.func private @layer(tensor<1x32xbf16>) -> tensor<1x32xbf16>
// expected-error @+1 {{expected layer @layer of type ('tensor<1x32xbf16>', !moe.kv) -> ('tensor<1x32xbf16>', !moe.kv) but got '(tensor<1x32xbf16>) -> tensor<1x32xbf16>'}}
moe.step @decode embed(@embed) layers(@layer) head(@head)

// -----

!kv = !moe.kv<heads = 2, head_dim = 16, element = bf16, positions = 64>
func.func private @embed(tensor<1xi32>) -> tensor<1x32xbf16>
func.func private @head(tensor<1x32xbf16>) -> tensor<1x100xf32>
func.func private @good(tensor<1x32xbf16>, !kv) -> (tensor<1x32xbf16>, !kv)
func.func private @wide(tensor<1x32xbf16>, !kv) -> (tensor<1x64xbf16>, !kv)
// expected-error @+1 {{expected layer @wide of type}}
moe.step @decode embed(@embed) layers(@good * 2, @wide) head(@head)

// -----

// expected-error @+1 {{expected 1 to 10000 layers but got 0}}
moe.step @decode embed(@embed) layers(@layer * 0) head(@head)
