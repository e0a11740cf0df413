//===- Writer.cpp - Lines of emitted source ---------------------------------===//

#include "codegen/Writer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

using llvm::ArrayRef;
using llvm::StringRef;

namespace megalith {

/// Whether a bracket opens or closes at text[i]; a comparison or an arrow is none.
static bool opens(StringRef text, size_t i) {
  return text[i] == '(' || (text[i] == '<' && i > 0 && text[i - 1] != ' ');
}
static bool closes(StringRef text, size_t i) {
  return text[i] == ')' || (text[i] == '>' && i > 0 && text[i - 1] != ' ' && text[i - 1] != '-');
}

/// The items of a group's content, each with the separator after it.
static llvm::SmallVector<StringRef> itemsOf(StringRef content) {
  llvm::SmallVector<StringRef> items;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i < content.size(); ++i) {
    depth += opens(content, i);
    depth -= closes(content, i);
    if ((content[i] == ',' || content[i] == ';') && depth == 0) {
      items.push_back(content.slice(start, i + 1).ltrim());
      start = i + 1;
    }
  }
  items.push_back(content.drop_front(start).ltrim());
  return items;
}

/// The bracketed group of `text`, inside no other, to break in: the longest call with several
/// arguments, else the longest. Positions of its brackets.
static std::pair<size_t, size_t> groupToBreak(StringRef text) {
  std::pair<size_t, size_t> best{0, 0};
  bool isBestCall = false;
  llvm::SmallVector<size_t> open;
  for (size_t i = 1; i < text.size(); ++i) {
    if (opens(text, i))
      open.push_back(i);
    else if (!open.empty() && closes(text, i)) {
      const size_t start = open.pop_back_val();
      if (!open.empty())
        continue;
      const bool isCall = text[i] == ')' && itemsOf(text.slice(start + 1, i)).size() > 1;
      const bool isLonger = i - start > best.second - best.first;
      if (isCall != isBestCall ? isCall : isLonger)
        best = {start, i}, isBestCall = isCall;
    }
  }
  return best;
}

/// `head`, then `items` as many to a line as fit, then `tail`; further lines are indented by
/// `indent`, names of a loop's head behind the first by the length of "int " more. Empty if a line
/// is too long all the same.
static std::vector<std::string> filled(StringRef head, ArrayRef<StringRef> items, StringRef tail,
                                       size_t indent) {
  std::vector<std::string> lines;
  std::string current = head.str();
  const bool isLoop = head.ends_with("for (");
  bool isFirst = head.ends_with("(") || head.ends_with("<") || head.trim().empty();
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t needed = items[i].size() + (i + 1 == items.size() ? tail.size() : 0);
    if (!isFirst && current.size() + 1 + needed > Writer::kColumns) {
      lines.push_back(current);
      const bool isName = isLoop && items[i - 1].ends_with(",");
      current = std::string(indent + (isName ? 4 : 0), ' ');
    } else if (!isFirst) {
      current += ' ';
    }
    current += items[i];
    isFirst = false;
  }
  lines.push_back(current + tail.str());
  const bool fits =
      llvm::all_of(lines, [](const std::string &line) { return line.size() <= Writer::kColumns; });
  return fits ? lines : std::vector<std::string>();
}

void Writer::line(const llvm::Twine &twine) {
  const std::string text = std::string(2 * depth, ' ') + twine.str();
  const StringRef all = text;
  const auto [open, close] = groupToBreak(text);
  if (text.size() <= kColumns || close == 0) {
    lines.push_back(text);
    return;
  }
  // clang-format's order of preference: after `=`; under the first item; below the bracket.
  const size_t deeper = 2 * depth + 4, assignment = all.find(" = ");
  if (assignment < open && deeper + text.size() - assignment - 3 <= kColumns) {
    lines.push_back(all.take_front(assignment + 2).str());
    lines.push_back(std::string(deeper, ' ') + all.drop_front(assignment + 3).str());
    return;
  }
  const auto items = itemsOf(all.slice(open + 1, close));
  const StringRef head = all.take_front(open + 1), tail = all.drop_front(close);
  auto broken = filled(head, items, tail, open + 1);
  if (broken.empty()) {
    broken = filled(std::string(deeper, ' '), items, tail, deeper);
    if (broken.empty()) // an item longer than a line: rather a long line than none
      broken = {text};
    else
      broken.insert(broken.begin(), head.str());
  }
  llvm::append_range(lines, broken);
}

void Writer::comment(StringRef text, size_t hang) {
  std::string lead = std::string(2 * depth, ' ') + "//", current = lead;
  // Spaces at the start of the text and between its columns stay.
  bool isFirst = true;
  while (!text.empty()) {
    const size_t spaces = text.find_first_not_of(' ');
    if (spaces == StringRef::npos)
      break;
    const StringRef gap = text.take_front(spaces);
    text = text.drop_front(spaces);
    const StringRef word = text.take_until([](char c) { return c == ' '; });
    text = text.drop_front(word.size());
    if (!isFirst && current.size() + gap.size() + word.size() > kColumns) {
      lines.push_back(current);
      current = lead + " " + std::string(hang, ' ') + word.str();
      continue;
    }
    current += (isFirst ? " " : "") + gap.str() + word.str();
    isFirst = false;
  }
  lines.push_back(current);
}

std::string Writer::text() const {
  std::string all;
  for (const std::string &line : lines)
    all += line + "\n";
  return all;
}

} // namespace megalith
