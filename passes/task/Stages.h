//===- Stages.h - what passes ask of a stage --------------------------------===//
//
// The stage level is docs/kernel-contract.md section 7: semantic keys of `config`, places of the
// accesses, slices of strips. Nothing here changes IR.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_TASK_STAGES_H
#define MEGALITH_PASSES_TASK_STAGES_H

#include "ir/task/Task.h"

#include "mlir/IR/Builders.h"

namespace megalith::task {

/// A key of the stage's config; nothing, null or empty where it is missing or of another type.
std::optional<int64_t> configInt(StageOp stage, llvm::StringRef key);
std::optional<double> configFloat(StageOp stage, llvm::StringRef key);
llvm::StringRef configString(StageOp stage, llvm::StringRef key);
mlir::FlatSymbolRefAttr configSymbol(StageOp stage, llvm::StringRef key);

/// Adds or replaces a key.
void setConfig(StageOp stage, llvm::StringRef key, mlir::Attribute value);

/// Attributes that passes leave on stages, beside their declared ones.
inline constexpr llvm::StringLiteral kDepends = "depends"; ///< stages of this launch it waits for
inline constexpr llvm::StringLiteral kKept = "kept";       ///< stage whose slice stays in smem
inline constexpr llvm::StringLiteral kStream = "stream";   ///< what its producer streams, in order

/// Copies that its producer may have under way, as task-plan-streams planned, or nothing.
std::optional<int64_t> windowOf(StageOp stage);

/// The same of pieces that find room in the ring only when the stage's own products make it.
std::optional<int64_t> lateWindowOf(StageOp stage);

/// Every stage has the config keys and accesses of its kind; the error names the one missing.
llvm::LogicalResult checkStages(KernelOp kernel);

/// In how many parts of K a linear or expert_down stage has its activation rows in shared memory,
/// one after another (docs/kernel-contract.md section 14); 1: whole.
int64_t partsOf(StageOp stage);

/// Does the stage multiply streamed weights (linear, expert_up, expert_down)?
bool isGemv(StageOp stage);

/// The weights a gemv stage streams.
WeightsOp weightsOf(StageOp stage);

/// The read that brings whole activation rows: a linear stage's x, or null where the stage shares
/// the rows of another.
AccessAttr inputOf(StageOp stage);

/// Whether the stage leaves activation rows in shared memory that others may share.
bool bringsRows(StageOp stage);

/// Of how many pairs a linear stage's only activation row is the weighted sum, which it then makes
/// itself of their outputs and sums of squares, its first two reads; 0: it reads rows as they are.
int64_t pairsOf(StageOp stage);

/// The reads of a rows stage: the branch that joins the stream, or null, and the stream.
AccessAttr branchOf(StageOp stage);
AccessAttr streamOf(StageOp stage);

/// Where a rows stage whose rows are dealt out (`row_sms`) publishes the normed rows; null where it
/// leaves them in shared memory or nobody wants them.
AccessAttr normedOf(StageOp stage);

/// The slice of the residual that the epilogue adds, or null.
AccessAttr residualOf(StageOp stage);

/// Whether an expert_down stage publishes what it makes of each pair, or a rank's part of it,
/// instead of keeping it to add it itself.
bool publishesOutputs(StageOp stage);

/// Whether a linear stage has a rank's part of its outputs' sums, and adds all ranks' parts of its
/// SMs' slices.
bool addsParts(StageOp stage);

/// Whether an expert stage brings what it reads to NVFP4 before it multiplies.
bool quantizesInput(StageOp stage);

/// Whether an expert stage's tiles are dealt out over all SMs, a unit of them at a time: unit u of
/// the expert in place e of the step's list to SM (e * units + u) mod SMs. Such a stage has no
/// static tiles; what it reads and writes are whole matrices and values.
bool dealsTiles(StageOp stage);

/// How a gemv stage's strips fall to SMs: SM i has strips [i * unit, (i + 1) * unit), or, where
/// tiles are dealt out, some units.
struct Slice {
  int64_t unit;                                        ///< strips an SM, or of a unit
  int64_t strips;                                      ///< of the matrix
  int64_t blocks;                                      ///< of K
  int64_t tile;                                        ///< strips of a whole m-tile
  int64_t top() const { return std::min(unit, tile); } ///< most strips of an m-tile
};
Slice sliceOf(StageOp stage);

/// Blocks of K in a ring piece of a stage whose stream is planned: several where an m-tile is
/// narrow (task-plan-streams).
int64_t pieceBlocksOf(StageOp stage);

/// The same of the last m-tile of every SM's slice, where that is much narrower than the others and
/// so in pieces of more blocks; else 0.
int64_t lastPieceBlocksOf(StageOp stage);

/// Whether ring pieces of the stage are of all strips of a slice, more than eight: consumers
/// multiply its two m-tiles at once.
bool joinsTiles(StageOp stage);

/// Distinct rows of a value or exchange that an access covers at tile `t`, clipped to nothing.
struct Rectangle {
  int64_t row, rows, col, cols;
  bool operator==(const Rectangle &) const = default;
  bool overlaps(const Rectangle &other) const {
    return row < other.row + other.rows && other.row < row + rows && col < other.col + other.cols &&
           other.col < col + cols;
  }
};
Rectangle rectangleAt(AccessAttr access, int64_t tile);

/// SMs that take part: [0, result).
int64_t smsOf(StageOp stage);

/// Does launch order alone say what the stage writes (tiles known at compile time)?
bool hasStaticTiles(StageOp stage);

} // namespace megalith::task

#endif // MEGALITH_PASSES_TASK_STAGES_H
