//===- Between.cpp - Instructions in and out of marks ---------------------===//

#include "codegen/lint/Linter.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith::lint {

void Linter::judge() {
  for (auto [place, instruction] : llvm::enumerate(entry->code))
    if (states[place].isReached)
      judge(states[place], instruction, int(place));
}

void Linter::judge(const State &state, const Instruction &instruction, int place) {
  const StringRef opcode = instruction.opcode;
  if (instruction.kind == Instruction::Begin) {
    if (state.open >= 0)
      note(instruction.line, instruction.mark.text() + ": begins inside '" +
                                 rules[state.open].mark.text() +
                                 "', which has no end on this way; to mend: end it first "
                                 "(platform::mark_end)");
    EdgeOp edge = rules[ruleOf[place]].edge;
    if (edge && !edge.isGlobal() && !state.isReady)
      note(instruction.line, instruction.mark.text() +
                                 ": comes before the CTA has met behind the barriers' set-up; "
                                 "to mend: call setup<…> first");
  } else if (instruction.kind == Instruction::End) {
    if (state.open < 0)
      note(instruction.line, "a mark's end without its beginning; to mend: mark the edge's verb "
                             "in front (platform::mark)");
    else
      judgeEnd(state, instruction);
  } else if (instruction.kind == Instruction::Call) {
    judgeCall(state, instruction, place);
  } else if (isStrong(opcode)) {
    state.open < 0 ? judgeOutside(state, instruction) : judgeInside(state, instruction);
  } else if (opcode.starts_with("st.global") && !state.hasWaited && storesLate()) {
    note(instruction.line, "'" + opcode.str() +
                               "' may come before the launch before is over, which may still "
                               "read what it overwrites; to mend: task.launch_wait before the "
                               "role's first store");
  } else if (opcode == "bar.sync" && !state.hasBegun && state.hasInit && !state.hasFence) {
    note(instruction.line, "mbarriers are initialised but not made visible to bulk copies "
                           "(fence.mbarrier_init) before the CTA meets; to mend: "
                           "platform::fence_mbarrier_init");
  }
}

bool Linter::storesLate() {
  return !kernel || (!kernel.getTrace() && !kernel.isLooping());
}

void Linter::judgeEnd(const State &state, const Instruction &instruction) {
  const Rule &rule = rules[state.open];
  if (rule.required.empty())
    return;
  const bool isThere = (rule.isSure ? state.must : state.may) & Required ||
                       (!rule.isSure && !rule.copies && state.may & Copied);
  if (!isThere)
    note(instruction.line,
         llvm::formatv("{0}: expected {1}{2} between the mark and its end but got none; to mend: "
                       "call the device function of the verb between the two",
                       rule.mark.text(), wanted(rule),
                       rule.isSure && state.may & Required ? " on every way" : ""));
  else if (rule.copies && !(state.may & Copied))
    note(instruction.line, rule.mark.text() + ": expected cp.async.bulk between the mark and its "
                                              "end but got none; to mend: copy there, or nobody "
                                              "completes the bytes it expects");
}

void Linter::judgeInside(const State &state, const Instruction &instruction) {
  const Rule &rule = rules[state.open];
  const StringRef opcode = instruction.opcode;
  const Fit fit = fitOf(rule, opcode);
  if (fit == Fit::No)
    return note(instruction.line,
                llvm::formatv("{0}: expected {1} but got '{2}', whose order, scope or width the "
                              "table of memory orders does not give this edge; to mend: the "
                              "platform's function of that verb (docs/memory-order.md)",
                              rule.mark.text(), wanted(rule), opcode));
  if (fit == Fit::Required && rule.needsMeeting) {
    if (!(state.must & Met))
      note(instruction.line, llvm::formatv("{0}: '{1}' comes before the lanes of the warp have "
                                           "met (bar.warp.sync of all), so it says nothing of "
                                           "what others did; to mend: warp_sync behind the mark",
                                           rule.mark.text(), opcode));
    if (state.may & Required)
      note(instruction.line,
           llvm::formatv("{0}: a second '{1}' between the mark and its end; the edge counts one "
                         "arrival a warp; to mend: one call of the verb for each step",
                         rule.mark.text(), opcode));
  }
  if (opcode.starts_with("cp.async.bulk")) {
    if (!(state.must & Expected))
      return note(instruction.line, rule.mark.text() +
                                        ": the copy comes before its bytes are expected on the "
                                        "barrier (expect_tx); to mend: expect them first");
    if (state.expected < 0 || instruction.operands.size() < 4)
      return;
    // [to], [from], bytes, [barrier]; state, [barrier], bytes or [barrier], bytes.
    const Instruction &expect = entry->code[state.expected];
    const size_t which = StringRef(expect.opcode).contains("arrive") ? 1 : 0;
    if (entry->value(instruction.operands[3]) != entry->value(expect.operands[which]))
      note(instruction.line,
           llvm::formatv("{0}: the copy completes its bytes on {1}, expected the barrier where "
                         "line {2} expects them; to mend: give both the edge's barrier",
                         rule.mark.text(), instruction.operands[3], expect.line));
  }
}

void Linter::judgeOutside(const State &state, const Instruction &instruction) {
  const StringRef opcode = instruction.opcode;
  if (opcode.starts_with("griddepcontrol."))
    return;
  if (opcode.starts_with("mbarrier.init") || opcode.starts_with("fence.mbarrier_init")) {
    if (state.hasBegun)
      note(instruction.line,
           "'" + opcode.str() + "' after roles have begun; to mend: only in make_barriers<…>");
    return;
  }
  note(instruction.line, "'" + opcode.str() +
                             "' stands between no marks, so no edge of the role regions answers "
                             "for it; to mend: reach it through a device function that marks its "
                             "edge");
}

void Linter::judgeCall(const State &state, const Instruction &instruction, int place) {
  const Summary &called = summaries->of(instruction.callee);
  SmallVector<int64_t, 2> ids; // of the edges that a missed deadline would name
  for (int parameter : called.edgeParameters)
    if (int64_t id; !StringRef(entry->argument(place, parameter)).getAsInteger(10, id))
      ids.push_back(id);
  if (state.open < 0) {
    if (!called.strong.empty())
      note(instruction.line,
           llvm::formatv("a call of {0}{1}, which has '{2}', stands between no marks; to mend: "
                         "reach it through a device function that marks its edge",
                         instruction.callee, ids.empty() ? "" : nameOf(ids.front()),
                         called.strong.front()));
    return;
  }
  const Rule &rule = rules[state.open];
  for (const std::string &strong : called.strong)
    if (fitOf(rule, strong) == Fit::No)
      note(instruction.line,
           llvm::formatv("{0}: expected {1} but {2}, called here, has '{3}', whose order, scope "
                         "or width the table of memory orders does not give this edge; to mend: "
                         "the function that the verb calls (docs/memory-order.md)",
                         rule.mark.text(), wanted(rule), instruction.callee, strong));
  for (int64_t id : ids) {
    EdgeOp edge = rule.edge;
    auto isNamed = [&](EdgeOp other) { return id == int64_t(other.getId()); };
    if (!edge || isNamed(edge) || llvm::any_of(rule.also, isNamed))
      continue;
    note(instruction.line,
         llvm::formatv("{0}: a missed deadline would name edge {1}{2}, expected {3}; to mend: "
                       "hand on the edge's kId",
                       rule.mark.text(), id, nameOf(id), edge.getId()));
  }
}

std::string Linter::nameOf(int64_t id) {
  if (kernel)
    for (EdgeOp edge : kernel.edges())
      if (int64_t(edge.getId()) == id)
        return " for @" + edge.getSymName().str();
  return "";
}

} // namespace megalith::lint
