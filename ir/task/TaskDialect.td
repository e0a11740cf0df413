#ifndef MEGALITH_TASK_DIALECT_TD
#define MEGALITH_TASK_DIALECT_TD

include "mlir/IR/OpBase.td"

def Task_Dialect : Dialect {
  let name = "task";
  let summary = "who computes it, when, and waiting for what";
  let description = [{
    The `task` dialect sits between the `moe` dialect (what is computed) and the emitted CUDA C++:

    ```
    moe ──convert──▶ stages ──tile, assign, exchanges, memory──▶ plan ──lower──▶ role regions ──▶ <kernel>.cu
                     task.stage    task.exchange, task.edge,      task.role: wait, signal,
                     reads/writes  task.ring, task.buffer         acquire, release, copy, poll, compute
    ```

    One `task.kernel` is one CUDA kernel: one CTA per SM, resident throughout, its warps split in *roles*.
    It holds declarations (symbols) and stages in program order. The level of a kernel is what its stages hold:

    * **stages**: a `task.stage` says what it reads and writes (`reads`, `writes`: access maps over its tile
      space) and its numeric configuration;
    * **plan**: declarations of exchanges, edges, ring, buffers with their places; tile → SM on the stage;
    * **roles**: each stage has one straight-line region per warp role. Waits and signals are ops there, and
      this level is what is verified, simulated, mutated and printed.

    Ranges are affine in (sm, loop indices): dimension 0 of every map in a role region is the SM, dimensions
    1.. are the enclosing loops, outermost first. Dynamic facts enter as `task.symbol` (trip counts) and
    `task.table` (an uninterpreted index function with a declared axiom): a dynamic value never chooses a
    written address except through a declared table.

    Rationale. Edges are symbols, not SSA values: an edge joins regions that run on different warps and SMs
    at different times, so def-use order means nothing for it. Memory order belongs to the edge's kind, never
    to the op that waits.
  }];
  let cppNamespace = "::megalith::task";
  let useDefaultAttributePrinterParser = 1;
}

#endif
