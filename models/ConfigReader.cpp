//===- ConfigReader.cpp - typed fields of a JSON config ---------------------===//

#include "models/ConfigReader.h"
#include "models/JsonText.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace llvm;

namespace megalith::models {

ConfigReader::ConfigReader(const json::Object &object, StringRef source, StringRef path)
    : fields(object), source(source.str()), where(path.str()) {}

std::string ConfigReader::path(StringRef key) const {
  return where + pathStep(key);
}

const json::Value *ConfigReader::find(StringRef key) {
  read.insert(key);
  const json::Value *value = fields.get(key);
  return value && value->kind() != json::Value::Null ? value : nullptr;
}

bool ConfigReader::has(StringRef key) const {
  const json::Value *value = fields.get(key);
  return value && value->kind() != json::Value::Null;
}

void ConfigReader::fail(StringRef key, const Twine &expected, const Twine &got, const Twine &mend) {
  if (message.empty())
    message =
        (source + ": " + path(key) + ": expected " + expected + " but got " + got + "; " + mend)
            .str();
}

void ConfigReader::adopt(Error error) {
  std::string text = toString(std::move(error));
  if (message.empty())
    message = text;
}

Error ConfigReader::takeError() {
  if (message.empty())
    return Error::success();
  return createStringError(std::exchange(message, ""));
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

int64_t ConfigReader::integer(StringRef key, int64_t min, int64_t max) {
  if (!find(key)) {
    fail(key, formatv("an integer from {0} to {1}", min, max).str(),
         fields.get(key) ? "null" : "nothing", "add the field from the model's config.json");
    return min;
  }
  return integerOr(key, min, max, min);
}

int64_t ConfigReader::integerOr(StringRef key, int64_t min, int64_t max, int64_t absent) {
  const json::Value *value = find(key);
  if (!value)
    return absent;
  std::optional<int64_t> number = value->getAsInteger();
  if (number && *number >= min && *number <= max)
    return *number;
  // Quoted numbers are the commonest slip, and have a mend of their own.
  bool quoted = value->kind() == json::Value::String;
  fail(key, formatv("an integer from {0} to {1}", min, max).str(), describe(*value),
       quoted ? "write it without quotes" : "correct the value");
  return min;
}

double ConfigReader::positiveOr(StringRef key, double absent) {
  const json::Value *value = find(key);
  if (!value)
    return absent;
  std::optional<double> number = value->getAsNumber();
  if (number && std::isfinite(*number) && *number > 0)
    return *number;
  bool quoted = value->kind() == json::Value::String;
  fail(key, "a finite number above 0", describe(*value),
       quoted ? "write it without quotes" : "correct the value");
  return 1;
}

bool ConfigReader::booleanOr(StringRef key, bool absent) {
  const json::Value *value = find(key);
  if (!value)
    return absent;
  if (std::optional<bool> boolean = value->getAsBoolean())
    return *boolean;
  fail(key, "true or false", describe(*value), "correct the value");
  return absent;
}

const json::Array *ConfigReader::list(StringRef key, size_t length) {
  const json::Value *value = find(key);
  if (!value)
    return nullptr;
  const json::Array *array = value->getAsArray();
  if (array && array->size() == length)
    return array;
  fail(key, formatv("a list of {0} entries, one a layer", length).str(),
       array ? formatv("{0}", array->size()).str() : describe(*value), "correct the list");
  return nullptr;
}

std::vector<std::string> ConfigReader::strings(StringRef key, size_t length,
                                               ArrayRef<StringRef> values, StringRef mend) {
  std::vector<std::string> result;
  const json::Array *array = list(key, length);
  if (!array)
    return result;
  for (const json::Value &entry : *array) {
    auto text = entry.getAsString();
    if (!text || !is_contained(values, *text)) {
      fail(key, "entries among " + join(values, ", "), describe(entry), mend);
      return {};
    }
    result.push_back(text->str());
  }
  return result;
}

std::vector<double> ConfigReader::numbers(StringRef key, size_t length) {
  std::vector<double> result;
  const json::Array *array = list(key, length);
  if (!array)
    return result;
  for (const json::Value &entry : *array) {
    std::optional<double> number = entry.getAsNumber();
    if (!number || !std::isfinite(*number) || *number < 0) {
      fail(key, "finite numbers of at least 0", describe(entry), "correct the value");
      return {};
    }
    result.push_back(*number);
  }
  return result;
}

std::vector<std::string> ConfigReader::anyStrings(StringRef key) {
  std::vector<std::string> result;
  const json::Value *value = find(key);
  if (!value)
    return result;
  const json::Array *array = value->getAsArray();
  if (!array) {
    fail(key, "a list of strings", describe(*value), "correct the value");
    return result;
  }
  for (const json::Value &entry : *array) {
    if (!entry.getAsString()) {
      fail(key, "a list of strings", describe(entry), "correct the value");
      return {};
    }
    result.push_back(entry.getAsString()->str());
  }
  return result;
}

const json::Object *ConfigReader::object(StringRef key) {
  const json::Value *value = find(key);
  if (!value)
    return nullptr;
  if (const json::Object *object = value->getAsObject())
    return object;
  fail(key, "an object", describe(*value), "correct the value");
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Fixed values
//===----------------------------------------------------------------------===//

void ConfigReader::expectString(StringRef key, StringRef value, StringRef mend) {
  const json::Value *given = find(key);
  if (given && given->getAsString() != value)
    fail(key, "\"" + value + "\"", describe(*given), mend);
}

void ConfigReader::expectOnlyString(StringRef key, StringRef value, StringRef mend) {
  const json::Value *given = find(key);
  if (!given)
    return;
  const json::Array *list = given->getAsArray();
  if (!list || list->size() != 1 || list->front().getAsString() != value)
    fail(key, "[\"" + value + "\"]", describe(*given), mend);
}

/// How a feature that is not supported can be done without.
static std::string without(StringRef feature) {
  return (feature + " is not supported for this model type: use a checkpoint without it").str();
}

void ConfigReader::expectFalse(StringRef key, StringRef feature) {
  if (booleanOr(key, false))
    fail(key, "false", "true", without(feature));
}

void ConfigReader::expectInteger(StringRef key, int64_t value, StringRef feature) {
  const json::Value *given = find(key);
  if (given && given->getAsInteger() != value)
    fail(key, Twine(value), describe(*given), without(feature));
}

void ConfigReader::expectEmptyList(StringRef key, StringRef feature) {
  const json::Value *given = find(key);
  if (!given)
    return;
  const json::Array *list = given->getAsArray();
  if (!list || !list->empty())
    fail(key, "[]", describe(*given), without(feature));
}

void ConfigReader::expectAbsent(StringRef key, StringRef feature) {
  if (const json::Value *given = find(key))
    fail(key, "null", describe(*given), without(feature));
}

//===----------------------------------------------------------------------===//
// The rest
//===----------------------------------------------------------------------===//

void ConfigReader::ignore(ArrayRef<StringRef> keys) {
  read.insert_range(keys);
}

void ConfigReader::expectNoOthers(StringRef modelType) {
  // In alphabetical order: an object's own order is that of a hash table.
  std::vector<StringRef> others;
  for (const auto &[key, value] : fields)
    if (!StringRef(key).starts_with("_") && !read.contains(StringRef(key)))
      others.push_back(StringRef(key));
  if (others.empty())
    return;
  StringRef key = *std::min_element(others.begin(), others.end());
  fail(key, "only fields known for " + modelType, describe(*fields.get(key)),
       "if it changes nothing that a decode step computes, remove it or begin its name with '_'");
}

} // namespace megalith::models
