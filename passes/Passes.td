#ifndef MEGALITH_PASSES_TD
#define MEGALITH_PASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// passes/task: stages to role regions, in the order of the pipeline
//===----------------------------------------------------------------------===//

class Task_Pass<string name, string op> : Pass<name, op> {
  let dependentDialects = ["::megalith::task::TaskDialect"];
}

def CutStages : Pass<"task-cut-stages", "::mlir::ModuleOp"> {
  let summary = "each stage becomes a kernel of its own (--launch=per-stage)";
  let description = [{
    The kernels of a step fall apart into one kernel a stage, equal ones once, launched in the order of the stages:
    `megalith.launches` names the kernel of each launch, `megalith.launch_layers` its layer. Values between stages
    become `by_launch`: written in one launch, read in later ones. Routing is done again in every kernel that needs
    it, and a stage that shared another's rows in shared memory brings and norms them itself.

    Errors: exchanges or role regions are there already; a stage reads weights of two layers.
  }];
  let dependentDialects = ["::megalith::task::TaskDialect"];
}

def SplitRanks : Pass<"task-split-ranks", "::mlir::ModuleOp"> {
  let summary = "kernels of one of several ranks (tensor parallelism)";
  let description = [{
    Every matrix but the router's is divided by output rows, so that each element is summed on one rank and its bits
    do not depend on their number. Weights, heads, pages and outputs shrink to a rank's share; values that all ranks
    read become `peers`. Each kernel gets the exchange `@armed` of numbers, through which SMs tell all ranks that they
    have re-armed, and a stage `@launch_end` that waits for it.

    `experts` says how the experts' matrices are divided, with the words of `moe-shard`: `nn`, both by output rows;
    `nn-sums`, the same where outputs are normed one by one, whose sums of squares are exchanged in their place; `auto`,
    whichever of the two the experts have; `nk`, the down projection by K: activations stay, every rank's part of the
    sums goes to all, who add them in the order of ranks, so that bits depend on their number. `o-proj`, of the
    projection behind attention: `n` or `auto`, by output rows; `k`, by K, so that heads' outputs stay and parts of sums
    travel as with `nk`. `sums`: the type in which parts travel, f32 or bf16.

    Errors: heads, rows or columns that the ranks cannot divide evenly; stages that have no form for several ranks, or
    none for `experts` or `o-proj`.
  }];
  let dependentDialects = ["::megalith::task::TaskDialect"];
  let options = [
    Option<"ranks", "ranks", "int64_t", "1", "GPUs that compute a step together: 1, 2, 4 or 8">,
    Option<"experts", "experts", "std::string", "\"auto\"", "auto, nn, nn-sums or nk">,
    Option<"outputProjection", "o-proj", "std::string", "\"auto\"", "auto, n or k">,
    Option<"sums", "sums", "std::string", "\"f32\"", "type of the parts of sums that ranks exchange: f32 or bf16">
  ];
}

def MaterializeExchanges : Task_Pass<"task-materialize-exchanges", "::megalith::task::KernelOp"> {
  let summary = "values between stages become exchanges, one words edge each";
  let description = [{
    Every value becomes a `task.exchange` of sentinel words (three sets where the next launch reads it, else two)
    with a words edge `@<value>_words`. Dependences are exact: the access maps of every pair of a writing and a
    reading stage are evaluated tile by tile. A reading stage is marked `depends = [@producer, …]`; stages that
    share no value stay independent. Where every tile of a reader reads just what the same SM's tile of one
    residual linear wrote, the reader is marked `kept = @producer`: the slice stays in shared memory.

    Errors: a value is written twice, or read where no stage writes it; more than 32 buffers.
  }];
}

def ElideExchanges : Task_Pass<"task-elide-exchanges", "::megalith::task::KernelOp"> {
  let summary = "drops waits that others imply";
  let description = [{
    A linear stage that reads the very rows, normed the same way, that the stage before it brought to the same SMs
    takes them from there: its read goes, and its config gets `shares_input = @stage`.
  }];
}

def MergeLaunches : Task_Pass<"task-merge-launches", "::mlir::ModuleOp"> {
  let summary = "the kernels of a step become one that loops over its launches (--scope=step)";
  let description = [{
    Stages that are equal in several kernels are written once, with the launches `during` which they run; their order
    is that of every kernel. Buffers, weights, exchanges and edges of the same name are one. Slots are assigned anew:
    those bound to another buffer from launch to launch come first (`layered`). A stage `@launch_end` ends every
    launch. The kernel is called @step; `megalith.launches` names it for every launch.

    Errors: launches of a kernel, or of a stage, that do not follow one another (several kinds of layer in turn);
    declarations of one name that differ; more slots than LaunchArgs has, or more launches than kernel parameters have room for.
  }];
}

def PlanStreams : Task_Pass<"task-plan-streams", "::megalith::task::KernelOp"> {
  let summary = "what the producer streams, in which order, and the ring it goes through";
  let description = [{
    Declares `@ring` (slots of the largest piece, their number left to task-plan-memory) with its edges `@w_full` and
    `@w_free`. Every streaming stage is marked `stream = {order, piece, bytes}`: loops outermost first, bytes of its
    largest copy, bytes of one SM's share of one matrix (for attention: of a unit).

    Linear stages whose activation rows take more than `input-bytes` of shared memory, and more than rows that must lie
    there whole, get them in parts of K (`k_parts`), and their weights part by part
    (docs/kernel-contract.md section 14).
  }];
  let options = [Option<"inputBytes", "input-bytes", "int64_t", "98304",
                        "shared memory for activation rows that may come in parts">];
}

def SelectProtocol : Task_Pass<"task-select-protocol", "::mlir::ModuleOp"> {
  let summary = "how each dependence synchronises: words, epochs, mbarriers";
  let description = [{
    Exchanges of fp32 become epoch words where the words written depend on the step (attention's partial results) or
    a set is larger than 64 KB, too large to re-arm. Where the end of a launch hands an exchange on, its words stay
    plain, or triples where they would have been epochs. Hand-offs between roles of one SM get mbarrier edges, and credit
    edges where slots are filled again. Every kernel of the module gets every sentinel exchange of the module, so that
    each launch re-arms what the next one writes.

    Errors: no free slot of 40 for an exchange.
  }];
}

def PlanMemory : Task_Pass<"task-plan-memory", "::megalith::task::KernelOp"> {
  let summary = "places of barriers, buffers and ring in shared memory";
  let description = [{
    Declares the buffers of the hand-offs with offset, stride and guard, and gives the ring what is left. If that is
    less than `ring-floor`, or of one row less than the widest slice that others wait for and sharing gains two slots,
    attention's buffers share bytes with those of the dense phase (alias groups, with the edges
    `@attention_done` and `@merge_done`), and if it is still less than `ring-floor`, attention's slots become single;
    if that leaves less than half, the others' do too.

    With `residents` 2 a kernel that leaves its ring half of `ring-floor` in half of the SM's shared memory gets that
    and `residents = 2`; others get all of it.

    Error: the kernel does not fit, by rows bucket, model, target and bytes. The model's name is the module's attribute
    `megalith.model`.
  }];
  let options = [
    Option<"sharedBytes", "shared-bytes", "int64_t", "0", "Shared memory of a CTA; 0: what the target has">,
    Option<"reserve", "reserve", "int64_t", "1024", "Bytes left unused">,
    Option<"ringFloor", "ring-floor", "int64_t", "98304", "Bytes of ring worth sharing other bytes for">,
    Option<"ringSlots", "ring-slots", "int64_t", "64", "Most slots of the ring">,
    Option<"residents", "residents", "int64_t", "1", "CTAs of consecutive launches that an SM should hold, 1 or 2">,
  ];
}

def LowerToRoles : Task_Pass<"task-lower-to-roles", "::megalith::task::KernelOp"> {
  let summary = "stages become role regions";
  let description = [{
    Each stage of a planned kernel gets one straight-line region per warp role, in calls of the device functions
    (codegen/device/README.md, attention.md), and its config the printed keys: `base`, `In`, `Norm`, buffers. Dynamic
    trip counts and index functions are declared once as `task.symbol` and `task.table`. Order rules of
    docs/kernel-contract.md section 2: the poller's launch_wait, re-arming of every exchange and launch_dependents come
    after its last poll of the previous launch's words; epilogue and consumers launch_wait before their first store.

    Errors: values, buffers or memory not planned; a stage that writes or reads what its kind cannot.
  }];
}

def TraceTask : Task_Pass<"task-trace", "::megalith::task::KernelOp"> {
  let summary = "kernels record what their warps do";
  let description = [{
    Marks kernels at role level with `trace`, so that their sources record stages, waits and what the stream costs
    (codegen/device/trace.cuh); nothing else changes. A kernel that needs LaunchArgs' last slot, where records go,
    records nothing, and a warning says so.

    Errors: stages without role regions.
  }];
}

//===----------------------------------------------------------------------===//
// passes/verify: the proof
//===----------------------------------------------------------------------===//

def VerifyTask : Pass<"task-verify", "::mlir::ModuleOp"> {
  let summary = "prove that no kernel of the plan deadlocks, races or leaves anything unwritten";
  let description = [{
    Works on role regions, so on the very waits and signals that are emitted: arrivals of every edge; then each
    role unrolled on every SM and run abstractly, for the largest value of every symbol and for `random-cases`
    smaller choices. passes/verify/README.md says what is checked. Changes nothing.
  }];
  let options = [
    Option<"randomCases", "random-cases", "int", "8", "smaller choices of the symbols to run besides the largest">,
  ];
}

#endif
