//===- Steps.cpp - A warp goes through its role's code -------------------===//

#include "passes/simulate/Engine.h"

#include <algorithm>

using namespace mlir;
using namespace megalith::task;
using llvm::ArrayRef;
using megalith::verify::Instr;

namespace megalith::simulate {

void Engine::runWarp(int64_t id) {
  const std::vector<Instr> &code =
      launches[size_t(warps[size_t(id)].launch)].program->code[warps[size_t(id)].role];
  while (warps[size_t(id)].at < code.size()) {
    warps[size_t(id)].turn = code[warps[size_t(id)].at].launch;
    switch (step(id, code[warps[size_t(id)].at])) {
    case Outcome::Next:
      ++warps[size_t(id)].at;
      warps[size_t(id)].phase = 0;
      break;
    case Outcome::Jumped:
      break;
    case Outcome::Blocked:
      return;
    }
  }
  endWarp(id);
}

bool Engine::isRing(const Launch &launch, int edge) const {
  return llvm::any_of(launch.program->rings,
                      [&](const verify::Ring &ring) { return ring.full == edge; });
}

Engine::Outcome Engine::step(int64_t id, const Instr &instr) {
  Warp &warp = warps[size_t(id)];
  Launch &launch = launches[size_t(warp.launch)];
  switch (instr.kind) {
  case Instr::Stage:
    return enterStage(warp, instr);
  case Instr::LoopBegin:
    return enterLoop(warp, instr);
  case Instr::LoopEnd:
    return leaveLoop(warp, instr);
  case Instr::Wait: {
    const Outcome outcome = wait(id, instr.edge, warp.uses[size_t(instr.edge)], true);
    if (outcome == Outcome::Next)
      ++warp.uses[size_t(instr.edge)];
    return outcome;
  }
  case Instr::Peek:
    return wait(id, instr.edge, warp.uses[size_t(instr.edge)], true);
  case Instr::Acquire: {
    const auto &edge = launch.program->edges[size_t(instr.edge)];
    const int64_t use = int64_t(warp.uses[size_t(instr.edge)]) - edge.slots;
    if (warp.role == kConsumer && warp.phase == 0 && warp.inStage)
      warp.times.stages.back().last = warp.time; // what is handed over is computed
    if (warp.phase == 0 && use < 0)
      warp.time += costs.wait; // a slot that was never used is looked at like any
    warp.phase = 1;
    const Outcome outcome = wait(id, instr.edge, use, false);
    if (outcome == Outcome::Next)
      ++warp.uses[size_t(instr.edge)];
    return outcome;
  }
  case Instr::Pace: {
    const auto window = int64_t(cast<PaceOp>(instr.op).getWindow());
    return wait(id, instr.edge, warp.uses[size_t(instr.edge)] - window, false);
  }
  case Instr::Signal:
  case Instr::Release:
    arrive(launch, warp.sm, instr.edge, warp.uses[size_t(instr.edge)]++, warp.time + costs.handover,
           int(EdgeOp(launch.program->edges[size_t(instr.edge)].op).getArrivals()));
    warp.time += costs.signal;
    return Outcome::Next;
  case Instr::Copy:
    return copy(id, instr);
  case Instr::Refill:
    if (warp.phase == 1)
      return Outcome::Next;
    return meet(id);
  case Instr::Poll:
    return poll(id, instr);
  case Instr::Compute:
    return compute(id, instr);
  case Instr::LaunchWait:
    return warp.turn > 0 ? awaitTurn(id) : awaitLaunch(id);
  case Instr::LaunchDone:
    return endTurn(id);
  case Instr::LaunchDependents:
    if (!isNow(id))
      return Outcome::Blocked;
    if (Sm &sm = launch.sms[size_t(warp.sm)]; !sm.released) {
      sm.released = true;
      ++launch.released;
      tryStarts(warp.launch + 1);
    }
    return Outcome::Next;
  case Instr::Rearm:
    return Outcome::Next;
  }
  llvm_unreachable("all kinds of steps are above");
}

void Engine::closeStage(Warp &warp) {
  if (warp.inStage)
    warp.times.stages.back().end = warp.time;
  warp.inStage = false;
}

Engine::Outcome Engine::enterStage(Warp &warp, const Instr &instr) {
  closeStage(warp);
  auto stage = cast<StageOp>(instr.op);
  if (warp.sm >= instr.sms) {
    warp.at = instr.end;
    return Outcome::Jumped;
  }
  if (stage.role(Role(warp.role)).getBody().front().empty())
    return Outcome::Next;
  int64_t number = 0;
  KernelOp kernel = launches[size_t(warp.launch)].program->kernel;
  for (StageOp other : kernel.getOps<StageOp>()) {
    if (other == stage)
      break;
    ++number;
  }
  warp.times.stages.push_back({.stage = number, .begin = warp.time});
  warp.turns.push_back(warp.turn);
  warp.inStage = true;
  return Outcome::Next;
}

int64_t Engine::tripsOf(const Launch &launch, const verify::Loop &loop, int64_t sm,
                        ArrayRef<int64_t> dims) const {
  if (loop.symbol < 0)
    return verify::evalLeast(loop.trips, dims.data());
  const verify::Valuation::Symbol &symbol = launch.program->symbols[size_t(loop.symbol)];
  const llvm::StringRef name(reinterpret_cast<const char *>(symbol.name.data()),
                             symbol.name.size());
  const auto known = launch.facts[size_t(loop.launch)].symbol(name, sm, loop.dim > 1 ? dims[1] : 0);
  return known ? std::min(*known, symbol.max) : symbol.max;
}

Engine::Outcome Engine::enterLoop(Warp &warp, const Instr &instr) {
  const Launch &launch = launches[size_t(warp.launch)];
  const verify::Loop &loop = launch.program->loops[size_t(instr.loop)];
  if (!warp.seen[warp.at])
    warp.time += launch.prices->opening(warp.role, warp.at);
  warp.seen[warp.at] = true;
  const int64_t trips = tripsOf(launch, loop, warp.sm, warp.dims);
  if (trips <= 0) {
    warp.at = instr.end;
    return Outcome::Jumped;
  }
  warp.frames.push_back({instr.loop, trips, 0});
  warp.dims[loop.dim] = 0;
  return Outcome::Next;
}

Engine::Outcome Engine::leaveLoop(Warp &warp, const Instr &instr) {
  Frame &frame = warp.frames.back();
  const Price &next = launches[size_t(warp.launch)].prices->nextTile(warp.role, instr.end);
  warp.time += warp.seen[warp.at] ? next.warm : next.first;
  warp.seen[warp.at] = true;
  const unsigned dim = launches[size_t(warp.launch)].program->loops[size_t(frame.loop)].dim;
  if (++frame.index < frame.trips) {
    warp.dims[dim] = frame.index;
    warp.at = instr.end + 1;
    return Outcome::Jumped;
  }
  warp.dims[dim] = 0;
  warp.frames.pop_back();
  return Outcome::Next;
}

} // namespace megalith::simulate
