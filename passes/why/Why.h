//===- Why.h - why a pass decided as it did ----------------------*- C++ -*-===//
//
// A pass that decides writes the reason down where it decides, from the numbers it decided by: in
// the attribute `why` of the op that carries the decision. It is printed with the IR after each
// pass, kept in an artifact's kernels.mlir and told by `megalith explain`. No pass and no emitter
// reads it.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PASSES_WHY_WHY_H
#define MEGALITH_PASSES_WHY_WHY_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace megalith {

inline constexpr llvm::StringLiteral kWhy = "why";

/// One decision. Texts have no newline; bytes and counts are numbers, units are written out.
struct Reason {
  std::string by;      ///< the pass: "task-choose-tiles"
  std::string what;    ///< was decided: "slice"
  std::string chose;   ///< with its unit: "20 strips on 128 of 132 SMs"
  std::string because; ///< what it was decided by

  bool operator==(const Reason &) const = default;
};

/// Adds the reason to `op`. One that is there for the same matter goes: a pass may run again, and a
/// later pass may decide otherwise.
void recordReason(mlir::Operation *op, const Reason &reason);

/// In the order in which they were recorded.
std::vector<Reason> reasonsOf(mlir::Operation *op);

/// Adds to `to` those of `from` that it lacks: of two ops that became one.
void mergeReasons(mlir::Operation *to, mlir::Operation *from);

/// Takes the reasons off `op` and all ops in it.
void dropReasons(mlir::Operation *op);

} // namespace megalith

#endif // MEGALITH_PASSES_WHY_WHY_H
