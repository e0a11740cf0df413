#ifndef MEGALITH_GRAPH_PASSES_TD
#define MEGALITH_GRAPH_PASSES_TD

include "mlir/Pass/PassBase.td"

def CutLaunches : Pass<"moe-cut-launches", "::mlir::ModuleOp"> {
  let summary = "cut a step into kernel launches, one function each, equal ones once";
  let description = [{
    A launch runs from one layer's attention to the next layer's projections: what crosses a boundary is the
    residual and the raw q, k and v of the rows. With layers A, B:

    ```
    step embed(E) layers(A, B) head(H)   ->   @embed_A: E, pre(B0)         pre  = norms and qkv_proj
                                              @A_B:     rest(A), pre(B)    rest = everything after qkv_proj
                                              @B_last:  rest(B), H
    ```

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
