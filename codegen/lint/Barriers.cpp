//===- Barriers.cpp - Each edge's mbarriers, and no others ----------------===//

#include "codegen/lint/Linter.h"

#include "llvm/Support/FormatVariadic.h"

#include <map>

using namespace mlir;
using namespace megalith::task;

namespace megalith::lint {

void Linter::checkInits() {
  std::map<int64_t, std::pair<EdgeOp, int64_t>> wantedAt; // offset -> edge, slot
  for (EdgeOp edge : kernel.edges())
    if (!edge.isGlobal() && edge.getOffset())
      for (int64_t slot = 0; slot < edge.getSlots(); ++slot)
        wantedAt[*edge.getOffset() + 8 * slot] = {edge, slot};
  for (const Instruction &instruction : entry->code) {
    if (!StringRef(instruction.opcode).starts_with("mbarrier.init"))
      continue;
    const std::string place =
        instruction.operands.size() == 2 ? entry->value(instruction.operands[0]) : "";
    int64_t offset = 0;
    StringRef rest = place;
    const bool isKnown =
        rest.consume_front("megalith_arena") &&
        (rest.empty() || (rest.consume_front("+") && !rest.getAsInteger(10, offset)));
    auto found = wantedAt.find(offset);
    if (!isKnown || found == wantedAt.end()) {
      note(instruction.line,
           "an mbarrier is initialised at " + place +
               ", where no edge has one; to mend: make_barriers<…> of the kernel's "
               "edges");
      continue;
    }
    auto [edge, slot] = found->second;
    const auto arrivals = entry->constant(instruction.operands[1]);
    if (arrivals != edge.getArrivals())
      note(instruction.line,
           llvm::formatv("@{0}, slot {1}: expected a barrier of {2} arrivals but got {3}; to "
                         "mend: MbarrierEdge of the edge's arrivals",
                         edge.getSymName(), slot, edge.getArrivals(),
                         arrivals ? std::to_string(*arrivals) : instruction.operands[1]));
    wantedAt.erase(found);
  }
  for (auto &[offset, missing] : wantedAt)
    note(0, llvm::formatv("@{0}, slot {1}: expected mbarrier.init at shared + {2} but got none; "
                          "to mend: name the edge in make_barriers<…>",
                          missing.first.getSymName(), missing.second, offset));
}

} // namespace megalith::lint
