//===- Flow.cpp - What is known where, over the control flow --------------===//

#include "codegen/lint/Linter.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith::lint {

Linter::State Linter::after(State state, int place) {
  const Instruction &instruction = entry->code[place];
  const StringRef opcode = instruction.opcode;
  if (instruction.kind == Instruction::Begin) {
    state.open = ruleOf[place];
    state.must = state.may = 0;
    state.expected = -1;
    state.hasBegun = true;
  } else if (instruction.kind == Instruction::End) {
    state.open = -1;
  } else if (instruction.kind == Instruction::Call) {
    if (state.open >= 0) {
      const Summary &called = summaries->of(instruction.callee);
      for (const std::string &strong : called.strong)
        if (fitOf(rules[state.open], strong) == Fit::Required) {
          state.may |= Required;
          if (llvm::is_contained(called.always, strong))
            state.must |= Required;
        }
    }
  } else if (opcode.starts_with("bar.warp.sync")) {
    if (!instruction.isConditional)
      state.must |= Met;
  } else if (opcode == "bar.sync") {
    if (instruction.operands == std::vector<std::string>{"0"})
      state.isReady = true;
  } else if (opcode == "griddepcontrol.wait") {
    if (!instruction.isConditional)
      state.hasWaited = true;
    if (state.open < 0)
      state.hasBegun = true;
  }
  if (opcode.starts_with("mbarrier.init"))
    state.hasInit = true;
  if (opcode.starts_with("fence.mbarrier_init"))
    state.hasFence = true;
  if (state.open >= 0 && isStrong(opcode)) {
    const Fit fit = fitOf(rules[state.open], opcode);
    uint8_t facts = fit == Fit::Required ? Required : 0;
    if (opcode.contains("expect_tx")) {
      facts |= Expected;
      state.expected = place;
    }
    if (opcode.starts_with("cp.async.bulk"))
      facts |= Copied;
    state.may |= facts;
    if (!instruction.isConditional)
      state.must |= facts;
  }
  return state;
}

void Linter::flow() {
  regions = kernel ? std::make_unique<Regions>(kernel) : nullptr;
  states.assign(entry->code.size() + 1, State());
  states[0].isReached = true;
  std::vector<int> work = {0};
  while (!work.empty()) {
    const int place = work.back();
    work.pop_back();
    if (place == int(entry->code.size()))
      continue;
    const State out = after(states[place], place);
    for (int next : entry->next(place)) {
      State &there = states[next];
      State joined = out;
      if (there.isReached) {
        if (there.open != out.open)
          note(entry->code[place].line,
               llvm::formatv("here {0}, but other ways to line {1} come {2}; to mend: let each "
                             "mark and its end be passed together",
                             openText(out.open), lineAt(next), openText(there.open)));
        joined.open = there.open;
        joined.must &= there.must;
        joined.may |= there.may;
        joined.expected = out.expected == there.expected ? out.expected : -1;
        joined.isReady &= there.isReady;
        joined.hasWaited &= there.hasWaited;
        joined.hasBegun |= there.hasBegun;
        joined.hasInit |= there.hasInit;
        joined.hasFence |= there.hasFence;
      }
      joined.isReached = true;
      if (joined == there)
        continue;
      there = joined;
      work.push_back(next);
    }
  }
}

int Linter::lineAt(int place) const {
  return place < int(entry->code.size()) ? entry->code[place].line : 0;
}
std::string Linter::openText(int open) {
  return open < 0 ? "behind a mark's end" : "inside '" + rules[open].mark.text() + "'";
}

} // namespace megalith::lint
