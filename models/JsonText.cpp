//===- JsonText.cpp - JSON text to an object, strictly ----------------------===//

#include "models/JsonText.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

#include <charconv>
#include <optional>
#include <vector>

using namespace llvm;

namespace megalith::models {

static constexpr size_t kMaxDepth = 64;
static constexpr size_t kMaxShown = 60;

namespace {

/// One pass over the characters that follows only strings, braces and brackets. On malformed text
/// it may see nonsense, which is harmless: the parser reports that text anyway.
struct Scan {
  bool tooDeep = false;
  std::optional<std::string> duplicate; ///< JSON path of the first key seen twice

  explicit Scan(StringRef text) : rest(text) { run(); }

private:
  struct Level {
    bool isObject;
    bool expectKey;
    std::string key; ///< of the member being read
    StringSet<> keys;
  };
  StringRef rest;
  std::vector<Level> levels;

  std::string path(StringRef key) const {
    std::string text = "$";
    for (const Level &level : ArrayRef<Level>(levels).drop_back())
      text += level.isObject ? pathStep(level.key) : "[]";
    return text + pathStep(key);
  }

  /// The string that starts at `rest`, quotes included.
  StringRef takeString() {
    size_t end = 1;
    while (end < rest.size() && rest[end] != '"')
      end += rest[end] == '\\' ? 2 : 1;
    StringRef token = rest.take_front(end + 1);
    rest = rest.drop_front(token.size());
    return token;
  }

  void key(StringRef token) {
    // Escapes are decoded, so that "a" and "\u0061" are the same key.
    Expected<json::Value> decoded = json::parse(token);
    if (!decoded) {
      consumeError(decoded.takeError());
      return;
    }
    Level &level = levels.back();
    level.key = decoded->getAsString().value_or("").str();
    level.expectKey = false;
    if (!level.keys.insert(level.key).second && !duplicate)
      duplicate = path(level.key);
  }

  void run() {
    while (!rest.empty() && !tooDeep) {
      char c = rest.front();
      if (c == '"') {
        StringRef token = takeString();
        if (!levels.empty() && levels.back().isObject && levels.back().expectKey)
          key(token);
        continue;
      }
      rest = rest.drop_front();
      if (c == '{' || c == '[')
        levels.push_back({c == '{', c == '{', "", {}});
      else if ((c == '}' || c == ']') && !levels.empty())
        levels.pop_back();
      else if (c == ',' && !levels.empty())
        levels.back().expectKey = levels.back().isObject;
      tooDeep = levels.size() > kMaxDepth;
    }
  }
};

/// "line 3, column 7 (Expected ...)" from the parser's "[3:7, byte=40]: Expected ...".
std::string describeSyntaxError(Error error) {
  std::string text = toString(std::move(error));
  StringRef rest = text;
  unsigned line, column;
  if (!rest.consume_front("[") || rest.consumeInteger(10, line) || !rest.consume_front(":") ||
      rest.consumeInteger(10, column))
    return text;
  return formatv("line {0}, column {1} ({2})", line, column, rest.split("]: ").second.trim());
}

} // namespace

Expected<json::Object> parseJsonObject(StringRef text, StringRef source) {
  Scan scan(text);
  if (scan.tooDeep)
    return createStringError(formatv("{0}: $: expected nesting of at most {1} levels but got more; "
                                     "give the model's config.json",
                                     source, kMaxDepth));
  Expected<json::Value> value = json::parse(text);
  if (!value)
    return createStringError(formatv("{0}: $: expected a complete JSON object but got an error at "
                                     "{1}; complete the file or fetch it again",
                                     source, describeSyntaxError(value.takeError())));
  json::Object *object = value->getAsObject();
  if (!object)
    return createStringError(formatv("{0}: $: expected a JSON object but got {1}; give the model's "
                                     "config.json",
                                     source, describe(*value)));
  if (scan.duplicate)
    return createStringError(formatv("{0}: {1}: expected the field once but got it twice; remove "
                                     "one of the two",
                                     source, *scan.duplicate));
  return std::move(*object);
}

std::string pathStep(StringRef key) {
  auto isPlain = [](char c) { return isAlnum(c) || c == '_' || c == '-'; };
  if (!key.empty() && key.size() <= kMaxShown && all_of(key, isPlain))
    return "." + key.str();
  return "[" + describe(key) + "]";
}

std::string describe(const json::Value &value) {
  // The fewest digits that mean the same number, where the JSON printer writes seventeen.
  if (value.kind() == json::Value::Number && !value.getAsInteger()) {
    char digits[32];
    return std::string(digits,
                       std::to_chars(digits, digits + sizeof digits, *value.getAsNumber()).ptr);
  }
  std::string text = formatv("{0}", value);
  if (text.size() <= kMaxShown)
    return text;
  // Not in the middle of a UTF-8 sequence.
  size_t end = kMaxShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end) + "...";
}

} // namespace megalith::models
