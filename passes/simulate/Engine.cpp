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

void Engine::add(const verify::Program &program, const Prices &prices, Facts facts) {
  Launch &launch = launches.emplace_back();
  launch.program = &program;
  launch.prices = &prices;
  launch.facts = std::move(facts);
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
  timeline.launches.resize(launches.size());
  for (int64_t sm = 0; sm < sms; ++sm)
    schedule(0, EventKind::Start, sm);
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
  for (Warp &warp : warps)
    if (!warp.times.stages.empty())
      timeline.launches[size_t(warp.launch)].warps.push_back(std::move(warp.times));
  for (auto [times, launch] : llvm::zip_equal(timeline.launches, launches)) {
    llvm::sort(times.warps, [](const WarpTimes &a, const WarpTimes &b) {
      return std::tie(a.sm, a.warp) < std::tie(b.sm, b.warp);
    });
    times.begin = launch.begin;
    times.end = launch.lastEnd;
  }
  return std::move(timeline);
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
  launch.sms[size_t(sm)].started = true;
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
  launch.sms[size_t(sm)].ended = true;
  launch.lastEnd = now;
  if (!launch.sms[size_t(sm)].released) {
    launch.sms[size_t(sm)].released = true;
    ++launch.released;
    launch.lastRelease = now;
  }
  if (++launch.ended == sms)
    for (int64_t warp : launch.waiting)
      resume(warp, now);
  tryStarts(number + 1);
}

/// Starts the CTAs of a launch whose places are free.
void Engine::tryStarts(int number) {
  if (number >= int(launches.size()))
    return;
  Launch &before = launches[size_t(number) - 1];
  if (before.released < sms)
    return;
  for (int64_t sm = 0; sm < sms; ++sm) {
    Sm &own = launches[size_t(number)].sms[size_t(sm)];
    if (own.started || !before.sms[size_t(sm)].ended)
      continue;
    own.started = true;
    schedule(std::max(before.sms[size_t(sm)].end, before.lastRelease) + costs.gap, EventKind::Start,
             number * sms + sm);
  }
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
  const double begin = warp.times.begin - costs.setUp;
  warp.time = std::max(warp.time, std::max(before.lastEnd, begin) + costs.launchWait);
  return Outcome::Next;
}

} // namespace megalith::simulate
