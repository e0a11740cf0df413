//===- Names.cpp - Names in emitted source ----------------------------------===//

#include "codegen/Names.h"

#include "codegen/headers.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace megalith {

static bool isIdentifierStart(char c) {
  return llvm::isAlpha(c) || c == '_';
}
static bool isIdentifierChar(char c) {
  return llvm::isAlnum(c) || c == '_';
}

/// Calls use(identifier) for those of one line, up to a comment.
template <class Use> static void eachIdentifier(llvm::StringRef line, Use use) {
  line = line.split("//").first;
  while (!line.empty()) {
    if (!isIdentifierStart(line.front())) {
      // A number with its suffix is no identifier, nor is a member after a dot.
      const bool skips = llvm::isDigit(line.front()) || line.front() == '.';
      line = line.drop_front();
      if (skips)
        line = line.drop_while(isIdentifierChar);
      continue;
    }
    const llvm::StringRef name = line.take_while(isIdentifierChar);
    use(name);
    line = line.drop_front(name.size());
  }
}

/// Drops a leading `template <…>` of a line.
static llvm::StringRef dropTemplate(llvm::StringRef line) {
  if (!line.starts_with("template <"))
    return line;
  int depth = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    depth += line[i] == '<' ? 1 : line[i] == '>' ? -1 : 0;
    if (line[i] == '>' && depth == 0)
      return line.drop_front(i + 1).ltrim();
  }
  return "";
}

/// The name that a line at namespace level defines; empty if it defines none.
static llvm::StringRef definedName(llvm::StringRef line) {
  line = dropTemplate(line);
  for (llvm::StringRef keyword : {"enum class ", "struct ", "class ", "using "})
    if (line.consume_front(keyword)) {
      if (line.consume_front("alignas("))
        line = line.split(") ").second;
      return line.take_while(isIdentifierChar);
    }
  const bool isConstant = line.starts_with("inline constexpr ") || line.starts_with("constexpr ");
  const bool isFunction = line.starts_with("MEGALITH_");
  if (!isConstant && !isFunction)
    return "";
  // The identifier before the parameters or the value.
  line = line.take_until([](char c) { return c == '(' || c == '=' || c == ';'; }).rtrim();
  const size_t before = line.find_last_not_of("abcdefghijklmnopqrstuvwxyz"
                                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  return before == llvm::StringRef::npos ? "" : line.drop_front(before + 1);
}

DeviceNames::DeviceNames() {
  for (const auto &[header, text] : deviceHeaders()) {
    if (!header.ends_with(".cuh") || header.contains("/platform"))
      continue;
    bool isDetail = false;
    for (llvm::StringRef line : llvm::split(text, '\n')) {
      if (line.starts_with("namespace detail"))
        isDetail = true;
      else if (line.starts_with("} // namespace detail"))
        isDetail = false;
      else if (!isDetail)
        if (const llvm::StringRef name = definedName(line); !name.empty())
          headers.emplace(name.str(), header);
    }
  }
}

llvm::StringRef DeviceNames::headerOf(llvm::StringRef name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::set<llvm::StringRef> DeviceNames::headersFor(llvm::StringRef source) const {
  std::set<llvm::StringRef> used;
  for (llvm::StringRef line : llvm::split(source, '\n'))
    eachIdentifier(line, [&](llvm::StringRef name) {
      if (const llvm::StringRef header = headerOf(name); !header.empty())
        used.insert(header);
    });
  return used;
}

std::string whyNotAName(llvm::StringRef name, const DeviceNames &device) {
  // Keywords that a pass could hit on, and what every emitted source defines itself.
  static const llvm::StringSet<> taken = {
      "auto",     "bool",     "break",  "case",     "char",     "class", "const",
      "continue", "delete",   "do",     "double",   "else",     "enum",  "float",
      "for",      "goto",     "if",     "int",      "long",     "new",   "namespace",
      "operator", "private",  "public", "register", "return",   "short", "signed",
      "sizeof",   "static",   "struct", "switch",   "template", "this",  "typename",
      "union",    "unsigned", "using",  "void",     "volatile", "while", "Config",
      "Cta",      "producer", "poller", "consumer", "epilogue", "args",  "cta"};
  if (name.empty() || !isIdentifierStart(name.front()) || !llvm::all_of(name, isIdentifierChar))
    return "is no C++ identifier";
  if (taken.contains(name))
    return "is a word that emitted source uses itself";
  if (const llvm::StringRef header = device.headerOf(name); !header.empty())
    return ("is defined by " + header).str();
  return "";
}

bool mentions(llvm::StringRef text, llvm::StringRef name) {
  bool found = false;
  eachIdentifier(text, [&](llvm::StringRef identifier) { found |= identifier == name; });
  return found;
}

} // namespace megalith
