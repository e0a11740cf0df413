//===- Import.cpp - Timelines from files ------------------------------------===//

#include "tools/trace/Import.h"

#include "tools/trace/Worker.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <cmath>

using namespace megalith::runtime;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;
namespace json = llvm::json;

namespace megalith::trace {

namespace {

class Reader {
public:
  Reader(StringRef file, const Plan &plan) : file(file), plan(plan) {}

  Expected<Recorded> read(const json::Value &value) {
    const json::Object *root = value.getAsObject();
    if (!root || root->getString("format").value_or("") != "megalith-trace")
      return wrong("format", "\"megalith-trace\"");
    out.isPredicted = root->getString("source").value_or("") == "predicted";
    if (root->getInteger("rows").value_or(0) != plan.rows ||
        root->getInteger("sms").value_or(0) != plan.sms)
      return wrong("rows, sms", llvm::formatv("{0}, {1}: the plan's", plan.rows, plan.sms).str());
    const json::Object *names = root->getObject("names");
    for (const Kernel &kernel : plan.kernels)
      if (const json::Object *entry = names ? names->getObject(kernel.name) : nullptr)
        if (Error error = checkStages(kernel, *entry))
          return error;
    if (const json::Object *summary = root->getObject("summary"))
      addSummary(*summary);
    if (const json::Object *path = root->getObject("path"))
      if (const int64_t count = path->getInteger("launches").value_or(0); count > 0)
        out.pathPeriod =
            (path->getNumber("end").value_or(0) - path->getNumber("begin").value_or(0)) /
            double(count);
    const json::Array *launches = root->getArray("launches");
    if (!launches)
      return wrong("launches", "a list");
    for (const json::Value &launch : *launches)
      if (Error error = addLaunch(launch.getAsObject()))
        return error;
    return std::move(out);
  }

private:
  Error wrong(StringRef place, const std::string &expected) const {
    return llvm::createStringError(
        llvm::formatv("{0}, {1}: expected {2}, in a timeline that megalith bench --trace or run "
                      "--trace wrote for this plan",
                      file, place, expected)
            .str());
  }

  /// That a kernel's stages are the plan's.
  Error checkStages(const Kernel &kernel, const json::Object &entry) const {
    const json::Array *stages = entry.getArray("stages");
    const size_t count = kernel.trace ? kernel.trace->stages.size() : 0;
    bool same = stages && (stages->empty() || stages->size() == count);
    for (size_t i = 0; same && i < stages->size(); ++i)
      same = (*stages)[i].getAsString().value_or("") == kernel.trace->stages[i].name;
    return same ? Error::success()
                : wrong("names." + kernel.name, "the stages of the plan's kernel");
  }

  void addSummary(const json::Object &summary) {
    const json::Array *kernels = summary.getArray("kernels");
    if (!kernels)
      return;
    for (const json::Value &value : *kernels) {
      const json::Object *kernel = value.getAsObject();
      if (!kernel)
        continue;
      Recorded::Kernel &added = out.kernels.emplace_back();
      added.kernel = kernel->getString("kernel").value_or("").str();
      if (const json::Object *period = kernel->getObject("period"))
        added.period = period->getNumber("median").value_or(0);
      if (const json::Array *stages = kernel->getArray("stages"))
        for (const json::Value &entry : *stages)
          if (const json::Object *stage = entry.getAsObject())
            added.stages.push_back({stage->getString("role").value_or("").str(),
                                    stage->getString("stage").value_or("").str(),
                                    stage->getNumber("length").value_or(0)});
    }
  }

  Error addLaunch(const json::Object *launch) {
    const int64_t index = launch ? launch->getInteger("launch").value_or(-1) : -1;
    const json::Array *warps = launch ? launch->getArray("warps") : nullptr;
    if (index < 0 || index >= int64_t(plan.launches.size()) || !warps ||
        launch->getString("kernel").value_or("") != plan.launches[size_t(index)].kernel)
      return wrong("launches", "launches of the plan");
    LaunchTrace &added = out.trace.launches.emplace_back();
    added.launch = index;
    added.number = uint64_t(launch->getInteger("number").value_or(0));
    added.clocksPerNs = launch->getNumber("clocks_per_ns").value_or(1);
    const Kernel &kernel = *plan.kernel(plan.launches[size_t(index)].kernel);
    for (const json::Value &value : *warps) {
      const json::Object *warp = value.getAsObject();
      const json::Array *stages = warp ? warp->getArray("stages") : nullptr;
      const int64_t number = warp ? warp->getInteger("warp").value_or(-1) : -1;
      if (!stages || number < 0 || number >= kWarpsPerCta)
        return wrong("launches.warps", "a warp from 0 to 10 with its stages");
      WarpTrace &to = added.warps.emplace_back(WarpTrace{warp->getInteger("sm").value_or(0),
                                                         number,
                                                         warp->getNumber("begin").value_or(0),
                                                         warp->getNumber("end").value_or(0),
                                                         {}});
      for (const json::Value &part : *stages)
        if (Error error = addStage(kernel, part.getAsArray(), to))
          return error;
    }
    return Error::success();
  }

  Error addStage(const Kernel &kernel, const json::Array *part, WarpTrace &warp) const {
    constexpr size_t kPlaces = 8;
    if (!part || part->size() != kPlaces)
      return wrong("launches.warps.stages", "arrays of eight");
    auto number = [&](size_t place) { return (*part)[place].getAsNumber(); };
    const int64_t stage = (*part)[0].getAsInteger().value_or(-1);
    const bool isKnown = kernel.trace && stage >= 0 && stage < int64_t(kernel.trace->stages.size());
    if (!isKnown || !number(1) || !number(2) || !number(3) || !number(4))
      return wrong("launches.warps.stages", "a stage's number and four times, then three or null");
    warp.stages.push_back(
        {stage, *number(1), *number(2), *number(3), *number(4), number(5), number(6), number(7)});
    return Error::success();
  }

  StringRef file;
  const Plan &plan;
  Recorded out;
};

} // namespace

Expected<Recorded> fromJson(StringRef text, StringRef file, const Plan &plan) {
  Expected<json::Value> value = json::parse(text);
  if (!value)
    return llvm::createStringError(
        llvm::formatv("{0}: {1}", file, llvm::toString(value.takeError())).str());
  return Reader(file, plan).read(*value);
}

static std::string beyond(double error, double limit) {
  return std::abs(error) > limit ? llvm::formatv("  beyond {0:F0} %", limit).str() : "";
}

/// A line of the table; counts it.
static void addLine(Comparison &out, StringRef what, double measured, double predicted,
                    double limit) {
  const double error = measured > 0 ? 100 * (predicted / measured - 1) : 0.0;
  out.text += llvm::formatv("  {0,-14}{1,10:F2}{2,11:F2}{3,9:F1} %{4}\n", what, measured / 1000,
                            predicted / 1000, error, beyond(error, limit))
                  .str();
  ++out.compared;
  out.beyond += std::abs(error) > limit;
}

Comparison comparison(const Recorded &measured, const Summary &predicted, const Plan &plan) {
  Comparison out;
  for (const KernelSummary &kernel : predicted.kernels) {
    const auto found = llvm::find_if(
        measured.kernels, [&](const Recorded::Kernel &k) { return k.kernel == kernel.kernel; });
    if (found == measured.kernels.end())
      continue;
    out.text += llvm::formatv("kernel {0}, us          {1}  predicted     error\n", kernel.kernel,
                              measured.isPredicted ? " another" : "measured");
    if (found->period > 0 && kernel.period.count) {
      addLine(out, "a launch", found->period, kernel.period.median, kLaunchLimit);
      if (measured.pathPeriod > 0) {
        const double gap = 100 * (measured.pathPeriod / found->period - 1);
        out.text += llvm::formatv("  its path      {0,10:F2} of {3} {1,9:F1} %{2}\n",
                                  measured.pathPeriod / 1000, gap, beyond(gap, kPathLimit),
                                  measured.isPredicted ? "another " : "measured")
                        .str();
        ++out.compared;
        out.beyond += std::abs(gap) > kPathLimit;
      }
    }
    for (const RoleStage &role : kernel.roles) {
      const auto &stages = plan.kernel(kernel.kernel)->trace->stages;
      const auto stage =
          llvm::find_if(stages, [&](const TraceStage &s) { return s.name == role.stage; });
      if (stage == stages.end() || role.role != workerOf(*stage))
        continue;
      for (const Recorded::Stage &other : found->stages)
        if (other.role == role.role && other.stage == role.stage)
          addLine(out, role.stage, other.length, role.length, kStageLimit);
    }
  }
  return out;
}

} // namespace megalith::trace
