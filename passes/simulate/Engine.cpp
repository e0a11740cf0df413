//===- Engine.cpp - Events in order of time, and launches -----------------===//

#include "passes/simulate/Engine.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace megalith::task;

namespace megalith::simulate {

/// Of a role, in the order of the CTA's warps.
static constexpr int kFirstWarp[verify::kRoles] = {0, 1, 2, 2 + kConsumers};

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

void Engine::add(const verify::Program &program, const Prices &prices, std::vector<Facts> facts) {
  Launch &launch = launches.emplace_back();
  launch.program = &program;
  launch.prices = &prices;
  launch.facts = std::move(facts);
  launch.turns.resize(launch.facts.size());
  launch.sms.resize(size_t(sms));
  for (Sm &sm : launch.sms)
    sm.edges.resize(program.edges.size());
  countWords(launch);
  timeline.unknown.insert(prices.unknown().begin(), prices.unknown().end());
  timeline.estimated.insert(prices.estimated().begin(), prices.estimated().end());
}

void Engine::schedule(double time, EventKind kind, int64_t what) {
  events.push({std::max(time, now), order++, kind, what});
}

void Engine::resume(int64_t warp, double time) {
  schedule(time, EventKind::Resume, warp);
}

bool Engine::isNow(int64_t id) {
  if (warps[size_t(id)].time <= now)
    return true;
  resume(id, warps[size_t(id)].time);
  return false;
}

llvm::Expected<Timeline> Engine::run() {
  for (int64_t sm = 0; sm < sms; ++sm) {
    launches.front().sms[size_t(sm)].place = sm;
    schedule(0, EventKind::Start, sm);
  }
  while (true) {
    const double copy = memory.next();
    const double event =
        events.empty() ? std::numeric_limits<double>::infinity() : events.top().time;
    if (std::isinf(copy) && std::isinf(event))
      break;
    ++timeline.events;
    if (copy <= event) {
      now = copy;
      for (uint64_t token : memory.advance(now)) {
        Launch &launch = launches[token >> 56];
        complete(launch.sms[(token >> 44) & 0xFFF].edges[(token >> 32) & 0xFFF],
                 int64_t(token & 0xFFFFFFFF), now);
      }
      continue;
    }
    const Event next = events.top();
    events.pop();
    now = next.time;
    switch (next.kind) {
    case EventKind::Resume:
      runWarp(next.what);
      break;
    case EventKind::Start:
      start(int(next.what / sms), next.what % sms);
      break;
    case EventKind::End:
      end(int(next.what / sms), next.what % sms);
      break;
    }
  }
  for (const Warp &warp : warps)
    if (warp.times.end == kNever)
      return llvm::createStringError(describe(warp) + " waits for ever");
  collect();
  return std::move(timeline);
}

/// Times of warps, launch by launch; turns of a loop over launches are launches too.
void Engine::collect() {
  std::vector<size_t> first; // of each launch's turns
  for (const Launch &launch : launches) {
    first.push_back(timeline.launches.size());
    for (size_t turn = 0; turn < launch.turns.size(); ++turn)
      timeline.launches.push_back(
          {{},
           launch.begin,
           launch.lastEnd,
           launch.program->isLooping ? launch.program->launches[turn] : int64_t(first.size()) - 1});
  }
  for (Warp &warp : warps) {
    const Launch &launch = launches[size_t(warp.launch)];
    for (size_t turn = 0; turn < launch.turns.size(); ++turn) {
      WarpTimes times = warp.times;
      times.stages.clear();
      for (auto [stage, of] : llvm::zip_equal(warp.times.stages, warp.turns))
        if (of == int(turn))
          times.stages.push_back(stage);
      if (times.stages.empty())
        continue;
      if (turn > 0)
        times.begin = times.stages.front().begin;
      if (turn + 1 < launch.turns.size())
        times.end = times.stages.back().end;
      timeline.launches[first[size_t(warp.launch)] + turn].warps.push_back(std::move(times));
    }
  }
  for (LaunchTimes &times : timeline.launches) {
    llvm::sort(times.warps, [](const WarpTimes &a, const WarpTimes &b) {
      return std::tie(a.sm, a.warp) < std::tie(b.sm, b.warp);
    });
  }
  // A turn begins with the first of its warps and is over with the last.
  for (auto [launch, from] : llvm::zip_equal(launches, first))
    if (launch.program->isLooping)
      for (size_t turn = 0; turn < launch.turns.size(); ++turn) {
        LaunchTimes &times = timeline.launches[from + turn];
        for (const WarpTimes &warp : times.warps) {
          times.begin =
              std::min(warp.begin, &warp == &times.warps.front() ? warp.begin : times.begin);
          times.end = std::max(warp.end, &warp == &times.warps.front() ? warp.end : times.end);
        }
      }
}

std::string Engine::describe(const Warp &warp) const {
  const auto &code = launches[size_t(warp.launch)].program->code[warp.role];
  std::string op = "its end";
  if (warp.at < code.size())
    llvm::raw_string_ostream(op = "") << *code[warp.at].op;
  return llvm::formatv("launch {0}, SM {1}, {2}: {3}", warp.launch, warp.sm,
                       stringifyRole(Role(warp.role)), llvm::StringRef(op).split('\n').first)
      .str();
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

void Engine::start(int number, int64_t sm) {
  Launch &launch = launches[size_t(number)];
  if (launch.begin == 0 && number > 0)
    launch.begin = now;
  for (int role = 0; role < verify::kRoles; ++role)
    for (int i = 0; i < kWarpsOf[role]; ++i) {
      Warp warp{.launch = number, .sm = sm, .role = role, .number = i};
      warp.time = now + costs.setUp;
      warp.dims.assign(launch.program->maxDepth + 1, 0);
      warp.dims[0] = sm;
      warp.uses.assign(launch.program->edges.size(), 0);
      warp.seen.assign(launch.program->code[role].size(), false);
      warp.times.sm = sm;
      warp.times.warp = kFirstWarp[role] + i;
      warp.times.begin = warp.time;
      warp.times.end = kNever;
      warps.push_back(std::move(warp));
      resume(int64_t(warps.size()) - 1, warps.back().time);
    }
}

void Engine::endWarp(int64_t id) {
  Warp &warp = warps[size_t(id)];
  closeStage(warp);
  warp.times.end = warp.time;
  Sm &sm = launches[size_t(warp.launch)].sms[size_t(warp.sm)];
  sm.end = std::max(sm.end, warp.time);
  if (--sm.running == 0)
    schedule(sm.end, EventKind::End, warp.launch * sms + warp.sm);
}

void Engine::end(int number, int64_t sm) {
  Launch &launch = launches[size_t(number)];
  launch.lastEnd = now;
  launch.free.push_back(launch.sms[size_t(sm)].place);
  if (!launch.sms[size_t(sm)].released) {
    launch.sms[size_t(sm)].released = true;
    ++launch.released;
  }
  if (++launch.ended == sms)
    for (int64_t warp : launch.waiting)
      resume(warp, now);
  tryStarts(number + 1);
}

/// Starts CTAs of a launch in the order of their numbers, one for each place that is free: so those
/// of the first numbers begin, and wait, where the launch before had least to do.
void Engine::tryStarts(int number) {
  if (number >= int(launches.size()))
    return;
  const Launch &before = launches[size_t(number) - 1];
  if (before.released < sms)
    return;
  Launch &launch = launches[size_t(number)];
  for (; launch.dealt < before.ended; ++launch.dealt) {
    launch.sms[size_t(launch.dealt)].place = before.free[size_t(launch.dealt)];
    schedule(now + costs.gap, EventKind::Start, number * sms + launch.dealt);
  }
}

/// Where a kernel loops over launches: all SMs have told that the turn before is over.
Engine::Outcome Engine::awaitTurn(int64_t id) {
  if (!isNow(id))
    return Outcome::Blocked;
  Warp &warp = warps[size_t(id)];
  Turn &before = launches[size_t(warp.launch)].turns[size_t(warp.turn) - 1];
  if (before.over < sms) {
    before.waiting.push_back(id);
    return Outcome::Blocked;
  }
  warp.time = std::max(warp.time, before.last + costs.oneWay);
  return Outcome::Next;
}

Engine::Outcome Engine::endTurn(int64_t id) {
  if (!isNow(id))
    return Outcome::Blocked;
  Warp &warp = warps[size_t(id)];
  Turn &turn = launches[size_t(warp.launch)].turns[size_t(warp.turn)];
  turn.last = now;
  warp.time += costs.signal;
  if (++turn.over == sms)
    for (int64_t other : turn.waiting)
      resume(other, now);
  return Outcome::Next;
}

Engine::Outcome Engine::awaitLaunch(int64_t id) {
  Warp &warp = warps[size_t(id)];
  if (warp.launch == 0)
    return Outcome::Next;
  Launch &before = launches[size_t(warp.launch) - 1];
  if (before.ended < sms) {
    before.waiting.push_back(id);
    return Outcome::Blocked;
  }
  warp.time = std::max(warp.time, before.lastEnd + costs.launchWait);
  return Outcome::Next;
}

} // namespace megalith::simulate
