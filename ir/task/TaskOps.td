#ifndef MEGALITH_TASK_OPS_TD
#define MEGALITH_TASK_OPS_TD

include "mlir/IR/SymbolInterfaces.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/CommonAttrConstraints.td"
include "TaskAttrs.td"

class Task_Op<string mnemonic, list<Trait> traits = []> : Op<Task_Dialect, mnemonic, traits>;

// A declaration inside a kernel: a symbol other ops name.
class Task_DeclOp<string mnemonic> : Task_Op<mnemonic, [Symbol, HasParent<"KernelOp">]>;

// A step of a role region.
class Task_StepOp<string mnemonic, list<Trait> traits = []>
    : Task_Op<mnemonic, !listconcat(traits, [ParentOneOf<["RoleOp", "ForOp"]>])>;

// Counts, ids, bytes and offsets: signed in C++, so that differences are safe.
def Task_Int : TypedSignlessIntegerAttrBase<I64, "int64_t", "64-bit integer">;

def AccessArrayAttr : TypedArrayAttrBase<Task_AccessAttr, "accesses">;

//===----------------------------------------------------------------------===//
// The kernel and its declarations
//===----------------------------------------------------------------------===//

def KernelOp : Task_Op<"kernel", [Symbol, SymbolTable, IsolatedFromAbove, NoTerminator, SingleBlock,
                                  NoRegionArguments]> {
  let summary = "one persistent kernel: one CTA on each of `sms` SMs";
  let description = [{
    `rows` is the bucket: the compiled maximum of live rows. `target` is the NVRTC architecture. `smem_bytes`
    is the dynamic shared memory of a CTA, set by memory planning. `kind` names the kernel's place in the step
    (embed, layer, last, step, stage, or a test's own). `residents` is how many CTAs of consecutive launches shared memory
    is planned for on one SM: with 2 the next launch's CTA may start while this one's runs. A kernel with `trace` records
    what its warps do (codegen/device/trace.cuh).

    With `launches` the kernel loops: its stages, in order, once for each launch [0, launches) of a step, which then
    are not launches of the machine. Slots of LaunchArgs::buffer below `layered` hold what differs from launch to
    launch.

    With `ranks` above 1 it is the kernel of any one of so many ranks: `sms`, shapes and places are of one rank, all run
    the same program, and only exchanges with `peers` join them (docs/kernel-contract.md section 12).
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$kind, StrAttr:$target, Task_Int:$sms, Task_Int:$rows,
                       OptionalAttr<Task_Int>:$smem_bytes, DefaultValuedAttr<Task_Int, "1">:$residents,
                       UnitAttr:$trace,
                       OptionalAttr<Task_Int>:$launches, OptionalAttr<Task_Int>:$layered,
                       DefaultValuedAttr<Task_Int, "1">:$ranks);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name $kind `target` $target `sms` $sms `rows` $rows (`smem` $smem_bytes^)? (`trace` $trace^)?
    attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The declaration of that name, or null if it is missing or of another kind.
    template <typename OpT> OpT lookup(::mlir::FlatSymbolRefAttr ref) {
      return ref ? ::mlir::dyn_cast_or_null<OpT>(::mlir::SymbolTable::lookupSymbolIn(*this, ref)) : OpT();
    }
    /// Edges in id order.
    ::llvm::SmallVector<EdgeOp> edges();
    /// Whether any stage holds role regions.
    bool isAtRoleLevel();
    /// Whether it loops over the launches of a step.
    bool isLooping() { return getLaunches().has_value(); }
    /// Exchanges that ranks store to each other's replicas of, in the order of RankArgs::peer.
    ::llvm::SmallVector<ExchangeOp> peerExchanges();
  }];
}

def SymbolOp : Task_DeclOp<"symbol"> {
  let summary = "a dynamic trip count with its range";
  let description = [{
    An integer in [min, max] known at launch, or, with `after`, once that edge was waited for. The same value in
    every role of one SM; with `per_sm` SMs may differ. `expr` is its C++ expression in emitted source.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Task_Int:$min, Task_Int:$max, StrAttr:$expr, UnitAttr:$per_sm,
                       OptionalAttr<FlatSymbolRefAttr>:$after);
  let assemblyFormat = [{
    $sym_name `in` $min `to` $max (`per_sm` $per_sm^)? (`after` $after^)? `=` $expr attr-dict
  }];
  let hasVerifier = 1;
}

def TableOp : Task_DeclOp<"table"> {
  let summary = "an uninterpreted index function (sm, argument) → [0, size) with a declared axiom";
  let arguments = (ins SymbolNameAttr:$sym_name, Task_Int:$size, Task_AxiomAttr:$axiom, StrAttr:$expr);
  let assemblyFormat = "$sym_name `size` $size $axiom `=` $expr attr-dict";
}

def BufferOp : Task_DeclOp<"buffer"> {
  let summary = "a buffer in global memory (slot = index in LaunchArgs::buffer) or shared memory (offset)";
  let description = [{
    `shape` is [rows, columns] in elements of `element`. In shared memory `row_bytes` is the padded stride of a
    row, `slots` the number of copies, `offset` the first byte in the CTA's arena once memory is planned.
    Buffers of one `alias` group may overlap buffers of another group: the verifier then demands an edge
    between the last use of one and the first use of the other. A value is what stages hand each other before
    exchanges are materialized; with `crossing` the next launch reads it too; with `by_launch` only later launches
    read it, and a kernel either writes or reads it.

    An immutable buffer read from a checkpoint names its tensor in `checkpoint`, as `task.weights` does;
    `layer_offset` is 1 when it belongs to the layer after the launch's own. `load` says what is done to the tensor
    when it is loaded: {kind = "add1"}, or {kind = "residual_gate", temperature, floor}, which makes two rows of it.

    `guard` names the mbarrier edge that hands a shared-memory buffer from its source role to its waiting roles.
    The source fills it before signal number u; a waiting role reads that filling after wait number u. Copy
    u % slots is meant. A buffer of one role needs no guard.

    `peers` makes the exchange that takes a value's place one of ranks. `rank_parts` says what columns each rank has of
    a value, output or exchange whose replicas differ: pairs (columns, ranks that have the same), the whole's parts in
    order.

    `type` is the C++ type of a shared buffer in emitted source, with `$offset`, `$rows`, `$cols` and `$slots`
    for its own numbers (`"Part<$offset, $slots>"`). Absent: `Rows`, `WordRows` or bytes by element (codegen/README.md).
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DenseI64ArrayAttr:$shape, TypeAttr:$element,
                       Task_SpaceAttr:$space, Task_MutabilityAttr:$mutability, OptionalAttr<Task_Int>:$slot,
                       OptionalAttr<Task_Int>:$row_bytes, DefaultValuedAttr<Task_Int, "1">:$slots,
                       OptionalAttr<Task_Int>:$offset, OptionalAttr<StrAttr>:$alias, UnitAttr:$crossing, UnitAttr:$by_launch,
                       OptionalAttr<StrAttr>:$checkpoint,
                       DefaultValuedAttr<Task_Int, "0">:$layer_offset,
                       OptionalAttr<DictionaryAttr>:$load,
                       OptionalAttr<FlatSymbolRefAttr>:$guard, OptionalAttr<StrAttr>:$type,
                       UnitAttr:$peers, OptionalAttr<DenseI64ArrayAttr>:$rank_parts);
  let assemblyFormat = "$sym_name $shape $element $space $mutability attr-dict";
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "::llvm::ArrayRef<int64_t>":$shape,
                                 "::mlir::Type":$element, "Space":$space, "Mutability":$mutability)>];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t rows() { return getShape()[0]; }
    int64_t cols() { return getShape()[1]; }
    int64_t elementBytes() { return getElement().getIntOrFloatBitWidth() / 8; }
    /// Bytes between rows: `row_bytes`, or the packed row.
    int64_t rowStride() { return getRowBytes().value_or(cols() * elementBytes()); }
    /// Bytes of all slots.
    int64_t byteSize() { return rowStride() * rows() * getSlots(); }
  }];
}

def WeightsOp : Task_DeclOp<"weights"> {
  let summary = "a strip-packed weight matrix, or a bank of them, one per expert";
  let description = [{
    `n` output rows (gate/up: both counted) and `k` columns of the unsharded, unpadded matrix, in the strip
    layout of docs/kernel-contract.md. `checkpoint` names the tensors it is packed from, with `{layer}` and
    `{expert}` placeholders; gate/up has two, and rows of several tensors follow one another; one that is named several times
    gives of each of its matrices equal ranges of rows in turn. `layer_offset` is 1
    when they belong to the layer after the launch's own. `wide`: fp32 strips (section 13 there), else bf16.
    `rank_rows`: rows of each tensor that one rank has, where ranks divide them; `n` then counts one rank's.
    `nvfp4`: NVFP4 tiles, eight strips each.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Task_Int:$n, Task_Int:$k, Task_Int:$slot,
                       DefaultValuedAttr<Task_Int, "1">:$experts, Task_PairingAttr:$pairing,
                       StrArrayAttr:$checkpoint, DefaultValuedAttr<Task_Int, "0">:$layer_offset,
                       OptionalAttr<DenseI64ArrayAttr>:$rank_rows, UnitAttr:$nvfp4, UnitAttr:$wide);
  let assemblyFormat = "$sym_name `n` $n `k` $k `slot` $slot $pairing $checkpoint attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// k16 steps of one warp's chunk of K.
    int64_t chunk16() { return (((getK() + 7) / 8) + 15) / 16; }
    /// k16 steps per chunk per block: for strips the largest divisor of chunk16 that is at most 4.
    int64_t blockSteps();
    /// Blocks of K.
    int64_t blocks() { return chunk16() / blockSteps(); }
    /// Strips (pairs of output rows), and bytes of one strip of one block.
    int64_t strips() { return (getN() + 1) / 2; }
    int64_t stripBytes() { return (getNvfp4() ? 144 : getWide() ? 1024 : 512) * blockSteps(); }
    /// Most strips of an m-tile, and so of a ring piece.
    int64_t tileStrips() { return getWide() ? 4 : 8; }
    /// Bytes of the whole bank; behind each NVFP4 matrix stand its factors.
    int64_t byteSize() {
      return getExperts() * (blocks() * strips() * stripBytes() + (getNvfp4() ? 128 : 0));
    }
  }];
}

def RingOp : Task_DeclOp<"ring"> {
  let summary = "the CTA's ring of equal slots that weights and KV stream through";
  let arguments = (ins SymbolNameAttr:$sym_name, Task_Int:$slots, Task_Int:$slot_bytes,
                       OptionalAttr<Task_Int>:$offset, FlatSymbolRefAttr:$full, FlatSymbolRefAttr:$free);
  let assemblyFormat = "$sym_name $slots `x` $slot_bytes `full` $full `free` $free attr-dict";
  let hasVerifier = 1;
}

def ExchangeOp : Task_DeclOp<"exchange"> {
  let summary = "a buffer in global memory that SMs hand each other words through";
  let description = [{
    `shape` = [rows, columns] of `element`. Sentinel words are re-armed: `sets` is 2 when only the launch that
    writes reads, 3 when the next launch reads too (crossing). Epoch words need one set. Bulk copies never touch
    words that prove themselves. `edge` is the words edge whose producers write it. Plain and triple words prove
    nothing: their edge is a launch edge, one kernel writes them and others read them in later launches, one set.

    With `peers` every rank has a replica: a word is stored to all of them, each rank stores the columns of its share,
    [rank * cols / ranks, (rank + 1) * cols / ranks), and polls its own replica. Numbers (peers only) say how far a rank
    has come: launch number + 1, one set, never emptied, and a later one says as much. `rank_parts`: as of a buffer.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DenseI64ArrayAttr:$shape, TypeAttr:$element,
                       Task_WordKindAttr:$word, Task_Int:$sets, Task_Int:$slot, FlatSymbolRefAttr:$edge,
                       UnitAttr:$peers, OptionalAttr<DenseI64ArrayAttr>:$rank_parts);
  let assemblyFormat = "$sym_name $shape $element $word `sets` $sets `slot` $slot `edge` $edge attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool isCrossing() { return getSets() == 3; }
    /// Whether its words prove themselves; else an earlier launch wrote them.
    bool isSelfValidating() {
      return getWord() == WordKind::Sentinel || getWord() == WordKind::Epoch || getWord() == WordKind::Number;
    }
    /// Columns that one rank stores.
    int64_t shareCols();
    /// Whether three fp32 share a b128 word.
    bool hasTriples() { return getWord() == WordKind::Epoch || getWord() == WordKind::Triple; }
    int64_t rows() { return getShape()[0]; }
    int64_t cols() { return getShape()[1]; }
    /// 32-bit words of one row of one set (sentinel, plain), or bytes / 4 of its b128 words (epoch, triple).
    int64_t wordsPerRow();
    /// Bytes of all sets.
    int64_t byteSize() { return getSets() * rows() * wordsPerRow() * 4; }
  }];
}

def EdgeOp : Task_DeclOp<"edge"> {
  let summary = "a numbered synchronisation edge between roles";
  let description = [{
    `from` role signals, the `to` roles wait. For mbarrier and credit edges `arrivals` is the number of warps
    that signal one use and `slots` how many uses are in flight; a credit edge's first `slots` waits pass at
    once. A bytes edge completes by bulk copies. A words edge is the exchange of that name: its arrivals are the
    words themselves. A launch edge is an exchange that earlier launches wrote: launch_wait waits for it. A launches
    edge joins all SMs of a looping kernel: each arrives once a launch on the counter in slot `slot` of
    LaunchArgs::buffer. `offset` is the first mbarrier's place in shared memory.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Task_Int:$id, Task_EdgeKindAttr:$kind, Task_RoleAttr:$from,
                       TypedArrayAttrBase<Task_RoleAttr, "roles">:$to, DefaultValuedAttr<Task_Int, "1">:$slots,
                       DefaultValuedAttr<Task_Int, "1">:$arrivals, OptionalAttr<Task_Int>:$offset,
                       OptionalAttr<Task_Int>:$slot);
  let assemblyFormat = "$id $sym_name $kind $from `->` custom<Roles>($to) attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether it joins SMs or launches through global memory, without an mbarrier.
    bool isGlobal() {
      return getKind() == EdgeKind::Words || getKind() == EdgeKind::Launch || getKind() == EdgeKind::Launches;
    }
  }];
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

def StageOp : Task_Op<"stage", [Symbol, HasParent<"KernelOp">, NoTerminator, SingleBlock, NoRegionArguments]> {
  let summary = "one stage: its tile space, what each tile reads and writes, and, once lowered, its role regions";
  let description = [{
    `tiles` is the tile space's size; `sms` the number of SMs that take part ([0, sms)); `assign` maps a tile to
    (SM, order on that SM). `reads` and `writes` are access maps over the tile's index. `config` holds the
    compile-time numbers of the device functions (their documented members), printed as the stage's struct:
    codegen/README.md says which keys and how. `source` is the moe op it came from. `during` = [first, end) are the
    launches of a looping kernel in which the stage runs; absent: all.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Task_StageKindAttr:$kind, OptionalAttr<Task_Int>:$tiles,
                       OptionalAttr<Task_Int>:$sms, OptionalAttr<AffineMapAttr>:$assign,
                       AccessArrayAttr:$reads, AccessArrayAttr:$writes, DictionaryAttr:$config,
                       OptionalAttr<StrAttr>:$source, OptionalAttr<DenseI64ArrayAttr>:$during);
  let regions = (region MaxSizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name $kind (`tiles` $tiles^)? (`sms` $sms^)? (`assign` $assign^)? `reads` custom<Accesses>($reads) `writes` custom<Accesses>($writes)
    `config` $config (`source` $source^)? attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The region of `role`, or null when the role does nothing in this stage.
    RoleOp role(Role role);
    /// Whether it runs in that launch of a looping kernel; else always.
    bool runsIn(int64_t launch) {
      return !getDuring() || ((*getDuring())[0] <= launch && launch < (*getDuring())[1]);
    }
  }];
}

def RoleOp : Task_Op<"role", [HasParent<"StageOp">, NoTerminator, SingleBlock, NoRegionArguments]> {
  let summary = "what the warps of one role do in a stage, on SMs [0, stage.sms)";
  let arguments = (ins Task_RoleAttr:$role);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$role attr-dict-with-keyword $body";
}

//===----------------------------------------------------------------------===//
// Steps of a role region
//===----------------------------------------------------------------------===//

def ForOp : Task_StepOp<"for", [NoTerminator, SingleBlock, NoRegionArguments]> {
  let summary = "a bounded loop; its index is the next dimension of the maps inside";
  let description = [{
    `index` names the loop's index in emitted source. `iterate` replaces the counted loop by a C++ range of that
    name (attention tiles): the verifier still sees `trips` iterations.
  }];
  let arguments = (ins StrAttr:$index, Task_TripsAttr:$trips, OptionalAttr<StrAttr>:$iterate);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$index `in` custom<Trips>($trips) (`iterate` $iterate^)? attr-dict-with-keyword $body";
}

class Task_EdgeStepOp<string mnemonic> : Task_StepOp<mnemonic> {
  let arguments = (ins FlatSymbolRefAttr:$edge);
  let assemblyFormat = "$edge attr-dict";
  let hasVerifier = 1;
}

// `result` is the C++ declaration of what the call returns ("const int slot"), for later steps' args.
class Task_SlotStepOp<string mnemonic> : Task_EdgeStepOp<mnemonic> {
  let arguments = (ins FlatSymbolRefAttr:$edge, OptionalAttr<StrAttr>:$result);
}

def WaitOp : Task_SlotStepOp<"wait"> {
  let summary = "wait for the edge's next use (mbarrier, bytes)";
}
def PeekOp : Task_EdgeStepOp<"peek"> {
  let summary = "wait for the edge's next use, which stays to be waited for (mbarrier)";
}
def SignalOp : Task_EdgeStepOp<"signal"> {
  let summary = "arrive on the edge's next use, once per warp of the role (mbarrier)";
}
def AcquireOp : Task_SlotStepOp<"acquire"> {
  let summary = "take a slot: wait on a credit edge";
}
def ReleaseOp : Task_EdgeStepOp<"release"> {
  let summary = "free a slot: arrive on a credit edge, once per warp of the role";
}

def CopyOp : Task_StepOp<"copy"> {
  let summary = "bulk copy of one piece of weights or KV into the ring; signals a bytes edge";
  let description = [{
    `source` is a piece of a `task.weights` (rows = strips, cols = one block; with `table` the matrix of
    that expert) or of a pages buffer. `callee` and `args` are the device function and its arguments.
  }];
  let arguments = (ins StrAttr:$callee, StrArrayAttr:$args, Task_AccessAttr:$source, FlatSymbolRefAttr:$ring,
                       FlatSymbolRefAttr:$edge);
  let assemblyFormat = "$callee $args custom<Access>($source) `to` $ring `signals` $edge attr-dict";
  let hasVerifier = 1;
}

def PaceOp : Task_StepOp<"pace"> {
  let summary = "wait until fewer than `window` of the role's copies that signal a bytes edge are under way";
  let description = [{
    Before a copy: what is in flight beyond bandwidth x latency makes every exchange of the SM queue behind it
    and the stream no faster. It waits only for copies that this role has issued and that end by
    themselves, so it can neither deadlock nor order anything; `window` is at most the edge's slots.
  }];
  let arguments = (ins FlatSymbolRefAttr:$edge, Task_Int:$window);
  let assemblyFormat = "$edge `window` $window attr-dict";
  let hasVerifier = 1;
}

def RefillOp : Task_StepOp<"refill"> {
  let summary = "the role's warps meet: what they had in a buffer of their own is over, a new filling begins";
  let description = [{
    For a shared-memory buffer without a guard, of which each warp fills and reads a share: until all have met, one
    may still read what another is about to fill. What the old filling held may not be read any more.
  }];
  let arguments = (ins FlatSymbolRefAttr:$buffer);
  let assemblyFormat = "$buffer attr-dict";
  let hasVerifier = 1;
}

def PollOp : Task_StepOp<"poll"> {
  let summary = "wait for every word of a rectangle of an exchange, and read it";
  let description = [{
    Over a launch edge nothing is left to wait for: the role's launch_wait came before. `reads` may also list what
    the words meet when they come: shared memory and immutable buffers. With `also` each look is at words of a second
    exchange too, and the poll waits for both; its mark is that of `edge`.

    With `joins` the rows come by bulk copies whose bytes join the next signal of that mbarrier edge: they have landed
    for whoever waited for it, and for nobody else.
  }];
  let arguments = (ins StrAttr:$callee, StrArrayAttr:$args, FlatSymbolRefAttr:$edge,
                       OptionalAttr<FlatSymbolRefAttr>:$also, AccessArrayAttr:$reads, AccessArrayAttr:$writes,
                       OptionalAttr<FlatSymbolRefAttr>:$joins);
  let assemblyFormat = [{
    $callee $args `waits` $edge (`and` $also^)? `reads` custom<Accesses>($reads) `writes` custom<Accesses>($writes) (`joins` $joins^)?
    attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// `edge`, and `also` if there is one.
    llvm::SmallVector<mlir::FlatSymbolRefAttr, 2> edges();
  }];
}

def ComputeOp : Task_StepOp<"compute"> {
  let summary = "a device function of one role; touches exactly what it lists";
  let description = [{
    `reads` and `writes` list every buffer it touches; a write to an exchange publishes words. `ring`, when
    present, names the ring whose slot of the role's latest wait it reads. Registers are not listed. `result`
    is the C++ declaration of what the call returns ("const Fragment sum"). `meets` says when all warps of the
    role meet in it, for those who rely on it; task-verify knows which device functions do (passes/verify/Calls.cpp).
  }];
  let arguments = (ins StrAttr:$callee, StrArrayAttr:$args, AccessArrayAttr:$reads, AccessArrayAttr:$writes,
                       OptionalAttr<FlatSymbolRefAttr>:$ring, OptionalAttr<StrAttr>:$result,
                       OptionalAttr<Task_MeetingAttr>:$meets);
  let assemblyFormat = "$callee $args `reads` custom<Accesses>($reads) `writes` custom<Accesses>($writes) (`ring` $ring^)? (`meets` $meets^)? attr-dict";
  let hasVerifier = 1;
}

def LocalOp : Task_StepOp<"local"> {
  let summary = "a register variable of the role: C++ type and name";
  let arguments = (ins StrAttr:$name, StrAttr:$type, OptionalAttr<StrAttr>:$init);
  let assemblyFormat = "$name `:` $type (`=` $init^)? attr-dict";
}

def RearmOp : Task_StepOp<"rearm"> {
  let summary = "store `empty` to this SM's share of the set that no launch reads any more";
  let arguments = (ins FlatSymbolRefAttr:$exchange);
  let assemblyFormat = "$exchange attr-dict";
  let hasVerifier = 1;
}

def LaunchWaitOp : Task_StepOp<"launch_wait"> {
  let summary = "the previous launch is complete and its writes are visible (griddepcontrol.wait)";
  let description = [{
    In a looping kernel `edge` is its launches edge: on every SM all roles are over with the launch before. In the
    first launch that the kernel runs it is the launch of the machine before that is complete.
  }];
  let arguments = (ins OptionalAttr<FlatSymbolRefAttr>:$edge);
  let assemblyFormat = "($edge^)? attr-dict";
  let hasVerifier = 1;
}

def LaunchDoneOp : Task_StepOp<"launch_done"> {
  let summary = "all roles of this SM are over with this launch: arrive on a launches edge";
  let arguments = (ins FlatSymbolRefAttr:$edge);
  let assemblyFormat = "$edge attr-dict";
  let hasVerifier = 1;
}

def LaunchDependentsOp : Task_StepOp<"launch_dependents"> {
  let summary = "the next launch may start (griddepcontrol.launch_dependents)";
  let assemblyFormat = "attr-dict";
}

#endif
