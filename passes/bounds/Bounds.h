//===- Bounds.h - how far what is known at run time only can go -------------===//
//
// The ranges of a kernel's dynamic trip counts and the sizes of its index functions, as they follow
// from the shapes of its stages, and what shared memory its target has. The lowering declares them,
// the prover holds the declarations to them: it shares nothing else with what made the kernel.
// tests/codegen/device/TilesTest.cpp compares the formulas of attention with
// codegen/device/tiles.cuh.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_BOUNDS_BOUNDS_H
#define MEGALITH_PASSES_BOUNDS_BOUNDS_H

#include "ir/task/Task.h"

#include <optional>
#include <string>
#include <vector>

namespace megalith::task {

/// Positions that a sequence can have, where the config does not say (docs/kernel-contract.md
/// section 6, as the two below).
inline constexpr int64_t kMaxPositions = 131072;
/// Most splits of a sequence.
inline constexpr int64_t kMaxSplits = 32;
/// Positions of a unit.
inline constexpr int64_t kUnitPositions = 16;

/// The shape of attention, as far as tiles and their pieces depend on it.
struct AttentionShape {
  int64_t rows;                      ///< of the bucket
  int64_t sms;                       ///< of the kernel
  int64_t kvHeads;                   ///< of a rank
  int64_t positions = kMaxPositions; ///< of a sequence, new rows included
  int64_t window = 0;                ///< keys that a row sees; 0: all
  int64_t pieceUnits = 1;            ///< units of a piece

  /// Most attention tiles of an SM.
  int64_t tiles() const;
  /// Most pieces of a tile that come through the ring.
  int64_t pieces() const;
  /// All tiles of a step of `rows` sequences, each of as many splits as there can be.
  int64_t allTiles() const { return rows * kMaxSplits * kvHeads; }
};

/// That of an attention stage whose config is complete (passes/task/Stages.h).
AttentionShape shapeOf(StageOp attention);

/// The KV pages that an attention stage reads, or null.
BufferOp pagesOf(StageOp attention);
/// Bytes of 16 positions of one KV head: K, then V.
int64_t unitBytesOf(StageOp attention);
/// Units of 16 positions in a piece of KV that passes through the ring
/// (codegen/device/attention_shape.cuh).
int64_t pieceUnitsOf(StageOp attention);

/// Most active experts of a step, given the rows bucket.
int64_t maxActive(KernelOp kernel, int64_t experts, int64_t topK);

/// A `task.symbol`: 0 to `max`.
struct SymbolBound {
  std::string name;
  int64_t max;
  std::string expr;
  bool perSm = false;
  std::string after = {}; ///< edge, or ""
};

/// A `task.table`.
struct TableBound {
  std::string name;
  int64_t size;
  Axiom axiom;
  std::string expr;
};

/// What the loops and accesses of a stage are bounded by.
struct Bounds {
  std::vector<SymbolBound> symbols;
  std::vector<TableBound> tables;
};

/// That of a stage; empty where its config is not complete, or where it has none.
Bounds boundsOf(StageOp stage);

/// Dynamic shared memory that a CTA of the target may ask for; nothing: not known.
std::optional<int64_t> sharedMemoryOf(llvm::StringRef target);
/// Of an SM's shared memory the system takes this for each CTA.
inline constexpr int64_t kReservedBytes = 1024;
/// Dynamic shared memory that each of `residents` CTAs of an SM may have, all of which are there at
/// once; nothing: not known.
std::optional<int64_t> sharedMemoryOf(llvm::StringRef target, int64_t residents);

} // namespace megalith::task

#endif // MEGALITH_PASSES_BOUNDS_BOUNDS_H
