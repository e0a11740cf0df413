//===- Ptx.cpp - Reading PTX ----------------------------------------------===//

#include "codegen/lint/Ptx.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using llvm::StringRef;

namespace megalith::lint {

namespace {

constexpr StringRef kMark = "// megalith ";

/// "a, [b], {c, d}" at its outer commas.
std::vector<std::string> splitOperands(StringRef text) {
  std::vector<std::string> operands;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += c == '[' || c == '{' || c == '(' ? 1 : c == ']' || c == '}' || c == ')' ? -1 : 0;
    if (c != ',' || (depth > 0 && i < text.size()))
      continue;
    if (StringRef operand = text.slice(begin, i).trim(); !operand.empty())
      operands.push_back(operand.str());
    begin = i + 1;
  }
  return operands;
}

bool isLabelCharacter(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '$' || c == '%';
}

} // namespace

/// Reads line by line; a statement ends with its semicolon.
class Reader {
public:
  explicit Reader(StringRef text) : rest(text) {}

  llvm::Expected<std::vector<Function>> run() {
    while (!rest.empty() && wrong.empty()) {
      auto [text, after] = rest.split('\n');
      rest = after;
      ++line;
      take(text.trim());
    }
    if (wrong.empty() && depth > 0)
      wrong = "ends inside a function";
    if (!wrong.empty())
      return llvm::createStringError(llvm::Twine("PTX, line ") + llvm::Twine(line) + ": " + wrong);
    return std::move(functions);
  }

private:
  void take(StringRef text) {
    if (text.starts_with(kMark)) {
      if (depth > 0)
        addMark(text.drop_front(kMark.size()).trim());
      return;
    }
    text = text.split("//").first.trim();
    if (text.empty())
      return;
    if (depth == 0)
      return takeOutside(text);
    takeInside(text);
  }

  /// Between functions: heads, and declarations that are left out.
  void takeOutside(StringRef text) {
    if (text.contains(".func") || text.contains(".entry")) {
      pending = Function();
      pending.line = line;
      pending.isEntry = text.contains(".entry");
      head = text.str();
      isHead = true;
    } else if (isHead && !text.starts_with("{")) {
      head += " " + text.str();
    }
    if (!isHead)
      return;
    if (text.contains(".noreturn"))
      pending.isNoReturn = true;
    if (text.ends_with(";") && !text.starts_with("{")) { // a declaration
      if (pending.isNoReturn)
        noReturn.push_back(nameIn(head));
      isHead = false;
    } else if (text.starts_with("{")) {
      pending.name = nameIn(head);
      pending.isNoReturn |= llvm::is_contained(noReturn, pending.name);
      isHead = false;
      depth = 1;
      labels.clear();
      lists.clear();
      jumps.clear();
      statement.clear();
    }
  }

  /// ".visible .entry layer(" or ".func (.param …) name(": the word before its parameters.
  static std::string nameIn(StringRef text) {
    StringRef after = text.substr(text.find(text.contains(".entry") ? ".entry" : ".func"));
    after = after.split(' ').second.trim();
    if (after.starts_with("(")) // what it returns
      after = after.substr(after.find(')') + 1).trim();
    return after.take_while(isLabelCharacter).str();
  }

  void takeInside(StringRef text) {
    while (!text.empty() && wrong.empty()) {
      if (statement.empty()) {
        if (text.consume_front("{")) {
          ++depth;
          text = text.trim();
          continue;
        }
        if (text.consume_front("}")) {
          text = text.trim();
          if (--depth == 0)
            endFunction();
          continue;
        }
        if (StringRef word = text.take_while(isLabelCharacter);
            !word.empty() && text.drop_front(word.size()).starts_with(":") &&
            !text.drop_front(word.size()).starts_with("::")) {
          labels[word] = int(pending.code.size());
          label = word.str();
          text = text.drop_front(word.size() + 1).trim();
          continue;
        }
        statementLine = line;
      }
      const size_t end = text.find(';');
      statement += (statement.empty() ? "" : " ") + text.substr(0, end).trim().str();
      if (end == StringRef::npos)
        return;
      text = text.drop_front(end + 1).trim();
      addStatement(statement);
      statement.clear();
    }
  }

  void addMark(StringRef text) {
    Instruction instruction;
    instruction.line = line;
    instruction.kind = Instruction::End;
    if (text != "end") {
      llvm::SmallVector<StringRef, 3> words;
      text.split(words, ' ', -1, false);
      if (words.size() != 3 || !words[1].consume_front("@")) {
        wrong = ("expected a mark '// megalith <verb> @<edge> <order>' but got '// megalith " +
                 text + "'")
                    .str();
        return;
      }
      instruction.kind = Instruction::Begin;
      instruction.mark = {words[0].str(), words[1].str(), words[2].str()};
    }
    pending.code.push_back(std::move(instruction));
  }

  void addStatement(StringRef text) {
    if (text.starts_with(".branchtargets"))
      lists[label] = splitOperands(text.drop_front(StringRef(".branchtargets").size()));
    if (text.starts_with("."))
      return; // .reg, .param, .pragma
    Instruction instruction;
    instruction.line = statementLine;
    if (text.consume_front("@")) {
      instruction.isConditional = true;
      text = text.drop_until([](char c) { return llvm::isSpace(c); }).trim();
    }
    StringRef opcode = text.take_until([](char c) { return llvm::isSpace(c); });
    instruction.opcode = opcode.str();
    instruction.operands = splitOperands(text.drop_front(opcode.size()));
    const int place = int(pending.code.size());
    if (opcode == "bra" || opcode.starts_with("bra.") || opcode.starts_with("brx.")) {
      instruction.kind = Instruction::Branch;
      if (instruction.operands.empty()) {
        wrong = "a branch without a target";
        return;
      }
      jumps.push_back({place, instruction.operands.back(), opcode.starts_with("brx.")});
    } else if (opcode == "call" || opcode.starts_with("call.")) {
      instruction.kind = Instruction::Call;
      for (const std::string &operand : instruction.operands)
        if (!StringRef(operand).starts_with("(") && instruction.callee.empty())
          instruction.callee = operand;
    } else if (opcode == "ret" || opcode.starts_with("ret.") || opcode == "exit") {
      instruction.kind = Instruction::Return;
    } else if (opcode == "trap") {
      instruction.kind = Instruction::Trap;
    } else if (!instruction.operands.empty() && !StringRef(opcode).starts_with("st")) {
      // What stands first is written: one register, or several in braces.
      StringRef target = instruction.operands[0];
      target = target.ltrim("{").rtrim("}");
      llvm::SmallVector<StringRef, 4> parts;
      target.split(parts, ',');
      for (StringRef part : parts)
        if (part.trim().starts_with("%")) {
          auto [it, isNew] = pending.definitions.try_emplace(part.trim().split('|').first, place);
          if (!isNew || instruction.isConditional || parts.size() > 1)
            it->second = -1;
        }
    }
    pending.code.push_back(std::move(instruction));
  }

  void endFunction() {
    for (const Jump &jump : jumps) {
      std::vector<std::string> names = {jump.target};
      if (jump.isIndexed)
        names = lists[jump.target];
      for (const std::string &name : names) {
        auto found = labels.find(name);
        if (found == labels.end()) {
          line = pending.code[jump.place].line;
          wrong = "no label " + name + " in " + pending.name;
          return;
        }
        pending.code[jump.place].targets.push_back(found->second);
      }
    }
    if (pending.isNoReturn)
      noReturn.push_back(pending.name);
    for (Instruction &instruction : pending.code)
      if (instruction.kind == Instruction::Call && llvm::is_contained(noReturn, instruction.callee))
        instruction.targets.push_back(-1); // does not come back
    functions.push_back(std::move(pending));
    pending = Function();
  }

  struct Jump {
    int place;
    std::string target;
    bool isIndexed;
  };

  StringRef rest;
  int line = 0, statementLine = 0, depth = 0;
  std::string wrong, statement, head, label;
  bool isHead = false;
  Function pending;
  std::vector<Function> functions;
  std::vector<std::string> noReturn;
  llvm::StringMap<int> labels;
  llvm::StringMap<std::vector<std::string>> lists;
  std::vector<Jump> jumps;
};

llvm::Expected<std::vector<Function>> readPtx(StringRef text) {
  return Reader(text).run();
}

llvm::SmallVector<int, 2> Function::next(int place) const {
  const Instruction &instruction = code[place];
  switch (instruction.kind) {
  case Instruction::Branch: {
    llvm::SmallVector<int, 2> places(instruction.targets.begin(), instruction.targets.end());
    if (instruction.isConditional)
      places.push_back(place + 1);
    return places;
  }
  case Instruction::Call:
    if (!instruction.targets.empty())
      return {};
    return {place + 1};
  case Instruction::Return:
  case Instruction::Trap:
    if (instruction.isConditional)
      return {place + 1};
    return {};
  default:
    return {place + 1};
  }
}

std::string Function::value(StringRef operand) const {
  return value(operand.trim().ltrim("[").rtrim("]").trim(), 12);
}

std::string Function::value(StringRef operand, int depth) const {
  auto found = definitions.find(operand);
  if (!operand.starts_with("%") || found == definitions.end() || found->second < 0 || depth == 0)
    return operand.str();
  const Instruction &by = code[found->second];
  const StringRef opcode = by.opcode;
  if (opcode.starts_with("mov.") || opcode.starts_with("cvt.u64.u32") ||
      opcode.starts_with("cvt.u32.u64") || opcode.starts_with("cvta."))
    return by.operands.size() == 2 ? value(by.operands[1], depth - 1) : operand.str();
  // Anything that reads memory or a clock may give another value each time.
  const bool isPure = llvm::any_of(
      llvm::ArrayRef<StringRef>{"add.", "sub.", "mul.", "mad.", "shl.", "shr.", "and.", "or.",
                                "xor.", "selp.", "min.", "max.", "cvt.", "rem.", "div.", "not."},
      [&](StringRef start) { return opcode.starts_with(start); });
  if (!isPure)
    return operand.str();
  std::vector<std::string> sources;
  for (const std::string &source : llvm::drop_begin(by.operands))
    sources.push_back(value(source, depth - 1));
  if (opcode.starts_with("add.") && sources.size() == 2) {
    int64_t added = 0, offset = 0;
    if (!StringRef(sources[1]).getAsInteger(10, added)) {
      if (!StringRef(sources[0]).getAsInteger(10, offset))
        return std::to_string(offset + added);
      auto [base, before] = StringRef(sources[0]).rsplit('+');
      if (!before.empty() && !before.getAsInteger(10, offset))
        return base.str() + "+" + std::to_string(offset + added);
      return sources[0] + "+" + std::to_string(added);
    }
  }
  return (opcode + "(" + llvm::join(sources, ",") + ")").str();
}

std::optional<int64_t> Function::constant(StringRef operand) const {
  int64_t number = 0;
  if (StringRef(value(operand)).getAsInteger(10, number))
    return std::nullopt;
  return number;
}

std::string Function::argument(int place, int index) const {
  const std::string operand = given(place, "[param" + std::to_string(index) + "+0]");
  return operand.empty() ? "" : value(operand);
}

std::string Function::given(int place, StringRef parameter) const {
  // st.param.b32 [param3+0], 10;  stands in front, with what else the call needs.
  for (int at = place - 1; at >= 0 && at > place - 64; --at) {
    if (code[at].kind != Instruction::Plain)
      break;
    if (StringRef(code[at].opcode).starts_with("st.param") && code[at].operands.size() == 2 &&
        code[at].operands[0] == parameter)
      return code[at].operands[1];
  }
  return "";
}

} // namespace megalith::lint
