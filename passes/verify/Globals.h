// Places in global memory over all SMs of a launch: nothing lies outside, outputs are written and
// weights streamed exactly once.
#pragma once

#include "passes/verify/Faults.h"
#include "passes/verify/Local.h"
#include "passes/verify/Nest.h"
#include "passes/verify/Planes.h"

namespace megalith::verify {

/// Walks every access to global memory, but whole loops at once where their pieces join to one
/// rectangle.
class Globals {
public:
  /// `runs`: by SM.
  Globals(const Program &program, const Valuation &valuation, llvm::ArrayRef<const Summary *> runs,
          Faults &faults);

  /// Reports places outside, what is written or streamed twice, and stores that came too early.
  /// False, reported too, when there are too many places to look at.
  bool check();
  /// Then: reports outputs that are not written and weights that are not streamed everywhere.
  void checkEnds();

private:
  /// An access and the loops around it, outermost first.
  struct Site {
    int role;
    const Instr *instr;
    const Access *access;
    int64_t sms; ///< of its stage
    llvm::SmallVector<const Loop *, 4> loops;
  };

  void collect(int role);
  /// Whether it is enough that all its places lie inside.
  bool isBoundsOnly(const Site &site) const;
  bool visit(const Site &site, size_t level);
  std::optional<Rect> join(const Site &site, size_t level);
  Rect clipped(const Site &site, Rect rect) const;
  void touch(const Site &site, const Rect &rect);
  void checkUnwaited(int64_t sm);

  const Program &program;
  const Valuation &valuation;
  llvm::ArrayRef<const Summary *> runs;
  Faults &faults;
  std::vector<Site> sites;
  std::vector<Planes> touched; ///< by launch and global
  std::vector<bool> reached;   ///< likewise: whether any step touches it, be it nothing of it
  llvm::SmallVector<int64_t, 8> dims; ///< the SM and the indices of the loops that are walked
  int64_t places = 0;                 ///< walked so far
};

} // namespace megalith::verify
