//===- Path.cpp - What decided how long launches took -----------------------===//

#include "tools/trace/Path.h"

#include "tools/trace/Worker.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <map>
#include <tuple>

using llvm::StringRef;
using namespace megalith::runtime;

namespace megalith::trace {

StringRef str(SegmentKind kind) {
  constexpr StringRef kNames[] = {"work", "wait", "stream", "boundary"};
  return kNames[size_t(kind)];
}

namespace {

/// A wait shorter than this found what it waited for (ns): a look at what is there takes as long.
constexpr double kNoWait = 150;
/// Work of a stage that comes before the wait for its words, at most about (ns).
constexpr double kWorkBeforeWait = 1000;

/// A warp's part of a stage of a launch.
struct Place {
  const LaunchTrace *launch = nullptr;
  const WarpTrace *warp = nullptr;
  size_t part = 0; ///< in warp->stages

  const WarpStage &stage() const { return warp->stages[part]; }
};

/// When the part's product was done.
double doneOf(const WarpStage &stage) {
  return stage.last.value_or(stage.end);
}

class Walk {
public:
  Walk(const Plan &plan, const Trace &trace) : plan(plan), trace(trace) {}

  std::optional<CriticalPath> run() {
    const std::vector<const LaunchTrace *> row = longestRow();
    if (row.size() < 2)
      return std::nullopt;
    const auto from = lastProduct(*row.front()), to = lastProduct(*row.back());
    if (!from || !to || doneOf(to->stage()) <= doneOf(from->stage()))
      return std::nullopt;
    begin = doneOf(from->stage());
    at = doneOf(to->stage());
    std::optional<Place> place = to;
    while (place && at > begin)
      place = walk(*place);
    if (at > begin) { // records end there: what is left is not told
      place = from;
      add(*from, SegmentKind::Boundary, "", begin);
    }
    path.launches = int64_t(row.size()) - 1;
    std::reverse(path.segments.begin(), path.segments.end());
    addTotals();
    return std::move(path);
  }

private:
  const Kernel &kernelOf(const LaunchTrace &launch) const {
    return *plan.kernel(plan.launches[size_t(launch.launch)].kernel);
  }
  const TraceStage &known(const Place &place) const {
    return kernelOf(*place.launch).trace->stages[size_t(place.stage().stage)];
  }
  const LaunchTrace *previous(const LaunchTrace &launch) const {
    for (const LaunchTrace &other : trace.launches)
      if (other.number + 1 == launch.number)
        return &other;
    return nullptr;
  }

  /// Launches of the commonest kernel, one after the other.
  std::vector<const LaunchTrace *> longestRow() const {
    std::map<StringRef, int64_t> counts;
    for (const LaunchTrace &launch : trace.launches)
      ++counts[kernelOf(launch).name];
    StringRef commonest;
    for (const auto &[name, count] : counts)
      if (commonest.empty() || count > counts[commonest])
        commonest = name;
    std::vector<const LaunchTrace *> best, now;
    for (const LaunchTrace &launch : trace.launches) {
      if (kernelOf(launch).name != commonest ||
          (!now.empty() && now.back()->number + 1 != launch.number))
        now.clear();
      if (kernelOf(launch).name == commonest)
        now.push_back(&launch);
      if (now.size() > best.size())
        best = now;
    }
    return best;
  }

  /// The part of `stage` by its worker that was done last, on whichever SM; of `sm` only if it is
  /// not negative. Nothing if nobody did it, or the launch's kernel has no such stage.
  std::optional<Place> lastOf(const LaunchTrace &launch, int64_t stage, int64_t sm = -1) const {
    const auto &stages = kernelOf(launch).trace->stages;
    if (stage >= int64_t(stages.size()))
      return std::nullopt;
    const TraceStage &about = stages[size_t(stage)];
    std::optional<Place> best;
    for (const WarpTrace &warp : launch.warps)
      if (roleOfWarp(warp.warp) == workerOf(about) && (sm < 0 || warp.sm == sm))
        for (size_t i = 0; i < warp.stages.size(); ++i)
          if (warp.stages[i].stage == stage &&
              (!best || doneOf(warp.stages[i]) > doneOf(best->stage())))
            best = Place{&launch, &warp, i};
    return best;
  }
  /// Of the last stage that anybody worked in.
  std::optional<Place> lastProduct(const LaunchTrace &launch) const {
    for (auto stage = int64_t(kernelOf(launch).trace->stages.size()) - 1; stage >= 0; --stage)
      if (auto place = lastOf(launch, stage))
        return place;
    return std::nullopt;
  }
  int64_t numberOf(const LaunchTrace &launch, StringRef stage) const {
    const auto &stages = kernelOf(launch).trace->stages;
    return llvm::find_if(stages, [&](const TraceStage &s) { return s.name == stage; }) -
           stages.begin();
  }

  /// The stretch from `from` to where the path stands.
  void add(const Place &place, SegmentKind kind, StringRef edge, double from) {
    from = std::clamp(from, begin, at);
    if (from >= at)
      return;
    const Segment segment{place.launch->number,
                          kernelOf(*place.launch).name,
                          place.warp->sm,
                          place.stage().stage,
                          kind,
                          edge.str(),
                          from,
                          at};
    at = from;
    if (!path.segments.empty()) {
      Segment &later = path.segments.back();
      if (std::tie(later.launch, later.sm, later.stage, later.kind, later.edge) ==
          std::tie(segment.launch, segment.sm, segment.stage, segment.kind, segment.edge)) {
        later.begin = segment.begin;
        return;
      }
    }
    path.segments.push_back(segment);
  }

  /// Work from `from` on, with stalls of `stalled` before `first`, where the ring was empty.
  void addWork(const Place &place, double from, double stalled, std::optional<double> first) {
    stalled = std::clamp(stalled, 0.0, std::max(at - from, 0.0));
    const double until =
        first ? std::clamp(*first, std::min(from + stalled, at), at) : from + stalled;
    add(place, SegmentKind::Work, "", until);
    add(place, SegmentKind::Stream, "", until - stalled);
    add(place, SegmentKind::Work, "", from);
  }

  /// Tells of the part of `place` up to where the path stands; where it goes on.
  std::optional<Place> walk(const Place &place) {
    const WarpStage &stage = place.stage();
    const TraceStage &about = known(place);
    if (roleOfWarp(place.warp->warp) != workerOf(about))
      return walkBeside(place);
    const TraceHop *hop = nullptr;
    std::optional<Place> source;
    for (const TraceHop &candidate : kernelOf(*place.launch).trace->hops)
      if (candidate.to == about.name && roleOfWarp(place.warp->warp) == workerOf(about)) {
        const LaunchTrace *launch = candidate.previous ? previous(*place.launch) : place.launch;
        const auto from =
            launch ? lastOf(*launch, numberOf(*launch, candidate.from)) : std::nullopt;
        if (candidate.pieces ||
            (from && (!source || doneOf(from->stage()) > doneOf(source->stage())))) {
          hop = &candidate;
          source = from;
        }
      }
    // Others than consumers tell when their last wait was over, not how long they waited.
    const bool isConsumer = roleOfWarp(place.warp->warp) == "consumer";
    const double waits = !stage.ready ? 0 : isConsumer ? stage.waited : *stage.ready - stage.begin;
    // Several tiles have a wait each: then the last one is over long after the stage began.
    const bool isOne =
        !stage.ready || *stage.ready - stage.begin < 2 * (waits + stage.stalled) + kWorkBeforeWait;
    if (!stage.ready || waits < kNoWait || !hop || hop->pieces || !isOne) {
      // Nothing that held it up, or many waits among its work, each for a piece of what came.
      const double waited = std::clamp(waits, 0.0, at - stage.begin);
      addWork(place, stage.begin + waited, stage.stalled, stage.first);
      add(place, SegmentKind::Wait, edgeOf(about, place, hop), stage.begin);
      return before(place);
    }
    addWork(place, *stage.ready, stage.stalled, stage.first);
    if (!source ||
        doneOf(source->stage()) <= stage.begin) { // it was there: the look took that long
      add(place, SegmentKind::Wait, hop->edge, stage.begin);
      return before(place);
    }
    add(place, SegmentKind::Wait, hop->edge, doneOf(source->stage()));
    return source;
  }

  /// The same of a role that only takes on what the stage's worker made.
  std::optional<Place> walkBeside(const Place &place) {
    const WarpStage &stage = place.stage();
    const auto worker = lastOf(*place.launch, stage.stage, place.warp->sm);
    const bool follows = worker && doneOf(worker->stage()) > stage.begin &&
                         doneOf(worker->stage()) < std::min(at, stage.ready.value_or(at));
    addWork(place, stage.ready.value_or(stage.begin), 0, std::nullopt);
    add(place, SegmentKind::Wait, edgeOf(known(place), place, nullptr),
        follows ? doneOf(worker->stage()) : stage.begin);
    return follows ? worker : before(place);
  }

  std::string edgeOf(const TraceStage &about, const Place &place, const TraceHop *hop) const {
    if (hop)
      return hop->edge;
    const TraceRole *role = about.role(roleOfWarp(place.warp->warp));
    return role && !role->waits.empty() ? role->waits.back() : "";
  }

  /// The warp's stage before; at the begin of a launch the end of the launch before on its SM.
  std::optional<Place> before(const Place &place) {
    if (place.part > 0)
      return Place{place.launch, place.warp, place.part - 1};
    const LaunchTrace *launch = previous(*place.launch);
    std::optional<Place> last;
    if (launch)
      for (const WarpTrace &warp : launch->warps)
        if (warp.sm == place.warp->sm && !warp.stages.empty() &&
            (!last || warp.end > last->warp->end))
          last = Place{launch, &warp, warp.stages.size() - 1};
    if (!last)
      return std::nullopt;
    add(place, SegmentKind::Boundary, "", last->stage().end);
    return last;
  }

  void addTotals() {
    std::map<std::tuple<std::string, SegmentKind, std::string>, double> sums;
    for (const Segment &segment : path.segments)
      sums[{plan.kernel(segment.kernel)->trace->stages[size_t(segment.stage)].name, segment.kind,
            segment.edge}] += segment.end - segment.begin;
    for (const auto &[key, ns] : sums)
      path.totals.push_back(
          {std::get<0>(key), std::get<1>(key), std::get<2>(key), ns / double(path.launches)});
    llvm::stable_sort(path.totals,
                      [](const PathTotal &a, const PathTotal &b) { return a.ns > b.ns; });
  }

  const Plan &plan;
  const Trace &trace;
  CriticalPath path;
  double begin = 0, at = 0; ///< where it ends in the past; how far back it is told
};

} // namespace

std::optional<CriticalPath> criticalPath(const Plan &plan, const Trace &trace) {
  if (plan.loopingKernel())
    return std::nullopt;
  return Walk(plan, trace).run();
}

std::string table(const CriticalPath &path) {
  const double all = (path.end() - path.begin()) / double(path.launches);
  std::string out =
      llvm::formatv("critical path, {0} launches: {1:F2} us a launch\n", path.launches, all / 1000)
          .str();
  for (const PathTotal &total : path.totals)
    out +=
        llvm::formatv("  {0,8:F2}  {1,6:P1}  {2,-13}{3}{4}\n", total.ns / 1000, total.ns / all,
                      total.stage, str(total.kind), total.edge.empty() ? "" : " for " + total.edge)
            .str();
  return out;
}

} // namespace megalith::trace
