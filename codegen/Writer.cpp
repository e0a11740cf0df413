//===- Writer.cpp - Lines of emitted source ---------------------------------===//

#include "codegen/Writer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith {

/// The longest bracketed group of `text` that is in no other: positions of its brackets.
static std::pair<size_t, size_t> longestGroup(llvm::StringRef text) {
  std::pair<size_t, size_t> longest{0, 0};
  llvm::SmallVector<size_t> open;
  for (size_t i = 1; i < text.size(); ++i) {
    const bool isTemplate = text[i] == '<' && text[i - 1] != ' ';
    if (text[i] == '(' || isTemplate)
      open.push_back(i);
    else if (!open.empty() && (text[i] == ')' || (text[i] == '>' && text[i - 1] != ' '))) {
      const size_t start = open.pop_back_val();
      if (open.empty() && i - start > longest.second - longest.first)
        longest = {start, i};
    }
  }
  return longest;
}

/// The items of a group's content, each with the separator after it.
static llvm::SmallVector<llvm::StringRef> itemsOf(llvm::StringRef content) {
  llvm::SmallVector<llvm::StringRef> items;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i < content.size(); ++i) {
    depth += llvm::StringRef("(<").contains(content[i]);
    depth -= llvm::StringRef(")>").contains(content[i]);
    if ((content[i] == ',' || content[i] == ';') && depth == 0) {
      items.push_back(content.slice(start, i + 1).ltrim());
      start = i + 1;
    }
  }
  items.push_back(content.drop_front(start).ltrim());
  return items;
}

void Writer::line(const llvm::Twine &twine) {
  const std::string text = std::string(2 * depth, ' ') + twine.str();
  const auto [open, close] = longestGroup(text);
  if (text.size() <= kColumns || close == 0) {
    lines.push_back(text);
    return;
  }
  const llvm::StringRef all = text, rest = all.drop_front(close);
  std::string current = all.take_front(open + 1).str();
  const auto items = itemsOf(all.slice(open + 1, close));
  for (size_t i = 0; i < items.size(); ++i) {
    const bool isLast = i + 1 == items.size();
    const size_t needed = items[i].size() + (isLast ? rest.size() : 0);
    if (i > 0 && current.size() + 1 + needed > kColumns) {
      lines.push_back(current);
      current = std::string(open + 1, ' ');
    } else if (i > 0) {
      current += ' ';
    }
    current += items[i];
  }
  lines.push_back(current + rest.str());
}

void Writer::comment(llvm::StringRef text, size_t hang) {
  std::string lead = std::string(2 * depth, ' ') + "//", current = lead;
  // Spaces at the start of the text and between its columns stay.
  bool isFirst = true;
  while (!text.empty()) {
    const size_t spaces = text.find_first_not_of(' ');
    if (spaces == llvm::StringRef::npos)
      break;
    const llvm::StringRef gap = text.take_front(spaces);
    text = text.drop_front(spaces);
    const llvm::StringRef word = text.take_until([](char c) { return c == ' '; });
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
