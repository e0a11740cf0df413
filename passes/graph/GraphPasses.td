#ifndef MEGALITH_GRAPH_PASSES_TD
#define MEGALITH_GRAPH_PASSES_TD

include "mlir/Pass/PassBase.td"

def BoundScores : Pass<"moe-bound-scores", "::mlir::ModuleOp"> {
  let summary = "prove a bound on attention scores from constants, so that the running maximum can go";
  let description = [{
    Where queries and keys come out of norms without weights, |q.k| is at most the product of their lengths, which
    are constants: sqrt(head_dim) each, times `q_scale`. Every rounding to bf16 on the way (norm, rope, cache) may
    lengthen a vector by 2^-8, an e4m3 cache by 2^-4, fp32 arithmetic by 2^-16 in all. If exp(bound) for every
    position of the cache adds up to less than 2^96, and exp(-bound) is more than 2^-96, the attention op gets
    `score_bound`: sums of exp(score) neither overflow nor vanish in fp32, with 2^32 left for the values. Otherwise, or
    where a weight, a bias or a projection without norm decides how long a vector is, the op is left alone; so are
    ops with sinks, whose logits are no constants.
  }];
  let dependentDialects = ["::megalith::moe::MoeDialect"];
}

def Shard : Pass<"moe-shard", "::mlir::ModuleOp"> {
  let summary = "tensor parallelism: functions become those of one of `ranks` ranks";
  let description = [{
    Heads, the output channels of every linear and of gate and up, and the vocabulary are dealt to ranks in equal
    consecutive parts; the residual, norms over rows and routing are computed by every rank. What a rank needs of others
    is gathered just before it is read. How the experts' second matrix and the matrix behind attention are cut:

    | `experts` | second matrix | exchanges behind the first | order of sums |
    |---|---|---|---|
    | `nn` | rows | activations (in their own format: NVFP4 if quantised), then every expert's outputs | of one rank |
    | `nn-sums` | rows | activations; sums of squares of every expert's outputs; the weighted sum | of one rank |
    | `nk` | columns | all_reduce of every expert's outputs | by rank |

    | `o-proj` | matrix | exchanges | order of sums |
    |---|---|---|---|
    | `n` | rows | its input, its output | of one rank |
    | `k-ordered` | columns | all_reduce of its canonical chunks | of one rank |
    | `k` | columns | all_reduce of a sum a rank | by rank |

    `auto` takes the cheapest (ShardSchemes.h) of those with the order of one rank, so that bits do not depend on the
    rank count; with `free-order`, of all. `sums` is the type of partial sums where the order is by rank. `report` prints
    bytes, stops and estimated time of every scheme. The module gets `megalith.ranks`. One rank: nothing changes.

    Errors: a width, a number of heads or a vocabulary that the ranks do not divide; blocks of a format that would
    break; a norm over the whole row of q; a bias behind a matrix cut by columns; a module that is sharded already.
  }];
  let options = [
    Option<"ranks", "ranks", "int64_t", "1", "ranks: 1 to 64">,
    Option<"experts", "experts", "std::string", "\"auto\"", "auto, nn, nn-sums or nk">,
    Option<"outputProjection", "o-proj", "std::string", "\"auto\"", "auto, n, k-ordered or k">,
    Option<"sums", "sums", "std::string", "\"f32\"", "type of partial sums of ranks: f32 or bf16">,
    Option<"freeOrder", "free-order", "bool", "false", "auto may change the order of sums">,
    Option<"report", "report", "bool", "false", "print what every scheme costs">,
  ];
  let dependentDialects = ["::megalith::moe::MoeDialect"];
}

def CutLaunches : Pass<"moe-cut-launches", "::mlir::ModuleOp"> {
  let summary = "cut a step into kernel launches, one function each, equal ones once";
  let description = [{
    A launch runs from one layer's attention to the next layer's projections: what crosses a boundary is the
    residual and the raw q, k and v of the rows. With layers A, B:

    ```
    step embed(E) layers(A, B) head(H)   ->   @embed:  E, pre(A)          pre  = norms and qkv_proj
                                              @A:      rest(A), pre(B)    rest = everything after qkv_proj
                                              @last:   rest(B), H
    ```

    Layers of one kind are @layer. Where pre(B) and pre(C) differ, what follows A are @A_B and @A_C.

    Launch functions carry `megalith.launch` = "embed", "layer" or "last"; ops of the next layer carry
    `megalith.next`. The module gets `megalith.launches`: the function of every launch in order. Launch i works on
    layer i - 1, its next-layer ops on layer i. Functions of layers, embedding and head are erased with the step.
  }];
  let dependentDialects = ["::megalith::moe::MoeDialect"];
}

def ConvertToTask : Pass<"moe-convert-to-task", "::mlir::ModuleOp"> {
  let summary = "each launch function becomes a task.kernel of stages";
  let description = [{
    Follows the data flow, and fuses what has no exchange of its own: a norm into the linear ops that read it
    (every SM reads whole rows anyway), qk-norm, rope and KV write into attention, glu into gate and up, combine and
    residual into down, a residual into the linear before it. Stages have one tile yet: `task-choose-tiles`
    slices them. A function's own arguments and results become immutable and written buffers, so any graph of norms
    and linears converts, with or without layers.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"sm_90a\"", "NVRTC architecture of the kernels">,
    Option<"sms", "sms", "int64_t", "132", "SMs of the target, one CTA on each">,
  ];
  let dependentDialects = ["::megalith::task::TaskDialect"];
}

def ChooseTiles : Pass<"task-choose-tiles", "::megalith::task::KernelOp"> {
  let summary = "slice every static stage over the SMs";
  let description = [{
    A tile of a linear or expert stage is a slice of `unit` strips, the least with which the kernel's SMs suffice,
    even where a word of the result spans two strips. The tile's rectangles of weights, results and residual follow.
    An embed stage is sliced by columns in the same way, so that every SM owns the residual channels it will add to.
  }];
  let dependentDialects = ["::megalith::task::TaskDialect"];
}

def AssignSms : Pass<"task-assign-sms", "::megalith::task::KernelOp"> {
  let summary = "tile t runs on SM t, static; dynamic tiles by the rule of their table";
  let dependentDialects = ["::megalith::task::TaskDialect"];
}

#endif
