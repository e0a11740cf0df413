//===- Replay.h - A run's log against role regions ----------------*- C++ -*-===//
//
// What the host platform's threads did (runtime/host/log.h), warp by warp, is held against what the
// role regions say: the same steps in the same order, the same edges and slots, and only the bytes
// that the steps declare. The lint sees instructions, this sees addresses.
//
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CODEGEN_LINT_REPLAY_H
#define MEGALITH_CODEGEN_LINT_REPLAY_H

#include "codegen/lint/Lint.h"

#include "mlir/IR/BuiltinOps.h"

namespace megalith::lint {

/// What a replay has looked at, so that an empty log is not taken for a good one.
struct Replayed {
  std::vector<Finding> findings; ///< at most one a warp, with the line of the log
  int64_t launches = 0, steps = 0, slots = 0, ranges = 0;
};

/// Replays every launch of the log on the kernel of that name; kernels without role regions
/// (`advance`) are passed over. A kernel that loops over launches has run those that the log says,
/// one of several ranks those of all ranks in one launch.
Replayed replay(mlir::ModuleOp module, llvm::StringRef log);

} // namespace megalith::lint

#endif // MEGALITH_CODEGEN_LINT_REPLAY_H
