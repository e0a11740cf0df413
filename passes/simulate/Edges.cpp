//===- Edges.cpp - Waits, arrivals, meetings on one SM --------------------===//

#include "passes/simulate/Engine.h"

#include <algorithm>

using namespace megalith::task;

namespace megalith::simulate {

double Engine::doneOf(const Warp &warp, int edge, int64_t use) const {
  const EdgeState &state = launches[size_t(warp.launch)].sms[size_t(warp.sm)].edges[size_t(edge)];
  return use < int64_t(state.done.size()) ? state.done[size_t(use)] : kNever;
}

/// `tells`: it is recorded, as those of waits are.
Engine::Outcome Engine::wait(int64_t id, int edge, int64_t use, bool tells) {
  Warp &warp = warps[size_t(id)];
  Launch &launch = launches[size_t(warp.launch)];
  const double before = warp.time;
  if (use < 0) {
    return Outcome::Next; // a slot that was never used
  }
  const double done = doneOf(warp, edge, use);
  if (done == kNever) {
    launch.sms[size_t(warp.sm)].edges[size_t(edge)].waiting.push_back({use, id});
    return Outcome::Blocked;
  }
  warp.time = std::max(warp.time + costs.wait, done);
  if (!tells || !warp.inStage || (warp.role != kConsumer && warp.role != kEpilogue))
    return Outcome::Next;
  WarpStage &stage = warp.times.stages.back();
  if (warp.role == kConsumer && isRing(launch, edge)) {
    stage.stalled += warp.time - before;
    if (!stage.first)
      stage.first = warp.time;
    return Outcome::Next;
  }
  stage.ready = warp.time;
  if (warp.role == kConsumer)
    stage.waited += warp.time - before;
  return Outcome::Next;
}

void Engine::arrive(Launch &launch, int64_t sm, int edge, int64_t use, double time, int arrivals) {
  EdgeState &state = launch.sms[size_t(sm)].edges[size_t(edge)];
  if (use >= int64_t(state.arrivals.size())) {
    state.arrivals.resize(size_t(use) + 1, 0);
    state.latest.resize(size_t(use) + 1, 0);
  }
  double &latest = state.latest[size_t(use)];
  latest = std::max(latest, time);
  if (++state.arrivals[size_t(use)] == arrivals)
    complete(state, use, latest);
}

void Engine::complete(EdgeState &state, int64_t use, double time) {
  if (use >= int64_t(state.done.size()))
    state.done.resize(size_t(use) + 1, kNever);
  state.done[size_t(use)] = time;
  for (size_t i = 0; i < state.waiting.size();)
    if (state.waiting[i].first == use) {
      resume(state.waiting[i].second, time);
      state.waiting.erase(state.waiting.begin() + long(i));
    } else {
      ++i;
    }
}

/// All consumer warps go on together.
Engine::Outcome Engine::meet(int64_t id) {
  Warp &warp = warps[size_t(id)];
  Sm &sm = launches[size_t(warp.launch)].sms[size_t(warp.sm)];
  sm.meeting = std::max(sm.meeting, warp.time);
  sm.atBarrier.push_back(id);
  if (++sm.met < kConsumers)
    return Outcome::Blocked;
  for (int64_t other : sm.atBarrier) {
    warps[size_t(other)].time = sm.meeting + costs.barrier;
    warps[size_t(other)].phase = 1;
    resume(other, warps[size_t(other)].time);
  }
  sm.atBarrier.clear();
  sm.met = 0;
  sm.meeting = 0;
  return Outcome::Blocked;
}

} // namespace megalith::simulate
