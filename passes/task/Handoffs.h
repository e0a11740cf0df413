//===- Handoffs.h - shared memory that roles of one SM hand each other ------===//
//
// Which buffers a kernel's stages need in shared memory, their shapes, and the edges that hand them
// from role to role. One list serves task-select-protocol (which declares the edges),
// task-plan-memory (the buffers) and task-lower-to-roles (which uses both by name).
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_TASK_HANDOFFS_H
#define MEGALITH_PASSES_TASK_HANDOFFS_H

#include "ir/task/Task.h"
#include "passes/bounds/Bounds.h"

#include <string>
#include <vector>

namespace megalith::task {

/// When a buffer is in use. Attention and what follows it share bytes if memory is short.
enum class Phase { Attention, Dense, Both };

struct Handoff {
  std::string name;
  int64_t rows, cols; ///< elements of one slot
  mlir::Type element;
  int64_t rowBytes;     ///< stride
  int64_t slots;        ///< wanted
  int64_t minSlots = 1; ///< still works
  std::string type;     ///< in emitted source: `type` of task.buffer
  Phase phase = Phase::Both;
  std::string full, free; ///< edges; empty: the buffer belongs to one role, or is filled once
  Role from = Role::Poller;
  std::vector<Role> to;

  int64_t slotBytes() const { return rows * rowBytes; }
};

/// Names that the passes agree on.
namespace names {
inline constexpr llvm::StringLiteral kRing = "ring", kFull = "w_full", kFree = "w_free";
inline constexpr llvm::StringLiteral kInput = "xs", kPart = "part", kQkvIn = "qkv_in",
                                     kQuery = "q_rows", kTail = "tail", kApart = "apart",
                                     kMparts = "mparts", kLogits = "logits_rows",
                                     kRouting = "routing", kAct = "act_rows", kDown = "down_rows",
                                     kRowSums = "row_sums", kScales = "pair_scales",
                                     kWeights = "pair_weights";
/// Edges that order attention's last use of bytes before their first use as something else.
inline constexpr llvm::StringLiteral kAttentionDone = "attention_done", kMergeDone = "merge_done";
/// Edge that orders the last use of the rows' bytes before experts' activations come there.
inline constexpr llvm::StringLiteral kRowsOver = "rows_over";
/// Edges of a looping kernel: all SMs are over with the launch before; this SM's poller knows it;
/// a role of this SM is over with a launch; the bytes of the dense phase may become attention's.
inline constexpr llvm::StringLiteral kComplete = "complete", kLaunched = "launched",
                                     kProducerOver = "producer_over", kPollerOver = "poller_over",
                                     kConsumerOver = "consumer_over", kDenseDone = "dense_done";
/// Exchange of ranks: this SM has emptied its share of what the next launch stores.
inline constexpr llvm::StringLiteral kArmed = "armed";
} // namespace names

/// Every buffer of the kernel, in the order in which they are laid out.
std::vector<Handoff> handoffsOf(KernelOp kernel);

/// Name of the buffer in which the epilogue of `stage` (a residual linear or an expert_down that
/// keeps no other's slice) has its slice of the residual.
std::string keptName(StageOp stage);

/// Whether the poller routes, and not the consumers: it then is who polls the logits.
bool pollerRoutes(KernelOp kernel);

/// Who reads the weights of pairs, to add these up.
Role weightReader(KernelOp kernel);

/// Whether attention and merge are the consumers' alone (a single row): their warps poll what they
/// need, and nobody hands it on.
bool consumersAttend(KernelOp kernel);

/// Whether activation rows and logits reach the consumers through the poller, as earlier launches
/// wrote them; else the consumers poll them themselves.
bool rowsComeByLaunch(KernelOp kernel);

/// Merge tiles of one query head, of an attention or merge stage: `merge_parts` of its config,
/// else 1.
int64_t mergePartsOf(StageOp stage);

/// Channels of a row that an SM adds in a combine stage, whole sectors; the last has what is left.
int64_t combineShare(StageOp combine);

/// Query vectors of an attention tile.
int64_t vectorsOf(StageOp attention);

} // namespace megalith::task

#endif // MEGALITH_PASSES_TASK_HANDOFFS_H
