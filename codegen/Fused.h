//===- Fused.h - Steps printed as one call -----------------------*- C++ -*-===//
#ifndef MEGALITH_CODEGEN_FUSED_H
#define MEGALITH_CODEGEN_FUSED_H

#include "ir/task/Task.h"

#include <string>

namespace megalith {

/// Steps that the device headers have one function for, which all stages call: where each stage had
/// instructions of its own for them, a layer's code would be larger than the caches next to an SM.
struct Fused {
  size_t steps = 0; ///< how many of the block's it stands for; 0: none
  std::string text; ///< the statement, without what its result is assigned to
  std::string result;
  bool records = false; ///< in kernels that record, what its wait takes
};

/// What the steps from `first` on are fused to:
///   wait, compute "sum_chunks<P>", release         take_part<Full, Free, P>(cta)
///   wait, compute "sum_scaled<P>", release         take_scaled<Full, Free, P>(cta, factors)
///   of one row, these (or "sum_slice<P>") and compute "epilogue_words<L, E>":
///       forward_words<Full, Free, P, L, E>(cta, tile, …, factors)
///   likewise "epilogue_logits", "epilogue_glu" and "epilogue_outputs"
Fused fusedAt(mlir::Block::iterator first, mlir::Block::iterator end);

/// The same of a whole loop over all pieces of an m-tile, n of them, or "" if the loop is none:
///   acquire, pace, copy "copy_piece<Full, R, L>":
///       stream_pieces<Free, Full, window, R, L>(cta, tile, n, …), or, of pieces first + index,
///       stream_pieces_from<Free, Full, window, R, L>(cta, tile, first, n)
///   wait, compute "gemv_blocks<L, R>", release:
///       multiply_pieces<Full, Free, R, L>(cta, sum, tile, n, column)
std::string fusedLoop(task::ForOp loop);

} // namespace megalith

#endif // MEGALITH_CODEGEN_FUSED_H
