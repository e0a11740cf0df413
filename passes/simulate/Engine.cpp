//===- Engine.cpp - Role regions played in time ---------------------------===//

#include "passes/simulate/Engine.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace megalith::task;
using llvm::ArrayRef;
using megalith::verify::Access;
using megalith::verify::Instr;

namespace megalith::simulate {

/// Warps of a role, in the order of the CTA's warps.
static constexpr int kWarpsOf[verify::kRoles] = {1, 1, kConsumers, 1};
static constexpr int kFirstWarp[verify::kRoles] = {0, 1, 2, 2 + kConsumers};
static constexpr int kConsumer = int(Role::Consumer), kEpilogue = int(Role::Epilogue);

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

//===----------------------------------------------------------------------===//
// Steps of a warp
//===----------------------------------------------------------------------===//

void Engine::runWarp(int64_t id) {
  const std::vector<Instr> &code =
      launches[size_t(warps[size_t(id)].launch)].program->code[warps[size_t(id)].role];
  while (warps[size_t(id)].at < code.size())
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
    if (warp.role == kConsumer && warp.phase == 0 && warp.inStage)
      warp.times.stages.back().last = warp.time; // what is handed over is computed
    warp.phase = 1;
    const Outcome outcome = wait(id, instr.edge, warp.uses[size_t(instr.edge)] - edge.slots, false);
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
    return awaitLaunch(id);
  case Instr::LaunchDependents:
    if (!isNow(id))
      return Outcome::Blocked;
    if (Sm &sm = launch.sms[size_t(warp.sm)]; !sm.released) {
      sm.released = true;
      ++launch.released;
      launch.lastRelease = now;
      tryStarts(warp.launch + 1);
    }
    return Outcome::Next;
  case Instr::Rearm:
  case Instr::LaunchDone:
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
  const auto known = launch.facts.symbol(name, sm, loop.dim > 1 ? dims[1] : 0);
  return known ? std::min(*known, symbol.max) : symbol.max;
}

Engine::Outcome Engine::enterLoop(Warp &warp, const Instr &instr) {
  const Launch &launch = launches[size_t(warp.launch)];
  const verify::Loop &loop = launch.program->loops[size_t(instr.loop)];
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

//===----------------------------------------------------------------------===//
// Edges
//===----------------------------------------------------------------------===//

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

//===----------------------------------------------------------------------===//
// Copies and products
//===----------------------------------------------------------------------===//

const Tile *Engine::tileOf(const Launch &launch, const Warp &warp) const {
  if (launch.facts.tiles.empty() || warp.frames.empty())
    return nullptr;
  const std::vector<Tile> &own = launch.facts.tiles[size_t(warp.sm)];
  const auto index = size_t(warp.dims[1]);
  return index < own.size() ? &own[index] : nullptr;
}

/// Bytes of what a copy reads: a piece of weights, or of a tile's keys and values.
int64_t Engine::bytesOf(const Launch &launch, const Warp &warp, const Instr &instr,
                        const Access &access) const {
  const verify::Global &global = launch.program->globals[size_t(access.decl)];
  verify::Rect rect = access.at(warp.dims.data());
  if (auto weights = dyn_cast<WeightsOp>(global.op)) {
    if (!access.slices.empty()) {
      const verify::Rect slice =
          launch.program->accesses[size_t(access.slices.front())].at(warp.dims.data());
      rect.rows = std::min(rect.row + rect.rows, slice.row + slice.rows) - rect.row;
    }
    const int64_t chunk = llvm::divideCeil(llvm::divideCeil(int64_t(weights.getK()), 8), 16);
    const int64_t stripBytes = 512 * chunk / weights.blocks();
    return std::max<int64_t>(rect.rows, 0) * rect.cols * stripBytes;
  }
  if (const Tile *tile = tileOf(launch, warp); tile && instr.kind == Instr::Copy) {
    const int64_t before = warp.dims[2] * launch.facts.pieceUnits;
    return std::clamp<int64_t>(tile->fullUnits - before, 0, launch.facts.pieceUnits) * 64 *
           launch.facts.headDim;
  }
  return rect.rows * rect.cols * 2;
}

Engine::Outcome Engine::copy(int64_t id, const Instr &instr) {
  if (!isNow(id))
    return Outcome::Blocked;
  Warp &warp = warps[size_t(id)];
  const Launch &launch = launches[size_t(warp.launch)];
  const auto use = uint64_t(warp.uses[size_t(instr.edge)]++);
  const int64_t bytes = bytesOf(launch, warp, instr, launch.program->accessesOf(instr).front());
  memory.issue(now, warp.sm, std::max<int64_t>(bytes, 1),
               uint64_t(warp.launch) << 56 | uint64_t(warp.sm) << 44 | uint64_t(instr.edge) << 32 |
                   use);
  warp.time += costs.issue;
  return Outcome::Next;
}

Engine::Outcome Engine::compute(int64_t id, const Instr &instr) {
  Warp &warp = warps[size_t(id)];
  Launch &launch = launches[size_t(warp.launch)];
  const Prices &prices = *launch.prices;
  const Tile *tile = tileOf(launch, warp);
  const Price &price =
      tile && tile->isNew ? prices.fresh(warp.role, warp.at) : prices.of(warp.role, warp.at);
  if (warp.phase == 0 && price.meets && warp.role == kConsumer)
    return meet(id);
  if (warp.phase < 2) {
    if (instr.publishes && warp.role == kConsumer && warp.inStage)
      warp.times.stages.back().last = warp.time;
    bool takesPart = true;
    if (prices.isByRow(warp.role, warp.at))
      takesPart = warp.number < int64_t(KernelOp(launch.program->kernel).getRows());
    if (prices.isPiece(warp.role, warp.at)) {
      const int64_t group = launch.facts.qHeads / launch.facts.kvHeads;
      const int64_t columns = std::min<int64_t>(llvm::divideCeil(group, 8), 8);
      const int64_t chunks = 8 / columns, pair = warp.dims[2] * launch.facts.pieceUnits / 2;
      takesPart = warp.number / columns == pair % chunks;
    }
    if (takesPart) {
      warp.time += warp.seen[warp.at] ? price.warm : std::max(price.first, price.warm);
      warp.seen[warp.at] = true;
    }
    warp.phase = 2;
  }
  if (!instr.publishes)
    return Outcome::Next;
  if (!isNow(id))
    return Outcome::Blocked;
  publish(launch, warp, instr);
  return Outcome::Next;
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

/// Which words of an exchange: 0 all of them, else those of one table entry.
int64_t Engine::keyOf(const Launch &launch, const Warp &warp, const Instr &,
                      const Access &access) const {
  if (access.table < 0)
    return 0;
  const int64_t argument = access.argument->eval(warp.dims.data());
  if (access.axiom == Axiom::Uniform)
    return 1 + argument;
  const Facts &facts = launch.facts;
  if (access.isWrite) { // an attention tile's
    const std::vector<Tile> &own = facts.tiles[size_t(warp.sm)];
    const Tile &tile = own[size_t(argument)];
    return 1 + tile.sequence * facts.kvHeads + tile.kvHead;
  }
  const int64_t head = (warp.sm + argument * sms) / facts.mergeParts;
  const int64_t row = head / facts.qHeads;
  return 1 + row * facts.kvHeads + head % facts.qHeads / (facts.qHeads / facts.kvHeads);
}

/// What each exchange's polls wait for.
void Engine::countWords(Launch &launch) {
  for (int role = 0; role < verify::kRoles; ++role)
    for (int64_t sm = 0; sm < sms; ++sm)
      countPublishing(launch, role, sm);
}

void Engine::countPublishing(Launch &launch, int role, int64_t sm) {
  const std::vector<Instr> &code = launch.program->code[role];
  Warp warp{.sm = sm, .role = role};
  warp.dims.assign(launch.program->maxDepth + 1, 0);
  warp.dims[0] = sm;
  for (uint32_t at = 0; at < code.size();) {
    const Instr &instr = code[at];
    if (instr.kind == Instr::Stage && sm >= instr.sms) {
      at = instr.end;
      continue;
    }
    if (instr.kind == Instr::LoopBegin) {
      const verify::Loop &loop = launch.program->loops[size_t(instr.loop)];
      const int64_t trips = tripsOf(launch, loop, sm, warp.dims);
      if (trips <= 0) {
        at = instr.end;
        continue;
      }
      warp.frames.push_back({instr.loop, trips, 0});
      warp.dims[loop.dim] = 0;
    } else if (instr.kind == Instr::LoopEnd) {
      Frame &frame = warp.frames.back();
      const unsigned dim = launch.program->loops[size_t(frame.loop)].dim;
      if (++frame.index < frame.trips) {
        warp.dims[dim] = frame.index;
        at = instr.end + 1;
        continue;
      }
      warp.dims[dim] = 0;
      warp.frames.pop_back();
    } else if (instr.publishes) {
      for (const Access &access : launch.program->accessesOf(instr))
        if (access.isWrite && !access.isShared)
          launch.words[{access.decl, keyOf(launch, warp, instr, access)}].missing += kWarpsOf[role];
    }
    ++at;
  }
}

void Engine::publish(Launch &launch, Warp &warp, const Instr &instr) {
  for (const Access &access : launch.program->accessesOf(instr)) {
    if (!access.isWrite || access.isShared ||
        launch.program->globals[size_t(access.decl)].kind != verify::Global::Exchange)
      continue;
    Words &words = launch.words[{access.decl, keyOf(launch, warp, instr, access)}];
    words.last = std::max(words.last, now);
    if (--words.missing == 0) {
      for (int64_t other : words.waiting)
        resume(other, now);
      words.waiting.clear();
    }
  }
}

void Engine::setPolling(Warp &warp, bool polls) {
  if (warp.polls == polls)
    return;
  warp.polls = polls;
  polling += polls ? 1 : -1;
  memory.setPolling(now, double(polling) / double(kConsumers * sms));
}

Engine::Outcome Engine::poll(int64_t id, const Instr &instr) {
  if (!isNow(id))
    return Outcome::Blocked;
  Warp &warp = warps[size_t(id)];
  Launch &launch = launches[size_t(warp.launch)];
  if (warp.phase == 2) { // the words are here
    setPolling(warp, false);
    return Outcome::Next;
  }
  const Access *read = nullptr, *write = nullptr;
  for (const Access &access : launch.program->accessesOf(instr))
    (access.isWrite ? write : read) = &access;
  const bool isConsumer = warp.role == kConsumer;
  const verify::Rect rect = read->at(warp.dims.data());
  auto exchange = dyn_cast<ExchangeOp>(launch.program->globals[size_t(read->decl)].op);
  const int64_t width =
      exchange ? rect.cols * (exchange.getElement().getIntOrFloatBitWidth() / 8) : rect.cols;
  const int64_t key = keyOf(launch, warp, instr, *read);
  // A row a warp, and nothing for the rest: poll_own_row.
  const bool byRow = isConsumer && cast<PollOp>(instr.op).getCallee().starts_with("poll_own_row");
  if (byRow && warp.number >= rect.rows)
    return Outcome::Next;
  // Words of this launch, of the one before, or of one that is over.
  Launch *source = &launch;
  if (!read->isCurrent())
    source = warp.launch > 0 ? &launches[size_t(warp.launch) - 1] : nullptr;
  if (!exchange || !exchange.isSelfValidating())
    source = nullptr;
  double last = -std::numeric_limits<double>::infinity();
  if (source) {
    // Exchanges have one name in all kernels, but each its own number for them.
    int64_t decl = read->decl;
    if (source->program != launch.program)
      for (auto [i, global] : llvm::enumerate(source->program->globals))
        if (verify::Program::nameOf(global.op) == exchange.getSymName())
          decl = int64_t(i);
    auto found = source->words.find({decl, key});
    if (found != source->words.end()) {
      if (found->second.missing > 0) {
        setPolling(warp, true);
        if (warp.phase == 0 && warp.inStage)
          warp.phase = 1;
        found->second.waiting.push_back(id);
        return Outcome::Blocked;
      }
      last = found->second.last;
    }
  }
  setPolling(warp, true);
  const double load = memory.inFlight(), before = warp.time;
  if (isConsumer) {
    const int64_t rows = byRow ? 1 : rect.rows;
    const int64_t mine = byRow ? width : rows * width / kConsumers;
    warp.time = std::max(warp.time + costs.sweepOf(mine, 8, load),
                         last + costs.arrivalOf(rows, width, load));
    if (warp.inStage) {
      warp.times.stages.back().ready = warp.time;
      warp.times.stages.back().waited += warp.time - before;
    }
  } else {
    int64_t bytes = rect.rows * width, batch = 8;
    if (key > 0 && read->axiom == Axiom::Uniform) {
      bytes = width * launch.facts.entries[size_t(key) - 1].pairs;
      batch = std::min<int64_t>(llvm::divideCeil(2 * width, 512), 8); // two rows
    } else if (key > 0) { // a merge tile's records of all splits
      batch = 12;
      const auto row = size_t((key - 1) / launch.facts.kvHeads);
      bytes = row < launch.facts.splits.size()
                  ? launch.facts.splits[row] *
                        llvm::divideCeil(launch.facts.headDim / launch.facts.mergeParts + 2, 3) * 16
                  : 0;
    } else if (write && write->isShared) {
      const verify::Rect target = write->at(warp.dims.data());
      bytes = std::min(bytes, target.cols * 2 * (tileOf(launch, warp) ? 1 : target.rows));
    }
    // A hop's way has a look of one load a lane in it; what more there is comes behind.
    const double sweep = costs.sweepOf(bytes, batch, load, /*epochs=*/batch > 8);
    warp.time = std::max(warp.time + sweep, last + costs.arrivalOf(1, 4096, load) +
                                                std::max(sweep - costs.look.at(load), 0.0));
  }
  warp.phase = 2;
  return isNow(id) ? (setPolling(warp, false), Outcome::Next) : Outcome::Blocked;
}

} // namespace megalith::simulate
