#ifndef MEGALITH_PASSES_TD
#define MEGALITH_PASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// passes/task: stages to role regions, in the order of the pipeline
//===----------------------------------------------------------------------===//

class Task_Pass<string name, string op> : Pass<name, op> {
  let dependentDialects = ["::megalith::task::TaskDialect"];
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

#endif
