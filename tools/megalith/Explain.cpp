//===- Explain.cpp - megalith explain ---------------------------------------===//

#include "tools/explain/Text.h"
#include "tools/megalith/Commands.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/PlanFacts.h"

#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace megalith::cli {

static Error runExplain(const Arguments &arguments) {
  if (arguments.has("json") && !arguments.subject().empty())
    return failure(Exit::CommandLine,
                   "--json: expected without a stage or edge, as it tells of all, but got '{0}'; "
                   "leave one of them out",
                   arguments.subject());
  Expected<PlanFacts> plan = readFacts(arguments);
  if (!plan)
    return plan.takeError();
  if (arguments.has("json")) {
    std::string text;
    raw_string_ostream stream(text);
    json::OStream os(stream, 1);
    explain::toJson(plan->facts, os);
    os.flush();
    return writeText("", text + "\n");
  }
  if (arguments.subject().empty())
    return writeText("", explain::overview(plan->facts));
  Expected<std::string> text = explain::about(plan->facts, arguments.subject());
  if (!text)
    return with(Exit::CommandLine, text.takeError());
  return writeText("", *text);
}

static constexpr Option kOptions[] = {
    kContextOption, kExpertsOption, kCostsOption, kCodeOption, {"json", "", "all of it as JSON"},
};

const Command kExplain = {
    {"explain", "why a plan is as it is, and what limits its time", "<folder>",
     "<target>/rows<n> of megalith compile's output", kOptions,
     "megalith explain out/sm_90a/rows1 o_proj", "<stage or edge>",
     "a stage, exchange, edge, buffer, kernel, or kernel/name (all)"},
    runExplain,
};

} // namespace megalith::cli
