#ifndef MEGALITH_TASK_ATTRS_TD
#define MEGALITH_TASK_ATTRS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "TaskDialect.td"

class Task_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let genSpecializedAttr = 0;
  let cppNamespace = "::megalith::task";
}

// The empty literal: an operation has put a space in front already.
class Task_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<Task_Dialect, info, mnemonic> {
  let assemblyFormat = "`` $value";
}

def Task_Role : Task_Enum<"Role", "a CTA's warp roles, in warp order", [
  I32EnumAttrCase<"Producer", 0, "producer">, // 1 warp: walks the weight and KV stream
  I32EnumAttrCase<"Poller", 1, "poller">,     // 1 warp: polls exchanges into shared memory
  I32EnumAttrCase<"Consumer", 2, "consumer">, // 8 warps: arithmetic
  I32EnumAttrCase<"Epilogue", 3, "epilogue">, // 1 warp: adds chunks, rounds, publishes
]>;
def Task_RoleAttr : Task_EnumAttr<Task_Role, "role">;

def Task_Space : Task_Enum<"Space", "where a buffer lives", [
  I32EnumAttrCase<"Global", 0, "global">,
  I32EnumAttrCase<"Smem", 1, "smem">,
]>;
def Task_SpaceAttr : Task_EnumAttr<Task_Space, "space">;

def Task_Access : Task_Enum<"Mutability", "who writes a buffer", [
  I32EnumAttrCase<"Immutable", 0, "immutable">, // nobody while kernels run
  I32EnumAttrCase<"Written", 1, "written">,     // this kernel, once per element; read by nobody in it
  I32EnumAttrCase<"Pages", 2, "pages">,         // KV pages: reads stay below start, writes at and above it
  I32EnumAttrCase<"Scratch", 3, "scratch">,     // shared memory, ordered by edges
  I32EnumAttrCase<"Value", 4, "value">,         // between stages; materialization makes it an exchange
]>;
def Task_MutabilityAttr : Task_EnumAttr<Task_Access, "mutability">;

def Task_EdgeKind : Task_Enum<"EdgeKind", "how an edge synchronises", [
  I32EnumAttrCase<"Mbarrier", 0, "mbarrier">, // arrivals of warps; acquire/release, CTA scope
  I32EnumAttrCase<"Bytes", 1, "bytes">,       // one arrival and the bytes of bulk copies; async proxy → generic
  I32EnumAttrCase<"Credit", 2, "credit">,     // as mbarrier, its first `slots` uses free: reuse of slots
  I32EnumAttrCase<"Words", 3, "words">,       // self-validating words of an exchange; relaxed, its scope
  I32EnumAttrCase<"Launch", 4, "launch">,     // the end of the launches before: launch_wait, then words that prove nothing
  I32EnumAttrCase<"Launches", 5, "launches">, // one arrival an SM and launch, on a counter; acquire/release, GPU scope
]>;
def Task_EdgeKindAttr : Task_EnumAttr<Task_EdgeKind, "edge_kind">;

def Task_WordKind : Task_Enum<"WordKind", "atomic unit of an exchange and its proof of fullness", [
  I32EnumAttrCase<"Sentinel", 0, "sentinel">, // b32, empty = 0xFFFFFFFF; re-armed
  I32EnumAttrCase<"Epoch", 1, "epoch">,       // b128 = 3 x fp32 + the launch's 32-bit epoch; never re-armed
  I32EnumAttrCase<"Plain", 2, "plain">,       // b32 that prove nothing: an earlier launch wrote them (launch edge)
  I32EnumAttrCase<"Triple", 3, "triple">,     // b128 = 3 x fp32 and nothing: epoch words of a launch edge
  I32EnumAttrCase<"Number", 4, "number">,     // b32 = launch number + 1 or more: how far a rank has come
]>;
def Task_WordKindAttr : Task_EnumAttr<Task_WordKind, "word_kind">;

def Task_Set : Task_Enum<"Set", "which set of an exchange an access means", [
  I32EnumAttrCase<"Current", 0, "current">,   // written by this launch
  I32EnumAttrCase<"Previous", 1, "previous">, // written by the previous launch (crossing exchanges)
]>;
def Task_SetAttr : Task_EnumAttr<Task_Set, "set">;

def Task_Meeting : Task_Enum<"Meeting", "when all warps of a call's role meet", [
  I32EnumAttrCase<"Always", 0, "always">,   // before the call writes anything
  I32EnumAttrCase<"Writing", 1, "writing">, // likewise, but only if it writes
]>;
def Task_MeetingAttr : Task_EnumAttr<Task_Meeting, "meeting">;

def Task_Axiom : Task_Enum<"Axiom", "what is known of an uninterpreted index function", [
  I32EnumAttrCase<"Partition", 0, "partition">, // every value in range comes from exactly one (sm, indices)
  I32EnumAttrCase<"Injective", 1, "injective">, // no value comes from two
  I32EnumAttrCase<"Uniform", 2, "uniform">,     // the same on every SM; for one SM injective in its indices
]>;
def Task_AxiomAttr : Task_EnumAttr<Task_Axiom, "axiom">;

def Task_Pairing : Task_Enum<"Pairing", "which two output rows share a strip", [
  I32EnumAttrCase<"Rows", 0, "rows">,      // (2i, 2i+1)
  I32EnumAttrCase<"GateUp", 1, "gate_up">, // (gate i, up i)
]>;
def Task_PairingAttr : Task_EnumAttr<Task_Pairing, "pairing">;

def Task_StageKind : Task_Enum<"StageKind", "shape of a stage's tile space and role regions", [
  I32EnumAttrCase<"Embed", 0, "embed">,            // token rows of a table
  I32EnumAttrCase<"Linear", 1, "linear">,          // y = x·Wᵀ by N slices, optional norm before
  I32EnumAttrCase<"Attention", 2, "attention">,    // (sequence, KV head, split) tiles → partials
  I32EnumAttrCase<"Merge", 3, "merge">,            // (row, query head) tiles: partials → attention output
  I32EnumAttrCase<"TopK", 4, "top_k">,             // replicated on every SM: logits → routing table
  I32EnumAttrCase<"ExpertUp", 5, "expert_up">,     // gate and up of every active expert by N slices
  I32EnumAttrCase<"ExpertDown", 6, "expert_down">, // down of every active expert, then combine
  I32EnumAttrCase<"LaunchEnd", 7, "launch_end">,   // of a looping kernel: every role is over with this launch
  I32EnumAttrCase<"Rows", 8, "rows">,              // on every SM: a branch joins the fp32 stream; its rows normed for who follows
  I32EnumAttrCase<"Combine", 9, "combine">,        // pairs' outputs, kept by slices, normed and added
]>;
def Task_StageKindAttr : Task_EnumAttr<Task_StageKind, "stage_kind">;

def Task_AccessAttr : AttrDef<Task_Dialect, "Access"> {
  let mnemonic = "access";
  let summary = "a rectangle of a buffer, exchange or weight matrix";
  let description = [{
    Rows [row, row + rows) and columns [col, col + cols) of `buffer`, where (row, col) = `at` and cols is the
    minimum of `cols`' results (0 if negative). Maps take (sm, loop indices outermost first) in a role region,
    the tile's index in a stage's `reads` and `writes`. Units: elements of the buffer; for weights, rows are
    strips and columns are blocks of K. With `table`, `at` has a third result in front, the table's argument: the
    rectangle lies in the matrix or group of rows that table(argument) names (table(sm, argument) unless the
    table is uniform). `set` names the set of an exchange (default current). With `own` columns of an exchange of ranks are
    counted from where this rank's share begins.

    Written `@buffer[row, col] rows x [cols] table @t previous own`; d0 is the SM (or tile), d1.. the loops:

    ```
    @mid[0, d0 * 16 + d1 * 16] 8 x [16]       // 8 rows, 16 columns: this SM's m-tile
    @w_up[d1, d0 * 6, d2] 6 x [1] table @expert   // 6 strips, one block, of expert(d1)'s matrix
    ```
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$buffer, "::mlir::AffineMapAttr":$at, "int64_t":$rows,
                        "::mlir::AffineMapAttr":$cols, OptionalParameter<"::mlir::FlatSymbolRefAttr">:$table,
                        DefaultValuedParameter<"Set", "Set::Current">:$set,
                        DefaultValuedParameter<"bool", "false">:$own);
  let builders = [AttrBuilder<(ins "::mlir::FlatSymbolRefAttr":$buffer, "::mlir::AffineMapAttr":$at, "int64_t":$rows,
                                   "::mlir::AffineMapAttr":$cols, "::mlir::FlatSymbolRefAttr":$table, "Set":$set),
                              [{ return $_get($_ctxt, buffer, at, rows, cols, table, set, /*own=*/false); }]>];
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    /// The form inside the angle brackets, which ops print bare.
    static ::mlir::ParseResult parseBody(::mlir::AsmParser &parser, AccessAttr &access);
    /// The same access of this rank's share, or as it is.
    AccessAttr withOwn(bool isOwn) const;
    void printBody(::mlir::AsmPrinter &printer) const;
  }];
}

def Task_TripsAttr : AttrDef<Task_Dialect, "Trips"> {
  let mnemonic = "trips";
  let summary = "a loop's trip count";
  let description = [{
    Either the minimum of `map`'s results over (sm, enclosing loop indices), 0 if negative, or a `task.symbol`.
  }];
  let parameters = (ins OptionalParameter<"::mlir::AffineMapAttr">:$map, OptionalParameter<"::mlir::FlatSymbolRefAttr">:$symbol);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif
