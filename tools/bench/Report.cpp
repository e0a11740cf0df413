//===- Report.cpp - What a benchmark found, as text and JSON ----------------===//

#include "tools/bench/Report.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <numeric>

using llvm::formatv;
using llvm::StringRef;

namespace megalith::bench {

/// Bytes per second of `bytes` read in `microseconds`.
static double rate(int64_t bytes, double microseconds) {
  return microseconds > 0 ? double(bytes) / microseconds * 1e6 : 0;
}

static double tokensPerSecond(const Cell &cell, const Times &step) {
  return step.median > 0 ? double(cell.workload.rows) / step.median * 1e6 : 0;
}

/// How launches follow each other, and of what rank.
static std::string modeOf(const Cell &cell) {
  std::string mode = str(cell.launch).str();
  return cell.ranks == 1 ? mode : formatv("{0} +{1}", mode, cell.hopNs).str();
}

static double meanExperts(const Cell &cell) {
  const auto sum =
      std::accumulate(cell.activeExperts.begin(), cell.activeExperts.end(), int64_t(0));
  return cell.activeExperts.empty() ? 0 : double(sum) / double(cell.activeExperts.size());
}

std::string ceilingLine(double bytesPerSecond) {
  return formatv("read ceiling: {0:F3} TB/s", bytesPerSecond / 1e12);
}

std::string setUpLine(const runtime::Plan &plan, double seconds, int64_t weightBytes) {
  return formatv("rows {0}, {1}: set up in {2:F1} s, {3:F1} GB of weights on the GPU", plan.rows,
                 str(plan.launchMode), seconds, double(weightBytes) / 1e9);
}

std::string cellLine(const BenchResult &result, const Cell &cell) {
  const double speed = rate(cell.traffic.total(), cell.best().median);
  return formatv("rows {0}, context {1}, {2}: stream {3:F1} us, graph {4:F1} us, separate {5:F1} "
                 "us; {6:F1} tokens/s, {7:F0} GB/s, {8:F1} % of the ceiling",
                 cell.workload.rows, cell.workload.context, modeOf(cell), cell.stream.median,
                 cell.graph.median, cell.separate.median, tokensPerSecond(cell, cell.best()),
                 speed / 1e9, 100 * speed / result.ceiling);
}

std::string voidReason(const BenchResult &result) {
  if (result.ceiling >= kLeastCeiling)
    return "";
  return formatv("VOID: the read ceiling was {0:F3} TB/s, expected at least {1:F1}: the card was "
                 "busy or slow",
                 result.ceiling / 1e12, kLeastCeiling / 1e12);
}

static std::string stepTable(const BenchResult &result) {
  std::string text =
      formatv("{0,5}{1,9}{2,11}{3,10}{4,9}{5,9}{6,11}{7,11}{8,11}{9,10}{10,8}{11,9}{12,9}\n",
              "rows", "context", "launch", "histories", "experts", "GB", "separate", "stream",
              "graph", "tok/s", "GB/s", "ceiling", "of 4.70");
  for (const Cell &cell : result.cells) {
    const double speed = rate(cell.traffic.total(), cell.best().median);
    text +=
        formatv("{0,5}{1,9}{2,11}{3,10}{4,9:F1}{5,9:F3}{6,11:F1}{7,11:F1}{8,11:F1}{9,10:F1}"
                "{10,8:F0}{11,7:F1} %{12,7:F1} %\n",
                cell.workload.rows, cell.workload.context, modeOf(cell), cell.workload.histories,
                meanExperts(cell), double(cell.traffic.total()) / 1e9, cell.separate.median,
                cell.stream.median, cell.graph.median, tokensPerSecond(cell, cell.best()),
                speed / 1e9, 100 * speed / result.ceiling, 100 * speed / kUsualCeiling);
  }
  return text;
}

static std::string kernelTable(const BenchResult &result) {
  std::string text =
      formatv("{0,5}{1,9}  {2,-26}{3,9}{4,11}{5,11}{6,11}{7,10}{8,10}{9,10}\n", "rows", "context",
              "kernel", "launches", "median", "least", "p90", "MB", "GB/s", "ceiling");
  auto line = [&](const Cell &cell, const std::string &name, int64_t launches, const Times &times,
                  int64_t bytes) {
    const double speed = rate(bytes, times.median);
    const std::string hop = cell.ranks == 1 ? "" : formatv(" +{0} ns", cell.hopNs).str();
    text += formatv("{0,5}{1,9}  {2,-26}{3,9}{4,11:F2}{5,11:F2}{6,11:F2}{7,10:F2}{8,10:F0}"
                    "{9,8:F1} %\n",
                    cell.workload.rows, cell.workload.context, name + hop, launches, times.median,
                    times.least, times.p90, double(bytes) / 1e6, speed / 1e9,
                    100 * speed / result.ceiling);
  };
  for (const Cell &cell : result.cells) {
    for (const KernelTimes &kernel : cell.kernels)
      line(cell, kernel.kernel, kernel.launches, kernel.one,
           kernel.traffic.total() / std::max<int64_t>(1, kernel.launches));
    if (cell.rotating)
      line(cell, "layers in turn", 1, *cell.rotating, cell.rotatingTraffic.total());
    for (const KindTimes &kind : cell.kinds)
      line(cell, kind.kernel + "*", 1, kind.one, kind.traffic.total());
  }
  return text;
}

std::string table(const BenchResult &result) {
  std::string text =
      formatv("{0} for {1} on {2}, {3} SMs; medians of {4} steps, microseconds\n", result.model,
              result.target, result.device.name, result.sms, result.steps);
  text += formatv("read ceiling {0:F3} TB/s", result.ceiling / 1e12);
  for (double run : result.ceilingRuns)
    text += formatv(" [{0:F3}]", run / 1e12);
  if (!result.cells.empty() && result.cells.front().ranks > 1)
    text +=
        formatv("\nrank 0 of {0}, mirrored: alone on this GPU, its stores to peers fall into its "
                "own memory, words of other ranks arrive +N ns later",
                result.cells.front().ranks);
  const std::string reason = voidReason(result);
  text += reason.empty() ? "\n\n" : "\n" + reason + "\n\n";
  text +=
      "Steps. GB: bytes that a step must read; tok/s and shares are of the faster of stream and "
      "graph.\n" +
      stepTable(result);
  text +=
      "\nLaunches. One at a time; \"layers in turn\", and of one kernel (*): overlapping, nothing "
      "else between.\n" +
      kernelTable(result);
  for (const Cell &cell : result.cells)
    if (cell.feedback)
      text +=
          formatv("\nrows {0}, context {1}: steps that feed each other {2:F1} us (graph), {3:F1} "
                  "tokens/s; {4} tokens a row\n",
                  cell.workload.rows, cell.workload.context, cell.feedback->median,
                  tokensPerSecond(cell, *cell.feedback), cell.tokens.size());
  for (const Cell &cell : result.cells)
    if (cell.finiteLogits != cell.logits)
      text +=
          formatv("\nrows {0}, context {1}: {2} of {3} logits are not finite\n", cell.workload.rows,
                  cell.workload.context, cell.logits - cell.finiteLogits, cell.logits);
  return text;
}

static llvm::json::Object json(const Times &times) {
  return llvm::json::Object{{"median", times.median}, {"least", times.least}, {"p90", times.p90}};
}

static llvm::json::Object json(const Traffic &traffic) {
  return llvm::json::Object{{"dense", traffic.dense},
                            {"experts", traffic.experts},
                            {"kv", traffic.kv},
                            {"total", traffic.total()}};
}

static llvm::json::Object json(const Cell &cell, double ceiling) {
  auto mode = [&](const Times &times) {
    const double speed = rate(cell.traffic.total(), times.median);
    return llvm::json::Object{{"us", json(times)},
                              {"tokens_per_s", tokensPerSecond(cell, times)},
                              {"bytes_per_s", speed},
                              {"share_of_ceiling", ceiling > 0 ? speed / ceiling : 0},
                              {"share_of_4.70", speed / kUsualCeiling}};
  };
  llvm::json::Array kernels;
  for (const KernelTimes &kernel : cell.kernels)
    kernels.push_back(llvm::json::Object{{"kernel", kernel.kernel},
                                         {"launches", kernel.launches},
                                         {"us", json(kernel.one)},
                                         {"bytes", json(kernel.traffic)}});
  llvm::json::Object object{{"rows", cell.workload.rows},
                            {"context", cell.workload.context},
                            {"launch", str(cell.launch)},
                            {"ranks", cell.ranks},
                            {"hop_ns", cell.hopNs},
                            {"histories", cell.workload.histories},
                            {"active_experts", llvm::json::Array(cell.activeExperts)},
                            {"bytes", json(cell.traffic)},
                            {"stream", mode(cell.stream)},
                            {"graph", mode(cell.graph)},
                            {"separate", mode(cell.separate)},
                            {"kernels", std::move(kernels)},
                            {"logits", cell.logits},
                            {"finite_logits", cell.finiteLogits}};
  if (cell.feedback) {
    object["feedback"] = mode(*cell.feedback);
    llvm::json::Array tokens; // a list for each step
    for (const std::vector<int32_t> &step : cell.tokens)
      tokens.push_back(llvm::json::Array(step));
    object["tokens"] = std::move(tokens);
  }
  if (cell.rotating)
    object["layers_in_turn"] = llvm::json::Object{
        {"us", json(*cell.rotating)},
        {"bytes", json(cell.rotatingTraffic)},
        {"bytes_per_s", rate(cell.rotatingTraffic.total(), cell.rotating->median)}};
  llvm::json::Array kinds;
  for (const KindTimes &kind : cell.kinds) {
    const double speed = rate(kind.traffic.total(), kind.one.median);
    kinds.push_back(llvm::json::Object{{"kernel", kind.kernel},
                                       {"us", json(kind.one)},
                                       {"bytes", json(kind.traffic)},
                                       {"bytes_per_s", speed},
                                       {"share_of_ceiling", ceiling > 0 ? speed / ceiling : 0}});
  }
  if (!kinds.empty())
    object["kinds_in_turn"] = std::move(kinds);
  return object;
}

std::string toJson(const BenchResult &result, StringRef error) {
  llvm::json::Array cells;
  for (const Cell &cell : result.cells)
    cells.push_back(json(cell, result.ceiling));
  llvm::json::Object object{
      {"version", 1},
      {"model", result.model},
      {"target", result.target},
      {"sms", result.sms},
      {"device", llvm::json::Object{{"name", result.device.name},
                                    {"sms", result.device.sms},
                                    {"memory_bytes", result.device.memoryBytes},
                                    {"driver_cuda", result.device.driverVersion},
                                    {"nvrtc", result.nvrtc}}},
      {"steps", result.steps},
      {"read_ceiling", llvm::json::Object{{"bytes_per_s", result.ceiling},
                                          {"medians", llvm::json::Array(result.ceilingRuns)},
                                          {"bytes_read", result.ceilingBytes}}},
      {"void", voidReason(result)},
      {"set_up_s", result.setUpSeconds},
      {"weight_bytes", result.weightBytes},
      {"cells", std::move(cells)},
      {"error", error}};
  std::string text;
  llvm::raw_string_ostream os(text);
  os << formatv("{0:2}", llvm::json::Value(std::move(object))) << "\n";
  return text;
}

} // namespace megalith::bench
