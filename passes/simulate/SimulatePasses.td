#ifndef MEGALITH_SIMULATE_PASSES_TD
#define MEGALITH_SIMULATE_PASSES_TD

include "mlir/Pass/PassBase.td"

def SimulateTask : Pass<"task-simulate", "::mlir::ModuleOp"> {
  let summary = "predict when each stage's roles work, from a cost table";
  let description = [{
    Plays the role regions of the module's kernels in time (passes/simulate/README.md), `launches` launches of each,
    one after the other, and tells as remarks of each stage what its roles did in the last of them: mean times over
    SMs and warps, nanoseconds since the launch's first CTA began. Changes nothing. `megalith simulate` does it for
    whole plans.
  }];
  let options = [
    Option<"costs", "costs", "std::string", "\"\"", "cost table; by default that of the kernels' target">,
    Option<"launches", "launches", "int64_t", "2", "launches of each kernel">,
    Option<"context", "context", "int64_t", "8192", "positions in the pages of every row">,
    Option<"seed", "seed", "int64_t", "1", "of the experts that rows choose">,
  ];
}

#endif
