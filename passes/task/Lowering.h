//===- Lowering.h - one kernel on its way to role regions ------------------===//
//
// LowerToRoles.cpp drives; each stage kind writes its regions in Lower<Kind>.cpp. All C++ text that
// ends up in emitted source (callees, arguments, types) is in those files, in the form that
// codegen/device/README.md and attention.md give.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_TASK_LOWERING_H
#define MEGALITH_PASSES_TASK_LOWERING_H

#include "passes/task/Stages.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <array>

namespace megalith::task {

/// The words edge of an access, as a C++ type: of this launch's set or the previous one's.
std::string wordsEdge(AccessAttr access);
/// A float literal.
std::string floatText(double value);
/// The symbol of a config key, or -1: a buffer slot in a type's arguments.
std::string slotText(StageOp stage, llvm::StringRef key);
/// `buffer` as the stage's activation rows: all k columns of it.
AccessAttr rowsOf(StageOp stage, AccessAttr buffer);
/// The C++ type that a stage's weights derive from: their form, sizes and slices (gemv.cuh,
/// nvfp4.cuh).
std::string linearBase(StageOp stage);
/// Arguments of Rows<>, the stage's activation rows in shared memory: of one part of K.
std::string inputType(StageOp stage);

/// On a loop: the compiler is to unroll it.
inline constexpr llvm::StringLiteral kUnrolled = "unrolled";
/// On a loop over experts: units of each, for the loop over those of them that an SM has.
inline constexpr llvm::StringLiteral kDealt = "dealt";

/// Names of what a lane holds of one column tile, or of the two that more than 8 rows need
/// (codegen/device/gemv.cuh).
struct Operands {
  explicit Operands(KernelOp kernel) : isPair(kernel.getRows() > 8) {}

  /// Sums of finished tiles.
  llvm::StringRef sum() const { return isPair ? "Fragments" : "Fragment"; }
  /// What a warp adds the products of its chunk to.
  llvm::StringRef chunkSum() const { return isPair ? "ChunkSums" : "ChunkSum"; }
  llvm::StringRef best() const { return isPair ? "TwoBestRanks" : "BestRanks"; }
  llvm::StringRef columnLocal() const { return isPair ? "const Columns" : "const Column"; }
  /// `<which>_column<arguments>`, or its form for two.
  std::string column(llvm::StringRef which, const llvm::Twine &arguments) const {
    return (which + (isPair ? "_columns<" : "_column<") + arguments + ">").str();
  }

  bool isPair;
};

/// Writes steps at the end of one role region; creates the region with its first step.
class Steps {
public:
  Steps(StageOp stage, Role role);

  void wait(llvm::StringRef edge, llvm::StringRef result = {});
  void acquire(llvm::StringRef edge, llvm::StringRef result = {});
  void peek(llvm::StringRef edge);
  void signal(llvm::StringRef edge);
  void release(llvm::StringRef edge);
  void local(llvm::StringRef name, llvm::StringRef type, llvm::StringRef init = {});
  void launchWait();
  /// At most `window` copies into the ring under way, the next one included, and no more than it
  /// has slots; nothing without a plan.
  void pace(RingOp ring, std::optional<int64_t> window);
  void refill(llvm::StringRef buffer);

  using Args = llvm::ArrayRef<llvm::StringRef>;
  using Accesses = llvm::ArrayRef<AccessAttr>;
  void compute(const llvm::Twine &callee, Args args, Accesses reads, Accesses writes,
               llvm::StringRef result = {}, bool readsRing = false);
  /// The same, of a device function whose warps meet.
  void computeMet(const llvm::Twine &callee, Args args, Accesses reads, Accesses writes,
                  Meeting when = Meeting::Always);
  /// No `writes`: the words go to registers. `joins`: bulk copies, which that edge's next signal
  /// hands on. `also`: a second edge, whose words the same looks wait for.
  void poll(const llvm::Twine &callee, Args args, llvm::StringRef edge, Accesses reads,
            Accesses writes, llvm::StringRef joins = "", llvm::StringRef also = "");
  void copy(const llvm::Twine &callee, Args args, AccessAttr source);

  /// A loop of `trips` (least of the expressions), or of a symbol; the steps of `body` go inside.
  /// `iterate` is the class that lists tiles, if the loop goes over them.
  void loop(llvm::StringRef index, llvm::ArrayRef<mlir::AffineExpr> trips,
            llvm::function_ref<void()> body, llvm::StringRef iterate = {});
  void loop(llvm::StringRef index, llvm::StringRef symbol, llvm::function_ref<void()> body,
            llvm::StringRef iterate = {});
  /// A loop that the compiler unrolls, so that its index may choose among registers; the first of
  /// `trips` is constant.
  void unrolled(llvm::StringRef index, llvm::ArrayRef<mlir::AffineExpr> trips,
                llvm::function_ref<void()> body);

  /// A loop over the `symbol` experts of a step and one over the `trips` of `units` units that this
  /// SM has of each, which the source walks as one (DealtUnit).
  void dealt(llvm::StringRef index, llvm::StringRef symbol, llvm::StringRef unit,
             mlir::AffineExpr trips, int64_t units, llvm::function_ref<void()> body);

  /// Number of loops around the next step: its innermost index is d(depth()).
  unsigned depth() const { return loops; }

  mlir::OpBuilder &builder() { return ops; }

private:
  void loop(llvm::StringRef index, TripsAttr trips, llvm::function_ref<void()> body,
            llvm::StringRef iterate);
  mlir::FlatSymbolRefAttr ref(llvm::StringRef name);
  mlir::StringAttr optional(llvm::StringRef text);
  mlir::ArrayAttr strings(Args args);
  mlir::ArrayAttr array(Accesses accesses);

  mlir::OpBuilder ops;
  mlir::Location loc;
  unsigned loops = 0;
};

/// State of the lowering of one kernel.
class KernelLowering {
public:
  explicit KernelLowering(KernelOp kernel) : kernel(kernel), context(kernel.getContext()) {}

  llvm::LogicalResult run();

private:
  // LowerToRoles.cpp
  llvm::LogicalResult checkPlanned();
  void widen();
  llvm::LogicalResult placePrologues();
  bool pollsCurrent(StageOp stage);
  StageOp lastSharer(StageOp loader);
  StageOp loaderOf(StageOp stage);
  StageOp topK();
  AccessAttr pairWeights();
  bool loadsBehind(StageOp stage, StageOp router);

  // LowerExperts.cpp
  llvm::LogicalResult lowerExpertUp(StageOp stage);
  llvm::LogicalResult lowerExpertDown(StageOp stage);

  // LowerGemv.cpp
  llvm::LogicalResult lowerLinear(StageOp stage);
  void loadRows(StageOp stage) { loadRows(stage, stage); }
  void loadRows(StageOp stage, StageOp at);
  void pollRows(Steps &steps, AccessAttr source, llvm::StringRef rows, llvm::StringRef full,
                AccessAttr target);
  void takeRows(StageOp stage, Steps &consumer);
  void takePairs(StageOp stage, Steps &consumer);
  struct TileRun;
  void stream(StageOp stage, Steps &steps, bool isExpert);
  void streamPieces(StageOp stage, Steps &steps, bool isExpert, const TileRun &run, int64_t first,
                    int64_t count, std::optional<int64_t> window);
  void multiply(StageOp stage, Steps &steps, AccessAttr rows, int64_t held = 0);
  void multiplyJoined(StageOp stage, Steps &steps, AccessAttr rows);
  /// M-tiles of a slice from number `first` on, all of `strips` strips at most, in pieces of
  /// `blocks` blocks; `tile` and `config`: what device functions call one, and their template
  /// argument.
  struct TileRun {
    int64_t first;
    mlir::SmallVector<mlir::AffineExpr> trips;
    std::string tile;
    int64_t strips, blocks;
    std::string config;
  };
  mlir::SmallVector<TileRun> tileRuns(StageOp stage);
  void multiplyPiece(StageOp stage, Steps &steps, llvm::StringRef sum, llvm::StringRef tile,
                     AccessAttr rows, const TileRun &run, int64_t first = 0);
  void finishTiles(StageOp stage, Steps &steps, llvm::function_ref<void()> epilogue);
  void fetchResidual(StageOp stage, Steps &steps);
  void releaseRows(StageOp stage, Steps &steps);
  void forExperts(StageOp stage, Steps &steps, llvm::function_ref<void()> body);
  mlir::AffineExpr firstUnit(StageOp stage);
  mlir::AffineExpr dealtUnits(StageOp stage);
  mlir::AffineExpr unitOf(StageOp stage);
  mlir::AffineExpr firstStrip(StageOp stage, unsigned loop);
  llvm::StringRef tileText(StageOp stage);
  llvm::LogicalResult publishTile(StageOp stage, Steps &steps);
  bool choosesTokens(StageOp stage);
  llvm::LogicalResult storeCandidates(StageOp stage, Steps &steps);
  mlir::SmallVector<mlir::AffineExpr> tileTrips(StageOp stage);
  void addSliceParts(StageOp stage, Steps &epilogue);

  // LowerHeld.cpp
  int64_t heldPieces(StageOp stage);
  void holdPieces(StageOp stage, Steps &consumer);
  void multiplyHeld(StageOp stage, Steps &consumer, AccessAttr rows);

  // LowerParts.cpp
  struct TileGroup;
  void forGroups(StageOp stage, Steps &steps, llvm::function_ref<void(const TileGroup &)> body);
  void streamParts(StageOp stage, Steps &producer, bool isExpert);
  void multiplyGroup(StageOp stage, Steps &consumer, const TileGroup &group, AccessAttr rows,
                     llvm::function_ref<void()> take, llvm::function_ref<void()> release);
  void lowerExpertParts(StageOp stage, Steps &poller, Steps &consumer);
  llvm::LogicalResult multiplyParts(StageOp stage, Steps &consumer);
  AccessAttr tileWrite(StageOp stage, unsigned loop, int64_t perStrip, int64_t outputs);

  // LowerAttention.cpp
  llvm::LogicalResult lowerAttention(StageOp stage);
  llvm::LogicalResult lowerMerge(StageOp stage);
  void declareAttention(StageOp stage);
  llvm::LogicalResult declareMerge(StageOp stage);

  // LowerRows.cpp
  llvm::LogicalResult lowerEmbed(StageOp stage);
  llvm::LogicalResult lowerTopK(StageOp stage);

  // LowerStream.cpp
  llvm::LogicalResult lowerRows(StageOp stage);
  void lowerDealtRows(StageOp stage);
  /// Polls of row `row` of a `rows` stage, in C++ `rowText`, to registers `stream` and `branch`.
  void pollRow(StageOp stage, Steps &consumer, mlir::AffineExpr row, llvm::StringRef rowText);
  /// What the norm of the updated row reads: its gains, where it has any.
  mlir::SmallVector<AccessAttr> gainsOf(StageOp stage);
  llvm::LogicalResult lowerCombine(StageOp stage);
  void publishOutputs(StageOp stage, Steps &epilogue);

  // LowerRows.cpp
  void lowerLaunchEnd(StageOp stage);

  // Order rules (docs/kernel-contract.md section 2), LowerToRoles.cpp
  /// Before the role's first store or in-launch poll on any SM of the stage.
  void requireLaunchWait(StageOp stage, Role role, Steps &steps);
  /// The poller's launch_wait, re-arming and launch_dependents, the last not in a looping
  /// kernel.
  void prologue(Steps &steps);
  // LowerRanks.cpp
  /// After re-arming: tells all ranks so.
  void tellArmed(Steps &steps);
  /// The end of a launch of several ranks.
  void lowerRanksEnd(StageOp stage);
  /// Do later buffers share the bytes of attention's?
  bool isAliased();

  // Expressions and accesses
  mlir::AffineExpr d(unsigned dim) { return mlir::getAffineDimExpr(dim, context); }
  mlir::AffineExpr c(int64_t value) { return mlir::getAffineConstantExpr(value, context); }
  AccessAttr rectangle(llvm::StringRef buffer, llvm::ArrayRef<mlir::AffineExpr> at, int64_t rows,
                       llvm::ArrayRef<mlir::AffineExpr> cols, llvm::StringRef table = {},
                       Set set = Set::Current);
  /// All of a shared or global buffer.
  AccessAttr whole(llvm::StringRef buffer);
  ExchangeOp exchange(llvm::StringRef name);
  RingOp ring();
  mlir::FlatSymbolRefAttr ref(llvm::StringRef name) {
    return mlir::FlatSymbolRefAttr::get(context, name);
  }
  void set(StageOp stage, llvm::StringRef key, const llvm::Twine &text);
  void setSymbol(StageOp stage, llvm::StringRef key, llvm::StringRef symbol);
  llvm::LogicalResult declareBounds(StageOp stage);

  KernelOp kernel;
  mlir::MLIRContext *context;
  /// Stages whose poller ends with the prologue, or (true) begins with it: one, and in a looping
  /// kernel one of every launch.
  llvm::MapVector<StageOp, bool> prologues;
  std::array<int64_t, 4> launchWaited{}; ///< by role: SMs [0, n) have launch-waited
};

} // namespace megalith::task

#endif // MEGALITH_PASSES_TASK_LOWERING_H
