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

//===----------------------------------------------------------------------===//
// passes/verify: the proof
//===----------------------------------------------------------------------===//

def VerifyTask : Pass<"task-verify", "::mlir::ModuleOp"> {
  let summary = "prove that no kernel of the plan deadlocks, races or leaves anything unwritten";
  let description = [{
    Works on role regions, so on the very waits and signals that are emitted: arrivals of every edge; then each
    role unrolled on every SM and run abstractly, for the largest value of every symbol and for `random-cases`
    smaller choices. passes/verify/Machine.h says what is checked. Changes nothing.
  }];
  let options = [
    Option<"randomCases", "random-cases", "int", "8", "smaller choices of the symbols to run besides the largest">,
  ];
}

#endif
