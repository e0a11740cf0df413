// Several ranks: a rank's launch n + 1 stores to the sets that every other rank emptied in its
// launch n, and nothing of the machine orders the two. README.md says what does.
#include "passes/verify/Local.h"
#include "passes/verify/Words.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

// A number is a release of what the role knows: by then it must know that all sets of ranks are
// emptied.
void Local::checkArmed(const Thread &thread, const Instr &instr) {
  const bool tells = llvm::any_of(program.accessesOf(instr), [&](const Access &access) {
    return access.isWrite && !access.isShared && program.globals[access.decl].isNumbers;
  });
  if (!tells)
    return;
  for (auto [global, by] : llvm::zip(program.globals, launches[instr.launch].rearmedBy)) {
    if (!global.isOfRanks || global.isNumbers ||
        (by.first >= 0 && by.second <= thread.clock[by.first]))
      continue;
    faults.at(instr.op, sm) << "tells other ranks that they may store to the next launch's sets, "
                               "but the "
                            << nameOfRole(thread.role)
                            << " does not know that this SM has re-armed @"
                            << Program::nameOf(global.op)
                            << "; expected its task.rearm, or an edge from it, before";
    return;
  }
}

// A rank's next launch begins to store when its own launch is over: so that must include having
// heard of every SM of every rank.
void Words::checkHeard(const Exchange &exchange, const Global &global) {
  for (int64_t rank = 0; rank < program.ranks; ++rank) {
    const Rect all{0, global.rows, 0, global.cols};
    if (rank < static_cast<int64_t>(exchange.heard.size()) && exchange.heard[rank].contains(all))
      continue;
    faults.at(global.op, 0) << "is not heard of whole on rank " << rank
                            << ": its next launch could store to sets that another rank has not "
                               "emptied yet; expected its SMs to poll every number";
    return;
  }
}
