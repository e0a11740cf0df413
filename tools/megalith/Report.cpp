//===- Report.cpp - megalith report -----------------------------------------===//

#include "tools/megalith/Commands.h"
#include "tools/megalith/Files.h"
#include "tools/megalith/PlanFacts.h"
#include "tools/megalith/Prediction.h"
#include "tools/report/Page.h"
#include "tools/report/Timeline.h"

#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace megalith::cli {

/// The timeline that the option names, or "".
static Expected<std::string> timeline(const Arguments &arguments, StringRef option,
                                      const runtime::Plan &plan, report::Origin origin) {
  if (!arguments.has(option))
    return "";
  StringRef file = arguments.text(option);
  Expected<std::string> text = readText(file, "a timeline in JSON");
  if (!text)
    return text.takeError();
  Expected<std::string> checked = report::checkTimeline(*text, file, plan, origin);
  if (!checked)
    return with(Exit::Input, checked.takeError());
  return checked;
}

/// The predicted timeline: of the file given, else simulated; "", and why, where it cannot be.
static Expected<std::string> prediction(const Arguments &arguments, const PlanFacts &plan) {
  if (arguments.has("predicted"))
    return timeline(arguments, "predicted", plan.facts.plan, report::Origin::Predicted);
  Expected<std::string> text = predictedTimeline(plan.folder, plan.facts.step.context, arguments);
  if (!text) {
    errs() << "no predicted timeline: " << toString(text.takeError()) << "\n";
    return "";
  }
  Expected<std::string> checked =
      report::checkTimeline(*text, "prediction", plan.facts.plan, report::Origin::Predicted);
  if (!checked)
    return with(Exit::Run, checked.takeError());
  return checked;
}

static Error runReport(const Arguments &arguments) {
  Expected<PlanFacts> plan = readFacts(arguments);
  if (!plan)
    return plan.takeError();
  Expected<std::string> measured =
      timeline(arguments, "trace", plan->facts.plan, report::Origin::Measured);
  if (!measured)
    return measured.takeError();
  Expected<std::string> predicted = prediction(arguments, *plan);
  if (!predicted)
    return predicted.takeError();
  return writeText(arguments.text("o"), report::page(plan->facts, *predicted, *measured));
}

static constexpr Option kOptions[] = {
    {"o", "<file>", "the page; one file that opens in any browser", true},
    {"trace", "<file>", "what was measured: of megalith bench or run --trace"},
    {"predicted", "<file>", "what was predicted, by megalith simulate --json (simulated now)"},
    kContextOption,
    kExpertsOption,
    kCostsOption,
    kCodeOption,
};

const Command kReport = {
    {"report", "a plan, its timelines and their reasons as one HTML page", "<folder>",
     "<target>/rows<n> of megalith compile's output", kOptions,
     "megalith report out/sm_90a/rows1 --trace trace.json -o report.html"},
    runReport,
};

} // namespace megalith::cli
