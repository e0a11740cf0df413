//===- Workload.h - The dynamic facts of a simulated step --------*- C++ -*-===//
//
// What role regions take from the step descriptor and from routing: which attention tiles an SM
// has, how many pieces of keys and values each, and which experts are active with how many pairs.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_SIMULATE_WORKLOAD_H
#define MEGALITH_PASSES_SIMULATE_WORKLOAD_H

#include "ir/task/Task.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace megalith::simulate {

/// What a step decodes: a sequence of one row for each entry, with that many positions in its
/// pages. Rows choose experts by `seed`, each distinct ones, others in every layer. Of several
/// ranks one is played, whose peers do the same at the same times.
struct StepShape {
  std::vector<int64_t> contexts;
  uint64_t seed = 1;
  /// How much later words come from another rank, ns; what the costs say by default.
  std::optional<double> hopNs = std::nullopt;
  /// Different experts that the rows choose in each layer, as `bench` counts them: biases make them
  /// fewer than chance. By default each row draws for itself.
  std::optional<int64_t> activeExperts = std::nullopt;
};

/// Units of a tile of attention.
struct Units {
  int64_t first = 0, end = 0;
};

/// An attention tile of an SM: a split, or several that eight warps do side by side.
struct Tile {
  int64_t sequence = 0, kvHead = 0;
  int64_t splits = 1;
  int64_t splitUnits = 1; ///< of a split; the sequence's last may have fewer
  int64_t fullUnits = 0;  ///< of 16 positions, through the ring
  bool isNew = false;     ///< it has the step's new position
  bool hasOld = false;    ///< in a unit with older ones, which are in their page
  bool goesOn = false;    ///< its queries are those of the SM's tile before

  /// Pieces in which the full units pass through the ring, `each` units at most; a split begins a
  /// new one.
  int64_t pieces(int64_t each) const;
  /// What of them piece `i` has.
  Units unitsOf(int64_t i, int64_t each) const;
  /// The chunk of the pair of units that begins with `unit`, of `chunks` where a tile is one split;
  /// of several splits each has chunks of its own.
  int64_t chunkOf(int64_t unit, int64_t chunks) const;
};

/// An active expert, in the order of the routing table.
struct Entry {
  int64_t expert = 0, pairs = 0;
};

/// The values of one launch of one kernel.
struct Facts {
  std::vector<std::vector<Tile>> tiles; ///< by SM; empty where the kernel has no attention
  std::vector<int64_t> splits;          ///< tiles of each sequence and KV head, by sequence
  int64_t kvHeads = 1, qHeads = 1, mergeParts = 1, headDim = 0;
  int64_t pieceUnits = 1; ///< units of a ring piece
  int64_t unitBytes = 0;  ///< of 16 positions of a KV head, K and V
  std::vector<Entry> entries;

  /// Of the symbol; nothing if it is none of those known. `tile`: index among the SM's.
  std::optional<int64_t> symbol(llvm::StringRef name, int64_t sm, int64_t tile) const;
};

/// The facts of the `number`-th launch. The error says what of the shape does not fit the kernel.
llvm::Expected<Facts> factsOf(task::KernelOp kernel, const StepShape &shape, uint64_t number);

} // namespace megalith::simulate

#endif // MEGALITH_PASSES_SIMULATE_WORKLOAD_H
