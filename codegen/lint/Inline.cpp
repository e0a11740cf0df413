//===- Inline.cpp - Marks of outlined functions where they are called -----===//

#include "codegen/lint/Inline.h"

#include "llvm/ADT/STLExtras.h"

using llvm::StringRef;

namespace megalith::lint {

namespace {

/// Names registers of copy number `copy` apart from all others: "[%r1+4]" is "[%7:r1+4]".
std::string renamed(StringRef operand, int copy) {
  std::string text;
  for (char c : operand) {
    text += c;
    if (c == '%')
      text += std::to_string(copy) + ":";
  }
  return text;
}

/// "[<function>_param_3+8]" as the call writes it, "[param3+8]"; "" if it is no such operand.
std::string asArgument(StringRef operand) {
  auto [before, number] = operand.rsplit("_param_");
  if (number.empty())
    return "";
  auto [index, offset] = number.rtrim("]").split('+');
  return ("[param" + index + "+" + (offset.empty() ? "0" : offset) + "]").str();
}

} // namespace

Function withMarksInlined(Function caller, llvm::ArrayRef<Function> functions,
                          Summaries &summaries) {
  std::vector<Instruction> &code = caller.code;
  int copies = 0;
  for (int place = 0; place < int(code.size()); ++place) { // grows by what copies call
    if (code[place].kind != Instruction::Call || !summaries.of(code[place].callee).hasMarks)
      continue;
    const auto called = llvm::find_if(
        functions, [&](const Function &each) { return each.name == code[place].callee; });
    const int first = int(code.size()), copy = ++copies;
    for (const auto &[name, at] : called->definitions)
      caller.definitions[renamed(name, copy)] = at < 0 ? at : first + at;
    for (Instruction instruction : called->code) {
      for (int &target : instruction.targets)
        if (target >= 0)
          target += first;
      const bool isParameter =
          StringRef(instruction.opcode).starts_with("ld.param") && instruction.operands.size() == 2;
      const std::string argument = isParameter ? asArgument(instruction.operands[1]) : "";
      for (std::string &operand : instruction.operands)
        operand = renamed(operand, copy);
      if (!argument.empty())
        if (std::string given = caller.given(place, argument); !given.empty()) {
          instruction.opcode = "mov.b64";
          instruction.operands[1] = given;
        }
      if (instruction.kind == Instruction::Return) {
        instruction.kind = Instruction::Branch;
        instruction.targets = {place + 1};
      }
      code.push_back(std::move(instruction));
    }
    code[place].kind = Instruction::Branch;
    code[place].targets = {first};
  }
  return caller;
}

} // namespace megalith::lint
