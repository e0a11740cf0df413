#include "passes/verify/Local.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

llvm::StringRef megalith::verify::nameOfRole(int role) {
  return stringifyRole(static_cast<Role>(role));
}

Local::Local(const Program &program, const Valuation &valuation, Faults &faults)
    : program(program), valuation(valuation), faults(faults), edges(program.edges.size()),
      shared(program.shared.size()), rings(program.rings.size()), rearmed(program.globals.size()) {}

// Keeps what was allocated: there are as many runs as SMs that differ.
void Local::reset(int64_t newSm) {
  sm = newSm;
  isExhausted = false;
  for (int role = 0; role < kRoles; ++role) {
    Thread &thread = threads[role];
    thread = {.role = role};
    thread.dims.reserve(program.maxDepth);
    thread.dims.push_back(sm);
    pollClock[role].clear();
  }
  for (EdgeState &edge : edges) {
    edge.completed.clear();
    edge.waits = {};
    for (auto &clocks : edge.waitClock)
      clocks.clear();
  }
  for (SharedState &state : shared) {
    for (Records &records : state.slots)
      records.clear();
    for (Filling &filling : state.fillings)
      filling.use = -1;
    state.refills = 0;
  }
  for (RingState &ring : rings) {
    for (Records &records : ring.slots)
      records.clear();
    ring.read = 0;
  }
  std::fill(rearmed.begin(), rearmed.end(), 0);
  dependentsLaunched = 0;
  summary = {};
}

Summary Local::run(int64_t newSm, int64_t newBudget, const Clock *limits) {
  reset(newSm);
  budget = newBudget;
  passing.fill(UINT32_MAX);
  if (limits)
    passing = *limits;
  for (bool hasMoved = true; hasMoved && !isExhausted;) {
    hasMoved = false;
    for (Thread &thread : threads)
      while (!isExhausted && thread.next < program.code[thread.role].size() && advance(thread))
        hasMoved = true;
  }
  summary.isDone = !isExhausted && llvm::all_of(threads, [&](const Thread &thread) {
    return thread.next == program.code[thread.role].size();
  });
  if (summary.isDone)
    checkEnds();
  return std::move(summary);
}

std::optional<Standing> Local::standing() const {
  if (isExhausted)
    return std::nullopt;
  Standing standing{.sm = sm};
  for (const Thread &thread : threads) {
    if (thread.next == program.code[thread.role].size())
      continue;
    const Instr &at = program.code[thread.role][thread.next];
    const EdgeState &edge = edges[at.edge];
    standing.roles[thread.role] = {&at, edge.waits[thread.role], edge.signals()};
  }
  return standing;
}

// Counts steps, and iterations of loops, against the limits.
bool Local::spend(Thread &thread, const Instr &instr, int64_t steps) {
  summary.steps += steps;
  thread.steps += steps;
  if (thread.steps <= kMaxSteps && summary.steps <= budget)
    return true;
  isExhausted = true;
  if (thread.steps > kMaxSteps)
    faults.at(instr.op, sm) << "the " << nameOfRole(thread.role) << " takes more than " << kMaxSteps
                            << " steps up to here, too many to prove; make its loops shorter or "
                               "cut the kernel into several launches";
  else
    faults.at(program.kernel, sm)
        << "the kernel takes more than " << kMaxStepsOfAll
        << " steps over all its SMs, too many to prove; make its loops shorter, use fewer SMs or "
           "cut the kernel into several launches";
  return false;
}

bool Local::enterLoop(Thread &thread, const Instr &instr) {
  const Loop &loop = program.loops[instr.loop];
  const int64_t trips = program.tripsOf(loop, valuation, thread.dims.data());
  if (trips > kMaxSteps) {
    isExhausted = true;
    faults.at(instr.op, sm) << "runs " << trips << " times, but the proof takes at most "
                            << kMaxSteps << " steps of a role; make the loop shorter or cut the "
                            << "kernel into several launches";
    return false;
  }
  if (trips == 0) {
    thread.next = instr.end;
    return true;
  }
  thread.dims.push_back(0);
  thread.trips.push_back(trips);
  ++thread.next;
  return spend(thread, instr, 1);
}

// Does one instruction; false if it must wait.
bool Local::advance(Thread &thread) {
  const Instr &instr = program.code[thread.role][thread.next];
  switch (instr.kind) {
  case Instr::Stage:
    thread.next = sm < instr.sms ? thread.next + 1 : instr.end;
    return true;
  case Instr::LoopBegin:
    return enterLoop(thread, instr);
  case Instr::LoopEnd:
    if (++thread.dims.back() < thread.trips.back()) {
      thread.next = instr.end + 1;
      return spend(thread, instr, 1);
    }
    thread.dims.pop_back();
    thread.trips.pop_back();
    ++thread.next;
    return true;
  default:
    if (!passes(thread, instr) || !spend(thread, instr, 1))
      return false;
    ++thread.clock[thread.role];
    act(thread, instr);
    ++thread.next;
    return true;
  }
}

bool Local::passes(Thread &thread, const Instr &instr) {
  switch (instr.kind) {
  case Instr::Wait:
    return waitFor(thread, instr.edge, 0);
  case Instr::Acquire:
    return waitFor(thread, instr.edge, program.edges[instr.edge].slots);
  case Instr::Poll:
    return !instr.polls || thread.polls < passing[thread.role];
  default:
    return true;
  }
}

void Local::act(Thread &thread, const Instr &instr) {
  switch (instr.kind) {
  case Instr::Rearm:
    requireLaunchWait(thread, instr, "re-arming a set");
    ++rearmed[instr.exchange];
    return;
  case Instr::LaunchWait:
    thread.hasLaunchWaited = true;
    return;
  case Instr::Refill:
    ++shared[instr.refilled].refills;
    return;
  case Instr::Pace: // waits for the role's own copies, which end by themselves
    return;
  case Instr::LaunchDependents:
    requireLaunchWait(thread, instr, "letting the next launch start");
    ++dependentsLaunched;
    return;
  case Instr::Signal:
  case Instr::Release:
    signal(thread, instr);
    return;
  default:
    break;
  }
  if (instr.receives)
    requireLaunchWait(thread, instr, "reading what an earlier launch wrote");
  if (instr.polls) {
    requireLaunchWait(thread, instr, "polling a set that this launch writes");
    summary.events[thread.role].push_back(event(thread, instr, /*isPoll=*/true));
    pollClock[thread.role].push_back(thread.clock[thread.role]);
    ++thread.polls;
  }
  for (const Access &touched : program.accessesOf(instr))
    if (touched.isShared && !touched.isWrite)
      access(thread, instr, touched);
  if (instr.ring >= 0)
    accessRing(thread, instr, /*isWrite=*/instr.kind == Instr::Copy);
  for (const Access &touched : program.accessesOf(instr))
    if (touched.isShared && touched.isWrite)
      access(thread, instr, touched);
  if (instr.publishes)
    summary.events[thread.role].push_back(event(thread, instr, /*isPoll=*/false));
  // Whether such a store is empty depends on the SM: Globals.h looks at each.
  if ((instr.publishes || instr.stores) && !thread.hasLaunchWaited)
    summary.unwaited[thread.role].push_back(event(thread, instr, /*isPoll=*/false));
  if (instr.kind == Instr::Copy)
    signal(thread, instr);
}

Event Local::event(const Thread &thread, const Instr &instr, bool isPoll) {
  Event event{.instr = static_cast<uint32_t>(&instr - program.code[thread.role].data()),
              .dims = static_cast<uint32_t>(summary.dims.size()),
              .isPoll = isPoll};
  for (int role = 0; role < kRoles; ++role) // the polls that this role knows to have passed
    event.after[role] =
        llvm::upper_bound(pollClock[role], thread.clock[role]) - pollClock[role].begin();
  summary.dims.insert(summary.dims.end(), thread.dims.begin() + 1, thread.dims.end());
  return event;
}

// Use n passes once signalled; a credit edge's first `slotsFree` uses pass at once.
bool Local::waitFor(Thread &thread, int index, int64_t slotsFree) {
  EdgeState &edge = edges[index];
  const int64_t use = edge.waits[thread.role] - slotsFree;
  if (use >= edge.signals())
    return false;
  if (use >= 0)
    for (int role = 0; role < kRoles; ++role)
      thread.clock[role] = std::max(thread.clock[role], edge.completed[use][role]);
  ++edge.waits[thread.role];
  edge.waitClock[thread.role].push_back(thread.clock[thread.role] + 1);
  return true;
}

// A slot's barrier has two phases: use u may be signalled only when every waiting role is known to
// have passed use u - slots, else a waiter could miss a phase and hang.
void Local::signal(Thread &thread, const Instr &instr) {
  EdgeState &state = edges[instr.edge];
  const Edge &edge = program.edges[instr.edge];
  const int64_t before = state.signals() - edge.slots;
  if (before >= 0)
    for (int role : edge.to) {
      const auto &clocks = state.waitClock[role];
      if (before < static_cast<int64_t>(clocks.size()) && clocks[before] <= thread.clock[role])
        continue;
      faults.at(instr.op, sm) << "signals use " << state.signals() << " of edge @"
                              << Program::nameOf(edge.op) << ", which has " << edge.slots
                              << " slots, while the " << nameOfRole(role)
                              << " may still wait for use " << before
                              << "; a credit edge from it must be acquired before";
      break;
    }
  state.completed.push_back(thread.clock);
}

void Local::requireLaunchWait(Thread &thread, const Instr &instr, StringRef what) {
  if (!thread.hasLaunchWaited)
    faults.at(instr.op, sm) << what << " needs the previous launch to be complete: the "
                            << nameOfRole(thread.role) << " has no task.launch_wait before this op";
}

// Each edge's waits, the ring's pieces, re-arming and launch_dependents, as often as they must be.
void Local::checkEnds() {
  for (auto [edge, state] : llvm::zip(program.edges, edges)) {
    if (edge.isWords)
      continue;
    for (int to : edge.to)
      if (state.waits[to] != state.signals())
        faults.at(edge.op, sm) << "is signalled " << state.signals() << " times by the "
                               << nameOfRole(edge.from) << " but waited for " << state.waits[to]
                               << " times by the " << nameOfRole(to) << "; expected as many";
  }
  for (auto [ring, state] : llvm::zip(program.rings, rings))
    if (const int64_t copies = edges[ring.full].signals(); copies != state.read)
      faults.at(ring.op, sm) << "receives " << copies << " pieces, of which only the first "
                             << state.read << " are read";
  for (auto [global, times] : llvm::zip(program.globals, rearmed)) {
    auto exchange = dyn_cast<ExchangeOp>(global.op);
    if (exchange && exchange.getWord() == WordKind::Sentinel && times != 1)
      faults.at(exchange, sm) << "is re-armed " << times
                              << " times; expected once, by every SM in every launch";
  }
  if (dependentsLaunched != 1)
    faults.at(program.kernel, sm) << "lets the next launch start " << dependentsLaunched
                                  << " times; expected one task.launch_dependents";
}
