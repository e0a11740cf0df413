//===- MarkRules.cpp - What each mark asks for ----------------------------===//

#include "codegen/lint/Linter.h"

#include "passes/verify/MemoryOrder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace megalith::task;

namespace megalith::lint {

void Linter::findRules() {
  ruleOf.assign(entry->code.size(), -1);
  for (auto [place, instruction] : llvm::enumerate(entry->code)) {
    if (instruction.kind != Instruction::Begin)
      continue;
    const std::string text = instruction.mark.text();
    auto [it, isNew] = ruleByText.try_emplace(text, int(rules.size()));
    ruleOf[place] = it->second;
    if (!isNew)
      continue;
    Rule rule;
    rule.mark = instruction.mark;
    if (!complete(rule))
      note(instruction.line,
           text + ": expected a mark of this kernel's edges and of a verb and order in the table "
                  "of memory orders (docs/memory-order.md); to mend: mark what the role regions "
                  "name");
    rules.push_back(std::move(rule));
  }
}

bool Linter::complete(Rule &rule) {
  static constexpr StringRef kEmpty = "st.relaxed.gpu.global.b32";
  if (!kernel)
    return false;
  if (rule.mark.verb == "rearm") {
    rule.required = {kEmpty};
    return llvm::any_of(kernel.getOps<ExchangeOp>(), [&](ExchangeOp exchange) {
      return rearmMark(exchange) == rule.mark.text();
    });
  }
  rule.edge =
      kernel.lookup<EdgeOp>(FlatSymbolRefAttr::get(kernel.getContext(), StringRef(rule.mark.name)));
  if (!rule.edge)
    return false;
  const StringRef verb = rule.mark.verb, order = rule.mark.order;
  for (const order::Emitted &emitted : order::emitted())
    if (emitted.kind == rule.edge.getKind() && emitted.verb == verb && emitted.order == order) {
      rule.required.assign(emitted.instructions.begin(), emitted.instructions.end());
      rule.may.assign(emitted.allowed.begin(), emitted.allowed.end());
      rule.copies = verb == "copy";
      rule.isSure = order.starts_with("acquire") || verb == "pace";
      rule.needsMeeting = order.starts_with("release") || verb == "copy";
      for (auto exchange : kernel.getOps<ExchangeOp>())
        if (exchange.getEdge() == rule.edge.getSymName())
          rule.width = exchange.hasTriples() ? ".b128" : ".b32";
      kernel.walk([&](PollOp poll) {
        if (poll.getEdge() == rule.edge.getSymName() && poll.getAlsoAttr())
          rule.also.push_back(kernel.lookup<EdgeOp>(poll.getAlsoAttr()));
      });
      return true;
    }
  return false;
}

static bool startsWithAny(StringRef opcode, ArrayRef<StringRef> starts) {
  return llvm::any_of(starts, [&](StringRef start) {
    return opcode.starts_with(start) &&
           (opcode.size() == start.size() || opcode[start.size()] == '.' || start.ends_with("."));
  });
}

Linter::Fit Linter::fitOf(const Rule &rule, StringRef opcode) {
  const bool isWord =
      !rule.width.empty() && !opcode.starts_with("cp.") && !opcode.starts_with("mbarrier.");
  if (isWord && !opcode.ends_with(rule.width))
    return Fit::No;
  const StringRef order = rule.mark.order;
  if ((order.starts_with("acquire") || order.starts_with("release")) && opcode.contains(".relaxed"))
    return Fit::No; // qualifiers that may be left out stand for more
  if (startsWithAny(opcode, rule.required))
    return Fit::Required;
  return startsWithAny(opcode, rule.may) ? Fit::Allowed : Fit::No;
}

std::string Linter::wanted(const Rule &rule) {
  std::string text = llvm::join(rule.required, " or ");
  if (!rule.width.empty())
    text += " (words of " + rule.width.drop_front().str() + ")";
  return text;
}

} // namespace megalith::lint
