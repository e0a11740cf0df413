//===- Page.cpp - a plan as one HTML page -----------------------------------===//

#include "tools/report/Page.h"

#include "tools/explain/Text.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace megalith::report {

static StringRef part(StringRef name) {
  return pageParts().find(("tools/report/page/" + name).str())->second;
}

/// JSON that may stand in a script element: nothing in it ends the element. '<' occurs in texts
/// only.
static std::string embedded(StringRef json) {
  std::string text;
  text.reserve(json.size());
  for (char c : json)
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  return text;
}

std::string page(const explain::Facts &facts, StringRef predicted, StringRef measured) {
  std::string json;
  {
    raw_string_ostream stream(json);
    json::OStream os(stream);
    explain::toJson(facts, os);
  }
  const std::map<StringRef, std::string> values = {
      {"STYLE", part("style.css").str()},
      {"SCRIPT",
       (part("model.js") + part("timeline.js") + part("sections.js") + part("main.js")).str()},
      {"FACTS", embedded(json)},
      {"PREDICTED", embedded(predicted)},
      {"MEASURED", embedded(measured)},
  };
  std::string out;
  StringRef rest = part("page.html");
  while (!rest.empty()) {
    auto [before, after] = rest.split('@');
    out += before;
    auto [name, behind] = after.split('@');
    if (const auto found = values.find(name); found != values.end())
      out += found->second;
    rest = behind;
  }
  return out;
}

} // namespace megalith::report
