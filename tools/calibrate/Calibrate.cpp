//===- Calibrate.cpp - Measuring a target's cost table --------------------===//

#include "tools/calibrate/Calibrate.h"

#include "runtime/error.h"
#include "tools/calibrate/Measures.h"

#include <algorithm>
#include <cmath>

using llvm::Error;
using llvm::Expected;

namespace megalith::calibrate {

/// What a table has a place for and this program does not measure.
static void addUnmeasured(costs::CostTable &table) {
  const struct {
    const char *name, *unit, *reason;
  } missing[] = {
      {"dsmem.reduce", "ns", "needs clusters, which the runtime's launches do not have"},
  };
  for (const auto &m : missing)
    table.costs.push_back({m.name, m.unit, std::nullopt, m.reason});
}

static costs::Measured summarise(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t last = values.size() - 1;
  const auto at = [&](double part) { return values[size_t(std::lround(double(last) * part))]; };
  return {(values[last / 2] + values[(last + 1) / 2]) / 2, at(0.1), at(0.9),
          int64_t(values.size())};
}

/// Values of each output over the runs.
static Expected<std::vector<std::vector<double>>> runAll(Session &session, const Measure &measure) {
  std::vector<std::vector<double>> values(measure.outputs.size());
  for (int run = -1; run < measure.runs; ++run) {
    auto once = measure.once(session);
    if (!once)
      return once.takeError();
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite((*once)[i]) || (*once)[i] < 0)
        return runtime::problem("{0}: expected a time or rate but got {1}", measure.outputs[i].name,
                                (*once)[i]);
      if (run >= 0)
        values[i].push_back((*once)[i]);
    }
  }
  return values;
}

static void measureOne(Session &session, const Measure &measure, Result &result) {
  auto values = runAll(session, measure);
  const std::string why = values ? "" : llvm::toString(values.takeError());
  if (!why.empty())
    result.failures.push_back({measure.outputs.front().name, why});
  for (size_t i = 0; i < measure.outputs.size(); ++i) {
    costs::Cost cost = {measure.outputs[i].name, measure.outputs[i].unit, std::nullopt, why};
    if (why.empty()) {
      cost.measured = summarise((*values)[i]);
      cost.note = measure.how;
    }
    result.table.costs.push_back(std::move(cost));
  }
}

/// Of this GPU and the machine's next one, if it has two.
static void addPeers(const Options &options, Result &result,
                     const std::function<void(llvm::StringRef)> &progress) {
  auto count = runtime::Driver::count();
  std::string why;
  if (!count)
    why = llvm::toString(count.takeError());
  else if (*count < 2)
    why = "one GPU: no peer to talk to";
  if (!why.empty()) {
    for (const std::string &name : peerCosts())
      result.table.costs.push_back({name, "ns", std::nullopt, why});
    return;
  }
  progress("measure nvlink");
  auto peers = measurePeers(options.ordinal, (options.ordinal + 1) % *count, options.target);
  if (!peers) {
    why = llvm::toString(peers.takeError());
    result.failures.push_back({peerCosts().front(), why});
    for (const std::string &name : peerCosts())
      result.table.costs.push_back({name, "ns", std::nullopt, why});
    return;
  }
  for (const PeerCost &peer : *peers) {
    costs::Cost cost = {peer.name, "ns", std::nullopt, ""};
    cost.measured = summarise(peer.values);
    cost.note = peer.how;
    result.table.costs.push_back(std::move(cost));
  }
}

Expected<Result> calibrate(const Options &options,
                           const std::function<void(llvm::StringRef)> &progress) {
  auto session = Session::create(options.ordinal, options.target, progress);
  if (!session)
    return session.takeError();
  Measures measures;
  addMemory(measures);
  addHops(measures);
  addStages(measures);
  addUnits(measures);
  addParts(measures);
  addLaunches(measures);
  if (!options.only.empty())
    llvm::erase_if(measures, [&](const Measure &measure) {
      return llvm::none_of(measure.outputs, [&](const Measure::Output &output) {
        return llvm::StringRef(output.name).starts_with(options.only);
      });
    });
  const bool wantsPeers = llvm::any_of(peerCosts(), [&](const std::string &name) {
    return llvm::StringRef(name).starts_with(options.only);
  });
  if (measures.empty() && !wantsPeers)
    return runtime::problem("there is no measure whose name begins with '{0}'", options.only);
  Result result;
  const runtime::DeviceInfo &device = (*session)->device();
  result.table.target = options.target;
  result.table.device = device.name;
  result.table.sms = device.sms;
  result.table.driverCuda = device.driverVersion;
  result.table.nvrtc = (*session)->nvrtcVersion().str();
  std::string group;
  for (size_t i = 0; i < measures.size(); ++i) {
    const llvm::StringRef name = measures[i].outputs.front().name;
    if (auto now = name.split('.').first; now != group) {
      group = now.str();
      progress(llvm::formatv("measure {0} ({1} of {2})", group, i + 1, measures.size()).str());
    }
    measureOne(**session, measures[i], result);
  }
  session->reset(); // its memory: both GPUs' sessions of the peers want theirs
  if (wantsPeers)
    addPeers(options, result, progress);
  if (options.only.empty())
    addUnmeasured(result.table);
  return result;
}

} // namespace megalith::calibrate
