// A kernel's role regions as flat code: names resolved, maps ready to evaluate. What a proof runs.
#pragma once

#include "passes/verify/Affine.h"
#include "passes/verify/Rectangles.h"
#include "passes/verify/Valuation.h"

#include "ir/task/Task.h"

#include <array>
#include <vector>

namespace megalith::verify {

inline constexpr int kRoles = 4;

/// Most steps of one role on one SM: a hundred times those of a real model's layer. Each iteration
/// of a loop with steps in it counts as one too.
inline constexpr int64_t kMaxSteps = 1 << 20;
/// Most steps of all roles over the SMs that differ: seconds of a proof.
inline constexpr int64_t kMaxStepsOfAll = 1 << 24;

/// A shared-memory buffer.
struct Shared {
  task::BufferOp op;
  int64_t rows, cols, slots;
  int guard = -1;                        ///< edge
  llvm::SmallVector<int, 2> overlapping; ///< others planned over some of its bytes
};

struct Edge {
  task::EdgeOp op;
  int from;
  llvm::SmallVector<int, 3> to; ///< roles
  int64_t slots;
  bool isWords; ///< of an exchange: no mbarrier
  bool waits(int role) const { return llvm::is_contained(to, role); }
};

struct Ring {
  task::RingOp op;
  int full; ///< edge
  int64_t slots;
};

/// Something in global memory: a buffer, an exchange or a weight bank.
struct Global {
  enum Kind { Buffer, Exchange, Weights } kind;
  mlir::Operation *op;
  int64_t rows, cols;
  task::Mutability mutability = task::Mutability::Immutable; ///< of a buffer
  bool isOfRanks = false; ///< an exchange: a word is stored to the replicas of all ranks
  bool isNumbers = false; ///< an exchange of ranks: how far each SM of each has come
  int64_t share = 0;      ///< columns of a rank
};

/// A rectangle that an op touches, as a function of (SM, loop indices).
struct Access {
  task::AccessAttr attr;
  bool isWrite;
  bool isShared; ///< of a shared-memory buffer; else global
  int decl;      ///< index in Program::shared or ::globals
  int64_t height;
  Affine row, col;
  llvm::SmallVector<Affine, 2> widths;
  std::optional<Affine> argument; ///< of its table
  int table = -1;                 ///< index among the kernel's tables
  task::Axiom axiom = task::Axiom::Uniform;
  /// Weights: what this stage reads of them at tile = SM, which pieces are clipped to; indices in
  /// Program::accesses.
  llvm::SmallVector<int, 1> slices;

  Rect at(const int64_t *dims) const {
    return {row.eval(dims), height, col.eval(dims), evalLeast(widths, dims)};
  }
  /// The same on a rank, whose share of an exchange the access may mean.
  Rect at(const int64_t *dims, int64_t rank, int64_t share) const {
    Rect rect = at(dims);
    if (attr.getOwn())
      rect.col += rank * share;
    return rect;
  }
  bool isCurrent() const { return attr.getSet() == task::Set::Current; }
  /// Whether the place or size may change with a dimension.
  bool uses(unsigned dim) const;
};

/// A loop of a role region.
struct Loop {
  task::ForOp op;
  llvm::SmallVector<Affine, 2> trips; ///< the least of them
  int symbol = -1;                    ///< or its value
  int after = -1;                     ///< edge after which the symbol is known
  unsigned dim;                       ///< of its index
  int launch = 0;                     ///< place in Program::launches
};

struct Instr {
  enum Kind : uint8_t {
    Stage, ///< leaves out up to `end` on SMs from `sms` on
    LoopBegin,
    LoopEnd,
    Wait,
    Peek,
    Acquire,
    Signal,
    Release,
    Copy,
    Pace,
    Refill,
    Poll,
    Compute,
    Rearm,
    LaunchWait,
    LaunchDone,
    LaunchDependents,
  };
  Kind kind;
  /// What happens up to `end` (a stage or loop) or here depends on the SM or a symbol.
  bool varies = false;
  bool polls = false;     ///< reads words of this launch, or of the one before in the same kernel
  bool isStale = false;   ///< reads words that the launch before a looping kernel's first published
  bool receives = false;  ///< reads words that the end of an earlier launch handed on
  bool publishes = false; ///< writes words
  bool stores = false;    ///< writes a global buffer
  std::optional<task::Meeting> meets; ///< the role's warps, before it writes
  int edge = -1, ring = -1, loop = -1;
  int joins = -1;    ///< of a poll by bulk copies: the edge whose next signal hands them on
  int exchange = -1; ///< of a re-arming: index in Program::globals
  int refilled = -1; ///< index in Program::shared
  int launch = 0;    ///< place in Program::launches
  llvm::SmallVector<int, 2> numbers; ///< edges whose slot numbers a call is given (Calls.h)
  unsigned depth = 1;                ///< dimensions here: the SM and the enclosing loops
  int64_t sms = 0;                   ///< of a stage
  uint32_t end = 0; ///< of a stage or loop: the place after it; of LoopEnd: its begin
  uint32_t accesses = 0, count = 0; ///< [accesses, accesses + count) of Program::accesses
  mlir::Operation *op = nullptr;
};

/// The whole kernel. The ops outlive it.
class Program {
public:
  explicit Program(task::KernelOp kernel);

  task::KernelOp kernel;
  int64_t sms, ranks; ///< SMs of a rank
  std::vector<Edge> edges;
  std::vector<Ring> rings;
  std::vector<Shared> shared;
  std::vector<Global> globals;
  std::vector<Valuation::Symbol> symbols;
  std::vector<Loop> loops;
  std::vector<Access> accesses;
  bool isLooping; ///< over the launches of a step
  /// The launches of a looping kernel that stand for all of them, by number: of every row of
  /// launches with the same stages the first three (README.md says why that suffices). Else one.
  std::vector<int64_t> launches;
  std::array<std::vector<Instr>, kRoles> code; ///< launch after launch
  /// By launch: the place after its last instruction.
  std::array<std::vector<uint32_t>, kRoles> launchEnds;
  unsigned maxDepth = 1; ///< dimensions of the innermost loop

  int64_t tripsOf(const Loop &loop, const Valuation &valuation, const int64_t *dims) const {
    if (loop.symbol < 0)
      return evalLeast(loop.trips, dims);
    return valuation.of(symbols[loop.symbol], llvm::ArrayRef(dims, loop.dim), loop.launch);
  }
  llvm::ArrayRef<Access> accessesOf(const Instr &instr) const {
    return llvm::ArrayRef(accesses).slice(instr.accesses, instr.count);
  }
  /// Whether the words that the access of a poll reads were published in this kernel, and the
  /// launch that did.
  bool isOwn(const Access &access, const Instr &poll) const {
    return access.isCurrent() || (isLooping && poll.launch > 0);
  }
  int publisherOf(const Access &access, const Instr &poll) const {
    return poll.launch - !access.isCurrent();
  }
  /// Index among all launches' states of global things.
  size_t stateOf(int launch, int global) const { return launch * globals.size() + global; }
  /// " in launch 3" of a looping kernel, for messages.
  std::string inLaunch(int launch) const {
    return isLooping ? " in launch " + std::to_string(launches[launch]) : "";
  }
  /// A step of a launch that reads, or writes, something in global memory, for a message; or null.
  mlir::Operation *userOf(int global, bool isWrite, int launch) const;
  /// The name of a declaration.
  static llvm::StringRef nameOf(mlir::Operation *decl);

private:
  using Names = llvm::DenseMap<mlir::StringAttr, std::pair<mlir::Operation *, int>>;
  void declare();
  void addStage(task::StageOp stage);
  void addBlock(mlir::Block &block, int role, unsigned depth, mlir::Operation *stage);
  void addLoop(task::ForOp op, int role, unsigned depth, mlir::Operation *stage);
  void addStep(mlir::Operation &op, int role, unsigned depth, mlir::Operation *stage);
  int addAccess(task::AccessAttr attr, bool isWrite, unsigned depth);
  /// Index of the declaration in its kind's list, -1 without a name.
  int indexOf(mlir::FlatSymbolRefAttr name) const;

  void chooseLaunches();

  int launch = 0; ///< while it is built
  Names names;    ///< likewise
  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Attribute>, int> slices;
};

} // namespace megalith::verify
