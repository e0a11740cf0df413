//===- CostTable.cpp - What a target's machine costs ----------------------===//

#include "passes/costs/CostTable.h"

#include "runtime/json_text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using llvm::Error;
using llvm::Expected;
using llvm::formatv;
using llvm::StringRef;
namespace json = llvm::json;

namespace megalith::costs {

template <typename... Args> static Error problem(const char *text, Args &&...args) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 formatv(text, std::forward<Args>(args)...).str());
}

llvm::ArrayRef<StringRef> costUnits() {
  static constexpr StringRef units[] = {"us", "ns", "GB/s", "B/clk", "MHz", "ns/KB", "1/us"};
  return units;
}

const Cost *CostTable::find(StringRef name) const {
  auto found = llvm::find_if(costs, [&](const Cost &cost) { return cost.name == name; });
  return found == costs.end() ? nullptr : &*found;
}

Expected<double> CostTable::value(StringRef name) const {
  const Cost *cost = find(name);
  if (!cost)
    return problem("cost table of {0}: expected a cost '{1}' but there is none; make a new table "
                   "with megalith calibrate --target {0}",
                   target, name);
  if (!cost->measured)
    return problem("cost table of {0}: '{1}' was not measured: {2}", target, name, cost->note);
  return cost->measured->value;
}

namespace {

const char *kindOf(const json::Value &value) {
  switch (value.kind()) {
  case json::Value::Null:
    return "null";
  case json::Value::Boolean:
    return "a boolean";
  case json::Value::Number:
    return "a number";
  case json::Value::String:
    return "a string";
  case json::Value::Array:
    return "an array";
  case json::Value::Object:
    return "an object";
  }
  return "nothing";
}

/// Fields of one object, taken one by one; errors say where it stands.
class Fields {
public:
  Fields(const json::Object &object, std::string where)
      : object(&object), where(std::move(where)) {}

  Error wrong(StringRef field, StringRef expected) const {
    const json::Value *value = object->get(field);
    return problem("{0}: {1}: expected {2} but got {3}", where, field, expected,
                   value ? kindOf(*value) : "nothing");
  }
  Error text(StringRef field, std::string &out) const {
    auto value = object->getString(field);
    if (!value || value->empty())
      return wrong(field, "a string that is not empty");
    out = value->str();
    return Error::success();
  }
  Error integer(StringRef field, int64_t least, int64_t &out) const {
    auto value = object->getInteger(field);
    if (!value || *value < least)
      return value ? problem("{0}: {1}: expected at least {2} but got {3}", where, field, least,
                             *value)
                   : wrong(field, "a whole number");
    out = *value;
    return Error::success();
  }
  Error amount(StringRef field, double &out) const {
    auto value = object->getNumber(field);
    if (!value)
      return wrong(field, "a number");
    if (!std::isfinite(*value) || *value < 0)
      return problem("{0}: {1}: expected a number from 0 on but got {2}", where, field, *value);
    out = *value;
    return Error::success();
  }
  bool has(StringRef field) const { return object->get(field) != nullptr; }
  bool isNull(StringRef field) const {
    const json::Value *value = object->get(field);
    return value && value->kind() == json::Value::Null;
  }
  Error only(std::initializer_list<StringRef> known) const {
    for (const auto &entry : *object)
      if (!llvm::is_contained(known, StringRef(entry.first)))
        return problem("{0}: expected no field '{1}'; a newer version of the table?", where,
                       StringRef(entry.first));
    return Error::success();
  }

private:
  const json::Object *object;
  std::string where;
};

bool isName(StringRef name) {
  llvm::SmallVector<StringRef> words;
  name.split(words, '.');
  return llvm::all_of(words, [](StringRef word) {
    return !word.empty() && llvm::all_of(word, [](char c) {
      return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    });
  });
}

Error parseMeasured(const Fields &fields, const std::string &where, Cost &cost) {
  Measured measured;
  if (Error error = fields.only({"name", "unit", "value", "p10", "p90", "runs", "how"}))
    return error;
  if (Error error = fields.amount("value", measured.value))
    return error;
  if (Error error = fields.amount("p10", measured.p10))
    return error;
  if (Error error = fields.amount("p90", measured.p90))
    return error;
  if (Error error = fields.integer("runs", 1, measured.runs))
    return error;
  if (measured.p10 > measured.value || measured.value > measured.p90)
    return problem("{0}: expected p10 <= value <= p90 but got {1}, {2}, {3}", where,
                   llvm::format("%.6g", measured.p10), llvm::format("%.6g", measured.value),
                   llvm::format("%.6g", measured.p90));
  cost.measured = measured;
  return fields.text("how", cost.note);
}

Expected<Cost> parseCost(const json::Value &value, const std::string &where) {
  const json::Object *object = value.getAsObject();
  if (!object)
    return problem("{0}: expected an object but got {1}", where, kindOf(value));
  Cost cost;
  Fields fields(*object, where);
  if (Error error = fields.text("name", cost.name))
    return error;
  if (!isName(cost.name))
    return problem("{0}: name: expected words of a-z, 0-9 and _ joined by dots but got '{1}'",
                   where, cost.name);
  const std::string named = where + " (" + cost.name + ")";
  fields = Fields(*object, named);
  if (Error error = fields.text("unit", cost.unit))
    return error;
  if (!llvm::is_contained(costUnits(), StringRef(cost.unit)))
    return problem("{0}: unit: expected one of {1} but got '{2}'", named,
                   llvm::join(costUnits(), ", "), cost.unit);
  if (!fields.has("value"))
    return fields.wrong("value", "a number or null");
  if (!fields.isNull("value")) {
    if (Error error = parseMeasured(fields, named, cost))
      return error;
    return cost;
  }
  if (Error error = fields.only({"name", "unit", "value", "reason"}))
    return error;
  if (Error error = fields.text("reason", cost.note))
    return error;
  return cost;
}

Error parseDevice(const json::Object &root, StringRef file, CostTable &table) {
  const json::Object *device = root.getObject("device");
  if (!device)
    return Fields(root, file.str()).wrong("device", "an object");
  Fields fields(*device, (file + ": device").str());
  if (Error error = fields.only({"name", "sms", "driver_cuda", "nvrtc"}))
    return error;
  if (Error error = fields.text("name", table.device))
    return error;
  if (Error error = fields.integer("sms", 1, table.sms))
    return error;
  if (Error error = fields.integer("driver_cuda", 1, table.driverCuda))
    return error;
  return fields.text("nvrtc", table.nvrtc);
}

} // namespace

Expected<CostTable> parseCostTable(StringRef text, StringRef file) {
  auto root = runtime::parseJson(text);
  if (!root)
    return problem("{0}: expected a cost table in JSON: {1}", file,
                   llvm::toString(root.takeError()));
  const json::Object *object = root->getAsObject();
  if (!object)
    return problem("{0}: expected an object but got {1}", file, kindOf(*root));
  // Of other files a version's number would be compared with ours.
  if (!object->getObject("device") && !object->getArray("costs"))
    return problem("{0}: expected a cost table, with \"device\" and \"costs\", but got another "
                   "object{1}; megalith calibrate makes one",
                   file,
                   object->getString("format")
                       ? formatv(", of format '{0}'", *object->getString("format")).str()
                       : std::string());
  Fields fields(*object, file.str());
  int64_t version = 0;
  if (Error error = fields.integer("version", 0, version))
    return error;
  if (version != kVersion)
    return problem("{0}: version: expected {1} but got {2}; make a new table with megalith "
                   "calibrate",
                   file, kVersion, version);
  if (Error error = fields.only({"version", "target", "device", "costs"}))
    return error;
  CostTable table;
  if (Error error = fields.text("target", table.target))
    return error;
  if (Error error = parseDevice(*object, file, table))
    return error;
  const json::Array *costs = object->getArray("costs");
  if (!costs)
    return fields.wrong("costs", "an array");
  llvm::StringSet<> seen;
  for (size_t i = 0; i < costs->size(); ++i) {
    const std::string where = formatv("{0}: cost {1}", file, i);
    auto cost = parseCost((*costs)[i], where);
    if (!cost)
      return cost.takeError();
    if (!seen.insert(cost->name).second)
      return problem("{0}: expected every name once but '{1}' comes again", where, cost->name);
    table.costs.push_back(std::move(*cost));
  }
  return table;
}

Expected<CostTable> readCostTable(const std::string &file) {
  llvm::sys::fs::file_status status;
  // Some never end: /dev/zero.
  if (!llvm::sys::fs::status(file, status) &&
      status.type() == llvm::sys::fs::file_type::character_file)
    return problem("{0}: expected a cost table but got a device; name a file", file);
  auto text = llvm::MemoryBuffer::getFile(file);
  if (!text)
    return problem("{0}: {1}; megalith calibrate makes a cost table", file,
                   text.getError().message());
  return parseCostTable((*text)->getBuffer(), file);
}

/// On one line, so that tables are easy to compare.
static std::string toJson(const Cost &cost) {
  std::string text;
  llvm::raw_string_ostream os(text);
  json::OStream out(os);
  const auto number = [&](StringRef field, double value) {
    out.attributeBegin(field); // six digits are more than any figure has
    out.rawValue(formatv("{0}", llvm::format("%.6g", value)).str());
    out.attributeEnd();
  };
  out.object([&] {
    out.attribute("name", cost.name);
    out.attribute("unit", cost.unit);
    if (cost.measured) {
      number("value", cost.measured->value);
      number("p10", cost.measured->p10);
      number("p90", cost.measured->p90);
      out.attribute("runs", cost.measured->runs);
      out.attribute("how", cost.note);
    } else {
      out.attribute("value", nullptr);
      out.attribute("reason", cost.note);
    }
  });
  return text;
}

std::string toJson(const CostTable &table) {
  const auto quoted = [](StringRef text) { return formatv("{0}", json::Value(text)).str(); };
  std::string text =
      formatv("{{\"version\": {0},\n \"target\": {1},\n \"device\": {{\"name\": {2}, "
              "\"sms\": {3}, \"driver_cuda\": {4}, \"nvrtc\": {5}},\n \"costs\": [",
              kVersion, quoted(table.target), quoted(table.device), table.sms, table.driverCuda,
              quoted(table.nvrtc));
  for (const Cost &cost : table.costs)
    text += (&cost == &table.costs.front() ? "\n  " : ",\n  ") + toJson(cost);
  return text + "\n ]\n}\n";
}

std::string toText(const CostTable &table) {
  std::string text = formatv("{0} on {1} ({2} SMs), driver for CUDA {3}.{4}, NVRTC {5}\n",
                             table.target, table.device, table.sms, table.driverCuda / 1000,
                             table.driverCuda % 1000 / 10, table.nvrtc);
  llvm::raw_string_ostream os(text);
  size_t width = 0;
  for (const Cost &cost : table.costs)
    width = std::max(width, cost.name.size());
  for (const Cost &cost : table.costs) {
    os << llvm::left_justify(cost.name, unsigned(width));
    if (cost.measured)
      os << formatv("  {0} {1}  [{2} .. {3}]\n", llvm::format("%10.4g", cost.measured->value),
                    llvm::left_justify(cost.unit, 5), llvm::format("%.4g", cost.measured->p10),
                    llvm::format("%.4g", cost.measured->p90));
    else
      os << formatv("  {0} {1}  {2}\n", llvm::right_justify("-", 10),
                    llvm::left_justify(cost.unit, 5), cost.note);
  }
  return text;
}

} // namespace megalith::costs
