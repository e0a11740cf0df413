//===- Summary.cpp - What a trace says, in numbers --------------------------===//

#include "tools/trace/Summary.h"

#include "tools/trace/Worker.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

using llvm::StringRef;
using namespace megalith::runtime;

namespace megalith::trace {

Spread spreadOf(std::vector<double> values) {
  if (values.empty())
    return {};
  std::sort(values.begin(), values.end());
  auto at = [&](double part) {
    return values[size_t(std::lround(double(values.size() - 1) * part))];
  };
  return {int64_t(values.size()), at(0.1), at(0.5), at(0.9)};
}

namespace {

constexpr std::array<StringRef, 4> kRoles = {"producer", "poller", "consumer", "epilogue"};
/// Stages whose names docs/kernel-contract.md section 7 fixes.
constexpr StringRef kExpertUp = "expert_up", kExpertDown = "expert_down", kTopK = "top_k";

/// When a stage's workers on one SM computed.
struct Worked {
  double ready = 0; ///< what all of its warps wait for was there
  double first = 0; ///< all of them had begun
  double start = 0; ///< one of them had
  double last = 0;
};

/// One launch, with its stages by worker.
class Launch {
public:
  Launch(const Plan &plan, const LaunchTrace &trace)
      : kernel(*plan.kernel(plan.launches[size_t(trace.launch)].kernel)), trace(trace),
        stages(kernel.trace->stages.size()) {
    std::vector<double> begins;
    for (const WarpTrace &warp : trace.warps) {
      begins.push_back(warp.begin);
      for (const WarpStage &stage : warp.stages)
        if (roleOfWarp(warp.warp) == workerOf(kernel.trace->stages[size_t(stage.stage)]))
          addWork(warp, stage);
    }
    begin = spreadOf(begins).median;
  }

  const Kernel &kernel;
  const LaunchTrace &trace;
  double begin = 0;
  std::vector<std::map<int64_t, Worked>> stages; ///< by stage, then SM, of those that computed

  /// -1 if there is no such stage.
  int64_t numberOf(StringRef name) const {
    for (size_t i = 0; i < kernel.trace->stages.size(); ++i)
      if (kernel.trace->stages[i].name == name)
        return int64_t(i);
    return -1;
  }
  /// When the last SM's last product of a stage was done; NaN if there was none.
  double lastOf(StringRef name) const {
    const int64_t number = numberOf(name);
    if (number < 0 || stages[size_t(number)].empty())
      return NAN;
    double last = -INFINITY;
    for (const auto &[sm, worked] : stages[size_t(number)])
      last = std::max(last, worked.last);
    return last;
  }

private:
  void addWork(const WarpTrace &warp, const WarpStage &stage) {
    // Where tiles are dealt out, an SM may have had none: then it neither waited nor took pieces.
    const TraceStage &known = kernel.trace->stages[size_t(stage.stage)];
    const bool waits = !known.role(workerOf(known))->waits.empty();
    if (waits && !stage.ready)
      return;
    Worked worked;
    worked.ready = stage.ready.value_or(stage.begin);
    worked.first = worked.start = stage.first.value_or(worked.ready);
    worked.ready = std::min(worked.ready, worked.first); // several tiles: the first counts
    worked.last = stage.last.value_or(stage.end);
    auto [it, isNew] = stages[size_t(stage.stage)].try_emplace(warp.sm, worked);
    if (!isNew) {
      it->second.ready = std::max(it->second.ready, worked.ready);
      it->second.first = std::max(it->second.first, worked.first);
      it->second.start = std::min(it->second.start, worked.start);
      it->second.last = std::max(it->second.last, worked.last);
    }
  }
};

/// Collects what RoleStage tells of one role in one stage.
class RoleStageMaker {
public:
  RoleStageMaker(const Kernel &kernel, StringRef role, int64_t stage)
      : kernel(kernel), role(role), stage(stage) {}

  void add(const Launch &launch) {
    std::map<int64_t, std::vector<const WarpTrace *>> warps;
    for (const WarpTrace &warp : launch.trace.warps)
      if (roleOfWarp(warp.warp) == role)
        warps[warp.sm].push_back(&warp);
    for (const auto &[sm, list] : warps) {
      double begin = 0, end = 0;
      int64_t count = 0;
      for (const WarpTrace *warp : list)
        for (const WarpStage &part : warp->stages)
          if (part.stage == stage) {
            begin += part.begin;
            end += part.end;
            ++count;
            addPart(launch, part);
          }
      if (!count)
        continue;
      begins.push_back(begin / double(count) - launch.begin);
      ends.push_back(end / double(count) - launch.begin);
    }
  }

  std::optional<RoleStage> make() const {
    if (!parts)
      return std::nullopt;
    const TraceStage &known = kernel.trace->stages[size_t(stage)];
    RoleStage out;
    out.role = role.str();
    out.stage = known.name;
    out.waits = known.role(role)->waits;
    out.begin = spreadOf(begins);
    out.end = spreadOf(ends);
    out.length = length / double(parts);
    out.waited = waited / double(parts);
    out.stalled = stalled / double(parts);
    for (auto [times, spread] : {std::pair(&readies, &out.ready), std::pair(&firsts, &out.first),
                                 std::pair(&lasts, &out.last)})
      if (!times->empty())
        *spread = spreadOf(*times);
    return out;
  }

private:
  void addPart(const Launch &launch, const WarpStage &part) {
    ++parts;
    length += part.end - part.begin;
    waited += part.waited;
    stalled += part.stalled;
    for (auto [time, times] : {std::pair(part.ready, &readies), std::pair(part.first, &firsts),
                               std::pair(part.last, &lasts)})
      if (time)
        times->push_back(*time - launch.begin);
  }

  const Kernel &kernel;
  StringRef role;
  int64_t stage;
  int64_t parts = 0;
  double length = 0, waited = 0, stalled = 0;
  std::vector<double> begins, ends, readies, firsts, lasts;
};

class KernelSummariser {
public:
  KernelSummariser(const Kernel &kernel, const std::vector<Launch> &launches)
      : kernel(kernel), all(launches) {
    for (const Launch &launch : launches)
      if (&launch.kernel == &kernel)
        own.push_back(&launch);
  }

  KernelSummary run() {
    KernelSummary out;
    out.kernel = kernel.name;
    out.launches = int64_t(own.size());
    std::vector<double> periods;
    for (const Launch *launch : own)
      if (const Launch *before = previous(*launch); before && &before->kernel == &kernel)
        periods.push_back(launch->begin - before->begin);
    out.period = spreadOf(periods);
    for (StringRef role : kRoles)
      for (size_t stage = 0; stage < kernel.trace->stages.size(); ++stage) {
        RoleStageMaker maker(kernel, role, int64_t(stage));
        for (const Launch *launch : own)
          maker.add(*launch);
        if (auto made = maker.make())
          out.roles.push_back(std::move(*made));
      }
    addHops(out);
    addChain(out);
    return out;
  }

private:
  const Launch *previous(const Launch &launch) const {
    for (const Launch &other : all)
      if (other.trace.number + 1 == launch.trace.number)
        return &other;
    return nullptr;
  }

  void addHops(KernelSummary &out) const {
    std::vector<double> exchanges;
    for (const TraceHop &hop : kernel.trace->hops) {
      std::vector<double> times, words;
      for (const Launch *launch : own) {
        const Launch *source = hop.previous ? previous(*launch) : launch;
        const double from = source ? source->lastOf(hop.from) : NAN;
        const int64_t to = launch->numberOf(hop.to);
        if (std::isnan(from) || to < 0)
          continue;
        for (const auto &[sm, worked] : launch->stages[size_t(to)]) {
          times.push_back(worked.first - from);
          words.push_back(worked.ready - from);
        }
      }
      if (!hop.pieces)
        exchanges.insert(exchanges.end(), times.begin(), times.end());
      out.hops.push_back({hop, spreadOf(times), spreadOf(words)});
    }
    out.exchange = spreadOf(exchanges);
  }

  void addChain(KernelSummary &out) const {
    std::vector<double> chain, restart;
    for (const Launch *launch : own) {
      const int64_t up = launch->numberOf(kExpertUp), topK = launch->numberOf(kTopK);
      if (up < 0)
        continue;
      const Launch *before = previous(*launch);
      const double down = before ? before->lastOf(kExpertDown) : NAN;
      for (const auto &[sm, worked] : launch->stages[size_t(up)]) {
        if (!std::isnan(down))
          chain.push_back(worked.start - down);
        if (topK >= 0)
          if (const auto chosen = launch->stages[size_t(topK)].find(sm);
              chosen != launch->stages[size_t(topK)].end())
            restart.push_back(worked.start - chosen->second.last);
      }
    }
    out.chain = spreadOf(chain);
    out.restart = spreadOf(restart);
  }

  const Kernel &kernel;
  const std::vector<Launch> &all;
  std::vector<const Launch *> own;
};

} // namespace

Summary summarise(const Plan &plan, const Trace &trace) {
  Summary summary;
  std::vector<Launch> launches;
  for (const LaunchTrace &launch : trace.launches)
    launches.emplace_back(plan, launch);
  for (const Kernel &kernel : plan.kernels)
    if (llvm::any_of(launches, [&](const Launch &launch) { return &launch.kernel == &kernel; }))
      summary.kernels.push_back(KernelSummariser(kernel, launches).run());
  return summary;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static std::string us(double ns) {
  return llvm::formatv("{0:F2}", ns / 1000).str();
}

static std::string text(const Spread &spread) {
  if (!spread.count)
    return "-";
  return us(spread.median) + " (" + us(spread.p10) + " to " + us(spread.p90) + ")";
}

static std::string roleLines(const KernelSummary &kernel) {
  constexpr const char *kLine =
      "  {0,-9} {1,-12}{2,8}{3,8}{4,8}{5,8}{6,8}{7,9}{8,8}{9,8}{10,8}  {11}\n";
  std::string out = llvm::formatv(kLine, "role", "stage", "begin", "ready", "first", "last", "end",
                                  "length", "waited", "stream", "rest", "waits for")
                        .str();
  auto median = [](const std::optional<Spread> &spread) {
    return spread ? us(spread->median) : std::string("-");
  };
  for (const RoleStage &role : kernel.roles) {
    const bool tells = role.role == "consumer";
    out +=
        llvm::formatv(kLine, role.role, role.stage, us(role.begin.median), median(role.ready),
                      median(role.first), median(role.last), us(role.end.median), us(role.length),
                      tells ? us(role.waited) : "-", tells ? us(role.stalled) : "-",
                      tells ? us(role.rest()) : "-", llvm::join(role.waits, ", "))
            .str();
  }
  return out;
}

std::string table(const Trace &trace, const Summary &summary, int64_t bytes) {
  std::vector<double> rates;
  for (const LaunchTrace &launch : trace.launches)
    rates.push_back(launch.clocksPerNs);
  std::string out =
      llvm::formatv("trace: {0} launches; times in us since a launch's begin, medians over SMs and "
                    "launches (10th to 90th percentile); length, waited, stream, rest: means.\n"
                    "SMs aligned within {1:F0} ns (median; at most {2:F0}; the global timer ticks "
                    "every {3:F0} ns); {4:F3} clocks a ns.\n",
                    trace.launches.size(), trace.alignmentError, trace.largestError,
                    trace.timerStep, spreadOf(rates).median)
          .str();
  int64_t most = 0;
  for (const KernelSummary &kernel : summary.kernels)
    most = std::max(most, kernel.launches);
  for (const KernelSummary &kernel : summary.kernels) {
    out += llvm::formatv("\nkernel {0}, {1} launches", kernel.kernel, kernel.launches).str();
    if (kernel.period.count) {
      out += ", one every " + text(kernel.period);
      if (bytes && kernel.launches == most)
        out += llvm::formatv(", {0:F2} TB/s", double(bytes) / kernel.period.median / 1000).str();
    }
    out += "\n" + roleLines(kernel);
    if (!kernel.hops.empty())
      out += llvm::formatv("  {0,-16} {1,-28}{2,-24}{3}\n", "exchange", "from -> to",
                           "E: to the first product", "to the words' arrival")
                 .str();
    for (const HopTimes &hop : kernel.hops)
      out += llvm::formatv("  {0,-16} {1,-28}{2,-24}{3}\n", hop.hop.edge,
                           hop.hop.from + (hop.hop.previous ? " (previous)" : "") + " -> " +
                               hop.hop.to,
                           text(hop.all), text(hop.words) + (hop.hop.pieces ? " in pieces" : ""))
                 .str();
    if (kernel.exchange.count)
      out += "  E, all exchanges but those in pieces: " + text(kernel.exchange) + "\n";
    if (kernel.chain.count)
      out += "  C, last down product to first expert byte: " + text(kernel.chain) +
             "; of it after top-k: " + text(kernel.restart) + "\n";
  }
  return out;
}

} // namespace megalith::trace
