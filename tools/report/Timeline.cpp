//===- Timeline.cpp - timelines from files, checked -------------------------===//

#include "tools/report/Timeline.h"

#include "runtime/json_text.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <map>
#include <optional>

using namespace llvm;

namespace megalith::report {

namespace {

constexpr int64_t kOldestVersion = 1, kNewestVersion = 2;
constexpr int64_t kWarps = 11; ///< of a CTA (runtime/abi.h)
/// Times are ns of one run's clock, and 11 days are too many for one: beyond, doubles lose the
/// tenths that are written.
constexpr double kLongest = 1e15;

/// Tells where in the file something is not as expected.
class Checker {
public:
  Checker(StringRef file, const runtime::Plan &plan, Origin origin)
      : file(file), plan(plan), origin(origin) {}

  Error check(const json::Value &value) {
    const json::Object *root = value.getAsObject();
    if (!root || root->getString("format").value_or("") != "megalith-trace")
      return wrong("",
                   "a timeline (\"format\": \"megalith-trace\"), as megalith bench --trace, run "
                   "--trace and simulate --json write it",
                   "something else");
    const int64_t version = root->getInteger("version").value_or(0);
    if (version < kOldestVersion || version > kNewestVersion)
      return wrong("version", formatv("{0} to {1}", kOldestVersion, kNewestVersion).str(),
                   std::to_string(version));
    if (Error error = checkOrigin(*root))
      return error;
    if (Error error = checkPlan(*root))
      return error;
    if (Error error = checkNames(*root))
      return error;
    if (Error error = checkSummary(*root))
      return error;
    if (Error error = checkPath(*root))
      return error;
    const json::Array *launches = root->getArray("launches");
    if (!launches || launches->empty())
      return wrong("launches", "at least one launch", "none");
    for (size_t i = 0; i < launches->size(); ++i)
      if (Error error = checkLaunch((*launches)[i], formatv("launches[{0}]", i)))
        return error;
    return Error::success();
  }

private:
  Error wrong(const std::string &where, const std::string &expected, const std::string &got) {
    return createStringError(formatv("{0}{1}{2}: expected {3} but got {4}", file,
                                     where.empty() ? "" : ", ", where, expected, got)
                                 .str());
  }

  /// That a prediction is not shown as measured, nor the other way round.
  Error checkOrigin(const json::Object &root) {
    const StringRef source =
        root.getString("source").value_or(root.get("source") ? "" : "measured");
    if (source != "measured" && source != "predicted")
      return wrong("source", "\"measured\" or \"predicted\"", "something else");
    const bool isPredicted = source == "predicted";
    if (isPredicted && origin == Origin::Measured)
      return wrong("source", "what was measured, by megalith bench or run --trace",
                   "what was predicted, by megalith simulate; give it as --predicted");
    if (!isPredicted && origin == Origin::Predicted)
      return wrong("source", "what was predicted, by megalith simulate --json",
                   "what was measured; give it as --trace");
    return Error::success();
  }

  static bool isTime(std::optional<double> number) {
    return number && std::abs(*number) <= kLongest;
  }

  Error checkPlan(const json::Object &root) {
    auto text = [](StringRef model, StringRef target, int64_t sms, int64_t rows) {
      return formatv("{0} for {1}, {2} SMs, rows {3}", model, target, sms, rows).str();
    };
    const std::string wanted = text(plan.model, plan.target, plan.sms, plan.rows);
    const std::string found =
        text(root.getString("model").value_or("?"), root.getString("target").value_or("?"),
             root.getInteger("sms").value_or(0), root.getInteger("rows").value_or(0));
    return wanted == found ? Error::success() : wrong("", "a timeline of " + wanted, found);
  }

  Error checkNames(const json::Object &root) {
    const json::Object *names = root.getObject("names");
    if (!names)
      return wrong("names", "stages by kernel", "nothing");
    for (const auto &[kernel, entry] : *names) {
      const json::Object *known = entry.getAsObject();
      const json::Array *list = known ? known->getArray("stages") : nullptr;
      if (!list)
        return wrong("names." + kernel.str(), "stages", "nothing");
      for (const json::Value &stage : *list)
        if (!stage.getAsString())
          return wrong("names." + kernel.str(), "names", "something else");
      stages[kernel.str()] = int64_t(list->size());
    }
    return Error::success();
  }

  /// Every member of `object`, an array of objects, has those texts and numbers.
  Error checkList(const json::Object &object, StringRef key, const std::string &where,
                  ArrayRef<StringRef> texts, ArrayRef<StringRef> numbers) {
    const json::Array *list = object.getArray(key);
    if (!list)
      return wrong(where + key.str(), "a list", "nothing");
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string place = formatv("{0}{1}[{2}]", where, key, i);
      const json::Object *entry = (*list)[i].getAsObject();
      if (!entry)
        return wrong(place, "an object", "something else");
      for (StringRef name : texts)
        if (!entry->getString(name))
          return wrong(place + "." + name.str(), "text", "something else");
      for (StringRef name : numbers) {
        const std::optional<double> number = entry->getNumber(name);
        if (!number)
          return wrong(place + "." + name.str(), "a number", "something else");
        if (!isTime(number))
          return wrong(place + "." + name.str(), "a number within 1e15",
                       formatv("{0:E}", *number).str());
      }
    }
    return Error::success();
  }

  Error checkSummary(const json::Object &root) {
    const json::Object *summary = root.getObject("summary");
    if (!summary)
      return wrong("summary", "an object", "nothing");
    if (Error error = checkList(*summary, "kernels", "summary.", {"kernel"}, {}))
      return error;
    for (const json::Value &value : *summary->getArray("kernels")) {
      const json::Object &kernel = *value.getAsObject();
      const std::string where = "summary of " + kernel.getString("kernel")->str() + ", ";
      for (StringRef key : {"period", "exchange", "chain"})
        if (Error error = checkSpread(kernel, key, where))
          return error;
      if (Error error = checkList(kernel, "stages", where, {"role", "stage"},
                                  {"length", "waited", "stalled"}))
        return error;
      for (const json::Value &stage : *kernel.getArray("stages"))
        if (!stage.getAsObject()->getArray("waits"))
          return wrong(where + "stages", "waits of each", "none");
      if (Error error = checkList(kernel, "hops", where, {"edge", "from", "to"}, {}))
        return error;
      for (const json::Value &hop : *kernel.getArray("hops"))
        if (Error error = checkSpread(*hop.getAsObject(), "all", where + "hops, "))
          return error;
    }
    return Error::success();
  }

  /// Where it is there it is whole.
  Error checkSpread(const json::Object &object, StringRef key, const std::string &where) {
    if (!object.get(key))
      return Error::success();
    const json::Object *spread = object.getObject(key);
    for (StringRef name : {"p10", "median", "p90"})
      if (!spread || !spread->getNumber(name))
        return wrong(where + key.str(), "p10, median and p90", "something else");
    return Error::success();
  }

  Error checkPath(const json::Object &root) {
    const json::Object *path = root.getObject("path");
    if (!path)
      return root.get("path") ? wrong("path", "an object", "something else") : Error::success();
    if (!path->getInteger("launches"))
      return wrong("path.launches", "a number", "something else");
    if (Error error = checkList(*path, "segments", "path.", {"kernel", "kind"},
                                {"sm", "stage", "begin", "end"}))
      return error;
    for (const json::Value &value : *path->getArray("segments")) {
      const json::Object &segment = *value.getAsObject();
      if (Error error = checkStage(segment.getString("kernel")->str(),
                                   segment.getInteger("stage").value_or(-1), "path.segments"))
        return error;
    }
    return checkList(*path, "totals", "path.", {"stage", "kind"}, {"ns"});
  }

  Error checkStage(const std::string &kernel, int64_t stage, const std::string &where) {
    const auto found = stages.find(kernel);
    if (found == stages.end())
      return wrong(where, "a kernel of \"names\"", "'" + kernel + "'");
    if (stage < 0 || stage >= found->second)
      return wrong(where, formatv("a stage below {0} of {1}", found->second, kernel),
                   std::to_string(stage));
    return Error::success();
  }

  Error checkLaunch(const json::Value &value, const std::string &where) {
    const json::Object *launch = value.getAsObject();
    if (!launch || !launch->getString("kernel"))
      return wrong(where, "a launch with its kernel", "something else");
    const std::string kernel = launch->getString("kernel")->str();
    if (!launch->getInteger("number") || !launch->getInteger("layer"))
      return wrong(where, "number and layer", "something else");
    if (Error error = checkList(*launch, "warps", where + ".", {}, {"sm", "warp", "begin", "end"}))
      return error;
    if (launch->getArray("warps")->empty())
      return wrong(where + ".warps", "at least one warp", "none");
    for (const json::Value &entry : *launch->getArray("warps")) {
      const json::Object &warp = *entry.getAsObject();
      const int64_t sm = warp.getInteger("sm").value_or(-1),
                    number = warp.getInteger("warp").value_or(-1);
      if (sm < 0 || sm >= plan.sms || number < 0 || number >= kWarps)
        return wrong(where + ".warps",
                     formatv("SMs below {0} and warps below {1}", plan.sms, kWarps),
                     formatv("SM {0}, warp {1}", sm, number));
      const json::Array *parts = warp.getArray("stages");
      if (!parts)
        return wrong(where + ".warps", "stages of each", "none");
      for (const json::Value &part : *parts)
        if (Error error =
                checkPart(part, kernel, formatv("{0}, SM {1}, warp {2}", where, sm, number)))
          return error;
    }
    return Error::success();
  }

  Error checkPart(const json::Value &value, const std::string &kernel, const std::string &where) {
    constexpr size_t kNumbers = 8, kAlways = 5;
    const json::Array *part = value.getAsArray();
    bool isWhole = part && part->size() == kNumbers;
    for (size_t i = 0; isWhole && i < kNumbers; ++i)
      isWhole = isTime((*part)[i].getAsNumber()) || (i >= kAlways && (*part)[i].getAsNull());
    if (!isWhole)
      return wrong(where,
                   "[stage, begin, end, waited, stalled, ready, first, last], each within 1e15",
                   "something else");
    return checkStage(kernel, (*part)[0].getAsInteger().value_or(-1), where);
  }

  StringRef file;
  const runtime::Plan &plan;
  Origin origin;
  std::map<std::string, int64_t> stages; ///< how many, by kernel
};

/// Numbers to a tenth: nanoseconds of clocks that tick in 32.
void write(const json::Value &value, raw_ostream &os) {
  if (const json::Object *object = value.getAsObject()) {
    os << '{';
    bool isFirst = true;
    for (const auto &[key, member] : *object) {
      os << (isFirst ? "" : ",") << json::Value(key.str()) << ':';
      isFirst = false;
      write(member, os);
    }
    os << '}';
  } else if (const json::Array *array = value.getAsArray()) {
    os << '[';
    for (size_t i = 0; i < array->size(); ++i) {
      os << (i ? "," : "");
      write((*array)[i], os);
    }
    os << ']';
  } else if (auto integer = value.getAsInteger()) {
    os << *integer;
  } else if (auto number = value.getAsNumber()) {
    const double tenths = std::round(*number * 10);
    if (std::abs(tenths) >= 1e15)
      os << value;
    else if (std::fmod(tenths, 10) == 0)
      os << int64_t(tenths / 10);
    else
      os << formatv("{0:f1}", tenths / 10);
  } else {
    os << value;
  }
}

} // namespace

Expected<std::string> checkTimeline(StringRef text, StringRef file, const runtime::Plan &plan,
                                    Origin origin) {
  Expected<json::Value> value = runtime::parseJson(text);
  if (!value)
    return createStringError(
        formatv("{0}: expected a timeline in JSON but got {1}", file, toString(value.takeError()))
            .str());
  if (Error error = Checker(file, plan, origin).check(*value))
    return error;
  std::string out;
  raw_string_ostream stream(out);
  write(*value, stream);
  return out;
}

} // namespace megalith::report
