//===- Summary.cpp - Outlined functions -----------------------------------===//

#include "codegen/lint/Summary.h"

#include "llvm/ADT/STLExtras.h"

using llvm::StringRef;

namespace megalith::lint {

bool isStrong(StringRef opcode) {
  if (opcode.starts_with("cp.async.bulk.prefetch"))
    return false; // a hint
  static constexpr StringRef kStarts[] = {
      "red.",     "atom",    "mbarrier",        "cp.",
      "fence",    "membar",  "griddepcontrol",  "multimem",
      "st.async", "st.bulk", "barrier.cluster", "clusterlaunchcontrol"};
  if (llvm::any_of(kStarts, [&](StringRef start) { return opcode.starts_with(start); }))
    return true;
  if (!opcode.starts_with("ld.") && !opcode.starts_with("st."))
    return false;
  static constexpr StringRef kOrders[] = {".relaxed", ".acquire", ".release", ".volatile", ".mmio"};
  return llvm::any_of(kOrders, [&](StringRef order) { return opcode.contains(order); });
}

const Summary &Summaries::of(StringRef name) {
  if (auto found = known.find(name); found != known.end())
    return found->second;
  known[name] = {}; // what calls itself: PTX of device headers has none
  for (const Function &function : functions)
    if (function.name == name) {
      Summary summary = make(function);
      return known[name] = std::move(summary);
    }
  return known[name];
}

Summary Summaries::make(const Function &function) {
  Summary summary;
  summary.isNoReturn = function.isNoReturn;
  if (function.isNoReturn) {
    summary.edgeParameters = {1}; // fail(record, edge, …)
    return summary;
  }
  const auto &code = function.code;
  // Opcodes, as bits: those that come with each instruction, then those certainly met before it.
  std::vector<uint64_t> brings(code.size() + 1);
  auto bitOf = [&](StringRef opcode) {
    auto found = llvm::find(summary.strong, opcode);
    const size_t index = found - summary.strong.begin();
    if (found == summary.strong.end())
      summary.strong.push_back(opcode.str());
    return index < 64 ? uint64_t{1} << index : 0;
  };
  for (auto [place, instruction] : llvm::enumerate(code)) {
    summary.hasMarks |= instruction.kind == Instruction::Begin;
    if (instruction.kind != Instruction::Call) {
      if (isStrong(instruction.opcode)) {
        const uint64_t bit = bitOf(instruction.opcode);
        if (!instruction.isConditional)
          brings[place] |= bit;
      }
      continue;
    }
    const Summary called = of(instruction.callee);
    summary.hasMarks |= called.hasMarks;
    for (const std::string &opcode : called.strong) {
      const uint64_t bit = bitOf(opcode);
      if (llvm::is_contained(called.always, opcode))
        brings[place] |= bit;
    }
    // The edge is passed on: ld.param.u32 %r3, [name_param_3].
    for (int parameter : called.edgeParameters) {
      const StringRef passed = StringRef(function.argument(int(place), parameter));
      for (const Instruction &load : code)
        if (StringRef(load.opcode).starts_with("ld.param") && load.operands.size() == 2 &&
            load.operands[0] == passed) {
          StringRef number = StringRef(load.operands[1]).rsplit("_param_").second;
          int index = -1;
          if (!number.consumeInteger(10, index) &&
              !llvm::is_contained(summary.edgeParameters, index))
            summary.edgeParameters.push_back(index);
        }
    }
  }
  std::vector<uint64_t> met(code.size() + 1, ~uint64_t{0});
  std::vector<int> work = {0};
  std::vector<bool> isReached(code.size() + 1);
  met[0] = 0;
  isReached[0] = true;
  uint64_t atReturn = ~uint64_t{0};
  while (!work.empty()) {
    const int place = work.back();
    work.pop_back();
    if (place == int(code.size()))
      continue;
    const uint64_t after = met[place] | brings[place];
    if (code[place].kind == Instruction::Return)
      atReturn &= after;
    for (int next : function.next(place)) {
      const uint64_t joined = met[next] & after;
      if (isReached[next] && joined == met[next])
        continue;
      isReached[next] = true;
      met[next] = joined;
      work.push_back(next);
    }
  }
  for (auto [index, opcode] : llvm::enumerate(summary.strong))
    if (index < 64 && (atReturn >> index & 1))
      summary.always.push_back(opcode);
  return summary;
}

} // namespace megalith::lint
