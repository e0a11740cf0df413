#include "passes/verify/Local.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

llvm::StringRef megalith::verify::nameOfRole(int role) {
  return stringifyRole(static_cast<Role>(role));
}

std::string megalith::verify::nameOfTask(Operation *step) {
  return (stringifyRole(step->getParentOfType<RoleOp>().getRole()) + " of @" +
          step->getParentOfType<StageOp>().getSymName())
      .str();
}

Local::Local(const Program &program, const Valuation &valuation, Faults &faults)
    : program(program), valuation(valuation), faults(faults), edges(program.edges.size()),
      shared(program.shared.size()), rings(program.rings.size()),
      launches(program.launches.size()) {}

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
    edge.signalsIn.assign(launches.size(), 0);
    for (auto &waits : edge.waitsIn)
      waits.assign(launches.size(), 0);
  }
  for (SharedState &state : shared) {
    for (Records &records : state.slots)
      records.clear();
    for (Filling &filling : state.fillings) {
      filling.use = -1;
      filling.shares.clear();
    }
    state.refills = 0;
  }
  for (RingState &ring : rings) {
    for (Records &records : ring.slots)
      records.clear();
    ring.read = 0;
  }
  for (LaunchState &launch : launches) {
    launch = {};
    launch.rearmed.assign(program.globals.size(), 0);
    launch.rearmedBy.assign(program.globals.size(), {-1, 0});
  }
  summary = {};
  summary.sources.resize(program.accesses.size());
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

// A number that other roles learn by an edge is whatever was there before to those that did not
// wait for it in this launch, or, where it comes from, have not signalled it.
void Local::checkKnown(const Thread &thread, const Instr &instr, const Loop &loop) {
  if (loop.after < 0)
    return;
  const Edge &edge = program.edges[loop.after];
  const EdgeState &state = edges[loop.after];
  if (state.waitsIn[thread.role][instr.launch] ||
      (thread.role == edge.from && state.signalsIn[instr.launch]))
    return;
  const bool isFrom = thread.role == edge.from;
  faults.at(instr.op, sm)
          .append("runs ", cast<ForOp>(instr.op).getTrips().getSymbol(),
                  " times, which is known after @", Program::nameOf(edge.op), ", but the ",
                  nameOfTask(instr.op), " has not ", isFrom ? "signalled" : "waited for",
                  " that edge", program.inLaunch(instr.launch), "; expected a task.",
                  isFrom ? "signal" : "wait", " of it before the loop")
          .attachNote(edge.op->getLoc())
      << "the edge is declared here";
}

bool Local::enterLoop(Thread &thread, const Instr &instr) {
  const Loop &loop = program.loops[instr.loop];
  checkKnown(thread, instr, loop);
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
    checkPace(thread, instr);
    launches[instr.launch].over[thread.role] = ++thread.clock[thread.role];
    act(thread, instr);
    ++thread.next;
    return true;
  }
}

bool Local::passes(Thread &thread, const Instr &instr) {
  switch (instr.kind) {
  case Instr::Wait:
    return waitFor(thread, instr.edge, 0);
  case Instr::Peek:
    return waitFor(thread, instr.edge, 0, /*stays=*/true);
  case Instr::Acquire:
    return waitFor(thread, instr.edge, program.edges[instr.edge].slots);
  case Instr::Poll:
    return !instr.polls || thread.polls < passing[thread.role];
  case Instr::LaunchWait:
    return waitForLaunch(thread, instr);
  default:
    return true;
  }
}

void Local::act(Thread &thread, const Instr &instr) {
  switch (instr.kind) {
  case Instr::Rearm:
    requireLaunchWait(thread, instr, "re-arming a set");
    ++launches[instr.launch].rearmed[instr.exchange];
    launches[instr.launch].rearmedBy[instr.exchange] = {thread.role, thread.clock[thread.role]};
    return;
  case Instr::LaunchWait: {
    uint32_t &first = launches[instr.launch].waited[thread.role];
    if (!first)
      first = thread.clock[thread.role];
    if (instr.launch > 0)
      pollWords(thread, instr);
    return;
  }
  case Instr::LaunchDone:
    endLaunch(thread, instr);
    return;
  case Instr::Refill:
    ++shared[instr.refilled].refills;
    thread.met = thread.clock[thread.role];
    return;
  case Instr::Pace: // waits for the role's own copies, which end by themselves
    return;
  case Instr::LaunchDependents:
    requireLaunchWait(thread, instr, "letting the next launch start");
    ++launches[instr.launch].dependentsLaunched;
    return;
  case Instr::Signal:
  case Instr::Release:
    signal(thread, instr);
    return;
  default:
    break;
  }
  if (instr.isStale)
    faults.at(instr.op, sm) << "the " << nameOfTask(instr.op)
                            << " polls the previous set in the kernel's first launch, whose words "
                               "no launch of this kernel publishes; expected the current set, or a "
                               "stage that runs later (during)";
  if (instr.receives)
    requireLaunchWait(thread, instr, "reading what an earlier launch wrote");
  if (instr.polls) {
    for (const Access &touched : program.accessesOf(instr))
      if (!touched.isShared && !touched.isWrite && touched.isCurrent())
        requireLaunchWait(thread, instr, "polling a set that this launch writes");
      else if (!touched.isShared && !touched.isWrite && !knowsLaunchWait(thread, instr.launch) &&
               !knowsLaunchWait(thread, instr.launch - 1))
        faults.at(instr.op, sm) << "polls a set of the launch before, but the "
                                << nameOfRole(thread.role) << " knows of no task.launch_wait in "
                                << "that launch: the set may hold older words; expected one "
                                   "before, or an edge from a role that has one";
    pollWords(thread, instr);
  }
  for (const Access &touched : program.accessesOf(instr))
    if (touched.isShared && !touched.isWrite)
      access(thread, instr, touched);
  if (instr.ring >= 0)
    accessRing(thread, instr, /*isWrite=*/instr.kind == Instr::Copy);
  if (instr.meets == Meeting::Always)
    thread.met = thread.clock[thread.role] - 1;
  for (const Access &touched : program.accessesOf(instr))
    if (touched.isShared && touched.isWrite)
      access(thread, instr, touched);
  if (instr.publishes && program.ranks > 1)
    checkArmed(thread, instr);
  if (instr.publishes)
    summary.events[thread.role].push_back(event(thread, instr, /*isPoll=*/false));
  // Whether such a store is empty depends on the SM: Globals.h looks at each.
  if ((instr.publishes || instr.stores) && !knowsLaunchWait(thread, instr.launch))
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

// Use n passes once signalled, and is over unless it `stays`; a credit edge's first `slotsFree`
// uses pass at once.
bool Local::waitFor(Thread &thread, int index, int64_t slotsFree, bool stays) {
  EdgeState &edge = edges[index];
  const int64_t use = edge.waits[thread.role] - slotsFree;
  if (use >= edge.signals())
    return false;
  if (use >= 0) {
    for (int role = 0; role < kRoles; ++role)
      thread.clock[role] = std::max(thread.clock[role], edge.completed[use][role]);
    thread.met = std::max(thread.met, edge.completed[use][thread.role]);
  }
  if (stays)
    return true;
  ++edge.waits[thread.role];
  ++edge.waitsIn[thread.role][program.code[thread.role][thread.next].launch];
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
                              << "; expected a task.acquire of a credit edge from it before";
      break;
    }
  state.completed.push_back(thread.clock);
  ++state.signalsIn[instr.launch];
}

// What other SMs must do first. It passes here; Words.h looks.
void Local::pollWords(Thread &thread, const Instr &instr) {
  summary.events[thread.role].push_back(event(thread, instr, /*isPoll=*/true));
  pollClock[thread.role].push_back(thread.clock[thread.role]);
  ++thread.polls;
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

// Between launches of the machine each role waits for itself. In a looping kernel it may know of
// another role's wait by an edge: the wait is an acquire, and edges pass on what it acquired.
bool Local::knowsLaunchWait(const Thread &thread, int launch) const {
  const Clock &waited = launches[launch].waited;
  if (!program.isLooping)
    return waited[thread.role];
  for (int role = 0; role < kRoles; ++role)
    if (waited[role] && waited[role] <= thread.clock[role])
      return true;
  return false;
}

void Local::requireLaunchWait(Thread &thread, const Instr &instr, StringRef what) {
  if (!knowsLaunchWait(thread, instr.launch))
    faults.at(instr.op, sm) << what << " needs the previous launch to be complete"
                            << program.inLaunch(instr.launch) << ": the " << nameOfRole(thread.role)
                            << " has no task.launch_wait before this op; expected one, or an edge "
                               "from a role that has";
}

// A role of which the thread does not know that it is over with a launch.
std::optional<int> Local::unknownOf(const Thread &thread, int launch) const {
  for (int role = 0; role < kRoles; ++role) {
    // The thread itself is at its last step.
    const size_t next = threads[role].next + (role == thread.role);
    if (next < program.launchEnds[role][launch] || thread.clock[role] < launches[launch].over[role])
      return role;
  }
  return std::nullopt;
}

// Before its first step of a launch a role must know that all roles of its SM are over with the
// last launch but one: then nothing that is two launches apart can meet, whatever happens in them.
void Local::checkPace(const Thread &thread, const Instr &instr) {
  if (instr.launch < 2 || launches[instr.launch].over[thread.role])
    return;
  if (std::optional<int> role = unknownOf(thread, instr.launch - 2))
    faults.at(instr.op, sm) << "the " << nameOfRole(thread.role) << " begins launch "
                            << program.launches[instr.launch] << " without knowing that the "
                            << nameOfRole(*role) << " is over with launch "
                            << program.launches[instr.launch - 2]
                            << "; expected a wait that tells it in the launch between";
}

// This SM's own arrival, and whatever the epilogue knew then; those of others are for Words.h.
bool Local::waitForLaunch(Thread &thread, const Instr &instr) {
  if (instr.launch == 0)
    return true;
  const std::optional<Clock> &done = launches[instr.launch - 1].done;
  if (!done || thread.polls >= passing[thread.role])
    return false;
  for (int role = 0; role < kRoles; ++role)
    thread.clock[role] = std::max(thread.clock[role], (*done)[role]);
  return true;
}

void Local::endLaunch(Thread &thread, const Instr &instr) {
  const int64_t number = program.launches[instr.launch];
  if (std::optional<int> role = unknownOf(thread, instr.launch))
    faults.at(instr.op, sm) << "says that the SM is over with launch " << number
                            << ", but nothing tells the " << nameOfRole(thread.role) << " that the "
                            << nameOfRole(*role)
                            << " is; expected an edge from it after its last step of the launch";
  // Else an SM could arrive for a launch while others still arrive for the one before.
  if (!knowsLaunchWait(thread, instr.launch))
    faults.at(instr.op, sm) << "arrives for launch " << number << ", but the "
                            << nameOfRole(thread.role)
                            << " knows of no task.launch_wait in it before this op; expected one, "
                               "or an edge from a role that has";
  LaunchState &launch = launches[instr.launch];
  if (launch.dones++ == 0)
    launch.done = thread.clock;
  summary.events[thread.role].push_back(event(thread, instr, /*isPoll=*/false));
}

// Each edge's waits, the ring's pieces, re-arming and the launch's end, as often as they must be.
void Local::checkEnds() {
  for (auto [edge, state] : llvm::zip(program.edges, edges)) {
    if (edge.isWords)
      continue;
    for (int to : edge.to)
      for (size_t launch = 0; launch < launches.size(); ++launch)
        if (state.waitsIn[to][launch] != state.signalsIn[launch]) {
          InFlightDiagnostic fault = faults.at(edge.op, sm);
          fault << "edge @" << Program::nameOf(edge.op) << " is signalled "
                << state.signalsIn[launch] << " times by the " << nameOfRole(edge.from)
                << " but waited for " << state.waitsIn[to][launch] << " times by the "
                << nameOfRole(to) << program.inLaunch(launch)
                << "; expected as many: a task.wait or task.acquire for each task.signal, "
                   "task.release or task.copy";
          for (const auto &[role, verb] :
               {std::pair(edge.from, " signals it here"), std::pair(to, " waits for it here")})
            for (const Instr &instr : program.code[role])
              if (instr.edge == &edge - program.edges.data() && instr.launch == int(launch)) {
                fault.attachNote(instr.op->getLoc()) << "the " << nameOfTask(instr.op) << verb;
                break;
              }
        }
  }
  for (auto [ring, state] : llvm::zip(program.rings, rings))
    if (const int64_t copies = edges[ring.full].signals(); copies != state.read)
      faults.at(ring.op, sm) << "ring @" << Program::nameOf(ring.op) << " receives " << copies
                             << " pieces, of which only the first " << state.read
                             << " are read; expected a task.compute that reads the ring for each "
                                "task.copy";
  for (auto [buffer, state] : llvm::zip(program.shared, shared))
    for (Filling &filling : state.fillings)
      endFilling(buffer, filling);
  for (size_t launch = 0; launch < launches.size(); ++launch)
    checkLaunch(launch);
}

void Local::checkLaunch(int index) {
  const LaunchState &launch = launches[index];
  for (auto [global, times] : llvm::zip(program.globals, launch.rearmed)) {
    auto exchange = dyn_cast<ExchangeOp>(global.op);
    if (exchange && exchange.getWord() == WordKind::Sentinel && times != 1)
      faults.at(exchange, sm) << "@" << exchange.getSymName() << " is re-armed " << times
                              << " times" << program.inLaunch(index)
                              << "; expected once, by every SM in every launch: one task.rearm";
  }
  // A looping kernel has the machine to itself.
  if (launch.dependentsLaunched != !program.isLooping)
    faults.at(program.kernel, sm) << "lets the next launch start " << launch.dependentsLaunched
                                  << " times; expected " << (program.isLooping ? "no" : "one")
                                  << " task.launch_dependents";
  if (program.isLooping && launch.dones != 1)
    faults.at(program.kernel, sm) << "says " << launch.dones << " times that the SM is over with "
                                  << "launch " << program.launches[index]
                                  << "; expected one task.launch_done";
}
