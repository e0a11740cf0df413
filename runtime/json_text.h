//===- json_text.h - JSON from files that may hold anything ------*- C++ -*-===//
#ifndef MEGALITH_RUNTIME_JSON_TEXT_H
#define MEGALITH_RUNTIME_JSON_TEXT_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace megalith::runtime {

/// llvm::json::parse, which recurses at each level: nesting that could exhaust the stack is
/// refused.
inline llvm::Expected<llvm::json::Value> parseJson(llvm::StringRef text) {
  constexpr int kMostLevels = 64;
  int levels = 0;
  bool isString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (isString && c == '\\')
      ++i;
    else if (c == '"')
      isString = !isString;
    else if (!isString && (c == ']' || c == '}'))
      --levels;
    else if (!isString && (c == '[' || c == '{') && ++levels > kMostLevels)
      return llvm::createStringError("expected nesting of at most 64 levels but got more");
  }
  return llvm::json::parse(text);
}

} // namespace megalith::runtime

#endif // MEGALITH_RUNTIME_JSON_TEXT_H
